//! The server and its clients, each in its own process, on loopback addresses.

#[allow(dead_code, reason = "`main` is for the example")]
#[path = "../examples/client.rs"]
mod client;
#[allow(dead_code, reason = "for the other tests of the server")]
mod process;

use std::error::Error;
use std::fs;
use std::thread;
use std::time::Duration;

use burn::remote::RemoteHost;
use burn::tensor::Tensor;
use burn_serve_client::{counts, watch};

use process::{Folder, Process, client, end_of, mover, server, watching_client};

/// What the client prints on a server with two devices.
const COMPUTED: &str = "connected, devices: 2
device 0: sum [11.0, 22.0, 33.0, 44.0], product [70.0, 100.0, 150.0, 220.0]
device 1: moved from 0, doubled [140.0, 200.0, 300.0, 440.0]
device 1: sum [11.0, 22.0, 33.0, 44.0], product [70.0, 100.0, 150.0, 220.0]
device 0: moved from 1, doubled [140.0, 200.0, 300.0, 440.0]
";

/// Not a test: the process of a client, which the tests start with these variables.
#[test]
#[ignore = "the other tests start it"]
fn client_process() {
    let argument = |name| std::env::var(name).ok();
    let (Some(url), Some(token_file)) = (argument("CLIENT_URL"), argument("CLIENT_TOKEN_FILE")) else {
        return;
    };
    let seconds = |name| argument(name).map(|seconds| Duration::from_secs(seconds.parse().unwrap()));
    let outcome = match (seconds("CLIENT_SECONDS"), seconds("CLIENT_LIMIT")) {
        (Some(time), None) => client::run(&url, &token_file, time),
        (Some(time), Some(limit)) => watch(&[&url.clone()], limit, move || {
            client::run(&url, &token_file, time).map_err(|error| error.to_string())
        })
        .map_err(Into::into),
        (None, _) => move_until_killed(&url, &token_file),
    };
    if let Err(error) = outcome {
        eprintln!("client: {error}");
        std::process::exit(1);
    }
}

/// A client that is in the middle of a move between devices at most times.
fn move_until_killed(url: &str, token_file: &str) -> Result<(), Box<dyn Error>> {
    let host = RemoteHost::websocket(url).with_credential(fs::read_to_string(token_file)?.trim_end());
    let devices = host.devices()?;
    loop {
        let moved = Tensor::<1>::from_floats([7.0; 4], &devices[0]).to_device(&devices[1]);
        moved.try_into_data()?;
    }
}

#[test]
fn a_client_computes_on_two_devices_and_moves_tensors_between_them() {
    let folder = Folder::new();
    let mut server = server(&folder, "openreg:1,cpu");
    assert_eq!(server.devices, "0 = openreg:1, 1 = cpu");
    let mut client = client(&server.url, &folder.token("token"), 0);
    let (code, out) = client.end();
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains(COMPUTED), "{out}");
    assert!(server.process.runs());
}

#[test]
fn a_device_may_be_repeated_and_gets_its_index() {
    let folder = Folder::new();
    let server = server(&folder, "openreg,openreg:1,openreg:0");
    assert_eq!(server.devices, "0 = openreg:0, 1 = openreg:1, 2 = openreg:0");
}

#[test]
fn a_wrong_token_is_an_error_at_the_connection_and_a_line_in_the_log() {
    let folder = Folder::new();
    let mut server = server(&folder, "cpu");
    let wrong = folder.file("wrong", "another token\n", 0o600);
    let mut refused = client(&server.url, &wrong, 0);
    let (code, out) = refused.end();
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("rejected the credential") && !out.contains("connected"), "{out}");
    server.process.wait_for("presented the wrong token");
    // And the server still serves the right one.
    assert_eq!(client(&server.url, &folder.token("token"), 0).end().0, Some(0));
}

#[test]
fn no_server_starts_without_a_token_that_only_the_owner_reads() {
    let folder = Folder::new();
    let missing = folder.path("missing");
    for (token_file, expected) in [
        (None, "--token-file"),
        (Some(missing), "cannot read the token file"),
        (Some(folder.file("empty", "", 0o600)), "is empty"),
        (Some(folder.file("newline", "\r\n", 0o600)), "is empty"),
        (Some(folder.file("long", &"x".repeat(5000), 0o600)), "more than 4096 bytes"),
    ] {
        let mut arguments = vec!["--device", "cpu", "--listen", "127.0.0.1:0"];
        if let Some(file) = &token_file {
            arguments.extend(["--token-file", file]);
        }
        let (code, out) = end_of(&arguments);
        assert!(code != Some(0) && out.contains(expected), "{token_file:?}: {out}");
    }
}

#[cfg(unix)]
#[test]
fn a_token_file_that_others_may_read_is_refused() {
    let folder = Folder::new();
    for mode in [0o644, 0o640, 0o620, 0o604] {
        let file = folder.file("shared", "a token", mode);
        let (code, out) = end_of(&["--device", "cpu", "--listen", "127.0.0.1:0", "--token-file", &file]);
        assert_eq!(code, Some(1), "{out}");
        assert!(out.contains(&format!("chmod 600 '{file}'")) && out.contains(&format!("{mode:o}")), "{out}");
        fs::remove_file(file).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn a_token_file_of_another_user_is_refused() {
    let folder = Folder::new();
    let file = folder.token("foreign");
    // Only root can give a file away.
    if let Err(error) = std::os::unix::fs::chown(&file, Some(65534), None) {
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}");
        eprintln!("skipped: this user cannot give a file to another one");
        return;
    }
    let (code, out) = end_of(&["--device", "cpu", "--listen", "127.0.0.1:0", "--token-file", &file]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("belongs to user 65534"), "{out}");
}

#[test]
fn wrong_arguments_are_errors() {
    let folder = Folder::new();
    let token = folder.token("token");
    for (arguments, expected) in [
        (&["--unknown"][..], "Usage: burn-serve"),
        (&["--token-file", &token], "--device"),
        (&["--device", "cpu", "--token-file", &token, "--listen", "nowhere"], "expected IP:PORT"),
        (&["--device", "cpu", "--token-file", &token, "--listen", "127.0.0.1"], "expected IP:PORT"),
        (&["--device", "nothing:0", "--token-file", &token, "--listen", "127.0.0.1:0"], "nothing"),
        (&["--device", "openreg:9", "--token-file", &token, "--listen", "127.0.0.1:0"], "openreg"),
        (&["--device", "cpu", "--token-file", &token, "--listen", "0.0.0.0:0"], "--allow-network"),
        (&["--device", "cpu", "--token-file", &token, "--listen", "[::]:0"], "--allow-network"),
        (&["--list", "--device", "cpu"], "cannot be used with"),
    ] {
        let (code, out) = end_of(arguments);
        assert!(matches!(code, Some(1 | 2)) && out.contains(expected), "{arguments:?}: {out}");
        assert!(!out.contains("panicked"), "{out}");
    }
}

#[test]
fn a_port_in_use_is_an_error() {
    let folder = Folder::new();
    let first = server(&folder, "cpu");
    let address = first.url.trim_start_matches("ws://");
    let (code, out) =
        end_of(&["--device", "cpu", "--listen", address, "--token-file", &folder.token("token")]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains(&format!("cannot listen on {address}")), "{out}");
}

#[test]
fn the_list_shows_the_linked_backends() {
    for (arguments, expected) in [(&["--list"][..], "device-openreg"), (&["--list", "--probe"], "openreg:1")]
    {
        let (code, out) = end_of(arguments);
        assert!(code == Some(0) && out.contains(expected), "{out}");
    }
}

#[test]
fn a_killed_client_leaves_the_server_serving_others() {
    let folder = Folder::new();
    let mut server = server(&folder, "openreg:0,cpu");
    let token = folder.token("token");
    // One after the other, as two clients must not move tensors at the same time: see README.md.
    let mut stays = client(&server.url, &token, 5);
    stays.wait_for("device 0: moved from 1");
    let mut killed = client(&server.url, &token, 600);
    killed.wait_for("device 0: moved from 1");
    killed.kill();
    let (code, out) = client(&server.url, &token, 0).end();
    assert_eq!(code, Some(0), "{out}");
    let (code, out) = stays.end();
    assert_eq!(code, Some(0), "{out}");
    assert!(server.process.runs());
}

#[test]
fn clients_that_hang_in_a_move_and_are_killed_do_not_take_the_tensors_of_later_clients() {
    let folder = Folder::new();
    let server = server(&folder, "openreg:0,cpu");
    let token = folder.token("token");
    for _ in 0..3 {
        // Two at the same time, which take each other's tensors and then wait forever: see README.md.
        let mut killed = [mover(&server.url, &token), mover(&server.url, &token)];
        thread::sleep(Duration::from_millis(700));
        killed.iter_mut().for_each(Process::kill);
        let (code, out) = client(&server.url, &token, 0).end();
        assert!(code == Some(0) && out.contains(COMPUTED), "{out}");
    }
}

#[test]
fn a_killed_server_is_an_error_at_the_client_and_never_a_hang() {
    let folder = Folder::new();
    let mut server = server(&folder, "openreg:0,cpu");
    let mut client = client(&server.url, &folder.token("token"), 600);
    client.wait_for("device 0: moved from 1");
    server.process.kill();
    let (code, out) = client.end();
    assert!(code != Some(0) && !out.contains("finished"), "{out}");
}

#[cfg(unix)]
#[test]
fn a_stopped_server_is_an_error_with_its_address_after_the_limit() {
    let folder = Folder::new();
    let server = server(&folder, "openreg:0,cpu");
    let mut client = watching_client(&server.url, &folder.token("token"), 600, 2);
    client.wait_for("device 0: moved from 1");
    server.process.signal("STOP");
    let (code, out) = client.end();
    let expected = format!("client: `{}` has not answered within 2s\n", server.url);
    assert!(code == Some(1) && out.ends_with(&expected), "{out}");
}

#[test]
fn a_killed_server_is_an_error_with_its_address_where_it_is_watched() {
    let folder = Folder::new();
    let mut server = server(&folder, "openreg:0,cpu");
    let mut client = watching_client(&server.url, &folder.token("token"), 600, 60);
    client.wait_for("device 0: moved from 1");
    server.process.kill();
    let (code, out) = client.end();
    let expected = format!("client: `{}` does not answer: ", server.url);
    assert!(code == Some(1) && out.contains(&expected), "{out}");
}

#[test]
fn a_server_that_answers_is_watched_to_the_end() {
    let folder = Folder::new();
    let server = server(&folder, "openreg:0,cpu");
    let (code, out) = watching_client(&server.url, &folder.token("token"), 5, 2).end();
    assert!(code == Some(0) && out.contains("finished"), "{out}");
}

#[test]
fn clients_with_the_token_see_what_ran_where() {
    let folder = Folder::new();
    let server = server(&folder, "openreg:0,cpu,openreg:0");
    let limit = Duration::from_secs(60);
    assert_eq!(
        counts(&server.url, "a-token-for-tests\n", limit).unwrap(),
        "no operations on openreg:0\nno operations on cpu\n"
    );
    assert_eq!(client(&server.url, &folder.token("token"), 0).end().0, Some(0));
    let text = counts(&server.url, "a-token-for-tests", limit).unwrap();
    let tables: Vec<_> = text.split("operations on ").skip(1).collect();
    assert_eq!(tables.len(), 2, "{text}");
    for (table, by) in tables.into_iter().zip(["native", "host"]) {
        let of = |start| table.lines().find(|line| line.starts_with(start)).unwrap().split_whitespace();
        let column = of("operation").position(|name| name == by).unwrap();
        let count = of("Float.Matmul").nth(column).unwrap();
        assert_ne!(count, "0", "{text}");
    }

    let error = counts(&server.url, "another", limit).unwrap_err();
    assert_eq!(error.to_string(), format!("`{}` refused the token", server.url));
}

#[cfg(unix)]
#[test]
fn a_signal_stops_the_server_although_a_client_is_connected() {
    for signal in ["INT", "TERM"] {
        let folder = Folder::new();
        let mut server = server(&folder, "openreg:0,cpu");
        let mut client = client(&server.url, &folder.token("token"), 600);
        client.wait_for("device 0: moved from 1");
        server.process.signal(signal);
        let (code, out) = server.process.end();
        assert_eq!(code, Some(0), "{signal}: {out}");
        // Before clients compute it says by what, and at its end what ran where.
        for (device, set) in [("openreg:0", "device-openreg-kernels"), ("cpu", "device-cpu-kernels")] {
            let line = out.lines().find(|line| line.starts_with(&format!("{device}: kernels of ")));
            assert!(line.is_some_and(|line| line.contains(set)), "{out}");
        }
        let matmul = out.lines().find(|line| line.starts_with("Float.Matmul"));
        let native = matmul.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        assert!(native.is_some_and(|native| native > 0), "{out}");
        assert_ne!(client.end().0, Some(0));
    }
}
