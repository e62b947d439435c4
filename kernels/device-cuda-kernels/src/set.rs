//! The kernel set: what it supports, and how a call becomes launches.

use device_cuda::handles;
use device_generated_kernels::{CustomKernel, GroupAxes, Place, Plan, Step, Traits};
use device_kernels::{Call, Coverage, KernelSet, Operator};
use device_registry::Device;
use device_registry::backend::{BackendError, Launch};
use smallvec::SmallVec;

use crate::arguments::Arguments;
use crate::cache::{self, OpenKernels};
use crate::nvrtc::Nvrtc;

/// The kernels of `cuda`.
pub(crate) struct CudaKernels {
    nvrtc: &'static Nvrtc,
}

/// The most groups on the second and on the third axis.
const MOST_GROUPS: usize = 65_535;

/// Whether a call has a kernel does not depend on how many units there are, unless it is an expression.
const TRAITS: Traits = Traits { doubles: true, groups: true, units: 64 };

impl CudaKernels {
    pub(crate) fn new(nvrtc: &'static Nvrtc) -> Self {
        Self { nvrtc }
    }
}

impl KernelSet for CudaKernels {
    fn coverage(&self, _device: Device) -> Vec<Coverage> {
        Coverage::of_all()
    }

    fn supports(&self, device: Device, call: &Call) -> bool {
        let of_device = || device.with_native(|native| Ok(cache::open(native, self.nvrtc)?.traits)).ok();
        let traits = match call.operator() {
            Operator::Expression(_) => of_device(),
            _ => Some(TRAITS),
        };
        traits.is_some_and(|traits| device_generated_kernels::has_kernel(call, traits))
    }

    fn launch(&self, call: &Call, launch: &Launch<'_>) -> Result<(), BackendError> {
        let open = cache::open(launch.native_device(), self.nvrtc)?;
        let unsupported = || BackendError::unsupported(format_args!("no kernel for {call} in CUDA C++"));
        let pointers = pointers(call, launch)?;
        device_generated_kernels::with_plan(call, open.traits, &[], |plan| {
            let plan = plan.ok_or_else(unsupported)?;
            // SAFETY: the arrays have been compared with the spans, and the kernels access the elements of
            // their layouts only. The launch has handles of device-cuda's kinds, and its backend has promised
            // that they are what `handles` says.
            unsafe { enqueue(plan, call, &pointers, launch, &open, self.nvrtc) }
        })
    }
}

/// Enqueues a kernel of your own in the stream of a launch. Compiles it at the first one on a device.
///
/// The text is OpenCL C, as for `opencl`, with the words `__kernel`, `__global` and `__local`: see
/// [the texts](device_generated_kernels#the-texts).
///
/// # Errors
///
/// The compiler's log if it rejects the text, and what a function of CUDA returns.
///
/// # Safety
///
/// `launch` is the call's. With its arguments, the kernel has the parameters that [`CustomKernel::new`] says,
/// accesses elements of the call's layouts only, and writes to outputs only.
pub unsafe fn launch(kernel: &CustomKernel, call: &Call, launch: &Launch<'_>) -> Result<(), BackendError> {
    let nvrtc = Nvrtc::open().map_err(BackendError::unavailable)?;
    let open = cache::open(launch.native_device(), nvrtc)?;
    let pointers = pointers(call, launch)?;
    let plan = kernel.plan(call, open.traits, &[]);
    // SAFETY: the arrays have been compared with the spans, and the caller promises the rest.
    unsafe { enqueue(&plan, call, &pointers, launch, &open, nvrtc) }
}

/// Where the arrays of a call begin, in the spans of its launch.
///
/// # Errors
///
/// If there is no span, or one that ends before the array, or one that does not begin with a whole element.
pub(crate) fn pointers(call: &Call, launch: &Launch<'_>) -> Result<SmallVec<[u64; 4]>, BackendError> {
    let mut pointers = SmallVec::new();
    for (place, ((dtype, _), bytes)) in call.arrays().zip(call.byte_ranges()).enumerate() {
        let size = dtype.size();
        let span = launch.spans().get(place).and_then(Option::as_ref);
        let Some(span) = span.filter(|span| bytes.end <= span.len()) else {
            return Err(BackendError::invalid(format_args!(
                "expected a buffer of at least {} bytes as array {place}",
                bytes.end
            )));
        };
        let pointer = handles::pointer(span)?;
        if !pointer.is_multiple_of(size as u64) {
            return Err(BackendError::invalid(format_args!(
                "array {place} begins at byte {} of its memory, expected a multiple of {size}",
                span.offset()
            )));
        }
        pointers.push(pointer);
    }
    Ok(pointers)
}

/// Enqueues the kernels of a call by its plan, on the device of the launch.
///
/// # Safety
///
/// The handles of the launch are what [`handles`] says. With its arguments, each kernel accesses elements of
/// its arrays only.
unsafe fn enqueue(
    plan: &Plan,
    call: &Call,
    pointers: &[u64],
    launch: &Launch<'_>,
    open: &OpenKernels,
    nvrtc: &Nvrtc,
) -> Result<(), BackendError> {
    // All programs first: a text that is rejected leaves nothing enqueued.
    let mut ready = SmallVec::<[_; 3]>::new();
    for step in &plan.steps {
        let grid = Grid::of(step)?;
        ready.push((step, open.kernel(&step.recipe, grid.axes(), nvrtc, call)?, grid));
    }
    open.device.batch(handles::stream(launch)?, |batch| {
        let mut scratch = SmallVec::<[_; 2]>::new();
        for &len in &plan.scratch {
            // SAFETY: the stream is the launch's.
            scratch.push(unsafe { batch.temporary(len) }?);
        }
        for (step, kernel, grid) in &ready {
            let mut arguments = Arguments::default();
            if grid.on_one_axis {
                // They fit, as their product does.
                grid.groups[..2].iter().for_each(|&count| arguments.bytes((count as u32).to_ne_bytes()));
            }
            for &(place, first) in &step.arrays {
                let pointer = match place {
                    Place::Array(place) => pointers[place],
                    Place::Scratch(place) => scratch[place].pointer(),
                };
                arguments.bytes(pointer.to_ne_bytes());
                arguments.index(first, plan.wide)?;
            }
            step.values.iter().for_each(|&value| arguments.value(value));
            for &index in &step.indices {
                arguments.index(index, plan.wide)?;
            }
            let (blocks, threads) = grid.sizes(step);
            // SAFETY: the arguments are the recipe's, and the caller promises what it accesses. Temporary
            // memory is taken back behind the kernels, and `open` keeps them while the device is open.
            unsafe { batch.launch(kernel, blocks, threads, &mut arguments.addresses()) }?;
        }
        Ok(())
    })
}

/// How many groups a launch has in each direction.
struct Grid {
    groups: [usize; 3],
    on_one_axis: bool,
}

impl Grid {
    /// # Errors
    ///
    /// If there are more groups than a launch may have.
    fn of(step: &Step) -> Result<Self, BackendError> {
        let groups = [0, 1, 2].map(|axis| step.items[axis] / step.group[axis]);
        let on_one_axis = groups[1..].iter().any(|&count| count > MOST_GROUPS);
        let first = if on_one_axis {
            groups.iter().try_fold(1_usize, |product, &count| product.checked_mul(count))
        } else {
            Some(groups[0])
        };
        if first.is_none_or(|count| count > i32::MAX as usize) {
            return Err(BackendError::unsupported(format_args!("a launch of {groups:?} groups")));
        }
        Ok(Self { groups, on_one_axis })
    }

    fn axes(&self) -> GroupAxes {
        if self.on_one_axis { GroupAxes::First } else { GroupAxes::All }
    }

    /// The blocks in each direction, and the threads.
    fn sizes(&self, step: &Step) -> ([u32; 3], [u32; 3]) {
        // `of` has compared them with 32 bits.
        let groups = self.groups.map(|count| count as u32);
        let blocks = if self.on_one_axis { [groups.iter().product(), 1, 1] } else { groups };
        (blocks, step.group.map(|size| size as u32))
    }
}
