//! How entry points of other crates reach a group.
//!
//! | Way | Mechanism | Where it works |
//! |---|---|---|
//! | linkme | an entry in a linker section for each element | where linkme builds, if rustc and the linker keep the element's crate |
//! | inventory | a constructor that runs before `main` | targets that linkme does not support, such as wasm, Miri and windows-gnu; elsewhere with the feature `inventory` |
//! | `autoload!` | one element of the *calling* crate, with typed references to those of its dependencies | everywhere, even if the linker drops the sections of other crates |
//! | `register` | a function call | everywhere |
//!
//! An entry point that arrives in several ways is one entry point: its address identifies it.

use std::any::{Any, TypeId};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::collect::diagnosis::{Findings, Status};
use crate::entry_point::EntryPoint;
use crate::error::and;
use crate::group::Group;
use crate::message::panic_message;

pub(crate) mod diagnosis;

// The collectors of this target. Cargo.toml repeats the first list, and a test compares the two.
//
// The expansions of both collectors have `unsafe` attributes; the code of this crate has no `unsafe`.
cfg_select! {
    // linkme does not build here.
    any(
        target_family = "wasm",
        miri,
        target_os = "dragonfly",
        target_os = "haiku",
        target_os = "netbsd",
        target_os = "redox",
    ) => {
        pub(crate) mod no_linkme;
        pub(crate) use self::no_linkme as by_linkme;
        #[allow(unsafe_code)]
        pub(crate) mod by_inventory;
    }
    // linkme builds on windows-gnu and sees nothing (dtolnay/linkme#25).
    any(feature = "inventory", all(windows, target_env = "gnu")) => {
        #[allow(unsafe_code)]
        pub(crate) mod by_linkme;
        #[allow(unsafe_code)]
        pub(crate) mod by_inventory;
    }
    _ => {
        #[allow(unsafe_code)]
        pub(crate) mod by_linkme;
        pub(crate) mod no_inventory;
        pub(crate) use self::no_inventory as by_inventory;
    }
}

// rustfmt does not look into `cfg_select!`, and finds the files here.
#[cfg(rustfmt)]
mod by_inventory;
#[cfg(rustfmt)]
mod by_linkme;
#[cfg(rustfmt)]
mod no_inventory;
#[cfg(rustfmt)]
mod no_linkme;

// Not public API. Used by generated code.
/// A type that stands for a distributed slice. `group!` gives it the name of the slice, in the namespace of types, so
/// that a path to the slice leads to its group as well.
#[doc(hidden)]
pub trait Collected: 'static {
    type Plugin: ?Sized + Send + Sync + 'static;

    fn group() -> &'static Group<Self::Plugin>;

    fn name() -> &'static str {
        Self::group().name()
    }
}

// Not public API. Used by generated code.
/// An entry point and its group, with the type of the plugin erased, so that one list holds those of all groups.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Registration {
    slice: fn() -> TypeId,
    point: &'static (dyn Any + Send + Sync),
}

impl Registration {
    // Not public API. Used by generated code.
    pub const fn new<S: Collected>(point: &'static EntryPoint<S::Plugin>) -> Self {
        Self { slice: TypeId::of::<S>, point }
    }

    fn of_slice<P: ?Sized>(&self, slice: TypeId) -> Option<&'static EntryPoint<P>> {
        // Equal slices have equal plugin types, so that the downcast succeeds.
        ((self.slice)() == slice).then(|| self.point.downcast_ref())?
    }
}

// Not public API. Used by generated code.
/// One `autoload!` line: the crates that it links, with their entry points.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Autoload {
    /// The module of the line. `None` for the sentinel, which this crate submits to every collector to check that it
    /// works.
    module: Option<&'static str>,
    crates: &'static [Listed],
}

impl Autoload {
    // Not public API. Used by generated code.
    pub const fn new(module: &'static str, crates: &'static [Listed]) -> Self {
        Self { module: Some(module), crates }
    }

    const SENTINEL: Self = Self { module: None, crates: &[] };
}

/// A crate's name, as the calling crate knows it, and its entry points for all groups.
type Listed = (&'static str, &'static [Registration]);

/// The line in words: its module, the crates that it links, and which of these have an `entry_points!` block.
impl fmt::Display for Autoload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// A longer list is not readable.
        const MOST: usize = 16;
        let offering = self.crates.iter().filter(|(_, points)| !points.is_empty());
        let offering: Vec<String> = offering.map(|(name, _)| (*name).to_owned()).collect();
        let linked: Vec<String> = self.crates.iter().map(|(name, _)| (*name).to_owned()).collect();
        write!(f, "`autoload!` in module `{}` links ", self.module.unwrap_or_default())?;
        match linked.len() {
            0 => return f.write_str("no crate"),
            1..=MOST => f.write_str(&and(&linked))?,
            more => write!(f, "{more} crates")?,
        }
        match &offering[..] {
            [] if linked.len() == 1 => f.write_str(", which has no `entry_points!` block"),
            [] => f.write_str(", none of which has an `entry_points!` block"),
            [one] => write!(f, ", of which {one} has an `entry_points!` block"),
            some => write!(f, ", of which {} have an `entry_points!` block", and(some)),
        }
    }
}

// Not public API. Used by generated code.
/// An element of inventory's collection. All groups share the collection: inventory identifies it by the type of its
/// elements, and a crate can only declare one for its own types.
#[doc(hidden)]
pub enum Submission {
    EntryPoint(Registration),
    Autoload(&'static Autoload),
}

// Not public API. The list that `autoload!` finds for a crate without an `entry_points!` block.
#[doc(hidden)]
pub mod nothing {
    pub const __ENTRY_POINTS: &[super::Registration] = &[];
}

// Not public API. Used by generated code.
#[doc(hidden)]
pub const fn assert_at_crate_root(module_path: &str) {
    let path = module_path.as_bytes();
    let mut i = 0;
    while i < path.len() {
        assert!(
            path[i] != b':',
            "`entry_points!` must be at the root of the crate, where `autoload!` looks for it"
        );
        i += 1;
    }
}

// Not public API. Registers one `autoload!` line; `AUTOLOADS` is this crate's own slice.
#[doc(hidden)]
#[macro_export]
macro_rules! __collect_autoload {
    ($crates:ident) => {
        $crate::__linked_static! {
            ($crate::__private::AUTOLOADS)
            static AUTOLOAD: $crate::__private::Autoload =
                $crate::__private::Autoload::new(::core::module_path!(), $crates);
        }
        $crate::__submit! { $crate::__private::Submission::Autoload(&AUTOLOAD) }
    };
}

// Not public API. Submits an element of `entry_points!` to inventory.
#[doc(hidden)]
#[macro_export]
macro_rules! __collect_registration {
    ($registration:expr) => {
        $crate::__submit! { $crate::__private::Submission::EntryPoint($registration) }
    };
}

/// A group's slice, and the type that identifies it in registrations.
pub(crate) struct Source<P: ?Sized + 'static> {
    pub(crate) elements: fn() -> &'static [EntryPoint<P>],
    pub(crate) slice: fn() -> TypeId,
}

impl<P: ?Sized> Clone for Source<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: ?Sized> Copy for Source<P> {}

/// All entry points of one group, each once, in no particular order.
pub(crate) fn gather<P: ?Sized>(source: Option<Source<P>>) -> (Vec<&'static EntryPoint<P>>, Findings) {
    let mut autoloads: Vec<&'static Autoload> = by_linkme::autoloads().iter().collect();
    let mut submitted = Vec::new();
    for submission in by_inventory::submissions() {
        match submission {
            Submission::Autoload(autoload) => autoloads.push(autoload),
            Submission::EntryPoint(registration) => submitted.push(registration),
        }
    }
    let is_sentinel = |autoload: &&Autoload| autoload.module.is_none();
    let linkme = Status::of(by_linkme::PRESENT, by_linkme::autoloads().iter().any(|one| is_sentinel(&one)));
    let mut submitted_autoloads = by_inventory::submissions().filter_map(|submission| match submission {
        Submission::Autoload(autoload) => Some(*autoload),
        Submission::EntryPoint(_) => None,
    });
    let inventory = Status::of(by_inventory::PRESENT, submitted_autoloads.any(|one| is_sentinel(&one)));

    let mut points: Vec<&'static EntryPoint<P>> = Vec::new();
    let mut broken_slice = None;
    if let Some(source) = source {
        // linkme panics if two slices in the binary have one name. The report shows it; a look-up must not panic.
        match catch_unwind(AssertUnwindSafe(source.elements)) {
            Ok(elements) => points.extend(elements),
            Err(panic) => broken_slice = Some(panic_message(panic)),
        }
        let slice = (source.slice)();
        points.extend(submitted.iter().filter_map(|registration| registration.of_slice(slice)));
        let listed = autoloads.iter().flat_map(|autoload| autoload.crates).flat_map(|(_, points)| *points);
        points.extend(listed.filter_map(|registration| registration.of_slice(slice)));
    }
    let by_address = |point: &&'static EntryPoint<P>| std::ptr::from_ref::<EntryPoint<P>>(point).cast::<()>();
    points.sort_unstable_by_key(by_address);
    points.dedup_by_key(|point| by_address(point));

    autoloads.retain(|autoload| autoload.module.is_some());
    autoloads.sort_unstable_by_key(|autoload| (autoload.module, std::ptr::from_ref(*autoload)));
    autoloads.dedup_by_key(|autoload| std::ptr::from_ref(*autoload));
    (points, Findings { linkme, inventory, autoloads, broken_slice })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_autoload_line_lists_its_crates_and_those_with_entry_points() {
        static GROUP: Group<u8> = Group::new("test.group");
        static POINT: EntryPoint<u8> = EntryPoint::new("x", || Ok(Box::new(0)));
        struct Slice;
        impl Collected for Slice {
            type Plugin = u8;
            fn group() -> &'static Group<u8> {
                &GROUP
            }
        }
        static POINTS: [Registration; 1] = [Registration::new::<Slice>(&POINT)];
        static SOME: Autoload = Autoload::new("app", &[("clap", &[]), ("codec_opus", &POINTS), ("log", &[])]);
        assert_eq!(
            SOME.to_string(),
            "`autoload!` in module `app` links clap, codec_opus and log, of which codec_opus has an `entry_points!` block"
        );
        static NONE: Autoload = Autoload::new("app", &[("log", &[])]);
        assert_eq!(
            NONE.to_string(),
            "`autoload!` in module `app` links log, which has no `entry_points!` block"
        );
        static NONE_OF_TWO: Autoload = Autoload::new("app", &[("clap", &[]), ("log", &[])]);
        assert_eq!(
            NONE_OF_TWO.to_string(),
            "`autoload!` in module `app` links clap and log, none of which has an `entry_points!` block"
        );
        const LOG: Listed = ("log", &[]);
        static MANY: Autoload = Autoload::new("app", &[LOG; 17]);
        assert!(MANY.to_string().starts_with("`autoload!` in module `app` links 17 crates,"), "{MANY}");
    }

    #[test]
    fn cargo_toml_names_the_same_targets_without_linkme() {
        let without_spaces = |text: &str| text.split_whitespace().collect::<String>().replace(",)", ")");
        let code = include_str!("collect.rs").split("cfg_select! {").nth(1).expect("the block of collectors");
        let list = code.lines().skip_while(|line| line.trim() != "any(");
        let list: String = list.take_while(|line| !line.contains("=>")).collect();
        let list = without_spaces(&(list + ")"));
        assert!(list.starts_with("any(target_family=\"wasm\",miri,"), "{list}");
        let manifest = without_spaces(include_str!("../Cargo.toml"));
        for table in ["cfg(", "cfg(not("] {
            assert_eq!(manifest.matches(&format!("[target.'{table}{list})")).count(), 1, "{table}{list}");
        }
    }

    #[test]
    fn the_collectors_of_this_binary_see_the_sentinel() {
        let (_, findings) = gather::<u8>(None);
        assert!(
            findings.linkme != Status::Blind && findings.inventory != Status::Blind,
            "{:?} {:?}",
            findings.linkme,
            findings.inventory
        );
        assert!(
            findings.linkme == Status::Works || findings.inventory == Status::Works,
            "{:?} {:?}",
            findings.linkme,
            findings.inventory
        );
    }
}
