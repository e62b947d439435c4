//! The suite that every backend passes, on the memory of two servers.

mod servers;

use servers::{Server, configure};

device_registry::autoload!();

fn main() -> std::process::ExitCode {
    let servers = [Server::start(), Server::start()];
    configure(&[&servers[0], &servers[1]]);
    device_conformance::Suite::new().backend("netmem").run()
}
