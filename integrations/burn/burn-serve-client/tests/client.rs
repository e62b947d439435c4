//! A client beside servers that answer, answer nonsense, or do not answer. `burn-serve` has the tests with a
//! real one.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use burn_serve_client::{Error, answers, counts, watch};

/// Long enough for a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

const UNAUTHORIZED: &str = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";

/// The address of a server that says one text to who has the token `t` and one to others, and closes the
/// connection.
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
fn a_proxy_that_says_that_its_server_is_gone_is_no_answer() {
    for (status, answered) in
        [("401 Unauthorized", true), ("404 Not Found", true), ("502 Bad Gateway", false)]
    {
        let address = server(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"), "");
        let outcome = answers(&address, LIMIT);
        assert_eq!(outcome.is_ok(), answered, "{status}: {outcome:?}");
    }
}

#[test]
fn what_is_no_address_is_an_error_before_the_work() {
    for address in
        ["", "127.0.0.1:3000", "http://127.0.0.1:3000", "ws://", "ws://:3000", "ws://a b", "ws://a/b?c"]
    {
        let watched: Result<(), _> = watch(&[address], LIMIT, || panic!("it ran"));
        let error = watched.unwrap_err();
        assert!(matches!(error, Error::Address { .. }), "{error}");
        assert!(error.to_string().contains(&format!("`{address}`")), "{error}");
    }
}

#[test]
fn work_returns_and_panics_as_without_a_watch() {
    let answers = server(UNAUTHORIZED, "");
    for servers in [&[][..], &[answers]] {
        assert_eq!(watch(servers, LIMIT, || 7).unwrap(), 7);
        let panicked = catch_unwind(AssertUnwindSafe(|| watch(servers, LIMIT, || panic!("its own panic"))));
        let panic = panicked.map(|_: Result<(), _>| ()).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"its own panic"));
    }
}

#[test]
fn a_server_that_does_not_answer_ends_the_watch_although_others_do() {
    let (_listener, silent) = stopped();
    let limit = Duration::from_millis(500);
    let watched: Result<(), _> = watch(&[server(UNAUTHORIZED, ""), silent.clone()], limit, || {
        loop {
            thread::park();
        }
    });
    let error = watched.unwrap_err();
    assert_eq!(error.to_string(), format!("`{silent}` has not answered within 500ms"));
}

#[test]
fn a_panic_beside_a_server_that_has_ended_is_an_error_with_its_name() {
    let (listener, gone) = stopped();
    drop(listener);
    let watched: Result<(), _> =
        watch(&[server(UNAUTHORIZED, ""), gone.clone()], LIMIT, || panic!("RecvError(())"));
    let error = watched.unwrap_err();
    assert!(error.to_string().starts_with(&format!("`{gone}` does not answer")), "{error}");
}
