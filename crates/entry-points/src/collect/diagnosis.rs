//! Which collectors work in this binary, and the advice to the user if one of them does not.

use std::collections::BTreeSet;
use std::fmt;

use crate::collect::element::{Autoload, SliceId};
use crate::message::and;

/// Whether a collector works in this binary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Status {
    /// The collector is not part of this build.
    #[default]
    Absent,
    /// The collector does not even find this crate's sentinel.
    Blind,
    /// The collector finds the sentinel.
    Works,
}

impl Status {
    pub(super) fn of(present: bool, lines: &[&Autoload]) -> Self {
        if !present {
            Self::Absent
        } else if lines.iter().any(|line| line.module.is_none()) {
            Self::Works
        } else {
            Self::Blind
        }
    }
}

/// The results of collecting, apart from the entry points themselves.
#[derive(Clone, Default)]
pub(crate) struct Findings {
    pub(crate) linkme: Status,
    pub(crate) inventory: Status,
    /// The `autoload!` lines of the program, sorted by module.
    pub(crate) autoloads: Vec<&'static Autoload>,
    /// Whether this crate is in another shared library than an `autoload!` line: linkme works, and only
    /// inventory finds it.
    pub(crate) is_shared: bool,
    /// Another build of the framework in this program.
    pub(crate) stranger: Option<Stranger>,
    /// The message of linkme's panic, if the lines could not be read.
    pub(crate) broken_lines: Option<String>,
    /// The message of linkme's panic, if the group's slice could not be read.
    pub(crate) broken_slice: Option<String>,
}

/// Entry points for another build of the framework: its slice has the same name and is another type.
#[derive(Clone, Debug)]
pub(crate) struct Stranger {
    pub(crate) own: SliceId,
    pub(crate) other: SliceId,
    /// The crates that declare them, as far as an `autoload!` line lists them.
    pub(crate) crates: Vec<String>,
}

impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = self.own;
        let other = self.other;
        let krate = own.module.split("::").next().unwrap_or_default();
        match &self.crates[..] {
            [] => f.write_str("entry points were")?,
            crates => write!(f, "the entry points of {} were", and(crates))?,
        }
        write!(f, " declared for another build of `{krate}`, and are not in this group: ")?;
        match (own.version, other.version) {
            _ if own.is_test != other.is_test => write!(
                f,
                "this is a unit test of `{krate}`, and plugins depend on its ordinary build; put tests that need plugins \
                 into `tests/`"
            ),
            (Some(one), Some(two)) if one != two => write!(
                f,
                "two versions of one framework are in this program; see `cargo tree -d` (this group is of {one}, and \
                 they are for {two})"
            ),
            _ => write!(
                f,
                "this program has two builds of it, or two of its groups have one name for their slices (`{}` and \
                 `{}`); see `cargo tree -d`",
                own.module, other.module
            ),
        }
    }
}

impl Findings {
    /// A message for each collector that does not work in this binary, with the remedy.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = self.stranger.iter().map(ToString::to_string).collect();
        if let Some(panic) = &self.broken_slice {
            problems.push(format!(
                "the group's slice cannot be read ({panic}): two versions of one framework are in this \
                 program; see `cargo tree -d`"
            ));
        }
        if let Some(panic) = &self.broken_lines {
            problems.push(format!(
                "the `autoload!` lines cannot be read ({panic}): two builds of `entry-points` are in this program; see \
                 `cargo tree -d`"
            ));
        }
        if self.is_blind() {
            problems.push(
                "no collector works in this binary: the linker dropped every registration, even that of \
                 `entry-points` itself (mold before 2.4.1 does so); turn on the feature `inventory`, use another \
                 linker, or call `register`"
                    .to_owned(),
            );
        } else if self.linkme == Status::Blind {
            problems.push(
                "linkme sees nothing in this binary: entry points in an `entry_points!` block are still found, but \
                 those with only the attribute `#[distributed_slice]` are lost"
                    .to_owned(),
            );
        }
        if self.is_shared {
            problems.push(
                "`entry-points` is in another shared library than an `autoload!` line: entry points in an \
                 `entry_points!` block are found, but those with only the attribute `#[distributed_slice]` may be lost"
                    .to_owned(),
            );
        }
        problems
    }

    /// The crates that the lines link and that have no block in this build, sorted.
    pub(crate) fn without_block(&self) -> Vec<&'static str> {
        let crates = self.autoloads.iter().flat_map(|line| line.crates);
        let without = crates.filter(|one| one.points.is_empty()).map(|one| one.name);
        without.collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn is_blind(&self) -> bool {
        self.linkme != Status::Works && self.inventory != Status::Works && self.autoloads.is_empty()
    }

    /// Advice for a user whose entry point is missing: which `autoload!` lines there are, or which line to
    /// write.
    ///
    /// In a program that `searches` for entry points in files, a missing line is not a mistake.
    pub(crate) fn advice(&self, autoload_line: &str, searches: bool) -> Option<String> {
        let shared = match self.inventory {
            Status::Works => "",
            _ => {
                "; where there is one, `entry-points` is in another shared library, as a dependency that is a `dylib` makes \
                  it: turn on the feature `inventory`"
            }
        };
        match self.autoloads[..] {
            // Without a collector that works, this crate cannot know whether the program has a line.
            [] if self.is_blind() || self.broken_lines.is_some() => None,
            [] if searches => Some("this program has no `autoload!` line, so that it links none".to_owned()),
            [] => Some(format!(
                "no `autoload!` line is found, and rustc leaves out each dependency that no source line names; write \
                 `{autoload_line}` once, in main.rs or lib.rs (in a staticlib, in the module of a function that C \
                 calls: a C linker leaves out object files without references){shared}"
            )),
            _ => {
                let lines: Vec<_> = self.autoloads.iter().map(ToString::to_string).collect();
                let of_program = match self.autoloads.iter().all(|line| line.is_library) {
                    false => String::new(),
                    true => format!(
                        "; no line of the program itself is found, which links its own dependencies: \
                         `{autoload_line}`{shared}"
                    ),
                };
                Some(lines.join("; ") + &of_program)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKING: Findings = Findings {
        linkme: Status::Works,
        inventory: Status::Absent,
        autoloads: Vec::new(),
        is_shared: false,
        stranger: None,
        broken_lines: None,
        broken_slice: None,
    };

    static NOTHING: Autoload = Autoload::new("app", &[], false);

    fn advice(findings: &Findings) -> String {
        findings.advice("x::autoload!();", false).unwrap_or_default()
    }

    #[test]
    fn working_collectors_have_no_problems() {
        assert_eq!(WORKING.problems(), [""; 0]);
    }

    #[test]
    fn the_advice_for_a_program_without_autoload_is_the_line_to_write() {
        assert!(advice(&WORKING).contains("write `x::autoload!();` once"), "{}", advice(&WORKING));
        let of_files = WORKING.advice("x::autoload!();", true).unwrap_or_default();
        assert_eq!(of_files, "this program has no `autoload!` line, so that it links none");
        let written = Findings { autoloads: vec![&NOTHING], ..WORKING };
        assert_eq!(advice(&written), "`autoload!` in module `app` links no crate");
    }

    #[test]
    fn a_blind_collector_is_reported_with_the_remedy() {
        let blind = Findings { linkme: Status::Blind, ..WORKING };
        assert!(blind.problems()[0].contains("turn on the feature `inventory`"), "{:?}", blind.problems());
        assert_eq!(advice(&blind), "", "without a collector, the line would not be found either");
        let wasm = Findings { linkme: Status::Absent, inventory: Status::Blind, ..WORKING };
        assert!(wasm.problems()[0].contains("even that of `entry-points` itself"), "{:?}", wasm.problems());
        let by_autoload = Findings { autoloads: vec![&NOTHING], ..blind.clone() };
        let by_inventory = Findings { inventory: Status::Works, ..blind };
        for covered in [by_autoload, by_inventory] {
            assert!(covered.problems()[0].contains("are still found"), "{:?}", covered.problems());
        }
    }

    #[test]
    fn lines_of_libraries_alone_are_reported_as_such() {
        static OF_LIBRARY: Autoload = Autoload::new("bundle", &[], true);
        let alone = advice(&Findings { autoloads: vec![&OF_LIBRARY], ..WORKING });
        assert!(alone.contains("`bundle`") && alone.contains("no line of the program itself"), "{alone}");
        let both = advice(&Findings { autoloads: vec![&NOTHING, &OF_LIBRARY], ..WORKING });
        assert!(!both.contains("no line of the program itself"), "{both}");
    }

    #[test]
    fn a_line_in_another_shared_library_is_reported() {
        let remedy = "turn on the feature `inventory`";
        assert!(advice(&WORKING).ends_with(remedy), "{}", advice(&WORKING));
        let both = Findings { inventory: Status::Works, ..WORKING };
        assert!(!advice(&both).contains(remedy), "{}", advice(&both));
        let dylib = Findings { autoloads: vec![&NOTHING], is_shared: true, ..both };
        assert!(dylib.problems()[0].contains("in another shared library"), "{:?}", dylib.problems());
    }

    #[test]
    fn another_build_of_the_framework_is_reported_with_the_cause() {
        use crate::collect::element::Collected;

        struct Slice;
        impl Collected for Slice {
            type Plugin = u8;
            fn slice() -> SliceId {
                SliceId::of::<Self>("ENTRY_POINTS_fw_X", "fw::x", Some("0.2.0"), false)
            }
            fn name() -> &'static str {
                "fw.x"
            }
        }
        let own = Slice::slice();
        let message = |other, crates: &[&str]| {
            let crates = crates.iter().map(|&name| name.to_owned()).collect();
            Findings { stranger: Some(Stranger { own, other, crates }), ..WORKING }.problems().join("|")
        };
        let version = message(SliceId { version: Some("0.1.0"), ..own }, &["blur", "sharpen"]);
        assert!(
            version
                .starts_with("the entry points of blur and sharpen were declared for another build of `fw`")
        );
        assert!(version.contains("two versions of one framework are in this program; see `cargo tree -d`"));
        assert!(version.contains("of 0.2.0, and they are for 0.1.0"), "{version}");
        let test = message(SliceId { is_test: true, ..own }, &["blur"]);
        assert!(test.contains("put tests that need plugins into `tests/`"), "{test}");
        let twice = message(SliceId { module: "fw::y", ..own }, &[]);
        assert!(twice.contains("one name for their slices (`fw::x` and `fw::y`)"), "{twice}");
    }

    #[test]
    fn a_slice_that_cannot_be_read_is_reported() {
        let broken = Findings { broken_slice: Some("duplicate slice".to_owned()), ..WORKING };
        assert!(broken.problems()[0].contains("(duplicate slice)"), "{:?}", broken.problems());
        let broken = Findings { broken_lines: Some("duplicate slice".to_owned()), ..WORKING };
        assert!(broken.problems()[0].contains("two builds of `entry-points`"), "{:?}", broken.problems());
        assert_eq!(advice(&broken), "", "there may be a line");
    }
}
