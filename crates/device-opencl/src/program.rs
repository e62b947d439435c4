//! Programs in OpenCL C.

use std::ffi::CString;
use std::ptr;

use device_registry::backend::BackendError;

use crate::context::Context;
use crate::error::OpenClError;
use crate::functions::value;
use crate::handle::Handle;
use crate::sys::{CL_BUILD_PROGRAM_FAILURE, CL_PROGRAM_BUILD_LOG, cl_program, cl_program_info};

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
        // Never empty: OpenCL takes a length of 0 for a text that ends with a zero.
        let source = format!("{source}\n");
        let (start, len, functions) = (source.as_ptr().cast(), source.len(), context.functions());
        // SAFETY: `context` is valid, and the one text is passed together with its length.
        let program = unsafe { functions.clCreateProgramWithSource(context.get(), 1, &start, &len) };
        // SAFETY: the call above made the program and gave its one reference to this function.
        let program = unsafe { Handle::program(functions, program.map_err(OpenClError::own)?) };
        let (device, options) = (context.device(), options.as_ptr());
        // SAFETY: the device is the one of the program's context, `options` ends with a zero, and there is no callback.
        match unsafe { functions.clBuildProgram(program.get(), 1, &device, options, None, ptr::null_mut()) } {
            Ok(()) => Ok(Self(program)),
            Err(error) if error.status() == Some(CL_BUILD_PROGRAM_FAILURE) => {
                Err(refused(&program, context, error))
            }
            Err(error) => Err(error.own()),
        }
    }

    /// What the driver says of the program: the bytes of `clGetProgramInfo`.
    ///
    /// # Errors
    ///
    /// If the driver does not know the answer.
    pub fn info(&self, what: cl_program_info) -> Result<Vec<u8>, OpenClError> {
        let functions = self.0.functions();
        // SAFETY: `self` owns the program, and `value` passes a place together with its size. The place holds zeros, and so no
        // address to which a driver would write binaries.
        value(|size, place, written| unsafe {
            functions.clGetProgramInfo(self.program(), what, size, place, written)
        })
    }

    /// The program, from which kernels are made. It is valid for as long as `self`.
    #[must_use]
    pub fn program(&self) -> cl_program {
        self.0.get()
    }
}

fn refused(program: &Handle, context: &Context, error: OpenClError) -> BackendError {
    let (functions, device) = (context.functions(), context.device());
    // SAFETY: the device is the one that the program was built for, and `value` passes a place together with its size.
    let log = value(|size, place, written| unsafe {
        functions.clGetProgramBuildInfo(program.get(), device, CL_PROGRAM_BUILD_LOG, size, place, written)
    });
    let log = match log {
        Ok(bytes) => String::from_utf8_lossy(&bytes).trim_matches(['\0', '\n', ' ']).to_owned(),
        Err(error) => format!("the compiler's log cannot be read: {error}"),
    };
    let log = if log.is_empty() { "the compiler's log is empty" } else { &log };
    BackendError::invalid(format_args!("the program does not compile:\n{log}")).with_source(error)
}
