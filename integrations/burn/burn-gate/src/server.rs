//! burn's server, on its own port.
//!
//! Its listener accepts one connection at a time. On Linux the kernel drops every packet for it that is not
//! from the socket of that connection, and every packet while there is none. So other users, who can find the
//! port, cannot connect to it.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4};
use std::pin::Pin;
use std::sync::{Arc, Weak};

use burn_ir::BackendIr;
use burn_remote::server::{
    AuthorizationRequest, BackendServer, ClientId, PeerAuthorizer, ServeError, TokenAuthorizer,
    WebSocketTransport,
};
use parking_lot::Mutex;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;

use crate::answers::Answers;
use crate::opening::{invalid, read_head};

type Serving = Pin<Box<dyn Future<Output = Result<(), ServeError>> + Send>>;

/// The servers of burn, one after the other.
pub(crate) struct Servers {
    start: Box<dyn Fn(WebSocketTransport) -> Serving + Send + Sync>,
    clients: Arc<Clients>,
    pub(crate) answers: Answers,
    report: fn(fmt::Arguments<'_>),
    left: fn(),
    current: Mutex<Current>,
}

/// The server for new connections.
#[derive(Default)]
struct Current {
    /// Each of its connections holds it, and the last one drops it.
    server: Weak<Server>,
    /// Its connections whose token burn has accepted.
    sessions: usize,
}

impl Servers {
    pub(crate) fn new<B: BackendIr>(
        server: BackendServer<B>,
        tokens: TokenAuthorizer,
        report: fn(fmt::Arguments<'_>),
        left: fn(),
        counts: impl Fn() -> String + Send + Sync + 'static,
    ) -> Self {
        let clients = Arc::new(Clients::default());
        let known = Arc::clone(&clients);
        let answers = Answers { tokens: tokens.clone(), counts: Box::new(counts) };
        let server = server.with_authorizer(move |request: AuthorizationRequest<'_>| {
            known.authorize(&tokens, request).inspect_err(|reason| report(format_args!("refused: {reason}")))
        });
        let start = move |transport| Box::pin(server.serve_async(transport)) as Serving;
        Self { start: Box::new(start), clients, answers, report, left, current: Mutex::default() }
    }

    /// The server that has sessions, or one that has had none.
    pub(crate) fn current(&self) -> io::Result<Arc<Server>> {
        let mut current = self.current.lock();
        if let Some(server) = current.server.upgrade() {
            return Ok(server);
        }
        let server = Arc::new(self.start()?);
        *current = Current { server: Arc::downgrade(&server), sessions: 0 };
        Ok(server)
    }

    /// Counts a session of this server. None, if the last session of this server has ended meanwhile: the
    /// client needs the server after it.
    pub(crate) fn enter(self: &Arc<Self>, server: Arc<Server>) -> Option<Session> {
        let mut current = self.current.lock();
        if !Weak::ptr_eq(&current.server, &Arc::downgrade(&server)) {
            return None;
        }
        current.sessions += 1;
        Some(Session { servers: Arc::clone(self), _server: server })
    }

    fn start(&self) -> io::Result<Server> {
        let door = Door::new()?;
        let address = door.0.local_addr()?.as_socket().expect("it has an address of IPv4");
        let serving = (self.start)(WebSocketTransport::from_listener(door.0.try_clone()?.into()));
        let (end, ended) = oneshot::channel::<()>();
        let report = self.report;
        tokio::spawn(async move {
            // Dropping what serves ends its sessions.
            tokio::select! {
                served = serving => if let Err(error) = served {
                    report(format_args!("burn's server has stopped: {error}"));
                },
                _ = ended => {}
            }
        });
        let clients = Arc::clone(&self.clients);
        Ok(Server { address, door: tokio::sync::Mutex::new(door), clients, _end: end })
    }
}

/// A session of the current server, until the drop.
pub(crate) struct Session {
    servers: Arc<Servers>,
    _server: Arc<Server>,
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut current = self.servers.current.lock();
        current.sessions -= 1;
        if current.sessions == 0 {
            // Connections without a token may still hold the server: they do not keep it for the next client.
            current.server = Weak::new();
            (self.servers.left)();
        }
    }
}

/// A server of burn, which ends with this value.
pub(crate) struct Server {
    address: SocketAddr,
    door: tokio::sync::Mutex<Door>,
    clients: Arc<Clients>,
    _end: oneshot::Sender<()>,
}

impl Server {
    /// A connection to the server for a client, after the handshake: burn has answered the request.
    pub(crate) async fn connect(&self, peer: SocketAddr, request: &str) -> io::Result<Connection> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let name = socket.local_addr()?;
        // The first of the values here, so it is the last to be dropped: nothing else gets the port while the
        // door is open for it, or while it is in the list.
        let _port = SockRef::from(&socket).try_clone()?;
        let (accepted, authorized) = oneshot::channel();
        self.clients.0.lock().insert(name, Client { peer, accepted: Some(accepted) });
        let client = Registered { clients: Arc::clone(&self.clients), name };

        // Until burn has answered: before that, the kernel may still need the door for this connection. The
        // socket that the listener has accepted keeps the filter of its handshake.
        let mut opened = Opened(self.door.lock().await);
        opened.0.open_for(name)?;
        let stream = socket.connect(self.address).await?;
        stream.set_nodelay(true)?;
        let mut stream = BufReader::new(stream);
        stream.write_all(request.as_bytes()).await?;
        let answer = read_head(&mut stream).await?;
        if !answer.starts_with(b"HTTP/1.1 101 ") || !stream.buffer().is_empty() {
            return Err(invalid("another answer than that to a handshake"));
        }
        Ok(Connection { _client: client, stream: stream.into_inner(), answer, authorized })
    }
}

/// A connection to burn's server.
pub(crate) struct Connection {
    /// Before the stream, as it is dropped first: the next socket with this port may be in the list at once.
    _client: Registered,
    pub(crate) stream: TcpStream,
    /// burn's answer to the request.
    pub(crate) answer: Vec<u8>,
    /// Says when burn has accepted the client's token.
    pub(crate) authorized: oneshot::Receiver<()>,
}

/// The clients, by the addresses that burn's server sees.
#[derive(Default)]
struct Clients(Mutex<HashMap<SocketAddr, Client>>);

struct Client {
    peer: SocketAddr,
    accepted: Option<oneshot::Sender<()>>,
}

impl Clients {
    /// Opens the session if the client presents the token.
    fn authorize(
        &self,
        tokens: &TokenAuthorizer,
        mut request: AuthorizationRequest<'_>,
    ) -> Result<(), String> {
        #[allow(irrefutable_let_patterns, reason = "with a feature, burn has another transport")]
        let ClientId::WebSocket(address) = request.client else {
            return Err(format!("{} did not come by a websocket", request.client));
        };
        let mut clients = self.0.lock();
        let Some(client) = clients.get_mut(&address) else {
            return Err(format!("{address} did not come through the gate"));
        };
        request.client = ClientId::WebSocket(client.peer);
        tokens.authorize(request)?;
        if let Some(accepted) = client.accepted.take() {
            // The connection may have ended meanwhile.
            let _ = accepted.send(());
        }
        Ok(())
    }
}

/// A client in the list, until the drop.
struct Registered {
    clients: Arc<Clients>,
    name: SocketAddr,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.clients.0.lock().remove(&self.name);
    }
}

/// The listener of burn's server.
struct Door(Socket);

impl Door {
    /// A listener on 127.0.0.1, which is closed on Linux.
    fn new() -> io::Result<Self> {
        let mut door = Self(Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?);
        door.close()?;
        let any_port = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        door.0.bind(&any_port.into())?;
        door.0.listen(16)?;
        Ok(door)
    }

    /// From now on, no socket connects.
    fn close(&mut self) -> io::Result<()> {
        // No connection comes from port 0.
        self.open_for((Ipv4Addr::LOCALHOST, 0).into())
    }

    /// From now on, only a socket with this address connects.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn open_for(&mut self, address: SocketAddr) -> io::Result<()> {
        use socket2::SockFilter;

        const LOAD_U32: u16 = 0x20;
        const LOAD_U16: u16 = 0x28;
        const SKIP_IF_EQUAL: u16 = 0x15;
        const RETURN: u16 = 0x06;
        // Offsets count from TCP's header, and from this one on from IP's.
        const IP_HEADER: u32 = 0xfff0_0000;
        const ALL_BYTES: u32 = u32::MAX;

        let SocketAddr::V4(address) = address else {
            return Err(invalid("a socket with an address of IPv6"));
        };
        self.0.attach_filter(&[
            SockFilter::new(LOAD_U32, 0, 0, IP_HEADER + 12),
            SockFilter::new(SKIP_IF_EQUAL, 0, 3, (*address.ip()).into()),
            SockFilter::new(LOAD_U16, 0, 0, 0),
            SockFilter::new(SKIP_IF_EQUAL, 0, 1, address.port().into()),
            SockFilter::new(RETURN, 0, 0, ALL_BYTES),
            SockFilter::new(RETURN, 0, 0, 0),
        ])
    }

    /// Other systems have no such filter.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    #[allow(clippy::unnecessary_wraps, reason = "as on Linux")]
    fn open_for(&mut self, _: SocketAddr) -> io::Result<()> {
        Ok(())
    }
}

/// The door while it is open for one socket. The drop closes it.
struct Opened<'a>(tokio::sync::MutexGuard<'a, Door>);

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        if self.0.close().is_err() {
            // The kernel has no memory for the filter. Without a listener nothing connects, and the next
            // server has one.
            let _ = self.0.0.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::answers::tests::answers;

    const LIMIT: Duration = Duration::from_secs(60);
    const A_WHILE: Duration = Duration::from_millis(300);
    const SWITCHES: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\n\r\n";
    const NOT_FOUND: &[u8] = b"HTTP/1.1 404 Not Found\r\n\r\n";

    /// A server of burn that the test is, and its listener.
    fn server() -> (Server, TcpListener) {
        let door = Door::new().unwrap();
        let listener: TcpListener = door.0.try_clone().unwrap().into();
        let server = Server {
            address: listener.local_addr().unwrap(),
            door: tokio::sync::Mutex::new(door),
            clients: Arc::default(),
            _end: oneshot::channel().0,
        };
        (server, listener)
    }

    /// Servers; the test itself is each of them.
    pub(crate) fn servers() -> Arc<Servers> {
        Arc::new(Servers {
            start: Box::new(|_| Box::pin(std::future::pending())),
            clients: Arc::default(),
            answers: answers(),
            report: |_| {},
            left: || LEFT.set(LEFT.get() + 1),
            current: Mutex::default(),
        })
    }

    thread_local! {
        /// How often the last session of a server of this test has ended.
        static LEFT: Cell<u32> = const { Cell::new(0) };
    }

    impl Servers {
        /// Accepts the token of the connection from this address.
        pub(crate) fn accept(&self, name: SocketAddr) {
            let accepted = self.clients.0.lock().get_mut(&name).unwrap().accepted.take();
            accepted.unwrap().send(()).unwrap();
        }
    }

    impl Server {
        pub(crate) fn listener(&self) -> tokio::net::TcpListener {
            let listener: TcpListener = self.door.try_lock().unwrap().0.try_clone().unwrap().into();
            listener.set_nonblocking(true).unwrap();
            tokio::net::TcpListener::from_std(listener).unwrap()
        }
    }

    /// A connection to the server, or an error after this time.
    fn connect(server: &Server, limit: Duration) -> io::Result<Connection> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let peer = (Ipv4Addr::LOCALHOST, 1).into();
        runtime.block_on(async { tokio::time::timeout(limit, server.connect(peer, "request")).await })?
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn no_socket_but_the_named_one_connects() {
        let mut door = Door::new().unwrap();
        let address = door.0.local_addr().unwrap().as_socket().unwrap();
        let connects = || TcpStream::connect_timeout(&address, A_WHILE).is_ok();
        assert!(!connects());

        let named = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        named.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        let name = named.local_addr().unwrap().as_socket().unwrap();
        door.open_for(name).unwrap();
        assert!(!connects());
        // The same port of another address.
        let other = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        other.bind(&SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), name.port())).into()).unwrap();
        assert!(other.connect_timeout(&address.into(), A_WHILE).is_err());
        named.connect_timeout(&address.into(), LIMIT).unwrap();
        assert_eq!(door.0.accept().unwrap().1.as_socket(), Some(name));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_port_of_a_connection_that_has_ended_connects_to_nothing() {
        // An answer of burn, another one, and none until the time is up.
        for (answer, limit) in [(SWITCHES, LIMIT), (NOT_FOUND, LIMIT), (b"", A_WHILE)] {
            let (server, listener) = server();
            let burn = thread::spawn(move || {
                let (mut accepted, name) = listener.accept().unwrap();
                accepted.write_all(answer).unwrap();
                (accepted, name, listener)
            });
            let connection = connect(&server, limit);
            assert_eq!(connection.is_ok(), answer == SWITCHES);
            let (accepted, name, _listener) = burn.join().unwrap();
            // It has not read the request, so this resets the connection, and no side waits with the port.
            drop(accepted);
            drop(connection);

            let stranger = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            stranger.set_reuse_address(true).unwrap();
            stranger.bind(&name.into()).unwrap();
            let error = stranger.connect_timeout(&server.address.into(), A_WHILE).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        }
    }

    #[test]
    fn a_connection_lasts_when_the_door_is_closed_and_leaves_the_list_before_its_port_is_free() {
        for answer in [SWITCHES, NOT_FOUND] {
            let (server, listener) = server();
            let clients = Arc::clone(&server.clients);
            let gate = thread::spawn(move || drop(connect(&server, LIMIT)));
            let (mut accepted, _) = listener.accept().unwrap();
            accepted.read_exact(&mut [0; "request".len()]).unwrap();
            let list = clients.0.lock();
            accepted.write_all(answer).unwrap();
            accepted.set_read_timeout(Some(A_WHILE)).unwrap();
            let error = accepted.read(&mut [0]).expect_err("the port is free");
            assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
            drop(list);
            accepted.set_read_timeout(Some(LIMIT)).unwrap();
            assert_eq!(accepted.read(&mut [0]).unwrap(), 0);
            gate.join().unwrap();
            assert!(clients.0.lock().is_empty());
        }
    }

    #[tokio::test]
    async fn the_last_session_ends_its_server_for_all_connections_but_those_it_has() {
        let servers = servers();
        let first = servers.current().unwrap();
        let without_token = servers.current().unwrap();
        assert!(Arc::ptr_eq(&first, &without_token), "it has had no session");

        let session = servers.enter(first).unwrap();
        let second = servers.enter(servers.current().unwrap()).unwrap();
        drop(session);
        assert!(Arc::ptr_eq(&servers.current().unwrap(), &without_token), "one session is left");
        assert_eq!(LEFT.get(), 0);
        drop(second);
        assert_eq!(LEFT.get(), 1);
        let next = servers.current().unwrap();
        assert!(!Arc::ptr_eq(&next, &without_token), "a connection without a token kept the server");
        assert!(servers.enter(without_token).is_none());
        assert!(servers.enter(next).is_some());
    }
}
