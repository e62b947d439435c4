//! burn's server behind a port that strangers may reach.
//!
//! burn's server gives a session only to a client with the token. Before it looks at the token, it does much
//! for anybody: it waits without a limit, reads a message of up to 1 GiB, and serves a second route, `/data`,
//! on which a request for a transfer that does not exist waits forever and a frame that makes no sense is a
//! panic. So strangers do not reach it. [`serve`] accepts the connections itself, and relays to burn's server
//! what a client of burn sends to open a session:
//!
//! 1. a request for `/session`, which it writes anew: no byte of the client's reaches burn but the key of the
//!    handshake,
//! 2. one binary frame of at most 16 KiB, in which the token is,
//! 3. and, once burn has accepted the token, everything.
//!
//! Another request gets an answer of this crate's: `GET /counts` with the token, as `Authorization: Bearer
//! TOKEN`, gets the caller's text, and everything else an HTTP status.
//!
//! All that has to happen in ten seconds. Of the connections that have no session yet, there are at most 128,
//! and half as many from one address; the loopback addresses count as one. They are fewer where the process
//! may open few files: each has up to four descriptors, and together they have at most half of all. A
//! connection above that is accepted, and the oldest is closed: a client of burn needs a few milliseconds,
//! and connections that only wait cannot lock it out. A flood of new ones can close a client's connection
//! before it has a session. burn's client repeats a handshake for 16 seconds, so the flood delays it, and a
//! close after the handshake is an error of its `init`.
//!
//! # The port behind
//!
//! burn's server has no transport without a port, so there is a second one on 127.0.0.1. On Linux a filter of
//! the kernel drops what others send to it: it lets one socket of this crate in, until burn has answered that
//! one. On other systems any program of this machine can connect to it.
//!
//! # One server after the other
//!
//! burn's server has a table of tensors that move between its devices. Each client program numbers its moves
//! from 0. A client that is killed during a move can leave a waiting thread behind, which would take the
//! tensor of a later client with the same number, and that client would wait forever. So the table must not
//! outlive its clients: when the last session has ended, the next connection gets a new server of burn.
//! Connections without a session do not keep the old one for it.

mod answers;
mod opening;
mod relay;
mod server;
mod waiting;

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use burn_ir::BackendIr;
use burn_remote::server::{BackendServer, TokenAuthorizer};
use tokio::task::JoinSet;

use crate::server::Servers;
use crate::waiting::{Peer, Waiting};

/// Serves clients that have the token, until the future is dropped, which closes every connection.
///
/// `report` gets a line for each client that is refused, and for what goes wrong here. `left` is called when
/// the last session has ended, before there is another one. `counts` is the text of `/counts`; it must not
/// block.
///
/// # Errors
///
/// If the runtime cannot watch the listener. What happens to one connection never ends the others.
pub async fn serve<B: BackendIr>(
    listener: TcpListener,
    server: BackendServer<B>,
    tokens: TokenAuthorizer,
    report: fn(fmt::Arguments<'_>),
    left: fn(),
    counts: impl Fn() -> String + Send + Sync + 'static,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let servers = Arc::new(Servers::new(server, tokens, report, left, counts));
    let mut waiting = Waiting::new();
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((client, peer)) => {
                let origin = Peer::from(peer.ip());
                waiting.make_room_for(origin);
                let has_session = Arc::new(AtomicBool::new(false));
                let relayed = relay::relay(client, peer, Arc::clone(&servers), Arc::clone(&has_session));
                waiting.add(origin, has_session, connections.spawn(relayed));
            }
            // There may be too many open files, for example: other clients may leave.
            Err(error) => {
                report(format_args!("cannot accept a client: {error}"));
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}
