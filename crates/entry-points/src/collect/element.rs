//! What the macros put into the collectors: entry points and `autoload!` lines, of all groups.

use std::any::{Any, TypeId};
use std::fmt;

use crate::defaults::{Defaults, Effect};
use crate::entry_point::EntryPoint;
use crate::error::DefaultsError;
use crate::message::and;
use crate::report::Report;

// Not public API. Used by generated code.
/// A type that stands for a distributed slice. `group!` gives it the name of the slice, in the namespace of
/// types, so that a path to the slice leads to its group's name as well.
#[doc(hidden)]
pub trait Collected: 'static {
    type Plugin: ?Sized + Send + Sync + 'static;

    fn slice() -> SliceId;

    /// The name of the group.
    fn name() -> &'static str;

    /// The group. `None` in tests of this crate that have none.
    fn group() -> Option<&'static dyn AnyGroup> {
        None
    }
}

// Not public API. Used by generated code.
/// A group, with the type of the plugin erased, so that one list holds all groups.
#[doc(hidden)]
pub trait AnyGroup: Send + Sync {
    fn name(&self) -> &'static str;
    fn report(&'static self) -> Report;
    /// Whether `set_defaults` would succeed. Does not use the group.
    fn accepts_defaults(&self) -> Result<(), DefaultsError>;
    fn set_defaults(&'static self, defaults: Defaults) -> Result<(), DefaultsError>;
    /// What has become of the default of a switch, such as `disable`.
    fn effect_of_switch(&'static self, switch: &str) -> Effect;
    /// What has become of the default of an option.
    fn effect_of_option(&'static self, name: &str, option: &str) -> Effect;
}

// Not public API. Used by generated code.
/// A group that `group!` declares.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Declared(pub(super) fn() -> Option<&'static dyn AnyGroup>);

impl Declared {
    // Not public API. Used by generated code.
    pub const fn new<S: Collected>() -> Self {
        Self(S::group)
    }
}

// Not public API. Used by generated code.
/// A distributed slice. In a program without mistakes, equal names are equal types.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct SliceId {
    /// The name of its static, by which linkme identifies it.
    pub(super) name: &'static str,
    pub(super) module: &'static str,
    pub(super) version: Option<&'static str>,
    /// Whether it is part of a unit test of its crate.
    pub(super) is_test: bool,
    pub(super) ty: TypeId,
}

impl SliceId {
    // Not public API. Used by generated code.
    pub const fn of<S: Collected>(
        name: &'static str,
        module: &'static str,
        version: Option<&'static str>,
        is_test: bool,
    ) -> Self {
        Self { name, module, version, is_test, ty: TypeId::of::<S>() }
    }
}

// Not public API. Used by generated code.
/// An entry point and its group, with the type of the plugin erased, so that one list can hold all groups'
/// entry points.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Registration {
    pub(super) slice: fn() -> SliceId,
    pub(super) group: Declared,
    pub(super) point: &'static (dyn Any + Send + Sync),
}

impl Registration {
    // Not public API. Used by generated code.
    pub const fn new<S: Collected>(point: &'static EntryPoint<S::Plugin>) -> Self {
        Self { slice: S::slice, group: Declared::new::<S>(), point }
    }

    pub(super) fn of_slice<P: ?Sized>(&self, slice: SliceId) -> Option<&'static EntryPoint<P>> {
        // Equal slices have equal plugin types, so that the downcast succeeds.
        ((self.slice)().ty == slice.ty).then(|| self.point.downcast_ref())?
    }
}

// Not public API. Used by generated code.
/// One `autoload!` line: the crates that it links, with their entry points.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Autoload {
    /// The module of the line. `None` for the sentinel, which this crate submits to every collector to check
    /// that it works.
    pub(super) module: Option<&'static str>,
    pub(super) crates: &'static [Linked],
    /// Whether it is known to be a library's line, and not the program's.
    pub(super) is_library: bool,
}

impl Autoload {
    // Not public API. Used by generated code.
    pub const fn new(module: &'static str, crates: &'static [Linked], is_library: bool) -> Self {
        Self { module: Some(module), crates, is_library }
    }

    /// It refers to something, as the lines of programs do: mold before 2.4.1 puts elements without a
    /// relocation into a separate section, where linkme does not find them.
    pub(super) const SENTINEL: Self = Self {
        module: None,
        crates: &[Linked { name: "entry-points", points: &[], autoload: None }],
        is_library: true,
    };
}

// Not public API. Used by generated code.
/// A crate that an `autoload!` line links.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Linked {
    /// Its name, as the crate of the line knows it.
    pub(super) name: &'static str,
    /// Its entry points for all groups.
    pub(super) points: &'static [Registration],
    /// Its own line, if it has one. It works even if no collector finds that line.
    pub(super) autoload: Option<&'static Autoload>,
}

impl Linked {
    // Not public API. Used by generated code.
    pub const fn new(
        name: &'static str,
        points: &'static [Registration],
        autoload: Option<&'static Autoload>,
    ) -> Self {
        Self { name, points, autoload }
    }
}

/// The line in words: its module, the crates that it links, and which of these have an `entry_points!` block.
impl fmt::Display for Autoload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// A longer list would not be readable.
        const MOST: usize = 16;
        let names = |crates: &mut dyn Iterator<Item = &Linked>| -> Vec<String> {
            crates.map(|one| one.name.to_owned()).collect()
        };
        let offering = names(&mut self.crates.iter().filter(|one| !one.points.is_empty()));
        let linked = names(&mut self.crates.iter());
        write!(f, "`autoload!` in module `{}` links ", self.module.unwrap_or_default())?;
        match linked.len() {
            0 => return f.write_str("no crate"),
            1..=MOST => f.write_str(&and(&linked))?,
            more => write!(f, "{more} crates")?,
        }
        match &offering[..] {
            [] if linked.len() == 1 => f.write_str(", which has no `entry_points!` block in this build"),
            [] => f.write_str(", none of which has an `entry_points!` block in this build"),
            [one] => write!(f, ", of which {one} has an `entry_points!` block"),
            some => write!(f, ", of which {} have an `entry_points!` block", and(some)),
        }
    }
}

// Not public API. Used by generated code.
/// An element of inventory's collection. All groups share the collection: inventory identifies it by the type
/// of its elements, and a crate can only declare one for its own types.
#[doc(hidden)]
pub enum Submission {
    EntryPoint(Registration),
    Autoload(&'static Autoload),
    Group(Declared),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_autoload_line_lists_its_crates_and_those_with_entry_points() {
        static POINT: EntryPoint<u8> = EntryPoint::new("x", || Ok(Box::new(0)));
        struct Slice;
        impl Collected for Slice {
            type Plugin = u8;
            fn slice() -> SliceId {
                SliceId::of::<Self>("SLICE", "test", None, true)
            }
            fn name() -> &'static str {
                "test.group"
            }
        }
        static POINTS: [Registration; 1] = [Registration::new::<Slice>(&POINT)];
        const CLAP: Linked = Linked::new("clap", &[], None);
        const LOG: Linked = Linked::new("log", &[], None);
        const OPUS: Linked = Linked::new("codec_opus", &POINTS, None);
        static SOME: Autoload = Autoload::new("app", &[CLAP, OPUS, LOG], false);
        assert_eq!(
            SOME.to_string(),
            "`autoload!` in module `app` links clap, codec_opus and log, of which codec_opus has an `entry_points!` block"
        );
        static NONE: Autoload = Autoload::new("app", &[LOG], false);
        assert_eq!(
            NONE.to_string(),
            "`autoload!` in module `app` links log, which has no `entry_points!` block in this build"
        );
        static NONE_OF_TWO: Autoload = Autoload::new("app", &[CLAP, LOG], false);
        assert_eq!(
            NONE_OF_TWO.to_string(),
            "`autoload!` in module `app` links clap and log, none of which has an `entry_points!` block in this build"
        );
        static MANY: Autoload = Autoload::new("app", &[LOG; 17], false);
        assert!(MANY.to_string().starts_with("`autoload!` in module `app` links 17 crates,"), "{MANY}");
    }
}
