//! How entry points of other crates reach a group.
//!
//! | Way | Mechanism | Where it works |
//! |---|---|---|
//! | linkme | an entry in a linker section for each element | where linkme builds, if rustc and the linker keep the element's crate |
//! | inventory | a constructor that runs before `main` | targets that linkme does not support, such as wasm, Miri and windows-gnu; elsewhere with the feature `inventory` |
//! | `autoload!` | one element of the *calling* crate, with typed references to its dependencies' elements |
//! everywhere, even if the linker drops the sections of other crates |
//! | `register` | a function call | everywhere |
//!
//! An entry point that arrives in several ways counts once: its address identifies it.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::collect::diagnosis::{Findings, Status, Stranger};
use crate::collect::element::{AnyGroup, Autoload, Linked, Registration, SliceId, Submission};
use crate::entry_point::EntryPoint;
use crate::message::panic_message;

pub(crate) mod diagnosis;
pub(crate) mod element;

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

// Not public API. The constants that `autoload!` finds for a crate without an `entry_points!` block, and for
// one without an `autoload!` line.
#[doc(hidden)]
pub mod nothing {
    pub const __ENTRY_POINTS: &[crate::collect::element::Registration] = &[];
    pub const __AUTOLOADED: Option<&crate::collect::element::Autoload> = None;
}

// Not public API. Used by generated code.
#[doc(hidden)]
pub const fn assert_at_crate_root(module_path: &str, message: &str) {
    let path = module_path.as_bytes();
    let mut i = 0;
    while i < path.len() {
        assert!(path[i] != b':', "{}", message);
        i += 1;
    }
}

// Not public API. Registers one `autoload!` line; `AUTOLOADS` is this crate's own slice.
#[doc(hidden)]
#[macro_export]
macro_rules! __collect_autoload {
    ($crates:ident, $is_library:literal) => {
        $crate::__linked_static! {
            ($crate::__private::AUTOLOADS)
            static AUTOLOAD: $crate::__private::Autoload =
                $crate::__private::Autoload::new(::core::module_path!(), $crates, $is_library);
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

// Not public API. Registers a group that `group!` declares; `GROUPS` is this crate's own slice.
#[doc(hidden)]
#[macro_export]
macro_rules! __collect_group {
    ($slice:ident) => {
        $crate::__linked_static! {
            ($crate::__private::GROUPS)
            static DECLARED: $crate::__private::Declared = $crate::__private::Declared::new::<$slice>();
        }
        $crate::__submit! { $crate::__private::Submission::Group(DECLARED) }
    };
}

/// A group's slice, and what identifies it in registrations.
pub(crate) struct Source<P: ?Sized + 'static> {
    pub(crate) elements: fn() -> &'static [EntryPoint<P>],
    pub(crate) slice: fn() -> SliceId,
}

impl<P: ?Sized> Clone for Source<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: ?Sized> Copy for Source<P> {}

/// All entry points of one group, each once, in no particular order.
pub(crate) fn gather<P: ?Sized>(source: Option<Source<P>>) -> (Vec<&'static EntryPoint<P>>, Findings) {
    let mut findings = Findings::default();
    let mut submitted = Vec::new();
    let mut submitted_lines = Vec::new();
    for submission in by_inventory::submissions() {
        match submission {
            Submission::Autoload(line) => submitted_lines.push(*line),
            Submission::EntryPoint(registration) => submitted.push(*registration),
            Submission::Group(_) => {}
        }
    }
    // linkme panics if two slices in the binary have one name. The report shows it; a look-up must not panic.
    let linkme_lines: Vec<&Autoload> = match catch_unwind(by_linkme::autoloads) {
        Ok(lines) => lines.iter().collect(),
        Err(panic) => {
            findings.broken_lines = Some(panic_message(panic));
            vec![&Autoload::SENTINEL]
        }
    };
    findings.linkme = Status::of(by_linkme::PRESENT, &linkme_lines);
    findings.inventory = Status::of(by_inventory::PRESENT, &submitted_lines);
    findings.autoloads = all_lines(linkme_lines.iter().chain(&submitted_lines).copied());

    let Some(source) = source else { return (Vec::new(), findings) };
    let slice = (source.slice)();
    let by_linkme = all_lines(linkme_lines.into_iter());
    findings.is_shared = findings.linkme == Status::Works && by_linkme.len() < findings.autoloads.len();
    let listed = findings.autoloads.iter().flat_map(|line| line.crates);
    let registrations = submitted.iter().chain(listed.clone().flat_map(|one| one.points));
    let mut points: Vec<_> = registrations.filter_map(|one| one.of_slice(slice)).collect();
    findings.stranger = stranger(slice, &submitted, listed);
    // With another build's slice, linkme would panic, which ends a program with `panic = "abort"`. In a unit
    // test of the framework it would not, as `group!` gives that slice another name.
    if findings.stranger.as_ref().is_none_or(|stranger| stranger.own.is_test != stranger.other.is_test) {
        match catch_unwind(AssertUnwindSafe(source.elements)) {
            Ok(elements) => points.extend(elements),
            Err(panic) => findings.broken_slice = Some(panic_message(panic)),
        }
    }
    let by_address = |point: &&'static EntryPoint<P>| std::ptr::from_ref::<EntryPoint<P>>(point).cast::<()>();
    points.sort_unstable_by_key(by_address);
    points.dedup_by_key(|point| by_address(point));
    (points, findings)
}

/// The groups that `group!` declares in the crates of this program, perhaps several times each. Where no
/// collector works, only groups for which an `autoload!` line has an entry point.
pub(crate) fn declared_groups() -> Vec<&'static dyn AnyGroup> {
    // linkme panics if two slices in the binary have one name.
    let linked = catch_unwind(by_linkme::groups).unwrap_or_default();
    let mut groups = linked.to_vec();
    let mut lines: Vec<_> = catch_unwind(by_linkme::autoloads).unwrap_or_default().iter().collect();
    for submission in by_inventory::submissions() {
        match submission {
            Submission::Autoload(line) => lines.push(*line),
            Submission::EntryPoint(registration) => groups.push(registration.group),
            Submission::Group(group) => groups.push(*group),
        }
    }
    for line in all_lines(lines.into_iter()) {
        groups.extend(line.crates.iter().flat_map(|one| one.points).map(|point| point.group));
    }
    groups.into_iter().filter_map(|group| (group.0)()).collect()
}

/// These lines and the lines of the crates that they link, each once, sorted by module. Without the sentinel.
fn all_lines(found: impl Iterator<Item = &'static Autoload>) -> Vec<&'static Autoload> {
    let mut seen = BTreeSet::new();
    let mut lines = Vec::new();
    let mut unvisited: Vec<_> = found.filter(|line| line.module.is_some()).collect();
    while let Some(line) = unvisited.pop() {
        if seen.insert(std::ptr::from_ref(line)) {
            lines.push(line);
            unvisited.extend(line.crates.iter().filter_map(|one| one.autoload));
        }
    }
    lines.sort_unstable_by_key(|line| (line.module, std::ptr::from_ref(*line)));
    lines
}

/// Entry points that were declared for another slice with the name of this one.
fn stranger<'a>(
    slice: SliceId,
    submitted: &[Registration],
    listed: impl Iterator<Item = &'a Linked>,
) -> Option<Stranger> {
    let of_stranger = |one: &Registration| {
        let other = (one.slice)();
        (other.name == slice.name && other.ty != slice.ty).then_some(other)
    };
    let mut found = submitted.iter().find_map(of_stranger);
    let mut crates = BTreeSet::new();
    for one in listed {
        if let Some(other) = one.points.iter().find_map(of_stranger) {
            found = Some(other);
            crates.insert(one.name.to_owned());
        }
    }
    found.map(|other| Stranger { own: slice, other, crates: crates.into_iter().collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::element::Collected;

    #[test]
    fn cargo_toml_names_the_same_targets_with_linkme() {
        let without_spaces = |text: &str| text.split_whitespace().collect::<String>().replace(",)", ")");
        let code = include_str!("collect.rs").split("cfg_select! {").nth(1).expect("the block of collectors");
        let list = code.lines().skip_while(|line| line.trim() != "any(");
        let list: String = list.take_while(|line| !line.contains("=>")).collect();
        let list = without_spaces(&(list + ")"));
        assert!(list.starts_with("any(target_family=\"wasm\",miri,"), "{list}");
        let manifest = without_spaces(include_str!("../Cargo.toml"));
        for table in [format!("[target.'cfg(not({list}))'"), format!("[target.'cfg({list})'")] {
            assert_eq!(manifest.matches(&table).count(), 1, "{table}");
        }
    }

    #[test]
    fn the_collectors_of_this_binary_see_the_sentinel() {
        let (_, findings) = gather::<u8>(None);
        assert_ne!((findings.linkme, findings.inventory), (Status::Absent, Status::Absent));
        assert_ne!(findings.linkme, Status::Blind);
        assert_ne!(findings.inventory, Status::Blind);
    }

    #[test]
    fn a_line_leads_to_the_lines_of_the_crates_that_it_links() {
        static INNER: Autoload = Autoload::new("bundle", &[], true);
        static OUTER: Autoload = Autoload::new("app", &[Linked::new("bundle", &[], Some(&INNER))], false);
        let modules = |found: &[&'static Autoload]| -> Vec<_> {
            all_lines(found.iter().copied()).iter().filter_map(|line| line.module).collect()
        };
        assert_eq!(modules(&[&OUTER]), ["app", "bundle"]);
        assert_eq!(modules(&[&INNER, &OUTER, &Autoload::SENTINEL, &INNER]), ["app", "bundle"]);
    }

    #[test]
    fn entry_points_for_another_slice_of_the_same_name_are_found_in_lines_and_submissions() {
        static POINT: EntryPoint<u8> = EntryPoint::new("x", || Ok(Box::new(0)));
        struct New;
        struct Old;
        impl Collected for New {
            type Plugin = u8;
            fn slice() -> SliceId {
                SliceId::of::<Self>("ENTRY_POINTS_fw_X", "fw", Some("0.2.0"), false)
            }
            fn name() -> &'static str {
                "test.group"
            }
        }
        impl Collected for Old {
            type Plugin = u8;
            fn slice() -> SliceId {
                SliceId::of::<Self>("ENTRY_POINTS_fw_X", "fw", Some("0.1.0"), false)
            }
            fn name() -> &'static str {
                "test.group"
            }
        }
        let (new, old) = (Registration::new::<New>(&POINT), Registration::new::<Old>(&POINT));
        let found = |submitted: &[Registration], listed: &[Linked]| {
            let stranger = stranger(New::slice(), submitted, listed.iter())?;
            Some((stranger.other.version, stranger.crates.join(" ")))
        };
        assert_eq!(found(&[new], &[Linked::new("a", &[], None)]), None);
        assert_eq!(found(&[new, old], &[]), Some((Some("0.1.0"), String::new())));
        static BOTH: [Registration; 1] = [Registration::new::<Old>(&POINT)];
        let listed = [Linked::new("blur", &BOTH, None), Linked::new("log", &[], None)];
        assert_eq!(found(&[], &listed), Some((Some("0.1.0"), "blur".to_owned())));
    }
}
