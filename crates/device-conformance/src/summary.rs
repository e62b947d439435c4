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

#[derive(Debug, Default)]
struct Counts {
    passed: usize,
    failed: usize,
    expected: usize,
    unsupported: usize,
    skipped: usize,
}

impl Summary {
    /// Adds a row.
    pub(crate) fn add(&mut self, name: impl fmt::Display) {
        self.rows.push(Row { name: name.to_string(), counts: Counts::default(), skipped: None });
    }

    /// Counts a check of a row.
    pub(crate) fn count(&mut self, name: &str, verdict: &Verdict) {
        let Some(row) = self.row(name) else { return };
        match verdict {
            Verdict::Passed => row.counts.passed += 1,
            Verdict::Failed(_) => row.counts.failed += 1,
            Verdict::ExpectedFailure(_) => row.counts.expected += 1,
            Verdict::Unsupported(_) => row.counts.unsupported += 1,
            Verdict::Skipped(reason) => {
                row.counts.skipped += 1;
                row.skipped = Some(reason.lines().next().unwrap_or("").to_owned());
            }
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
