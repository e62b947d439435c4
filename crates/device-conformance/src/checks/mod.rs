//! The checks, a file for each group. Each group has a table of its checks at the top, which is all that lists them.

mod closing;
mod copies;
mod drops;
mod enumeration;
mod errors;
mod events;
mod fill;
mod foreign;
mod host_calls;
mod loss;
mod memory;
mod messages;
mod opening;
mod ordering;
mod programs;
mod properties;
mod statistics;
mod streams;
mod threads;
mod unsupported;

use crate::check::Check;

/// All groups, in the order in which a backend is written.
pub(crate) static GROUPS: &[&[Check]] = &[
    enumeration::CHECKS,
    properties::CHECKS,
    opening::CHECKS,
    memory::CHECKS,
    copies::CHECKS,
    fill::CHECKS,
    threads::CHECKS,
    drops::CHECKS,
    foreign::CHECKS,
    streams::CHECKS,
    events::CHECKS,
    ordering::CHECKS,
    host_calls::CHECKS,
    errors::CHECKS,
    loss::CHECKS,
    closing::CHECKS,
    statistics::CHECKS,
    programs::CHECKS,
    unsupported::CHECKS,
    messages::CHECKS,
];

/// `check!(group::function, "what it proves")`: the function as a check of the group.
macro_rules! check {
    ($group:ident::$check:ident, $proves:literal) => {
        $crate::check::Check::new(concat!(stringify!($group), "::", stringify!($check)), $proves, $check)
    };
}
use check;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The name of a group and the number of its checks.
    fn groups() -> impl Iterator<Item = (&'static str, usize)> {
        let name = |checks: &[Check]| checks[0].name().split_once("::").expect("it has a group").0;
        GROUPS.iter().map(move |checks| (name(checks), checks.len()))
    }

    #[test]
    fn names_are_told_apart_and_begin_with_their_group() {
        let mut names = BTreeSet::new();
        for ((group, _), checks) in groups().zip(GROUPS) {
            for name in checks.iter().map(Check::name) {
                assert!(name.starts_with(&format!("{group}::")), "{name}");
                assert!(names.insert(name), "{name} is there twice");
            }
        }
    }

    #[test]
    fn the_table_of_groups_is_right() {
        let readme = include_str!("../../README.md");
        let rows: Vec<_> =
            readme.lines().filter(|line| line.starts_with("| `") && line.contains("` | ")).collect();
        for (row, (group, count)) in rows.iter().zip(groups()) {
            assert!(
                row.starts_with(&format!("| `{group}` | {count} |")),
                "{group} has {count} checks: {row}"
            );
        }
        let all: usize = groups().map(|(_, count)| count).sum();
        assert!(readme.contains(&format!("the {all} checks")), "there are {all} checks");
    }

    #[test]
    fn what_a_check_proves_is_one_line_and_said_once() {
        let mut sentences = BTreeSet::new();
        for check in GROUPS.iter().copied().flatten() {
            let (name, proves) = (check.name(), check.proves());
            assert!(
                !proves.is_empty() && !proves.contains('\n') && !proves.ends_with('.'),
                "{name}: {proves}"
            );
            assert!(proves.starts_with(|first: char| first.is_lowercase()), "{name}: {proves}");
            assert!(sentences.insert(proves), "{name}: {proves}");
        }
    }
}
