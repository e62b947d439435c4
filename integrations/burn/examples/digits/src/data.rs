//! The digits, read from a compressed file that the program carries.

use std::io::Read;

use burn::data::dataset::{Dataset, DatasetError};
use flate2::read::GzDecoder;

/// Width and height of a digit in pixels.
pub const SIDE: usize = 8;
/// Pixels of a digit.
pub const PIXELS: usize = SIDE * SIDE;
/// The largest pixel value; 0 is the paper.
pub const MAX_PIXEL: u8 = 16;
/// Classes: the digits 0 to 9.
pub const CLASSES: usize = 10;
/// One digit in so many is held out of the training.
pub const HELD_OUT: usize = 5;

/// `data/DATA.md` describes the file.
const COMPRESSED: &[u8] = include_bytes!("../data/digits.csv.gz");

/// One handwritten digit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digit {
    /// The pixels, row by row from the top left, each between 0 and [`MAX_PIXEL`].
    pub pixels: [u8; PIXELS],
    /// The digit that the writer wrote, between 0 and 9.
    pub label: u8,
}

/// A list of digits that burn's data loaders accept.
#[derive(Clone, Debug, Default)]
pub struct Digits(Vec<Digit>);

/// Why the digits cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The file is not gzip, or its text is not UTF-8.
    #[error("cannot decompress the digits")]
    Decompress(#[source] std::io::Error),
    /// A line is not a digit.
    #[error("line {line} of the digits: {problem}")]
    Line {
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        problem: LineProblem,
    },
}

/// What is wrong with one line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineProblem {
    /// The line has too few or too many values.
    #[error("expected {expected} values, found {found}", expected = PIXELS + 1)]
    Count {
        /// How many values it has.
        found: usize,
    },
    /// A value is not a number, or it is out of range.
    #[error("expected a number between 0 and {max} in column {column}, found `{found}`")]
    Value {
        /// The column, counted from 1.
        column: usize,
        /// The largest value that this column may have.
        max: u8,
        /// The text in the file.
        found: String,
    },
}

impl Digits {
    /// All digits, in the order of the file.
    pub fn load() -> Result<Self, DataError> {
        let mut text = String::new();
        GzDecoder::new(COMPRESSED).read_to_string(&mut text).map_err(DataError::Decompress)?;
        Self::parse(&text)
    }

    /// Reads lines of 64 pixels and a label, separated by commas.
    ///
    /// Accepts nothing else: no header, no empty line, no spaces and no value out of range.
    pub fn parse(text: &str) -> Result<Self, DataError> {
        let lines = text.lines().enumerate();
        lines
            .map(|(index, line)| digit(line).map_err(|problem| DataError::Line { line: index + 1, problem }))
            .collect::<Result<Vec<_>, _>>()
            .map(Self)
    }

    /// The training digits and the held-out digits: every fifth of the file. Both are by the same 13 people,
    /// in the order of the file.
    ///
    /// The split does not depend on the seed, so that the accuracies of different runs compare.
    pub fn split(self) -> (Self, Self) {
        let (mut training, mut held_out) = (Vec::new(), Vec::new());
        for (place, digit) in self.0.into_iter().enumerate() {
            if place % HELD_OUT == HELD_OUT - 1 { held_out.push(digit) } else { training.push(digit) }
        }
        (Self(training), Self(held_out))
    }

    /// The digits as a slice.
    pub fn as_slice(&self) -> &[Digit] {
        &self.0
    }
}

impl Dataset<Digit> for Digits {
    fn get(&self, index: usize) -> Result<Digit, DatasetError> {
        Ok(self.0[index].clone())
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

fn digit(line: &str) -> Result<Digit, LineProblem> {
    let found = line.split(',').count();
    if found != PIXELS + 1 {
        return Err(LineProblem::Count { found });
    }
    let mut digit = Digit { pixels: [0; PIXELS], label: 0 };
    for (index, text) in line.split(',').enumerate() {
        let (place, max) = match digit.pixels.get_mut(index) {
            Some(pixel) => (pixel, MAX_PIXEL),
            None => (&mut digit.label, CLASSES as u8 - 1),
        };
        *place = number(text).filter(|value| *value <= max).ok_or_else(|| LineProblem::Value {
            column: index + 1,
            max,
            found: text.to_owned(),
        })?;
    }
    Ok(digit)
}

/// `str::parse` alone also accepts a leading `+`.
fn number(text: &str) -> Option<u8> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}
