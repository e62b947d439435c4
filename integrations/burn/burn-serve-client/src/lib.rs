//! What burn's client cannot ask of a `burn-serve`: whether it still answers, and what ran where.
//!
//! burn's client waits for its server without a limit, and its errors name no server. [`watch`] runs a
//! program's work and asks its servers meanwhile: one that is paused, killed or out of reach ends the wait
//! with its address. [`answers`] asks once, for the work's own errors. [`counts`] is the table of a server's
//! devices, as its own operator sees it.
//!
//! All are requests by HTTP to the port that `burn-serve` listens on, and there is no burn in this crate: it
//! works beside every version. It logs with the crate `log`, by `ureq`, whose level `trace` has whole
//! requests with their token.
//!
//! ```no_run
//! use std::time::Duration;
//! # use std::error::Error;
//! # fn train(_: &str) -> Result<Vec<f64>, Box<dyn Error + Send + Sync>> {
//! #     Ok(vec![0.5, 0.25])
//! # }
//!
//! let server = "ws://127.0.0.1:3000";
//! let token = std::fs::read_to_string("token")?.trim_end().to_owned();
//! let limit = Duration::from_secs(30);
//!
//! let for_training = token.clone();
//! // All that uses the server's devices: it returns a `Result<_, Box<dyn Error + Send + Sync>>`.
//! let losses = burn_serve_client::watch(&[server], limit, move || train(&for_training))??;
//! println!("{}", burn_serve_client::counts(server, &token, limit)?);
//! # let _: Vec<f64> = losses;
//! # Ok::<(), Box<dyn Error + Send + Sync>>(())
//! ```

mod server;

use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::server::Server;

/// What a server did not give.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not the address of a server.
    #[error("`{address}` is not the address of a burn-serve, such as `ws://127.0.0.1:3000`")]
    Address {
        /// The text.
        address: String,
    },
    /// The server is paused, hangs or is out of reach.
    #[error("`{address}` has not answered within {limit:?}")]
    Late {
        /// The server's address.
        address: String,
        /// How long it had for an answer.
        limit: Duration,
    },
    /// Nothing listens at the address, or what listens is no server.
    #[error("`{address}` does not answer")]
    NoAnswer {
        /// The server's address.
        address: String,
        /// What came instead.
        source: Box<ureq::Error>,
    },
    /// The server has another token.
    #[error("`{address}` refused the token")]
    Refused {
        /// The server's address.
        address: String,
    },
    /// The token has characters that a request by HTTP cannot have: others than visible ones of ASCII.
    #[error("the token for `{address}` has characters other than visible ones of ASCII")]
    Token {
        /// The server's address.
        address: String,
    },
    /// What answers at the address has no counts.
    #[error("`{address}` is not a burn-serve with counts: it answered with {status}")]
    NoCounts {
        /// The server's address.
        address: String,
        /// The status of HTTP.
        status: u16,
    },
}

/// Runs `work` on a thread of its own until it returns, or until a server has not answered for `limit`.
///
/// Each server, an address such as `ws://127.0.0.1:3000`, is asked again a quarter of the limit after each
/// answer, by a connection of its own without a token. Work that computes for long is no reason for an
/// error, as the server answers meanwhile. A limit of half a minute allows for a slow network. With no
/// servers, `work` runs on the calling thread.
///
/// After an error `work` goes on: burn's client waits for the server, and nothing can end its wait but the
/// end of the process.
///
/// # Errors
///
/// [`Error::Address`] before `work` runs. [`Error::Late`] or [`Error::NoAnswer`], between one and two limits
/// after a server's last answer, or where `work` panics and a server does not answer. An error that `work`
/// returns is returned as it is: [`answers`] then tells whether a server is gone.
///
/// # Panics
///
/// As `work` does, if all servers answer; if the system has no more threads.
pub fn watch<T: Send + 'static>(
    servers: &[impl AsRef<str>],
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let servers =
        servers.iter().map(|address| Server::new(address.as_ref())).collect::<Result<Vec<_>, _>>()?;
    if servers.is_empty() {
        return Ok(work());
    }
    let (sender, events) = mpsc::channel();
    let mut watched = Vec::new();
    for server in servers.clone() {
        let sender = sender.clone();
        let (goes_on, ended) = mpsc::channel();
        watched.push(goes_on);
        thread::spawn(move || {
            if let Err(error) = server.watch(limit, &ended) {
                let _ = sender.send(Event::Lost(error));
            }
        });
    }
    thread::spawn(move || {
        let outcome = panic::catch_unwind(AssertUnwindSafe(work));
        let _ = sender.send(Event::Ended(outcome));
    });
    match events.recv().expect("the thread of the work sends one") {
        Event::Ended(Ok(value)) => Ok(value),
        Event::Ended(Err(panic)) => {
            // burn's panic names no server.
            servers.iter().try_for_each(|server| server.ask(limit))?;
            panic::resume_unwind(panic)
        }
        Event::Lost(error) => Err(error),
    }
}

enum Event<T> {
    Ended(thread::Result<T>),
    Lost(Error),
}

/// Asks a server whether it answers, and waits for at most `limit`.
///
/// # Errors
///
/// [`Error::Address`], [`Error::Late`] and [`Error::NoAnswer`].
pub fn answers(address: &str, limit: Duration) -> Result<(), Error> {
    Server::new(address)?.ask(limit)
}

/// What ran where on the devices of a server, of all its clients since it started: the table that
/// `burn-serve` prints at its end. Blocks for at most `limit`.
///
/// A newline at the end of the token is left out, as in a token file.
///
/// # Errors
///
/// All of [`Error`].
pub fn counts(address: &str, token: &str, limit: Duration) -> Result<String, Error> {
    Server::new(address)?.counts(token, limit)
}
