//! Requests to one server.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use ureq::Agent;
use ureq::http::{HeaderValue, Uri};

use crate::Error;

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
        let mut answered = Instant::now();
        loop {
            match self.ask(limit) {
                Ok(()) => answered = Instant::now(),
                // Such as a connection that the server has closed for others: it may answer the next time.
                Err(error) if answered.elapsed() >= limit => return Err(error),
                Err(_) => {}
            }
            if ended.recv_timeout(limit / 4) != Err(RecvTimeoutError::Timeout) {
                return Ok(());
            }
        }
    }

    /// Whether the server answers, with whatever it says.
    pub(crate) fn ask(&self, limit: Duration) -> Result<(), Error> {
        self.get(None, limit).map(drop)
    }

    pub(crate) fn counts(&self, token: &str, limit: Duration) -> Result<String, Error> {
        let address = self.address.clone();
        let token = token.trim_end_matches(['\r', '\n']);
        let Ok(mut authorization) = HeaderValue::from_str(&format!("Bearer {token}")) else {
            return Err(Error::Token { address });
        };
        // Not in the logs of `ureq`.
        authorization.set_sensitive(true);
        let mut answer = self.get(Some(authorization), limit)?;
        match answer.status().as_u16() {
            200 => answer.body_mut().read_to_string().map_err(|error| self.no_answer(limit, error)),
            401 => Err(Error::Refused { address }),
            status => Err(Error::NoCounts { address, status }),
        }
    }

    fn get(
        &self,
        authorization: Option<HeaderValue>,
        limit: Duration,
    ) -> Result<ureq::http::Response<ureq::Body>, Error> {
        // burn's client knows no proxies, and whoever redirects is no burn-serve.
        let config = Agent::config_builder().proxy(None).max_redirects(0).http_status_as_error(false);
        let agent = Agent::new_with_config(config.timeout_global(Some(limit)).build());
        let mut request = agent.get(&self.counts);
        if let Some(authorization) = authorization {
            request = request.header("Authorization", authorization);
        }
        request.call().map_err(|error| self.no_answer(limit, error))
    }

    fn no_answer(&self, limit: Duration, error: ureq::Error) -> Error {
        Error::NoAnswer { address: self.address.clone(), limit, source: Box::new(error) }
    }
}
