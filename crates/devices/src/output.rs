//! What is printed: tables and styles for people, or JSON.

use std::fmt::Display;
use std::io::{self, Write};

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

    pub(crate) fn table(&mut self, table: &Table) -> io::Result<()> {
        for (number, row) in table.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let style = if number == 0 { BOLD } else { cell.style };
                let width = table.widths[column];
                let space = width - cell.text.chars().count();
                let (before, behind) = if table.right.contains(&column) { (space, 0) } else { (0, space) };
                line += &" ".repeat(before);
                line += &styled(style, &cell.text).to_string();
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
}

impl Table {
    pub(crate) fn new<const N: usize>(titles: [&str; N], right: &'static [usize]) -> Self {
        let mut table = Self { rows: Vec::new(), widths: vec![0; N], right };
        table.row(titles.map(Cell::from));
        table
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
    fn a_cell_cannot_write_to_the_terminal() {
        assert_eq!(Cell::from("a\x1b[2J\nb\u{202e}").text, "a\\u{1b}[2J\\nb\\u{202e}");
        assert_eq!(outside("a\nb\x07"), "a\nb\\u{7}");
    }
}
