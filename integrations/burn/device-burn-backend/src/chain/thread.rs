//! The chains of a thread that wait, in the order in which they began.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ptr;
use std::sync::{Arc, Weak};

use super::Chain;
use crate::client::Client;
use crate::storage::Pending;

/// How many chains of a thread wait at most. The oldest one then runs.
const MOST_CHAINS: usize = 32;

/// How many operations a thread registers before a chain runs that nothing has needed meanwhile: it keeps the
/// memory of its inputs.
const MOST_AGE: u64 = 256;

thread_local! {
    static THREAD: RefCell<Waiting> = const { RefCell::new(Waiting::new()) };
}

/// The chains of a thread that wait.
struct Waiting {
    /// How many operations the thread has registered.
    operations: u64,
    /// The oldest is first.
    chains: VecDeque<(u64, Weak<Chain>)>,
}

impl Waiting {
    const fn new() -> Self {
        Self { operations: 0, chains: VecDeque::new() }
    }

    fn begins(&mut self, chain: &Arc<Chain>) {
        self.chains.push_back((self.operations, Arc::downgrade(chain)));
    }

    /// A chain that has waited for too long, or is one of too many.
    fn due(&mut self) -> Option<Arc<Chain>> {
        while let Some((born, chain)) = self.chains.front() {
            let is_old = self.operations - born > MOST_AGE;
            if chain.strong_count() > 0 && !is_old {
                break;
            }
            if let Some((_, chain)) = self.chains.pop_front()
                && let Some(chain) = chain.upgrade()
            {
                return Some(chain);
            }
        }
        if self.chains.len() <= MOST_CHAINS {
            return None;
        }
        self.chains.retain(|(_, chain)| chain.strong_count() > 0);
        if self.chains.len() <= MOST_CHAINS {
            return None;
        }
        self.chains.pop_front().and_then(|(_, chain)| chain.upgrade())
    }
}

/// A new chain of this thread waits.
pub(super) fn begins(chain: &Arc<Chain>) {
    let _ = THREAD.try_with(|thread| thread.borrow_mut().begins(chain));
}

/// This thread registers an operation: chains that have waited for too long run.
pub(crate) fn begin_operation() {
    let due = |is_next: bool| {
        let due = THREAD.try_with(|thread| {
            let mut thread = thread.borrow_mut();
            thread.operations += u64::from(!is_next);
            thread.due()
        });
        due.ok().flatten()
    };
    let mut chain = due(false);
    while let Some(old) = chain {
        // Its results have the failure.
        let _ = old.settle();
        chain = due(true);
    }
}

/// Runs the chains of this thread on the device of `client` that wait.
pub(crate) fn settle_all(client: &Client) {
    for chain in of_this_thread(client) {
        let _ = chain.settle();
    }
}

/// Runs the chains of this thread on the device of `client` that wait, as they keep memory. Returns whether
/// there were any.
pub(crate) fn release_memory(client: &Client) -> bool {
    let mut any = false;
    for chain in of_this_thread(client) {
        // No other thread is waited for: it may wait for this one.
        any |= chain.run();
    }
    any
}

fn of_this_thread(client: &Client) -> Vec<Arc<Chain>> {
    let chains = THREAD.try_with(|thread| {
        let thread = thread.borrow();
        let chains = thread.chains.iter().filter_map(|(_, chain)| chain.upgrade());
        chains.filter(|chain| ptr::eq(chain.client, client)).collect()
    });
    chains.unwrap_or_default()
}
