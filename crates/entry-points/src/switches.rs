//! The switches of a group, from the environment or from code: they disable entry points.

use std::ffi::OsString;
use std::fmt;

use crate::claim::Claim;
use crate::defaults::{DefaultValue, Defaults};
use crate::entry_point::EntryPoint;
use crate::message::{SWITCH_WORDS, parse_switch, shown};
use crate::nearest::nearest;
use crate::pattern::Pattern;

/// The switches of a group: they disable some of its entry points.
///
/// A group with [`Group::switches("CODEC_DECODER")`](crate::Group::switches) in its declaration reads them
/// from the environment at its first use. [`Group::configure`](crate::Group::configure) sets them in code
/// before that; the group then does not read these variables.
/// [`Group::set_defaults`](crate::Group::set_defaults) sets what applies where a variable is unset or empty.
///
/// | Variable | Field | Meaning |
/// |---|---|---|
/// | `CODEC_DECODER_AUTOLOAD` | `autoload` | `0`, `false`, `no`, `off`: disables linked and installed entry points, unless the program registers them. `1`, `true`, `yes`, `on`, unset or empty: on |
/// | `CODEC_DECODER_INSTALLED` | `installed` | the same words: disables [installed](crate::Group::install) entry points |
/// | `CODEC_DECODER_DISABLE` | `disable` | patterns, separated by commas: disables these, registered ones too |
/// | `CODEC_DECODER_SELECT` | `select` | patterns, separated by commas: disables all others |
///
/// A pattern is a name or `package/name`, in which `*` stands for any text and `?` for one character. Case
/// and surrounding space do not matter. An entry point that matches both lists is on, as in the Vulkan loader
/// (`VK_LOADER_DRIVERS_SELECT`). `autoload` takes precedence over `select`. The built-in entry points of a
/// group cannot be disabled. The report notes a misspelt variable, such as `CODEC_DECODER_SELEKT`.
/// Another variable, `CODEC_DECODER_OPTIONS`, sets options of entry points: see
/// [`Group::set_option`](crate::Group::set_option).
///
/// ```
/// use entry_points::Switches;
///
/// let switches = Switches { disable: vec!["mp*".into()], ..Switches::default() };
/// assert!(switches.autoload);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switches {
    /// Whether linked and installed entry points are on. If not, only those that the program registers are.
    pub autoload: bool,
    /// Whether installed entry points are on.
    pub installed: bool,
    /// Patterns of the entry points to disable.
    pub disable: Vec<String>,
    /// If not empty, patterns of the only entry points that are on.
    pub select: Vec<String>,
}

impl Default for Switches {
    /// Everything on.
    fn default() -> Self {
        Self { autoload: true, installed: true, disable: Vec::new(), select: Vec::new() }
    }
}

impl Switches {
    /// All variables that a group with this prefix reads, including `…_OPTIONS`: for a program that starts
    /// another one without them, as tests do.
    ///
    /// ```
    /// let variables = entry_points::Switches::variables("CODEC_DECODER");
    /// assert!(variables.contains(&"CODEC_DECODER_DISABLE".to_owned()));
    ///
    /// let mut command = std::process::Command::new("decode");
    /// variables.iter().for_each(|variable| { command.env_remove(variable); });
    /// ```
    #[must_use]
    pub fn variables(prefix: &str) -> [String; 5] {
        VARIABLES.map(|end| format!("{prefix}_{}", end.to_ascii_uppercase()))
    }
}

/// The switches in force, with their words for messages.
#[derive(Debug)]
pub(crate) struct Settings {
    autoload: Switch<bool>,
    installed: Switch<bool>,
    disable: Switch<Vec<Pattern>>,
    select: Switch<Vec<Pattern>>,
    /// Invalid values: logged once as warnings, and shown in every report.
    pub(crate) complaints: Vec<String>,
}

#[derive(Debug)]
struct Switch<T> {
    value: T,
    /// The switch in messages, as the reason why a name is off: `CODEC_DECODER_DISABLE=vorb*`.
    cause: String,
    /// Whether a variable sets it.
    by_variable: bool,
}

impl Settings {
    pub(crate) fn from_code(switches: &Switches) -> Self {
        let list = |field: &str, texts: &[String]| {
            let value = shown_value(texts);
            Switch::of_program(patterns(texts), format!("the program (Switches::{field} = {value})"))
        };
        let flag = |field: &str, value| {
            Switch::of_program(value, format!("the program (Switches::{field} = false)"))
        };
        Self {
            autoload: flag("autoload", switches.autoload),
            installed: flag("installed", switches.installed),
            disable: list("disable", &switches.disable),
            select: list("select", &switches.select),
            complaints: Vec::new(),
        }
    }

    /// Reads the variables that begin with the prefix, through `read`. The defaults apply where a variable is
    /// unset or empty.
    pub(crate) fn from_env(
        prefix: &str,
        defaults: &Defaults,
        read: impl Fn(&str) -> Option<OsString>,
    ) -> Self {
        let mut complaints = Vec::new();
        let mut text = |suffix: &str| {
            let variable = format!("{prefix}_{suffix}");
            let value = match read(&variable)?.into_string() {
                Ok(value) => value,
                Err(value) => {
                    complaints.push(format!("{variable} is ignored: expected UTF-8, found {value:?}"));
                    return None;
                }
            };
            let cause = format!("{variable}={}", shown(&value));
            (!value.trim().is_empty()).then_some(Switch { value, cause, by_variable: true })
        };
        let autoload = text("AUTOLOAD");
        let installed = text("INSTALLED");
        let disable = text("DISABLE");
        let select = text("SELECT");
        let mut flag = |suffix: &str, switch: Option<Switch<String>>, default| {
            let parse = |value: String| {
                parse_switch(&value).unwrap_or_else(|| {
                    complaints.push(format!(
                        "{prefix}_{suffix}={value:?} is invalid and counts as on: expected {SWITCH_WORDS}"
                    ));
                    true
                })
            };
            switch.map_or_else(|| Switch::of_default(suffix, default, true), |switch| switch.map(parse))
        };
        let list = |suffix: &str, switch: Option<Switch<String>>, default| match switch {
            Some(switch) => switch.map(|list| patterns(list.split(','))),
            None => Switch::of_default(suffix, default, Vec::new()).map(patterns),
        };
        Self {
            autoload: flag("AUTOLOAD", autoload, &defaults.autoload),
            installed: flag("INSTALLED", installed, &defaults.installed),
            disable: list("DISABLE", disable, &defaults.disable),
            select: list("SELECT", select, &defaults.select),
            complaints,
        }
    }

    /// The variable and its value, if a variable sets the switch with this end of its name.
    pub(crate) fn variable_of(&self, switch: &str) -> Option<&str> {
        let (by_variable, cause) = match switch {
            "autoload" => (self.autoload.by_variable, &self.autoload.cause),
            "installed" => (self.installed.by_variable, &self.installed.cause),
            "disable" => (self.disable.by_variable, &self.disable.cause),
            "select" => (self.select.by_variable, &self.select.cause),
            _ => return None,
        };
        by_variable.then_some(cause)
    }

    /// The switch that disables `point`, if one does.
    pub(crate) fn off<P: ?Sized>(&self, point: &EntryPoint<P>, claim: Claim) -> Option<String> {
        let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(point));
        if !self.autoload.value && matches!(claim, Claim::Linked | Claim::Installed) {
            Some(self.autoload.cause.clone())
        } else if !self.installed.value && claim == Claim::Installed {
            Some(self.installed.cause.clone())
        } else if any(&self.select.value) {
            None
        } else if any(&self.disable.value) {
            Some(self.disable.cause.clone())
        } else if !self.select.value.is_empty() {
            Some(format!("{}, which does not match it", self.select.cause))
        } else {
            None
        }
    }

    /// Complaints about patterns without effect on these entry points. The `bool` says whether the name is
    /// built in.
    pub(crate) fn idle_patterns<P: ?Sized + 'static>(
        &self,
        points: &[(&'static EntryPoint<P>, bool)],
    ) -> Vec<String> {
        let matches = |pattern: &Pattern, built_in_too: bool| {
            points.iter().any(|&(point, built_in)| (built_in_too || !built_in) && pattern.matches(point))
        };
        let mut complaints = Vec::new();
        for switch in [&self.disable, &self.select] {
            for pattern in switch.value.iter().filter(|pattern| !matches(pattern, true)) {
                let text = shown(pattern.text());
                complaints.push(format!("the pattern `{text}` in {} matches nothing", switch.cause));
            }
        }
        let refused = |pattern: &&Pattern| matches(pattern, true) && !matches(pattern, false);
        for pattern in self.disable.value.iter().filter(refused) {
            let text = shown(pattern.text());
            let cause = &self.disable.cause;
            complaints.push(format!(
                "the pattern `{text}` in {cause} matches a built-in name, which cannot be disabled"
            ));
        }
        complaints
    }
}

impl<T> Switch<T> {
    fn map<U>(self, f: impl FnOnce(T) -> U) -> Switch<U> {
        Switch { value: f(self.value), cause: self.cause, by_variable: self.by_variable }
    }

    fn of_program(value: T, cause: String) -> Self {
        Self { value, cause, by_variable: false }
    }
}

/// A value in a message. Each pattern without effect has a message with all patterns.
fn shown_value(value: impl fmt::Debug) -> String {
    const LIMIT: usize = 64;
    let mut shown = format!("{value:?}");
    if let Some((end, _)) = shown.char_indices().nth(LIMIT) {
        shown.truncate(end);
        shown.push('…');
    }
    shown
}

impl<T: Clone + fmt::Debug> Switch<T> {
    /// The switch with `default`'s value, or else with the value `otherwise`, which disables nothing.
    fn of_default(end: &str, default: &Option<DefaultValue<T>>, otherwise: T) -> Self {
        let end = end.to_ascii_lowercase();
        match default {
            Some(DefaultValue { value, origin }) => {
                Self::of_program(value.clone(), format!("{origin} ({end} = {})", shown_value(value)))
            }
            None => Self::of_program(otherwise, end),
        }
    }
}

/// The ends of a group's variables, in lower case.
const VARIABLES: [&str; 5] = ["autoload", "disable", "installed", OPTIONS, "select"];

const OPTIONS: &str = "options";

/// Complaints about variables that are probably misspelt: they begin with the prefix, and end almost like one
/// of the group's. Any other variable with the prefix may belong to the framework. If the program is
/// `configured` by code, the group reads only the variable of options.
pub(crate) fn misspelt(
    prefix: &str,
    variables: impl Iterator<Item = OsString>,
    configured: bool,
) -> Vec<String> {
    // Windows does not distinguish the case of variables.
    let is_read = |end: &str| {
        VARIABLES.iter().any(|name| {
            if cfg!(windows) { end.eq_ignore_ascii_case(name) } else { end == name.to_ascii_uppercase() }
        })
    };
    let mut complaints: Vec<String> = variables
        .filter_map(|variable| {
            let variable = variable.into_string().ok()?;
            let end = variable.get(prefix.len()..)?.strip_prefix('_')?;
            if !variable[..prefix.len()].eq_ignore_ascii_case(prefix) || is_read(end) {
                return None;
            }
            let meant = nearest(end, VARIABLES.into_iter())?;
            if configured && meant != OPTIONS {
                return None;
            }
            let meant = meant.to_ascii_uppercase();
            Some(format!("{} has no effect; did you mean {prefix}_{meant}?", shown(&variable)))
        })
        .collect();
    complaints.sort_unstable();
    complaints
}

/// Complaints about variables that are almost one of the framework's `known` ones. The group itself complains
/// of those that begin with its `own` prefix.
pub(crate) fn misspelt_others(
    known: &[&str],
    own: Option<&str>,
    variables: impl Iterator<Item = OsString>,
) -> Vec<String> {
    let known: Vec<String> = known
        .iter()
        .flat_map(|name| match name.strip_suffix("_*") {
            Some(prefix) => Switches::variables(prefix).to_vec(),
            None => vec![(*name).to_owned()],
        })
        .collect();
    // Only these are compared letter by letter.
    let family = |name: &str| name.split('_').next().unwrap_or_default().to_ascii_uppercase();
    let families: Vec<String> = known.iter().map(|name| family(name)).collect();
    let is_own =
        |name: &str| own.and_then(|own| name.strip_prefix(own)).is_some_and(|end| end.starts_with('_'));
    let mut complaints: Vec<String> = variables
        .filter_map(|variable| {
            let variable = variable.into_string().ok()?;
            let name = variable.to_ascii_uppercase();
            // Windows does not distinguish the case of variables.
            let is_read = known.contains(if cfg!(windows) { &name } else { &variable });
            if is_read || is_own(&name) || !families.contains(&family(&name)) {
                return None;
            }
            let lower: Vec<_> = known.iter().map(|name| name.to_ascii_lowercase()).collect();
            let meant = nearest(&name, lower.iter().map(String::as_str))?.to_ascii_uppercase();
            Some(format!("{} has no effect; did you mean {meant}?", shown(&variable)))
        })
        .collect();
    complaints.sort_unstable();
    complaints
}

fn patterns(texts: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<Pattern> {
    let patterns = texts.into_iter().map(|text| Pattern::new(text.as_ref()));
    patterns.filter(|pattern| !pattern.text().is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::assignments::Assignments;
    use crate::failure::LoadFailure;

    fn load() -> Result<Box<u8>, LoadFailure> {
        Ok(Box::new(0))
    }

    static VORBIS: EntryPoint<u8> = EntryPoint::new("vorbis", load).in_package("codec-vorbis", "0.1.0");

    fn settings(variables: &[(&str, &str)]) -> Settings {
        Settings::from_env("X", &Defaults::new(), |name| {
            variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn every_spelling_of_on_and_off() {
        for (value, on) in [
            ("0", false),
            ("false", false),
            ("No", false),
            (" OFF ", false),
            ("1", true),
            ("true", true),
            ("YES", true),
            ("on", true),
            ("", true),
        ] {
            let settings = settings(&[("X_AUTOLOAD", value)]);
            assert_eq!(settings.off(&VORBIS, Claim::Linked).is_none(), on, "{value:?}");
            assert_eq!(settings.complaints, [""; 0], "{value:?}");
        }
    }

    #[test]
    fn any_other_spelling_is_on_with_a_complaint() {
        for value in ["2", "01", "disable", "nope", "-1"] {
            let settings = settings(&[("X_AUTOLOAD", value)]);
            assert_eq!(settings.off(&VORBIS, Claim::Linked), None);
            assert!(settings.complaints[0].contains(&format!("X_AUTOLOAD={value:?}")), "{settings:?}");
        }
    }

    #[test]
    fn a_misspelt_variable_is_a_complaint_and_another_with_the_prefix_is_none() {
        let misspelt = |name: &str| misspelt("IMG_FILTER", std::iter::once(name.into()), false);
        for (name, meant) in [
            ("IMG_FILTER_SELEKT", "SELECT"),
            ("IMG_FILTER_DISABEL", "DISABLE"),
            ("IMG_FILTER_OPTION", "OPTIONS"),
            ("IMG_FILTER_AUTO_LOAD", "AUTOLOAD"),
            ("IMG_FILTER_INSTALED", "INSTALLED"),
        ] {
            let expected = format!("{name} has no effect; did you mean IMG_FILTER_{meant}?");
            assert_eq!(misspelt(name), [expected]);
        }
        for name in
            ["IMG_FILTER_SELECT", "IMG_FILTER_OPTIONS", "IMG_FILTER_CACHE", "IMG_FILTERS_SELEKT", "IMG", ""]
        {
            assert_eq!(misspelt(name), [""; 0], "{name}");
        }
        assert_eq!(misspelt("img_filter_select").len(), usize::from(!cfg!(windows)));
    }

    #[test]
    fn a_misspelt_variable_of_the_framework_is_a_complaint_whatever_group_it_is_of() {
        let known = ["IMG_CACHE", "IMG_CODEC_*", "IMG_FILTER_*"];
        let misspelt = |name: &str| misspelt_others(&known, Some("IMG_FILTER"), std::iter::once(name.into()));
        for (name, meant) in [
            ("IMG_CAHCE", "IMG_CACHE"),
            ("IMG_CACHES", "IMG_CACHE"),
            ("IMG_CODEC_DISABEL", "IMG_CODEC_DISABLE"),
            ("IMG_CODECS_SELECT", "IMG_CODEC_SELECT"),
            ("IMG_FILTERS_SELECT", "IMG_FILTER_SELECT"),
        ] {
            assert_eq!(misspelt(name), [format!("{name} has no effect; did you mean {meant}?")]);
        }
        for name in
            ["IMG_CACHE", "IMG_CODEC_OPTIONS", "IMG_FILTER_SELEKT", "IMG_OTHER", "IMF_CACHE", "IMG", ""]
        {
            assert_eq!(misspelt(name), [""; 0], "{name}");
        }
        assert_eq!(misspelt("img_cache").len(), usize::from(!cfg!(windows)));
    }

    #[test]
    fn every_variable_that_is_read_is_in_the_list() {
        let read = RefCell::new(Vec::new());
        let none = |name: &str| {
            read.borrow_mut().push(name.to_owned());
            None
        };
        Settings::from_env("X", &Defaults::new(), none);
        Assignments::from_env("X", none);
        let mut read = read.into_inner();
        read.sort_unstable();
        assert_eq!(read, Switches::variables("X"));
    }

    #[test]
    fn in_a_program_with_switches_of_its_own_only_the_variable_of_options_can_be_misspelt() {
        let variables = ["X_SELEKT", "X_OPTION"].map(OsString::from).into_iter();
        assert_eq!(misspelt("X", variables, true), ["X_OPTION has no effect; did you mean X_OPTIONS?"]);
    }

    #[test]
    fn every_pair_of_switches() {
        let auto = "X_AUTOLOAD=0";
        let disable = "X_DISABLE=vorb*";
        let select = "X_SELECT=other, which does not match it";
        for (variables, linked, registered) in [
            (vec![], None, None),
            (vec![("X_AUTOLOAD", "0")], Some(auto), None),
            (vec![("X_DISABLE", "vorb*")], Some(disable), Some(disable)),
            (vec![("X_SELECT", "vorbis")], None, None),
            (vec![("X_SELECT", "other")], Some(select), Some(select)),
            (vec![("X_AUTOLOAD", "0"), ("X_DISABLE", "vorb*")], Some(auto), Some(disable)),
            (vec![("X_AUTOLOAD", "0"), ("X_SELECT", "vorbis")], Some(auto), None),
            (vec![("X_DISABLE", "vorb*"), ("X_SELECT", "vorbis")], None, None),
            (vec![("X_DISABLE", "vorb*"), ("X_SELECT", "other")], Some(disable), Some(disable)),
            (vec![("X_AUTOLOAD", "0"), ("X_DISABLE", "vorb*"), ("X_SELECT", "vorbis")], Some(auto), None),
        ] {
            let settings = settings(&variables);
            assert_eq!(settings.off(&VORBIS, Claim::Linked).as_deref(), linked, "linked under {variables:?}");
            assert_eq!(
                settings.off(&VORBIS, Claim::Registered).as_deref(),
                registered,
                "registered under {variables:?}"
            );
        }
    }

    #[test]
    fn a_note_on_one_of_many_patterns_is_short() {
        let many: Vec<_> = (0..1000).map(|number| format!("é{number}")).collect();
        let defaults = Defaults::new().disable(many.clone(), "f.toml:1");
        let by_defaults = Settings::from_env("X", &defaults, |_| None);
        let by_code = Settings::from_code(&Switches { select: many, ..Switches::default() });
        for settings in [by_defaults, by_code] {
            let notes = settings.idle_patterns::<u8>(&[(&VORBIS, false)]);
            assert_eq!(notes.len(), 1000);
            let longest = notes.iter().max_by_key(|note| note.len()).unwrap();
            assert!(longest.len() < 300 && longest.contains("[\"é0\", \"é1\", "), "{longest}");
        }
    }

    #[test]
    fn what_is_installed_has_a_switch_of_its_own() {
        let settings = settings(&[("X_INSTALLED", "off")]);
        assert_eq!(settings.off(&VORBIS, Claim::Installed).as_deref(), Some("X_INSTALLED=off"));
        for claim in [Claim::Linked, Claim::Registered, Claim::Override] {
            assert_eq!(settings.off(&VORBIS, claim), None, "{claim:?}");
        }
        let settings = self::settings(&[("X_INSTALLED", "2")]);
        assert_eq!(settings.off(&VORBIS, Claim::Installed), None);
        assert!(settings.complaints[0].contains("X_INSTALLED=\"2\" is invalid"), "{settings:?}");
    }

    #[test]
    fn a_pattern_that_matches_nothing_is_a_complaint() {
        let settings = settings(&[("X_DISABLE", "vorbis, mp*,,"), ("X_SELECT", "codec-vorbis/*")]);
        let complaints = settings.idle_patterns(&[(&VORBIS, false)]);
        assert_eq!(complaints, ["the pattern `mp*` in X_DISABLE=vorbis, mp*,, matches nothing"]);
    }

    #[test]
    fn disabling_a_built_in_name_is_a_complaint_unless_the_pattern_matches_others() {
        let built_in = [(&VORBIS, true)];
        let complaints = settings(&[("X_DISABLE", "vorbis")]).idle_patterns(&built_in);
        let expected =
            "the pattern `vorbis` in X_DISABLE=vorbis matches a built-in name, which cannot be disabled";
        assert_eq!(complaints, [expected]);
        static OTHER: EntryPoint<u8> = EntryPoint::new("other", load);
        let both = [(&VORBIS, true), (&OTHER, false)];
        assert_eq!(settings(&[("X_DISABLE", "*")]).idle_patterns(&both), [""; 0]);
        assert_eq!(settings(&[("X_SELECT", "vorbis")]).idle_patterns(&built_in), [""; 0]);
    }

    #[test]
    fn messages_show_values_escaped() {
        let settings = settings(&[("X_DISABLE", "vorb*,\u{1b}[31m\n")]);
        assert_eq!(settings.off(&VORBIS, Claim::Linked).as_deref(), Some("X_DISABLE=vorb*,\\u{1b}[31m\\n"));
    }

    #[cfg(unix)]
    #[test]
    fn a_value_that_is_not_utf8_is_ignored_with_a_complaint() {
        use std::os::unix::ffi::OsStringExt;
        let settings = Settings::from_env("X", &Defaults::new(), |name| {
            (name == "X_DISABLE").then(|| OsString::from_vec(b"open\xff*".to_vec()))
        });
        assert_eq!(settings.off(&VORBIS, Claim::Linked), None);
        assert!(
            settings.complaints[0].contains("X_DISABLE is ignored: expected UTF-8, found \"open\\xFF*\""),
            "{settings:?}"
        );
    }

    fn settings_over(defaults: &Defaults, variables: &[(&str, &str)]) -> Settings {
        Settings::from_env("X", defaults, |name| {
            variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn a_default_holds_until_its_own_variable_is_set_to_something() {
        let defaults = Defaults::new().autoload(false, "f:1").disable(["vorb*"], "f:2");
        let off = |variables: &[(&str, &str)], claim| settings_over(&defaults, variables).off(&VORBIS, claim);
        let autoload = "f:1 (autoload = false)";
        let disable = "f:2 (disable = [\"vorb*\"])";
        for (variables, linked, registered) in [
            (&[][..], Some(autoload), Some(disable)),
            (&[("X_AUTOLOAD", " "), ("X_DISABLE", "")], Some(autoload), Some(disable)),
            (&[("X_AUTOLOAD", "1")], Some(disable), Some(disable)),
            (&[("X_AUTOLOAD", "2")], Some(disable), Some(disable)),
            (&[("X_DISABLE", "other")], Some(autoload), None),
            (&[("X_DISABLE", ",")], Some(autoload), None),
            (&[("X_DISABLE", "v*")], Some(autoload), Some("X_DISABLE=v*")),
            (&[("X_SELECT", "vorbis")], Some(autoload), None),
        ] {
            assert_eq!(off(variables, Claim::Linked).as_deref(), linked, "{variables:?}");
            assert_eq!(off(variables, Claim::Registered).as_deref(), registered, "{variables:?}");
        }
    }

    #[test]
    fn a_switch_says_whether_a_variable_sets_it() {
        let defaults = Defaults::new().select(["a"], "f:1").installed(false, "f:2");
        let settings = settings_over(&defaults, &[("X_SELECT", "b"), ("X_INSTALLED", "")]);
        assert_eq!(settings.variable_of("select"), Some("X_SELECT=b"));
        for switch in ["installed", "disable", "autoload"] {
            assert_eq!(settings.variable_of(switch), None);
        }
    }

    #[test]
    fn switches_set_in_code_name_the_program_as_the_cause() {
        let switches = Switches { disable: vec!["VORB*".into()], ..Switches::default() };
        let cause = Settings::from_code(&switches).off(&VORBIS, Claim::Registered);
        assert_eq!(cause.as_deref(), Some("the program (Switches::disable = [\"VORB*\"])"));
    }
}
