//! Which defect the twins of this process have.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::defect::Defect;

/// The defect of this process: its index in [`Defect::ALL`], plus one.
static PRESENT: AtomicUsize = AtomicUsize::new(0);

/// Whether the twins of this process have this defect.
pub(crate) fn wrong(defect: Defect) -> bool {
    PRESENT.load(Ordering::Relaxed) == defect as usize + 1
}

/// Whether the twins of this process have any defect.
pub(crate) fn is_any_wrong() -> bool {
    PRESENT.load(Ordering::Relaxed) > 0
}

impl Defect {
    /// Gives the twins of this process this defect.
    pub(crate) fn appear(self) {
        PRESENT.store(self as usize + 1, Ordering::Relaxed);
    }

    /// The name in tests: `short_writes`.
    pub(crate) fn name(self) -> String {
        let mut name = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.push(letter.to_ascii_lowercase());
        }
        name
    }

    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|defect| defect.name() == name)
    }
}

/// Declares the enum, and the list of all.
macro_rules! defects {
    ($($(#[$doc:meta])+ $defect:ident,)+) => {
        /// A defect of a backend. A process has at most one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Defect {
            $($(#[$doc])+ $defect,)+
        }

        impl Defect {
            pub(crate) const ALL: &[Self] = &[$(Self::$defect),+];
        }
    };
}
pub(crate) use defects;
