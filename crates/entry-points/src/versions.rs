//! A value that changes rarely and is read without a lock.

use crate::sync::{Mutex, MutexGuard, OnceLock, Orphaned};

/// A list of all versions of a value. Readers use the newest.
///
/// Versions are only added, so that a reader takes no lock. In a child of `fork`, a thread that no longer
/// exists may hold the lock, and readers still do not wait. Old versions are never freed: use it for a value
/// that changes only a few times while a program runs.
pub(crate) struct Versions<T> {
    first: Version<T>,
    /// Locked while a version is added.
    adding: Mutex<()>,
}

struct Version<T> {
    value: T,
    next: OnceLock<Box<Self>>,
}

/// The right to add versions.
pub(crate) struct Writer<'a, T> {
    versions: &'a Versions<T>,
    _adding: MutexGuard<'a, ()>,
}

impl<T> Versions<T> {
    pub(crate) const fn new(first: T) -> Self {
        Self { first: Version { value: first, next: OnceLock::new() }, adding: Mutex::new(()) }
    }

    pub(crate) fn newest(&self) -> &T {
        &self.newest_version().value
    }

    pub(crate) fn writer(&self) -> Result<Writer<'_, T>, Orphaned> {
        Ok(Writer { versions: self, _adding: self.adding.lock()? })
    }

    /// All versions, from the first one on.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.versions().map(|version| &version.value)
    }

    fn newest_version(&self) -> &Version<T> {
        self.versions().last().unwrap_or(&self.first)
    }

    fn versions(&self) -> impl Iterator<Item = &Version<T>> {
        std::iter::successors(Some(&self.first), |version| version.next.get().map(|next| &**next))
    }
}

impl<'a, T> Writer<'a, T> {
    /// The newest version. No other thread adds one while this writer exists.
    pub(crate) fn newest(&self) -> &'a T {
        self.versions.newest()
    }

    pub(crate) fn add(&self, value: T) -> &'a T {
        let next = &self.versions.newest_version().next;
        &next.get_or_init(|| Box::new(Version { value, next: OnceLock::default() })).value
    }
}

#[cfg(all(test, loom))]
mod model {
    use std::sync::Arc;

    use loom::thread;

    use super::*;
    use crate::sync::model::in_every_order;

    /// Versions whose loom objects this thread has made.
    fn made() -> Arc<Versions<u32>> {
        let versions = Versions::new(0);
        assert_eq!(versions.newest(), &0);
        Arc::new(versions)
    }

    #[test]
    fn two_writers_lose_no_version() {
        in_every_order(|| {
            let versions = made();
            let add_one = |versions: &Versions<u32>| {
                let writer = versions.writer().unwrap();
                writer.add(writer.newest() + 1);
            };
            let other = {
                let versions = Arc::clone(&versions);
                thread::spawn(move || add_one(&versions))
            };
            add_one(&versions);
            other.join().unwrap();
            assert_eq!(versions.newest(), &2);
        });
    }

    #[test]
    fn a_reader_never_gets_an_older_version_than_before() {
        in_every_order(|| {
            let versions = made();
            let reader = {
                let versions = Arc::clone(&versions);
                thread::spawn(move || [(); 3].map(|()| *versions.newest()))
            };
            let writer = versions.writer().unwrap();
            writer.add(1);
            writer.add(2);
            let reads = reader.join().unwrap();
            assert!(reads.is_sorted(), "{reads:?}");
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn readers_get_the_newest_version_and_references_to_old_ones_stay_valid() {
        let versions = Versions::new("first".to_owned());
        let first = versions.newest();
        let writer = versions.writer().unwrap();
        assert_eq!(writer.add("second".to_owned()), "second");
        assert_eq!(writer.newest(), "second");
        assert_eq!((first.as_str(), versions.newest().as_str()), ("first", "second"));
    }

    #[test]
    fn a_version_is_read_while_another_is_added() {
        let versions = Versions::new(0);
        let _writer = versions.writer().unwrap();
        std::thread::scope(|scope| {
            assert_eq!(*scope.spawn(|| versions.newest()).join().unwrap(), 0);
        });
    }
}
