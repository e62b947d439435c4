//! The backend `netmem`: each device is the memory of a server, another process that may come and go.
//!
//! Read `device-mycpu` of examples/custom-backend first. This one adds the functions for devices that come
//! and go: an option lists the devices, [`Backend::presence`] looks for one, and a driver reports a loss
//! without a call.

#![forbid(unsafe_code)]

mod connection;
mod driver;
mod watch;

use std::net::{AddrParseError, IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::{Duration, Instant};

use device_registry::backend::{
    BACKENDS, Backend, BackendDescriptor, BackendError, DeviceProperties, DeviceUuid, LoadFailure,
    OpenedDevice, OptionSpec, Options, Presence,
};
use netmem_protocol::Info;
use parking_lot::Mutex;

use crate::connection::Connection;

device_registry::backend::entry_points! {
    /// The backend `netmem`, for programs that register it by hand.
    #[distributed_slice(BACKENDS)]
    pub static NETMEM: BackendDescriptor = BackendDescriptor::with_options("netmem", load, OPTIONS);
}

const OPTIONS: &[OptionSpec] =
    &[OptionSpec::new("servers", "addresses of servers, such as 127.0.0.1:4501, separated by commas")];

const DEFAULT_SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4501);

/// How long the backend keeps the outcome of a query: a listing needs it twice, for the presence and the
/// properties.
const KEPT: Duration = Duration::from_secs(1);

/// How long a server may take for its reply before it counts as absent.
const QUERY: Duration = Duration::from_secs(1);

/// Reads the addresses, and connects to none: without a server, the backend loads, and its devices are
/// absent.
fn load(options: &Options) -> Result<Box<dyn Backend>, LoadFailure> {
    let addresses = options.parse::<Addresses>("servers")?.map_or(vec![DEFAULT_SERVER], |list| list.0);
    Ok(Box::new(NetMem { servers: addresses.into_iter().map(Server::new).collect() }))
}

/// The value of the option. Host names are invalid, because their addresses may change, and an ordinal is one
/// device for as long as the program runs.
struct Addresses(Vec<SocketAddr>);

impl FromStr for Addresses {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, AddrParseError> {
        text.split(',').map(|address| address.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

struct NetMem {
    /// By ordinal.
    servers: Vec<Server>,
}

impl Backend for NetMem {
    // It includes servers that are down, so no device changes its ordinal.
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(self.servers.len())
    }

    // The core calls it for listings and before `open`, and never for an open device.
    fn presence(&self, ordinal: usize) -> Result<Presence, BackendError> {
        Ok(match self.servers[ordinal].query() {
            Ok(_) => Presence::Present,
            Err(reason) => Presence::Absent(reason),
        })
    }

    // The UUID of an absent server is unknown. Because of this error, the core accepts no prefix of a UUID
    // that might be its.
    fn properties(&self, ordinal: usize) -> Result<DeviceProperties, BackendError> {
        let server = &self.servers[ordinal];
        let Info { total, uuid, .. } = server.query()?;
        Ok(DeviceProperties::new(format!("memory at {}", server.address))
            .with_vendor("netmem-server")
            .with_total_memory(total)
            .with_uuid(DeviceUuid::from_bytes(uuid)))
    }

    fn open(&self, ordinal: usize) -> Result<OpenedDevice, BackendError> {
        driver::open(self, self.servers[ordinal].address)
    }
}

struct Server {
    address: SocketAddr,
    last: Mutex<Option<Outcome>>,
}

/// The outcome of a query, and its time.
struct Outcome {
    at: Instant,
    found: Result<Info, BackendError>,
}

impl Server {
    fn new(address: SocketAddr) -> Self {
        Self { address, last: Mutex::new(None) }
    }

    /// Queries the server, unless the last outcome is recent.
    fn query(&self) -> Result<Info, BackendError> {
        if let Some(last) = &*self.last.lock()
            && last.at.elapsed() < KEPT
        {
            return last.found.clone();
        }
        // Without the lock, so that no thread waits for the query of another one.
        let found = Connection::open(self.address, QUERY).map(|(_, info)| info);
        *self.last.lock() = Some(Outcome { at: Instant::now(), found: found.clone() });
        found
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use netmem_protocol::{GREETING, encode_reply, read_frame};

    use super::*;

    fn listening() -> (TcpListener, Server) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (listener, Server::new(address))
    }

    #[test]
    fn a_server_is_queried_once_in_a_second() {
        let (listener, server) = listening();
        let info = Info { total: 1, free: 1, uuid: [2; 16] };
        let serving = thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            client.read_exact(&mut [0; GREETING.len()]).unwrap();
            read_frame(&client).unwrap();
            client.write_all(&encode_reply(&Ok(info.encode()))).unwrap();
        });
        assert_eq!(server.query().unwrap(), info);
        serving.join().unwrap();
        assert_eq!(server.query().unwrap(), info, "it no longer listens");
        server.last.lock().as_mut().unwrap().at -= KEPT;
        assert!(server.query().is_err());
    }

    #[test]
    fn a_server_that_accepts_and_does_not_reply_is_absent_soon() {
        let (_listener, server) = listening();
        let start = Instant::now();
        let error = server.query().unwrap_err();
        assert!(error.message().ends_with("did not reply within 1s"), "{error}");
        assert!(start.elapsed() < 2 * QUERY);
    }
}
