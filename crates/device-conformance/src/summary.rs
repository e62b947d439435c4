//! The table at the end of a run.

use std::fmt;

use crate::verdict::Verdict;

/// A row for each device, and for each backend without devices, in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    name: String,
    /// The number of checks with each verdict.
    counts: Counts,
    /// The reason of the last skip.
    skipped: Option<String>,
}

/// How many checks have each verdict. Displays as one line.
#[derive(Debug, Default)]
pub struct Counts {
    passed: usize,
    failed: usize,
    expected: usize,
    unsupported: usize,
    skipped: usize,
}

impl Counts {
    /// Counts a check.
    pub fn count(&mut self, verdict: &Verdict) {
        *match verdict {
            Verdict::Passed => &mut self.passed,
            Verdict::Failed(_) => &mut self.failed,
            Verdict::ExpectedFailure(_) => &mut self.expected,
            Verdict::Unsupported(_) => &mut self.unsupported,
            Verdict::Skipped(_) => &mut self.skipped,
        } += 1;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, expected, unsupported, skipped } = self;
        write!(
            f,
            "{passed} passed, {failed} failed, {expected} expected failures, {unsupported} unsupported"
        )?;
        if *skipped > 0 { write!(f, ", {skipped} skipped") } else { Ok(()) }
    }
}

impl Summary {
    /// Adds a row.
    pub(crate) fn add(&mut self, name: impl fmt::Display) {
        self.rows.push(Row { name: name.to_string(), counts: Counts::default(), skipped: None });
    }

    /// Counts a check of a row.
    pub(crate) fn count(&mut self, name: &str, verdict: &Verdict) {
        let Some(row) = self.row(name) else { return };
        row.counts.count(verdict);
        if let Verdict::Skipped(reason) = verdict {
            row.skipped = Some(reason.lines().next().unwrap_or("").to_owned());
        }
    }

    /// The rows all of whose `checks` ran to no effect: each is unsupported.
    pub(crate) fn untested(&self, checks: usize) -> impl Iterator<Item = &str> {
        let untested = self.rows.iter().filter(move |row| row.counts.unsupported == checks);
        untested.map(|row| &*row.name)
    }

    fn row(&mut self, name: &str) -> Option<&mut Row> {
        self.rows.iter_mut().find(|row| row.name == name)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.name.len()).chain(["device".len()]).max().unwrap_or(0);
        writeln!(f, "{:<width$}  passed  failed  expected failures  unsupported  skipped", "device")?;
        for Row { name, counts: Counts { passed, failed, expected, unsupported, skipped }, skipped: why } in
            &self.rows
        {
            write!(
                f,
                "{name:<width$}  {passed:>6}  {failed:>6}  {expected:>17}  {unsupported:>11}  {skipped:>7}"
            )?;
            match why {
                Some(why) => writeln!(f, "  {why}")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_has_a_row_with_its_numbers() {
        let mut summary = Summary::default();
        summary.add("cpu");
        summary.add("openreg:0");
        summary.add("acme");
        for _ in 0..12 {
            summary.count("cpu", &Verdict::Passed);
        }
        summary.count("cpu", &Verdict::Unsupported("one device".to_owned()));
        summary.count("openreg:0", &Verdict::Failed("got 0x00".to_owned()));
        summary.count("openreg:0", &Verdict::ExpectedFailure("a bug".to_owned()));
        summary.count("acme", &Verdict::Skipped("no driver\nlooked for libacme.so.1".to_owned()));
        assert_eq!(
            summary.to_string(),
            "\
device     passed  failed  expected failures  unsupported  skipped
cpu            12       0                  0            1        0
openreg:0       0       1                  1            0        0
acme            0       0                  0            0        1  no driver
"
        );
    }

    #[test]
    fn counts_are_one_line() {
        let mut counts = Counts::default();
        (0..3).for_each(|_| counts.count(&Verdict::Passed));
        (0..2).for_each(|_| counts.count(&Verdict::Unsupported(String::new())));
        counts.count(&Verdict::ExpectedFailure(String::new()));
        assert_eq!(counts.to_string(), "3 passed, 0 failed, 1 expected failures, 2 unsupported");
        counts.count(&Verdict::Failed(String::new()));
        counts.count(&Verdict::Skipped(String::new()));
        assert_eq!(counts.to_string(), "3 passed, 1 failed, 1 expected failures, 2 unsupported, 1 skipped");
    }

    #[test]
    fn a_device_whose_checks_are_all_unsupported_is_untested() {
        let mut summary = Summary::default();
        for (name, unsupported) in [("acme:0", 3), ("acme:1", 2)] {
            summary.add(name);
            (0..unsupported).for_each(|_| summary.count(name, &Verdict::Unsupported("it is new".to_owned())));
        }
        summary.count("acme:1", &Verdict::Passed);
        assert_eq!(summary.untested(3).collect::<Vec<_>>(), ["acme:0"]);
    }
}
