//! What burn's client cannot ask of a `burn-serve`: whether it still answers, and what ran where.
//!
//! burn's client waits for its server without a limit, and its errors name no server. [`watch`] runs a
//! program's work and sends requests to its servers meanwhile: one that is paused, killed or out of reach
//! ends the wait with an error that has its address. [`counts`] is the table of a server's devices, which
//! `burn-serve` prints at its end.
//!
//! Both are requests by HTTP to the port that `burn-serve` listens on, and there is no burn in this crate: it
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
//! let losses = burn_serve_client::watch(&[server], limit, move || train(&for_training))?;
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

/// Why work on a server has no result, or a server no counts.
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
    #[error("`{address}` does not answer: {reason}")]
    NoAnswer {
        /// The server's address.
        address: String,
        /// What came instead.
        reason: String,
    },
    /// The work has failed, and a server does not answer.
    #[error("{server}")]
    Lost {
        /// The server: [`Error::Late`] or [`Error::NoAnswer`].
        server: Box<Error>,
        /// The work's error.
        source: BoxError,
    },
    /// The work has failed, and all servers answer.
    #[error(transparent)]
    Work(BoxError),
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

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Runs `work` on its own thread until it returns, or until a server has not answered for `limit`.
///
/// `servers` are addresses such as `ws://127.0.0.1:3000`. Each gets its next request a quarter of the limit
/// after each answer, by its own connection without a token. A server answers while it computes, so
/// long computations are not an error. A limit of half a minute allows for a slow network. With no servers,
/// `work` runs on the calling thread.
///
/// If a server does not answer, the thread of `work` stays until the process ends: it waits in burn's client.
///
/// # Errors
///
/// - [`Error::Address`], before `work` runs.
/// - [`Error::Late`] or [`Error::NoAnswer`], between one and two limits after a server's last answer, and
///   where `work` panics and a server does not answer.
/// - [`Error::Lost`], where `work` returns an error and a server does not answer, and otherwise
///   [`Error::Work`].
///
/// # Panics
///
/// If `work` panics and all servers answer, or if the system has no more threads.
pub fn watch<T: Send + 'static, E: Into<BoxError> + Send + 'static>(
    servers: &[impl AsRef<str>],
    limit: Duration,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, Error> {
    let servers: Vec<_> =
        servers.iter().map(|address| Server::new(address.as_ref(), limit)).collect::<Result<_, _>>()?;
    if servers.is_empty() {
        return work().map_err(|error| Error::Work(error.into()));
    }
    let (sender, events) = mpsc::channel();
    let mut watched = Vec::new();
    for server in servers.clone() {
        let sender = sender.clone();
        let (watching, ended) = mpsc::channel();
        watched.push(watching);
        thread::spawn(move || {
            if let Err(error) = server.watch(&ended) {
                let _ = sender.send(Event::Lost(error));
            }
        });
    }
    thread::spawn(move || {
        let outcome = panic::catch_unwind(AssertUnwindSafe(work));
        let _ = sender.send(Event::Ended(outcome));
    });
    // burn's errors and panics name no server.
    let check = || servers.iter().try_for_each(Server::check);
    match events.recv().expect("the thread of the work sends one") {
        Event::Ended(Ok(Ok(value))) => Ok(value),
        Event::Ended(Ok(Err(error))) => Err(match check() {
            Ok(()) => Error::Work(error.into()),
            Err(server) => Error::Lost { server: Box::new(server), source: error.into() },
        }),
        Event::Ended(Err(panic)) => {
            check()?;
            panic::resume_unwind(panic)
        }
        Event::Lost(error) => Err(error),
    }
}

enum Event<T> {
    Ended(thread::Result<T>),
    Lost(Error),
}

/// What ran where on the devices of a server, of all its clients since it started. Blocks for at most
/// `limit`.
///
/// A newline at the end of the token is left out: a token file has one.
///
/// # Errors
///
/// Every variant of [`Error`] except [`Error::Lost`] and [`Error::Work`].
pub fn counts(address: &str, token: &str, limit: Duration) -> Result<String, Error> {
    Server::new(address, limit)?.counts(token)
}
