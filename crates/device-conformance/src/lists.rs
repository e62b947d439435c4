//! The checks that a backend is known not to pass: for good, or for now.

use device_registry::Device;

use crate::outcome::Outcome;

/// A pattern of names, and why they are on the list.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) pattern: String,
    pub(crate) reason: String,
}

impl Listed {
    pub(crate) fn new(pattern: &str, reason: &str) -> Self {
        Self { pattern: pattern.to_owned(), reason: reason.to_owned() }
    }

    /// Whether it is about this check on this device.
    pub(crate) fn is_about(&self, device: Device, check: &str) -> bool {
        matches(&self.pattern, check) || matches(&self.pattern, &format!("{device}::{check}"))
    }

    /// Whether it names devices of this backend.
    pub(crate) fn names_backend(&self, backend: &str) -> bool {
        self.pattern.strip_prefix(backend).is_some_and(|rest| rest.starts_with([':', '*']))
    }
}

/// The reason that a check on a device is on a list, if it is.
pub(crate) fn reason<'a>(list: &'a [Listed], device: Device, check: &str) -> Option<&'a str> {
    let listed = list.iter().find(|listed| listed.is_about(device, check));
    listed.map(|listed| &*listed.reason)
}

/// Whether a pattern is about a name. `*` stands for any text, also for none.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    name.strip_prefix(start).is_some_and(|name| {
        let ends = (0..=name.len()).filter(|&at| name.is_char_boundary(at));
        ends.into_iter().any(|at| matches(rest, &name[at..]))
    })
}

/// What is shown of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed(String),
    /// It failed, as its list says that it does.
    ExpectedFailure(String),
    Unsupported(String),
}

/// What is shown of a check that was run: `expected` is why it is on the list of expected failures.
pub(crate) fn verdict(outcome: Outcome, expected: Option<&str>) -> Verdict {
    match (outcome, expected) {
        (Outcome::Passed, None) => Verdict::Passed,
        (Outcome::Passed, Some(reason)) => Verdict::Failed(format!(
            "it passes, and is on the list of expected failures: {reason}\ntake it off the list"
        )),
        (Outcome::Failed(message), None) => Verdict::Failed(message),
        (Outcome::Failed(_), Some(reason)) => Verdict::ExpectedFailure(reason.to_owned()),
        (Outcome::Unsupported(reason), _) => Verdict::Unsupported(reason),
    }
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
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_is_about_a_check_on_every_device_or_on_those_that_it_names() {
        let list = [Listed::new("events::order", "everywhere"), Listed::new("cpu::copies::*", "no copies")];
        let cpu = Device::cpu();
        assert_eq!(reason(&list, cpu, "events::order"), Some("everywhere"));
        assert_eq!(reason(&list, cpu, "copies::chain"), Some("no copies"));
        assert_eq!(reason(&list, cpu, "memory::round_trip"), None);
        assert_eq!(reason(&[Listed::new("gpu:*::*", "no gpu")], cpu, "copies::chain"), None);
    }

    #[test]
    fn a_pattern_may_name_a_backend_that_is_not_there() {
        for (pattern, names) in [("gpu:1::copies::*", true), ("gpu*", true), ("gpu2::*", false), ("*", false)]
        {
            assert_eq!(Listed::new(pattern, "").names_backend("gpu"), names, "{pattern}");
        }
    }

    #[test]
    fn an_expected_failure_is_none_and_one_that_passes_is() {
        let failed = || Outcome::Failed("got 0x00".to_owned());
        assert_eq!(verdict(failed(), Some("a bug")), Verdict::ExpectedFailure("a bug".to_owned()));
        assert_eq!(verdict(failed(), None), Verdict::Failed("got 0x00".to_owned()));
        assert_eq!(verdict(Outcome::Passed, None), Verdict::Passed);
        let Verdict::Failed(message) = verdict(Outcome::Passed, Some("a bug")) else { panic!() };
        assert!(message.contains("expected failures: a bug"), "{message}");
        let unsupported = Outcome::Unsupported("no timed events".to_owned());
        assert_eq!(verdict(unsupported, Some("a bug")), Verdict::Unsupported("no timed events".to_owned()));
    }
}
