//! Kernels that compute in bytes of the host, on a device whose memory is the host's own.

use std::sync::Arc;

use burn_ir::TensorIr;
use burn_std::Bytes;
use bytemuck::{NoUninit, Zeroable};
use device_registry::backend::BackendError;
use smallvec::SmallVec;

use crate::step::{Memory, Step};

/// Whether all steps can be computed here.
pub(crate) fn has_all(steps: &[Step]) -> bool {
    steps.iter().all(|step| step.planned.is_on_host())
}

/// Computes the steps on the calling thread, into new memory for each of `outputs`. An input is `None` if no
/// step uses it.
pub(crate) fn compute(
    steps: &[Step],
    inputs: &[Option<Arc<Bytes>>],
    outputs: &[TensorIr],
) -> Result<SmallVec<[Bytes; 2]>, BackendError> {
    let new = |out| zeroed(out).map(Some);
    let mut outputs = outputs.iter().map(new).collect::<Result<Outputs, _>>()?;
    for step in steps {
        compute_step(step, inputs, &mut outputs)?;
    }
    Ok(outputs.into_iter().flatten().collect())
}

/// The bytes of the outputs. Bytes that a step writes leave their places meanwhile.
type Outputs = SmallVec<[Option<Bytes>; 2]>;

/// Memory for a tensor, with the alignment of its type: burn takes it as it is.
fn zeroed(out: &TensorIr) -> Result<Bytes, BackendError> {
    fn of<T: Zeroable + NoUninit + Send + Sync>(out: &TensorIr) -> Result<Bytes, BackendError> {
        let zeroed = bytemuck::try_zeroed_vec::<T>(out.shape.num_elements());
        let len = out.shape.num_elements() as u64 * size_of::<T>() as u64;
        zeroed.map(Bytes::from_elems).map_err(|()| BackendError::out_of_memory(len, None))
    }
    match out.dtype.size() {
        1 => of::<u8>(out),
        2 => of::<u16>(out),
        4 => of::<u32>(out),
        8 => of::<u64>(out),
        _ => Err(BackendError::unsupported(format_args!("kernels do not write {}", out.dtype.name()))),
    }
}

fn compute_step(
    step: &Step,
    inputs: &[Option<Arc<Bytes>>],
    outputs: &mut [Option<Bytes>],
) -> Result<(), BackendError> {
    let call = step.planned.call();
    let ranges = call.byte_ranges();
    let first_output = ranges.len() - call.outputs().len();
    let arrays = || step.memory.iter().zip(ranges);
    // They leave their places, so that a step may read what an earlier one wrote.
    let mut written: SmallVec<[(usize, Bytes); 2]> = arrays()
        .skip(first_output)
        .filter_map(|(memory, _)| match *memory {
            Memory::Output(place) => outputs[place].take().map(|bytes| (place, bytes)),
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
        (Memory::Output(place), None) => outputs[place].as_deref().and_then(|bytes| bytes.get(range.clone())),
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
        outputs[place] = Some(bytes);
    }
    computed.unwrap_or_else(|| Err(BackendError::unsupported("the kernel needs memory of the device")))
}

#[cfg(test)]
mod tests {
    use burn_backend::DType;
    use burn_ir::{TensorId, TensorStatus};

    use super::*;

    #[test]
    fn memory_is_of_the_type_so_that_nobody_copies_it_to_align_it() {
        fn check<T: bytemuck::Pod + PartialEq + std::fmt::Debug>(dtype: DType) {
            let id = TensorId::new(0);
            let status = TensorStatus::NotInit;
            for len in [0, 1, 1000] {
                let bytes = zeroed(&TensorIr { id, shape: [len].into(), status, dtype }).unwrap();
                // A vector of the type is freed with the type's alignment, so other bytes cannot become one.
                assert_eq!(bytes.try_into_vec::<T>().unwrap(), vec![T::zeroed(); len], "{dtype:?}");
            }
        }
        check::<f32>(DType::F32);
        check::<f64>(DType::F64);
        check::<i64>(DType::I64);
        check::<burn_std::f16>(DType::F16);
        check::<u8>(DType::U8);
    }
}
