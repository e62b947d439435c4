//! A name in a group, as users hold it.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::Path;

use crate::entry_point::EntryPoint;
use crate::error::LoadError;
use crate::slot::Slot;
use crate::state::State;
use crate::verdict::Standing;

/// A name in a [`Group`](crate::Group).
///
/// It is `Copy`, as large as a pointer, and compared by group and name. It stays valid for the life of the
/// program: later registrations do not invalidate it.
pub struct Entry<P: ?Sized + 'static>(pub(crate) &'static Slot<P>);

impl<P: ?Sized + Send + Sync + 'static> Entry<P> {
    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The name of the group.
    #[must_use]
    pub fn group(self) -> &'static str {
        self.0.group.name.name
    }

    /// The entry point that has the name. If several claim it and none has it, the first of them.
    #[must_use]
    pub fn entry_point(self) -> &'static EntryPoint<P> {
        self.0.claims().representative()
    }

    /// The package that declares the entry point, if known.
    #[must_use]
    pub fn package(self) -> Option<&'static str> {
        self.entry_point().package()
    }

    /// The version of that package, if known.
    #[must_use]
    pub fn version(self) -> Option<&'static str> {
        self.entry_point().version()
    }

    /// The file that it is in, if it was [installed](crate::Group::install).
    #[must_use]
    pub fn file(self) -> Option<&'static Path> {
        self.entry_point().file()
    }

    /// The Rust path of its `load` function, if known.
    #[must_use]
    pub fn value(self) -> Option<&'static str> {
        self.entry_point().value()
    }

    /// The state of the entry. Runs no plugin's code and never waits for one that is loading.
    #[must_use]
    pub fn state(self) -> State {
        let claims = self.0.claims();
        match &claims.standing {
            Standing::On(at) | Standing::Off(at) => self.0.state_of(claims, *at),
            Standing::Duplicate(rivals) => State::Duplicate { of: claims.providers(rivals) },
        }
    }

    /// Whether the entry may be used: it is neither disabled nor a duplicate. Runs no plugin's code and takes
    /// no lock. If this returns `false`, the error of [`load`](Self::load) says why.
    #[must_use]
    pub fn is_usable(self) -> bool {
        self.0.usable()
    }

    /// Returns the plugin, and loads it at the first call.
    ///
    /// The first call runs the entry point's `load` on this thread; other threads that call meanwhile block
    /// until it ends. Once the plugin is loaded, a call is one atomic load: no lock, no allocation.
    ///
    /// # Errors
    ///
    /// [`LoadError`] says why there is no plugin. How long the error is remembered depends on its kind:
    ///
    /// | `load` | later calls return the same error |
    /// |---|---|
    /// | returned [`LoadFailure::unavailable`](crate::LoadFailure::unavailable) | for [`UNAVAILABLE_FOR`](crate::LoadFailure::UNAVAILABLE_FOR); then the next call runs it again |
    /// | returned another error, or panicked | until [`retry`](Self::retry) |
    /// | failed only because of a cycle through an entry point that is still loading | never: the next call runs it again |
    #[inline]
    pub fn load(self) -> Result<&'static P, LoadError> {
        self.0.load(false)
    }

    /// The plugin, if it has been loaded.
    #[must_use]
    pub fn loaded(self) -> Option<&'static P> {
        self.0.loaded()
    }

    /// Like [`load`](Self::load), but tries again at once if loading failed before, whatever the failure.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`load`](Self::load).
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

// A plugin is only borrowed, and a panic leaves the state of the group consistent.
impl<P: ?Sized> UnwindSafe for Entry<P> {}
impl<P: ?Sized> RefUnwindSafe for Entry<P> {}

impl<P: ?Sized + Send + Sync> PartialOrd for Entry<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P: ?Sized + Send + Sync> Ord for Entry<P> {
    /// By the group's name first, and then by name.
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |entry: &Self| (entry.group(), entry.name(), std::ptr::from_ref(entry.0).addr());
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
