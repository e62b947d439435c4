//! What the command prints of one file: facts, and below them the problems.

use std::collections::HashSet;
use std::fmt::{self, Write as _};

/// Facts are this wide, unless a word is longer.
const WIDTH: usize = 100;

/// What is printed of one file.
#[derive(Debug, Default)]
pub(super) struct Page {
    text: String,
    findings: Vec<Finding>,
}

/// Something that an author should know.
#[derive(Debug)]
struct Finding {
    level: Level,
    text: String,
    /// What to do.
    help: String,
    /// Whether other pages may have it too.
    is_shared: bool,
}

/// How bad it is. Only problems change the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// A program cannot use the library, or not as the manifest says.
    Problem,
    /// It works here, and may not elsewhere.
    Warning,
    /// It can be better.
    Note,
}

impl Page {
    pub(super) fn new(title: impl Into<String>) -> Self {
        Self { text: title.into() + "\n", findings: Vec::new() }
    }

    /// A fact, in one line or, if it is long, in several.
    pub(super) fn fact(&mut self, name: &str, value: impl fmt::Display) {
        let mut line = format!("  {name:<9}");
        let mut is_empty = true;
        for word in value.to_string().split(' ') {
            if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
                self.text += &line;
                self.text.push('\n');
                line = " ".repeat(11);
            }
            line.push(' ');
            line += word;
            is_empty = false;
        }
        self.text += &line;
        self.text.push('\n');
    }

    pub(super) fn find(&mut self, level: Level, text: impl Into<String>, help: impl Into<String>) {
        self.findings.push(Finding { level, text: text.into(), help: help.into(), is_shared: false });
    }

    pub(super) fn problem(&mut self, text: impl Into<String>, help: impl Into<String>) {
        self.find(Level::Problem, text, help);
    }

    /// Adds a problem that concerns more than this file. Only the first page that has it prints it.
    pub(super) fn shared_problem(&mut self, text: String) {
        self.findings.push(Finding { level: Level::Problem, text, help: String::new(), is_shared: true });
    }

    /// The text of the page. Adds its problems to the count, and its shared ones to those that were printed.
    pub(super) fn finish(mut self, shared: &mut HashSet<String>, problems: &mut usize) -> String {
        self.findings.sort_by_key(|finding| finding.level);
        for Finding { level, text, help, is_shared } in self.findings {
            if is_shared && !shared.insert(text.clone()) {
                continue;
            }
            let name = match level {
                Level::Problem => "problem",
                Level::Warning => "warning",
                Level::Note => "note",
            };
            *problems += usize::from(level == Level::Problem);
            // Writing to a `String` cannot fail.
            let _ = writeln!(self.text, "{name}: {text}");
            for line in help.lines() {
                let _ = writeln!(self.text, "  help: {line}");
            }
        }
        self.text
    }
}

/// The last line.
pub(super) fn summary(problems: usize) -> String {
    match problems {
        0 => "no problems found".to_owned(),
        1 => "1 problem".to_owned(),
        many => format!("{many} problems"),
    }
}
