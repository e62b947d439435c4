//! Kernels for devices whose memory the host reaches: `cpu`, and the simulated `openreg`. They are Rust, run
//! by the stream's thread, and work on windows to the bytes.

use std::sync::Arc;

use device_openreg::OpenRegMemory;
use device_registry::backend::{BackendError, HostMemory, Launch, LoadFailure, Span, open_windows};

use super::{Form, Language, NativeKernels, Shape};

/// Loads the kernels for `cpu`.
pub(crate) fn cpu() -> Result<Box<dyn Language>, LoadFailure> {
    Ok(Box::new(Host(host_memory)))
}

/// Loads the kernels for `openreg`.
pub(crate) fn openreg() -> Result<Box<dyn Language>, LoadFailure> {
    Ok(Box::new(Host(openreg_memory)))
}

/// How the bytes behind a span are reached.
type Reach = fn(&Span) -> Result<&HostMemory, BackendError>;

fn host_memory(span: &Span) -> Result<&HostMemory, BackendError> {
    span.memory_as()
}

fn openreg_memory(span: &Span) -> Result<&HostMemory, BackendError> {
    span.memory_as::<OpenRegMemory>()?.bytes()
}

struct Host(Reach);

impl Language for Host {
    fn name(&self) -> &'static str {
        "Rust"
    }

    fn form(&self) -> Form<'_> {
        Form::Linked(Arc::new(Self(self.0)))
    }
}

impl NativeKernels for Host {
    fn add(&self, _launch: &Launch<'_>, [a, b, sum]: [&Span; 3], _len: u32) -> Result<(), BackendError> {
        let [a_memory, b_memory, sum_memory] = [(self.0)(a)?, (self.0)(b)?, (self.0)(sum)?];
        // All at once, so that no two kernels wait for each other.
        let reads = [(a_memory, a.range()), (b_memory, b.range())];
        let ([a, b], [mut sum]) = open_windows(reads, [(sum_memory, sum.range())])?;
        let ((a, _), (b, _)) = (a.as_chunks(), b.as_chunks());
        for ((sum, a), b) in sum.as_chunks_mut().0.iter_mut().zip(a).zip(b) {
            *sum = (f32::from_ne_bytes(*a) + f32::from_ne_bytes(*b)).to_ne_bytes();
        }
        Ok(())
    }

    fn matmul(
        &self,
        _launch: &Launch<'_>,
        [a, b, product]: [&Span; 3],
        shape: Shape,
    ) -> Result<(), BackendError> {
        let [a_memory, b_memory, product_memory] = [(self.0)(a)?, (self.0)(b)?, (self.0)(product)?];
        let reads = [(a_memory, a.range()), (b_memory, b.range())];
        let ([a, b], [mut product]) = open_windows(reads, [(product_memory, product.range())])?;
        let ((a, _), (b, _), (product, _)) = (a.as_chunks(), b.as_chunks(), product.as_chunks_mut());
        let (inner, columns) = (shape.inner() as usize, shape.columns() as usize);
        // A row at a time, to which the rows of `b` are added: all of them are read in the order in which
        // they lie.
        let mut sums = vec![0.0; columns];
        for (a, product) in a.chunks_exact(inner).zip(product.chunks_exact_mut(columns)) {
            sums.fill(0.0);
            for (a, b) in a.iter().zip(b.chunks_exact(columns)) {
                let a = f32::from_ne_bytes(*a);
                sums.iter_mut().zip(b).for_each(|(sum, b)| *sum += a * f32::from_ne_bytes(*b));
            }
            product
                .iter_mut()
                .zip(&sums)
                .for_each(|(product, sum): (&mut [u8; 4], _)| *product = sum.to_ne_bytes());
        }
        Ok(())
    }
}
