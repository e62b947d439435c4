//! One connection: its memory, and the requests of its client.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use netmem_protocol::{GREETING, Info, MAX_BYTES, Place, Refusal, Reply, Request, encode_reply, read_frame};

use crate::budget::{Block, Budget};

/// How long a client may take for its greeting, and to accept a reply. Between requests it may take any time.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Session {
    budget: Arc<Budget>,
    uuid: [u8; 16],
    /// Freed with the session, however it ends.
    memories: HashMap<u64, Block>,
    last: u64,
}

impl Session {
    pub(crate) fn new(budget: Arc<Budget>, uuid: [u8; 16]) -> Self {
        Self { budget, uuid, memories: HashMap::new(), last: 0 }
    }

    /// Performs requests until the client ends the connection.
    ///
    /// # Errors
    ///
    /// If the client violates the protocol.
    pub(crate) fn serve(mut self, mut stream: &TcpStream) -> io::Result<()> {
        // Otherwise a small frame waits until the one before it is acknowledged.
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut greeting = [0; GREETING.len()];
        stream.read_exact(&mut greeting)?;
        if greeting != GREETING {
            return Err(io::Error::new(ErrorKind::InvalidData, "not a client of this version"));
        }
        stream.set_read_timeout(None)?;
        // A connection may end anywhere, because the process of its client may.
        while let Some(content) = read_frame(stream).map_or_else(ended, |content| Ok(Some(content)))? {
            let Some(request) = Request::decode(&content) else {
                return Err(io::Error::new(ErrorKind::InvalidData, "not a request"));
            };
            let reply = self.perform(request);
            if !matches!(request, Request::Free { .. }) {
                stream.write_all(&encode_reply(&reply))?;
            }
        }
        Ok(())
    }

    fn perform(&mut self, request: Request<'_>) -> Reply {
        match request {
            Request::Info => {
                let (total, free) = (self.budget.total, self.budget.free());
                return Ok(Info { total, free, uuid: self.uuid }.encode());
            }
            Request::Allocate { len } => {
                let block = Block::new(&self.budget, len)?;
                self.last += 1;
                self.memories.insert(self.last, block);
                return Ok(self.last.to_le_bytes().to_vec());
            }
            Request::Free { memory } => drop(self.memories.remove(&memory)),
            Request::Write { to, bytes } => self.bytes(to, bytes.len() as u64)?.copy_from_slice(bytes),
            Request::Read { from, len } if len <= MAX_BYTES as u64 => {
                return Ok(self.bytes(from, len)?.to_vec());
            }
            Request::Read { len, .. } => return Err(invalid(format_args!("a read of {len} bytes"))),
            Request::Copy { from, to, len } => self.copy(from, to, len)?,
            Request::Fill { to, len, pattern } => fill(self.bytes(to, len)?, pattern)?,
        }
        Ok(Vec::new())
    }

    fn bytes(&mut self, place: Place, len: u64) -> Result<&mut [u8], Refusal> {
        let memory = self.memories.get_mut(&place.memory);
        part(&mut memory.ok_or_else(|| no_memory(place))?.bytes, place.offset, len)
    }

    fn copy(&mut self, from: Place, to: Place, len: u64) -> Result<(), Refusal> {
        if from.memory == to.memory {
            self.bytes(from, len)?;
            self.bytes(to, len)?;
            let memory = self.memories.get_mut(&to.memory).ok_or_else(|| no_memory(to))?;
            // Each is inside the memory, so each fits into a `usize`.
            let (from, to, len) = (from.offset as usize, to.offset as usize, len as usize);
            memory.bytes.copy_within(from..from + len, to);
            return Ok(());
        }
        let [source, destination] = self.memories.get_disjoint_mut([&from.memory, &to.memory]);
        let source = source.ok_or_else(|| no_memory(from))?;
        let destination = destination.ok_or_else(|| no_memory(to))?;
        let source = part(&mut source.bytes, from.offset, len)?;
        part(&mut destination.bytes, to.offset, len)?.copy_from_slice(source);
        Ok(())
    }
}

/// `None` for a connection that has ended, or the error.
fn ended<T>(error: io::Error) -> io::Result<Option<T>> {
    match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => Ok(None),
        _ => Err(error),
    }
}

fn part(memory: &mut [u8], offset: u64, len: u64) -> Result<&mut [u8], Refusal> {
    let total = memory.len();
    let range = || {
        let start = usize::try_from(offset).ok()?;
        Some(start..start.checked_add(usize::try_from(len).ok()?)?)
    };
    let part = range().and_then(|range| memory.get_mut(range));
    part.ok_or_else(|| invalid(format_args!("{len} bytes at {offset}, in a memory of {total} bytes")))
}

/// Repeats the pattern, in steps that each double the filled part.
fn fill(bytes: &mut [u8], pattern: &[u8]) -> Result<(), Refusal> {
    if pattern.is_empty() {
        return Err(invalid("a fill without a pattern"));
    }
    let mut filled = pattern.len().min(bytes.len());
    bytes[..filled].copy_from_slice(&pattern[..filled]);
    while filled < bytes.len() {
        let step = filled.min(bytes.len() - filled);
        bytes.copy_within(..step, filled);
        filled += step;
    }
    Ok(())
}

fn no_memory(place: Place) -> Refusal {
    invalid(format_args!("no memory {} on this connection", place.memory))
}

fn invalid(message: impl std::fmt::Display) -> Refusal {
    Refusal::Invalid(message.to_string())
}
