//! Kernels in OpenCL C, for an `opencl` that is linked or from a file: they use native handles by kind, and
//! no type of the backend's.

use std::ffi::CStr;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use device_opencl::sys::{
    CL_INVALID_KERNEL_NAME, CL_PROGRAM_KERNEL_NAMES, CL_PROGRAM_NUM_KERNELS, cl_context, cl_kernel,
};
use device_opencl::{OpenClDevice, OpenClError, OpenClFunctions, OpenClProgram, handles};
use device_registry::backend::{BackendError, Launch, LoadFailure, Span};
use device_registry::{Device, DeviceError};

use super::{Compiler, Form, Language, NativeKernels, Shape, first_element};

/// The number of work-items is a multiple of this, so that the implementation can choose the size of a group.
const MULTIPLE: usize = 256;

/// Loads the kernels for `opencl`.
pub(crate) fn load() -> Result<Box<dyn Language>, LoadFailure> {
    Ok(Box::new(OpenClC))
}

struct OpenClC;

impl Language for OpenClC {
    fn name(&self) -> &'static str {
        "OpenCL C"
    }

    fn form(&self) -> Form<'_> {
        Form::Text { built_in: include_str!("opencl.cl"), compiler: self }
    }
}

impl Compiler for OpenClC {
    fn compile(&self, device: Device, text: &str) -> Result<Arc<dyn NativeKernels>, DeviceError> {
        device.with_native(|native| {
            let opened = OpenClDevice::from_native(native)?;
            let program = opened.build(text, "")?;
            let [add, matmul] = [c"add", c"matmul"].map(|name| Kernel::of(&program, &opened, name));
            let (add, matmul) = (add?, matmul?);
            Ok(Arc::new(Program { add, matmul }) as Arc<dyn NativeKernels>)
        })
    }
}

/// Its kernels keep the program.
struct Program {
    add: Kernel,
    matmul: Kernel,
}

impl NativeKernels for Program {
    fn add(&self, launch: &Launch<'_>, spans: [&Span; 3], len: u32) -> Result<(), BackendError> {
        // SAFETY: these are the arguments of `add`, whose spans have `len` elements.
        unsafe { self.add.enqueue(launch, spans, [len]) }
    }

    fn matmul(&self, launch: &Launch<'_>, spans: [&Span; 3], shape: Shape) -> Result<(), BackendError> {
        let [_, _, len] = shape.lens();
        // SAFETY: these are the arguments of `matmul`, whose spans have the elements of the shape.
        unsafe { self.matmul.enqueue(launch, spans, [len, shape.inner(), shape.columns()]) }
    }
}

/// A function of a program. Its arguments are a part of it, so that one launch at a time may set them.
struct Kernel {
    name: &'static CStr,
    kernel: Mutex<cl_kernel>,
    cl: &'static OpenClFunctions,
    /// The context of the device when they were compiled.
    context: cl_context,
}

// SAFETY: OpenCL allows a kernel on any thread, by one thread at a time; the lock ensures that.
unsafe impl Send for Kernel {}
// SAFETY: a shared reference reaches the kernel through the lock alone; the other fields never change.
unsafe impl Sync for Kernel {}

impl Kernel {
    fn of(program: &OpenClProgram, opened: &OpenClDevice, name: &'static CStr) -> Result<Self, BackendError> {
        let cl = opened.functions();
        // SAFETY: the program is valid, and the name ends with a zero.
        match unsafe { cl.clCreateKernel(program.program(), name.as_ptr()) } {
            Ok(kernel) => Ok(Self { name, kernel: Mutex::new(kernel), cl, context: opened.context() }),
            Err(error) if error.status() == Some(CL_INVALID_KERNEL_NAME) => {
                let (name, names) = (name.to_string_lossy(), names(program)?);
                Err(BackendError::invalid(format_args!("the program has no kernel `{name}`; it has {names}")))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Enqueues it with the buffers, each followed by the place of its first element, and the numbers. The
    /// first number is how many elements the result has.
    ///
    /// # Safety
    ///
    /// With these arguments the kernel accesses only the bytes of the spans, as the built-in kernels do.
    /// OpenCL checks the number and the sizes of the arguments only. The author of a `--source` answers for
    /// it.
    unsafe fn enqueue<const N: usize>(
        &self,
        launch: &Launch<'_>,
        spans: [&Span; 3],
        numbers: [u32; N],
    ) -> Result<(), BackendError> {
        // The device may have been closed or reset, and opened again. OpenCL would then say that the context
        // is invalid, which it also says of a lost device. A new context cannot have the address of the old
        // one: in OpenCL the kernel retains its program, and the program its context.
        if handles::context(launch.native_device())? != self.context {
            let message = "the kernels were compiled before the device was opened again: compile them again";
            return Err(BackendError::invalid(message));
        }
        let queue = handles::command_queue(launch)?;
        let kernel = self.kernel.lock().unwrap_or_else(PoisonError::into_inner);
        let mut arguments = Arguments { kernel: *kernel, cl: self.cl, name: self.name, next: 0 };
        for span in spans {
            let start = first_element(span)? as u64;
            // SAFETY: a buffer is an argument by its handle, and the core keeps the memory until the kernel
            // is done.
            unsafe { arguments.add(&handles::buffer(span)?) }?;
            // SAFETY: it is a number.
            unsafe { arguments.add(&start) }?;
        }
        for number in numbers {
            // SAFETY: it is a number.
            unsafe { arguments.add(&number) }?;
        }
        let items = (numbers[0] as usize).next_multiple_of(MULTIPLE);
        // No event: the stream has events of its own.
        let (none, no_events, no_event) = (ptr::null(), ptr::null(), ptr::null_mut());
        // SAFETY: the arguments are set, as OpenCL checks, and the caller promises the rest.
        unsafe {
            self.cl.clEnqueueNDRangeKernel(queue, *kernel, 1, none, &items, none, 0, no_events, no_event)
        }?;
        Ok(())
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let kernel = self.kernel.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: it was made once, and is released once; OpenCL retains it for enqueued launches. A release
        // can fail only after a loss, when there is nothing left to do.
        let _: Result<(), OpenClError> = unsafe { self.cl.clReleaseKernel(*kernel) };
    }
}

/// The kernels that a program has.
fn names(program: &OpenClProgram) -> Result<String, BackendError> {
    // Without kernels, not every implementation writes the names.
    if program.info(CL_PROGRAM_NUM_KERNELS)? == 0_usize.to_ne_bytes() {
        return Ok("none".to_owned());
    }
    let names = program.info(CL_PROGRAM_KERNEL_NAMES)?;
    Ok(String::from_utf8_lossy(&names).trim_end_matches('\0').replace(';', ", "))
}

/// The arguments of a kernel, one after the other.
struct Arguments {
    kernel: cl_kernel,
    cl: &'static OpenClFunctions,
    name: &'static CStr,
    next: u32,
}

impl Arguments {
    /// # Safety
    ///
    /// The value is what OpenCL takes for an argument: a number, or the handle of a buffer that is valid.
    unsafe fn add<T>(&mut self, value: &T) -> Result<(), BackendError> {
        // SAFETY: the value has the stated size, and the call copies it. OpenCL compares it with the
        // kernel's.
        unsafe {
            self.cl.clSetKernelArg(self.kernel, self.next, size_of::<T>(), ptr::from_ref(value).cast())
        }
        .map_err(|error| {
            error.named(format_args!("argument {} of `{}`", self.next, self.name.to_string_lossy()))
        })?;
        self.next += 1;
        Ok(())
    }
}
