//! The kernel set: what it supports, and how a call becomes commands.

use std::sync::atomic::{AtomicU8, Ordering};

use device_generated_kernels::{CustomKernel, Traits};
use device_kernels::{Call, Coverage, DType, DTypes, KernelSet, Operator};
use device_opencl::sys::{
    CL_DEVICE_EXTENSIONS, CL_DEVICE_MAX_COMPUTE_UNITS, CL_DEVICE_TYPE, CL_DEVICE_TYPE_CPU,
};
use device_registry::Device;
use device_registry::backend::{BackendError, Launch};
use smallvec::SmallVec;

use crate::cache::{self, OpenKernels};
use crate::enqueue::{self, Array};

/// The kernels of `opencl`.
pub(crate) struct OpenClKernels;

impl KernelSet for OpenClKernels {
    fn coverage(&self, device: Device) -> Vec<Coverage> {
        let doubles = traits_of(device).is_some_and(|traits| traits.doubles);
        let dtypes = if doubles { DTypes::ALL } else { DTypes::ALL.without(DType::F64) };
        Coverage::of_all().into_iter().map(|coverage| coverage.dtypes(dtypes)).collect()
    }

    fn supports(&self, device: Device, call: &Call) -> bool {
        let doubles = call.arrays().any(|(dtype, _)| dtype == DType::F64);
        // Whether there is a kernel does not depend on the device otherwise, unless it is an expression's.
        let traits = match call.operator() {
            Operator::Expression(_) => traits_of(device),
            _ if doubles => traits_of(device).filter(|traits| traits.doubles),
            _ => Some(Traits { doubles: true, groups: true, units: 1 }),
        };
        traits.is_some_and(|traits| device_generated_kernels::has_kernel(call, traits))
    }

    fn launch(&self, call: &Call, launch: &Launch<'_>) -> Result<(), BackendError> {
        let open = cache::open(launch.native_device())?;
        let traits = traits(&open);
        let arrays = arrays(call, launch)?;
        let unsupported = || BackendError::unsupported(format_args!("no kernel for {call} in OpenCL C"));
        device_generated_kernels::with_plan(call, traits, &begins(&arrays), |plan| {
            let plan = plan.ok_or_else(unsupported)?;
            // SAFETY: the arrays have been compared with the spans, and the kernels access the elements of
            // their layouts only. The launch has handles of device-opencl's kinds, and its backend has
            // promised that they are what `handles` says.
            unsafe { enqueue::enqueue(plan, call, &arrays, launch, &open) }
        })
    }
}

/// The arrays of a call in the spans of its launch.
fn arrays(call: &Call, launch: &Launch<'_>) -> Result<SmallVec<[Array; 4]>, BackendError> {
    let arrays = call.arrays().enumerate();
    arrays
        .map(|(place, (dtype, layout))| Array::of(launch, place, dtype.size(), layout.range().end))
        .collect()
}

/// How many elements the memory of each array has before it.
fn begins(arrays: &[Array]) -> SmallVec<[usize; 4]> {
    arrays.iter().map(Array::first).collect()
}

/// Enqueues a kernel of your own in the stream of a launch. Compiles it at the first one on a device.
///
/// # Errors
///
/// The driver's log if it rejects the text, and what a command of OpenCL returns.
///
/// # Safety
///
/// `launch` is the call's. With its arguments, the kernel has the parameters that [`CustomKernel::new`] says,
/// accesses elements of the call's layouts only, and writes to outputs only.
pub unsafe fn launch(kernel: &CustomKernel, call: &Call, launch: &Launch<'_>) -> Result<(), BackendError> {
    let open = cache::open(launch.native_device())?;
    let arrays = arrays(call, launch)?;
    let plan = kernel.plan(call, traits(&open), &begins(&arrays));
    // SAFETY: the arrays have been compared with the spans, and the caller promises the rest.
    unsafe { enqueue::enqueue(&plan, call, &arrays, launch, &open) }
}

/// What a device is like, if it opens.
fn traits_of(device: Device) -> Option<Traits> {
    device.with_native(|native| Ok(traits(&*cache::open(native)?))).ok()
}

/// What a device is like. It stays so when the device is opened again.
fn traits(open: &OpenKernels) -> Traits {
    let mut traits = open.programs.traits(|| {
        let query = |what| open.device.info(what).unwrap_or_default();
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
