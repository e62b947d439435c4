//! A map from names to slots. Look-ups and lists take no lock, even while other threads add names.

use crate::sync::{AtomicUsize, Mutex, MutexGuard, OnceLock, Ordering, Orphaned};

/// Table `n` has `SMALLEST << n` cells; the last one holds a billion names.
const SIZES: usize = 28;
/// Smaller in models, so that one more name makes a table grow.
const SMALLEST: usize = if cfg!(all(test, loom)) { 2 } else { 16 };

/// An item of the index, with a name that lives for the whole program.
pub(crate) trait Named {
    fn name(&self) -> &'static str;
}

/// An insert-only hash table with linear probing.
///
/// A cell is written once, so that a reader only loads it. When a table is half full, a larger one with all
/// its content replaces it. The old table stays for threads that still read it, which at most doubles the
/// memory. An atomic pointer to the newest table would save one load, but needs `unsafe`.
pub(crate) struct Index<T: Named + 'static> {
    tables: [OnceLock<Box<[Cell<T>]>>; SIZES],
    newest: AtomicUsize,
    /// The number of names. Locked while one is added.
    len: Mutex<usize>,
}

/// The right to add names.
pub(crate) struct Writer<'a, T: Named + 'static> {
    index: &'a Index<T>,
    len: MutexGuard<'a, usize>,
}

type Cell<T> = OnceLock<&'static T>;

impl<T: Named + 'static> Index<T> {
    pub(crate) fn new(items: &[&'static T]) -> Self {
        let index = Self {
            tables: [const { OnceLock::new() }; SIZES],
            newest: AtomicUsize::new(Self::size_for(items.len())),
            len: Mutex::new(items.len()),
        };
        for (len, item) in items.iter().enumerate() {
            index.insert(item, len);
        }
        index
    }

    /// All items, sorted by name. Takes no lock, and so never waits for a thread that adds an item.
    pub(crate) fn sorted(&self) -> Vec<&'static T> {
        let cells = self.cells(self.newest.load(Ordering::Acquire)).unwrap_or_default();
        let mut items: Vec<_> = cells.iter().filter_map(OnceLock::get).copied().collect();
        items.sort_unstable_by_key(|item| item.name());
        items
    }

    pub(crate) fn writer(&self) -> Result<Writer<'_, T>, Orphaned> {
        Ok(Writer { index: self, len: self.len.lock()? })
    }

    #[inline]
    pub(crate) fn find(&self, name: &str) -> Option<&'static T> {
        let cells = self.cells(self.newest.load(Ordering::Acquire))?;
        let mask = cells.len() - 1;
        let mut at = hash(name.as_bytes()) & mask;
        // The loop ends, since at least half of the cells are empty.
        loop {
            let item = *cells[at].get()?;
            if item.name() == name {
                return Some(item);
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds an item to the `len` others. Only one thread may call this at a time.
    fn insert(&self, item: &'static T, len: usize) {
        let newest = self.newest.load(Ordering::Relaxed);
        let needed = Self::size_for(len + 1).max(newest);
        let cells = self.tables[needed].get_or_init(|| {
            let grown: Box<[Cell<T>]> = (0..SMALLEST << needed).map(|_| OnceLock::default()).collect();
            for item in self.cells(newest).into_iter().flatten().filter_map(OnceLock::get) {
                put(&grown, item);
            }
            grown
        });
        put(cells, item);
        self.newest.store(needed, Ordering::Release);
    }

    fn cells(&self, size: usize) -> Option<&[Cell<T>]> {
        self.tables[size].get().map(|cells| &**cells)
    }

    /// The smallest table that `len` names fill at most half.
    fn size_for(len: usize) -> usize {
        (0..SIZES).find(|size| SMALLEST << size >= 2 * len).unwrap_or(SIZES - 1)
    }
}

impl<T: Named + 'static> Writer<'_, T> {
    /// Adds `item`. The index must not have its name yet.
    pub(crate) fn insert(&mut self, item: &'static T) {
        self.index.insert(item, *self.len);
        *self.len += 1;
    }
}

fn put<T: Named>(cells: &[Cell<T>], item: &'static T) {
    let mask = cells.len() - 1;
    let mut at = hash(item.name().as_bytes()) & mask;
    while cells[at].set(item).is_err() {
        at = (at + 1) & mask;
    }
}

/// Folded multiplication over words, as in wyhash. The standard library's SipHash takes several times as long
/// on eight bytes, and its protection is not needed: an attacker does not choose the names of linked crates.
/// With the plain multiplication of FxHash, names that differ only in the last letter of one word and the
/// first of the next may collide.
// Inlined into the generic code of other crates.
#[inline]
fn hash(bytes: &[u8]) -> usize {
    let len = bytes.len();
    let half = |at: usize| u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")));
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    // The length is spread over the whole word, so that it does not cancel a difference of two letters.
    let seed = (len as u64).wrapping_mul(FACTOR);
    // The last word overlaps the one before it, which is cheaper than a copy of the remaining bytes.
    let state = match len {
        0 => seed,
        1..4 => {
            let letter = |at: usize| u64::from(bytes[at]);
            mix(seed, letter(0) | letter(len / 2) << 8 | letter(len - 1) << 16)
        }
        4..=8 => mix(seed, half(0) | half(len - 4) << 32),
        _ => {
            let whole = (0..len - 8).step_by(8);
            mix(whole.fold(seed, |state, at| mix(state, word(at))), word(len - 8))
        }
    };
    // The low bits choose the cell, so every letter has to affect them.
    (state ^ (state >> 29)) as usize
}

const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

fn mix(state: u64, word: u64) -> u64 {
    let product = u128::from(state ^ word) * u128::from(FACTOR);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(all(test, loom))]
mod model {
    use std::sync::Arc;

    use loom::thread;

    use super::*;
    use crate::sync::model::in_every_order;

    impl Named for &'static str {
        fn name(&self) -> &'static str {
            self
        }
    }

    static A: &str = "a";
    static B: &str = "b";
    static C: &str = "c";

    /// An index whose loom objects this thread has made.
    fn made(items: &[&'static &'static str]) -> Arc<Index<&'static str>> {
        let index = Index::new(items);
        index.tables.iter().for_each(|table| assert_eq!(table.get().map_or(2, |cells| cells.len()), 2));
        Arc::new(index)
    }

    #[test]
    fn a_name_is_found_while_another_one_makes_the_table_grow() {
        in_every_order(|| {
            let index = made(&[&A]);
            let reader = {
                let index = Arc::clone(&index);
                thread::spawn(move || {
                    assert_eq!(index.find("a"), Some(&A));
                    assert!(matches!(index.find("b"), None | Some(&"b")));
                    assert!(index.sorted().contains(&&A));
                })
            };
            index.writer().unwrap().insert(&B);
            reader.join().unwrap();
            assert_eq!(index.sorted(), [&A, &B]);
        });
    }

    #[test]
    fn two_threads_that_add_a_name_each_add_both() {
        in_every_order(|| {
            let index = made(&[&A]);
            let other = {
                let index = Arc::clone(&index);
                thread::spawn(move || index.writer().unwrap().insert(&B))
            };
            index.writer().unwrap().insert(&C);
            assert_eq!(index.find("c"), Some(&C));
            other.join().unwrap();
            assert_eq!(index.sorted(), [&A, &B, &C]);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    struct Name(&'static str);

    impl Named for Name {
        fn name(&self) -> &'static str {
            self.0
        }
    }

    fn name(n: usize) -> &'static Name {
        Box::leak(Box::new(Name(format!("name_{n}").leak())))
    }

    #[test]
    fn every_name_is_found_and_no_other() {
        for count in [0, 1, 7, 8, 9, 100, 1000] {
            let names: Vec<_> = (0..count).map(name).collect();
            let index = Index::new(&names);
            for (n, item) in names.iter().enumerate() {
                assert!(std::ptr::eq(index.find(&format!("name_{n}")).unwrap(), *item));
            }
            assert!(index.find(&format!("name_{count}")).is_none());
            assert!(index.find("").is_none());
        }
    }

    #[test]
    fn all_names_are_listed_in_order_while_one_is_added() {
        let index = Index::new(&[name(2), name(1)]);
        let listed = || index.sorted().iter().map(|item| item.name()).collect::<Vec<_>>();
        let mut writer = index.writer().unwrap();
        std::thread::scope(|scope| {
            assert_eq!(scope.spawn(listed).join().unwrap(), ["name_1", "name_2"]);
        });
        (3..9).for_each(|n| writer.insert(name(n)));
        assert_eq!(listed(), (1..9).map(|n| format!("name_{n}")).collect::<Vec<_>>());
    }

    #[test]
    fn names_are_found_while_others_are_added() {
        let first: Vec<_> = (0..8).map(name).collect();
        let index = Index::new(&first);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        assert!((0..8).all(|n| index.find(&format!("name_{n}")).is_some()));
                    }
                });
            }
            for n in 8..3000 {
                index.writer().unwrap().insert(name(n));
                assert!(index.find(&format!("name_{n}")).is_some());
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!((0..3000).all(|n| index.find(&format!("name_{n}")).is_some()));
    }

    #[test]
    fn hashes_of_similar_names_differ() {
        for prefix in ["", "x", "codec_", "decoder_", "a_rather_long_name_"] {
            let mut hashes: Vec<_> = (0..10_000).map(|n| hash(format!("{prefix}{n}").as_bytes())).collect();
            hashes.sort_unstable();
            hashes.dedup();
            assert_eq!(hashes.len(), 10_000, "{prefix}");
            // The low bits choose the cell: ten thousand names should hit some 8,600 of 32,768 cells.
            let mut cells: Vec<_> = hashes.iter().map(|hash| hash % 32_768).collect();
            cells.sort_unstable();
            cells.dedup();
            assert!(cells.len() > 8_400, "{prefix}: {}", cells.len());
        }
    }
}
