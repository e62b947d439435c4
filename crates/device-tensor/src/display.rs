//! A tensor as text, laid out as PyTorch does.
//!
//! Elements are aligned to the right; lines hold 80 characters; of more than 1000 elements only the first and the
//! last three of each dimension are shown. The dtype is shown unless it is the one that a literal has by itself:
//! in Rust that is `i32`, where PyTorch has `int64`. dtypes have the names of the Rust types.

use std::fmt::{self, Write as _};

use crate::{DType, Element, Tensor, TensorError};

const LINE_WIDTH: usize = 80;
const SUMMARIZE_ABOVE: usize = 1000;
/// How many elements are shown at each end of a dimension that is summarized.
const EDGE: usize = 3;
const PREFIX: &str = "tensor(";

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not `fmt::Error`, which would make `to_string` panic for what a device did.
        let (elements, unread) = match texts(self) {
            Ok(texts) => (layout(&texts, self.shape()), false),
            Err(error) => (format!("<not readable: {error}>"), true),
        };
        let mut suffixes = Vec::new();
        if !self.device().is_cpu() {
            suffixes.push(format!("device='{}'", self.device()));
        }
        if self.is_empty() && self.shape().len() != 1 {
            suffixes.push(format!("size={}", Tuple(self.shape())));
        }
        if self.is_empty() || unread || !matches!(self.dtype(), DType::I32 | DType::Bool) {
            suffixes.push(format!("dtype={}", self.dtype()));
        }
        f.write_str(&with_suffixes(format!("{PREFIX}{elements}"), &suffixes))
    }
}

fn texts(tensor: &Tensor) -> Result<Vec<String>, TensorError> {
    fn of<T: Element>(tensor: &Tensor, text: impl Fn(T) -> String) -> Result<Vec<String>, TensorError> {
        Ok(tensor.to_vec()?.into_iter().map(text).collect())
    }
    match tensor.dtype() {
        DType::Bool => of(tensor, |element: bool| if element { "True" } else { "False" }.to_owned()),
        DType::U8 => of(tensor, |element: u8| element.to_string()),
        DType::I8 => of(tensor, |element: i8| element.to_string()),
        DType::I16 => of(tensor, |element: i16| element.to_string()),
        DType::I32 => of(tensor, |element: i32| element.to_string()),
        DType::I64 => of(tensor, |element: i64| element.to_string()),
    }
}

/// The elements between brackets, without prefix and suffixes.
fn layout(texts: &[String], shape: &[usize]) -> String {
    let layout = Layout { summarize: texts.len() > SUMMARIZE_ABOVE };
    let shown = layout.shown(texts, shape);
    let width = shown.iter().map(|text| text.len()).max().unwrap_or(0);
    let mut out = String::new();
    layout.write(&mut out, texts, shape, width, PREFIX.len());
    out
}

struct Layout {
    summarize: bool,
}

impl Layout {
    /// The places in a dimension that are shown, and where `...` stands for the rest.
    fn places(&self, len: usize) -> Vec<Option<usize>> {
        if self.summarize && len > 2 * EDGE {
            let (start, end) = ((0..EDGE).map(Some), (len - EDGE..len).map(Some));
            start.chain([None]).chain(end).collect()
        } else {
            (0..len).map(Some).collect()
        }
    }

    /// The elements that are shown: only these decide on the width of all.
    fn shown<'a>(&self, texts: &'a [String], shape: &[usize]) -> Vec<&'a String> {
        let Some((&len, inner)) = shape.split_first() else {
            return texts.iter().collect();
        };
        let rows = self.places(len).into_iter().flatten();
        rows.flat_map(|row| self.shown(row_of(texts, len, row), inner)).collect()
    }

    fn write(&self, out: &mut String, texts: &[String], shape: &[usize], width: usize, indent: usize) {
        let Some((&len, inner)) = shape.split_first() else {
            return texts.iter().for_each(|text| out.push_str(text));
        };
        if inner.is_empty() {
            return self.write_vector(out, texts, width, indent);
        }
        out.push('[');
        if !texts.is_empty() {
            let separator = format!(",{}{}", "\n".repeat(inner.len()), " ".repeat(indent + 1));
            for (at, row) in self.places(len).into_iter().enumerate() {
                if at > 0 {
                    out.push_str(&separator);
                }
                match row {
                    Some(row) => self.write(out, row_of(texts, len, row), inner, width, indent + 1),
                    None => out.push_str("..."),
                }
            }
        }
        out.push(']');
    }

    fn write_vector(&self, out: &mut String, texts: &[String], width: usize, indent: usize) {
        let per_line = (LINE_WIDTH.saturating_sub(indent) / (width + 2)).max(1);
        out.push('[');
        for (at, place) in self.places(texts.len()).into_iter().enumerate() {
            match at {
                0 => {}
                _ if at % per_line == 0 => {
                    out.push_str(",\n");
                    out.push_str(&" ".repeat(indent + 1));
                }
                _ => out.push_str(", "),
            }
            match place {
                Some(place) => {
                    let _ = write!(out, "{:>width$}", texts[place]);
                }
                None => out.push_str(" ..."),
            }
        }
        out.push(']');
    }
}

/// One of `len` equal rows.
fn row_of(texts: &[String], len: usize, row: usize) -> &[String] {
    let size = texts.len() / len;
    &texts[row * size..(row + 1) * size]
}

/// Appends the suffixes and the bracket, each suffix on a line of its own if it does not fit.
fn with_suffixes(mut text: String, suffixes: &[String]) -> String {
    // The odd count is PyTorch's (`len - rfind("\n") + 1`, where `rfind` gives -1 for none); with it, lines break
    // where PyTorch breaks them.
    let mut last_line = text.rfind('\n').map_or(text.len() + 2, |newline| text.len() - newline + 1);
    for suffix in suffixes {
        if last_line + suffix.len() + 2 > LINE_WIDTH {
            let _ = write!(text, ",\n{}{suffix}", " ".repeat(PREFIX.len()));
            last_line = PREFIX.len() + suffix.len();
        } else {
            let _ = write!(text, ", {suffix}");
            last_line += suffix.len() + 2;
        }
    }
    text.push(')');
    text
}

/// A shape as Python writes it: `()`, `(1,)`, `(2, 3)`.
struct Tuple<'a>(&'a [usize]);

impl fmt::Display for Tuple<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [one] => write!(f, "({one},)"),
            lengths => {
                let lengths: Vec<_> = lengths.iter().map(ToString::to_string).collect();
                write!(f, "({})", lengths.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use device_registry::Device;

    use super::*;
    use crate::Data;

    fn shown(data: impl Data) -> String {
        Tensor::new(data, Device::cpu()).unwrap().to_string()
    }

    #[test]
    fn small_tensors_are_one_line() {
        assert_eq!(shown(7), "tensor(7)");
        assert_eq!(shown([1, 2, 3]), "tensor([1, 2, 3])");
        assert_eq!(shown([-1, 10]), "tensor([-1, 10])");
        assert_eq!(shown([true, false]), "tensor([ True, False])");
    }

    #[test]
    fn a_dtype_that_no_literal_has_by_itself_is_shown() {
        assert_eq!(shown([1_i64]), "tensor([1], dtype=i64)");
        assert_eq!(shown(255_u8), "tensor(255, dtype=u8)");
    }

    #[test]
    fn rows_stand_below_each_other() {
        assert_eq!(
            shown([[1, 2], [30, 4]]),
            "\
tensor([[ 1,  2],
        [30,  4]])"
        );
        assert_eq!(
            shown([[[1], [2]], [[3], [4]]]),
            "\
tensor([[[1],
         [2]],

        [[3],
         [4]]])"
        );
    }

    #[test]
    fn long_lines_are_broken_at_80_characters() {
        assert_eq!(
            shown((0..40).collect::<Vec<i32>>()),
            "\
tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,
        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35,
        36, 37, 38, 39])"
        );
    }

    #[test]
    fn more_than_a_thousand_elements_are_summarized() {
        assert_eq!(
            shown((0..1001).collect::<Vec<i32>>()),
            "tensor([   0,    1,    2,  ...,  998,  999, 1000])"
        );
        assert_eq!(
            shown([[1; 200]; 7]),
            "\
tensor([[1, 1, 1,  ..., 1, 1, 1],
        [1, 1, 1,  ..., 1, 1, 1],
        [1, 1, 1,  ..., 1, 1, 1],
        ...,
        [1, 1, 1,  ..., 1, 1, 1],
        [1, 1, 1,  ..., 1, 1, 1],
        [1, 1, 1,  ..., 1, 1, 1]])"
        );
    }

    #[test]
    fn tensors_without_elements_show_their_type_and_perhaps_their_size() {
        assert_eq!(shown([0; 0]), "tensor([], dtype=i32)");
        assert_eq!(shown([[0_u8; 0]; 2]), "tensor([], size=(2, 0), dtype=u8)");
    }

    #[test]
    fn a_suffix_that_does_not_fit_has_a_line_of_its_own() {
        let suffixes = ["device='acme:0'".to_owned(), "dtype=i64".to_owned()];
        assert_eq!(
            with_suffixes("tensor([1]".to_owned(), &suffixes),
            "tensor([1], device='acme:0', dtype=i64)"
        );
        let long = format!("tensor([{}]", "1".repeat(60));
        assert_eq!(
            with_suffixes(long.clone(), &suffixes),
            format!("{long},\n       device='acme:0', dtype=i64)")
        );
    }
}
