//! What is printed: tables and styles for people, or JSON.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

pub(crate) const RED: Style = AnsiColor::Red.on_default().bold();
pub(crate) const GREEN: Style = AnsiColor::Green.on_default();
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default();
pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const PLAIN: Style = Style::new();

/// Standard output. Styles are left out where it is no terminal, or `NO_COLOR` is set.
pub(crate) struct Output {
    stream: anstream::AutoStream<io::Stdout>,
    json: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { stream: anstream::stdout(), json }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    pub(crate) fn line(&mut self, text: impl Display) -> io::Result<()> {
        writeln!(self.stream, "{text}")
    }

    pub(crate) fn heading(&mut self, text: &str) -> io::Result<()> {
        self.line(format_args!("\n{}", styled(BOLD, text)))
    }

    pub(crate) fn document(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut self.stream, value)?;
        self.line("")
    }

    /// How many columns a terminal has. Elsewhere a line may be of any length.
    fn width(&self) -> Option<usize> {
        if !io::stdout().is_terminal() {
            return None;
        }
        terminal_size::terminal_size().map(|(width, _)| width.0.into())
    }

    /// A text in lines that fit a terminal, all but the first after some spaces.
    pub(crate) fn paragraph(&mut self, text: &str, indent: usize) -> io::Result<()> {
        let spaces = " ".repeat(indent);
        for (number, line) in text.lines().enumerate() {
            let first = if number == 0 { "" } else { &spaces };
            let options = textwrap::Options::new(self.width().unwrap_or(usize::MAX).max(20));
            let options = options.initial_indent(first).subsequent_indent(&spaces).break_words(false);
            for part in textwrap::wrap(line, options) {
                self.line(part)?;
            }
        }
        Ok(())
    }

    /// Where a table is wider than the terminal, cells of its elastic columns end with `…`.
    pub(crate) fn table(&mut self, table: &Table) -> io::Result<()> {
        let widths = table.fitting(self.width());
        for (number, row) in table.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate().filter(|(column, _)| widths[*column] > 0) {
                let style = if number == 0 { BOLD } else { cell.style };
                let text = shortened(&cell.text, widths[column]);
                let space = widths[column] - text.chars().count();
                let (before, behind) = if table.right.contains(&column) { (space, 0) } else { (0, space) };
                line += &" ".repeat(before);
                line += &styled(style, &text).to_string();
                line += &" ".repeat(behind + 2);
            }
            self.line(line.trim_end())?;
        }
        Ok(())
    }
}

/// The text in a style.
pub(crate) fn styled(style: Style, text: &str) -> impl Display {
    format!("{}{text}{}", style.render(), style.render_reset())
}

/// Whether both are one file that is there.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// The text in so many characters.
pub(crate) fn shortened(text: &str, width: usize) -> Cow<'_, str> {
    if text.chars().count() <= width {
        return text.into();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Text from outside of this program, such as a driver's: it cannot write to the terminal by itself, nor turn
/// the direction of what follows. Lines stay.
pub(crate) fn outside(text: impl Display) -> String {
    let is_hostile = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut shown = String::new();
    for c in text.to_string().chars() {
        if is_hostile(c) { shown.extend(c.escape_unicode()) } else { shown.push(c) }
    }
    shown
}

/// A cell of a table.
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn styled(style: Style, text: impl Display) -> Self {
        Self { text: outside(text).replace('\n', "\\n"), style }
    }
}

impl<T: Display> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(PLAIN, text)
    }
}

/// Rows of cells. The first has the titles.
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
    widths: Vec<usize>,
    /// The columns that are aligned to the right.
    right: &'static [usize],
    /// The columns that may be shortened.
    elastic: &'static [usize],
}

/// Elastic columns that are not longer are short.
const SHORT: usize = 18;

/// Elastic columns are not made shorter.
const SHORTEST: usize = 8;

impl Table {
    pub(crate) fn new<const N: usize>(titles: [&str; N], right: &'static [usize]) -> Self {
        let mut table = Self { rows: Vec::new(), widths: vec![0; N], right, elastic: &[] };
        table.row(titles.map(Cell::from));
        table
    }

    /// The table, whose columns with these numbers are shortened where a terminal is narrower.
    pub(crate) fn elastic(mut self, columns: &'static [usize]) -> Self {
        self.elastic = columns;
        self
    }

    /// The widths of the columns in a terminal of this width: the longest elastic ones give way, and the last
    /// of them is left out where all would be short.
    fn fitting(&self, terminal: Option<usize>) -> Vec<usize> {
        let mut widths = self.widths.clone();
        let Some(terminal) = terminal else { return widths };
        let total = |widths: &[usize]| -> usize {
            widths.iter().filter(|width| **width > 0).map(|width| width + 2).sum()
        };
        // No spaces are behind the last column.
        while total(&widths) > terminal + 2 {
            let longest = self.elastic.iter().copied().max_by_key(|column| widths[*column]);
            let Some(longest) = longest.filter(|column| widths[*column] > SHORTEST) else { break };
            match self.elastic.last() {
                Some(&last) if widths[longest] == SHORT && widths[last] > 0 => {
                    widths.clone_from(&self.widths);
                    widths[last] = 0;
                }
                _ => widths[longest] -= 1,
            }
        }
        widths
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        assert_eq!(N, self.widths.len(), "each row has a cell for each title");
        for (width, cell) in self.widths.iter_mut().zip(&cells) {
            *width = (*width).max(cell.text.chars().count());
        }
        self.rows.push(cells.into());
    }
}

/// Bytes with three digits and a unit of 1024.
pub(crate) fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let exponent = (bytes.max(1).ilog2() / 10).min(units.len() as u32 - 1);
    let value = bytes as f64 / (1_u64 << (10 * exponent)) as f64;
    let digits = if value.fract() == 0.0 || value >= 100.0 { 0 } else { 1 };
    format!("{value:.digits$} {}", units[exponent as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_a_unit() {
        for (number, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (64 << 20, "64 MiB"),
            (12_844_007_424, "12.0 GiB"),
            (u64::MAX, "16777216 TiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
    }

    #[test]
    fn the_longest_elastic_columns_give_way_to_a_narrow_terminal() {
        let mut table = Table::new(["A", "B", "C"], &[]).elastic(&[1, 2]);
        table.row([Cell::from("x".repeat(30)), Cell::from("y".repeat(40)), Cell::from("z".repeat(20))]);
        assert_eq!(table.fitting(None), [30, 40, 20]);
        assert_eq!(table.fitting(Some(94)), [30, 40, 20]);
        assert_eq!(table.fitting(Some(80)), [30, 26, 20]);
        assert_eq!(table.fitting(Some(60)), [30, 28, 0]);
        assert_eq!(table.fitting(Some(48)), [30, 16, 0]);
        assert_eq!(table.fitting(Some(10)), [30, 8, 0]);
        assert_eq!(shortened("Portable Computing", 9), "Portable…");
        assert_eq!(shortened("é", 1), "é");
    }

    #[test]
    fn a_cell_cannot_write_to_the_terminal() {
        assert_eq!(Cell::from("a\x1b[2J\nb\u{202e}").text, "a\\u{1b}[2J\\nb\\u{202e}");
        assert_eq!(outside("a\nb\x07"), "a\nb\\u{7}");
    }
}
