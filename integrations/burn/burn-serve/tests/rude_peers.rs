//! Peers without the token, on raw sockets: none takes anything from the server that it does not get back,
//! and none keeps a client with the token out.

#![cfg(target_os = "linux")]

#[allow(dead_code, reason = "`main` is for the example")]
#[path = "../examples/client.rs"]
mod client;
#[allow(dead_code, reason = "for the other tests of the server")]
mod process;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use process::{Folder, Server, server};

/// How long the server may take for anything here. It closes a connection without a session after ten
/// seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// Not a test: the process of a client, which `process` starts with these variables.
#[test]
#[ignore = "the other tests start it"]
fn client_process() {
    let argument = |name| std::env::var(name).ok();
    if let (Some(url), Some(token_file)) = (argument("CLIENT_URL"), argument("CLIENT_TOKEN_FILE")) {
        client::run(&url, &token_file, Duration::ZERO).unwrap();
    }
}

/// A server, and what it had without any connection.
struct Served {
    server: Server,
    folder: Folder,
    descriptors: usize,
}

impl Served {
    fn start() -> Self {
        let folder = Folder::new();
        let server = server(&folder, "openreg:0,cpu");
        let mut served = Self { server, folder, descriptors: 0 };
        // The first client makes it open what it keeps.
        served.a_client_computes();
        thread::sleep(Duration::from_millis(500));
        served.descriptors = served.count();
        served
    }

    fn a_client_computes(&self) {
        let token = self.folder.token("token");
        let (code, out) = process::client(&self.server.url, &token, 0).end();
        assert_eq!(code, Some(0), "{out}");
    }

    fn count(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.server.process.id())).unwrap().count()
    }

    /// Waits until all descriptors are back, and ends the server, which must have said nothing of a panic.
    #[track_caller]
    fn has_lost_nothing(mut self) {
        let start = Instant::now();
        while self.count() > self.descriptors {
            assert!(start.elapsed() < LIMIT, "{} descriptors were {} before", self.count(), self.descriptors);
            thread::sleep(Duration::from_millis(50));
        }
        self.a_client_computes();
        self.server.process.signal("TERM");
        let (code, out) = self.server.process.end();
        assert_eq!(code, Some(0), "{out}");
        assert!(!out.contains("panicked"), "{out}");
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server.url.trim_start_matches("ws://")).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    /// A connection that has sent these bytes.
    fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        stream
    }

    /// A connection after the handshake.
    fn upgraded(&self) -> TcpStream {
        let mut stream = self.send(&request("/session"));
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&answer));
        stream
    }
}

fn request(path: &str) -> Vec<u8> {
    format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    .into_bytes()
}

/// A binary frame that says it has this length.
fn frame(len: u64, content: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x82, 0x80 | 127];
    match u8::try_from(len) {
        Ok(len) if len < 126 => frame[1] = 0x80 | len,
        _ => frame.extend(len.to_be_bytes()),
    }
    frame.extend([0; 4]);
    frame.extend(content);
    frame
}

/// What the server sends until it closes the connection.
#[track_caller]
fn until_closed(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    bytes
}

#[test]
fn a_request_for_anything_but_a_session_is_not_found_and_leaves_nothing() {
    let served = Served::start();
    // What burn's server takes for a request for a transfer, and waits for.
    let transfer = [&b"\x81\xadTensorRequest"[..], b"\x07"].concat();
    for _ in 0..50 {
        for path in ["/data", "/", "/session/", "/session?x", "//data"] {
            let mut stream = served.send(&request(path));
            // It may be closed already.
            let _ = stream.write_all(&frame(transfer.len() as u64, &transfer));
            let answer = until_closed(stream);
            assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 404 "), "{answer:?}");
        }
    }
    served.has_lost_nothing();
}

#[test]
fn a_second_request_on_one_connection_reaches_nothing() {
    let served = Served::start();
    let without_upgrade = b"GET /session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".to_vec();
    for first in [without_upgrade, request("/session")] {
        let answer = until_closed(served.send(&[first, request("/data")].concat()));
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    }
    served.has_lost_nothing();
}

#[test]
fn connections_that_send_nothing_or_half_keep_no_client_out_and_end_by_themselves() {
    let served = Served::start();
    let half = &request("/session")[..40];
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(served.connect());
        silent.push(served.send(half));
    }
    served.a_client_computes();
    let count = served.count();
    assert!(count < served.descriptors + 300, "{count} descriptors, {} before", served.descriptors);
    // The newest was not closed to make room.
    let _ = until_closed(silent.pop().unwrap());
    served.has_lost_nothing();
    drop(silent);
}

#[test]
fn a_connection_without_a_token_after_its_handshake_ends_by_itself() {
    let served = Served::start();
    let waiting = served.upgraded();
    let mut half = served.upgraded();
    half.write_all(&frame(100, b"half")).unwrap();
    assert!(until_closed(waiting).is_empty());
    assert!(until_closed(half).is_empty());
    served.has_lost_nothing();
}

#[test]
fn a_first_frame_that_is_long_or_of_another_kind_closes_the_connection() {
    let served = Served::start();
    for bytes in [
        frame(300 << 20, &[0; 1000]),
        frame(u64::MAX, &[]),
        b"\x89\x80\0\0\0\0".to_vec(),
        b"\x81\x85\0\0\0\0hello".to_vec(),
        b"\x02\x85\0\0\0\0hello".to_vec(),
        vec![0xff; 100],
    ] {
        let start = Instant::now();
        let mut stream = served.upgraded();
        let _ = stream.write_all(&bytes);
        assert!(until_closed(stream).is_empty());
        assert!(start.elapsed() < Duration::from_secs(9), "only the time limit ended it: {bytes:?}");
    }
    served.has_lost_nothing();
}

#[test]
fn garbage_in_the_place_of_the_token_is_refused_and_is_no_panic() {
    let served = Served::start();
    for bytes in [&b"garbage"[..], b"", &[0xdd, 0xff, 0xff, 0xff, 0xff], &[0x91; 100], &[0xc6; 5]] {
        for _ in 0..20 {
            let mut stream = served.upgraded();
            stream.write_all(&frame(bytes.len() as u64, bytes)).unwrap();
            // burn's answer says which version it speaks.
            assert!(!until_closed(stream).is_empty());
        }
    }
    served.has_lost_nothing();
}

#[test]
fn peers_that_leave_at_any_moment_leave_nothing() {
    let served = Served::start();
    for _ in 0..100 {
        drop(served.connect());
        drop(served.send(b"GET"));
        drop(served.send(&request("/session")));
        drop(served.upgraded());
        let mut half = served.upgraded();
        half.write_all(&frame(50, b"half")).unwrap();
        half.shutdown(Shutdown::Write).unwrap();
        drop(half);
    }
    served.has_lost_nothing();
}

#[test]
fn the_port_of_burns_own_server_takes_no_connection() {
    let served = Served::start();
    let _session = served.upgraded();
    let own: SocketAddr = served.server.url.trim_start_matches("ws://").parse().unwrap();
    let ports = listening_ports(served.server.process.id());
    assert!(ports.contains(&own.port()) && ports.len() == 2, "{ports:?}");
    for port in ports.into_iter().filter(|port| *port != own.port()) {
        let behind = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let error = TcpStream::connect_timeout(&behind, Duration::from_secs(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    }
    // So that the time is up for lack of an answer, and not of a machine that is slow.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    TcpStream::connect_timeout(&listener.local_addr().unwrap(), Duration::from_secs(1)).unwrap();
}

#[test]
fn a_connection_without_a_token_does_not_keep_the_server_of_the_client_before() {
    let served = Served::start();
    let ports = || listening_ports(served.server.process.id());
    let mut waiting = served.upgraded();
    let before = ports();
    assert_eq!(before.len(), 2, "{before:?}");
    served.a_client_computes();
    let mut later = vec![served.upgraded()];
    // The gate may not have noticed yet that the client has left.
    while ports().iter().all(|port| before.contains(port)) {
        assert!(later.len() < 50, "{before:?}");
        later.push(served.upgraded());
        thread::sleep(Duration::from_millis(20));
    }
    waiting.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let error = waiting.read(&mut [0]).expect_err("only its end has ended the server");
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
}

/// The ports on which a process listens.
fn listening_ports(process: u32) -> Vec<u16> {
    let sockets: Vec<String> = fs::read_dir(format!("/proc/{process}/fd"))
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = fs::read_to_string(format!("/proc/{process}/net/tcp")).unwrap();
    let port = |line: &str| {
        const LISTENS: &str = "0A";
        let fields: Vec<&str> = line.split_whitespace().collect();
        let listens = fields[3] == LISTENS && sockets.iter().any(|socket| socket == fields[9]);
        listens.then(|| u16::from_str_radix(fields[1].split_once(':').unwrap().1, 16).unwrap())
    };
    table.lines().skip(1).filter_map(port).collect()
}
