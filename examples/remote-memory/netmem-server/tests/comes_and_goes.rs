//! Servers that come and go, as programs see them. Each test has servers of its own, and so a process of its
//! own: a process has one list of servers.

mod servers;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use device_conformance::process;
use device_registry::{
    Buffer, Device, DeviceError, Fault, Presence, device, device_count, device_list, first_available,
    is_available,
};

use netmem_protocol::{GREETING, MAX_BYTES, Place, Request, decode_reply, read_frame};
use servers::{Server, configure};

device_registry::autoload!();

const LONG: Duration = Duration::from_secs(20);

const UUID: &str = "0d7c8f22-3d1b-4d0a-9a55-0c1f5d7e9b10";

/// Runs a test in its own process. Fails also if one of its servers panics, which ends a thread there
/// and no more.
fn alone(test: &str, run: impl FnOnce()) {
    if process::is_child() {
        return run();
    }
    let output = process::again(test, |child| child);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !printed.contains("panicked"), "{test}: {}: {printed}", output.status);
}

fn netmem(index: u16) -> Device {
    device(&format!("netmem:{index}")).expect("it is linked")
}

/// Makes the next operation stall.
fn stall(device: Device) {
    device.faults().and_then(|faults| faults.inject(Fault::Stall { nth: 1 })).expect("it offers faults");
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LONG, "{what}: not within {LONG:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn filled(device: Device) -> Buffer {
    let buffer = device.allocate(3).expect("it has memory");
    buffer.write(0, b"abc").expect("it is there");
    buffer
}

fn content(buffer: &Buffer) -> Result<[u8; 3], DeviceError> {
    let mut bytes = [0; 3];
    buffer.read(0, &mut bytes).map(|()| bytes)
}

#[test]
fn a_killed_server_loses_the_device_and_wakes_what_waits() {
    alone("a_killed_server_loses_the_device_and_wakes_what_waits", || {
        let [mut server, other] = [Server::start(), Server::start()];
        configure(&[&server, &other]);
        let (buffer, beside) = (filled(netmem(0)), filled(netmem(1)));
        let stream = netmem(0).create_stream().unwrap();
        // One call stalls in the driver, on a thread of the program. Another one stalls on the stream's
        // thread, and the program's threads wait for it in the core.
        stall(netmem(0));
        let writes = buffer.clone();
        let writer = thread::spawn(move || writes.write(0, b"ABC"));
        thread::sleep(Duration::from_millis(50));
        stall(netmem(0));
        stream.write(&buffer, 0, b"ABC").unwrap();
        let read = stream.read(&buffer, 0..3).unwrap();
        let event = stream.record().unwrap();
        let waiting = [
            writer,
            thread::spawn(move || read.wait().map(drop)),
            thread::spawn(move || event.synchronize()),
            thread::spawn(move || stream.synchronize()),
        ];
        thread::sleep(Duration::from_millis(50));
        assert!(waiting.iter().all(|thread| !thread.is_finished()) && !netmem(0).is_lost());

        server.kill();
        until("all wake up", || waiting.iter().all(|thread| thread.is_finished()));
        for thread in waiting {
            let error = thread.join().unwrap().unwrap_err().to_string();
            assert!(error.contains("the connection to the server at 127.0.0.1:"), "{error}");
        }
        let reason = netmem(0).presence().unwrap();
        assert!(matches!(reason, Presence::Lost(_)), "{reason}");
        assert!(device_list().to_string().contains("netmem-server, 64 MiB, uuid="), "it is still described");
        assert_eq!(content(&beside).unwrap(), *b"abc", "the other device");
        drop(buffer);
    });
}

#[cfg(unix)]
#[test]
fn a_killed_server_wakes_a_reader_that_waits_for_its_reply() {
    alone("a_killed_server_wakes_a_reader_that_waits_for_its_reply", || {
        let mut server = Server::start();
        configure(&[&server]);
        let buffer = filled(netmem(0));
        server.stop();
        let start = Instant::now();
        let reader = thread::spawn(move || content(&buffer));
        thread::sleep(Duration::from_millis(100));
        assert!(!reader.is_finished());
        server.kill();
        let error = reader.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("has ended"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(4), "it waited for the time limit");
    });
}

#[cfg(unix)]
#[test]
fn a_server_that_stops_replying_loses_the_device_without_a_call() {
    alone("a_server_that_stops_replying_loses_the_device_without_a_call", || {
        let server = Server::start();
        configure(&[&server]);
        netmem(0).open().unwrap();
        // It keeps its connections, as a machine without power does.
        server.stop();
        until("it is lost", || netmem(0).is_lost());
        let presence = netmem(0).presence().unwrap().to_string();
        assert!(presence.ends_with("did not reply within 5s"), "{presence}");
        netmem(0).reset().unwrap();
        let presence = netmem(0).presence().unwrap().to_string();
        assert!(
            presence.starts_with("absent: ") && presence.ends_with("did not reply within 1s"),
            "{presence}"
        );
    });
}

#[test]
fn a_lost_device_works_after_a_reset_once_its_server_is_back() {
    alone("a_lost_device_works_after_a_reset_once_its_server_is_back", || {
        let mut server = Server::start();
        configure(&[&server]);
        let old = filled(netmem(0));
        server.kill();
        until("it is lost", || netmem(0).is_lost());

        let _server = Server::start_with(&server.address.to_string(), &[]);
        assert!(netmem(0).allocate(1).is_err(), "the program has not reset it");
        netmem(0).reset().unwrap();
        until("the server is found", || is_available("netmem"));
        let new = filled(netmem(0));
        assert!(content(&old).unwrap_err().to_string().contains("device lost"));
        // The number that its memory had belongs to the new memory now.
        drop(old);
        assert_eq!(content(&new).unwrap(), *b"abc");
    });
}

#[test]
fn an_injected_loss_ends_the_connection() {
    alone("an_injected_loss_ends_the_connection", || {
        let server = Server::start();
        configure(&[&server]);
        for fault in [Fault::LoseDevice { nth: 1 }, Fault::Unplug] {
            let buffer = filled(netmem(0));
            netmem(0).faults().and_then(|faults| faults.inject(fault)).unwrap();
            let error = content(&buffer).unwrap_err().to_string();
            assert!(error.contains("the connection to the server at 127.0.0.1:"), "{fault:?}: {error}");
            netmem(0).reset().unwrap();
        }
    });
}

#[test]
fn an_absent_server_is_counted_passed_over_and_found_when_it_comes() {
    alone("an_absent_server_is_counted_passed_over_and_found_when_it_comes", || {
        let [up, mut down] = [Server::start(), Server::start()];
        down.kill();
        configure(&[&up, &down]);
        assert_eq!(device_count("netmem").unwrap(), 2);
        let found = first_available("netmem:1,cpu").unwrap();
        assert_eq!(found.device, Device::cpu());
        let reason = format!("absent: no server at {}: ", down.address);
        let (error, list) = (found.passed_over[0].1.to_string(), device_list().to_string());
        for text in [&error, &list, &netmem(1).allocate(1).unwrap_err().to_string()] {
            assert!(text.contains(&reason), "{text}");
        }
        assert_eq!(first_available("netmem:1,netmem:0").unwrap().device, netmem(0));

        let _later = Server::start_with(&down.address.to_string(), &[]);
        until("it is found", || is_available("netmem:1"));
        assert_eq!(content(&filled(netmem(1))).unwrap(), *b"abc");
    });
}

#[test]
fn a_prefix_of_a_uuid_is_undecided_while_a_server_is_down() {
    alone("a_prefix_of_a_uuid_is_undecided_while_a_server_is_down", || {
        let [mut down, up] = [Server::start(), Server::start_with("127.0.0.1:0", &["--uuid", UUID])];
        down.kill();
        configure(&[&down, &up]);
        let error = device("netmem@uuid=0d7c").unwrap_err().to_string();
        assert!(error.contains("might match devices that do not answer"), "{error}");
        assert_eq!(device(&format!("netmem@uuid={UUID}")).unwrap(), netmem(1), "the whole of it is decided");

        let other = ["--uuid", "ffffffff-3d1b-4d0a-9a55-0c1f5d7e9b10"];
        let _down = Server::start_with(&down.address.to_string(), &other);
        until("all reply", || device("netmem@uuid=0d7c").is_ok());
        assert_eq!(device("netmem@uuid=0d7c").unwrap(), netmem(1));
    });
}

#[test]
fn garbage_ends_its_own_connection_and_nothing_else() {
    alone("garbage_ends_its_own_connection_and_nothing_else", || {
        let server = Server::start();
        configure(&[&server]);
        let buffer = filled(netmem(0));
        let mut random = 1_u64;
        let mut garbage = |len: u32| -> Vec<u8> {
            let mut next = || {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 56) as u8
            };
            (0..len).map(|_| next()).collect()
        };
        let frame = |len: u32, content: &[u8]| [&GREETING[..], &len.to_le_bytes(), content].concat();
        let mut sent = vec![garbage(10_000), b"GET / HTTP/1.1\r\n\r\n".to_vec(), b"net".to_vec()];
        sent.extend([frame(0, b""), frame(17, b"\x04"), frame(u32::MAX, &garbage(100))]);
        // Frames of each kind of request, and of kinds that there are not.
        sent.extend((0..200).map(|number| {
            let mut content = garbage(1 + number % 60);
            content[0] = number as u8 % 9;
            frame(content.len() as u32, &content)
        }));
        // A request of another version.
        sent.push([&b"netmem\0\x02"[..], &Request::Info.encode()].concat());
        for bytes in sent {
            let mut client = TcpStream::connect(server.address).unwrap();
            client.set_read_timeout(Some(LONG)).unwrap();
            // It may have refused the first of the bytes before the last are written.
            let _ = client.write_all(&bytes).and_then(|()| client.shutdown(Shutdown::Write));
            let mut replies = Vec::new();
            let ended = client.read_to_end(&mut replies);
            assert!(!ended.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "{bytes:?}");
            assert!(bytes.starts_with(&GREETING) || replies.is_empty(), "{bytes:?}");
        }
        assert_eq!(content(&buffer).unwrap(), *b"abc");
        assert!(!netmem(0).is_lost() && netmem(0).allocate(1).is_ok());
    });
}

#[test]
fn requests_outside_of_memory_are_refused_and_the_next_one_is_performed() {
    let server = Server::start();
    let mut client = TcpStream::connect(server.address).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    client.write_all(&GREETING).unwrap();
    let mut call = |request: Request<'_>| {
        client.write_all(&request.encode()).unwrap();
        decode_reply(read_frame(&client).unwrap()).expect("it is a reply")
    };
    assert_eq!(call(Request::Allocate { len: 4 }).unwrap(), 1_u64.to_le_bytes());
    let large = MAX_BYTES as u64 + 1;
    assert_eq!(call(Request::Allocate { len: large }).unwrap(), 2_u64.to_le_bytes());
    let at = |offset| Place { memory: 1, offset };
    let [inside, in_large, nowhere] = [1, 2, 3].map(|memory| Place { memory, offset: 0 });
    for request in [
        Request::Write { to: at(2), bytes: b"abc" },
        Request::Read { from: at(u64::MAX), len: 2 },
        Request::Read { from: in_large, len: large },
        Request::Read { from: nowhere, len: 1 },
        Request::Copy { from: inside, to: at(3), len: 2 },
        Request::Copy { from: at(3), to: inside, len: 2 },
        Request::Copy { from: inside, to: nowhere, len: 1 },
        Request::Fill { to: at(1), len: 4, pattern: b"a" },
        Request::Fill { to: inside, len: 4, pattern: b"" },
        Request::Allocate { len: u64::MAX },
        Request::Allocate { len: (64 << 20) - large - 3 },
    ] {
        assert!(call(request).is_err(), "{request:?}");
    }
    assert_eq!(call(Request::Read { from: inside, len: 4 }).unwrap(), [0; 4]);
}

#[test]
fn what_a_process_leaves_behind_is_freed() {
    alone("what_a_process_leaves_behind_is_freed", || {
        let server = Server::start();
        configure(&[&server]);
        let free = || netmem(0).memory_info().unwrap().free.unwrap();
        let all = free();
        let buffer = netmem(0).allocate(1 << 20).unwrap();
        assert_eq!(free(), all - (1 << 20));
        drop(buffer);
        assert_eq!(free(), all, "by a drop");
        let _kept = netmem(0).allocate(1 << 20).unwrap();
        netmem(0).close().unwrap();
        until("it is free after the close", || free() == all);
    });
}

#[test]
fn a_server_ends_with_its_input_on_request() {
    let mut server = Server::start();
    until("it ends", || server.has_ended_without_input());
}

#[test]
fn an_invalid_list_of_servers_is_an_error_that_says_what_is_expected() {
    let test = "an_invalid_list_of_servers_is_an_error_that_says_what_is_expected";
    if !process::is_child() {
        for servers in ["localhost:4501", "", "127.0.0.1:1,127.0.0.1"] {
            let options = format!("netmem.servers={servers}");
            process::passes(test, |child| child.env("DEVICE_BACKEND_OPTIONS", options));
        }
        return;
    }
    let error = device("netmem").unwrap().open().unwrap_err().to_string();
    let expected =
        "set by DEVICE_BACKEND_OPTIONS, is invalid: expected addresses of servers, such as 127.0.0.1:4501";
    assert!(error.contains(expected), "{error}");
}
