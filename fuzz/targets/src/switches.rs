//! The switches `DEVICE_BACKEND_AUTOLOAD`, `_DISABLE`, `_SELECT` and `_INSTALLED`, against the rules in the
//! documentation of `Switches`.

use std::ffi::OsString;

use entry_points::fuzzing::{Claim, Rules, Standing, Verdict, matches};
use entry_points::{EntryPoint, LoadFailure, Switches};

use crate::check_message;
use crate::openreg_settings::os_string;

type Point = EntryPoint<()>;

const PREFIX: &str = "DEVICE_BACKEND";

static POINTS: [Point; 8] = [
    EntryPoint::new("openreg", load).in_package("device-openreg", "0.1.0"),
    EntryPoint::new("openreg", load).in_package("Device-Fork", "0.2.0"),
    EntryPoint::new("opencl", load).in_package("device-opencl", "0.1.0"),
    EntryPoint::new("opencl2", load),
    EntryPoint::new("a", load).in_package("a", "1.0.0"),
    EntryPoint::new("aab", load).in_package("ä-ß", "1.0.0"),
    EntryPoint::new("_", load).in_package("x/y", "1.0.0"),
    EntryPoint::new("cpu", load),
];

fn load() -> Result<Box<()>, LoadFailure> {
    unreachable!("nothing is loaded to decide what could be")
}

/// The first line of the input has a letter for each claim to the name: the claims of the entry points above,
/// in their order, and `!` if the word is reserved. The next four are the values of the variables; missing
/// ones are not set.
pub fn switches(input: &[u8]) {
    let mut lines = input.split(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    let claims: Vec<(&'static Point, Claim)> = POINTS.iter().zip(first.iter().filter_map(claim)).collect();
    let reserved = first.contains(&b'!');
    let mut value = || lines.next().and_then(os_string);
    let values = [("AUTOLOAD", value()), ("DISABLE", value()), ("SELECT", value()), ("INSTALLED", value())];
    let read = |name: &str| {
        let (_, value) = values.iter().find(|(suffix, _)| name == format!("{PREFIX}_{suffix}"))?;
        value.clone()
    };
    let rules = Rules::from_env(PREFIX, read);
    let model = Model::new(values.each_ref().map(|(_, value)| value.as_ref()));

    assert_eq!(rules.complaints().len(), model.complaints, "{:?}", rules.complaints());
    rules.complaints().iter().for_each(|complaint| check_message(complaint));
    for pattern in model.disable.iter().chain(&model.select) {
        for point in &POINTS {
            let expected = model_matches(pattern, point);
            assert_eq!(matches(pattern, point), expected, "{pattern:?} against {point:?}");
        }
    }
    if claims.is_empty() {
        return;
    }
    check_verdicts(&claims, reserved, &rules, &model);
    let built_in: Vec<_> = claims.iter().map(|&(point, claim)| (point, claim == Claim::BuiltIn)).collect();
    rules.idle_patterns(&built_in).iter().for_each(|complaint| check_message(complaint));

    let Model { autoload, installed, disable, select, .. } = model.clone();
    let in_code = Rules::from_code(&Switches { autoload, installed, disable, select });
    assert!(in_code.complaints().is_empty());
    check_verdicts(&claims, reserved, &in_code, &model);
}

fn claim(letter: &u8) -> Option<Claim> {
    Some(match letter {
        b'b' => Claim::BuiltIn,
        b'l' => Claim::Linked,
        b'i' => Claim::Installed,
        b'r' => Claim::Registered,
        b'o' => Claim::Override,
        b'x' => Claim::Refused,
        _ => return None,
    })
}

fn check_verdicts(claims: &[(&'static Point, Claim)], reserved: bool, rules: &Rules, model: &Model) {
    let (verdicts, standing) = rules.judge(claims, reserved);
    assert_eq!(verdicts.len(), claims.len());
    let last = |claim| claims.iter().rposition(|(_, other)| *other == claim);
    let sole = last(Claim::BuiltIn).or_else(|| last(Claim::Override));
    let is_off = |&(point, claim): &(&'static Point, Claim)| model.is_off(point, claim);
    let contender = |at: usize| match sole {
        _ if reserved => false,
        Some(sole) => sole == at,
        None => claims[at].1 != Claim::Refused,
    };
    let mut on: Vec<usize> = (0..claims.len()).filter(|&at| contender(at) && !is_off(&claims[at])).collect();
    // Of those that are installed the first counts, and only if nothing else is on.
    let is_installed = |at: &usize| claims[*at].1 == Claim::Installed;
    if on.iter().all(is_installed) {
        on.truncate(1);
    } else {
        on.retain(|at| !is_installed(at));
    }
    let gives_way = |at: usize| is_installed(&at) && !is_off(&claims[at]) && !on.contains(&at);
    for (at, verdict) in verdicts.iter().enumerate() {
        match verdict {
            Verdict::On => assert_eq!(on, [at], "{claims:?}"),
            Verdict::Off { by } => {
                assert!(contender(at) && is_off(&claims[at]), "{at} of {claims:?} is off by {by}");
                check_message(by);
                assert!(!by.contains('\n'), "{by}");
            }
            Verdict::Duplicate { of } => {
                assert!(
                    !contender(at) || gives_way(at) || on.len() > 1,
                    "{at} of {claims:?} is a duplicate of {of:?}"
                );
                of.iter().for_each(|rival| check_message(rival));
            }
        }
    }
    match standing {
        Standing::On(at) => assert_eq!(verdicts[at], Verdict::On),
        Standing::Off(at) => {
            assert!(matches!(verdicts[at], Verdict::Off { .. }) && on.is_empty(), "{claims:?}");
        }
        Standing::Duplicate(all) => {
            let is_duplicate = |at: &usize| matches!(verdicts[*at], Verdict::Duplicate { .. });
            assert!(!all.is_empty() && all.iter().all(is_duplicate) && on.len() != 1, "{claims:?}");
        }
    }
}

/// The variables, parsed by a second implementation.
#[derive(Clone)]
struct Model {
    autoload: bool,
    installed: bool,
    disable: Vec<String>,
    select: Vec<String>,
    complaints: usize,
}

impl Model {
    fn new(values: [Option<&OsString>; 4]) -> Self {
        let broken =
            values.iter().filter(|value| value.is_some_and(|value| value.to_str().is_none())).count();
        let [autoload, disable, select, installed] =
            values.map(|value| value.and_then(|value| value.to_str()));
        let spelt = |value: Option<&str>, words: &[&str]| {
            value.is_some_and(|value| words.iter().any(|word| value.trim().eq_ignore_ascii_case(word)))
        };
        let is_off = |value| spelt(value, &["0", "false", "no", "off"]);
        let is_invalid =
            |value| !is_off(value) && value.is_some() && !spelt(value, &["", "1", "true", "yes", "on"]);
        let list = |value: Option<&str>| {
            let patterns = value.unwrap_or_default().split(',').map(str::to_owned);
            patterns.filter(|pattern| !pattern.trim().is_empty()).collect()
        };
        let complaints = broken + usize::from(is_invalid(autoload)) + usize::from(is_invalid(installed));
        Self {
            autoload: !is_off(autoload),
            installed: !is_off(installed),
            disable: list(disable),
            select: list(select),
            complaints,
        }
    }

    fn is_off(&self, point: &Point, claim: Claim) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| model_matches(pattern, point));
        match claim {
            Claim::BuiltIn => false,
            Claim::Linked | Claim::Installed if !self.autoload => true,
            Claim::Installed if !self.installed => true,
            _ => !any(&self.select) && (any(&self.disable) || !self.select.is_empty()),
        }
    }
}

fn model_matches(pattern: &str, point: &Point) -> bool {
    let pattern = pattern.trim().to_ascii_lowercase();
    match pattern.split_once('/') {
        None => model_glob(&pattern, point.name()),
        Some((package, name)) => {
            let whole = point.package().unwrap_or_default().to_ascii_lowercase();
            model_glob(package.trim(), &whole) && model_glob(name.trim(), point.name())
        }
    }
}

/// By a table of which beginnings of the text each beginning of the pattern matches.
fn model_glob(pattern: &str, text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let mut matched = vec![false; text.len() + 1];
    matched[0] = true;
    for wanted in pattern.chars() {
        let mut next = vec![false; text.len() + 1];
        for end in 0..=text.len() {
            next[end] = match wanted {
                '*' => matched[end] || (end > 0 && next[end - 1]),
                _ => end > 0 && matched[end - 1] && (wanted == '?' || wanted == text[end - 1]),
            };
        }
        matched = next;
    }
    matched[text.len()]
}
