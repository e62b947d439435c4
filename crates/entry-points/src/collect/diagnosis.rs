//! What the collectors saw in this binary, and what to advise where one of them sees nothing.

use crate::collect::Autoload;

/// Whether a collector works in this binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// It is not part of this build.
    Absent,
    /// It does not even see this crate's own sentinel.
    Blind,
    Works,
}

impl Sight {
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
pub(crate) struct Seen {
    pub(crate) linkme: Sight,
    pub(crate) inventory: Sight,
    /// The `autoload!` lines of the program, by where they stand.
    pub(crate) autoloads: Vec<&'static Autoload>,
    /// The group's own slice could not be read.
    pub(crate) broken_slice: Option<String>,
}

impl Seen {
    /// Collectors that do not work in this binary, each with its remedy.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let mut troubles = Vec::new();
        if let Some(panic) = &self.broken_slice {
            troubles.push(format!(
                "the group's slice cannot be read ({panic}): two versions of one framework are in this \
                 program; see `cargo tree -d`"
            ));
        }
        if self.is_blind() {
            troubles.push(
                "no collector works in this binary: the linker dropped every registration, even that of \
                 `entry-points` itself (mold before 2.4.1 does so); turn on the feature `inventory`, use another \
                 linker, or call `register`"
                    .to_owned(),
            );
        } else if self.linkme == Sight::Blind {
            troubles.push(
                "linkme sees nothing in this binary: entry points in an `entry_points!` block are still found, but \
                 those with only the attribute `#[distributed_slice]` are lost"
                    .to_owned(),
            );
        }
        troubles
    }

    fn is_blind(&self) -> bool {
        self.linkme != Sight::Works && self.inventory != Sight::Works && self.autoloads.is_empty()
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

    const ALL_WELL: Seen =
        Seen { linkme: Sight::Works, inventory: Sight::Absent, autoloads: Vec::new(), broken_slice: None };

    static NOTHING: Autoload = Autoload::new("app", &[]);

    fn advice(seen: &Seen) -> String {
        seen.advice("x::autoload!();").unwrap_or_default()
    }

    #[test]
    fn nothing_is_in_trouble_when_all_is_well() {
        assert_eq!(ALL_WELL.troubles(), [""; 0]);
    }

    #[test]
    fn a_program_without_autoload_is_told_the_line_to_write() {
        assert!(advice(&ALL_WELL).contains("write `x::autoload!();` once"), "{}", advice(&ALL_WELL));
        let written = Seen { autoloads: vec![&NOTHING], ..ALL_WELL };
        assert_eq!(advice(&written), "`autoload!` in module `app` links no crate");
    }

    #[test]
    fn a_blind_collector_is_reported_with_the_remedy() {
        let blind = Seen { linkme: Sight::Blind, ..ALL_WELL };
        assert!(blind.troubles()[0].contains("turn on the feature `inventory`"), "{:?}", blind.troubles());
        assert_eq!(advice(&blind), "", "whether the line is there cannot be known");
        let wasm = Seen { linkme: Sight::Absent, inventory: Sight::Blind, ..ALL_WELL };
        assert!(wasm.troubles()[0].contains("even that of `entry-points` itself"), "{:?}", wasm.troubles());
        let by_autoload = Seen { autoloads: vec![&NOTHING], ..blind.clone() };
        let by_inventory = Seen { inventory: Sight::Works, ..blind };
        for covered in [by_autoload, by_inventory] {
            assert!(covered.troubles()[0].contains("are still found"), "{:?}", covered.troubles());
        }
    }

    #[test]
    fn a_slice_that_cannot_be_read_is_reported() {
        let broken = Seen { broken_slice: Some("duplicate slice".to_owned()), ..ALL_WELL };
        assert!(broken.troubles()[0].contains("(duplicate slice)"), "{:?}", broken.troubles());
    }
}
