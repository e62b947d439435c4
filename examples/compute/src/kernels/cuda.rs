//! Kernels in PTX, the assembly language of NVIDIA's GPUs, which the driver itself compiles: no toolkit is
//! needed.

use std::ffi::{CStr, CString, c_void};
use std::ptr;
use std::sync::Arc;

use device_cuda::cudarc::driver::sys::{
    self, CUcontext, CUdeviceptr, CUfunction, CUjit_option, CUmodule, CUresult,
};
use device_cuda::{CudaDevice, CudaMemory, CudaStream, check};
use device_registry::backend::{BackendError, Launch, LoadFailure, Span};
use device_registry::{Device, DeviceError, Stream};

use super::{Compiler, Form, Language, NativeKernels, Shape, first_element};

/// The threads of a block.
const BLOCK: u32 = 256;

/// Loads the kernels for `cuda`.
pub(crate) fn load() -> Result<Box<dyn Language>, LoadFailure> {
    Ok(Box::new(Ptx))
}

struct Ptx;

impl Language for Ptx {
    fn name(&self) -> &'static str {
        "PTX"
    }

    fn form(&self) -> Form<'_> {
        Form::Text { built_in: include_str!("cuda.ptx"), compiler: self }
    }
}

impl Compiler for Ptx {
    fn compile(&self, device: Device, text: &str) -> Result<Arc<dyn NativeKernels>, DeviceError> {
        let text = CString::new(text);
        let keeps_context = device.create_stream()?;
        device.with_driver(|driver| {
            let text =
                text.map_err(|error| BackendError::invalid("the text has a zero in it").with_source(error))?;
            let module = Module::load(driver, &text, keeps_context)?;
            let (add, matmul) = (module.function(c"add")?, module.function(c"matmul")?);
            Ok(Arc::new(Program { add, matmul, _module: module }) as Arc<dyn NativeKernels>)
        })
    }
}

/// Code that is loaded into a context.
struct Module {
    context: CUcontext,
    module: CUmodule,
    /// A context is there as long as a stream is, also when the device was closed.
    _keeps_context: Stream,
}

impl Module {
    fn load(driver: &CudaDevice, text: &CStr, keeps_context: Stream) -> Result<Self, BackendError> {
        driver.make_current()?;
        let mut log = vec![0_u8; 16 << 10];
        let mut options =
            [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The second is a number in place of a pointer.
        let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(log.len())];
        let mut module = ptr::null_mut();
        // SAFETY: the context is current; the text ends with a zero; there is a value for each option, and
        // the log is as long as its option says.
        let result = unsafe {
            sys::cuModuleLoadDataEx(
                &mut module,
                text.as_ptr().cast(),
                options.len() as u32,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
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
                let log = match log.trim_matches(['\0', '\n', ' ']) {
                    "" => "the compiler does not say why",
                    log => log,
                };
                let message = format_args!("the module does not compile:\n{log}");
                Err(BackendError::invalid(message).with_source(error))
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

struct Program {
    add: CUfunction,
    matmul: CUfunction,
    /// The functions are its.
    _module: Module,
}

// SAFETY: modules and functions are no thread's own, and the driver's functions may be called from any.
unsafe impl Send for Program {}
// SAFETY: a shared reference only launches functions, which a launch does not change.
unsafe impl Sync for Program {}

impl NativeKernels for Program {
    fn add(&self, launch: &Launch<'_>, spans: [&Span; 3], len: u32) -> Result<(), BackendError> {
        // SAFETY: these are the parameters of `add`, whose spans have `len` elements.
        unsafe { start(launch, self.add, spans, [len]) }
    }

    fn matmul(&self, launch: &Launch<'_>, spans: [&Span; 3], shape: Shape) -> Result<(), BackendError> {
        let [_, _, len] = shape.lens();
        // SAFETY: these are the parameters of `matmul`, whose spans have the elements of the shape.
        unsafe { start(launch, self.matmul, spans, [len, shape.inner(), shape.columns()]) }
    }
}

/// Launches a function with the addresses of the spans and the numbers, the first of which is the number of
/// elements of the result.
///
/// # Safety
///
/// Those are its parameters, in this order, and with them it touches no other bytes than the spans', as the
/// built-in ones; the driver cannot check. What a user's function does is up to the user.
unsafe fn start<const N: usize>(
    launch: &Launch<'_>,
    function: CUfunction,
    spans: [&Span; 3],
    mut numbers: [u32; N],
) -> Result<(), BackendError> {
    launch.driver_as::<CudaDevice>()?.make_current()?;
    let stream = launch.stream_as::<CudaStream>()?.stream();
    let mut addresses = [0; 3];
    for (address, span) in addresses.iter_mut().zip(spans) {
        let start = first_element(span)? * size_of::<f32>();
        *address = span.memory_as::<CudaMemory>()?.pointer() + start as CUdeviceptr;
    }
    let len = numbers[0];
    // A pointer to each parameter, from which the call copies it.
    let mut parameters: Vec<*mut c_void> = Vec::with_capacity(3 + N);
    parameters.extend(addresses.iter_mut().map(|address| ptr::from_mut(address).cast::<c_void>()));
    parameters.extend(numbers.iter_mut().map(|number| ptr::from_mut(number).cast::<c_void>()));
    // SAFETY: the context is current and the function one of its modules', the parameters are the caller's
    // promise, and the core keeps the spans, and the module with `self`, until the kernel is done.
    let result = unsafe {
        sys::cuLaunchKernel(
            function,
            len.div_ceil(BLOCK),
            1,
            1,
            BLOCK,
            1,
            1,
            0,
            stream,
            parameters.as_mut_ptr(),
            ptr::null_mut(),
        )
    };
    check("cuLaunchKernel", result)
}
