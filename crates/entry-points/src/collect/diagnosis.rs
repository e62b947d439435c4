//! Which collectors work in this binary, and the advice to the user if one of them does not.

use crate::collect::Autoload;

/// Whether a collector works in this binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// The collector is not part of this build.
    Absent,
    /// The collector does not find even the sentinel of this crate.
    Blind,
    /// The collector finds the sentinel.
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

/// The results of collecting, apart from the entry points themselves.
#[derive(Clone)]
pub(crate) struct Findings {
    pub(crate) linkme: Status,
    pub(crate) inventory: Status,
    /// The `autoload!` lines of the program, sorted by module.
    pub(crate) autoloads: Vec<&'static Autoload>,
    /// The message of linkme's panic, if the group's slice could not be read.
    pub(crate) broken_slice: Option<String>,
}

impl Findings {
    /// A message for each collector that does not work in this binary, with the remedy.
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

    /// Advice for a user who misses an entry point: which `autoload!` lines there are, or which line to write.
    pub(crate) fn advice(&self, autoload_line: &str) -> Option<String> {
        match self.autoloads[..] {
            // If no collector works, this crate cannot know whether the program has a line.
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

    const WORKING: Findings = Findings {
        linkme: Status::Works,
        inventory: Status::Absent,
        autoloads: Vec::new(),
        broken_slice: None,
    };

    static NOTHING: Autoload = Autoload::new("app", &[]);

    fn advice(findings: &Findings) -> String {
        findings.advice("x::autoload!();").unwrap_or_default()
    }

    #[test]
    fn working_collectors_have_no_problems() {
        assert_eq!(WORKING.problems(), [""; 0]);
    }

    #[test]
    fn the_advice_for_a_program_without_autoload_is_the_line_to_write() {
        assert!(advice(&WORKING).contains("write `x::autoload!();` once"), "{}", advice(&WORKING));
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
    fn a_slice_that_cannot_be_read_is_reported() {
        let broken = Findings { broken_slice: Some("duplicate slice".to_owned()), ..WORKING };
        assert!(broken.problems()[0].contains("(duplicate slice)"), "{:?}", broken.problems());
    }
}
