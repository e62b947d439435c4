//! A name in a group: what is behind it, and what has become of it.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::entry_point::EntryPoint;
use crate::error::LoadError;
use crate::group::Group;
use crate::slot::Slot;
use crate::state::State;
use crate::verdict::Standing;

/// A name in a [`Group`].
///
/// `Copy`, as large as a pointer, compared by group and name. It stays valid for the life of the program,
/// whatever is registered later.
pub struct Entry<P: ?Sized + 'static>(pub(crate) &'static Slot<P>);

impl<P: ?Sized + Send + Sync + 'static> Entry<P> {
    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The group.
    #[must_use]
    pub fn group(self) -> &'static Group<P> {
        self.0.group
    }

    /// The entry point behind the name: the one in use, or else the first of those that there are.
    #[must_use]
    pub fn entry_point(self) -> &'static EntryPoint<P> {
        self.0.claims().representative()
    }

    /// The package it comes from, if known.
    #[must_use]
    pub fn package(self) -> Option<&'static str> {
        self.entry_point().package()
    }

    /// The version of that package, if known.
    #[must_use]
    pub fn version(self) -> Option<&'static str> {
        self.entry_point().version()
    }

    /// The Rust path of its `load` function, if known.
    #[must_use]
    pub fn value(self) -> Option<&'static str> {
        self.entry_point().value()
    }

    /// What has become of it. Runs no code of the plugin's and never waits for it.
    #[must_use]
    pub fn state(self) -> State {
        let claims = self.0.claims();
        match &claims.standing {
            Standing::On(at) | Standing::Off(at) => self.0.state_of(claims, *at),
            Standing::Duplicate(rivals) => State::Duplicate { of: claims.whences(rivals) },
        }
    }

    /// Whether it may be used: it is not disabled and its name is its own. Runs no code of the plugin's and takes no
    /// lock. If it may not be used, the error of [`load`](Self::load) says why.
    #[must_use]
    pub fn is_usable(self) -> bool {
        self.0.usable()
    }

    /// The plugin; loads it at the first call.
    ///
    /// Once loaded, this is one atomic load: no lock, no allocation. Before, it runs the entry point's `load` on
    /// this thread, or blocks while another thread does. Any number of threads may call it.
    ///
    /// # Errors
    ///
    /// [`LoadError`] says why there is no plugin. A failure is remembered: every later call returns the same
    /// error, until [`retry`](Self::retry). One that only came from a cycle which goes through entry points further
    /// out is forgotten: the next call tries again.
    #[inline]
    pub fn load(self) -> Result<&'static P, LoadError> {
        self.0.load(false)
    }

    /// The plugin, if it has been loaded.
    #[must_use]
    pub fn loaded(self) -> Option<&'static P> {
        self.0.loaded()
    }

    /// Like [`load`](Self::load), but tries again if loading failed before.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    pub fn retry(self) -> Result<&'static P, LoadError> {
        self.0.load(true)
    }
}

impl<P: ?Sized> Clone for Entry<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: ?Sized> Copy for Entry<P> {}

impl<P: ?Sized> PartialEq for Entry<P> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl<P: ?Sized> Eq for Entry<P> {}

// A plugin is only ever lent, and a panic leaves whole what the group knows of it.
impl<P: ?Sized> UnwindSafe for Entry<P> {}
impl<P: ?Sized> RefUnwindSafe for Entry<P> {}

impl<P: ?Sized + Send + Sync> PartialOrd for Entry<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P: ?Sized + Send + Sync> Ord for Entry<P> {
    /// By name; entries of different groups by the group's name first.
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |entry: &Self| (entry.0.group.name(), entry.0.name, std::ptr::from_ref(entry.0).addr());
        if self == other { Ordering::Equal } else { key(self).cmp(&key(other)) }
    }
}

impl<P: ?Sized> Hash for Entry<P> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl<P: ?Sized + Send + Sync> fmt::Debug for Entry<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.name()).field(&self.state()).finish()
    }
}
