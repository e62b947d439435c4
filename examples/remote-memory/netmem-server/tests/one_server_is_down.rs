//! The suite, with one of two servers down: the device of the other passes as if it were alone.

mod servers;

use servers::{Server, configure};

device_registry::autoload!();

fn main() -> std::process::ExitCode {
    let (mut down, up) = (Server::start(), Server::start());
    down.kill();
    configure(&[&down, &up]);
    // The suite skips absent devices, so it would pass with both servers down.
    let is_available = ["netmem:0", "netmem:1"].map(device_registry::is_available);
    assert_eq!(is_available, [false, true]);
    device_conformance::Suite::new().backend("netmem").run()
}
