//! A kernel as text, and how it is loaded and launched by the native handles. Nothing of the CUDA toolkit is
//! needed: the driver compiles it.
#![allow(dead_code, reason = "not every test program needs all of it")]

use std::ffi::{CString, c_void};
use std::ptr;

use device_cuda::cudarc::driver::sys::{
    CUcontext, CUfunction, CUjit_option, CUmodule, cuCtxPopCurrent_v2, cuCtxPushCurrent_v2, cuLaunchKernel,
    cuModuleGetFunction, cuModuleLoadDataEx, cuModuleUnload,
};
use device_cuda::{CudaDevice, CudaMemory, CudaStream, check};
use device_registry::backend::{BackendError, Launch};

/// `c[i] = a[i] + b[i]` for `i < n`, of numbers of 32 bits.
pub(crate) const ADD: &str = r"
.version 6.0
.target sm_50
.address_size 64

.visible .entry add(
    .param .u64 a_parameter,
    .param .u64 b_parameter,
    .param .u64 c_parameter,
    .param .u32 n_parameter
)
{
    .reg .pred %beyond;
    .reg .b32 %block, %size, %thread, %i, %n;
    .reg .b64 %a, %b, %c, %offset;
    .reg .f32 %x, %y;

    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %i, %block, %size, %thread;
    ld.param.u32 %n, [n_parameter];
    setp.ge.u32 %beyond, %i, %n;
    @%beyond bra END;

    ld.param.u64 %a, [a_parameter];
    ld.param.u64 %b, [b_parameter];
    ld.param.u64 %c, [c_parameter];
    cvta.to.global.u64 %a, %a;
    cvta.to.global.u64 %b, %b;
    cvta.to.global.u64 %c, %c;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %a, %a, %offset;
    add.u64 %b, %b, %offset;
    add.u64 %c, %c, %offset;
    ld.global.f32 %x, [%a];
    ld.global.f32 %y, [%b];
    add.f32 %x, %x, %y;
    st.global.f32 [%c], %x;
END:
    ret;
}
";

/// A kernel that ends its context.
pub(crate) const TRAP: &str = r"
.version 6.0
.target sm_50
.address_size 64

.visible .entry fail()
{
    trap;
    ret;
}
";

/// A module, loaded into a context. Dropping it unloads it.
pub(crate) struct Module {
    context: CUcontext,
    module: CUmodule,
}

// SAFETY: a module is no thread's own.
unsafe impl Send for Module {}

impl Module {
    /// Compiles a text. What the compiler says of it is in the error.
    pub(crate) fn load(device: &CudaDevice, text: &str) -> Result<Self, BackendError> {
        device.make_current()?;
        let text = CString::new(text)
            .map_err(|error| BackendError::invalid("the text has a zero").with_source(error))?;
        let mut log = [0_u8; 4096];
        let mut options =
            [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The second is the number itself, in place of a pointer.
        let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(log.len())];
        let mut module = ptr::null_mut();
        // SAFETY: the text ends with a zero, and there are two options with their values, which the driver
        // writes to.
        let loaded = unsafe {
            let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
            cuModuleLoadDataEx(&mut module, text.as_ptr().cast(), 2, options, values)
        };
        check("cuModuleLoadDataEx", loaded).map_err(|error| {
            let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
            let log = String::from_utf8_lossy(&log[..end]);
            BackendError::new(error.kind(), format_args!("the kernel does not compile: {}", log.trim()))
                .with_source(error)
        })?;
        Ok(Self { context: device.context(), module })
    }

    pub(crate) fn function(&self, name: &str) -> Result<CUfunction, BackendError> {
        let name = CString::new(name)
            .map_err(|error| BackendError::invalid("the name has a zero").with_source(error))?;
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded, and the name ends with a zero.
        check("cuModuleGetFunction", unsafe {
            cuModuleGetFunction(&mut function, self.module, name.as_ptr())
        })?;
        Ok(function)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let mut popped = ptr::null_mut();
        // SAFETY: no work uses it any more: a kernel keeps it until then.
        let results = unsafe {
            [cuCtxPushCurrent_v2(self.context), cuModuleUnload(self.module), cuCtxPopCurrent_v2(&mut popped)]
        };
        for result in results {
            if let Err(error) = check("unloading a module", result) {
                eprintln!("{error}");
            }
        }
    }
}

/// Launches a function of a text on this many threads, with the memory of the launch and then the number as
/// arguments.
pub(crate) fn launch(
    launch: &Launch<'_>,
    text: &str,
    function: &str,
    threads: u32,
) -> Result<(), BackendError> {
    let stream = launch.stream_as::<CudaStream>()?;
    let module = Module::load(launch.driver_as()?, text)?;
    let mut pointers = Vec::new();
    for span in launch.spans().iter().flatten() {
        pointers.push(span.memory_as::<CudaMemory>()?.pointer() + span.offset() as u64);
    }
    let mut count = threads;
    let mut arguments: Vec<*mut c_void> =
        pointers.iter_mut().map(|pointer| ptr::from_mut(pointer).cast()).collect();
    arguments.push(ptr::from_mut(&mut count).cast());
    let function = module.function(function)?;
    // What the compiler made has to be there until the kernel has run.
    launch.keep(module);
    let blocks = threads.div_ceil(256).max(1);
    // SAFETY: the arguments are those that the kernel declares, and are copied before the call returns; the
    // memory is kept until the work is done, and the kernel writes to none beyond it.
    let launched = unsafe {
        let arguments = arguments.as_mut_ptr();
        cuLaunchKernel(function, blocks, 1, 1, 256, 1, 1, 0, stream.stream(), arguments, ptr::null_mut())
    };
    check("cuLaunchKernel", launched)
}
