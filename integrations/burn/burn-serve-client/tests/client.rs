//! A client beside servers that answer, answer nonsense, or do not answer. `burn-serve` has the tests with a
//! real one.

use std::error::Error as _;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use burn_serve_client::{Error, counts, watch};

/// Long enough for a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

const UNAUTHORIZED: &str = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";

/// The address of a server that sends one text to a client with the token `t` and another to others, and
/// closes the connection.
fn server(to_others: impl Into<String>, answer: impl Into<String>) -> String {
    let (to_others, answer) = (to_others.into(), answer.into());
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = format!("ws://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let head = BufReader::new(&stream).lines().map_while(Result::ok);
            let authorized =
                head.take_while(|line| !line.is_empty()).any(|line| line == "authorization: Bearer t");
            let _ = stream.write_all(if authorized { &answer } else { &to_others }.as_bytes());
        }
    });
    address
}

/// The address of a server that accepts connections, as its kernel does, and never answers.
fn stopped() -> (TcpListener, String) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = format!("ws://{}", listener.local_addr().unwrap());
    (listener, address)
}

#[test]
fn counts_are_the_text_of_the_answer() {
    let address = server(UNAUTHORIZED, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ntable");
    for token in ["t", "t\n", "t\r\n"] {
        assert_eq!(counts(&address, token, LIMIT).unwrap(), "table");
        assert_eq!(counts(&format!("{address}/"), token, LIMIT).unwrap(), "table");
    }
    assert!(matches!(counts(&address, "another", LIMIT), Err(Error::Refused { .. })));
    for token in ["a\nb", "a b", " t", "\u{e9}"] {
        assert!(matches!(counts(&address, token, LIMIT), Err(Error::Token { .. })), "{token}");
    }
    assert_eq!(counts(&address, "t", Duration::MAX).unwrap(), "table");
}

#[test]
fn what_is_no_burn_serve_is_an_error_with_its_answer() {
    let address = server(UNAUTHORIZED, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    let error = counts(&address, "t", LIMIT).unwrap_err();
    assert!(matches!(error, Error::NoCounts { status: 404, .. }), "{error}");
    let elsewhere = server(
        UNAUTHORIZED,
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    );
    let error = counts(&elsewhere, "t", LIMIT).unwrap_err();
    assert!(matches!(error, Error::NoCounts { status: 302, .. }), "{error}");
    for nonsense in ["", "SSH-2.0-x\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nt"] {
        let error = counts(&server(UNAUTHORIZED, nonsense), "t", LIMIT).unwrap_err();
        assert!(matches!(error, Error::NoAnswer { .. }), "{nonsense}: {error}");
    }
}

#[test]
fn what_is_no_address_is_an_error_before_the_work() {
    for address in
        ["", "127.0.0.1:3000", "http://127.0.0.1:3000", "ws://", "ws://:3000", "ws://a b", "ws://a/b?c"]
    {
        let work = || -> Result<(), String> { panic!("it ran") };
        let error = watch(&[address], LIMIT, work).unwrap_err();
        assert!(matches!(error, Error::Address { .. }), "{error}");
        assert!(error.to_string().contains(&format!("`{address}`")), "{error}");
    }
}

#[test]
fn work_returns_fails_and_panics_as_without_a_watch() {
    let answers =
        [server(UNAUTHORIZED, ""), server("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "")];
    for servers in [&[][..], &answers] {
        assert_eq!(watch(servers, LIMIT, || Ok::<_, String>(7)).unwrap(), 7);
        let error = watch(servers, LIMIT, || Err::<(), _>("its own error")).unwrap_err();
        assert!(matches!(error, Error::Work(_)), "{error:?}");
        assert_eq!(error.to_string(), "its own error");
        let work = || -> Result<(), String> { panic!("its own panic") };
        let panic = catch_unwind(AssertUnwindSafe(|| watch(servers, LIMIT, work))).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"its own panic"));
    }
}

#[test]
fn a_server_that_does_not_answer_ends_the_watch_although_others_do() {
    let (_listener, silent) = stopped();
    let limit = Duration::from_millis(500);
    let work = || -> Result<(), String> {
        loop {
            thread::park();
        }
    };
    let error = watch(&[server(UNAUTHORIZED, ""), silent.clone()], limit, work).unwrap_err();
    assert_eq!(error.to_string(), format!("`{silent}` has not answered within 500ms"));
}

#[test]
fn work_that_fails_beside_a_server_that_is_lost_is_an_error_with_its_name() {
    let (listener, closed) = stopped();
    drop(listener);
    // A proxy before a server that is lost.
    let proxy = server("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", "");
    for lost in [closed, proxy] {
        let expected = format!("`{lost}` does not answer: ");
        let servers = [server(UNAUTHORIZED, ""), lost];
        let work = || -> Result<(), String> { panic!("RecvError(())") };
        let error = watch(&servers, LIMIT, work).unwrap_err();
        assert!(error.to_string().starts_with(&expected), "{error}");
        let error = watch(&servers, LIMIT, || Err::<(), _>("RecvError(())")).unwrap_err();
        assert!(error.to_string().starts_with(&expected), "{error}");
        assert_eq!(error.source().unwrap().to_string(), "RecvError(())");
    }
}
