//! The groups that this process has used, which need not be declared with `group!`.

use crate::collect::element::AnyGroup;
use crate::versions::Versions;

static USED: Versions<Option<&'static dyn AnyGroup>> = Versions::new(None);

/// Adds a group at its first use.
pub(crate) fn add(group: &'static dyn AnyGroup) {
    // In a fork, another thread of the parent may have been adding one, which is not worth an error.
    if let Ok(used) = USED.writer() {
        used.add(Some(group));
    }
}

/// All groups that were added. One may be there twice, if it was used before and after a fork.
pub(crate) fn all() -> impl Iterator<Item = &'static dyn AnyGroup> {
    USED.iter().flatten().copied()
}
