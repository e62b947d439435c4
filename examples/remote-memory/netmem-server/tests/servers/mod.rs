//! Servers for tests. Each is a process that ends with its value, and with the test program however that
//! ends.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

pub struct Server {
    process: Child,
    pub address: SocketAddr,
}

impl Server {
    /// Starts a server on a free port.
    pub fn start() -> Self {
        Self::start_with("127.0.0.1:0", &[])
    }

    pub fn start_with(address: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_netmem-server"));
        command.args(["--listen", address, "--memory", "67108864", "--until-end-of-input"]).args(arguments);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("the server starts");
        let mut line = String::new();
        let printed = BufReader::new(process.stdout.take().expect("it is piped")).read_line(&mut line);
        let address = line.trim().strip_prefix("listening on ").and_then(|address| address.parse().ok());
        let address = address.unwrap_or_else(|| panic!("the server prints {line:?}, {printed:?}"));
        Self { process, address }
    }

    /// Ends the input of the process. Returns whether the process has ended.
    #[allow(dead_code, reason = "not every test program uses it")]
    pub fn has_ended_without_input(&mut self) -> bool {
        drop(self.process.stdin.take());
        self.process.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Ends the process, as a crash does.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Stops the process, which keeps its connections. Returns when none of its threads runs.
    #[cfg(unix)]
    #[allow(dead_code, reason = "not every test program uses it")]
    pub fn stop(&self) {
        use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::STOP).expect("it runs");
        let (_, status) =
            waitpid(Some(pid), WaitOptions::UNTRACED).expect("it is a child").expect("it waits");
        assert!(status.stopped(), "{status:?}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Tells the backend of the servers, by ordinal. A process does so once, before it uses a device.
pub fn configure(servers: &[&Server]) {
    let addresses: Vec<_> = servers.iter().map(|server| server.address.to_string()).collect();
    device_registry::backends()
        .set_option("netmem", "servers", addresses.join(","))
        .expect("it is not loaded");
}
