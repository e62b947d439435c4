//! Values of this program that a library holds. It gets a number for each, and not its address: a number that
//! it uses twice, or makes up, finds no value. Only once all numbers are used up do they begin again.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::{Mutex, MutexGuard};

use crate::abi::Object;

/// How many threads can add values at once without waiting.
const SHARDS: usize = 16;

pub(crate) struct Numbered<T> {
    next: AtomicUsize,
    shards: [Mutex<BTreeMap<usize, T>>; SHARDS],
}

impl<T> Numbered<T> {
    pub(crate) const fn new() -> Self {
        Self { next: AtomicUsize::new(1), shards: [const { Mutex::new(BTreeMap::new()) }; SHARDS] }
    }

    /// Adds a value. Returns its number in the shape of a pointer, which is not null and which no other value
    /// has.
    pub(crate) fn put(&self, value: T) -> Object {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            // In a child of `fork`, a thread that the child does not have may hold a lock forever. No value
            // gets there.
            let Some(mut shard) = self.shards[number % SHARDS].try_lock() else {
                thread::yield_now();
                continue;
            };
            // An old value may have the number where addresses have 32 bits.
            if number != 0
                && let Entry::Vacant(place) = shard.entry(number)
            {
                place.insert(value);
                return ptr::without_provenance_mut(number);
            }
        }
    }

    /// Takes a value out, if it is there.
    pub(crate) fn take(&self, number: Object) -> Option<T> {
        self.shard(number).remove(&number.addr())
    }

    /// Reads a value, if it is there. The lock of other values is held meanwhile.
    pub(crate) fn read<R>(&self, number: Object, read: impl FnOnce(&T) -> R) -> Option<R> {
        self.shard(number).get(&number.addr()).map(read)
    }

    fn shard(&self, number: Object) -> MutexGuard<'_, BTreeMap<usize, T>> {
        self.shards[number.addr() % SHARDS].lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_taken_once_and_its_number_is_no_other_value() {
        let numbered = Numbered::new();
        let first = numbered.put("first");
        assert!(!first.is_null());
        assert_eq!(numbered.read(first, |value| value.len()), Some(5));
        assert_eq!(numbered.take(first), Some("first"));
        for _ in 0..100 {
            assert_ne!(numbered.put("another"), first);
        }
        assert_eq!((numbered.take(first), numbered.read(first, |_| ())), (None, None));
        assert_eq!(numbered.take(ptr::null_mut()), None);
    }

    #[test]
    fn numbers_that_begin_again_are_not_null_and_replace_no_value() {
        let numbered = Numbered::new();
        let old = numbered.put("old");
        numbered.next.store(usize::MAX, Ordering::Relaxed);
        let new = ["last", "first", "second"].map(|value| (numbered.put(value), value));
        assert_eq!(numbered.take(old), Some("old"));
        for (number, value) in new {
            assert!(!number.is_null());
            assert_eq!(numbered.take(number), Some(value));
        }
    }

    #[test]
    fn a_lock_that_is_held_forever_stops_no_other_value() {
        let numbered = Numbered::new();
        let _held = numbered.shards[3].lock();
        let numbers: Vec<_> = (0..100).map(|value| numbered.put(value)).collect();
        for (value, number) in numbers.into_iter().enumerate() {
            assert_eq!(numbered.take(number), Some(value));
        }
    }
}
