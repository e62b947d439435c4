//! All groups of the process.

use std::fmt;

use crate::collect::declared_groups;
use crate::collect::element::AnyGroup;
use crate::report::Report;
use crate::used_groups;

/// All groups of this process with their entry points, as Python's `importlib.metadata.entry_points()`
/// returns them. Runs no plugin's code.
///
/// They are the groups that [`group!`](crate::group) declares in the crates of this program, used or not,
/// and private groups that were used. A shared library with its own copy of this crate has its own groups.
///
/// ```rust,standalone_crate
/// use entry_points::{EntryPoint, groups};
///
/// entry_points::group! {
///     /// Commands of this program.
///     pub static COMMANDS: [EntryPoint<fn() -> i32>];
///     /// Finds commands by name.
///     pub fn commands() -> Group<fn() -> i32> {
///         entry_points::Group::new("example.commands")
///     }
/// }
/// # fn main() {
/// let groups = groups();
/// let commands = groups.get("example.commands").unwrap();
/// assert_eq!((commands.interface(), commands.rows().len()), ("fn() -> i32", 0));
/// for report in groups.reports() {
///     println!("{report}");
/// }
/// # }
/// ```
///
/// Where the linker drops the sections of other crates and no other collector works, a group that was not
/// used is missing if no `autoload!` line has an entry point for it.
#[must_use]
pub fn groups() -> Groups {
    let mut reports: Vec<_> = all().into_iter().map(|group| group.report()).collect();
    reports.sort_by_key(|report| (report.group(), report.interface()));
    Groups { reports }
}

/// Each group once, in no order. Uses none of them.
pub(crate) fn all() -> Vec<&'static dyn AnyGroup> {
    let mut all = declared_groups();
    all.extend(used_groups::all());
    let address = |group: &&'static dyn AnyGroup| std::ptr::from_ref(*group).cast::<()>();
    all.sort_unstable_by_key(address);
    all.dedup_by_key(|group| address(group));
    all
}

/// The result of [`groups`]: a [`Report`] on each group, sorted by name, at the time of that call.
///
/// `Display` prints the reports with an empty line between them. With the feature `serde` it is a list of
/// reports.
#[derive(Clone, Debug)]
pub struct Groups {
    reports: Vec<Report>,
}

impl Groups {
    /// The report on each group: its name, its [interface](Report::interface), and its entry points with
    /// their states. Two groups that have one name by mistake are both in the list.
    #[must_use]
    pub fn reports(&self) -> &[Report] {
        &self.reports
    }

    /// The report on the group with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Report> {
        self.reports.iter().find(|report| report.group() == name)
    }
}

impl fmt::Display for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reports.iter().enumerate().try_for_each(|(place, report)| {
            let between = if place == 0 { "" } else { "\n\n" };
            write!(f, "{between}{report}")
        })
    }
}

/// A list of the reports.
#[cfg(feature = "serde")]
impl serde::Serialize for Groups {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.reports.serialize(serializer)
    }
}
