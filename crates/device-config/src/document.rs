//! What a file says, with the line and column of each value. It knows the names of groups, and changes
//! nothing.

use std::collections::HashMap;
use std::ops::Range;

use entry_points::message::{and, did_you_mean, nearest, shown};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::source::{At, Located, Mistake, Places};

/// The keys of a file that are not groups.
const KEYS: [&str; 2] = ["default", "plugins"];

/// The keys of a group.
const GROUP_KEYS: [&str; 5] = ["autoload", "installed", "disable", "select", "options"];

/// The content of a file.
#[derive(Debug, Default)]
pub(crate) struct Document {
    /// The devices of `auto`.
    pub(crate) default: Option<Located<String>>,
    /// Folders of backends in files.
    pub(crate) plugins: Option<Located<Vec<String>>>,
    /// In the order of the file.
    pub(crate) groups: Vec<GroupTable>,
}

/// What a file says of one group.
#[derive(Debug)]
pub(crate) struct GroupTable {
    pub(crate) name: &'static str,
    pub(crate) at: At,
    pub(crate) autoload: Option<Located<bool>>,
    pub(crate) installed: Option<Located<bool>>,
    pub(crate) disable: Option<Located<Vec<String>>>,
    pub(crate) select: Option<Located<Vec<String>>>,
    /// In the order of the file.
    pub(crate) options: Vec<OptionLine>,
}

/// An option of an entry, which need not exist.
#[derive(Debug)]
pub(crate) struct OptionLine {
    pub(crate) name: String,
    pub(crate) option: String,
    pub(crate) value: Located<String>,
}

/// Reads a file's text in a process that has these groups.
pub(crate) fn parse(text: &str, groups: &[&'static str]) -> Result<Document, Mistake> {
    let places = Places::of(text);
    let root = DeTable::parse(text).map_err(|error| {
        let at = places.at(error.span().map_or(0, |span| span.start));
        // Its parts, such as what was expected, are lines.
        let lines: Vec<_> = error.message().lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        Mistake { at, message: lines.join("; ") }
    })?;
    let mut reader = Reader { places, groups, document: Document::default() };
    reader.root(root.get_ref())?;
    let mut document = reader.document;
    document.groups.sort_by_key(|group| group.at);
    Ok(document)
}

type Key<'a> = Spanned<std::borrow::Cow<'a, str>>;
type Value<'a> = Spanned<DeValue<'a>>;

struct Reader<'a> {
    places: Places<'a>,
    groups: &'a [&'static str],
    document: Document,
}

impl Reader<'_> {
    fn root(&mut self, table: &DeTable<'_>) -> Result<(), Mistake> {
        for (key, value) in table {
            match (&**key.get_ref(), value.get_ref()) {
                ("default", _) => self.document.default = Some(self.selection(value)?),
                ("plugins", _) => self.document.plugins = Some(self.strings("plugins", "folder", value)?),
                (name, DeValue::Table(table)) => self.below(name.to_owned(), key, table)?,
                (name, _) => {
                    let similar = did_you_mean(nearest(name, KEYS.into_iter()));
                    let name = shown(name);
                    let groups = self.groups();
                    return Err(self.mistake(
                        key.span(),
                        format!(
                            "unknown key `{name}`{similar}; expected `default`, `plugins` or the table of a \
                             group: {groups}"
                        ),
                    ));
                }
            }
        }
        Ok(())
    }

    /// A table named after a group or the beginning of one: `[device.backends]` is in `[device]`.
    fn below(&mut self, path: String, key: &Key<'_>, table: &DeTable<'_>) -> Result<(), Mistake> {
        if let Some(group) = self.groups.iter().find(|group| ***group == *path) {
            return self.group(group, key, table);
        }
        if table.is_empty() || !self.begins_a_group(&path) {
            return Err(self.unknown_group(key, &path));
        }
        for (key, value) in table {
            match value.get_ref() {
                DeValue::Table(table) => self.below(format!("{path}.{}", key.get_ref()), key, table)?,
                _ => return Err(self.unknown_group(key, &path)),
            }
        }
        Ok(())
    }

    fn unknown_group(&self, key: &Key<'_>, path: &str) -> Mistake {
        let similar = did_you_mean(nearest(path, self.groups.iter().copied()));
        let path = shown(path);
        let groups = self.groups();
        let message = format!("unknown group `{path}`{similar}; the groups of this program are {groups}");
        self.mistake(key.span(), message)
    }

    fn begins_a_group(&self, path: &str) -> bool {
        self.groups.iter().any(|group| group.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
    }

    fn group(&mut self, name: &'static str, key: &Key<'_>, table: &DeTable<'_>) -> Result<(), Mistake> {
        let at = self.at(key.span());
        if let Some(other) = self.document.groups.iter().find(|group| group.name == name) {
            let line = other.at.line;
            return Err(Mistake { at, message: format!("the group `{name}` is also in line {line}") });
        }
        let mut group = GroupTable {
            name,
            at,
            autoload: None,
            installed: None,
            disable: None,
            select: None,
            options: Vec::new(),
        };
        for (key, value) in table {
            let path = format!("{name}.{}", key.get_ref());
            match (&**key.get_ref(), value.get_ref()) {
                ("autoload", _) => group.autoload = Some(self.flag("autoload", value)?),
                ("installed", _) => group.installed = Some(self.flag("installed", value)?),
                ("disable", _) => group.disable = Some(self.strings("disable", "pattern", value)?),
                ("select", _) => group.select = Some(self.strings("select", "pattern", value)?),
                ("options", _) => group.options = self.options(value)?,
                (_, DeValue::Table(table)) if self.groups.contains(&&*path) || self.begins_a_group(&path) => {
                    self.below(path, key, table)?;
                }
                (unknown, _) => {
                    let similar = did_you_mean(nearest(unknown, GROUP_KEYS.into_iter()));
                    let unknown = shown(unknown);
                    let keys = and(&GROUP_KEYS.map(|key| format!("`{key}`")));
                    let message = format!(
                        "unknown key `{unknown}` of the group `{name}`{similar}; the keys are {keys}"
                    );
                    return Err(self.mistake(key.span(), message));
                }
            }
        }
        self.document.groups.push(group);
        Ok(())
    }

    /// `openreg.devices = 4`, or `"openreg.devices" = 4`, or a table of the entry.
    fn options(&self, value: &Value<'_>) -> Result<Vec<OptionLine>, Mistake> {
        const EXPECTED: &str =
            "expected the name of an entry and of its option, such as `openreg.devices = 4`";
        let DeValue::Table(entries) = value.get_ref() else {
            return Err(self.wrong_type("options", "a table", value));
        };
        let mut options = Vec::new();
        let mut lines = HashMap::new();
        let mut add = |name: &str, option: &str, value: &Value<'_>| {
            let value = self.option_value(&format!("{name}.{option}"), value)?;
            let key = (name.to_owned(), option.to_owned());
            if let Some(line) = lines.insert(key, value.at.line) {
                let name = shown(name);
                let option = shown(option);
                let message = format!("the option `{name}.{option}` is also in line {line}");
                return Err(Mistake { at: value.at, message });
            }
            options.push(OptionLine { name: name.to_owned(), option: option.to_owned(), value });
            Ok(())
        };
        for (key, value) in entries {
            let name = &**key.get_ref();
            match (value.get_ref(), name.split_once('.')) {
                (DeValue::Table(of_entry), None) => {
                    for (option, value) in of_entry {
                        add(name, option.get_ref(), value)?;
                    }
                }
                (_, Some((name, option))) if !name.is_empty() && !option.is_empty() => {
                    add(name, option, value)?;
                }
                _ => {
                    let message = format!("`{}` is no option; {EXPECTED}", shown(name));
                    return Err(self.mistake(key.span(), message));
                }
            }
        }
        options.sort_by_key(|option| option.value.at);
        Ok(options)
    }

    /// The value of an option as text, which is what an entry reads.
    fn option_value(&self, key: &str, value: &Value<'_>) -> Result<Located<String>, Mistake> {
        let text = match value.get_ref() {
            DeValue::String(text) => text.clone().into_owned(),
            DeValue::Boolean(on) => on.to_string(),
            DeValue::Float(number) => number.as_str().trim_start_matches('+').to_owned(),
            DeValue::Integer(number) if number.radix() == 10 => {
                number.as_str().trim_start_matches('+').to_owned()
            }
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => number.to_string(),
                Err(_) => return Err(self.wrong_type(key, "a number below 2^63", value)),
            },
            _ => return Err(self.wrong_type(key, "a string, a number or a boolean", value)),
        };
        Ok(self.located(value, text))
    }

    fn selection(&self, value: &Value<'_>) -> Result<Located<String>, Mistake> {
        match value.get_ref() {
            DeValue::String(text) => Ok(self.located(value, text.clone().into_owned())),
            DeValue::Array(_) => {
                let parts = self.strings("default", "device", value)?;
                Ok(Located { value: parts.value.join(","), at: parts.at })
            }
            _ => Err(self.wrong_type("default", "a list of devices, such as \"*:gpu,cpu\"", value)),
        }
    }

    fn flag(&self, key: &str, value: &Value<'_>) -> Result<Located<bool>, Mistake> {
        match value.get_ref() {
            DeValue::Boolean(on) => Ok(self.located(value, *on)),
            _ => Err(self.wrong_type(key, "true or false", value)),
        }
    }

    fn strings(&self, key: &str, noun: &str, value: &Value<'_>) -> Result<Located<Vec<String>>, Mistake> {
        let DeValue::Array(items) = value.get_ref() else {
            return Err(self.wrong_type(key, &format!("a list of strings, such as [\"{noun}\"]"), value));
        };
        let text = |item: &Value<'_>| match item.get_ref() {
            DeValue::String(text) if !text.trim().is_empty() => Ok(text.clone().into_owned()),
            DeValue::String(_) => {
                Err(self.mistake(item.span(), format!("`{key}` has an empty string; expected a {noun}")))
            }
            _ => Err(self.wrong_type(&format!("a {noun} in {key}"), "a string", item)),
        };
        Ok(self.located(value, items.iter().map(text).collect::<Result<_, _>>()?))
    }

    fn wrong_type(&self, key: &str, expected: &str, found: &Value<'_>) -> Mistake {
        let key = shown(key);
        let kind = found.get_ref().type_str();
        let article = if kind.starts_with(['a', 'i']) { "an" } else { "a" };
        self.mistake(found.span(), format!("`{key}`: expected {expected}, found {article} {kind}"))
    }

    fn groups(&self) -> String {
        and(&self.groups.iter().map(|group| format!("`{group}`")).collect::<Vec<_>>())
    }

    fn located<T>(&self, of: &Value<'_>, value: T) -> Located<T> {
        Located { value, at: self.at(of.span()) }
    }

    fn mistake(&self, span: Range<usize>, message: String) -> Mistake {
        Mistake { at: self.at(span), message }
    }

    fn at(&self, span: Range<usize>) -> At {
        self.places.at(span.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUPS: [&str; 3] = ["codec.decoders", "device.backends", "device.kernels"];

    fn read(text: &str) -> Document {
        parse(text, &GROUPS).unwrap_or_else(|mistake| panic!("{text}: {mistake:?}"))
    }

    fn mistake(text: &str) -> String {
        let Mistake { at, message } = parse(text, &GROUPS).expect_err(text);
        format!("{}:{}: {message}", at.line, at.column)
    }

    #[test]
    fn an_unknown_key_or_group_says_what_exists_and_which_is_nearest() {
        let groups = "`codec.decoders`, `device.backends` and `device.kernels`";
        let keys = "`autoload`, `installed`, `disable`, `select` and `options`";
        for (text, expected) in [
            (
                "\ndefualt = \"cpu\"",
                format!(
                    "2:1: unknown key `defualt`; did you mean `default`?; expected `default`, `plugins` or the table \
                     of a group: {groups}"
                ),
            ),
            (
                "[device.backend]\ndisable = []",
                format!(
                    "1:9: unknown group `device.backend`; did you mean `device.backends`?; the groups of this program \
                     are {groups}"
                ),
            ),
            (
                "[nosuch]\ndisable = []",
                format!("1:2: unknown group `nosuch`; the groups of this program are {groups}"),
            ),
            (
                "[device]\nautoload = false",
                format!("2:1: unknown group `device`; the groups of this program are {groups}"),
            ),
            ("[device]", format!("1:2: unknown group `device`; the groups of this program are {groups}")),
            (
                "[\"device.kernel\".options.x]\ny = 1",
                format!(
                    "1:2: unknown group `device.kernel`; did you mean `device.kernels`?; the groups of this program \
                     are {groups}"
                ),
            ),
            (
                "[device.backends]\n  autolaod = false",
                format!(
                    "2:3: unknown key `autolaod` of the group `device.backends`; did you mean `autoload`?; the keys \
                     are {keys}"
                ),
            ),
            (
                "[device.backends.openreg]\ndevices = 4",
                format!("1:18: unknown key `openreg` of the group `device.backends`; the keys are {keys}"),
            ),
        ] {
            assert_eq!(mistake(text), expected);
        }
    }

    #[test]
    fn a_value_of_another_type_says_what_is_expected() {
        for (text, expected) in [
            (
                "default = 4",
                "1:11: `default`: expected a list of devices, such as \"*:gpu,cpu\", found an integer",
            ),
            ("default = [\"cpu\", 4]", "1:19: `a device in default`: expected a string, found an integer"),
            ("default = [\"\"]", "1:12: `default` has an empty string; expected a device"),
            (
                "plugins = \"/opt\"",
                "1:11: `plugins`: expected a list of strings, such as [\"folder\"], found a string",
            ),
            (
                "[device.backends]\nautoload = \"off\"",
                "2:12: `autoload`: expected true or false, found a string",
            ),
            (
                "[device.backends]\ninstalled = 0",
                "2:13: `installed`: expected true or false, found an integer",
            ),
            (
                "[device.kernels]\ndisable = \"a,b\"",
                "2:11: `disable`: expected a list of strings, such as [\"pattern\"], found a string",
            ),
            (
                "[device.kernels]\nselect = [\"a\",\n 1.5]",
                "3:2: `a pattern in select`: expected a string, found a float",
            ),
            ("[device.kernels]\noptions = []", "2:11: `options`: expected a table, found an array"),
            (
                "[device.kernels.options]\na.b = [1]",
                "2:7: `a.b`: expected a string, a number or a boolean, found an array",
            ),
            (
                "[device.kernels.options]\na.b = 1979-05-27",
                "2:7: `a.b`: expected a string, a number or a boolean, found a datetime",
            ),
            (
                "[device.kernels.options]\na.b = 0xffffffffffffffff",
                "2:7: `a.b`: expected a number below 2^63, found an integer",
            ),
            (
                "[device.kernels.options]\ndevices = 4",
                "2:1: `devices` is no option; expected the name of an entry and of its option, such as \
                 `openreg.devices = 4`",
            ),
        ] {
            assert_eq!(mistake(text), expected);
        }
    }

    #[test]
    fn what_is_no_toml_has_its_place() {
        for (text, at) in [("a = ", "1:5: "), ("\n[device.backends", "2:17: "), ("x = \"\u{e9}\" y", "1:9: ")]
        {
            let message = mistake(text);
            assert!(message.starts_with(at) && !message.contains('\n'), "{message}");
        }
        assert!(mistake("default = \"a\"\ndefault = \"b\"").starts_with("2:1: duplicate key"));
        // As deep as a file may be.
        mistake(&format!("x = {}", "[".repeat(100_000)));
    }

    #[test]
    fn what_a_file_says_twice_is_a_mistake() {
        assert_eq!(
            mistake("[\"device.kernels\"]\n[device.kernels]"),
            "1:2: the group `device.kernels` is also in line 2"
        );
        assert_eq!(
            mistake("[device.kernels.options]\na.b = 1\n\"a.b\" = 2"),
            "3:9: the option `a.b` is also in line 2"
        );
    }

    #[test]
    fn every_value_has_its_line() {
        let document = read(
            "# All of it.\n\
             default = [\"*:gpu\", \"!wgpu\", \"cpu\"]\n\
             plugins = [\"backends\"]\n\
             device.kernels.select = [\"a\"]\n\
             codec.decoders.autoload = false\n\
             [device.backends]\n\
             disable = [\n  \"wgpu\",\n]\n\
             options.openreg.devices = 0x04\n\
             options.\"net.servers\" = 'a:1;b:2'\n\
             [device.backends.options.other]\n\
             exact = true\n\
             ratio = +1_0.5\n",
        );
        assert_eq!(
            document.default,
            Some(Located { value: "*:gpu,!wgpu,cpu".to_owned(), at: At { line: 2, column: 11 } })
        );
        assert_eq!(document.plugins.unwrap().value, ["backends"]);
        let names: Vec<_> = document.groups.iter().map(|group| (group.name, group.at.line)).collect();
        assert_eq!(names, [("device.kernels", 4), ("codec.decoders", 5), ("device.backends", 6)]);
        assert_eq!(document.groups[1].autoload.as_ref().map(|flag| flag.value), Some(false));
        let disable = document.groups[2].disable.as_ref().unwrap();
        assert_eq!((&*disable.value, disable.at.line), (&["wgpu".to_owned()][..], 7));
        let options: Vec<_> = document.groups[2]
            .options
            .iter()
            .map(|option| (&*option.name, &*option.option, &*option.value.value, option.value.at.line))
            .collect();
        assert_eq!(
            options,
            [
                ("openreg", "devices", "4", 10),
                ("net", "servers", "a:1;b:2", 11),
                ("other", "exact", "true", 13),
                ("other", "ratio", "10.5", 14),
            ]
        );
    }

    /// Both forms, in lines of their own and in one. It took minutes when each looked at all before it.
    #[test]
    fn a_file_as_long_as_may_be_takes_no_time() {
        let mut lines = "[device.kernels.options]\n".to_owned();
        (0..30_000).for_each(|number| lines += &format!("a.o{number} = {number}\n"));
        let one_line: String = (0..30_000).map(|number| format!("o{number}=\"é\",")).collect();
        let text = format!("{lines}\n[device.backends.options]\na = {{{}}}", one_line.trim_end_matches(','));
        let begin = std::time::Instant::now();
        let document = read(&text);
        assert_eq!(document.groups.iter().map(|group| group.options.len()).sum::<usize>(), 60_000);
        assert!(begin.elapsed().as_secs() < 10, "{:?}", begin.elapsed());
    }

    #[test]
    fn an_empty_file_says_nothing() {
        let document = read("# nothing\n");
        assert!(document.default.is_none() && document.plugins.is_none() && document.groups.is_empty());
    }
}
