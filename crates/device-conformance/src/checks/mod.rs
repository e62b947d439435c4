//! The checks: a file for each group, or a folder with a file for each theme of the group. The table at the
//! top of each file is the only list of its checks.

mod closing;
mod copies;
mod drops;
mod enumeration;
mod errors;
mod events;
mod fill;
mod foreign;
mod host_calls;
mod lasting;
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

/// All groups, in the order in which a backend is written. A group has one or more themes.
static GROUPS: &[&[&[Check]]] = &[
    &[enumeration::CHECKS],
    &[properties::CHECKS],
    &[opening::CHECKS],
    &[memory::CHECKS],
    &[copies::CHECKS],
    &[fill::CHECKS],
    &[threads::CHECKS],
    &[drops::CHECKS],
    &[foreign::CHECKS],
    &[streams::CHECKS],
    &[events::CHECKS],
    &[ordering::CHECKS],
    &[host_calls::CHECKS],
    errors::THEMES,
    loss::THEMES,
    &[closing::CHECKS],
    &[statistics::CHECKS],
    &[programs::CHECKS],
    &[unsupported::CHECKS],
    &[messages::CHECKS],
];

/// All checks, by group.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    GROUPS.iter().copied().flatten().copied().flatten()
}

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

    /// The name of each group, and its checks.
    fn groups() -> impl Iterator<Item = (&'static str, Vec<&'static Check>)> {
        GROUPS.iter().map(|themes| {
            let checks: Vec<_> = themes.iter().copied().flatten().collect();
            (checks[0].name().split_once("::").expect("it has a group").0, checks)
        })
    }

    #[test]
    fn names_are_unique_and_begin_with_their_group() {
        let mut names = BTreeSet::new();
        for (group, checks) in groups() {
            for name in checks.into_iter().map(Check::name) {
                assert!(name.starts_with(&format!("{group}::")), "{name}");
                assert!(names.insert(name), "{name} is there twice");
            }
        }
    }

    #[test]
    fn the_readme_counts_the_checks_of_each_group() {
        let readme = include_str!("../../README.md");
        let rows: Vec<_> =
            readme.lines().filter(|line| line.starts_with("| `") && line.contains("` | ")).collect();
        for (row, (group, checks)) in rows.iter().zip(groups()) {
            let count = checks.len();
            assert!(
                row.starts_with(&format!("| `{group}` | {count} |")),
                "{group} has {count} checks: {row}"
            );
        }
        let all: usize = groups().map(|(_, checks)| checks.len()).sum();
        assert!(readme.contains(&format!("the {all} checks")), "there are {all} checks");
        let samples = readme.lines().filter(|line| line.starts_with("cpu ") || line.starts_with("openreg:"));
        let sums =
            samples.map(|line| line.split_whitespace().filter_map(|word| word.parse::<usize>().ok()).sum());
        assert_eq!(sums.collect::<Vec<usize>>(), [all; 3], "each device of the sample has all checks");
    }

    #[test]
    fn each_check_proves_a_sentence_of_its_own_on_one_line() {
        let mut sentences = BTreeSet::new();
        for check in groups().flat_map(|(_, checks)| checks) {
            let name = check.name();
            let proves = check.proves();
            assert!(
                !proves.is_empty() && !proves.contains('\n') && !proves.ends_with('.'),
                "{name}: {proves}"
            );
            assert!(proves.starts_with(|first: char| first.is_lowercase()), "{name}: {proves}");
            assert!(sentences.insert(proves), "{name}: {proves}");
        }
    }
}
