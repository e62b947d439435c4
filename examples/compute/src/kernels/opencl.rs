//! Kernels in OpenCL C, for an `opencl` that is linked or from a file: they use native handles by kind, and
//! no type of the backend's.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::Arc;

use device_opencl::sys::cl_kernel;
use device_opencl::{OpenClDevice, OpenClError, OpenClFunctions, OpenClProgram, handles};
use device_registry::Device;
use device_registry::backend::{BackendError, Launch, Span};

use super::{Compiled, Language, NativeKernels, first_element};
use crate::work::{FUNCTIONS, Work};

/// The number of work-items is a multiple of this, so that the implementation can choose the size of a group.
const MULTIPLE: usize = 256;

pub(crate) const LANGUAGE: Language =
    Language { name: "OpenCL C", built_in: Some(include_str!("opencl.cl")), compile };

fn compile(device: Device, text: &str) -> Compiled {
    device.with_native(|native| {
        let device = OpenClDevice::from_native(native)?;
        let program = Program { program: device.build(text, "")?, device };
        // A function that is missing is the text's fault, and not a launch's.
        for name in FUNCTIONS {
            program.kernel(name)?;
        }
        Ok(Arc::new(program) as Arc<dyn NativeKernels>)
    })
}

struct Program {
    program: OpenClProgram,
    /// The device when it was compiled. It retains the context.
    device: OpenClDevice,
}

impl NativeKernels for Program {
    fn enqueue(&self, launch: &Launch<'_>, work: Work, spans: [&Span; 3]) -> Result<(), BackendError> {
        let queue = handles::command_queue(launch)?;
        let (function, numbers) = work.call();
        let mut places = Vec::new();
        for span in spans {
            places.push((handles::buffer(span)?, first_element(span)? as u64));
        }
        // Each buffer is followed by the place of its first element.
        let of_spans = places.iter().flat_map(|(buffer, start)| [argument(buffer), argument(start)]);
        let arguments = of_spans.chain(numbers.iter().map(argument));
        let Kernel { cl, kernel } = &self.kernel(function)?;
        for (index, (size, value)) in (0..).zip(arguments) {
            // SAFETY: the value has this size, which OpenCL compares with the kernel's, and the call copies
            // it. A buffer is an argument by its handle, and the core keeps its memory until the kernel is
            // done.
            unsafe { cl.clSetKernelArg(*kernel, index, size, value) }.map_err(|error| {
                error.named(format_args!("argument {index} of `{}`", function.to_string_lossy()))
            })?;
        }
        let items = (numbers[0] as usize).next_multiple_of(MULTIPLE);
        let none = ptr::null();
        let no_event = ptr::null_mut();
        // SAFETY: OpenCL checks that all arguments are set, and that the kernel's context is the queue's: the
        // device may have been opened again. With its arguments a built-in kernel accesses only the bytes of
        // the spans; the author of a `--source` answers for it. The stream has events of its own.
        unsafe {
            cl.clEnqueueNDRangeKernel(queue, *kernel, 1, none, &items, none, 0, ptr::null(), no_event)
        }?;
        Ok(())
    }
}

impl Program {
    fn kernel(&self, name: &CStr) -> Result<Kernel, BackendError> {
        let cl = self.device.functions();
        // SAFETY: the program is valid, and the name ends with a zero.
        match unsafe { cl.clCreateKernel(self.program.program(), name.as_ptr()) } {
            Ok(kernel) => Ok(Kernel { cl, kernel }),
            Err(error) => Err(error.named(format_args!("the kernel `{}`", name.to_string_lossy()))),
        }
    }
}

/// A function of a program for one launch: its arguments are a part of it, which threads cannot share.
struct Kernel {
    cl: &'static OpenClFunctions,
    kernel: cl_kernel,
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: it was made once, and is released once; OpenCL retains it for enqueued launches. A release
        // can fail only after a loss, when there is nothing left to do.
        let _: Result<(), OpenClError> = unsafe { self.cl.clReleaseKernel(self.kernel) };
    }
}

/// The size and the place of an argument.
fn argument<T>(value: &T) -> (usize, *const c_void) {
    (size_of::<T>(), ptr::from_ref(value).cast())
}
