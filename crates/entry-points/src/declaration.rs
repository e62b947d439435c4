//! What the declaration of a group says: its name, its switches and its reserved names.

use crate::entry_point::EntryPoint;
use crate::error::RegisterError;
use crate::group_name::GroupName;
use crate::message::shown;

/// The declaration of a group, as constant data.
pub(crate) struct Declaration {
    pub(crate) name: GroupName,
    /// The prefix of its variables.
    pub(crate) switches: Option<&'static str>,
    pub(crate) reserved: &'static [&'static str],
    /// Further variables: see [`Group::variables`](crate::Group::variables).
    pub(crate) variables: &'static [&'static str],
    /// Variables of packages: see [`Group::read_by`](crate::Group::read_by).
    pub(crate) read_by: &'static [(&'static str, &'static str)],
}

impl Declaration {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self {
            name: GroupName { name, noun: None },
            switches: None,
            reserved: &[],
            variables: &[],
            read_by: &[],
        }
    }

    pub(crate) fn reserves(&self, name: &str) -> bool {
        self.reserved.contains(&name)
    }

    /// The error for registering a name that is built in or reserved.
    pub(crate) fn belongs_to_group<P: ?Sized>(&self, point: &EntryPoint<P>) -> RegisterError {
        RegisterError::BuiltIn { name: point.name(), group: self.name.name, by: point.provider() }
    }

    /// What the user can do about an entry point that is broken: how to turn it off, and where its author is.
    pub(crate) fn remedy_for_failure<P: ?Sized + 'static>(&self, point: &EntryPoint<P>) -> String {
        let switch = self.switches.map(|prefix| format!("{prefix}_DISABLE={} turns it off", point.name()));
        let author = point.repository().map(|url| format!("its source is at {}", shown(url)));
        switch.into_iter().chain(author).collect::<Vec<_>>().join(", and ")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry_point::{Origin, with_origin};

    #[test]
    fn the_remedy_has_the_switch_and_the_repository_as_far_as_they_are_known() {
        let new = || EntryPoint::<u8>::new("acme", || Ok(Box::new(0)));
        let point = new();
        let url = Some("https://example.org/acme");
        let published =
            with_origin(new(), Origin::new(|| "a.group", Some("acme"), Some("1.0.0"), url, "acme"));
        let plain = Declaration::new("a.group");
        let switched = Declaration { switches: Some("ACME"), ..Declaration::new("a.group") };
        for (declaration, point, remedy) in [
            (&plain, &point, ""),
            (&plain, &published, "its source is at https://example.org/acme"),
            (&switched, &point, "ACME_DISABLE=acme turns it off"),
            (
                &switched,
                &published,
                "ACME_DISABLE=acme turns it off, and its source is at https://example.org/acme",
            ),
        ] {
            assert_eq!(declaration.remedy_for_failure(point), remedy);
        }
    }
}
