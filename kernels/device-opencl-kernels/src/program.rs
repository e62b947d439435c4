//! Compiled programs: from a text, or from the binary that an earlier context compiled.

use std::ffi::CStr;
use std::ptr;

use device_generated_kernels::{Disk, Key, Recipe};
use device_opencl::sys::{cl_kernel, cl_program};
use device_opencl::{OpenClDevice, OpenClError, OpenClFunctions, OpenClProgram};
use device_registry::backend::BackendError;
use parking_lot::{Mutex, MutexGuard};

/// The options that every program is built with.
pub(crate) const OPTIONS: &CStr = c"-w";

/// The kernel `run` of a program. Its arguments are a part of it, so that one thread at a time sets them and
/// enqueues it.
pub(crate) struct Kernel(Mutex<Owned>);

/// A kernel that is released when it is dropped. It keeps its program, and that its context.
struct Owned {
    kernel: cl_kernel,
    cl: &'static OpenClFunctions,
    /// The bytes of each argument that is a number, as they are set. A kernel keeps its arguments from one
    /// launch to the next.
    numbers: Vec<Option<Number>>,
    /// For a program that was compiled and has not run.
    new: Option<Box<New>>,
}

/// A number of at most eight bytes: how many, and the bytes.
type Number = (usize, [u8; 8]);

/// A program that was compiled, and whose binary is to be kept when its kernel has run.
pub(crate) struct New {
    pub(crate) program: OpenClProgram,
    pub(crate) recipe: Recipe,
    /// Where it is kept for other processes, if it is.
    pub(crate) on_disk: Option<(&'static Disk, Key)>,
}

// SAFETY: OpenCL allows a kernel on any thread, by one thread at a time, and the lock around it ensures that.
unsafe impl Send for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: it was made once, and is released once; OpenCL retains it for enqueued commands. A release
        // can fail only after a loss, when there is nothing left to do.
        let _: Result<(), OpenClError> = unsafe { self.cl.clReleaseKernel(self.kernel) };
    }
}

/// The kernel while it is locked: one launch sets its arguments in their order.
pub(crate) struct Arguments<'a> {
    kernel: MutexGuard<'a, Owned>,
    next: u32,
}

impl Kernel {
    /// Compiles the text of a recipe.
    ///
    /// # Errors
    ///
    /// The driver's log if it rejects the text.
    pub(crate) fn compile(
        device: &OpenClDevice,
        text: &str,
        recipe: &Recipe,
        on_disk: Option<(&'static Disk, Key)>,
    ) -> Result<Self, BackendError> {
        let program = device.build(text, &OPTIONS.to_string_lossy())?;
        let mut kernel = Self::of(device, program.program())?;
        kernel.0.get_mut().new = Some(Box::new(New { program, recipe: recipe.clone(), on_disk }));
        Ok(kernel)
    }

    /// Makes the kernel from a binary, for a context of the device that has compiled it.
    ///
    /// # Errors
    ///
    /// The status of the call that has failed. A driver may refuse any binary.
    pub(crate) fn load(device: &OpenClDevice, binary: &[u8]) -> Result<Self, BackendError> {
        let cl = device.functions();
        let context = device.context();
        let id = device.device_id();
        let start = binary.as_ptr();
        let len = binary.len();
        let no_status = ptr::null_mut();
        // SAFETY: the device is the one of its context, and the one binary is passed together with its
        // length.
        let program = unsafe { cl.clCreateProgramWithBinary(context, 1, &id, &len, &start, no_status) }?;
        // SAFETY: the program was made above for this device, the options end with a zero, and there is no
        // callback.
        let built = unsafe { cl.clBuildProgram(program, 1, &id, OPTIONS.as_ptr(), None, ptr::null_mut()) };
        let kernel = built.and_then(|()| Self::of(device, program));
        // SAFETY: it was made above, and is released once; the kernel keeps it.
        let _: Result<(), OpenClError> = unsafe { cl.clReleaseProgram(program) };
        Ok(kernel?)
    }

    /// The program is valid, and of the device's context.
    fn of(device: &OpenClDevice, program: cl_program) -> Result<Self, OpenClError> {
        let cl = device.functions();
        // SAFETY: the program is valid, and the name ends with a zero.
        let kernel = unsafe { cl.clCreateKernel(program, c"run".as_ptr()) }?;
        Ok(Self(Mutex::new(Owned { kernel, cl, numbers: Vec::new(), new: None })))
    }

    /// Waits until no other thread sets arguments.
    pub(crate) fn arguments(&self) -> Arguments<'_> {
        Arguments { kernel: self.0.lock(), next: 0 }
    }
}

impl Arguments<'_> {
    /// Sets the next argument.
    ///
    /// # Errors
    ///
    /// OpenCL compares the size with the parameter's.
    ///
    /// # Safety
    ///
    /// The value is what OpenCL takes for an argument: a number, or the handle of a buffer that is valid.
    pub(crate) unsafe fn add<T>(&mut self, value: &T) -> Result<(), BackendError> {
        let Owned { kernel, cl, .. } = *self.kernel;
        // SAFETY: the value has the stated size, and the call copies it.
        unsafe { cl.clSetKernelArg(kernel, self.next, size_of::<T>(), ptr::from_ref(value).cast()) }
            .map_err(|error| error.named(format_args!("argument {} of a kernel", self.next)))?;
        self.next += 1;
        Ok(())
    }

    /// Sets the next argument to a number, unless it is that number already: many launches differ in their
    /// buffers only. A buffer is set each time, as another one may get the handle of one that was released.
    ///
    /// # Errors
    ///
    /// Like [`add`](Self::add).
    ///
    /// # Safety
    ///
    /// The value is a number of at most eight bytes.
    pub(crate) unsafe fn add_number<T: Copy>(&mut self, value: T) -> Result<(), BackendError> {
        let place = self.next as usize;
        let size = size_of::<T>();
        let mut bytes = [0; 8];
        // SAFETY: the caller promises a number whose bytes are all initialised and which has a place in
        // `bytes`.
        unsafe { ptr::from_ref(&value).cast::<u8>().copy_to_nonoverlapping(bytes.as_mut_ptr(), size) };
        let number = Some((size, bytes));
        if self.kernel.numbers.get(place) == Some(&number) {
            self.next += 1;
            return Ok(());
        }
        // SAFETY: it is a number.
        unsafe { self.add(&value) }?;
        if self.kernel.numbers.len() <= place {
            self.kernel.numbers.resize(place + 1, None);
        }
        self.kernel.numbers[place] = number;
        Ok(())
    }

    pub(crate) fn kernel(&self) -> cl_kernel {
        self.kernel.kernel
    }

    /// The program, once, if it was compiled.
    pub(crate) fn take_new(&mut self) -> Option<Box<New>> {
        self.kernel.new.take()
    }
}

#[cfg(test)]
mod tests {
    use device_generated_kernels::{Plan, Traits};
    use device_registry::backend::BackendErrorKind;

    use super::*;

    const ONE: &str = "kernel void run(global int *p, int value) { p[0] = value; }";

    fn compile(device: &OpenClDevice, text: &str) -> Result<Kernel, BackendError> {
        let traits = Traits { doubles: true, groups: false, units: 1 };
        let plan = Plan::of(&device_kernels_conformance::calls()[0], traits, &[]).unwrap();
        Kernel::compile(device, text, &plan.steps[0].recipe, None)
    }

    #[test]
    fn a_text_that_the_driver_rejects_is_an_error_with_its_log() {
        let Some(device) = device_conformance::device_or_skip("opencl") else { return };
        let compiled = device.with_driver(|driver: &OpenClDevice| {
            let text = "kernel void run(global int *p) { p[0] = no_such_name; }";
            Ok(compile(driver, text).map(drop))
        });
        let error = compiled.unwrap().unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Invalid);
        assert!(error.to_string().contains("no_such_name"), "{error}");
    }

    #[test]
    fn a_program_without_the_kernel_is_an_error() {
        let Some(device) = device_conformance::device_or_skip("opencl") else { return };
        let compiled = device.with_driver(|driver: &OpenClDevice| {
            Ok(compile(driver, "kernel void walk(global int *p) { p[0] = 1; }").map(drop))
        });
        assert!(compiled.unwrap().is_err());
    }

    #[test]
    fn a_binary_makes_the_kernel_and_a_broken_one_is_refused() {
        let Some(device) = device_conformance::device_or_skip("opencl") else { return };
        let tried = device.with_driver(|driver: &OpenClDevice| {
            let new = compile(driver, ONE)?.arguments().take_new().expect("it was compiled");
            let binary = new.program.binary()?.expect("PoCL and the drivers of GPUs have binaries");
            let loaded = Kernel::load(driver, &binary).map(drop);
            let broken = Kernel::load(driver, b"not a program").map(drop);
            Ok((loaded, broken))
        });
        let (loaded, broken) = tried.unwrap();
        loaded.unwrap();
        broken.unwrap_err();
    }
}
