//! The report of a group: its entry points and their states.

use std::fmt;
use std::path::Path;

use crate::group_name::GroupName;
use crate::message::shown_path;
use crate::options::OptionValue;
use crate::state::State;

/// Every entry point of a group with its state, as data. `Display` prints an aligned table.
///
/// ```
/// use entry_points::{EntryPoint, Group};
///
/// static LEVELS: Group<u8> = Group::new("example.levels");
/// static HIGH: EntryPoint<u8> = EntryPoint::new("high", || Ok(Box::new(9))).in_package("levels", "0.1.0");
/// LEVELS.register(&HIGH)?;
///
/// let table = "\
/// example.levels: 1 entry point
///   name  package  version  state
///   high  levels   0.1.0    linked";
/// assert_eq!(LEVELS.report().to_string(), table);
/// # Ok::<(), entry_points::RegisterError>(())
/// ```
///
/// With the feature `serde` a report can be serialized. The JSON of the one above has all fields of [`Row`]:
///
/// ```json
/// {
///   "group": "example.levels",
///   "interface": "u8",
///   "entries": [
///     {
///       "name": "high",
///       "package": "levels",
///       "version": "0.1.0",
///       "value": null,
///       "declared_at": "src/lib.rs:4",
///       "file": null,
///       "built_in": false,
///       "state": { "kind": "linked" },
///       "options": []
///     }
///   ],
///   "notes": [],
///   "advice": null
/// }
/// ```
///
/// | `kind` of a state | further fields |
/// |---|---|
/// | `linked`, `installed` | |
/// | `disabled` | `by`: the switch |
/// | `loading` | `elapsed`, in seconds |
/// | `loaded` | `took`, in seconds |
/// | `unavailable`, `failed` | `errors`: the message of the error, and of each cause |
/// | `duplicate` | `of`: the packages of the others |
///
/// An option has `name`, `value` and `set_by`: the variable that set it, the origin of a
/// [default](crate::Defaults), or null for the program. Later versions may add fields and kinds.
#[derive(Clone, Debug)]
pub struct Report {
    pub(crate) group: &'static GroupName,
    pub(crate) interface: &'static str,
    pub(crate) rows: Vec<Row>,
    pub(crate) notes: Vec<String>,
    pub(crate) advice: Option<String>,
    pub(crate) without_block: Vec<&'static str>,
}

/// One entry point in a [`Report`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Row {
    /// The name.
    pub name: &'static str,
    /// The package that declares it, if known.
    pub package: Option<&'static str>,
    /// The version of that package, if known.
    pub version: Option<&'static str>,
    /// The Rust path of its `load` function, if known.
    pub value: Option<&'static str>,
    /// The place in the source code that declares it, as `file:line`.
    pub declared_at: String,
    /// The file that it is in, if it was [installed](crate::Group::install).
    pub file: Option<&'static Path>,
    /// Whether the group itself declares it.
    pub built_in: bool,
    /// The state of the entry point.
    pub state: State,
    /// The options that are set, each with where it was set, in the order of their declaration. Values are
    /// shown as they are, so do not put a secret in an option.
    pub options: Vec<OptionValue>,
}

impl Report {
    /// The group's name.
    #[must_use]
    pub fn group(&self) -> &'static str {
        self.group.name
    }

    /// The type of the group's plugins, such as `dyn codec::Decoder`: for people, since the compiler chooses
    /// how it writes a type.
    #[must_use]
    pub fn interface(&self) -> &'static str {
        self.interface
    }

    /// One row for each entry point, sorted by name. A name that several packages claim has several rows.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Probable mistakes, each with its remedy: a switch that matches nothing, an option that no entry point
    /// has, a collector that does not work. Also what [`Group::add_note`](crate::Group::add_note) was given.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Why an entry point may be missing from the rows: which crates `autoload!` links, or that the program
    /// has no such line. This is not a mistake in itself: a program may name its plugins by hand. `None` for
    /// a group that collects nothing, and where no collector works, which has a note.
    #[must_use]
    pub fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
    }

    /// The crates that an `autoload!` line links and that have no `entry_points!` block in this build, by
    /// their names in code, sorted: crates that are not plugins, and plugins whose feature is off.
    #[must_use]
    pub fn without_block(&self) -> &[&'static str] {
        &self.without_block
    }

    /// At most `most` rows, and the number of further ones: for messages.
    pub(crate) fn fmt_rows(&self, f: &mut fmt::Formatter<'_>, most: usize) -> fmt::Result {
        let shown = &self.rows[..self.rows.len().min(most)];
        write!(f, "{}", self.group.count(self.rows.len()))?;
        let cells = shown.iter().map(|row| {
            let package = row.package.unwrap_or(&row.declared_at);
            [row.name, package, row.version.unwrap_or("-")]
        });
        let header = ["name", "package", "version"];
        let mut widths = header.map(str::len);
        for cells in cells.clone() {
            widths = std::array::from_fn(|column| widths[column].max(cells[column].chars().count()));
        }
        let line = |f: &mut fmt::Formatter<'_>, [name, package, version]: [&str; 3], state: &str| {
            let [a, b, c] = widths;
            // A state may quote a message of several lines; the table keeps one line a row.
            let state: Vec<&str> = state.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            let state = state.join(" / ");
            write!(f, "\n  {name:a$}  {package:b$}  {version:c$}  {state}")
        };
        if !shown.is_empty() {
            line(f, header, "state")?;
        }
        for (cells, row) in cells.zip(shown) {
            let built_in = if row.built_in { "built in, " } else { "" };
            let state = match row.state {
                State::Linked if row.built_in => "built in".to_owned(),
                _ => format!("{built_in}{}", row.state),
            };
            let options: Vec<_> = row.options.iter().map(ToString::to_string).collect();
            let options = match &options[..] {
                [] => String::new(),
                some => format!("; options: {}", some.join(", ")),
            };
            let file = row.file.map(|file| format!("; file: {}", shown_path(file)));
            line(f, cells, &format!("{state}{}{options}", file.unwrap_or_default()))?;
        }
        match self.rows.len() - shown.len() {
            0 => {}
            more => write!(f, "\n  … and {more} more")?,
        }
        self.notes.iter().chain(&self.advice).try_for_each(|note| write!(f, "\nnote: {note}"))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_rows(f, usize::MAX)
    }
}
