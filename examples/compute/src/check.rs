//! Whether a device computes what the cpu does.
//!
//! Two devices may add up in two orders, and one may round a product that the other does not. Whatever the order, a sum
//! of products with k roundings on the way differs from the exact one by at most k u / (1 - k u) times the sum of the
//! products' magnitudes, where u = 2^-24 is half the distance of an `f32` to its neighbour (Higham, *Accuracy and Stability
//! of Numerical Algorithms*, 3.1). So two of them differ by at most twice that.
//!
//! It is a bound for the worst case. Errors such as a term that is left out are far larger, unless sums are very long.

use std::fmt;

use crate::error::Error;
use crate::work::elements;

/// The largest difference there is, beside the largest that was allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Difference {
    pub(crate) largest: f32,
    pub(crate) allowed: f32,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the largest difference is {:.1e}, and rounding may make it {:.1e}",
            self.largest, self.allowed
        )
    }
}

/// Compares a device's result with the cpu's, element by element. The bytes are those of `f32`.
///
/// `magnitudes` are the results from the magnitudes of all operands.
///
/// # Errors
///
/// [`Error::Wrong`] with the first element that rounding does not explain.
pub(crate) fn compare(
    result: &[u8],
    expected: &[u8],
    magnitudes: &[u8],
    roundings: u32,
) -> Result<Difference, Error> {
    let found = [result.len(), expected.len(), magnitudes.len()];
    if found != [expected.len(); 3] {
        return Err(Error::Lengths { what: "results", found, expected: [expected.len(); 3] });
    }
    let error = f64::from(roundings) * f64::from(f32::EPSILON) / 2.0;
    // From 2^24 roundings on there is no bound. The magnitudes were rounded as well.
    let relative = if error < 0.5 { 2.0 * error / (1.0 - 2.0 * error) } else { f64::INFINITY };
    let mut difference = Difference { largest: 0.0, allowed: 0.0 };
    let mut wrong = None;
    let mut count = 0;
    for (index, ((found, expected), magnitude)) in
        elements(result).zip(elements(expected)).zip(elements(magnitudes)).enumerate()
    {
        let allowed = (relative * f64::from(magnitude)) as f32;
        let distance = (f64::from(found) - f64::from(expected)).abs() as f32;
        // What is not a number is no larger than anything.
        if distance.is_nan() || distance > allowed {
            count += 1;
            wrong.get_or_insert((index, found, expected, allowed));
        }
        difference.largest = difference.largest.max(distance);
        difference.allowed = difference.allowed.max(allowed);
    }
    match wrong {
        None => Ok(difference),
        Some((index, found, expected, allowed)) => {
            let len = elements(result).len();
            Err(Error::Wrong { index, found, expected, allowed, count, len })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(numbers: &[f32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
    }

    fn compare_one(found: f32, expected: f32, magnitude: f32, roundings: u32) -> Result<Difference, Error> {
        compare(&bytes(&[found]), &bytes(&[expected]), &bytes(&[magnitude]), roundings)
    }

    #[test]
    fn what_rounding_explains_is_allowed_and_no_more() {
        // Two sums of one rounding may be neighbours, and not one further.
        assert!(compare_one(1.0 + f32::EPSILON, 1.0, 1.0, 1).is_ok());
        assert!(compare_one(1.0 + 2.0 * f32::EPSILON, 1.0, 1.0, 1).is_err());
        // Large numbers that cancel each other leave large errors.
        assert!(compare_one(1e-3, 0.0, 1e4, 1).is_ok());
        assert!(compare_one(1e-3, 0.0, 1.0, 1).is_err());
        assert!(compare_one(1e-3, 0.0, 1e2, 100).is_ok());
    }

    #[test]
    fn what_is_no_number_is_wrong_whatever_is_allowed() {
        for found in [f32::NAN, f32::INFINITY] {
            assert!(compare_one(found, 0.0, 1e30, 1000).is_err());
        }
    }

    #[test]
    fn the_first_wrong_element_is_told_and_how_many_there_are() {
        let (found, expected) = (bytes(&[1.0, 3.0, 2.0, 5.0]), bytes(&[1.0, 2.0, 2.0, 4.0]));
        let error = compare(&found, &expected, &expected, 1).unwrap_err();
        assert!(matches!(error, Error::Wrong { index: 1, count: 2, len: 4, .. }), "{error}");
    }

    #[test]
    fn results_of_two_lengths_are_no_results() {
        assert!(compare(&bytes(&[1.0]), &bytes(&[1.0, 2.0]), &bytes(&[1.0, 2.0]), 1).is_err());
    }
}
