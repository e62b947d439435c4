//! burn's `Device` without a `[patch]`: a burn server inside this process, which burn reaches as a remote
//! device.
//!
//! ```text
//! program ── burn's remote client ── 127.0.0.1, with a token ── burn_gate ── burn's server ── RegistryDevice ── device
//! ```
//!
//! The server starts at the first use, and one server hosts all devices, so that tensors move between them
//! inside the server. It hosts *names*: it loads no backend and opens no device until a program uses that
//! device. It has two threads of its own, and burn adds one for each device that is used.
//!
//! # Who can connect
//!
//! The server listens on 127.0.0.1, on a port that the system chooses. Any program of this machine can
//! connect to the port, but only a client with the token gets a session. The token has 32 random bytes, and
//! exists only in this process. A connection without the token is one of at most 64, costs at most 100 KiB,
//! and ends after ten seconds. None of its bytes reach burn's server but the key of its handshake and a frame
//! of at most 16 KiB, in which the token would be. A flood of new connections can delay the session of a
//! device, or make it an error: [`burn_gate`] says more. `burn_remote` has no transport without a port: its
//! two transports are a TCP listener and an iroh endpoint.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::process;

use burn_remote::server::{BackendServer, TokenAuthorizer};
use burn_tensor::remote::{ConnectError, RemoteHost};
use device_burn_backend::{Registry, RegistryDevice, abandon_collectives};
use device_registry::{Device, backends};
use parking_lot::Mutex;
use tokio::runtime::{self, Runtime};

use crate::Error;
use crate::device::usable;

/// How many indices of each backend the server hosts. The list of devices is fixed when the server starts,
/// and counting devices would load every backend.
const INDICES: u16 = 256;

/// Why a device cannot be reached through the server of this process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoopbackError {
    /// The index is beyond those that the server hosts.
    #[error("the loop-back server hosts `{name}:0` to `{name}:{last}`, and `{device}` is not one of them", name = .device.name(), last = INDICES - 1)]
    Index {
        /// The device.
        device: Device,
    },
    /// The backend was registered after the server started.
    #[error(
        "backend `{}` was registered after the loop-back server of this process started; register it before the first \
         burn device is made",
        .device.name()
    )]
    LateBackend {
        /// The device.
        device: Device,
    },
    /// The process is a child of `fork`: the threads of the server are in the parent.
    #[error(
        "the loop-back server belongs to the parent process; use burn devices only after `exec`, or only in the parent"
    )]
    Forked,
    /// The server did not start.
    #[error("cannot start the loop-back server on 127.0.0.1")]
    Start {
        /// The reason.
        source: io::Error,
    },
    /// The system has no random bytes for the token.
    #[error("cannot make a token for the loop-back server")]
    Token {
        /// The reason.
        source: getrandom::Error,
    },
    /// burn's client did not get a session.
    #[error("cannot connect to the loop-back server for `{device}`")]
    Connect {
        /// The device.
        device: Device,
        /// The reason.
        source: ConnectError,
    },
}

/// burn's own device for a device string, through the server of this process. [`device`](crate::device) is
/// this function, where the feature `patch` is off.
///
/// Starts the server at the first call, and opens the device. Blocks until burn's client has a session for
/// the device; the second call for a device returns that session.
///
/// # Errors
///
/// What [`device`](crate::device) returns, and [`Error::Loopback`].
pub fn device(text: &str) -> Result<burn_tensor::Device, Error> {
    // The server would close the connection of a device that does not open, and the client would not know
    // why.
    let device = usable(device_registry::device(text)?)?;
    Ok(connect(device.device())?)
}

fn connect(device: Device) -> Result<burn_tensor::Device, LoopbackError> {
    let (host, position) = host(device)?;
    burn_tensor::Device::remote_options(&host)
        .device_index(position)
        .init()
        .map_err(|source| LoopbackError::Connect { device, source })
}

/// The server of this process, once there is one.
static SERVER: Mutex<Option<Server>> = Mutex::new(None);

struct Server {
    /// The process that has its threads.
    process: u32,
    url: String,
    token: [u8; 32],
    /// Its devices; burn's client names them by position.
    devices: Vec<Device>,
    /// Runs it. Never dropped, as statics are not.
    _runtime: Runtime,
}

/// The server's address, and the position of a device there. Starts the server if there is none.
fn host(device: Device) -> Result<(RemoteHost, usize), LoopbackError> {
    // A panic while it starts leaves `None`, from which the next call continues.
    let mut server = SERVER.lock();
    let server = match &mut *server {
        Some(server) => server,
        none => none.insert(Server::start()?),
    };
    if server.process != process::id() {
        return Err(LoopbackError::Forked);
    }
    match server.devices.iter().position(|hosted| *hosted == device) {
        Some(position) => Ok((server.host(), position)),
        None if device.index() >= Some(INDICES) => Err(LoopbackError::Index { device }),
        None => Err(LoopbackError::LateBackend { device }),
    }
}

impl Server {
    /// A server for the names of all devices.
    fn start() -> Result<Self, LoopbackError> {
        let start = |source| LoopbackError::Start { source };
        let mut token = [0; 32];
        getrandom::fill(&mut token).map_err(|source| LoopbackError::Token { source })?;
        let authorizer = TokenAuthorizer::new(&token).expect("a token of 32 bytes is not empty");

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(start)?;
        let url = format!("ws://{}", listener.local_addr().map_err(start)?);
        let hosted = names();
        let devices = hosted.iter().map(|device| device.device()).collect();
        let server = BackendServer::<Registry>::new(hosted);
        let report = |line: fmt::Arguments<'_>| log::warn!("the loop-back server: {line}");
        // Only this process has the token, and it reads its counts by `counts`.
        let serving =
            burn_gate::serve(listener, server, authorizer, report, abandon_collectives, String::new);

        // Opening a device may block a thread for a while, and the other one serves meanwhile.
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("burn-loopback")
            .enable_all()
            .build()
            .map_err(start)?;
        runtime.spawn(async move {
            if let Err(error) = serving.await {
                log::error!("the loop-back server has stopped: {error}");
            }
        });
        Ok(Self { process: process::id(), url, token, devices, _runtime: runtime })
    }

    /// The server as burn's client reaches it.
    fn host(&self) -> RemoteHost {
        RemoteHost::websocket(&self.url).with_credential(&self.token)
    }
}

/// Each device that a device string can name, up to the limit. Runs no backend code, so most do not exist.
fn names() -> Vec<RegistryDevice> {
    let mut devices = Vec::new();
    for backend in backends().iter() {
        // A disabled backend has none.
        let indices =
            (0..INDICES).map_while(|index| Device::parse(&format!("{}:{index}", backend.name())).ok());
        devices.extend(indices.map_while(|device| RegistryDevice::new(device).ok()));
    }
    devices
}

#[cfg(test)]
mod tests {
    use burn_tensor::Tensor;
    use device_registry::DeviceError;

    use super::*;

    device_registry::autoload!();

    #[test]
    fn two_devices_compute_and_exchange_tensors() {
        let first = device("openreg:0").unwrap();
        let second = device("openreg:1").unwrap();
        assert_ne!(first, second);
        let a = Tensor::<2>::from_data([[1.0, 2.0], [3.0, 4.0]], &first);
        let b = Tensor::<2>::from_data([[10.0, 20.0], [30.0, 40.0]], &second);
        let product = a.to_device(&second).matmul(b).to_device(&first) + 1.0;
        let values = product.try_into_data().unwrap().try_to_vec::<f32>().unwrap();
        assert_eq!(values, [71.0, 101.0, 151.0, 221.0]);
    }

    #[test]
    fn a_device_is_the_same_each_time() {
        let of = |text| device(text).unwrap();
        assert_eq!(of("openreg:0"), of("openreg"));
        assert_eq!(of("cpu"), of("cpu:0"));
    }

    #[test]
    fn a_device_that_does_not_exist_is_the_registrys_error() {
        for text in ["openreg:200", "openreg:40000", "cpu:1"] {
            let error = device(text).unwrap_err();
            assert!(matches!(error, Error::Device(DeviceError::NoSuchDevice { .. })), "{text}: {error}");
        }
    }

    #[test]
    fn a_client_without_the_token_gets_no_session() {
        device("cpu").unwrap();
        let url = SERVER.lock().as_ref().unwrap().url.clone();
        for host in [RemoteHost::websocket(&url), RemoteHost::websocket(&url).with_credential("a guess")] {
            let refused = burn_tensor::Device::remote_options(&host).init();
            assert!(matches!(refused, Err(ConnectError::Unauthorized)), "{refused:?}");
        }
    }
}
