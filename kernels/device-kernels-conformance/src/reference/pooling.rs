//! Pooling and its gradients.

use device_kernels::Pool2d;

use super::{Array, for_each_index};
use crate::element::{Value, range, roundoff};
use crate::expect::Expect;
use crate::tolerance::{self, Terms, computed_in};

/// The elements of a window in one direction, and how many there are with the padding. A window may be far
/// larger than the images, so that nothing here runs over all of it.
fn window(pool: Pool2d, axis: usize, at: usize, size: usize) -> (Vec<usize>, usize) {
    let padding = pool.padding[axis];
    let dilation = pool.dilation[axis];
    // Counted from the start of the padding.
    let start = at * pool.stride[axis];
    let is_inside = |place: &usize| {
        let distance = (place + padding).checked_sub(start);
        distance.is_some_and(|distance| distance % dilation == 0 && distance / dilation < pool.kernel[axis])
    };
    let counted = (size + 2 * padding).saturating_sub(start).div_ceil(dilation).min(pool.kernel[axis]);
    ((0..size).filter(is_inside).collect(), counted)
}

/// The places `(y, x)` of a window that are in the image, and the number that the mean divides by.
pub(crate) fn places(
    pool: Pool2d,
    count_padding: bool,
    at: &[usize],
    image: &[usize],
) -> (Vec<(usize, usize)>, f64) {
    let (rows, counted_rows) = window(pool, 0, at[2], image[2]);
    let (columns, counted_columns) = window(pool, 1, at[3], image[3]);
    let places: Vec<_> = rows.iter().flat_map(|&y| columns.iter().map(move |&x| (y, x))).collect();
    let divisor =
        if count_padding { counted_rows as f64 * counted_columns as f64 } else { places.len() as f64 };
    (places, divisor)
}

/// The places of an adaptive window.
fn adaptive(at: &[usize], image: &[usize], out: &[usize]) -> (Vec<(usize, usize)>, f64) {
    let range = |axis: usize| {
        let size = image[axis];
        let windows = out[axis];
        at[axis] * size / windows..((at[axis] + 1) * size).div_ceil(windows)
    };
    let places: Vec<_> = range(2).flat_map(|y| range(3).map(move |x| (y, x))).collect();
    let divisor = places.len() as f64;
    (places, divisor)
}

/// The largest elements, and where they are.
pub(super) fn max_pool(pool: Pool2d, input: &Array, out: &[usize]) -> [Vec<Expect>; 2] {
    let mut largest = Vec::new();
    let mut wheres = Vec::new();
    for_each_index(out, |at| {
        let (places, _) = places(pool, false, at, &input.shape);
        let elements: Vec<(Value, usize)> =
            places.iter().map(|&(y, x)| (input.at(&[at[0], at[1], y, x]), y * input.shape[3] + x)).collect();
        let more = |one: Value, other: Value| match (one, other) {
            (Value::Int(one), Value::Int(other)) => one > other,
            (one, other) => !other.is_nan() && (one.is_nan() || one.as_f64() > other.as_f64()),
        };
        let best = elements.iter().copied().reduce(|best, one| if more(one.0, best.0) { one } else { best });
        let Some((best, first)) = best else {
            // There is only padding in the window.
            let smallest = match input.is_float() {
                true => Value::Float(f64::NEG_INFINITY),
                false => Value::Int(range(input.dtype).0),
            };
            largest.push(Expect::value(smallest));
            wheres.push(Expect::Exactly(Value::Int(0)));
            return;
        };
        largest.push(Expect::value(best));
        // Any of several equal elements, and the last of several NaN.
        let equal = elements.iter().filter(|(value, _)| !more(best, *value)).map(|(_, place)| *place);
        let at_place = |place: usize| Expect::Exactly(Value::Int(place as i128));
        wheres.push(match equal.clone().next_back() {
            Some(last) if best.is_nan() => at_place(last),
            _ => at_place(first).or(equal.map(at_place).collect::<Vec<_>>()),
        });
    });
    [largest, wheres]
}

pub(super) fn max_pool_grad(grad: &Array, places: &Array, out: &Array) -> Vec<Expect> {
    let image = out.shape[2] * out.shape[3];
    let mut terms = vec![Terms::NONE; out.values.len()];
    for_each_index(&grad.shape, |at| {
        let place = usize::try_from(places.at(at).as_int()).ok().filter(|&place| place < image);
        if let Some(place) = place {
            terms[(at[0] * out.shape[1] + at[1]) * image + place].add(grad.at(at).as_f64());
        }
    });
    terms.iter().map(|terms| Expect::Near(terms.sum, terms.error_in(out.dtype))).collect()
}

/// The windows of a mean.
#[derive(Clone, Copy)]
pub(super) enum PoolingWindows {
    Fixed(Pool2d, bool),
    Adaptive,
}

impl PoolingWindows {
    fn at(self, at: &[usize], image: &[usize], out: &[usize]) -> (Vec<(usize, usize)>, f64) {
        match self {
            Self::Fixed(pool, count_padding) => places(pool, count_padding, at, image),
            Self::Adaptive => adaptive(at, image, out),
        }
    }
}

pub(super) fn mean(windows: PoolingWindows, input: &Array, out: &[usize]) -> Vec<Expect> {
    let mut expected = Vec::new();
    for_each_index(out, |at| {
        let (places, divisor) = windows.at(at, &input.shape, out);
        let mut terms = Terms::NONE;
        places.iter().for_each(|&(y, x)| terms.add(input.at(&[at[0], at[1], y, x]).as_f64()));
        if places.is_empty() {
            return expected.push(Expect::Near(0.0, 0.0));
        }
        expected.push(Expect::Near(terms.sum / divisor, tolerance::mean(input.dtype, &terms, divisor)));
    });
    expected
}

pub(super) fn mean_grad(windows: PoolingWindows, grad: &Array, out: &Array) -> Vec<Expect> {
    let mut terms = vec![Terms::NONE; out.values.len()];
    for_each_index(&grad.shape, |at| {
        let (places, divisor) = windows.at(at, &out.shape, &grad.shape);
        for (y, x) in places {
            let place = [at[0], at[1], y, x];
            let place = place.iter().zip(&out.shape).fold(0, |place, (index, size)| place * size + index);
            terms[place].add(grad.at(at).as_f64() / divisor);
        }
    });
    // Each quotient has its own error, of three units at most.
    let quotients = |terms: &Terms| 6.0 * roundoff(computed_in(out.dtype)) * terms.magnitude;
    terms.iter().map(|terms| Expect::Near(terms.sum, terms.error_in(out.dtype) + quotients(terms))).collect()
}

#[cfg(test)]
mod tests {
    use device_kernels::DType;

    use super::*;

    fn row(values: &[f64]) -> Array {
        let shape = vec![1, 1, 1, values.len()];
        let values = values.iter().map(|&value| Value::Float(value)).collect();
        Array { dtype: DType::F32, shape, values }
    }

    fn likely(expected: &[Expect]) -> Vec<f64> {
        expected.iter().map(|expect| expect.likely().unwrap().as_f64()).collect()
    }

    const POOL: Pool2d = Pool2d { kernel: [1, 3], stride: [1, 2], padding: [0, 1], dilation: [1, 1] };

    #[test]
    fn windows_have_their_largest_elements_and_their_places() {
        let [largest, places] = max_pool(POOL, &row(&[-5.0, -7.0, -1.0, -1.0]), &[1, 1, 1, 2]);
        assert_eq!(likely(&largest), [-5.0, -1.0]);
        assert_eq!(likely(&places), [0.0, 2.0]);
        assert!(matches!(&places[1], Expect::OneOf(all) if all.len() == 2));
    }

    #[test]
    fn a_mean_counts_the_padding_or_not() {
        let images = row(&[2.0, 4.0, 6.0, 8.0]);
        assert_eq!(likely(&mean(PoolingWindows::Fixed(POOL, true), &images, &[1, 1, 1, 2])), [2.0, 6.0]);
        assert_eq!(likely(&mean(PoolingWindows::Fixed(POOL, false), &images, &[1, 1, 1, 2])), [3.0, 6.0]);
        // The last window ends behind the padding, and has one element of it.
        assert_eq!(likely(&mean(PoolingWindows::Fixed(POOL, true), &images, &[1, 1, 1, 3]))[2], 4.0);
        let grad = mean_grad(PoolingWindows::Fixed(POOL, true), &row(&[3.0, 6.0]), &images);
        assert_eq!(likely(&grad), [1.0, 3.0, 2.0, 2.0]);
    }

    #[test]
    fn a_window_of_padding_alone_has_the_mean_zero_and_the_smallest_number() {
        // Its elements are at both sides of the image.
        let pool = Pool2d { kernel: [1, 2], stride: [1, 1], padding: [0, 1], dilation: [1, 2] };
        let image = row(&[5.0]);
        let out = [1, 1, 1, 1];
        for count_padding in [false, true] {
            assert_eq!(likely(&mean(PoolingWindows::Fixed(pool, count_padding), &image, &out)), [0.0]);
            assert_eq!(
                likely(&mean_grad(PoolingWindows::Fixed(pool, count_padding), &row(&[3.0]), &image)),
                [0.0]
            );
        }
        let [largest, places] = max_pool(pool, &image, &out);
        assert_eq!((likely(&largest), likely(&places)), (vec![f64::NEG_INFINITY], vec![0.0]));
    }

    #[test]
    fn a_window_of_any_size_is_counted() {
        let far = 1 << 40;
        let pool = Pool2d { kernel: [1, 2 * far], stride: [1, 3 * far], padding: [0, far], dilation: [1, 1] };
        assert_eq!(window(pool, 1, 0, 3), (vec![0, 1, 2], 2 * far));
        let pool = Pool2d { dilation: [1, 2], ..pool };
        assert_eq!(window(pool, 1, 0, 3), (vec![0, 2], far + 2));
    }

    #[test]
    fn adaptive_windows_overlap() {
        let images = row(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(likely(&mean(PoolingWindows::Adaptive, &images, &[1, 1, 1, 3])), [1.5, 3.0, 4.5]);
        assert_eq!(
            likely(&mean_grad(PoolingWindows::Adaptive, &row(&[2.0, 3.0, 4.0]), &images)),
            [1.0, 2.0, 1.0, 3.0, 2.0]
        );
    }
}
