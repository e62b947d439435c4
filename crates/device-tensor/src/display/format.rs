//! Elements as text, all of a tensor in one format.

/// The elements that are shown, and the width that they are padded to on the left.
pub(super) struct Texts {
    texts: Vec<String>,
    width: usize,
}

impl Texts {
    /// The texts of values that can be written in one way only.
    pub(super) fn of_words(words: impl IntoIterator<Item = impl ToString>) -> Self {
        let texts: Vec<_> = words.into_iter().map(|word| word.to_string()).collect();
        let width = texts.iter().map(String::len).max().unwrap_or(0);
        Self { texts, width }
    }

    /// The texts of floats. The finite ones that are not zero decide how all of them are written, and how
    /// wide.
    pub(super) fn of_floats(values: &[f64]) -> Self {
        let notation = Notation::of(values);
        let texts: Vec<_> = values.iter().map(|value| notation.text(*value)).collect();
        let counted = values.iter().zip(&texts).filter(|(value, _)| decides(**value));
        // Some of the others may be wider, and stick out.
        let width = counted.map(|(_, text)| text.len()).max().unwrap_or(1);
        Self { texts, width }
    }

    /// The width that they are padded to.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Each text as it is shown.
    pub(super) fn padded(&self) -> impl Iterator<Item = String> {
        self.texts.iter().map(|text| format!("{text:>width$}", width = self.width))
    }
}

/// Whether a float takes part in deciding on the notation and the width.
fn decides(value: f64) -> bool {
    value.is_finite() && value != 0.0
}

/// How the floats of a tensor are written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Notation {
    /// `2.`, if there are no others.
    Whole,
    /// `2.5000`.
    Decimals,
    /// `2.5000e+00`, if there are very large or small ones, or both large and small.
    Exponent,
}

impl Notation {
    fn of(values: &[f64]) -> Self {
        let deciding = || values.iter().copied().filter(|value| decides(*value));
        // Without any, neither bound is exceeded, and the ratio is 0.
        let largest = deciding().map(f64::abs).fold(0.0, f64::max);
        let smallest = deciding().map(f64::abs).fold(f64::INFINITY, f64::min);
        if largest / smallest > 1000.0 || largest > 1e8 || smallest < 1e-4 {
            Self::Exponent
        } else if deciding().all(|value| value.fract() == 0.0) {
            Self::Whole
        } else {
            Self::Decimals
        }
    }

    fn text(self, value: f64) -> String {
        if value.is_nan() {
            return "nan".to_owned();
        }
        // Rust writes infinity as `inf` in each of the three.
        match self {
            Self::Whole if value.is_finite() => format!("{value:.0}."),
            Self::Whole | Self::Decimals => format!("{value:.4}"),
            Self::Exponent => {
                let text = format!("{value:.4e}");
                match text.split_once('e').map(|(digits, power)| (digits, power.parse::<i32>())) {
                    Some((digits, Ok(power))) => format!("{digits}e{power:+03}"),
                    _ => text,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notation(values: &[f64]) -> Notation {
        Notation::of(values)
    }

    #[test]
    fn the_values_decide_together_on_the_notation() {
        assert_eq!(notation(&[0.0, 2.0, f64::NAN, f64::INFINITY]), Notation::Whole);
        assert_eq!(notation(&[1.0, 2.5]), Notation::Decimals);
        assert_eq!(notation(&[1.0, 1000.0]), Notation::Whole);
        assert_eq!(notation(&[1.0, 1001.0]), Notation::Exponent, "of very different sizes");
        assert_eq!(notation(&[1e8]), Notation::Whole);
        assert_eq!(notation(&[1e8 + 1.0]), Notation::Exponent, "large");
        assert_eq!(notation(&[1e-4]), Notation::Decimals);
        assert_eq!(notation(&[0.99e-4]), Notation::Exponent, "small");
        assert_eq!(notation(&[]), Notation::Whole);
    }

    #[test]
    fn exponents_have_a_sign_and_at_least_two_digits() {
        let text = |value| Notation::Exponent.text(value);
        assert_eq!(text(1e-5), "1.0000e-05");
        assert_eq!(text(-1.25), "-1.2500e+00");
        assert_eq!(text(1e300), "1.0000e+300");
        assert_eq!(text(5e-324), "4.9407e-324");
        assert_eq!(text(f64::NEG_INFINITY), "-inf");
        assert_eq!(text(-f64::NAN), "nan");
    }

    #[test]
    fn zero_and_what_is_not_finite_do_not_decide_on_the_width() {
        assert_eq!(Texts::of_floats(&[0.0, f64::NEG_INFINITY]).width(), 1);
        assert_eq!(Texts::of_floats(&[-0.0, 2.0]).padded().collect::<Vec<_>>(), ["-0.", "2."]);
        assert_eq!(Texts::of_floats(&[f64::NAN, 100.0]).padded().collect::<Vec<_>>(), [" nan", "100."]);
    }
}
