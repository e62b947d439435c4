//! A connection to a server: requests, replies, and how it ends.

use std::io::{self, ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use device_registry::backend::BackendError;
use netmem_protocol::{GREETING, Info, Refusal, Request, decode_reply, read_frame};
use parking_lot::Mutex;

/// How long the network may take to connect.
const CONNECT: Duration = Duration::from_millis(300);

/// A connection, which any number of threads use in turn.
pub(crate) struct Connection {
    address: SocketAddr,
    pub(crate) stream: TcpStream,
    /// How long the server may take for a reply. The core sets no time limits for drivers, so a driver
    /// handles a silent server itself.
    pub(crate) patience: Duration,
    /// Held from a request to its reply.
    turn: Mutex<()>,
    /// Memory to free before the next request.
    freed: Mutex<Vec<u64>>,
}

impl Connection {
    /// Connects to a server and queries it: another program may listen on the port.
    ///
    /// # Errors
    ///
    /// *Unavailable*, with a reason of one line, as lists of devices print it.
    pub(crate) fn open(address: SocketAddr, patience: Duration) -> Result<(Self, Info), BackendError> {
        let connect = || {
            let mut stream = TcpStream::connect_timeout(&address, CONNECT)?;
            // Otherwise a small frame waits until the one before it is acknowledged.
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(patience))?;
            stream.set_write_timeout(Some(patience))?;
            stream.write_all(&GREETING)?;
            Ok(stream)
        };
        let stream = connect().map_err(|error: io::Error| {
            BackendError::unavailable(format_args!("no server at {address}: {error}"))
        })?;
        let this = Self { address, stream, patience, turn: Mutex::new(()), freed: Mutex::new(Vec::new()) };
        let info = this.info().map_err(|error| BackendError::unavailable(error.message()))?;
        Ok((this, info))
    }

    /// Sends a request and waits for the reply.
    ///
    /// # Errors
    ///
    /// *Lost* if the connection fails. The call then ends the connection, so that no later call takes the
    /// rest of this reply for its own.
    pub(crate) fn call(&self, request: &Request<'_>) -> Result<Vec<u8>, BackendError> {
        let turn = self.turn.lock();
        let reply = self.send_freed().and_then(|()| {
            (&self.stream).write_all(&request.encode())?;
            let reply = decode_reply(read_frame(&self.stream)?);
            reply.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "not a reply"))
        });
        if reply.is_err() {
            self.end();
        }
        drop(turn);
        reply.map_err(|error| self.lost(error))?.map_err(|refusal| match (refusal, request) {
            (Refusal::OutOfMemory { free }, Request::Allocate { len }) => {
                BackendError::out_of_memory(*len, Some(free))
            }
            (Refusal::OutOfMemory { .. }, _) => BackendError::other("the server is out of memory"),
            (Refusal::Invalid(message), _) => {
                BackendError::other(format_args!("the server refuses: {message}"))
            }
        })
    }

    pub(crate) fn info(&self) -> Result<Info, BackendError> {
        let reply = self.call(&Request::Info)?;
        Info::decode(&reply)
            .ok_or_else(|| BackendError::other("expected a description of the server, found other bytes"))
    }

    /// Frees memory on the server: now, or if the connection is in use, with a later request. It waits for no
    /// reply. On a connection that has ended it does nothing, because the server freed the memory then.
    pub(crate) fn free(&self, memory: u64) {
        self.freed.lock().push(memory);
        if let Some(_turn) = self.turn.try_lock() {
            let _ = self.send_freed();
        }
    }

    /// Sends what `freed` lists. The caller holds the turn.
    fn send_freed(&self) -> io::Result<()> {
        let freed = std::mem::take(&mut *self.freed.lock());
        let frames: Vec<u8> =
            freed.into_iter().flat_map(|memory| Request::Free { memory }.encode()).collect();
        (&self.stream).write_all(&frames)
    }

    /// Ends the connection. A call that waits for a reply fails, and so do all later ones.
    pub(crate) fn end(&self) {
        // It fails if the server has ended the connection before.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// The error of a connection that has failed.
    pub(crate) fn lost(&self, error: io::Error) -> BackendError {
        let Self { address, patience, .. } = self;
        let lost = match error.kind() {
            // Systems have these two names for a time limit of a socket.
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                BackendError::lost(format_args!("the server at {address} did not reply within {patience:?}"))
            }
            ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe => {
                BackendError::lost(format_args!("the connection to the server at {address} has ended"))
            }
            _ => BackendError::lost(format_args!("the connection to the server at {address} failed")),
        };
        lost.with_source(error)
    }
}
