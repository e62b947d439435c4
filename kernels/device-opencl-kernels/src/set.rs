//! The kernel set: what it supports, and how a call becomes commands.

use std::sync::atomic::{AtomicU8, Ordering};

use device_kernels::{Call, DType, KernelSet};
use device_opencl::OpenClDevice;
use device_opencl::sys::{
    CL_DEVICE_EXTENSIONS, CL_DEVICE_MAX_COMPUTE_UNITS, CL_DEVICE_TYPE, CL_DEVICE_TYPE_CPU,
};
use device_registry::Device;
use device_registry::backend::{BackendError, Launch};
use smallvec::SmallVec;

use crate::cache::{self, Programs};
use crate::enqueue::{self, Array};
use crate::generate::{self, Target, Traits};

/// The kernels of `opencl`.
pub(crate) struct OpenClKernels;

/// A place from which on indices need more than 32 bits. Numbers of items and places in panels are rounded
/// up, to less than four times of it.
const WIDE: usize = 1 << 29;

impl KernelSet for OpenClKernels {
    fn supports(&self, device: Device, call: &Call) -> bool {
        let doubles = call.arrays().any(|(dtype, _)| dtype == DType::F64);
        let has_doubles = || {
            let traits = device.with_native(|native| {
                let (device, programs) = cache::open(native)?;
                Ok(traits(&device, &programs))
            });
            traits.is_ok_and(|traits| traits.doubles)
        };
        // Whether there is a kernel does not depend on the device otherwise.
        let traits = Traits { doubles: true, groups: true, units: 1 };
        (!doubles || has_doubles()) && generate::plan(call, Target { traits, wide: false }).is_some()
    }

    fn launch(&self, call: &Call, launch: &Launch<'_>) -> Result<(), BackendError> {
        let (device, programs) = cache::open(launch.native_device())?;
        let traits = traits(&device, &programs);
        let mut arrays = SmallVec::<[Array; 4]>::new();
        let mut wide = false;
        for (place, (dtype, layout)) in call.arrays().enumerate() {
            let end = layout.range().end;
            let array = Array::of(launch, place, dtype.size(), end)?;
            let reach = layout.strides().iter().map(|stride| stride.unsigned_abs()).max().unwrap_or(0);
            wide |= layout.len() >= WIDE || array.first() + end >= WIDE || reach >= WIDE;
            arrays.push(array);
        }
        let mut target = Target { traits, wide };
        let unsupported = || BackendError::unsupported(format_args!("no kernel for {call} in OpenCL C"));
        let mut plan = generate::plan(call, target).ok_or_else(unsupported)?;
        // Options may be large where arrays are not.
        let large = |index: &i64| index.unsigned_abs() >= WIDE as u64;
        if !wide && plan.steps.iter().any(|step| step.indices.iter().any(large)) {
            target.wide = true;
            plan = generate::plan(call, target).ok_or_else(unsupported)?;
        }
        // SAFETY: the arrays have been compared with the spans, and the kernels access the elements of their
        // layouts only. The launch has handles of device-opencl's kinds, and its backend has promised that
        // they are what `handles` says.
        unsafe { enqueue::enqueue(&plan, target, &arrays, launch, &device, &programs) }
    }
}

/// What a device is like. It stays so when the device is opened again.
fn traits(device: &OpenClDevice, programs: &Programs) -> Traits {
    let mut traits = programs.traits(|| {
        let query = |what| device.info(what).unwrap_or_default();
        let extensions = String::from_utf8_lossy(&query(CL_DEVICE_EXTENSIONS)).into_owned();
        let has = |name: &str| extensions.split(['\0', ' ']).any(|extension| extension == name);
        Traits {
            doubles: has("cl_khr_fp64"),
            groups: number(&query(CL_DEVICE_TYPE)) & CL_DEVICE_TYPE_CPU == 0,
            units: number(&query(CL_DEVICE_MAX_COMPUTE_UNITS)).clamp(1, 1 << 16) as i64,
        }
    });
    match GROUPS.load(Ordering::Relaxed) {
        0 => {}
        set => traits.groups = set == 2,
    }
    traits
}

/// A number of 32 or 64 bits, or 0.
fn number(bytes: &[u8]) -> u64 {
    let long = bytes.try_into().map(u64::from_ne_bytes);
    long.or_else(|_| bytes.try_into().map(u32::from_ne_bytes).map(u64::from)).unwrap_or(0)
}

/// Whether kernels are planned for devices whose groups run side by side, for tests: 0 as the device is, 1
/// no, 2 yes.
static GROUPS: AtomicU8 = AtomicU8::new(0);

/// Plans kernels as for a GPU, or as for a processor. Not public API: tests run each form on any device.
#[doc(hidden)]
pub fn plan_groups(groups: Option<bool>) {
    GROUPS.store(groups.map_or(0, |groups| 1 + u8::from(groups)), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use device_kernels::Operator;

    use super::*;

    #[test]
    fn every_operator_has_a_kernel() {
        for groups in [true, false] {
            let target = Target { traits: Traits { doubles: true, groups, units: 1 }, wide: false };
            let calls = device_kernels_conformance::calls();
            let (with, without): (Vec<_>, Vec<_>) =
                calls.iter().partition(|call| generate::plan(call, target).is_some());
            assert!(without.is_empty(), "no kernel for {}", without[0]);
            let planned: BTreeSet<String> = with.iter().map(|call| call.operator().full_name()).collect();
            let missing: Vec<_> =
                Operator::full_names().into_iter().filter(|name| !planned.contains(name)).collect();
            assert!(missing.is_empty(), "no call of {missing:?}");
        }
    }
}
