//! Compiled programs: from a text, or from the binary that an earlier context compiled.

use std::ffi::c_void;
use std::ptr;

use device_opencl::cl3::info_type::InfoType;
use device_opencl::cl3::kernel::{create_kernel, release_kernel, set_kernel_arg};
use device_opencl::cl3::program::{
    CL_PROGRAM_BINARIES, build_program, create_program_with_binary, get_program_info, release_program,
};
use device_opencl::cl3::types::{cl_int, cl_kernel, cl_program};
use device_opencl::{OpenClDevice, native_error};
use device_registry::backend::BackendError;
use parking_lot::{Mutex, MutexGuard};

/// The kernel `run` of a program. Its arguments are a part of it, so that one thread at a time sets them and enqueues it.
pub(crate) struct Kernel(Mutex<Owned>);

/// A kernel that is released when it is dropped. It keeps its program, and that its context.
struct Owned(cl_kernel);

// SAFETY: OpenCL allows a kernel on any thread, by one thread at a time, and the lock around it ensures that.
unsafe impl Send for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: it was made once, and is released once; OpenCL retains it for enqueued commands. A release can fail only
        // after a loss, when there is nothing left to do.
        let _: Result<(), cl_int> = unsafe { release_kernel(self.0) };
    }
}

/// The kernel while it is locked: one launch sets its arguments in their order.
pub(crate) struct Arguments<'a> {
    kernel: MutexGuard<'a, Owned>,
    next: u32,
}

impl Kernel {
    /// Compiles a text. The second value is the program as a binary, if the driver has one.
    ///
    /// # Errors
    ///
    /// The driver's log if it rejects the text.
    pub(crate) fn compile(
        device: &OpenClDevice,
        text: &str,
    ) -> Result<(Self, Option<Vec<u8>>), BackendError> {
        let program = device.build(text, "-w")?;
        let kernel = Self::of(program.program())?;
        Ok((kernel, binary(program.program())))
    }

    /// Makes the kernel from a binary, for a context of the device that has compiled it.
    ///
    /// # Errors
    ///
    /// The status of the call that has failed. A driver may refuse any binary.
    pub(crate) fn load(device: &OpenClDevice, binary: &[u8]) -> Result<Self, BackendError> {
        let devices = [device.device_id()];
        // SAFETY: the device is the one of its context.
        let program = unsafe { create_program_with_binary(device.context(), &devices, &[binary]) }
            .map_err(|status| native_error("clCreateProgramWithBinary", status))?;
        let kernel = build_program(program, &devices, c"-w", None, ptr::null_mut())
            .map_err(|status| native_error("clBuildProgram", status))
            .and_then(|()| Self::of(program));
        // SAFETY: it was made above, and is released once; the kernel keeps it.
        let _: Result<(), cl_int> = unsafe { release_program(program) };
        kernel
    }

    fn of(program: cl_program) -> Result<Self, BackendError> {
        let kernel =
            create_kernel(program, c"run").map_err(|status| native_error("clCreateKernel", status))?;
        Ok(Self(Mutex::new(Owned(kernel))))
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
    /// OpenCL compares the size with that of the parameter.
    ///
    /// # Safety
    ///
    /// The value is what OpenCL takes for an argument: a number, or the handle of a buffer that is valid.
    pub(crate) unsafe fn add<T>(&mut self, value: &T) -> Result<(), BackendError> {
        let value: *const c_void = ptr::from_ref(value).cast();
        // SAFETY: the value has the size that is said, and is copied by the call.
        unsafe { set_kernel_arg(self.kernel.0, self.next, size_of::<T>(), value) }
            .map_err(|status| native_error(&format!("argument {} of a kernel", self.next), status))?;
        self.next += 1;
        Ok(())
    }

    pub(crate) fn kernel(&self) -> cl_kernel {
        self.kernel.0
    }
}

/// The program as a binary. Without one, the text is compiled again.
fn binary(program: cl_program) -> Option<Vec<u8>> {
    match get_program_info(program, CL_PROGRAM_BINARIES) {
        Ok(InfoType::VecVecUchar(binaries)) => binaries.into_iter().find(|binary| !binary.is_empty()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use device_registry::backend::BackendErrorKind;

    use super::*;

    const ONE: &str = "kernel void run(global int *p, int value) { p[0] = value; }";

    #[test]
    fn a_text_that_the_driver_rejects_is_an_error_with_its_log() {
        let Some(device) = device_conformance::device_or_skip("opencl") else { return };
        let compiled = device.with_driver(|driver: &OpenClDevice| {
            let text = "kernel void run(global int *p) { p[0] = no_such_name; }";
            Ok(Kernel::compile(driver, text).map(drop))
        });
        let error = compiled.unwrap().unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Invalid);
        assert!(error.to_string().contains("no_such_name"), "{error}");
    }

    #[test]
    fn a_program_without_the_kernel_is_an_error() {
        let Some(device) = device_conformance::device_or_skip("opencl") else { return };
        let compiled = device.with_driver(|driver: &OpenClDevice| {
            Ok(Kernel::compile(driver, "kernel void walk(global int *p) { p[0] = 1; }").map(drop))
        });
        assert!(compiled.unwrap().is_err());
    }

    #[test]
    fn a_binary_makes_the_kernel_and_a_broken_one_is_refused() {
        let Some(device) = device_conformance::device_or_skip("opencl") else { return };
        let tried = device.with_driver(|driver: &OpenClDevice| {
            let (_, binary) = Kernel::compile(driver, ONE)?;
            let binary = binary.expect("PoCL and the drivers of GPUs have binaries");
            let loaded = Kernel::load(driver, &binary).map(drop);
            let broken = Kernel::load(driver, b"not a program").map(drop);
            Ok((loaded, broken))
        });
        let (loaded, broken) = tried.unwrap();
        loaded.unwrap();
        broken.unwrap_err();
    }
}
