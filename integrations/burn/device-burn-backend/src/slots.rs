//! The places of tensors. burn's identifier of a tensor has the number of its place, so that finding the
//! tensor takes neither a hash nor a search.
//!
//! A place is used again when its tensor and all leases of it have ended. The identifier also has how often
//! that was, so that an old one finds nothing.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use burn_ir::TensorId;
use parking_lot::Mutex;

use crate::table::{Held, Table};

/// The place of one tensor.
pub(crate) struct Slot {
    /// The identifier that the place has now.
    id: AtomicU64,
    /// How many [leases](crate::lease) there are.
    leases: AtomicU32,
    /// Whether the last use has taken the tensor: the leases keep nothing any more.
    pub(crate) ended: AtomicBool,
    /// Whether burn has ended the last handle while a thread had a lease.
    pub(crate) released: AtomicBool,
    /// The thread that dropped leases. 0 for none yet.
    pub(crate) thread: AtomicU64,
    pub(crate) entry: Mutex<Option<Entry>>,
}

/// A tensor, and the table that it is in.
pub(crate) struct Entry {
    pub(crate) held: Held,
    pub(crate) table: &'static Table,
}

/// All places. Each page has twice as many as the one before, and stays for the life of the program.
static PAGES: [OnceLock<Box<[Slot]>>; 22] = [const { OnceLock::new() }; 22];

/// The places of the first page, as a power of two.
const FIRST_PAGE: u32 = 8;

/// The free places that no thread has for itself.
static FREE: Mutex<Free> = Mutex::new(Free { slots: Vec::new(), first_new: 0 });

struct Free {
    slots: Vec<&'static Slot>,
    /// The first place that was never used.
    first_new: u32,
}

thread_local! {
    /// The free places of this thread.
    static FREE_HERE: RefCell<FreeHere> = const { RefCell::new(FreeHere(Vec::new())) };
}

struct FreeHere(Vec<&'static Slot>);

/// How many free places a thread takes and gives back at once. It has no more than twice as many.
const SOME: usize = 64;

/// What the first two bits of the identifiers are. burn's own have another pair: small numbers within a
/// graph, and numbers with the first bit for the tensors between the operations of a graph that it binds.
const MARK: u64 = 0b01 << 62;

const MARKED: u64 = 0b11 << 62;

/// The number of a place within an identifier.
const NUMBER: u64 = (1 << 32) - 1;

/// An identifier that no tensor has yet.
pub(crate) fn new_id() -> TensorId {
    let here = FREE_HERE.try_with(|here| here.borrow_mut().take());
    let slot = here.unwrap_or_else(|_| FREE.lock().take());
    TensorId::new(slot.id.load(Ordering::Relaxed))
}

/// Whether an identifier is from here.
pub(crate) fn is_place(id: TensorId) -> bool {
    id.value() & MARKED == MARK
}

/// The place with this identifier, unless its tensor has ended.
pub(crate) fn find(id: TensorId) -> Option<&'static Slot> {
    if !is_place(id) {
        return None;
    }
    let id = id.value();
    let number = u32::try_from(id & NUMBER).ok()?;
    slot(number).filter(|slot| slot.id.load(Ordering::Acquire) == id)
}

/// All places that were ever used.
pub(crate) fn all() -> impl Iterator<Item = &'static Slot> {
    PAGES.iter().filter_map(OnceLock::get).flatten()
}

/// Where a place is: its page, and the place there.
fn place(number: u32) -> Option<(usize, usize)> {
    let place = number.checked_add(1 << FIRST_PAGE)?;
    let page = place.ilog2();
    Some(((page - FIRST_PAGE) as usize, (place - (1 << page)) as usize))
}

fn slot(number: u32) -> Option<&'static Slot> {
    let (page, place) = place(number)?;
    PAGES.get(page)?.get()?.get(place)
}

impl Free {
    fn take(&mut self) -> &'static Slot {
        self.slots.pop().unwrap_or_else(|| {
            let number = self.first_new;
            let (page, place) = place(number).expect("there are fewer tensors");
            let page = PAGES[page].get_or_init(|| {
                (0..1 << (FIRST_PAGE + page as u32)).map(|place| Slot::new(number + place)).collect()
            });
            self.first_new += 1;
            &page[place]
        })
    }
}

impl FreeHere {
    fn take(&mut self) -> &'static Slot {
        self.0.pop().unwrap_or_else(|| {
            let mut free = FREE.lock();
            self.0.extend((1..SOME).map(|_| free.take()));
            free.take()
        })
    }

    fn add(&mut self, slot: &'static Slot) {
        self.0.push(slot);
        if self.0.len() >= 2 * SOME {
            FREE.lock().slots.extend(self.0.drain(SOME..));
        }
    }
}

impl Drop for FreeHere {
    fn drop(&mut self) {
        FREE.lock().slots.append(&mut self.0);
    }
}

impl Slot {
    fn new(number: u32) -> Self {
        Self {
            id: AtomicU64::new(MARK | u64::from(number)),
            leases: AtomicU32::new(0),
            ended: AtomicBool::new(false),
            released: AtomicBool::new(false),
            thread: AtomicU64::new(0),
            entry: Mutex::new(None),
        }
    }

    pub(crate) fn id(&self) -> TensorId {
        TensorId::new(self.id.load(Ordering::Relaxed))
    }

    pub(crate) fn leases(&self) -> u32 {
        self.leases.load(Ordering::Acquire)
    }

    /// A lease more.
    pub(crate) fn lease(&self) {
        self.leases.fetch_add(1, Ordering::Relaxed);
    }

    /// A lease less. The last one ends the tensor.
    pub(crate) fn end_lease(&'static self) {
        let id = self.id();
        if self.leases.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Outside the lock: the end of a tensor frees memory.
            drop(self.take(id, |_| true));
        }
    }

    /// Takes the tensor, if the place still has this identifier. Without a lease, the place is then free.
    pub(crate) fn take(&'static self, id: TensorId, is_it: impl FnOnce(&Entry) -> bool) -> Option<Held> {
        let mut entry = self.entry.lock();
        if self.id() != id || !entry.as_ref().is_none_or(is_it) {
            return None;
        }
        let held = entry.take().map(|entry| entry.held);
        if self.leases() > 0 {
            return held;
        }
        self.ended.store(false, Ordering::Relaxed);
        self.released.store(false, Ordering::Relaxed);
        self.thread.store(0, Ordering::Relaxed);
        self.id.store(MARK | (id.value() + NUMBER + 1) & !MARKED, Ordering::Release);
        drop(entry);
        let here = FREE_HERE.try_with(|here| here.borrow_mut().add(self));
        if here.is_err() {
            FREE.lock().slots.push(self);
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use super::*;

    #[test]
    fn a_place_is_used_again_with_another_identifier() {
        let first = new_id();
        let slot = find(first).unwrap();
        slot.lease();
        slot.end_lease();
        assert!(find(first).is_none(), "its tensor has ended");
        let second = new_id();
        assert!(std::ptr::eq(find(second).unwrap(), slot));
        assert_ne!(first, second);
        for of_burn in [0, 1 << 63] {
            assert!(find(TensorId::new(of_burn | second.value() & NUMBER)).is_none());
        }
    }

    #[test]
    fn an_identifier_keeps_its_mark_however_often_its_place_was_used() {
        let slot = find(new_id()).unwrap();
        let last = TensorId::new(slot.id().value() | !MARKED & !NUMBER);
        slot.id.store(last.value(), Ordering::Relaxed);
        slot.take(last, |_| true);
        assert_eq!(slot.id().value(), MARK | last.value() & NUMBER);
    }

    #[test]
    fn threads_have_places_of_their_own() {
        let ids = || (0..10 * SOME).map(|_| new_id()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| thread::spawn(ids)).collect();
        let all: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        assert!(all.iter().all(|id| find(*id).is_some_and(|slot| slot.id() == *id)));
    }

    /// One thread makes tensors and another one ends them.
    #[test]
    fn places_that_another_thread_frees_are_used_again() {
        let round = || {
            let ids: Vec<_> = (0..10 * SOME).map(|_| new_id()).collect();
            let slots: HashSet<_> = ids.iter().map(|id| id.value() & NUMBER).collect();
            let free = move || ids.iter().for_each(|id| drop(find(*id).unwrap().take(*id, |_| true)));
            thread::spawn(free).join().unwrap();
            slots
        };
        let first = round();
        let again = (0..10).flat_map(|_| round()).filter(|slot| first.contains(slot)).count();
        assert!(again > 0, "none of them");
    }
}
