//! Defaults of groups by their names, for a configuration file. Not public API: shared with the other crates
//! of this repository, which depend on the exact version.

use crate::collect::element::AnyGroup;
use crate::defaults::Defaults;
pub use crate::defaults::Effect;
use crate::error::DefaultsError;
use crate::groups;

/// The names of all groups of this process, sorted. Uses none of them.
#[must_use]
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = groups::all().into_iter().map(AnyGroup::name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Whether [`set_defaults`] would succeed. Does not use the group.
///
/// # Errors
///
/// The same as [`Group::set_defaults`](crate::Group::set_defaults).
pub fn accepts_defaults(group: &str) -> Result<(), DefaultsError> {
    named(group).try_for_each(AnyGroup::accepts_defaults)
}

/// Sets the defaults of the group with this name; of both groups, if two have the name by mistake.
///
/// # Errors
///
/// The same as [`Group::set_defaults`](crate::Group::set_defaults).
pub fn set_defaults(group: &str, defaults: &Defaults) -> Result<(), DefaultsError> {
    named(group).try_for_each(|group| group.set_defaults(defaults.clone()))
}

/// What has become of the default of a switch, such as `disable`. It is a use of the group.
#[must_use]
pub fn effect_of_switch(group: &str, switch: &str) -> Effect {
    named(group).next().map_or(Effect::InForce, |group| group.effect_of_switch(switch))
}

/// What has become of the default of an option. It is a use of the group.
#[must_use]
pub fn effect_of_option(group: &str, name: &str, option: &str) -> Effect {
    named(group).next().map_or(Effect::InForce, |group| group.effect_of_option(name, option))
}

fn named(name: &str) -> impl Iterator<Item = &'static dyn AnyGroup> {
    groups::all().into_iter().filter(move |group| group.name() == name)
}
