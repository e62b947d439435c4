//! Which entry point has a name: a pure function of the claims to the name and of the switches.

use std::sync::Arc;

use crate::claim::{Candidate, Claim};
use crate::switches::Settings;

/// The decision on one candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The candidate has the name.
    On,
    /// A switch disables the candidate.
    Off {
        /// The switch.
        by: Arc<str>,
    },
    /// Other candidates have or claim the name.
    Duplicate {
        /// The others.
        of: Arc<[String]>,
    },
}

/// One verdict for each of `candidates`, which all claim one name. At most one verdict is [`Verdict::On`].
///
/// The rules apply in this order: reserved words and built-in names, overrides, switches, installed entry
/// points, duplicates. Switches come before duplicates, so that a user can resolve a duplicate by disabling
/// one of the two.
pub(crate) fn judge<P: ?Sized>(
    candidates: &[Candidate<P>],
    reserved: bool,
    settings: &Settings,
) -> Vec<Verdict> {
    if reserved {
        let word: Arc<[String]> = Arc::new(["a name that the group reserves".to_owned()]);
        return candidates.iter().map(|_| Verdict::Duplicate { of: Arc::clone(&word) }).collect();
    }
    let sole = [Claim::BuiltIn, Claim::Override]
        .into_iter()
        .find_map(|claim| candidates.iter().rposition(|candidate| candidate.claim == claim));
    let mut first_look: Vec<Option<Verdict>> = candidates
        .iter()
        .enumerate()
        .map(|(at, candidate)| {
            if sole.is_some_and(|sole| sole != at) || candidate.claim == Claim::Refused {
                return None;
            }
            if candidate.claim == Claim::BuiltIn {
                return Some(Verdict::On);
            }
            Some(match settings.off(candidate.point, candidate.claim) {
                Some(by) => Verdict::Off { by: by.into() },
                None => Verdict::On,
            })
        })
        .collect();
    // A file that appears in a folder must not break a program: the first installed one is on only if nothing
    // else is.
    let is_on = |at: &usize| first_look[*at] == Some(Verdict::On);
    let (installed, others): (Vec<_>, Vec<_>) =
        (0..candidates.len()).filter(is_on).partition(|&at| candidates[at].claim == Claim::Installed);
    for at in installed.into_iter().skip(usize::from(others.is_empty())) {
        first_look[at] = None;
    }
    let on = first_look.iter().filter(|verdict| **verdict == Some(Verdict::On)).count();

    let rivals = |at: usize| -> Arc<[String]> {
        candidates
            .iter()
            .zip(&first_look)
            .enumerate()
            .filter(|&(other, (_, verdict))| {
                other != at && (sole == Some(other) || (sole.is_none() && *verdict == Some(Verdict::On)))
            })
            .map(|(_, (candidate, _))| match candidate.claim {
                Claim::BuiltIn => format!("the built-in `{}`", candidate.point.name()),
                _ => candidate.point.provider(),
            })
            .collect()
    };
    first_look
        .iter()
        .enumerate()
        .map(|(at, verdict)| match verdict {
            Some(Verdict::On) if on == 1 => Verdict::On,
            Some(Verdict::On) | None => Verdict::Duplicate { of: rivals(at) },
            Some(other) => other.clone(),
        })
        .collect()
}

/// The decision on a name as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// This candidate has the name.
    On(usize),
    /// No candidate has the name: this one is disabled.
    Off(usize),
    /// No candidate has the name: these exclude each other.
    Duplicate(Vec<usize>),
}

/// The decision on a name, from the verdicts on its candidates. There is at least one candidate.
pub(crate) fn standing<P: ?Sized>(candidates: &[Candidate<P>], verdicts: &[Verdict]) -> Standing {
    if let Some(at) = verdicts.iter().position(|verdict| *verdict == Verdict::On) {
        return Standing::On(at);
    }
    // An override excludes the others, even if it is disabled.
    let is_off = |at: &usize| matches!(verdicts[*at], Verdict::Off { .. });
    let last_override = candidates.iter().rposition(|candidate| candidate.claim == Claim::Override);
    if let Some(at) = last_override.filter(is_off) {
        return Standing::Off(at);
    }
    let duplicates: Vec<usize> = (0..verdicts.len()).filter(|at| !is_off(at)).collect();
    if duplicates.is_empty() { Standing::Off(0) } else { Standing::Duplicate(duplicates) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry_point::EntryPoint;
    use crate::failure::LoadFailure;
    use crate::switches::Switches;

    const A: usize = 0;
    const B: usize = 1;

    fn load() -> Result<Box<u8>, LoadFailure> {
        unreachable!("nothing is loaded to decide what could be")
    }

    static POINTS: [EntryPoint<u8>; 2] = [
        EntryPoint::new("x", load).in_package("codec-a", "0.1.0"),
        EntryPoint::new("x", load).in_package("codec-b", "0.2.0"),
    ];

    fn verdicts(claims: &[(usize, Claim)], switches: &Switches) -> Vec<String> {
        let candidates: Vec<_> =
            claims.iter().map(|&(at, claim)| Candidate { point: &POINTS[at], claim }).collect();
        judge(&candidates, false, &Settings::from_code(switches))
            .into_iter()
            .map(|verdict| match verdict {
                Verdict::On => "on".to_owned(),
                Verdict::Off { .. } => "off".to_owned(),
                Verdict::Duplicate { of } => format!("duplicate of {}", of.join(", ")),
            })
            .collect()
    }

    fn disable(pattern: &str) -> Switches {
        Switches { disable: vec![pattern.to_owned()], ..Switches::default() }
    }

    #[test]
    fn one_claimant_is_on() {
        assert_eq!(verdicts(&[(A, Claim::Linked)], &Switches::default()), ["on"]);
    }

    #[test]
    fn two_packages_with_one_name_exclude_each_other_by_name() {
        let both = [(A, Claim::Linked), (B, Claim::Linked)];
        assert_eq!(
            verdicts(&both, &Switches::default()),
            ["duplicate of codec-b 0.2.0", "duplicate of codec-a 0.1.0"]
        );
    }

    #[test]
    fn turning_one_of_two_off_lets_the_other_work() {
        let both = [(A, Claim::Linked), (B, Claim::Linked)];
        assert_eq!(verdicts(&both, &disable("codec-a/x")), ["off", "on"]);
        assert_eq!(verdicts(&both, &disable("x")), ["off", "off"]);
    }

    #[test]
    fn a_built_in_name_cannot_be_taken_overridden_or_disabled() {
        for claim in [Claim::Linked, Claim::Registered, Claim::Override, Claim::Refused] {
            let both = [(A, Claim::BuiltIn), (B, claim)];
            let expected = ["on", "duplicate of the built-in `x`"];
            assert_eq!(verdicts(&both, &Switches::default()), expected, "{claim:?}");
            assert_eq!(verdicts(&both, &disable("*")), expected, "{claim:?}");
        }
    }

    #[test]
    fn an_override_replaces_whatever_was_there() {
        let both = [(A, Claim::Linked), (B, Claim::Override)];
        assert_eq!(verdicts(&both, &Switches::default()), ["duplicate of codec-b 0.2.0", "on"]);
        assert_eq!(verdicts(&both, &disable("x")), ["duplicate of codec-b 0.2.0", "off"]);
    }

    #[test]
    fn autoload_off_leaves_what_is_registered() {
        let switches = Switches { autoload: false, ..Switches::default() };
        assert_eq!(verdicts(&[(A, Claim::Linked), (B, Claim::Registered)], &switches), ["off", "on"]);
    }

    #[test]
    fn what_is_installed_gives_way_to_whatever_else_is_on() {
        let everything = Switches::default();
        for claim in [Claim::Linked, Claim::Registered, Claim::Override, Claim::BuiltIn] {
            let found = verdicts(&[(A, Claim::Installed), (B, claim)], &everything);
            assert_eq!(found[1], "on", "{claim:?}");
            assert!(found[0].starts_with("duplicate of "), "{claim:?}: {found:?}");
        }
        assert_eq!(
            verdicts(&[(A, Claim::Installed), (B, Claim::Linked)], &disable("codec-b/x")),
            ["on", "off"]
        );
        // It does not settle a dispute between two linked entry points.
        let found = verdicts(&[(A, Claim::Installed), (B, Claim::Linked), (B, Claim::Linked)], &everything);
        assert!(found.iter().all(|verdict| verdict.starts_with("duplicate of codec-b")), "{found:?}");
    }

    #[test]
    fn a_refused_registration_disturbs_nothing() {
        let both = [(A, Claim::Linked), (B, Claim::Refused)];
        assert_eq!(verdicts(&both, &Switches::default()), ["on", "duplicate of codec-a 0.1.0"]);
    }

    #[test]
    fn the_standing_of_a_name_follows_from_the_verdicts() {
        let name = |claims: &[(usize, Claim)], switches: &Switches| {
            let candidates: Vec<_> =
                claims.iter().map(|&(at, claim)| Candidate { point: &POINTS[at], claim }).collect();
            let verdicts = judge(&candidates, false, &Settings::from_code(switches));
            standing(&candidates, &verdicts)
        };
        let everything = Switches::default();
        let linked = [(A, Claim::Linked), (B, Claim::Linked)];
        assert_eq!(name(&linked, &everything), Standing::Duplicate(vec![0, 1]));
        assert_eq!(name(&linked, &disable("codec-a/x")), Standing::On(1));
        assert_eq!(name(&linked, &disable("x")), Standing::Off(0));
        let three = [(A, Claim::Linked), (B, Claim::Linked), (B, Claim::Linked)];
        assert_eq!(name(&three, &disable("codec-a/x")), Standing::Duplicate(vec![1, 2]));
        let overridden = [(A, Claim::Linked), (B, Claim::Override)];
        assert_eq!(name(&overridden, &everything), Standing::On(1));
        assert_eq!(name(&overridden, &disable("codec-b/x")), Standing::Off(1));
    }

    #[test]
    fn a_reserved_word_belongs_to_no_entry_point() {
        let candidates = [Candidate { point: &POINTS[A], claim: Claim::Linked }];
        let verdicts = judge(&candidates, true, &Settings::from_code(&Switches::default()));
        assert_eq!(
            verdicts,
            [Verdict::Duplicate { of: Arc::new(["a name that the group reserves".to_owned()]) }]
        );
    }
}
