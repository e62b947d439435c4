//! Requests to one server.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use ureq::http::{Response, Uri};
use ureq::{Agent, Body};

use crate::Error;

/// No limit is longer: the clock would overflow.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A server, and how long it has for an answer.
#[derive(Clone)]
pub(crate) struct Server {
    address: String,
    /// Where its counts are.
    counts: Uri,
    limit: Duration,
}

impl Server {
    pub(crate) fn new(address: &str, limit: Duration) -> Result<Self, Error> {
        let counts = address
            .strip_prefix("ws://")
            .map(|host| format!("http://{}/counts", host.trim_end_matches('/')))
            .and_then(|uri| uri.parse::<Uri>().ok())
            .filter(|uri| uri.path() == "/counts" && uri.host().is_some_and(|host| !host.is_empty()));
        match counts {
            Some(counts) => Ok(Self { address: address.to_owned(), counts, limit: limit.min(LONGEST) }),
            None => Err(Error::Address { address: address.to_owned() }),
        }
    }

    /// Sends requests until the server has not answered for the limit, which is the error, or until the other
    /// end of `ended` is dropped.
    pub(crate) fn watch(&self, ended: &Receiver<()>) -> Result<(), Error> {
        let mut answered = Instant::now();
        loop {
            match self.check() {
                Ok(()) => answered = Instant::now(),
                Err(error @ Error::Late { .. }) => return Err(error),
                // For example, the server has closed the connection to make room for others: the next one may
                // get an answer.
                Err(error) if answered.elapsed() >= self.limit => return Err(error),
                Err(_) => {}
            }
            if ended.recv_timeout(self.limit / 4) != Err(RecvTimeoutError::Timeout) {
                return Ok(());
            }
        }
    }

    /// Whether the server answers, with any status except a proxy's whose server does not.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.get(None)?.status().as_u16() {
            status @ 500.. => Err(self.no_answer(ureq::Error::StatusCode(status))),
            _ => Ok(()),
        }
    }

    pub(crate) fn counts(&self, token: &str) -> Result<String, Error> {
        let address = self.address.clone();
        let token = token.trim_end_matches(['\r', '\n']);
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::Token { address });
        }
        let mut answer = self.get(Some(token))?;
        match answer.status().as_u16() {
            200 => answer.body_mut().read_to_string().map_err(|error| self.no_answer(error)),
            401 => Err(Error::Refused { address }),
            status => Err(Error::NoCounts { address, status }),
        }
    }

    fn get(&self, token: Option<&str>) -> Result<Response<Body>, Error> {
        // burn's client uses no proxy, and a server that redirects is not a burn-serve.
        let config = Agent::config_builder().proxy(None).max_redirects(0).http_status_as_error(false);
        let config = config.timeout_global(Some(self.limit));
        let mut request = Agent::new_with_config(config.build()).get(&self.counts);
        if let Some(token) = token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        request.call().map_err(|error| self.no_answer(error))
    }

    fn no_answer(&self, error: ureq::Error) -> Error {
        let address = self.address.clone();
        match error {
            ureq::Error::Timeout(_) => Error::Late { address, limit: self.limit },
            error => Error::NoAnswer { address, reason: error.to_string() },
        }
    }
}
