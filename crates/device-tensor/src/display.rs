//! A tensor as text, laid out as PyTorch does with its default options (`torch/_tensor_str.py`).
//!
//! The README has the rules. This file writes the suffixes, `layout` chooses and places the elements, and
//! `format` writes each element.

mod format;
mod layout;

use std::fmt::{self, Write as _};
use std::ops::Range;

use half::{bf16, f16};

use self::format::Texts;
use self::layout::Layout;
use crate::{DType, Element, Tensor, TensorError};

const LINE_WIDTH: usize = 80;
const PREFIX: &str = "tensor(";

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not `fmt::Error`: with it, `to_string` would panic at an error of the device.
        let (elements, unread) = match body(self) {
            Ok(body) => (body, false),
            Err(error) => (format!("<not readable: {error}>"), true),
        };
        // Without elements, `f64` is the only default dtype, as is the default of floats in PyTorch.
        let is_default = match self.dtype() {
            DType::F64 => !unread,
            DType::I32 | DType::Bool => !unread && !self.is_empty(),
            _ => false,
        };
        let mut suffixes = Vec::new();
        if !self.device().is_cpu() {
            suffixes.push(format!("device='{}'", self.device()));
        }
        if self.is_empty() && self.shape().len() != 1 {
            let lengths: Vec<_> = self.shape().iter().map(ToString::to_string).collect();
            suffixes.push(format!("size=({})", lengths.join(", ")));
        }
        if !is_default {
            suffixes.push(format!("dtype={}", self.dtype()));
        }
        f.write_str(&with_suffixes(format!("{PREFIX}{elements}"), &suffixes))
    }
}

/// The elements, without prefix and suffixes.
fn body(tensor: &Tensor) -> Result<String, TensorError> {
    if tensor.is_empty() {
        return Ok("[]".to_owned());
    }
    let layout = Layout::new(tensor.shape());
    Ok(layout.write(&texts(tensor, &layout.shown())?, PREFIX.len()))
}

fn texts(tensor: &Tensor, shown: &[Range<usize>]) -> Result<Texts, TensorError> {
    fn floats<T: Element>(elements: Vec<T>, value: fn(T) -> f64) -> Texts {
        Texts::of_floats(&elements.into_iter().map(value).collect::<Vec<_>>())
    }
    Ok(match tensor.dtype() {
        DType::Bool => {
            let elements = tensor.read::<bool>(shown)?.into_iter();
            Texts::of_words(elements.map(|element| if element { "True" } else { "False" }))
        }
        DType::U8 => Texts::of_words(tensor.read::<u8>(shown)?),
        DType::I8 => Texts::of_words(tensor.read::<i8>(shown)?),
        DType::I16 => Texts::of_words(tensor.read::<i16>(shown)?),
        DType::I32 => Texts::of_words(tensor.read::<i32>(shown)?),
        DType::I64 => Texts::of_words(tensor.read::<i64>(shown)?),
        DType::F16 => floats(tensor.read::<f16>(shown)?, f16::to_f64),
        DType::BF16 => floats(tensor.read::<bf16>(shown)?, bf16::to_f64),
        DType::F32 => floats(tensor.read::<f32>(shown)?, f64::from),
        DType::F64 => Texts::of_floats(&tensor.read::<f64>(shown)?),
    })
}

/// Appends the suffixes and the bracket, each suffix on its own line if it does not fit.
fn with_suffixes(mut text: String, suffixes: &[String]) -> String {
    // The odd count is PyTorch's (`len - rfind("\n") + 1`, where `rfind` gives -1 for none); with it, lines
    // break where PyTorch breaks them.
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

#[cfg(test)]
mod tests {
    use device_registry::Device;

    use super::*;
    use crate::Data;

    fn shown(data: impl Data) -> String {
        Tensor::new(data, Device::cpu()).unwrap().to_string()
    }

    // The workspace's tests compare the printed text with PyTorch's in detail.

    #[test]
    fn a_dtype_that_no_literal_has_by_itself_is_shown() {
        assert_eq!(shown([1, 2, 3]), "tensor([1, 2, 3])");
        assert_eq!(shown([0.5, 2.0]), "tensor([0.5000, 2.0000])");
        assert_eq!(shown([true, false]), "tensor([ True, False])");
        assert_eq!(shown([1_i64]), "tensor([1], dtype=i64)");
        assert_eq!(shown(f16::from_f32(2.0)), "tensor(2., dtype=f16)");
    }

    #[test]
    fn more_than_a_thousand_elements_are_summarized() {
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
        assert_eq!(shown([0.0; 0]), "tensor([])");
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
