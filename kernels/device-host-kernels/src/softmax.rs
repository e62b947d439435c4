//! Softmax and its logarithm.

use device_kernels::Layout;
use device_registry::backend::BackendError;
use rayon::prelude::*;

use crate::arrays::{Array, PARALLEL, write_all};
use crate::element::{Compute as _, Element};
use crate::functions::Number;
use crate::real::Real;
use crate::reduce::around;
use crate::threads::on_all;

pub(crate) fn softmax<E: Element<Compute: Real>>(
    dim: usize,
    logarithm: bool,
    (input, layout): (&[u8], &Layout),
    (out, out_layout): (&mut [u8], &Layout),
) -> Result<(), BackendError> {
    let array = Array::<E>::new(input, layout);
    let elements = array.to_contiguous()?;
    let (_, len, inner) = around(layout.shape(), dim);
    let group = |elements: &[E::Compute], out: &mut [E::Compute]| {
        for column in 0..inner {
            let places = || (column..len * inner).step_by(inner);
            // The largest is subtracted, so that no power overflows.
            let max =
                places().map(|place| elements[place]).fold(E::Compute::NEG_INFINITY, E::Compute::larger);
            let mut sum = 0.0;
            for place in places() {
                let power = (elements[place] - max).exp();
                out[place] = power;
                sum += power.to_f64();
            }
            let sum = E::Compute::from_f64(sum);
            if logarithm {
                let log = sum.ln();
                places().for_each(|place| out[place] = elements[place] - max - log);
            } else {
                places().for_each(|place| out[place] = out[place] / sum);
            }
        }
    };
    write_all::<E>(out, out_layout, |out| {
        let size = len * inner;
        if out.len() < PARALLEL {
            out.chunks_mut(size).zip(elements.chunks(size)).for_each(|(out, elements)| group(elements, out));
        } else {
            let groups = out.par_chunks_mut(size).zip(elements.par_chunks(size));
            on_all(|| groups.for_each(|(out, elements)| group(elements, out)));
        }
    });
    Ok(())
}
