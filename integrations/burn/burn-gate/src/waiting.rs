//! The connections without a session.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::AbortHandle;

/// How many there are at most, of which one peer may have half.
const LIMIT: usize = 128;

/// How many descriptors of this process a connection has at most: the client's, both ends of that to burn's
/// server, and the one that keeps its port.
const DESCRIPTORS: u64 = 4;

/// Where a connection comes from: its address, and one value for all loopback addresses. A program of this
/// machine can connect from each of 127.0.0.0/8.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Peer(IpAddr);

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self(if address.is_loopback() { Ipv4Addr::LOCALHOST.into() } else { address })
    }
}

/// The connections without a session.
pub(crate) struct Waiting {
    /// The oldest first.
    connections: VecDeque<Connection>,
    limit: usize,
}

struct Connection {
    peer: Peer,
    has_session: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Waiting {
    /// At most [`LIMIT`], and fewer where this process may have few descriptors: half of them stay for
    /// sessions.
    pub(crate) fn new() -> Self {
        Self::for_descriptors(most_descriptors())
    }

    fn for_descriptors(most: Option<u64>) -> Self {
        let limit = most.map_or(LIMIT, |most| usize::try_from(most / 2 / DESCRIPTORS).unwrap_or(LIMIT));
        Self { connections: VecDeque::new(), limit: limit.clamp(2, LIMIT) }
    }

    /// Closes the oldest connections where one more would be too many.
    pub(crate) fn make_room_for(&mut self, peer: Peer) {
        let Self { connections, limit } = self;
        connections.retain(|each| !each.has_session.load(Ordering::Acquire) && !each.task.is_finished());
        let of_peer = connections.iter().filter(|each| each.peer == peer).count();
        let oldest = if of_peer >= *limit / 2 {
            connections.iter().position(|each| each.peer == peer)
        } else {
            (connections.len() >= *limit).then_some(0)
        };
        if let Some(connection) = oldest.and_then(|oldest| connections.remove(oldest)) {
            connection.task.abort();
        }
    }

    pub(crate) fn add(&mut self, peer: Peer, has_session: Arc<AtomicBool>, task: AbortHandle) {
        self.connections.push_back(Connection { peer, has_session, task });
    }
}

/// How many descriptors this process may have, if there is such a limit.
#[cfg(unix)]
fn most_descriptors() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

#[cfg(not(unix))]
fn most_descriptors() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT_PER_PEER: usize = LIMIT / 2;

    /// The connections of `peers`, each with a task that never ends, and whether each was closed.
    fn closed(peers: impl IntoIterator<Item = impl Into<IpAddr>>, with_session: bool) -> Vec<bool> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut waiting = Waiting::for_descriptors(None);
            let mut tasks = Vec::new();
            for peer in peers {
                let peer = Peer::from(peer.into());
                waiting.make_room_for(peer);
                let task = tokio::spawn(std::future::pending::<()>());
                waiting.add(peer, Arc::new(AtomicBool::new(with_session)), task.abort_handle());
                tasks.push(task);
            }
            tokio::task::yield_now().await;
            tasks.iter().map(|task| task.is_finished()).collect()
        })
    }

    #[test]
    fn the_oldest_connection_of_a_peer_makes_room_for_its_next() {
        let others = [[10, 0, 0, 2]; 3];
        let closed = closed(others.into_iter().chain([[10, 0, 0, 1]; LIMIT_PER_PEER + 2]), false);
        assert_eq!(closed[..3], [false; 3]);
        assert_eq!(closed[3..5], [true; 2]);
        assert!(!closed[5..].contains(&true));
    }

    #[test]
    fn all_addresses_of_this_machine_alone_are_one_peer() {
        let v4 = (0..LIMIT_PER_PEER as u8).map(|last| IpAddr::from([127, 1, 2, last]));
        let v6 = ["::1", "::ffff:127.0.0.9"].map(|text| text.parse().unwrap());
        let closed = closed(v4.chain(v6), false);
        assert_eq!(closed[..2], [true; 2]);
        assert!(!closed[2..].contains(&true));
    }

    #[test]
    fn the_oldest_connection_of_all_makes_room_where_peers_are_many() {
        let closed = closed((0..LIMIT as u32 + 5).map(u32::to_be_bytes), false);
        assert_eq!(closed[..5], [true; 5]);
        assert!(!closed[5..].contains(&true));
    }

    #[test]
    fn connections_with_a_session_are_not_counted() {
        assert!(!closed([[10, 0, 0, 1]; LIMIT + 5], true).contains(&true));
    }

    #[test]
    fn they_leave_half_of_the_descriptors_to_sessions() {
        for (most, limit) in
            [(None, 128), (Some(u64::MAX), 128), (Some(1024), 128), (Some(256), 32), (Some(1), 2)]
        {
            assert_eq!(Waiting::for_descriptors(most).limit, limit, "{most:?}");
        }
    }
}
