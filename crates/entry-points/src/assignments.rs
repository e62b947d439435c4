//! The variable that sets options: `PREFIX_OPTIONS='netmem.servers=a,b;openreg.devices=4'`.

use std::collections::HashSet;
use std::ffi::OsString;
use std::sync::Arc;

use crate::defaults::Defaults;
use crate::message::shown;
use crate::options::{OptionOrigin, OptionValue};

/// The content of the variable, and the defaults below it. A group with neither has no assignments.
#[derive(Debug, Default)]
pub(crate) struct Assignments {
    /// In the order of the variable. An option of an entry occurs once.
    assignments: Vec<Assignment>,
    /// Pieces that are not valid: logged once as warnings, and shown in every report.
    pub(crate) complaints: Vec<String>,
}

/// `name.option=value`
#[derive(Debug)]
pub(crate) struct Assignment {
    /// The name of an entry, which need not exist.
    pub(crate) name: String,
    pub(crate) value: OptionValue,
}

impl Assignment {
    /// The entry's name and the option's.
    fn key(&self) -> (String, Arc<str>) {
        (self.name.clone(), Arc::clone(&self.value.name))
    }
}

impl Assignments {
    /// Reads `PREFIX_OPTIONS` through `read`.
    pub(crate) fn from_env(prefix: &str, read: impl Fn(&str) -> Option<OsString>) -> Self {
        let variable: Arc<str> = format!("{prefix}_OPTIONS").into();
        let value = read(&variable).unwrap_or_default();
        let mut this = Self::default();
        let mut seen = HashSet::new();
        for piece in value.as_encoded_bytes().split(|byte| *byte == b';') {
            match str::from_utf8(piece).map(str::trim) {
                Ok("") => {}
                Ok(piece) => this.add(piece, &variable, &mut seen),
                Err(_) => {
                    let piece = shown_bytes(piece.trim_ascii());
                    this.complaints.push(format!("`{piece}` in {variable} is ignored: expected UTF-8"));
                }
            }
        }
        this.keep_last();
        this
    }

    /// Adds the options of `defaults` that the variable does not set.
    pub(crate) fn add_defaults(&mut self, defaults: &Defaults) {
        let mut seen: HashSet<_> = self.assignments.iter().map(Assignment::key).collect();
        let of_defaults = defaults.options.iter().rev();
        let assignment = |(name, value): &(String, OptionValue)| {
            let assignment = Assignment { name: name.clone(), value: value.clone() };
            seen.insert(assignment.key()).then_some(assignment)
        };
        // The last of several values counts.
        let added: Vec<_> = of_defaults.filter_map(assignment).collect();
        self.assignments.extend(added.into_iter().rev());
    }

    /// Drops all but the last value of each option.
    fn keep_last(&mut self) {
        let mut seen = HashSet::new();
        self.assignments.reverse();
        self.assignments.retain(|assignment| seen.insert(assignment.key()));
        self.assignments.reverse();
    }

    /// `seen` has the options of the pieces before.
    fn add(&mut self, piece: &str, variable: &Arc<str>, seen: &mut HashSet<(String, Arc<str>)>) {
        let parts = piece.split_once('=').and_then(|(key, value)| Some((key.split_once('.')?, value)));
        let parts = parts.map(|((name, option), value)| [name, option, value].map(str::trim));
        let Some([name, option, value]) =
            parts.filter(|[name, option, _]| !name.is_empty() && !option.is_empty())
        else {
            let piece = shown(piece);
            self.complaints.push(format!("`{piece}` in {variable} is ignored: expected `name.option=value`"));
            return;
        };
        let origin = OptionOrigin::Variable(Arc::clone(variable));
        let value = OptionValue { name: option.into(), value: value.into(), origin };
        let assignment = Assignment { name: name.to_owned(), value };
        if !seen.insert(assignment.key()) {
            let piece = shown(piece);
            let name = shown(name);
            let option = shown(option);
            self.complaints.push(format!(
                "`{piece}` in {variable} takes the place of an earlier value: it sets {name}.{option} twice"
            ));
        }
        self.assignments.push(assignment);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Assignment> {
        self.assignments.iter()
    }

    /// The options of one entry.
    pub(crate) fn of(&self, name: &str) -> impl Iterator<Item = &OptionValue> {
        self.assignments.iter().filter(move |one| one.name == name).map(|one| &one.value)
    }
}

/// Text that is not valid UTF-8, with `\xFF` for the bytes that are not.
fn shown_bytes(bytes: &[u8]) -> String {
    let escaped = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\x{byte:02X}")).collect::<String>();
    bytes.utf8_chunks().map(|chunk| shown(chunk.valid()) + &escaped(chunk.invalid())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assignments(value: impl Into<OsString> + Clone) -> Assignments {
        Assignments::from_env("X", |name| (name == "X_OPTIONS").then(|| value.clone().into()))
    }

    fn read(value: &str) -> Vec<String> {
        let pieces = assignments(value);
        assert_eq!(pieces.complaints, [""; 0], "{value}");
        pieces.iter().map(|one| format!("{}.{}", one.name, one.value)).collect()
    }

    #[test]
    fn options_are_separated_by_semicolons_and_space_around_each_part_does_not_matter() {
        assert_eq!(read(""), [""; 0]);
        assert_eq!(read(" ; ;"), [""; 0]);
        assert_eq!(read("a.x=1"), ["a.x=1 (X_OPTIONS)"]);
        assert_eq!(read(" a . x = 1 2 ; b.y=z;"), ["a.x=1 2 (X_OPTIONS)", "b.y=z (X_OPTIONS)"]);
    }

    #[test]
    fn a_value_may_be_empty_and_may_contain_any_other_separator() {
        assert_eq!(read("a.x="), ["a.x= (X_OPTIONS)"]);
        let servers = "netmem.servers=10.0.0.1:1,10.0.0.2:1?key=a.b";
        assert_eq!(read(servers), [format!("{servers} (X_OPTIONS)")]);
    }

    #[test]
    fn a_piece_without_a_name_an_option_or_a_value_is_a_complaint_that_shows_it() {
        for piece in ["devices", "openreg.devices", "devices=4", ".devices=4", "openreg.=4", "=", "a\u{1b}"] {
            let assignments = assignments(format!("{piece};a.x=1"));
            let shown = shown(piece);
            let expected = format!("`{shown}` in X_OPTIONS is ignored: expected `name.option=value`");
            assert_eq!(assignments.complaints, [expected]);
            assert_eq!(assignments.of("a").count(), 1, "the next piece of {piece:?} is used");
            assert_eq!(assignments.iter().count(), 1);
        }
    }

    #[test]
    fn an_option_that_is_set_twice_is_a_complaint_and_the_last_value_is_used() {
        let assignments = assignments("a.x=1;b.x=2;a.y=3;a.x = 4");
        let expected = "`a.x = 4` in X_OPTIONS takes the place of an earlier value: it sets a.x twice";
        assert_eq!(assignments.complaints, [expected]);
        let values: Vec<_> = assignments.of("a").map(OptionValue::as_str).collect();
        assert_eq!(values, ["3", "4"]);
        assert_eq!(assignments.of("b").count(), 1);
    }

    #[test]
    fn of_several_values_below_the_variable_the_last_counts() {
        let mut assignments = assignments("a.x=1");
        let mut defaults = Defaults::new();
        for (name, option, value) in [("a", "x", "2"), ("a", "y", "3"), ("b", "x", "4"), ("a", "y", "5")] {
            defaults = defaults.option(name, option, value, "f:1");
        }
        assignments.add_defaults(&defaults);
        let values: Vec<_> = assignments.iter().map(|one| format!("{}.{}", one.name, one.value)).collect();
        assert_eq!(values, ["a.x=1 (X_OPTIONS)", "b.x=4 (f:1)", "a.y=5 (f:1)"]);
    }

    /// It took minutes when each compared itself with all earlier ones.
    #[test]
    fn many_options_take_no_time() {
        let begin = std::time::Instant::now();
        let mut text = String::new();
        (0..20_000).for_each(|number| text += &format!("a.o{number}=1;a.o0=2;"));
        let mut assignments = assignments(text);
        let mut defaults = Defaults::new();
        for number in 0..40_000 {
            defaults = defaults.option("a", &format!("o{number}"), "3", "f:1");
        }
        assignments.add_defaults(&defaults);
        assert_eq!((assignments.iter().count(), assignments.complaints.len()), (40_000, 20_000));
        assert!(begin.elapsed().as_secs() < 10, "{:?}", begin.elapsed());
    }

    #[cfg(unix)]
    #[test]
    fn a_piece_that_is_not_utf8_is_a_complaint_and_the_others_are_used() {
        use std::os::unix::ffi::OsStringExt;
        let assignments = assignments(OsString::from_vec(b"a.x=1; a.y=\xff;b.z=2".to_vec()));
        assert_eq!(assignments.complaints, ["`a.y=\\xFF` in X_OPTIONS is ignored: expected UTF-8"]);
        assert_eq!(assignments.iter().count(), 2);
    }
}
