//! The entry points that claim a name, and why each does.

use crate::entry_point::EntryPoint;

/// An entry point that claims a name.
pub(crate) struct Candidate<P: ?Sized + 'static> {
    pub(crate) point: &'static EntryPoint<P>,
    pub(crate) claim: Claim,
}

impl<P: ?Sized> Clone for Candidate<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: ?Sized> Copy for Candidate<P> {}

/// The reason why an entry point claims its name. A built-in name and an override exclude all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The group itself declares it.
    BuiltIn,
    /// A collector found it.
    Linked,
    /// `install` was called for it. Any other entry point that is on takes precedence.
    Installed,
    /// `register` was called for it.
    Registered,
    /// `register_override` was called for it.
    Override,
    /// `register` refused it: reports list it, and it never gets the name.
    Refused,
}
