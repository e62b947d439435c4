//! Kernels in PTX, the assembly language of NVIDIA's GPUs, which the driver itself compiles: no toolkit is
//! needed.

use std::ffi::{CStr, CString, c_void};
use std::ptr;
use std::sync::Arc;

use device_cuda::cudarc::driver::sys::{self, CUcontext, CUfunction, CUjit_option, CUmodule, CUresult};
use device_cuda::{CudaDevice, CudaMemory, CudaStream, check};
use device_registry::backend::{BackendError, Launch, Span};
use device_registry::{Device, Stream};

use super::{Compiled, Language, NativeKernels, first_element};
use crate::work::{FUNCTIONS, Work};

/// The threads of a block.
const BLOCK: u32 = 256;

pub(crate) const LANGUAGE: Language =
    Language { name: "PTX", built_in: Some(include_str!("cuda.ptx")), compile };

fn compile(device: Device, text: &str) -> Compiled {
    let text = CString::new(text);
    let keeps_context = device.create_stream()?;
    device.with_driver(|driver| {
        let text =
            text.map_err(|error| BackendError::invalid("the text has a zero in it").with_source(error))?;
        let module = Module::load(driver, &text, keeps_context)?;
        // A function that is missing is the text's fault, and not a launch's.
        for name in FUNCTIONS {
            module.function(name)?;
        }
        Ok(Arc::new(module) as Arc<dyn NativeKernels>)
    })
}

/// Code that is loaded into a context.
struct Module {
    context: CUcontext,
    module: CUmodule,
    /// A context is there as long as a stream is, also when the device was closed.
    _keeps_context: Stream,
}

// SAFETY: modules are no thread's own, and the driver's functions may be called from any.
unsafe impl Send for Module {}
// SAFETY: a shared reference only looks up and launches functions, which the driver allows at once.
unsafe impl Sync for Module {}

impl Module {
    fn load(driver: &CudaDevice, text: &CStr, keeps_context: Stream) -> Result<Self, BackendError> {
        driver.make_current()?;
        let mut log = vec![0_u8; 16 << 10];
        let mut options =
            [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The second is a number in place of a pointer.
        let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(log.len())];
        let mut module = ptr::null_mut();
        let image = text.as_ptr().cast();
        // SAFETY: the context is current; the text ends with a zero; there is a value for each of the two
        // options, and the log is as long as its option says.
        let result = unsafe {
            sys::cuModuleLoadDataEx(&mut module, image, 2, options.as_mut_ptr(), values.as_mut_ptr())
        };
        let error = match check("cuModuleLoadDataEx", result) {
            Ok(()) => {
                return Ok(Self { context: driver.context(), module, _keeps_context: keeps_context });
            }
            Err(error) => error,
        };
        match result {
            CUresult::CUDA_ERROR_INVALID_IMAGE
            | CUresult::CUDA_ERROR_INVALID_PTX
            | CUresult::CUDA_ERROR_INVALID_SOURCE
            | CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU
            | CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => {
                let log = String::from_utf8_lossy(&log);
                let log = log.trim_matches(['\0', '\n', ' ']);
                let log = if log.is_empty() { "the compiler does not say why" } else { log };
                Err(BackendError::invalid(format_args!("the module does not compile:\n{log}"))
                    .with_source(error))
            }
            // The text is not to blame, as far as it was read.
            _ => Err(error),
        }
    }

    /// The context is current.
    fn function(&self, name: &CStr) -> Result<CUfunction, BackendError> {
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded, and the name ends with a zero.
        match unsafe { sys::cuModuleGetFunction(&mut function, self.module, name.as_ptr()) } {
            CUresult::CUDA_ERROR_NOT_FOUND => {
                let name = name.to_string_lossy();
                Err(BackendError::invalid(format_args!("the module has no entry `{name}`")))
            }
            result => check("cuModuleGetFunction", result).map(|()| function),
        }
    }
}

impl NativeKernels for Module {
    fn enqueue(&self, launch: &Launch<'_>, work: Work, spans: [&Span; 3]) -> Result<(), BackendError> {
        launch.driver_as::<CudaDevice>()?.make_current()?;
        let stream = launch.stream_as::<CudaStream>()?.stream();
        let (function, mut numbers) = work.call();
        let function = self.function(function)?;
        let mut addresses = [0; 3];
        for (address, span) in addresses.iter_mut().zip(spans) {
            let start = first_element(span)? * size_of::<f32>();
            *address = span.memory_as::<CudaMemory>()?.pointer() + start as u64;
        }
        let blocks = numbers[0].div_ceil(BLOCK);
        // A pointer to each parameter, from which the call copies it.
        let mut parameters: Vec<*mut c_void> = Vec::new();
        parameters.extend(addresses.iter_mut().map(|address| ptr::from_mut(address).cast::<c_void>()));
        parameters.extend(numbers.iter_mut().map(|number| ptr::from_mut(number).cast::<c_void>()));
        let parameters = parameters.as_mut_ptr();
        // SAFETY: the context is current and the function one of the module's. The core keeps the spans, and
        // the module with `self`, until the kernel is done. With these parameters the built-in kernels touch
        // only the bytes of the spans, which the driver cannot check; the author of a `--source` answers for
        // it.
        let result = unsafe {
            let none = ptr::null_mut();
            sys::cuLaunchKernel(function, blocks, 1, 1, BLOCK, 1, 1, 0, stream, parameters, none)
        };
        check("cuLaunchKernel", result)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: the module was loaded into this context, which is there; and no launch uses it any more:
        // each keeps it until it is done. What cannot be unloaded, after a loss, goes with the context.
        unsafe {
            let mut popped = ptr::null_mut();
            if sys::cuCtxPushCurrent_v2(self.context) == CUresult::CUDA_SUCCESS {
                let _ = sys::cuModuleUnload(self.module);
                let _ = sys::cuCtxPopCurrent_v2(&mut popped);
            }
        }
    }
}
