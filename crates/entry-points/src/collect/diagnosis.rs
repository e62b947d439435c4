//! What the collectors saw in this binary, and what to advise where one of them sees nothing.

use crate::collect::Autoload;

/// Whether a collector works in this binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// It is not part of this build.
    Absent,
    /// It does not even see this crate's own sentinel.
    Blind,
    Works,
}

impl Status {
    pub(super) fn of(present: bool, sees_sentinel: bool) -> Self {
        if !present {
            Self::Absent
        } else if sees_sentinel {
            Self::Works
        } else {
            Self::Blind
        }
    }
}

/// What the collectors saw, apart from the entry points themselves.
#[derive(Clone)]
pub(crate) struct Findings {
    pub(crate) linkme: Status,
    pub(crate) inventory: Status,
    /// The `autoload!` lines of the program, by where they stand.
    pub(crate) autoloads: Vec<&'static Autoload>,
    /// The group's own slice could not be read.
    pub(crate) broken_slice: Option<String>,
}

impl Findings {
    /// Collectors that do not work in this binary, each with its remedy.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(panic) = &self.broken_slice {
            problems.push(format!(
                "the group's slice cannot be read ({panic}): two versions of one framework are in this \
                 program; see `cargo tree -d`"
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
        problems
    }

    fn is_blind(&self) -> bool {
        self.linkme != Status::Works && self.inventory != Status::Works && self.autoloads.is_empty()
    }

    /// For somebody who misses an entry point: which crates bring their dependencies along.
    pub(crate) fn advice(&self, autoload_line: &str) -> Option<String> {
        match self.autoloads[..] {
            // Then there is no telling whether a line was written.
            [] if self.is_blind() => None,
            [] => Some(format!(
                "this program has no `autoload!` line, and rustc leaves out each dependency that no source line \
                 names; write `{autoload_line}` once, in main.rs or lib.rs (in a staticlib, in the module of a \
                 function that C calls: a C linker leaves out object files without references)"
            )),
            _ => Some(self.autoloads.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL_WELL: Findings = Findings {
        linkme: Status::Works,
        inventory: Status::Absent,
        autoloads: Vec::new(),
        broken_slice: None,
    };

    static NOTHING: Autoload = Autoload::new("app", &[]);

    fn advice(seen: &Findings) -> String {
        seen.advice("x::autoload!();").unwrap_or_default()
    }

    #[test]
    fn nothing_is_in_trouble_when_all_is_well() {
        assert_eq!(ALL_WELL.problems(), [""; 0]);
    }

    #[test]
    fn a_program_without_autoload_is_told_the_line_to_write() {
        assert!(advice(&ALL_WELL).contains("write `x::autoload!();` once"), "{}", advice(&ALL_WELL));
        let written = Findings { autoloads: vec![&NOTHING], ..ALL_WELL };
        assert_eq!(advice(&written), "`autoload!` in module `app` links no crate");
    }

    #[test]
    fn a_blind_collector_is_reported_with_the_remedy() {
        let blind = Findings { linkme: Status::Blind, ..ALL_WELL };
        assert!(blind.problems()[0].contains("turn on the feature `inventory`"), "{:?}", blind.problems());
        assert_eq!(advice(&blind), "", "whether the line is there cannot be known");
        let wasm = Findings { linkme: Status::Absent, inventory: Status::Blind, ..ALL_WELL };
        assert!(wasm.problems()[0].contains("even that of `entry-points` itself"), "{:?}", wasm.problems());
        let by_autoload = Findings { autoloads: vec![&NOTHING], ..blind.clone() };
        let by_inventory = Findings { inventory: Status::Works, ..blind };
        for covered in [by_autoload, by_inventory] {
            assert!(covered.problems()[0].contains("are still found"), "{:?}", covered.problems());
        }
    }

    #[test]
    fn a_slice_that_cannot_be_read_is_reported() {
        let broken = Findings { broken_slice: Some("duplicate slice".to_owned()), ..ALL_WELL };
        assert!(broken.problems()[0].contains("(duplicate slice)"), "{:?}", broken.problems());
    }
}
