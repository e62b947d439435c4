//! Softmax and its logarithm.

use device_kernels::{Layout, Reduction, Unary};
use device_registry::backend::BackendError;
use rayon::prelude::*;

use crate::arrays::{Array, BLOCK, PARALLEL, write_all};
use crate::element::Element;
use crate::functions::{map, vectorized};
use crate::real::Real;
use crate::reduce::{Wide, around};
use crate::threads::on_all;

pub(crate) fn softmax<E: Element<Compute: Real + Wide<Wide = f64>>>(
    dim: usize,
    logarithm: bool,
    (input, layout): (&[u8], &Layout),
    (out, out_layout): (&mut [u8], &Layout),
) -> Result<(), BackendError> {
    let array = Array::<E>::new(input, layout);
    let elements = array.to_contiguous()?;
    let (_, len, inner) = around(layout.shape(), dim);
    let group = |elements: &[E::Compute], out: &mut [E::Compute]| {
        if inner == 1 {
            return row(elements, out, logarithm);
        }
        let mut results = vec![E::Compute::default(); len];
        for column in 0..inner {
            let elements: Vec<_> = elements[column..].iter().step_by(inner).copied().collect();
            row(&elements, &mut results, logarithm);
            out[column..].iter_mut().step_by(inner).zip(&results).for_each(|(out, result)| *out = *result);
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

/// The softmax of all elements, or its logarithm.
fn row<C: Real + Wide<Wide = f64>>(elements: &[C], out: &mut [C], logarithm: bool) {
    let fold = |reduction| C::fold(reduction).expect("floating-point numbers have it");
    let max = fold(Reduction::Max);
    let sum = fold(Reduction::Sum);
    let exp = C::unary(Unary::Exp).expect("floating-point numbers have it");
    // The largest is subtracted, so that no power overflows.
    let max = C::from_f64(max.of(elements));
    let mut total = 0.0;
    let mut differences = [C::default(); BLOCK];
    for (elements, out) in elements.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
        let differences = &mut differences[..elements.len()];
        map(elements, differences, |element| element - max);
        exp(differences, out);
        total += sum.of(out);
    }
    let total = C::from_f64(total);
    if logarithm {
        let log = total.ln();
        map(elements, out, |element| element - max - log);
    } else {
        vectorized(|| out.iter_mut().for_each(|out| *out = *out / total));
    }
}
