//! Products of matrices.

use std::borrow::Cow;

use device_kernels::{Argument, Call, Layout};
use device_registry::backend::BackendError;
use rayon::prelude::*;

use crate::arrays::{Array, BLOCK, PARALLEL, write_all};
use crate::element::{Compute, Element};
use crate::elementwise::Inputs;
use crate::functions::{Number, vectorized};
use crate::real::{Matrix, Real, Threads, multiply};
use crate::threads::on_all;

/// The elements of an input, and where its matrices are.
struct Operand<'a, C: Clone> {
    elements: Cow<'a, [C]>,
    layout: Layout,
    start: isize,
}

impl<'a, C: Compute> Operand<'a, C> {
    /// In place if the elements are computed in as they are stored.
    fn new<E: Element<Compute = C>>(array: &'a Array<'_, E>, layout: &Layout) -> Result<Self, BackendError> {
        Ok(match array.as_compute() {
            Some((elements, start)) => Self { elements: Cow::Borrowed(elements), layout: *layout, start },
            None => {
                let layout = Layout::contiguous(layout.shape()).expect("the shape is that of an array");
                Self { elements: array.to_contiguous()?, layout, start: 0 }
            }
        })
    }

    /// The matrix of the batch with the number `batch`.
    fn matrix(&self, mut batch: usize) -> Matrix {
        let shape = self.layout.shape();
        let strides = self.layout.strides();
        let [outer @ .., row, column] = strides else { unreachable!("matrices have two dimensions") };
        let mut start = self.start;
        for (size, stride) in shape.iter().zip(outer).rev() {
            start += (batch % size) as isize * stride;
            batch /= size;
        }
        Matrix { start: start as usize, row: *row, column: *column }
    }
}

/// How many products of elements are worth all threads: more than a short call has.
const SPLIT: usize = 1 << 20;

pub(crate) fn matmul<E: Element<Compute: Real>>(
    call: &Call,
    inputs: &Inputs<'_>,
    out: &mut [u8],
) -> Result<(), BackendError> {
    let [a, b] = [0, 1].map(|place| array::<E>(call, inputs, place));
    let a = Operand::new(&a.0, a.1)?;
    let b = Operand::new(&b.0, b.1)?;
    let sizes @ [m, n, k] = sizes(&a.layout, &b.layout);
    let bias = call.inputs().get(2).map(|_| array::<E>(call, inputs, 2).0);
    let bias = bias.as_ref().map(Array::to_contiguous).transpose()?;
    let (_, layout) = &call.outputs()[0];
    write_all::<E>(out, layout, |out| {
        if let Some(bias) = &bias {
            out.copy_from_slice(bias);
        }
        let one = |batch: usize, out: &mut [E::Compute], threads| {
            let of_a = a.matrix(batch);
            let of_b = b.matrix(batch);
            let product = (out, Matrix::by_rows(0, n));
            multiply(sizes, (&a.elements, of_a), (&b.elements, of_b), product, bias.is_some(), threads);
        };
        if out.len() == m * n && (m * n).saturating_mul(k) >= SPLIT {
            on_all(|| one(0, out, Threads::All));
        } else if out.len() == m * n || out.len() < PARALLEL {
            out.chunks_mut(m * n).enumerate().for_each(|(batch, out)| one(batch, out, Threads::One));
        } else {
            let batches = out.par_chunks_mut(m * n).enumerate();
            on_all(|| batches.for_each(|(batch, out)| one(batch, out, Threads::One)));
        }
    });
    Ok(())
}

/// The same for integers, whose sums and products wrap.
pub(crate) fn matmul_integers<E: Element<Compute: Number>>(
    call: &Call,
    inputs: &Inputs<'_>,
    out: &mut [u8],
) -> Result<(), BackendError> {
    let [a, b] = [0, 1].map(|place| array::<E>(call, inputs, place));
    let a_shape = a.1;
    let b_shape = b.1;
    let [m, n, k] = sizes(a_shape, b_shape);
    let a = a.0.to_contiguous()?;
    let b = b.0.to_contiguous()?;
    let bias = call.inputs().get(2).map(|_| array::<E>(call, inputs, 2).0);
    let bias = bias.as_ref().map(Array::to_contiguous).transpose()?;
    let (_, layout) = &call.outputs()[0];
    write_all::<E>(out, layout, |out| {
        if let Some(bias) = &bias {
            out.copy_from_slice(bias);
        } else {
            out.fill(E::Compute::default());
        }
        // Some rows at a time, so that each part of a row of `b` is read once for them; fewer where each
        // thread has less.
        let rows = (out.len() / n).div_ceil(rayon::current_num_threads()).clamp(1, 8);
        let some = |(place, out): (usize, &mut [E::Compute])| {
            for start in (0..n).step_by(BLOCK) {
                let end = n.min(start + BLOCK);
                for depth in 0..k {
                    for (row, out) in out.chunks_mut(n).enumerate() {
                        let row = place * rows + row;
                        let factor = a[row * k + depth];
                        let of_b = &b[(row / m * k + depth) * n..][start..end];
                        vectorized(|| {
                            for (out, b) in out[start..end].iter_mut().zip(of_b) {
                                *out = out.sum(factor.product(*b));
                            }
                        });
                    }
                }
            }
        };
        if out.len().saturating_mul(k) <= PARALLEL {
            out.chunks_mut(rows * n).enumerate().for_each(some);
        } else {
            on_all(|| out.par_chunks_mut(rows * n).enumerate().for_each(some));
        }
    });
    Ok(())
}

/// The rows and columns of the product, and the products for each element.
fn sizes(a: &Layout, b: &Layout) -> [usize; 3] {
    let ([.., m, k], [.., n]) = (a.shape(), b.shape()) else { unreachable!("matrices have two dimensions") };
    [*m, *n, *k]
}

fn array<'a, 'c, E: Element>(
    call: &'c Call,
    inputs: &Inputs<'a>,
    place: usize,
) -> (Array<'a, E>, &'c Layout) {
    match (&call.inputs()[place], inputs[place]) {
        (Argument::Array(_, layout), Some(bytes)) => (Array::new(bytes, layout), layout),
        _ => unreachable!("matrices are arrays, which have bytes"),
    }
}
