//! What the declaration of a group says: its name, its switches and its reserved names.

use crate::entry_point::EntryPoint;
use crate::error::RegisterError;
use crate::group_name::GroupName;

/// The declaration of a group, as constant data.
pub(crate) struct Declaration {
    pub(crate) name: GroupName,
    /// The prefix of its variables.
    pub(crate) switches: Option<&'static str>,
    pub(crate) reserved: &'static [&'static str],
}

impl Declaration {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name: GroupName { name, noun: None }, switches: None, reserved: &[] }
    }

    pub(crate) fn reserves(&self, name: &str) -> bool {
        self.reserved.contains(&name)
    }

    /// The error for registering a name that is built in or reserved.
    pub(crate) fn belongs_to_group<P: ?Sized>(&self, point: &EntryPoint<P>) -> RegisterError {
        RegisterError::BuiltIn { name: point.name(), group: self.name.name, by: point.provider() }
    }

    /// What the user can do about several entry points with one name.
    pub(crate) fn remedy_for_duplicates<P: ?Sized>(&self, name: &str, points: &[&EntryPoint<P>]) -> String {
        let one_package = points.windows(2).all(|pair| pair[0].package() == pair[1].package());
        let one_version = points.windows(2).all(|pair| pair[0].version() == pair[1].version());
        match (self.switches, points.iter().find_map(|point| point.package())) {
            _ if self.reserves(name) => {
                "the group reserves this name, and the package needs another one".to_owned()
            }
            (_, Some(_)) if one_package && one_version => {
                "a package can offer a name only once: rename one of them".to_owned()
            }
            (_, Some(_)) if one_package => {
                "several versions of one package are linked: see `cargo tree -d`".to_owned()
            }
            (Some(prefix), Some(package)) => {
                format!("remove one of them, or disable one, as with {prefix}_DISABLE={package}/{name}")
            }
            _ => "remove one of them".to_owned(),
        }
    }
}
