//! Serves clients, with a new burn server whenever the last client has left.
//!
//! burn's server has a table of tensors that move between its devices. Each client program numbers its moves from 0. A
//! client that is killed during a move can leave a waiting thread behind, which would take the tensor of a later client
//! with the same number, and that client would wait forever. So the table must not outlive its clients. This module
//! accepts the connections itself and relays them to burn's server, on a port of 127.0.0.1 with the same token. When the
//! last connection has ended, it drops that server; the next connection gets a new one.

use std::collections::HashMap;
use std::io::{self, Write, stderr};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use burn_remote::server::{
    AuthorizationRequest, BackendServer, ClientId, PeerAuthorizer, TokenAuthorizer, WebSocketTransport,
};
use device_registry::Device;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{BufReader, copy_buf};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::served::{self, Served};

/// Serves the devices to clients with the token, until Ctrl-C or SIGTERM.
pub(crate) fn run(listener: TcpListener, devices: Vec<Device>, token: &[u8]) -> io::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let outcome = runtime.block_on(async {
        tokio::select! {
            served = accept(listener, || BurnServer::start(&devices, token)) => served,
            stopped = stop_signal() => stopped,
        }
    });
    // Does not wait for sessions that compute.
    runtime.shutdown_background();
    outcome
}

/// Relays each connection to the current server of burn. Starts one if there is none.
async fn accept(listener: TcpListener, start: impl Fn() -> io::Result<BurnServer>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    // Each relayed connection holds it, and the last one drops it.
    let mut current = Weak::new();
    loop {
        let accepted = async {
            let (client, peer) = listener.accept().await?;
            let server = match current.upgrade() {
                Some(server) => server,
                None => Arc::new(start()?),
            };
            current = Arc::downgrade(&server);
            Ok::<_, io::Error>((client, peer, server))
        };
        match accepted.await {
            Ok((client, peer, server)) => drop(tokio::spawn(relay(client, peer, server))),
            // Such as too many open files: other clients may leave.
            Err(error) => {
                report(format_args!("cannot accept a client: {error}"));
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

/// Copies bytes in both directions until either side closes its connection.
async fn relay(mut client: TcpStream, peer: SocketAddr, server: Arc<BurnServer>) -> io::Result<()> {
    let mut to_server = TcpStream::connect(server.address).await?;
    let name = to_server.local_addr()?;
    server.peers().insert(name, peer);
    client.set_nodelay(true)?;
    to_server.set_nodelay(true)?;
    // As burn's server does: notices a client machine that vanishes.
    let probes = TcpKeepalive::new().with_time(Duration::from_secs(10));
    SockRef::from(&client).set_tcp_keepalive(&probes)?;

    let (client_reads, mut client_writes) = client.split();
    let (server_reads, mut server_writes) = to_server.split();
    let mut requests = BufReader::with_capacity(BUFFER, client_reads);
    let mut responses = BufReader::with_capacity(BUFFER, server_reads);
    // Not until both sides have closed: a session that waits forever would keep its server alive.
    let outcome = tokio::select! {
        sent = copy_buf(&mut requests, &mut server_writes) => sent,
        received = copy_buf(&mut responses, &mut client_writes) => received,
    };
    server.peers().remove(&name);
    outcome.map(|_| ())
}

/// The bytes that are copied at once. Tensors are large.
const BUFFER: usize = 256 * 1024;

/// A server of burn, which ends with this value.
struct BurnServer {
    address: SocketAddr,
    peers: Arc<Mutex<HashMap<SocketAddr, SocketAddr>>>,
    task: JoinHandle<()>,
}

impl BurnServer {
    fn start(devices: &[Device], token: &[u8]) -> io::Result<Self> {
        let tokens = TokenAuthorizer::new(token).map_err(io::Error::other)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let peers = Arc::default();
        let known = Arc::clone(&peers);
        let devices = served::devices(devices).map_err(io::Error::other)?;
        let serving = BackendServer::<Served>::new(devices)
            .with_authorizer(move |request: AuthorizationRequest<'_>| authorize(&tokens, &known, request))
            .serve_async(WebSocketTransport::from_listener(listener));
        let task = tokio::spawn(async move {
            if let Err(error) = serving.await {
                report(format_args!("burn's server has stopped: {error}"));
            }
        });
        Ok(Self { address, peers, task })
    }

    /// The clients' addresses, by those of the relayed connections.
    fn peers(&self) -> impl std::ops::DerefMut<Target = HashMap<SocketAddr, SocketAddr>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BurnServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Opens the session if the client presents the token. Otherwise reports the client on standard error.
fn authorize(
    tokens: &TokenAuthorizer,
    peers: &Mutex<HashMap<SocketAddr, SocketAddr>>,
    mut request: AuthorizationRequest<'_>,
) -> Result<(), String> {
    if let ClientId::WebSocket(address) = &mut request.client
        && let Some(peer) = peers.lock().unwrap_or_else(PoisonError::into_inner).get(address)
    {
        *address = *peer;
    }
    tokens.authorize(request).inspect_err(|reason| report(format_args!("refused: {reason}")))
}

/// A line on standard error. Unlike `eprintln!`, it does not panic if that is closed.
fn report(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(stderr(), "{line}");
}

/// Returns at Ctrl-C or, on Unix, SIGTERM.
async fn stop_signal() -> io::Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};

        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted,
            _ = terminate.recv() => Ok(()),
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await
}
