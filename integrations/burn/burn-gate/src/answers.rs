//! Answers to requests that are not for a session: the counts for clients with the token, and that the server
//! is alive.

use std::net::SocketAddr;

use burn_remote::Credential;
use burn_remote::server::{AuthorizationRequest, ClientId, PeerAuthorizer, TokenAuthorizer};

/// Answers such requests.
pub(crate) struct Answers {
    pub(crate) tokens: TokenAuthorizer,
    pub(crate) counts: Box<dyn Fn() -> String + Send + Sync>,
}

impl Answers {
    /// The answer to a request by its head.
    pub(crate) fn to(&self, head: &[u8], peer: SocketAddr) -> String {
        let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        if lines.next() != Some(b"GET /counts HTTP/1.1") {
            return answer("404 Not Found", "", "");
        }
        let token = Credential::from(lines.find_map(bearer).unwrap_or_default());
        let client = ClientId::WebSocket(peer);
        match self.tokens.authorize(AuthorizationRequest { client, device_index: 0, credential: &token }) {
            Ok(()) => answer("200 OK", "Content-Type: text/plain; charset=utf-8\r\n", &(self.counts)()),
            // Not reported: such a request costs a stranger nothing, so it could fill a log.
            Err(_) => answer("401 Unauthorized", "WWW-Authenticate: Bearer\r\n", ""),
        }
    }
}

/// The token of a line `Authorization: Bearer TOKEN`.
fn bearer(line: &[u8]) -> Option<&[u8]> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (scheme, token) = line[colon + 1..].trim_ascii_start().split_at_checked("Bearer ".len())?;
    let named = line[..colon].eq_ignore_ascii_case(b"authorization");
    (named && scheme.eq_ignore_ascii_case(b"Bearer ")).then(|| token.trim_ascii())
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    let len = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}Connection: close\r\nContent-Length: {len}\r\n\r\n{body}")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// With a table for clients with a token.
    pub(crate) fn answers() -> Answers {
        let tokens = TokenAuthorizer::new("a token").unwrap();
        Answers { tokens, counts: Box::new(|| "a table\n".to_owned()) }
    }

    #[test]
    fn only_who_has_the_token_gets_the_counts() {
        let answers = answers();
        let peer = ([127, 0, 0, 1], 1).into();
        let to = |lines: &str| answers.to(format!("{lines}\r\n\r\n").as_bytes(), peer);
        for header in ["Authorization: Bearer a token", "authorization:bearer  a token "] {
            let answer = to(&format!("GET /counts HTTP/1.1\r\nHost: x\r\n{header}"));
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            assert!(answer.ends_with("\r\nContent-Length: 8\r\n\r\na table\n"), "{answer}");
        }
        for header in [
            "",
            "Authorization",
            "Authorization: Bearer",
            "Authorization: Bearer ",
            "Authorization: Basic a token",
            "Authorization: Bearer another",
            "X-Authorization: Bearer a token",
        ] {
            let answer = to(&format!("GET /counts HTTP/1.1\r\n{header}"));
            assert!(answer.starts_with("HTTP/1.1 401 ") && !answer.contains("table"), "{header}: {answer}");
        }
        for line in ["POST /counts HTTP/1.1", "GET /counts/ HTTP/1.1", "GET / HTTP/1.1", ""] {
            let answer = to(&format!("{line}\r\nAuthorization: Bearer a token"));
            assert!(answer.starts_with("HTTP/1.1 404 ") && !answer.contains("table"), "{line}: {answer}");
        }
    }
}
