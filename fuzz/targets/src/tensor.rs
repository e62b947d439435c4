//! Tensors of the cpu: what goes in comes out, and what is printed is what went in.

mod element;
mod printed;

use device_registry::Device;
use device_tensor::ndarray::{ArrayD, ArrayViewD, Axis, IxDyn, Slice};
use device_tensor::{Element, Tensor, TensorError, bf16, f16};

use self::element::Number;
use self::printed::Printed;
use crate::check_message;

/// Larger arrays are skipped: one takes the time of many smaller ones.
const ELEMENTS: usize = 4096;

/// The first line of the input has a digit for the dtype, one for how the data is arranged, one for how the
/// elements are written (`0`: bytes, `1`: numbers with commas), and a character for each length, counted from
/// `0`; from `p` on it stands for a power of two. The elements are behind the line, and are repeated until
/// there are enough.
pub fn tensor(input: &[u8]) {
    let line = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (head, elements) = (&input[..line], input.get(line + 1..).unwrap_or_default());
    let [dtype, arrangement, writing, lengths @ ..] = head else { return };
    let case = Case { arrangement: *arrangement, as_text: *writing == b'1', lengths, elements };
    match dtype {
        b'0' => case.check::<bool>(),
        b'1' => case.check::<u8>(),
        b'2' => case.check::<i8>(),
        b'3' => case.check::<i16>(),
        b'4' => case.check::<i32>(),
        b'5' => case.check::<i64>(),
        b'6' => case.check::<f16>(),
        b'7' => case.check::<bf16>(),
        b'8' => case.check::<f32>(),
        b'9' => case.check::<f64>(),
        _ => {}
    }
}

struct Case<'a> {
    arrangement: u8,
    as_text: bool,
    lengths: &'a [u8],
    elements: &'a [u8],
}

impl Case<'_> {
    fn check<T: Number>(&self) {
        let lengths: Vec<usize> = self.lengths.iter().map(length).collect();
        match self.arrangement {
            b'5' => self.check_rows::<T>(&lengths),
            b'6' => self.check_broadcast::<T>(&lengths),
            arrangement => {
                let Some(count) = count(&lengths).filter(|count| *count <= ELEMENTS) else { return };
                let array = ArrayD::from_shape_vec(IxDyn(&lengths), self.numbers::<T>(count));
                let mut array = array.expect("there are as many elements as the shape has");
                match arrangement {
                    b'1' => check_array(array.t().into_dyn()),
                    b'2' => {
                        (0..array.ndim()).for_each(|axis| array.invert_axis(Axis(axis)));
                        check_array(array.view());
                    }
                    b'3' if array.ndim() > 0 => {
                        let last = Axis(array.ndim() - 1);
                        check_array(array.slice_axis(last, Slice::from(..).step_by(-2)));
                    }
                    b'4' => {
                        let elements: Vec<T> = array.iter().copied().collect();
                        check_tensor(&[elements.len()], &elements, Tensor::new(&elements[..], Device::cpu()));
                    }
                    _ => check_array(array.view()),
                }
            }
        }
    }

    /// Rows of these lengths, which make a tensor if they are all the same.
    fn check_rows<T: Number>(&self, lengths: &[usize]) {
        let total = lengths.iter().try_fold(0, |sum: usize, len| sum.checked_add(*len));
        let Some(total) = total.filter(|total| *total <= ELEMENTS) else { return };
        let elements = self.numbers::<T>(total);
        let mut rest = &elements[..];
        let rows: Vec<&[T]> = lengths.iter().map(|len| rest.split_off(..*len).unwrap_or_default()).collect();
        let made = Tensor::new(&rows, Device::cpu());
        let first = lengths.first().copied().unwrap_or_default();
        match lengths.iter().position(|len| *len != first) {
            None => check_tensor(&[lengths.len(), first], &elements, made),
            Some(at) => match made {
                Err(TensorError::Ragged { first: shape, row, other, .. }) => {
                    assert_eq!(
                        (shape, row, other),
                        (vec![first], vec![at], vec![lengths[at]]),
                        "{lengths:?}"
                    );
                }
                other => panic!("rows of {lengths:?} make {other:?}"),
            },
        }
    }

    /// One element at all places of a shape that may be larger than any memory.
    fn check_broadcast<T: Number>(&self, lengths: &[usize]) {
        let element = self.numbers::<T>(1)[0];
        let one = ArrayD::from_elem(IxDyn(&[]), element);
        // Shapes that `ndarray` does not support cannot get here.
        let Some(array) = one.broadcast(IxDyn(lengths)) else { return };
        let factors = lengths.iter().filter(|len| **len > 0);
        let bytes = factors.fold(size_of::<T>() as u128, |bytes, len| bytes.saturating_mul(*len as u128));
        if bytes > isize::MAX as u128 {
            match Tensor::new(array, Device::cpu()) {
                Err(error @ TensorError::TooLarge { .. }) => check_message(&error.to_string()),
                other => panic!("a tensor of {lengths:?} and {} is {other:?}", T::DTYPE),
            }
        } else if array.len() <= ELEMENTS {
            check_array(array);
        }
    }

    /// This many of the elements in the input, or zeros if it has none.
    fn numbers<T: Number>(&self, count: usize) -> Vec<T> {
        let numbers: Vec<T> = if self.as_text {
            let texts = self.elements.split(|byte| *byte == b',');
            texts
                .filter_map(|text| Some(T::from_f64(str::from_utf8(text).ok()?.trim().parse().ok()?)))
                .collect()
        } else {
            self.elements.chunks_exact(size_of::<T>()).map(T::from_bytes).collect()
        };
        if numbers.is_empty() {
            vec![T::from_f64(0.0); count]
        } else {
            numbers.into_iter().cycle().take(count).collect()
        }
    }
}

fn length(byte: &u8) -> usize {
    match byte.wrapping_sub(b'0') {
        number @ 0..64 => number.into(),
        number => 1 << (number & 63),
    }
}

/// The number of elements of a shape, if it and its parts' numbers can be counted.
fn count(lengths: &[usize]) -> Option<usize> {
    let product =
        lengths.iter().filter(|len| **len > 0).try_fold(1, |count: usize, len| count.checked_mul(*len));
    product.filter(|product| *product <= isize::MAX as usize / 8)?;
    Some(lengths.iter().product())
}

fn check_array<T: Number>(array: ArrayViewD<'_, T>) {
    let elements: Vec<T> = array.iter().copied().collect();
    check_tensor(array.shape(), &elements, Tensor::new(array.view(), Device::cpu()));
}

/// The tensor is made, has these elements, and prints them.
fn check_tensor<T: Number>(shape: &[usize], elements: &[T], made: Result<Tensor, TensorError>) {
    let tensor = made.unwrap_or_else(|error| panic!("no tensor of {shape:?} and {}: {error}", T::DTYPE));
    assert_eq!((tensor.shape(), tensor.dtype(), tensor.device()), (shape, T::DTYPE, Device::cpu()));
    assert_eq!((tensor.len(), tensor.is_empty()), (elements.len(), elements.is_empty()));
    let same = |read: &[T]| read.iter().copied().map(T::bits).eq(elements.iter().copied().map(T::bits));
    assert!(same(&tensor.to_vec().expect("it can be read")), "{shape:?} of {elements:?}");
    let array = tensor.to_ndarray::<T>().expect("it can be read");
    assert!(array.shape() == shape && same(array.as_slice().expect("it is in order")), "{shape:?}");
    check_other_dtypes(&tensor);
    match (tensor.item::<T>(), elements) {
        (Ok(item), &[element]) => assert_eq!(item.bits(), element.bits()),
        (Err(TensorError::NotOneElement { .. }), [] | [_, _, ..]) => {}
        (item, _) => panic!("the item of {} elements is {item:?}", elements.len()),
    }
    let printed = tensor.to_string();
    Printed::parse(&printed).check(&printed, shape, elements);
}

fn check_other_dtypes(tensor: &Tensor) {
    fn check<T: Element>(tensor: &Tensor) {
        match tensor.to_vec::<T>() {
            Ok(_) => assert_eq!(tensor.dtype(), T::DTYPE),
            Err(TensorError::WrongDType { expected, found, .. }) => {
                assert!(found == tensor.dtype() && expected == T::DTYPE && expected != found);
            }
            Err(error) => panic!("{error}"),
        }
    }
    check::<bool>(tensor);
    check::<i64>(tensor);
    check::<f16>(tensor);
    check::<f64>(tensor);
}
