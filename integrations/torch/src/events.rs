//! Events, by the numbers that PyTorch has for them.
//!
//! A thread may wait for an event while another one records it again. So a call has the event itself, and the
//! table has what was recorded last.

use std::collections::HashMap;
use std::sync::LazyLock;

use device_registry::Event;
use parking_lot::Mutex;

use crate::devices::{check_fork, is_forked};
use crate::failure::Failure;

#[derive(Default)]
struct Events {
    live: HashMap<u64, Event>,
    last: u64,
}

static EVENTS: LazyLock<Mutex<Events>> = LazyLock::new(Mutex::default);

/// Replaces the event with a number; in a new place for the number 0. Returns its number.
pub(crate) fn put(number: u64, event: Event) -> u64 {
    // Dropped without the lock, as a driver may take long to free it.
    let (number, _before) = {
        let mut events = EVENTS.lock();
        let number = match number {
            0 => {
                events.last += 1;
                events.last
            }
            number => number,
        };
        (number, events.live.insert(number, event))
    };
    number
}

/// The event with a number, as it was recorded last.
pub(crate) fn get(number: u64) -> Result<Event, Failure> {
    check_fork()?;
    let event = EVENTS.lock().live.get(&number).cloned();
    event.ok_or_else(|| Failure::new(format_args!("there is no event {number}")))
}

/// Forgets an event. A child of a fork leaves its parent's as they are.
pub(crate) fn remove(number: u64) {
    if !is_forked() {
        let event = EVENTS.lock().live.remove(&number);
        drop(event);
    }
}
