//! The kernel for memory of the host, as `cpu` and `openreg` have.

use device_kernels::{Call, Layout};
use device_registry::backend::BackendError;

use crate::limit;

pub(crate) fn compute(
    call: &Call,
    inputs: &[Option<&[u8]>],
    outputs: &mut [&mut [u8]],
) -> Result<(), BackendError> {
    let layouts: Vec<&Layout> = call.arrays().map(|(_, layout)| layout).collect();
    let (&[Some(gate), Some(value)], [out], [of_gate, of_value, of_out]) = (inputs, outputs, &layouts[..])
    else {
        return Err(BackendError::invalid("expected two inputs and an output"));
    };
    let limit = limit(call).ok_or_else(|| BackendError::unsupported(call))?;
    let places = places(of_gate).zip(places(of_value)).zip(places(of_out));
    for ((at_gate, at_value), at_out) in places {
        let gate = number(gate, at_gate).min(limit);
        let result = gate / (1.0 + (-gate).exp()) * number(value, at_value).clamp(-limit, limit);
        out[at_out..at_out + 4].copy_from_slice(&result.to_ne_bytes());
    }
    Ok(())
}

fn number(bytes: &[u8], at: usize) -> f32 {
    f32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Where each element is in the bytes of its array, in the order of the indices.
fn places(layout: &Layout) -> impl Iterator<Item = usize> {
    let first = layout.offset() as isize - layout.range().start as isize;
    (0..layout.len()).map(move |element| {
        let (mut rest, mut place) = (element, first);
        for (&size, &stride) in layout.shape().iter().zip(layout.strides()).rev() {
            place += (rest % size) as isize * stride;
            rest /= size;
        }
        place as usize * size_of::<f32>()
    })
}
