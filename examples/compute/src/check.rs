//! Whether a device computes what the cpu does: to the bit, as no device rounds with these operands (see
//! [`Work::operands`](crate::work::Work::operands)).

use crate::error::Error;
use crate::work::elements;

/// Compares a device's result with the cpu's, element by element. The bytes are `f32` values.
///
/// # Errors
///
/// [`Error::Wrong`] with the first element that differs.
pub(crate) fn compare(result: &[u8], expected: &[u8]) -> Result<(), Error> {
    if result.len() != expected.len() {
        return Err(Error::ResultLength { found: result.len(), expected: expected.len() });
    }
    // NaN equals no number.
    let pairs = elements(result).zip(elements(expected)).enumerate();
    let mut wrong = pairs.filter(|(_, (found, expected))| found != expected);
    match wrong.next() {
        None => Ok(()),
        Some((index, (found, expected))) => {
            let (count, len) = (1 + wrong.count(), elements(result).len());
            Err(Error::Wrong { index, found, expected, count, len })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(numbers: &[f32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
    }

    #[test]
    fn the_same_is_right_and_a_neighbour_is_not() {
        let expected = bytes(&[1.0, 0.0, -16_777_216.0]);
        compare(&expected, &expected).unwrap();
        // There is one zero, whatever its sign.
        compare(&bytes(&[1.0, -0.0, -16_777_216.0]), &expected).unwrap();
        for found in [[1.0 + f32::EPSILON, 0.0, -16_777_216.0], [1.0, 0.0, -16_777_215.0]] {
            assert!(compare(&bytes(&found), &expected).is_err(), "{found:?}");
        }
    }

    #[test]
    fn what_is_no_finite_number_is_wrong() {
        for found in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(compare(&bytes(&[found]), &bytes(&[1.0])).is_err(), "{found}");
        }
    }

    #[test]
    fn the_error_has_the_first_wrong_element_and_how_many_there_are() {
        let (found, expected) = (bytes(&[1.0, 3.0, 2.0, 5.0]), bytes(&[1.0, 2.0, 2.0, 4.0]));
        let error = compare(&found, &expected).unwrap_err();
        assert!(matches!(error, Error::Wrong { index: 1, count: 2, len: 4, .. }), "{error}");
    }

    #[test]
    fn results_of_two_lengths_are_no_results() {
        assert!(compare(&bytes(&[1.0]), &bytes(&[1.0, 2.0])).is_err());
    }
}
