//! Kernels that compute in bytes of the host, on a device whose memory is the host's own.

use std::sync::Arc;

use burn_std::Bytes;
use device_registry::backend::{BackendError, HostBuffer};
use smallvec::SmallVec;

use crate::describe::{Memory, Step};

/// Whether all steps can be computed here.
pub(crate) fn has_all(steps: &[Step]) -> bool {
    steps.iter().all(|step| step.planned.is_on_host())
}

/// Computes the steps on the calling thread, into new memory of the lengths `outputs`, in bytes. An input is
/// `None` if no step uses it.
pub(crate) fn compute(
    steps: &[Step],
    inputs: &[Option<Arc<Bytes>>],
    outputs: &[usize],
) -> Result<SmallVec<[Bytes; 2]>, BackendError> {
    let new = |len: &usize| HostBuffer::zeroed(*len).map(HostBuffer::into_vec);
    let mut outputs = outputs.iter().map(new).collect::<Result<SmallVec<[Vec<u8>; 2]>, _>>()?;
    for step in steps {
        compute_step(step, inputs, &mut outputs)?;
    }
    Ok(outputs.into_iter().map(Bytes::from_bytes_vec).collect())
}

fn compute_step(
    step: &Step,
    inputs: &[Option<Arc<Bytes>>],
    outputs: &mut [Vec<u8>],
) -> Result<(), BackendError> {
    let call = step.planned.call();
    let ranges = call.byte_ranges();
    let first_output = ranges.len() - call.outputs().len();
    let arrays = || step.memory.iter().zip(ranges);
    // They leave their places, so that a step may read what an earlier one wrote.
    let mut written: SmallVec<[(usize, Vec<u8>); 2]> = arrays()
        .skip(first_output)
        .filter_map(|(memory, _)| match *memory {
            Memory::Output(place) => Some((place, std::mem::take(&mut outputs[place]))),
            Memory::Input(_) => None,
        })
        .collect();
    // What a step both reads and writes is read from a copy.
    let copies: SmallVec<[Option<Vec<u8>>; 4]> = arrays()
        .take(first_output)
        .map(|(memory, range)| match *memory {
            Memory::Output(place) => {
                let of_this_step = written.iter().find(|(written, _)| *written == place);
                of_this_step.and_then(|(_, bytes)| bytes.get(range.clone()).map(<[u8]>::to_vec))
            }
            Memory::Input(_) => None,
        })
        .collect();
    let mut arrays_read = arrays().zip(&copies).map(|((memory, range), copy)| match (*memory, copy) {
        (_, Some(copy)) => Some(&copy[..]),
        (Memory::Input(place), None) => inputs[place].as_deref().and_then(|bytes| bytes.get(range.clone())),
        (Memory::Output(place), None) => outputs[place].get(range.clone()),
    });
    let read: SmallVec<[Option<&[u8]>; 4]> =
        call.inputs().iter().map(|input| input.array().and_then(|_| arrays_read.next().flatten())).collect();
    let mut to: SmallVec<[&mut [u8]; 2]> = written
        .iter_mut()
        .zip(&ranges[first_output..])
        .map(|((_, bytes), range)| bytes.get_mut(range.clone()).unwrap_or_default())
        .collect();
    let computed = step.planned.compute_on_host(&read, &mut to);
    drop((read, to));
    for (place, bytes) in written {
        outputs[place] = bytes;
    }
    computed.unwrap_or_else(|| Err(BackendError::unsupported("the kernel needs memory of the device")))
}
