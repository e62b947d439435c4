//! Requests to one server.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use ureq::http::{Response, Uri};
use ureq::{Agent, Body};

use crate::Error;

/// `ureq` waits for whole milliseconds, and may be early by one.
const ROUNDED: Duration = Duration::from_millis(2);

/// No limit is longer: the clock would overflow.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A server by its address.
#[derive(Clone)]
pub(crate) struct Server {
    address: String,
    /// Where its counts are.
    counts: Uri,
}

impl Server {
    pub(crate) fn new(address: &str) -> Result<Self, Error> {
        let counts = address
            .strip_prefix("ws://")
            .map(|host| format!("http://{}/counts", host.trim_end_matches('/')))
            .and_then(|uri| uri.parse::<Uri>().ok())
            .filter(|uri| uri.path() == "/counts" && uri.host().is_some_and(|host| !host.is_empty()));
        match counts {
            Some(counts) => Ok(Self { address: address.to_owned(), counts }),
            None => Err(Error::Address { address: address.to_owned() }),
        }
    }

    /// Asks until the server has not answered for `limit`, which is the error, or until the other end of
    /// `ended` is dropped.
    pub(crate) fn watch(&self, limit: Duration, ended: &Receiver<()>) -> Result<(), Error> {
        let limit = limit.min(LONGEST);
        let mut answered = Instant::now();
        loop {
            match self.ask(limit) {
                Ok(()) => answered = Instant::now(),
                // Such as a connection that the server has closed for others: it may answer the next time.
                Err(error) if answered.elapsed() + ROUNDED >= limit => return Err(error),
                Err(_) => {}
            }
            if ended.recv_timeout(limit / 4) != Err(RecvTimeoutError::Timeout) {
                return Ok(());
            }
        }
    }

    /// Whether the server answers, with whatever it says. A proxy before it answers with such a status where
    /// it does not.
    pub(crate) fn ask(&self, limit: Duration) -> Result<(), Error> {
        match self.get(None, limit)?.status().as_u16() {
            status @ 500.. => Err(self.no_answer(limit, ureq::Error::StatusCode(status))),
            _ => Ok(()),
        }
    }

    pub(crate) fn counts(&self, token: &str, limit: Duration) -> Result<String, Error> {
        let address = self.address.clone();
        let token = token.trim_end_matches(['\r', '\n']);
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::Token { address });
        }
        let mut answer = self.get(Some(token), limit)?;
        match answer.status().as_u16() {
            200 => answer.body_mut().read_to_string().map_err(|error| self.no_answer(limit, error)),
            401 => Err(Error::Refused { address }),
            status => Err(Error::NoCounts { address, status }),
        }
    }

    fn get(&self, token: Option<&str>, limit: Duration) -> Result<Response<Body>, Error> {
        // burn's client knows no proxies, and whoever redirects is no burn-serve.
        let config = Agent::config_builder().proxy(None).max_redirects(0).http_status_as_error(false);
        let config = config.timeout_global(Some(limit.min(LONGEST)));
        let mut request = Agent::new_with_config(config.build()).get(&self.counts);
        if let Some(token) = token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        request.call().map_err(|error| self.no_answer(limit, error))
    }

    fn no_answer(&self, limit: Duration, error: ureq::Error) -> Error {
        let address = self.address.clone();
        match error {
            ureq::Error::Timeout(_) => Error::Late { address, limit },
            error => Error::NoAnswer { address, source: Box::new(error) },
        }
    }
}
