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
/// It belongs to the device as it was opened: after it was closed or reset, its kernels fail.
#[derive(Debug)]
pub struct OpenClProgram(Handle);

impl OpenClProgram {
    pub(crate) fn build(context: &Context, source: &str, options: &str) -> Result<Self, BackendError> {
        let options = CString::new(options)
            .map_err(|error| BackendError::invalid("options with a zero in them").with_source(error))?;
        // Never without a byte: `cl3` passes the length, and OpenCL takes 0 for a text that ends with a zero.
        let program = create_program_with_source(context.get(), &[&format!("{source}\n")])
            .map_err(|status| call_error("clCreateProgramWithSource", status))?;
        // SAFETY: it was just made, with one reference.
        let program = unsafe { Handle::program(program) };
        match build_program(program.get(), &[context.device()], &options, None, ptr::null_mut()) {
            Ok(()) => Ok(Self(program)),
            Err(status @ CL_BUILD_PROGRAM_FAILURE) => Err(refused(&program, context, status)),
            Err(status) => Err(call_error("clBuildProgram", status)),
        }
    }

    /// The program, to make kernels of. It is valid for as long as this is there.
    #[must_use]
    pub fn program(&self) -> cl_program {
        self.0.get()
    }
}

fn refused(program: &Handle, context: &Context, status: cl_int) -> BackendError {
    let log = get_program_build_data(program.get(), context.device(), CL_PROGRAM_BUILD_LOG);
    let log = match log {
        Ok(bytes) => String::from_utf8_lossy(&bytes).trim_matches(['\0', '\n', ' ']).to_owned(),
        Err(status) => format!("its log cannot be had: {}", Status(status)),
    };
    let log = if log.is_empty() { "the compiler does not say why" } else { &log };
    BackendError::invalid(format_args!("the program does not compile:\n{log}")).with_source(Status(status))
}
