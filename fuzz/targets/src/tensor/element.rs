//! The elements as the target makes and compares them.

use device_tensor::{Element, bf16, f16};

/// An element that can be made of any bytes and of any number.
pub(super) trait Number: Element {
    /// Of as many bytes as it has.
    fn from_bytes(bytes: &[u8]) -> Self;

    fn from_f64(number: f64) -> Self;

    /// All of its bits, by which the same NaN is the same.
    fn bits(self) -> u64;

    /// Panics unless `text` is how the element is printed among others, all in one notation.
    fn check_printed(self, text: &str);
}

macro_rules! integers {
    ($($ty:ty),*) => {$(
        impl Number for $ty {
            fn from_bytes(bytes: &[u8]) -> Self {
                Self::from_ne_bytes(bytes.try_into().expect("as many bytes as it has"))
            }

            fn from_f64(number: f64) -> Self {
                number as Self
            }

            fn bits(self) -> u64 {
                self as u64
            }

            fn check_printed(self, text: &str) {
                assert_eq!(text, self.to_string());
            }
        }
    )*};
}

integers!(u8, i8, i16, i32, i64);

macro_rules! floats {
    ($($ty:ty: $from_f64:expr, $to_f64:expr;)*) => {$(
        impl Number for $ty {
            fn from_bytes(bytes: &[u8]) -> Self {
                Self::from_ne_bytes(bytes.try_into().expect("as many bytes as it has"))
            }

            fn from_f64(number: f64) -> Self {
                $from_f64(number)
            }

            fn bits(self) -> u64 {
                self.to_bits().into()
            }

            fn check_printed(self, text: &str) {
                check_float($to_f64(self), text);
            }
        }
    )*};
}

floats! {
    f16: f16::from_f64, f16::to_f64;
    bf16: bf16::from_f64, bf16::to_f64;
    f32: |number| number as f32, f64::from;
    f64: |number| number, |number| number;
}

impl Number for bool {
    fn from_bytes(bytes: &[u8]) -> Self {
        bytes != [0]
    }

    fn from_f64(number: f64) -> Self {
        number != 0.0
    }

    fn bits(self) -> u64 {
        self.into()
    }

    fn check_printed(self, text: &str) {
        assert_eq!(text, if self { "True" } else { "False" });
    }
}

/// Four decimals, or four decimals and an exponent, or a whole number with its point: as near as they can be.
fn check_float(value: f64, text: &str) {
    if value.is_nan() {
        return assert_eq!(text, "nan");
    }
    let read: f64 = text.parse().unwrap_or_else(|_| panic!("{value:?} is printed as {text:?}"));
    if value.is_infinite() {
        return assert_eq!(read, value);
    }
    assert_eq!(read.is_sign_negative(), value.is_sign_negative(), "{value:?} is printed as {text:?}");
    let (digits, exponent) = match text.split_once('e') {
        Some((digits, exponent)) => {
            let power = exponent.strip_prefix(['+', '-']).unwrap_or_default();
            assert!(power.len() >= 2, "{value:?} is printed as {text:?}");
            (digits, Some(exponent.parse::<i32>().expect("an exponent is a number")))
        }
        None => (text, None),
    };
    let (_, decimals) = digits.split_once('.').unwrap_or_else(|| panic!("{text:?} has no point"));
    let apart = (read - value).abs();
    match (decimals.len(), exponent) {
        (0, None) => assert_eq!(read, value),
        // A little more than half of the last decimal, for what the comparison rounds itself.
        (4, None) => assert!(apart <= 0.501e-4, "{value:?} is printed as {text:?}"),
        (4, Some(power)) => {
            // Ten to the power of the least number is no number, and neither is what is beyond the largest.
            let last = 10_f64.powi(power + 4) * 1e-8;
            assert!(
                apart <= last * 0.501 || last == 0.0 || !last.is_finite(),
                "{value:?} is printed as {text:?}"
            );
        }
        _ => panic!("{value:?} is printed as {text:?}"),
    }
}
