//! Holds memory, and serves it to the backend `netmem` of other processes.

#![forbid(unsafe_code)]

mod budget;
mod session;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write, sink, stdin, stdout};
use std::net::TcpListener;
use std::process::{ExitCode, exit};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lexopt::ValueExt;

use crate::budget::Budget;
use crate::session::Session;

const USAGE: &str =
    "usage: netmem-server [--listen ADDRESS] [--memory BYTES] [--uuid UUID] [--until-end-of-input]

  --listen ADDRESS  127.0.0.1:4501 if it is left out; port 0 chooses a free one
  --memory BYTES    how much memory it serves: 1 GiB if it is left out
  --uuid UUID       names the device in all processes; random if it is left out
  --until-end-of-input
                    ends when its standard input does: with the program that started it

Every program that reaches the address can use the memory. Listen on trusted networks only.";

struct Arguments {
    listen: String,
    memory: u64,
    uuid: [u8; 16],
    until_end_of_input: bool,
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("error: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match serve(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}: {error}", arguments.listen);
            ExitCode::FAILURE
        }
    }
}

fn arguments() -> Result<Arguments, lexopt::Error> {
    let mut arguments = Arguments {
        listen: "127.0.0.1:4501".to_owned(),
        memory: 1 << 30,
        uuid: random_uuid(),
        until_end_of_input: false,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            lexopt::Arg::Long("listen") => arguments.listen = parser.value()?.string()?,
            lexopt::Arg::Long("memory") => arguments.memory = parser.value()?.parse()?,
            lexopt::Arg::Long("uuid") => arguments.uuid = parser.value()?.parse_with(parse_uuid)?,
            lexopt::Arg::Long("until-end-of-input") => arguments.until_end_of_input = true,
            _ => return Err(argument.unexpected()),
        }
    }
    Ok(arguments)
}

fn parse_uuid(text: &str) -> Result<[u8; 16], &'static str> {
    let digits: String = text.chars().filter(|&digit| digit != '-').collect();
    let is_valid = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| is_valid);
    number.map(u128::to_be_bytes).ok_or("expected 32 hexadecimal digits")
}

/// A UUID of version 4. The hasher is seeded by the system.
fn random_uuid() -> [u8; 16] {
    let random = || u128::from(RandomState::new().build_hasher().finish());
    let number = random() << 64 | random();
    let (version, variant) = (0xf << 76, 0x3 << 62);
    ((number & !version & !variant) | 0x4 << 76 | 0x2 << 62).to_be_bytes()
}

fn serve(arguments: &Arguments) -> io::Result<()> {
    if arguments.until_end_of_input {
        thread::spawn(|| {
            let _ = io::copy(&mut stdin(), &mut sink());
            exit(0);
        });
    }
    let listener = TcpListener::bind(&arguments.listen)?;
    // The first line is for programs that start a server with port 0.
    writeln!(stdout(), "listening on {}", listener.local_addr()?)?;
    stdout().flush()?;
    let budget = Arc::new(Budget::new(arguments.memory));
    let uuid = arguments.uuid;
    for connection in listener.incoming() {
        let budget = Arc::clone(&budget);
        let served = connection.and_then(|stream| {
            let peer = stream.peer_addr()?;
            let serve = move || {
                if let Err(error) = Session::new(budget, uuid).serve(&stream) {
                    eprintln!("{peer}: {error}");
                }
            };
            thread::Builder::new().spawn(serve).map(drop)
        });
        if let Err(error) = served {
            // The system has no more threads or open files. Connections that end release theirs.
            eprintln!("a connection is refused: {error}");
            thread::sleep(Duration::from_millis(100));
        }
    }
    Ok(())
}
