//! Poolings of images.

use device_kernels::{Layout, Pool2d};
use device_registry::backend::BackendError;
use rayon::prelude::*;

use crate::arrays::{Array, PARALLEL, write_all};
use crate::element::{Compute as _, Element};
use crate::functions::Number;
use crate::real::Real;
use crate::threads::on_all;

/// The windows of a pooling: where window `y, x` begins and ends, in an image of the sizes.
#[derive(Clone, Copy)]
pub(crate) enum PoolingWindows {
    /// By steps, with or without the padding in the count of a mean.
    Pool { pool: Pool2d, count_padding: bool },
    /// By the size of the output.
    Adaptive,
}

/// The elements of a window in one direction.
struct Reach {
    first: usize,
    end: usize,
    step: usize,
    /// How many elements a mean counts.
    count: usize,
}

impl Reach {
    fn places(&self) -> impl Iterator<Item = usize> + Clone + use<> {
        (self.first..self.end).step_by(self.step)
    }
}

impl PoolingWindows {
    fn reach(&self, axis: usize, window: usize, size: usize, windows: usize) -> Reach {
        match *self {
            Self::Adaptive => {
                // A product of two sizes may need more bits than a size has.
                let [window, size, windows] = [window, size, windows].map(|size| size as u128);
                let first = (window * size / windows) as usize;
                let end = ((window + 1) * size).div_ceil(windows) as usize;
                Reach { first, end, step: 1, count: end - first }
            }
            Self::Pool { pool, count_padding } => {
                let step = pool.dilation[axis];
                let padding = pool.padding[axis];
                // Counted with the padding before the image.
                let start = window.saturating_mul(pool.stride[axis]);
                let end =
                    start.saturating_add((pool.kernel[axis] - 1).saturating_mul(step)).saturating_add(1);
                let skipped = padding.saturating_sub(start).div_ceil(step);
                let first = start + skipped * step - padding;
                let inside = end.saturating_sub(padding).min(size);
                let reach = Reach { first, end: inside.max(first), step, count: 0 };
                let count = if count_padding {
                    // A window that goes over the padding behind the image counts no more than that.
                    (start..end.min(size + 2 * padding)).step_by(step).len()
                } else {
                    reach.places().count()
                };
                Reach { count, ..reach }
            }
        }
    }
}

/// The sizes of images and of their results.
#[derive(Clone, Copy)]
struct Sizes {
    image: [usize; 2],
    out: [usize; 2],
}

impl Sizes {
    fn new(images: &Layout, out: &Layout) -> Self {
        let image = images.shape();
        let out = out.shape();
        Self { image: [image[2], image[3]], out: [out[2], out[3]] }
    }

    /// Calls `visit` with the number of each window, its rows and its columns.
    fn windows(&self, windows: PoolingWindows, mut visit: impl FnMut(usize, &Reach, &Reach)) {
        let columns: Vec<Reach> =
            (0..self.out[1]).map(|x| windows.reach(1, x, self.image[1], self.out[1])).collect();
        for y in 0..self.out[0] {
            let rows = windows.reach(0, y, self.image[0], self.out[0]);
            for (x, columns) in columns.iter().enumerate() {
                visit(y * self.out[1] + x, &rows, columns);
            }
        }
    }
}

/// An array of planes, one for each image and channel.
type Planes<'a, B> = (B, &'a Layout);

/// Computes each plane of `out` from its plane of `input`, on several threads if there are many elements.
fn planes<I: Element, O: Element>(
    (input, layout): Planes<'_, &[u8]>,
    (out, out_layout): Planes<'_, &mut [u8]>,
    one: impl Fn(usize, &[I::Compute], &mut [O::Compute]) + Sync,
) -> Result<(), BackendError> {
    let plane_len = |layout: &Layout| layout.shape()[2] * layout.shape()[3];
    let input_len = plane_len(layout);
    let out_len = plane_len(out_layout);
    let array = Array::<I>::new(input, layout);
    let inputs = array.to_contiguous()?;
    let one = |(plane, out): (usize, &mut [O::Compute])| {
        one(plane, &inputs[plane * input_len..][..input_len], out);
    };
    write_all::<O>(out, out_layout, |out| {
        if out.len() < PARALLEL / 4 {
            out.chunks_mut(out_len).enumerate().for_each(one);
        } else {
            on_all(|| out.par_chunks_mut(out_len).enumerate().for_each(one));
        }
    });
    Ok(())
}

/// The mean of each window.
pub(crate) fn mean<E: Element<Compute: Real>>(
    windows: PoolingWindows,
    images: Planes<'_, &[u8]>,
    out: Planes<'_, &mut [u8]>,
) -> Result<(), BackendError> {
    let sizes = Sizes::new(images.1, out.1);
    planes::<E, E>(images, out, |_, image, out| {
        sizes.windows(windows, |window, rows, columns| {
            let mut sum = 0.0;
            for y in rows.places() {
                for x in columns.places() {
                    sum += image[y * sizes.image[1] + x].to_f64();
                }
            }
            // Without an element, of zeros in the padding or of nothing.
            let count = rows.count as f64 * columns.count as f64;
            out[window] = E::Compute::from_f64(if count > 0.0 { sum / count } else { 0.0 });
        });
    })
}

/// The gradient of a mean: each element gets its part of its windows' gradients.
pub(crate) fn mean_grad<E: Element<Compute: Real>>(
    windows: PoolingWindows,
    grads: Planes<'_, &[u8]>,
    out: Planes<'_, &mut [u8]>,
) -> Result<(), BackendError> {
    let sizes = Sizes::new(out.1, grads.1);
    planes::<E, E>(grads, out, |_, grads, out| {
        out.fill(E::Compute::default());
        sizes.windows(windows, |window, rows, columns| {
            let part =
                grads[window] / (E::Compute::from_len(rows.count) * E::Compute::from_len(columns.count));
            for y in rows.places() {
                for x in columns.places() {
                    out[y * sizes.image[1] + x] += part;
                }
            }
        });
    })
}

/// The largest element of each window.
pub(crate) fn max<E: Element<Compute: Number>>(
    pool: Pool2d,
    images: Planes<'_, &[u8]>,
    out: Planes<'_, &mut [u8]>,
) -> Result<(), BackendError> {
    let sizes = Sizes::new(images.1, out.1);
    planes::<E, E>(images, out, |_, image, out| {
        largest(pool, sizes, image, |window, _, value| out[window] = value);
    })
}

/// The place of the largest element of each window, in its image.
pub(crate) fn max_places<E: Element<Compute: Number>, I: Element>(
    pool: Pool2d,
    images: Planes<'_, &[u8]>,
    out: Planes<'_, &mut [u8]>,
) -> Result<(), BackendError> {
    let sizes = Sizes::new(images.1, out.1);
    planes::<E, I>(images, out, |_, image, out| {
        largest(pool, sizes, image, |window, place, _| out[window] = I::Compute::from_i64(place as i64));
    })
}

fn largest<C: Number>(pool: Pool2d, sizes: Sizes, image: &[C], mut found: impl FnMut(usize, usize, C)) {
    let windows = PoolingWindows::Pool { pool, count_padding: false };
    sizes.windows(windows, |window, rows, columns| {
        let (Some(top), Some(left)) = (rows.places().next(), columns.places().next()) else {
            return found(window, 0, C::from_f64(f64::NEG_INFINITY));
        };
        let mut best = top * sizes.image[1] + left;
        for y in rows.places() {
            for x in columns.places() {
                let place = y * sizes.image[1] + x;
                let value = image[place];
                let largest = image[best];
                // The last of several NaN counts.
                #[expect(clippy::eq_op, reason = "NaN differs from itself")]
                if value != value || value > largest {
                    best = place;
                }
            }
        }
        found(window, best, image[best]);
    });
}

/// The gradient of the largest elements, at their places.
pub(crate) fn max_grad<E: Element<Compute: Real>>(
    grads: Planes<'_, &[u8]>,
    places: &[usize],
    out: Planes<'_, &mut [u8]>,
) -> Result<(), BackendError> {
    planes::<E, E>(grads, out, |plane, grads, out| {
        out.fill(E::Compute::default());
        for (place, grad) in places[plane * grads.len()..].iter().zip(grads) {
            out[*place] += *grad;
        }
    })
}
