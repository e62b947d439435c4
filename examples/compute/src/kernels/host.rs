//! Kernels for devices whose memory the host reaches: `cpu`, and the simulated `openreg`. They are Rust, run
//! by the stream's thread, and work on windows to the bytes.

use std::sync::Arc;

use device_openreg::OpenRegMemory;
use device_registry::backend::{BackendError, HostMemory, Launch, Span, open_windows};

use super::{Language, NativeKernels};
use crate::work::{Shape, Work};

pub(crate) const CPU: Language =
    Language { name: "Rust", built_in: None, compile: |_, _| Ok(Arc::new(Host(|span| span.memory_as()))) };

pub(crate) const OPENREG: Language =
    Language { compile: |_, _| Ok(Arc::new(Host(|span| span.memory_as::<OpenRegMemory>()?.bytes()))), ..CPU };

/// The kernels, by how they reach the bytes behind a span.
struct Host(fn(&Span) -> Result<&HostMemory, BackendError>);

impl NativeKernels for Host {
    fn enqueue(
        &self,
        _launch: &Launch<'_>,
        work: Work,
        [a, b, result]: [&Span; 3],
    ) -> Result<(), BackendError> {
        let Self(memory) = self;
        // All at once, so that no two kernels wait for each other.
        let reads = [(memory(a)?, a.range()), (memory(b)?, b.range())];
        let ([a, b], [mut result]) = open_windows(reads, [(memory(result)?, result.range())])?;
        let a = a.as_chunks().0;
        let b = b.as_chunks().0;
        match work {
            Work::Add { .. } => add(a, b, result.as_chunks_mut().0),
            Work::Matmul(shape) => matmul(a, b, result.as_chunks_mut().0, shape),
        }
        Ok(())
    }
}

/// The bytes of an `f32`.
type Element = [u8; 4];

fn add(a: &[Element], b: &[Element], sum: &mut [Element]) {
    for ((sum, a), b) in sum.iter_mut().zip(a).zip(b) {
        *sum = (f32::from_ne_bytes(*a) + f32::from_ne_bytes(*b)).to_ne_bytes();
    }
}

fn matmul(a: &[Element], b: &[Element], product: &mut [Element], shape: Shape) {
    let inner = shape.inner as usize;
    let columns = shape.columns as usize;
    // A row at a time, to which the rows of `b` are added: all of them are read in the order in which they
    // lie.
    let mut sums = vec![0.0; columns];
    for (a, product) in a.chunks_exact(inner).zip(product.chunks_exact_mut(columns)) {
        sums.fill(0.0);
        for (a, b) in a.iter().zip(b.chunks_exact(columns)) {
            let a = f32::from_ne_bytes(*a);
            sums.iter_mut().zip(b).for_each(|(sum, b)| *sum += a * f32::from_ne_bytes(*b));
        }
        product.iter_mut().zip(&sums).for_each(|(product, sum): (_, &f32)| *product = sum.to_ne_bytes());
    }
}
