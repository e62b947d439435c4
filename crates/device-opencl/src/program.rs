//! Programs in OpenCL C.

use std::ffi::CString;
use std::ptr;

use device_registry::backend::BackendError;

use crate::context::Context;
use crate::error::OpenClError;
use crate::functions::value;
use crate::handle::Handle;
use crate::sys::{
    CL_BUILD_PROGRAM_FAILURE, CL_INVALID_VALUE, CL_PROGRAM_BINARIES, CL_PROGRAM_BINARY_SIZES,
    CL_PROGRAM_BUILD_LOG, cl_program, cl_program_info,
};

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
        let start = source.as_ptr().cast();
        let len = source.len();
        let functions = context.functions();
        // SAFETY: `context` is valid, and the one text is passed together with its length.
        let program = unsafe { functions.clCreateProgramWithSource(context.get(), 1, &start, &len) };
        // SAFETY: the call above made the program and gave its one reference to this function.
        let program = unsafe { Handle::program(functions, program.map_err(OpenClError::own)?) };
        let device = context.device();
        let options = options.as_ptr();
        // SAFETY: the device is the one of the program's context, `options` ends with a zero, and there is no
        // callback.
        match unsafe { functions.clBuildProgram(program.get(), 1, &device, options, None, ptr::null_mut()) } {
            Ok(()) => Ok(Self(program)),
            Err(error) if error.status() == Some(CL_BUILD_PROGRAM_FAILURE) => {
                Err(refused(&program, context, error))
            }
            Err(error) => Err(error.own()),
        }
    }

    /// What the driver says about the program: the bytes of `clGetProgramInfo`.
    ///
    /// # Errors
    ///
    /// If the driver does not know the answer. `CL_INVALID_VALUE` too for `CL_PROGRAM_BINARIES`, which is
    /// [`binary`](Self::binary), and for values that are not in OpenCL 3.0: drivers treat the bytes that such
    /// a query finds in its place as addresses, and write to them.
    pub fn info(&self, what: cl_program_info) -> Result<Vec<u8>, OpenClError> {
        const FIRST: cl_program_info = 0x1160;
        const LAST: cl_program_info = 0x116b;
        if !(FIRST..=LAST).contains(&what) || what == CL_PROGRAM_BINARIES {
            return Err(OpenClError::new("clGetProgramInfo", CL_INVALID_VALUE));
        }
        let functions = self.0.functions();
        // SAFETY: `self` owns the program, and `value` passes a place together with its size. The answer for
        // each remaining value is written only to its place.
        value(|size, place, written| unsafe {
            functions.clGetProgramInfo(self.program(), what, size, place, written)
        })
    }

    /// The compiled program, which `clCreateProgramWithBinary` takes for the same device. `None` if the
    /// driver does not have it. The call may take as long as the compilation.
    ///
    /// A driver may compile more of the program when its kernels run, and then has a longer binary.
    ///
    /// # Errors
    ///
    /// The status of `clGetProgramInfo`.
    pub fn binary(&self) -> Result<Option<Vec<u8>>, OpenClError> {
        // PoCL writes what it has at that moment, which may be more than when it was asked for the size. The
        // extra space is for that; the binary is then incomplete.
        const SPACE: usize = 1 << 20;
        for _ in 0..4 {
            let size = self.binary_size()?;
            if size == 0 {
                return Ok(None);
            }
            let mut binary = vec![0_u8; 2 * size + SPACE];
            let mut place = binary.as_mut_ptr();
            let functions = self.0.functions();
            let program = self.program();
            let place_size = size_of_val(&place);
            let places = (&raw mut place).cast();
            let none = ptr::null_mut();
            // SAFETY: `self` owns the program, which has one device. `place` is the one address to which its
            // binary is written, and has more bytes than the driver said.
            unsafe { functions.clGetProgramInfo(program, CL_PROGRAM_BINARIES, place_size, places, none) }?;
            if self.binary_size()? == size {
                binary.truncate(size);
                return Ok(Some(binary));
            }
        }
        Ok(None)
    }

    fn binary_size(&self) -> Result<usize, OpenClError> {
        // The program has one device, and so one binary.
        let size = self.info(CL_PROGRAM_BINARY_SIZES)?;
        Ok(size.try_into().map_or(0, usize::from_ne_bytes))
    }

    /// The program, from which kernels are made. It is valid for as long as `self`.
    #[must_use]
    pub fn program(&self) -> cl_program {
        self.0.get()
    }
}

fn refused(program: &Handle, context: &Context, error: OpenClError) -> BackendError {
    let functions = context.functions();
    let device = context.device();
    // SAFETY: the device is the one that the program was built for, and `value` passes a place together with
    // its size.
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
