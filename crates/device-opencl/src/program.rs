//! Programs in OpenCL C.

use std::ffi::CString;
use std::ptr;

use cl3::error_codes::CL_BUILD_PROGRAM_FAILURE;
use cl3::program::{CL_PROGRAM_BUILD_LOG, build_program, create_program_with_source, get_program_build_data};
use cl3::types::{cl_int, cl_program};
use device_registry::backend::BackendError;

use crate::context::Context;
use crate::error::{Status, call_error};
use crate::handle::Handle;

/// A program that was [compiled](crate::OpenClDevice::build) for a device.
///
/// It belongs to the open device: its kernels fail after the device is closed or reset.
#[derive(Debug)]
pub struct OpenClProgram(Handle);

impl OpenClProgram {
    pub(crate) fn build(context: &Context, source: &str, options: &str) -> Result<Self, BackendError> {
        let options = CString::new(options).map_err(|error| {
            BackendError::invalid("expected options without a zero byte").with_source(error)
        })?;
        // Never empty: `cl3` passes the length, and OpenCL takes a length of 0 for a text that ends with a zero.
        let program = create_program_with_source(context.get(), &[&format!("{source}\n")])
            .map_err(|status| call_error("clCreateProgramWithSource", status))?;
        // SAFETY: the call above made the program and gave its one reference to this function.
        let program = unsafe { Handle::program(program) };
        match build_program(program.get(), &[context.device()], &options, None, ptr::null_mut()) {
            Ok(()) => Ok(Self(program)),
            Err(status @ CL_BUILD_PROGRAM_FAILURE) => Err(refused(&program, context, status)),
            Err(status) => Err(call_error("clBuildProgram", status)),
        }
    }

    /// The program, from which kernels are made. It is valid for as long as `self`.
    #[must_use]
    pub fn program(&self) -> cl_program {
        self.0.get()
    }
}

fn refused(program: &Handle, context: &Context, status: cl_int) -> BackendError {
    let log = get_program_build_data(program.get(), context.device(), CL_PROGRAM_BUILD_LOG);
    let log = match log {
        Ok(bytes) => String::from_utf8_lossy(&bytes).trim_matches(['\0', '\n', ' ']).to_owned(),
        Err(status) => format!("the compiler's log cannot be read: {}", Status(status)),
    };
    let log = if log.is_empty() { "the compiler's log is empty" } else { &log };
    BackendError::invalid(format_args!("the program does not compile:\n{log}")).with_source(Status(status))
}
