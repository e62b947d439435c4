//! The expectations of a backend: checks that are permanently unsupported, and checks that fail for now.

/// A pattern of check names, and the reason for the expectation.
#[derive(Clone, Debug)]
pub(crate) struct Expectation {
    pub(crate) pattern: String,
    pub(crate) reason: String,
}

impl Expectation {
    pub(crate) fn new(pattern: &str, reason: &str) -> Self {
        Self { pattern: pattern.to_owned(), reason: reason.to_owned() }
    }

    /// Whether the pattern matches this check on this device.
    pub(crate) fn matches(&self, device: &str, check: &str) -> bool {
        glob_matches(&self.pattern, check) || glob_matches(&self.pattern, &format!("{device}::{check}"))
    }

    /// Whether the pattern begins with the name of this backend.
    pub(crate) fn names_backend(&self, backend: &str) -> bool {
        self.pattern.strip_prefix(backend).is_some_and(|rest| rest.starts_with([':', '*']))
    }
}

/// The reason of the first expectation that matches a check on a device.
pub(crate) fn reason<'a>(expectations: &'a [Expectation], device: &str, check: &str) -> Option<&'a str> {
    let found = expectations.iter().find(|expectation| expectation.matches(device, check));
    found.map(|expectation| &*expectation.reason)
}

/// The error for a pattern that matches no check, such as one with a typing error.
#[must_use]
pub fn unmatched_pattern(pattern: &str) -> String {
    format!(
        "the pattern `{pattern}` of the suite's expectations matches no check\nhelp: `--list` shows all names"
    )
}

/// Whether a glob pattern matches a name. `*` stands for any text, including none.
#[must_use]
pub fn glob_matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    name.strip_prefix(start).is_some_and(|name| {
        let ends = (0..=name.len()).filter(|&at| name.is_char_boundary(at));
        ends.into_iter().any(|at| glob_matches(rest, &name[at..]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, expected) in [
            ("events::order", "events::order", true),
            ("events::order", "events::orders", false),
            ("events::*", "events::order", true),
            ("events::*", "streams::order", false),
            ("*::order", "events::order", true),
            ("*order*", "events::ordering", true),
            ("e*::*r", "events::order", true),
            ("*", "", true),
            ("", "x", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(glob_matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_matches_a_check_on_every_device_or_on_the_devices_that_it_names() {
        let expectations = [
            Expectation::new("events::order", "everywhere"),
            Expectation::new("cpu::copies::*", "no copies"),
        ];
        let cpu = "cpu";
        assert_eq!(reason(&expectations, cpu, "events::order"), Some("everywhere"));
        assert_eq!(reason(&expectations, cpu, "copies::chain"), Some("no copies"));
        assert_eq!(reason(&expectations, cpu, "memory::round_trip"), None);
        assert_eq!(reason(&[Expectation::new("gpu:*::*", "no gpu")], cpu, "copies::chain"), None);
    }

    #[test]
    fn a_pattern_may_name_a_backend_without_devices() {
        for (pattern, names) in [("gpu:1::copies::*", true), ("gpu*", true), ("gpu2::*", false), ("*", false)]
        {
            assert_eq!(Expectation::new(pattern, "").names_backend("gpu"), names, "{pattern}");
        }
    }

    #[test]
    fn the_patterns_in_the_documentation_match_checks() {
        for page in [include_str!("suite/builder.rs"), include_str!("../README.md")] {
            let calls = [".unsupported(\"", ".expected_failure(\""].map(|call| page.split(call).skip(1));
            let patterns = calls.into_iter().flatten().filter_map(|rest| rest.split('"').next());
            let patterns: Vec<_> = patterns.map(|pattern| pattern.trim_start_matches("acme:1::")).collect();
            assert!(patterns.len() >= 2, "{patterns:?}");
            for pattern in patterns {
                assert!(crate::checks().any(|check| glob_matches(pattern, check.name())), "{pattern}");
            }
        }
    }
}
