//! Compares how tensors print with PyTorch: the table `printing/cases.txt`, made by the script beside it.
//!
//! The table has the cpu and the devices of openreg. Every other linked device that is there prints the same,
//! but for its name.

use std::collections::BTreeSet;
use std::error::Error;
use std::str::FromStr;

use device_conformance::device_or_skip;
use device_registry::{Device, backends, device, device_count};
use device_tensor::ndarray::ArrayD;
use device_tensor::{Element, Tensor, bf16, f16};

const TABLE: &str = include_str!("../../printing/cases.txt");

const DTYPES: [&str; 10] = ["bf16", "bool", "f16", "f32", "f64", "i16", "i32", "i64", "i8", "u8"];
/// The cases of the table.
const DEVICES: [&str; 3] = ["cpu", "openreg:0", "openreg:1"];

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A case of the table: a tensor in four words, the last of which reaches to the end of its line, and its
/// text.
struct Case {
    dtype: &'static str,
    shape: &'static str,
    device: &'static str,
    elements: &'static str,
    expected: String,
}

#[test]
fn tensors_print_as_in_pytorch() {
    let mut failures = Vec::new();
    for case in cases() {
        let printed = case.tensor().map_or_else(|error| format!("no tensor: {error}"), |x| x.to_string());
        let Case { dtype, shape, device, elements, expected } = case;
        if printed != expected {
            failures.push(format!(
                "{dtype} {shape} {device} {elements}\nin PyTorch:\n{expected}\nand here:\n{printed}\n"
            ));
        }
    }
    assert!(failures.is_empty(), "{} cases differ:\n\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn tensors_print_the_same_on_every_device() {
    for device in linked_devices() {
        let mut failures = Vec::new();
        for case in cases().filter(|case| case.device == "cpu") {
            let printed = case.tensor().and_then(|x| Ok(x.to(device)?.to_string()));
            let printed = printed.unwrap_or_else(|error| format!("no tensor: {error}"));
            // A longer name breaks lines elsewhere.
            if on_one_line(&printed) != moved_to(device, &case.expected) {
                let Case { dtype, shape, expected, .. } = case;
                failures.push(format!(
                    "{dtype} {shape}\nin PyTorch on the cpu:\n{expected}\nand here:\n{printed}\n"
                ));
            }
        }
        assert!(
            failures.is_empty(),
            "on `{device}` {} cases differ:\n\n{}",
            failures.len(),
            failures.join("\n")
        );
    }
}

#[test]
fn a_tensor_that_has_been_elsewhere_prints_as_before() {
    let devices = linked_devices();
    for case in cases() {
        let tensor = case.tensor().unwrap();
        let there_and_back = devices.iter().copied().chain([tensor.device()]);
        let moved = there_and_back.fold(tensor, |tensor, device| tensor.to(device).unwrap());
        assert_eq!(moved.to_string(), case.expected);
    }
}

#[test]
fn the_table_has_cases_of_every_dtype_on_every_device() {
    assert!(cases().count() >= 400, "only {} cases", cases().count());
    let there: BTreeSet<_> = cases().map(|case| (case.dtype, case.device)).collect();
    let wanted = DTYPES.iter().flat_map(|dtype| DEVICES.map(|device| (*dtype, device)));
    assert!(there.iter().copied().eq(wanted), "{there:?}");
}

/// The devices of all linked backends that are available. A backend that is not is skipped, with a line that
/// says so.
fn linked_devices() -> Vec<Device> {
    let first: Vec<_> = backends().names().filter_map(device_or_skip).collect();
    let all = |first: Device| {
        (0..device_count(first.name()).unwrap())
            .map(move |ordinal| device(&format!("{}:{ordinal}", first.name())).unwrap())
    };
    first.into_iter().flat_map(all).collect()
}

/// The printed text, with all suffixes on the last line of the elements.
fn on_one_line(text: &str) -> String {
    let join =
        |text: String, suffix: &str| text.replace(&format!(",\n       {suffix}"), &format!(", {suffix}"));
    ["device=", "size=", "dtype="].into_iter().fold(text.to_owned(), join)
}

/// The text on `device` of a tensor that prints `text` on the cpu.
fn moved_to(device: Device, text: &str) -> String {
    let mut text = on_one_line(text);
    if !device.is_cpu() {
        // The device is the first suffix.
        let others = [", size=", ", dtype="].iter().filter_map(|suffix| text.find(suffix));
        let end = others.min().unwrap_or(text.len() - ")".len());
        text.insert_str(end, &format!(", device='{device}'"));
    }
    text
}

/// The cases of the table, between empty lines and with comments before them.
fn cases() -> impl Iterator<Item = Case> {
    TABLE.split("\n\n").filter_map(|text| {
        let mut lines = text.lines().skip_while(|line| line.starts_with('#'));
        // At the top of the table there is a comment alone.
        let mut words = lines.next()?.splitn(4, ' ');
        let mut word = || words.next().unwrap_or_else(|| panic!("a case has four words at least:\n{text}"));
        let (dtype, shape, device, elements) = (word(), word(), word(), word());
        let printed = |line: &'static str| match line.strip_prefix('|') {
            Some(printed) => printed.strip_prefix(' ').unwrap_or(printed),
            None => panic!("a line that is printed starts with `|`:\n{text}"),
        };
        let expected = lines.map(printed).collect::<Vec<_>>().join("\n");
        Some(Case { dtype, shape, device, elements, expected })
    })
}

impl Case {
    fn tensor(&self) -> Result<Tensor> {
        let integer = |start: i64, step: i64, at: usize| start + at as i64 * step;
        let float = |start: f64, step: f64, at: usize| start + at as f64 * step;
        match self.dtype {
            "bool" => self.tensor_of(|start: bool, _, _| start, |it| it),
            "u8" => self.tensor_of(integer, |it| it as u8),
            "i8" => self.tensor_of(integer, |it| it as i8),
            "i16" => self.tensor_of(integer, |it| it as i16),
            "i32" => self.tensor_of(integer, |it| it as i32),
            "i64" => self.tensor_of(integer, |it| it),
            "f16" => self.tensor_of(float, f16::from_f64),
            "bf16" => self.tensor_of(float, bf16::from_f64),
            "f32" => self.tensor_of(float, |it| it as f32),
            "f64" => self.tensor_of(float, |it| it),
            other => Err(format!("there is no dtype {other}").into()),
        }
    }

    /// The tensor, of numbers `N` that become elements by `element`; `nth` is the rule of `arange`.
    fn tensor_of<N, T>(&self, nth: fn(N, N, usize) -> N, element: fn(N) -> T) -> Result<Tensor>
    where
        N: FromStr<Err: Error + 'static> + Copy,
        T: Element,
    {
        let lengths = self.shape.trim_matches(['[', ']']).split(',').filter(|len| !len.is_empty());
        let shape = lengths.map(str::parse).collect::<std::result::Result<Vec<usize>, _>>()?;
        let count = shape.iter().product();
        let (rule, put) = match self.elements.split_once(" put ") {
            Some((rule, put)) => (rule, Some(put)),
            None => (self.elements, None),
        };
        let mut words = rule.split(' ');
        let rule = words.next().unwrap_or_default();
        let numbers = words.map(str::parse).collect::<std::result::Result<Vec<N>, _>>()?;
        let mut all: Vec<N> = match (rule, &numbers[..]) {
            ("values", _) => numbers,
            ("cycle", _) => numbers.iter().copied().cycle().take(count).collect(),
            ("arange", &[start, step]) => (0..count).map(|at| nth(start, step, at)).collect(),
            _ => return Err(format!("{:?} is no rule for elements", self.elements).into()),
        };
        if let Some(put) = put {
            let (at, number) = put.split_once(' ').ok_or("an element is put at a place")?;
            all[at.parse::<usize>()?] = number.parse()?;
        }
        let elements = all.into_iter().map(element).collect();
        Ok(Tensor::new(ArrayD::from_shape_vec(shape, elements)?, device(self.device)?)?)
    }
}
