//! What a client of burn sends before it has a session: a request, and a frame with the token.

use std::io::{self, ErrorKind};

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// The longest request or answer. burn's have about 200 bytes.
const MAX_HEAD: u64 = 8 * 1024;

/// The longest first frame. It holds a few numbers and the token.
const MAX_FRAME: usize = 16 * 1024;

/// Reads the head of a request or an answer, with the empty line at its end.
pub(crate) async fn read_head(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut from = from.take(MAX_HEAD);
    while !head.ends_with(b"\r\n\r\n") {
        if from.read_until(b'\n', &mut head).await? == 0 {
            return Err(invalid("a head that does not end"));
        }
    }
    Ok(head)
}

/// The request for burn's server, with the same key, if this one is for a session.
pub(crate) fn request_like(head: &[u8]) -> Option<String> {
    let mut lines = std::str::from_utf8(head).ok()?.split("\r\n");
    if lines.next()? != "GET /session HTTP/1.1" {
        return None;
    }
    let key = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("sec-websocket-key").then_some(value.trim())
    })?;
    // 16 bytes in base64.
    let is_key = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    (key.len() == 24 && key.bytes().all(is_key)).then(|| {
        format!(
            "GET /session HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
        )
    })
}

/// Reads the first frame: binary, whole, masked as clients' frames are, and short.
pub(crate) async fn read_first_frame(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Vec<u8>> {
    const WHOLE_AND_BINARY: u8 = 0x82;
    const MASKED: u8 = 0x80;
    const LEN_IN_TWO_BYTES: u8 = 126;

    let kind = from.read_u8().await?;
    let short_len = from.read_u8().await?;
    let mut frame = vec![kind, short_len];
    if kind != WHOLE_AND_BINARY || short_len & MASKED == 0 {
        return Err(invalid("no frame with a token"));
    }
    let len = match short_len & !MASKED {
        len if len < LEN_IN_TWO_BYTES => usize::from(len),
        LEN_IN_TWO_BYTES => {
            let len = from.read_u16().await?;
            frame.extend(len.to_be_bytes());
            len.into()
        }
        _ => usize::MAX,
    };
    if len > MAX_FRAME {
        return Err(invalid("a frame that is longer than one with a token"));
    }
    let start = frame.len();
    let mask = 4;
    frame.resize(start + mask + len, 0);
    from.read_exact(&mut frame[start..]).await?;
    Ok(frame)
}

pub(crate) fn invalid(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

    fn now<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn of_a_request_for_a_session_only_the_key_is_kept() {
        let head = format!(
            "GET /session HTTP/1.1\r\nHost: x\r\nsec-websocket-key: {KEY}\r\nContent-Length: 9\r\n\r\n"
        );
        let request = request_like(head.as_bytes()).unwrap();
        assert!(request.contains(KEY) && request.ends_with("\r\n\r\n"), "{request}");
        assert!(!request.contains("Content-Length") && !request.contains("Host: x"), "{request}");
    }

    #[test]
    fn other_requests_are_not_for_burn() {
        let with_key = |line: &str, key: &str| format!("{line}\r\nSec-WebSocket-Key: {key}\r\n\r\n");
        for head in [
            with_key("GET /data HTTP/1.1", KEY),
            with_key("GET /session/../data HTTP/1.1", KEY),
            with_key("GET http://x/data HTTP/1.1", KEY),
            with_key("POST /session HTTP/1.1", KEY),
            with_key("GET /session HTTP/1.0", KEY),
            with_key("GET /session HTTP/1.1", "short"),
            with_key("GET /session HTTP/1.1", "dGhlIHNhbXBsZSBub25jZQ\0\n"),
            "GET /session HTTP/1.1\r\n\r\n".to_owned(),
            "\r\n\r\n".to_owned(),
        ] {
            assert_eq!(request_like(head.as_bytes()), None, "{head:?}");
        }
        assert_eq!(request_like(b"GET /session HTTP/1.1\r\nSec-WebSocket-Key: \xff\r\n\r\n"), None);
    }

    #[test]
    fn a_head_ends_at_the_empty_line_and_has_a_limit() {
        let mut bytes: &[u8] = b"a\r\n\r\nb";
        assert_eq!(now(read_head(&mut bytes)).unwrap(), b"a\r\n\r\n");
        assert_eq!(bytes, b"b");
        for bytes in [b"a\r\n".to_vec(), vec![b'a'; 1 << 20], b"a\r\n".repeat(1 << 16)] {
            assert!(now(read_head(&mut &bytes[..])).is_err());
        }
    }

    #[test]
    fn only_a_short_whole_and_binary_frame_comes_first() {
        let frame = |start: &[u8], len: usize| [start, &vec![7; 4 + len]].concat();
        for valid in [frame(&[0x82, 0x80 | 5], 5), frame(&[0x82, 0xfe, 0x40, 0], 0x4000)] {
            let mut bytes: &[u8] = &[&valid[..], b"rest"].concat();
            assert_eq!(now(read_first_frame(&mut bytes)).unwrap(), valid);
            assert_eq!(bytes, b"rest");
        }
        for bad in [
            frame(&[0x82, 0x80 | 5], 4),
            frame(&[0x82, 0xfe, 0x40, 1], 0x4001),
            frame(&[0x82, 0xff, 0, 0, 0, 0, 0, 0, 0, 5], 5),
            frame(&[0x82, 5], 5),
            frame(&[0x02, 0x85], 5),
            frame(&[0x81, 0x85], 5),
            frame(&[0x89, 0x80], 0),
            vec![0x82],
        ] {
            assert!(now(read_first_frame(&mut &bad[..])).is_err(), "{:?}", &bad[..2.min(bad.len())]);
        }
    }
}
