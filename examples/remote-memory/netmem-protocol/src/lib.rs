//! The protocol between the backend `netmem` and its servers: frames over TCP.
//!
//! A client connects and sends the [`GREETING`], then requests. A server performs the requests of a
//! connection one after the other, and replies to each but `free`. Memory belongs to the connection that
//! allocated it: the server frees it when the connection ends.
//!
//! A frame is the length of its content as a `u32`, then the content. Numbers are little-endian, and `u64`
//! where the table says nothing else. A *place* is two numbers, a memory and an offset in it.
//!
//! | request | content | reply |
//! |---|---|---|
//! | info | byte 0 | total memory, free memory, 16 bytes of UUID |
//! | allocate | byte 1, length | the number of the memory, whose bytes are zero |
//! | free | byte 2, memory | no reply |
//! | write | byte 3, place, bytes | nothing |
//! | read | byte 4, place, length up to [`MAX_BYTES`] | bytes |
//! | copy | byte 5, place of the source, place of the destination, length | nothing |
//! | fill | byte 6, place, length, pattern of one or more bytes | nothing |
//!
//! The content of a reply is byte 0 and the bytes of the table. If there is not enough memory, it is byte 1
//! and the free memory. If the request is invalid, it is byte 2 and a message. A server closes a connection
//! that violates the protocol.

#![forbid(unsafe_code)]

use std::io::{self, Read};

/// The first bytes of a connection. The last of them is the version.
pub const GREETING: [u8; 8] = *b"netmem\0\x01";

/// The most bytes that a write or a read transfers. A larger one takes several requests.
pub const MAX_BYTES: usize = 1 << 20;

/// The most bytes of a frame's content: a write with its byte and its place.
const MAX_CONTENT: usize = MAX_BYTES + 17;

/// Where bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub memory: u64,
    pub offset: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    Info,
    Allocate { len: u64 },
    Free { memory: u64 },
    Write { to: Place, bytes: &'a [u8] },
    Read { from: Place, len: u64 },
    Copy { from: Place, to: Place, len: u64 },
    Fill { to: Place, len: u64, pattern: &'a [u8] },
}

impl<'a> Request<'a> {
    /// The frame of the request.
    pub fn encode(&self) -> Vec<u8> {
        match *self {
            Self::Info => frame(0, &[], &[]),
            Self::Allocate { len } => frame(1, &[len], &[]),
            Self::Free { memory } => frame(2, &[memory], &[]),
            Self::Write { to, bytes } => frame(3, &[to.memory, to.offset], bytes),
            Self::Read { from, len } => frame(4, &[from.memory, from.offset, len], &[]),
            Self::Copy { from, to, len } => {
                frame(5, &[from.memory, from.offset, to.memory, to.offset, len], &[])
            }
            Self::Fill { to, len, pattern } => frame(6, &[to.memory, to.offset, len], pattern),
        }
    }

    /// The request in the content of a frame, or `None` if there is none.
    pub fn decode(content: &'a [u8]) -> Option<Self> {
        let (kind, rest) = content.split_first()?;
        let mut fields = Fields(rest);
        let request = match kind {
            0 => Self::Info,
            1 => Self::Allocate { len: fields.number()? },
            2 => Self::Free { memory: fields.number()? },
            3 => Self::Write { to: fields.place()?, bytes: fields.rest() },
            4 => Self::Read { from: fields.place()?, len: fields.number()? },
            5 => Self::Copy { from: fields.place()?, to: fields.place()?, len: fields.number()? },
            6 => Self::Fill { to: fields.place()?, len: fields.number()?, pattern: fields.rest() },
            _ => return None,
        };
        fields.0.is_empty().then_some(request)
    }
}

/// Why a server does not perform a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    OutOfMemory { free: u64 },
    Invalid(String),
}

/// The reply of a server: the bytes that the table lists for the request, or a refusal.
pub type Reply = Result<Vec<u8>, Refusal>;

/// The frame of a reply.
pub fn encode_reply(reply: &Reply) -> Vec<u8> {
    match reply {
        Ok(bytes) => frame(0, &[], bytes),
        Err(Refusal::OutOfMemory { free }) => frame(1, &[*free], &[]),
        Err(Refusal::Invalid(message)) => frame(2, &[], message.as_bytes()),
    }
}

/// The reply in the content of a frame, or `None` if there is none.
pub fn decode_reply(mut content: Vec<u8>) -> Option<Reply> {
    let (kind, rest) = content.split_first()?;
    match kind {
        0 => {
            content.remove(0);
            Some(Ok(content))
        }
        1 => Some(Err(Refusal::OutOfMemory { free: Fields(rest).number()? })),
        2 => Some(Err(Refusal::Invalid(String::from_utf8_lossy(rest).into_owned()))),
        _ => None,
    }
}

/// The description of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    pub total: u64,
    pub free: u64,
    pub uuid: [u8; 16],
}

impl Info {
    pub fn encode(&self) -> Vec<u8> {
        [&self.total.to_le_bytes()[..], &self.free.to_le_bytes(), &self.uuid].concat()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let (total, free) = (fields.number()?, fields.number()?);
        Some(Self { total, free, uuid: fields.rest().try_into().ok()? })
    }
}

/// Reads the content of the next frame.
///
/// # Errors
///
/// If the connection fails or ends, or the frame is larger than any of this protocol.
pub fn read_frame(mut from: impl Read) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    from.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > MAX_CONTENT {
        let message = format!("a frame of {len} bytes, where {MAX_CONTENT} is the most");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let mut content = vec![0; len];
    from.read_exact(&mut content)?;
    Ok(content)
}

fn frame(kind: u8, numbers: &[u64], bytes: &[u8]) -> Vec<u8> {
    let len = 1 + 8 * numbers.len() + bytes.len();
    let mut frame = Vec::with_capacity(4 + len);
    frame.extend_from_slice(&(len as u32).to_le_bytes());
    frame.push(kind);
    frame.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    frame.extend_from_slice(bytes);
    frame
}

/// The rest of a content.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn place(&mut self) -> Option<Place> {
        Some(Place { memory: self.number()?, offset: self.number()? })
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_decoded_as_it_was_encoded_and_a_part_of_it_is_not() {
        let (from, to) = (Place { memory: 1, offset: 2 }, Place { memory: 3, offset: u64::MAX });
        for request in [
            Request::Info,
            Request::Allocate { len: 7 },
            Request::Free { memory: 8 },
            Request::Write { to, bytes: b"abc" },
            Request::Read { from, len: 9 },
            Request::Copy { from, to, len: 10 },
            Request::Fill { to, len: 11, pattern: b"ab" },
        ] {
            let content = read_frame(&request.encode()[..]).unwrap();
            assert_eq!(Request::decode(&content), Some(request));
            for len in 0..content.len() {
                assert_ne!(Request::decode(&content[..len]), Some(request), "{len} bytes of it");
            }
        }
        assert_eq!(Request::decode(&[0, 0]), None, "a byte too many");
        assert_eq!(Request::decode(&[7]), None);
    }

    #[test]
    fn a_reply_is_decoded_as_it_was_encoded() {
        let no = |message: &str| Err(Refusal::Invalid(message.to_owned()));
        for reply in [Ok(vec![]), Ok(vec![1, 2]), Err(Refusal::OutOfMemory { free: 5 }), no("why")] {
            assert_eq!(decode_reply(read_frame(&encode_reply(&reply)[..]).unwrap()), Some(reply));
        }
        for nonsense in [&[][..], &[1, 2], &[3]] {
            assert_eq!(decode_reply(nonsense.to_vec()), None);
        }
        let info = Info { total: 1, free: 2, uuid: [3; 16] };
        assert_eq!(Info::decode(&info.encode()), Some(info));
    }

    #[test]
    fn a_frame_that_is_too_large_is_an_error_before_it_is_read() {
        let error = read_frame(&u32::MAX.to_le_bytes()[..]).unwrap_err();
        assert_eq!(error.to_string(), "a frame of 4294967295 bytes, where 1048593 is the most");
    }
}
