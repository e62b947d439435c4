//! What devices did as events of the crate `tracing`, as a subscriber prints them.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use device_registry::{Device, LaunchOptions, activity};
use tracing_subscriber::fmt::MakeWriter;

// No other line names the crate.
use device_trace as _;

#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<u8>>>);

impl io::Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Printed {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// One test: a process has one subscriber for all threads.
#[test]
fn work_and_memory_are_events_with_fields_which_a_filter_chooses() {
    let printed = Printed::default();
    tracing_subscriber::fmt()
        .with_env_filter("device=debug,device::work=trace,device::memory=trace")
        .with_ansi(false)
        .with_writer(printed.clone())
        .init();
    let cpu = Device::cpu();
    let span = activity::span("epoch 1");
    let (stream, buffer) = (cpu.create_stream().unwrap(), cpu.allocate(64).unwrap());
    stream.launch_with(&LaunchOptions::new().named("double"), &[&buffer], |_| Ok(())).unwrap();
    stream.host_call(|| panic!("on purpose")).unwrap();
    stream.fill(&buffer, .., &[1]).unwrap();
    stream.synchronize().unwrap_err();
    buffer.write(0, &[1; 64]).unwrap();
    drop((span, stream, buffer));
    assert!(activity::flush(Duration::from_secs(30)));

    let printed = String::from_utf8(printed.0.lock().unwrap().clone()).unwrap();
    let expect = |texts: &[&str]| {
        let has_all = |line: &str| texts.iter().all(|text| line.contains(text));
        assert!(printed.lines().any(has_all), "{texts:?} in:\n{printed}");
    };
    expect(&["DEBUG", "device: opened", "device=cpu", "took="]);
    expect(&["TRACE", "device::memory: allocated", "bytes=64", "span=epoch 1"]);
    expect(&[
        "TRACE",
        "device::work: double",
        "device=cpu",
        "waited=",
        "took=",
        r#"clock="host""#,
        "span=epoch 1",
    ]);
    expect(&["device::work: host call", r#"outcome="failed""#]);
    expect(&["device::work: fill", "bytes=64", r#"outcome="skipped""#]);
    expect(&["device::memory: freed", "bytes=64"]);
    // The filter leaves out what the host called.
    assert!(!printed.contains("device::host"), "{printed}");
}
