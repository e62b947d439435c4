//! Other programs of the machine find the port of the loop-back server. What they send harms nothing.

#![cfg(all(target_os = "linux", feature = "loopback"))]

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use burn_tensor::Tensor;

device_registry::autoload!();

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn strangers_end_no_thread_keep_no_descriptor_and_reach_no_second_port() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let computes = || {
        let device = device_burn::loopback::device("openreg:1").unwrap();
        let sum = Tensor::<1>::from_data([1.0, 2.0], &device) + 1.0;
        assert_eq!(sum.try_into_data().unwrap().try_to_vec::<f32>().unwrap(), [2.0, 3.0]);
    };
    computes();
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let of_this_test = thread::current().id();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if thread::current().id() != of_this_test {
            PANICS.fetch_add(1, Ordering::SeqCst);
        }
        hook(panic);
    }));

    let ports = listening_ports();
    assert_eq!(ports.len(), 2, "{ports:?}");
    let reached: Vec<u16> =
        ports.into_iter().filter(|port| connect(*port, Duration::from_secs(1)).is_ok()).collect();
    assert_eq!(reached.len(), 1, "{reached:?}");
    let request_for_a_transfer = [&b"\x81\xadTensorRequest"[..], b"\x07"].concat();
    for path in ["/data", "/session"] {
        for content in [&b"garbage"[..], &request_for_a_transfer, b""] {
            for _ in 0..50 {
                let mut stream = connect(reached[0], LIMIT).unwrap();
                stream.write_all(&request(path)).unwrap();
                let frame = [&[0x82, 0x80 | content.len() as u8, 0, 0, 0, 0], content].concat();
                // The server may have closed the connection, which is right.
                let _ = stream.read(&mut [0; 512]);
                let _ = stream.write_all(&frame);
            }
        }
    }
    let start = Instant::now();
    while descriptors() > before {
        assert!(start.elapsed() < LIMIT, "{} descriptors, {before} before", descriptors());
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(PANICS.load(Ordering::SeqCst), 0);
    computes();
}

fn connect(port: u16, limit: Duration) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), limit)?;
    stream.set_read_timeout(Some(LIMIT))?;
    Ok(stream)
}

fn request(path: &str) -> Vec<u8> {
    format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    .into_bytes()
}

/// The ports on which this process listens.
fn listening_ports() -> Vec<u16> {
    let sockets: Vec<String> = fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let port = |line: &str| {
        const LISTENS: &str = "0A";
        let fields: Vec<&str> = line.split_whitespace().collect();
        let listens = fields[3] == LISTENS && sockets.iter().any(|socket| socket == fields[9]);
        listens.then(|| u16::from_str_radix(fields[1].split_once(':').unwrap().1, 16).unwrap())
    };
    fs::read_to_string("/proc/self/net/tcp").unwrap().lines().skip(1).filter_map(port).collect()
}
