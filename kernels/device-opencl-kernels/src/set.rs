//! The kernel set: what it supports, and how a call becomes commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use device_kernels::{Call, Coverage, DType, DTypes, KernelSet, Operator};
use device_opencl::sys::{
    CL_DEVICE_EXTENSIONS, CL_DEVICE_MAX_COMPUTE_UNITS, CL_DEVICE_TYPE, CL_DEVICE_TYPE_CPU,
};
use device_registry::Device;
use device_registry::backend::{BackendError, Launch};
use smallvec::SmallVec;

use crate::cache::{self, OpenKernels};
use crate::enqueue::{self, Array};
use crate::generate::element::Value;
use crate::generate::{self, Target, Traits};

/// The kernels of `opencl`.
pub(crate) struct OpenClKernels;

/// A place from which on indices need more than 32 bits. Numbers of items and places in panels are rounded
/// up, to less than four times of it.
const WIDE: usize = 1 << 29;

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
        traits.is_some_and(|traits| generate::plan(call, Target { traits, wide: false }).is_some())
    }

    fn launch(&self, call: &Call, launch: &Launch<'_>) -> Result<(), BackendError> {
        let open = cache::open(launch.native_device())?;
        let traits = traits(&open);
        let (arrays, wide) = arrays(call, launch)?;
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
        unsafe { enqueue::enqueue(&plan, target, &arrays, launch, &open) }
    }
}

/// The arrays of a call in the spans of its launch, and whether places in them need more than 32 bits.
fn arrays(call: &Call, launch: &Launch<'_>) -> Result<(SmallVec<[Array; 4]>, bool), BackendError> {
    let mut arrays = SmallVec::new();
    let mut wide = false;
    for (place, (dtype, layout)) in call.arrays().enumerate() {
        let end = layout.range().end;
        let array = Array::of(launch, place, dtype.size(), end)?;
        let reach = layout.strides().iter().map(|stride| stride.unsigned_abs()).max().unwrap_or(0);
        wide |= layout.len() >= WIDE || array.first() + end >= WIDE || reach >= WIDE;
        arrays.push(array);
    }
    Ok((arrays, wide))
}

/// An OpenCL C kernel for your own set, such as one for an [operator that a crate
/// declares](device_kernels::OperatorDefinition), with the arguments of a call.
///
/// Programs are compiled once for each device, and [kept on disk](crate#how-it-works), like this crate's own.
#[derive(Clone, Debug)]
pub struct CustomKernel {
    text: Arc<str>,
    values: SmallVec<[Value; 4]>,
    indices: SmallVec<[i64; 16]>,
    items: usize,
}

impl CustomKernel {
    /// A kernel with the name `run`, of this many items in one dimension. There are more of them than that,
    /// as they come in groups: an item beyond the number does nothing.
    ///
    /// The text may use the type `index_t`, which is `int`, or `long` where places in the arrays need it. The
    /// parameters of `run` are, in this order:
    ///
    /// 1. for each array of the call, inputs first, a pointer to `global` elements, and an `index_t`: where
    ///    the array's buffer begins, in elements, to which the layout's offset and strides are added;
    /// 2. the [values](Self::value);
    /// 3. the [indices](Self::index), each an `index_t`.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>, items: usize) -> Self {
        Self { text: text.into(), values: SmallVec::new(), indices: SmallVec::new(), items }
    }

    /// Adds a value to the arguments.
    #[must_use]
    pub fn value(mut self, value: Value) -> Self {
        self.values.push(value);
        self
    }

    /// Adds a size, a stride or an offset to the arguments.
    #[must_use]
    pub fn index(mut self, index: i64) -> Self {
        self.indices.push(index);
        self
    }

    /// Enqueues the kernel in the stream of a launch. Compiles it at the first one on a device.
    ///
    /// # Errors
    ///
    /// The driver's log if it rejects the text, and what a command of OpenCL returns.
    ///
    /// # Safety
    ///
    /// `launch` is the call's. With its arguments, the kernel has the parameters above, accesses
    /// elements of the call's layouts only, and writes to outputs only.
    pub unsafe fn launch(&self, call: &Call, launch: &Launch<'_>) -> Result<(), BackendError> {
        let open = cache::open(launch.native_device())?;
        let (arrays, wide) = arrays(call, launch)?;
        let large = |index: &i64| index.unsigned_abs() >= WIDE as u64;
        let wide = wide || self.items >= WIDE || self.indices.iter().any(large);
        let target = Target { traits: traits(&open), wide };
        let plan = generate::custom::plan(call, &self.text, &self.values, &self.indices, self.items, target);
        // SAFETY: the arrays have been compared with the spans, and the caller promises the rest.
        unsafe { enqueue::enqueue(&plan, target, &arrays, launch, &open) }
    }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_operator_has_a_kernel() {
        for groups in [true, false] {
            let target = Target { traits: Traits { doubles: true, groups, units: 1 }, wide: false };
            let calls = device_kernels_conformance::calls();
            let (with, without): (Vec<_>, Vec<_>) =
                calls.iter().partition(|call| generate::plan(call, target).is_some());
            // Expressions are done in parts where one launch would be slow.
            let in_parts =
                |call: &Call| matches!(call.operator(), Operator::Expression(of) if of.dims().is_some());
            let without = without.iter().find(|call| !in_parts(call));
            assert!(without.is_none(), "no kernel for {}", without.unwrap());
            let planned: BTreeSet<&str> = with.iter().map(|call| call.operator().name()).collect();
            let missing: Vec<_> = Operator::names().filter(|name| !planned.contains(name)).collect();
            assert!(missing.is_empty(), "no call of {missing:?}");
        }
    }
}
