//! A printed tensor, read again.

use device_tensor::DType;

use super::element::Number;

/// More elements than this are not all shown, but three at each end of a longer dimension.
const SUMMARIZE_ABOVE: usize = 1000;
const EDGE: usize = 3;

/// The text between the parentheses of `tensor(…)`.
pub(super) struct Printed<'a> {
    /// Brackets, commas, dots and elements, in their order.
    words: Vec<&'a str>,
    suffixes: Vec<&'a str>,
}

impl<'a> Printed<'a> {
    pub(super) fn parse(text: &'a str) -> Self {
        let inner = text.strip_prefix("tensor(").and_then(|text| text.strip_suffix(')'));
        let inner = inner.unwrap_or_else(|| panic!("{text}"));
        // A scalar has no bracket, and no comma either.
        let end = inner.rfind(']').map(|at| at + 1).or_else(|| inner.find(','));
        let (elements, suffixes) = inner.split_at(end.unwrap_or(inner.len()));
        let lengths =
            suffixes.split_once("size=(").map(|(_, rest)| rest.split(')').next().unwrap_or_default());
        let mut all: Vec<&str> = lengths.into_iter().collect();
        all.extend(suffixes.split_once("dtype=").map(|(_, dtype)| dtype));
        Self { words: words(elements), suffixes: all }
    }

    /// Panics unless it shows these elements, and a size and a dtype exactly where they are not obvious.
    pub(super) fn check<T: Number>(&self, text: &str, shape: &[usize], elements: &[T]) {
        assert!(text.lines().all(|line| !line.ends_with(' ')), "{text}");
        let mut rest = &self.words[..];
        if elements.is_empty() {
            assert_eq!(self.words, ["[", "]"], "{text}");
        } else {
            let summarize = elements.len() > SUMMARIZE_ABOVE;
            take(&mut rest, shape, elements, summarize);
            assert!(rest.is_empty(), "{rest:?} is left of {text}");
        }
        let mut expected = Vec::new();
        let lengths: Vec<String> = shape.iter().map(usize::to_string).collect();
        let (lengths, dtype) = (lengths.join(", "), T::DTYPE.to_string());
        if elements.is_empty() && shape.len() != 1 {
            expected.push(&*lengths);
        }
        match T::DTYPE {
            DType::F64 => {}
            DType::I32 | DType::Bool if !elements.is_empty() => {}
            _ => expected.push(&dtype),
        }
        assert_eq!(self.suffixes, expected, "{text}");
    }
}

/// Takes the words of a tensor of this shape.
fn take<T: Number>(words: &mut &[&str], shape: &[usize], elements: &[T], summarize: bool) {
    let Some((&len, row)) = shape.split_first() else {
        return elements[0].check_printed(next(words));
    };
    assert_eq!(next(words), "[");
    let cut = summarize && len > 2 * EDGE;
    let each = elements.len() / len;
    for at in 0..len {
        if cut && (EDGE..len - EDGE).contains(&at) {
            if at == EDGE {
                assert_eq!([next(words), next(words)], [",", "..."]);
            }
            continue;
        }
        if at > 0 {
            assert_eq!(next(words), ",");
        }
        take(words, row, &elements[at * each..][..each], summarize);
    }
    assert_eq!(next(words), "]");
}

fn next<'a>(words: &mut &[&'a str]) -> &'a str {
    words.split_off_first().copied().expect("the text ends before its elements do")
}

fn words(mut text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    loop {
        text = text.trim_start_matches([' ', '\n']);
        let Some(first) = text.chars().next() else { return words };
        let len = match first {
            '[' | ']' | ',' => 1,
            _ => text.find([' ', '\n', ',', '[', ']']).unwrap_or(text.len()),
        };
        let (word, rest) = text.split_at(len);
        words.push(word);
        text = rest;
    }
}
