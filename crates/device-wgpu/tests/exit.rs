//! The end of a program with work under way, and nothing closed.

mod child;

use device_conformance::process;
use device_registry::device;

use crate::child::CHILD;

device_registry::autoload!();

#[test]
fn a_program_ends_while_its_work_runs() {
    const TEST: &str = "a_program_ends_while_its_work_runs";
    if !process::is_child() {
        if device_conformance::device_or_skip("wgpu").is_none() {
            return;
        }
        for _ in 0..10 {
            let output = CHILD.again(TEST, &[]);
            let printed = String::from_utf8_lossy(&output.stderr);
            // It ends by `exit`, and not by a signal because something is torn down under the work.
            assert_eq!(output.status.code(), Some(7), "{}: {printed}", output.status);
        }
        return;
    }
    let device = device("wgpu").unwrap();
    let stream = device.create_stream().unwrap();
    let [from, to] = [(); 2].map(|()| device.allocate(32 << 20).unwrap());
    for _ in 0..20 {
        stream.copy(&from, &to).unwrap();
    }
    let _read = stream.read(&to, ..).unwrap();
    std::process::exit(7);
}
