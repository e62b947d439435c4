//! Kernels that a compiler has made, and launches of them.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUfunction, CUjit_option, CUmodule, CUstream};
use device_registry::backend::BackendError;

use super::PrimaryContext;
use super::context::{Current, log_failure};

/// A kernel of a module, in a device's context. Dropping it unloads the module, which is not documented to
/// wait: keep it until its work is done, such as by [`Launch::keep`](device_registry::backend::Launch::keep).
pub struct CudaKernel {
    context: Arc<PrimaryContext>,
    module: CUmodule,
    function: CUfunction,
}

// SAFETY: handles of modules and functions are addresses without data of a thread.
unsafe impl Send for CudaKernel {}
// SAFETY: the reference allows calls on one function from several threads at once.
unsafe impl Sync for CudaKernel {}

/// The bytes of the log that an error shows.
const LOG: usize = 4096;

impl CudaKernel {
    /// See [`CudaDevice::load_kernel`](crate::CudaDevice::load_kernel).
    pub(crate) fn load(
        context: &Arc<PrimaryContext>,
        image: &[u8],
        name: &CStr,
    ) -> Result<Self, BackendError> {
        let current = context.enter()?;
        let cuda = current.functions();
        // A text has to end with a zero; a binary has its own length. The copy is aligned as binaries are.
        let mut words = vec![0_u64; image.len() / 8 + 1];
        let bytes = words.as_mut_ptr().cast::<u8>();
        // SAFETY: there are at least `image.len() + 1` bytes in `words`.
        unsafe { bytes.copy_from_nonoverlapping(image.as_ptr(), image.len()) };
        let mut log = [0_u8; LOG];
        let mut options =
            [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The second is the number itself, in place of a pointer.
        let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(LOG)];
        let mut module = ptr::null_mut();
        // SAFETY: the context is current, the image ends with a zero, and there are two options with their
        // values, which the driver writes to.
        let loaded = unsafe {
            let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
            cuda.cuModuleLoadDataEx(&mut module, bytes.cast(), 2, options, values)
        };
        loaded.map_err(|error| {
            let end = log.iter().position(|&byte| byte == 0).unwrap_or(LOG);
            let log = String::from_utf8_lossy(&log[..end]);
            let source = BackendError::from(error);
            BackendError::new(source.kind(), format_args!("the driver refuses a kernel: {}", log.trim()))
                .with_source(source)
        })?;
        let mut kernel = Self { context: Arc::clone(context), module, function: ptr::null_mut() };
        // SAFETY: the module is loaded, and the name ends with a zero.
        unsafe { cuda.cuModuleGetFunction(&mut kernel.function, module, name.as_ptr()) }?;
        Ok(kernel)
    }
}

impl fmt::Debug for CudaKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaKernel").finish_non_exhaustive()
    }
}

impl Drop for CudaKernel {
    fn drop(&mut self) {
        // SAFETY: `load` loaded it once for this value.
        self.context.dispose(|cuda| unsafe { cuda.cuModuleUnload(self.module) });
    }
}

/// Work for one stream, in [`CudaDevice::batch`](crate::CudaDevice::batch). The device's context is current
/// to the thread for its length, and the former one is restored behind it: a launch in it is one call of the
/// driver. The work leaves no other context current.
pub struct CudaBatch<'a> {
    context: &'a Arc<PrimaryContext>,
    current: Current<'a>,
    stream: CUstream,
}

impl<'a> CudaBatch<'a> {
    /// See [`CudaDevice::batch`](crate::CudaDevice::batch).
    pub(crate) fn enter(context: &'a Arc<PrimaryContext>, stream: CUstream) -> Result<Self, BackendError> {
        Ok(Self { context, current: context.enter()?, stream })
    }

    /// Enqueues a kernel, with so many blocks of so many threads in each direction. Each argument is the
    /// address of its value, which is copied before this returns.
    ///
    /// # Errors
    ///
    /// [`BackendError::invalid`] if the kernel is of another context; else the driver's refusal.
    ///
    /// # Safety
    ///
    /// The batch's stream is of its device, and exists. The arguments are those that the kernel has, in their
    /// order and of their types. With them it accesses memory that stays until the work is done, and the
    /// kernel is not dropped before that.
    pub unsafe fn launch(
        &self,
        kernel: &CudaKernel,
        blocks: [u32; 3],
        threads: [u32; 3],
        arguments: &mut [*mut c_void],
    ) -> Result<(), BackendError> {
        if kernel.context.handle() != self.context.handle() {
            return Err(BackendError::invalid("the kernel was loaded into another context"));
        }
        let [x, y, z] = blocks;
        let [tx, ty, tz] = threads;
        let (function, stream, arguments) = (kernel.function, self.stream, arguments.as_mut_ptr());
        let cuda = self.current.functions();
        // SAFETY: the context is current, and both handles are of it; the caller promises the rest.
        Ok(unsafe {
            cuda.cuLaunchKernel(function, x, y, z, tx, ty, tz, 0, stream, arguments, ptr::null_mut())
        }?)
    }

    /// Memory for work of this batch, with unspecified contents. It is there in the stream's order, and taken
    /// back in it when the result is dropped, so that nothing waits.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`] if the device has no such memory, and
    /// [`BackendError::out_of_memory`].
    ///
    /// # Safety
    ///
    /// The batch's stream is of its device, and exists until the result is dropped.
    pub unsafe fn temporary(&self, len: usize) -> Result<CudaTemporary<'_>, BackendError> {
        let pool = self.context.pool()?.handle();
        let mut pointer = 0;
        let cuda = self.current.functions();
        // A pool has no memory of no bytes.
        let len = len.max(1);
        // SAFETY: the context is current, `pointer` is a place for one address, and the caller promises the
        // stream.
        unsafe { cuda.cuMemAllocFromPoolAsync(&mut pointer, len, pool, self.stream) }.map_err(|error| {
            match error.is_out_of_memory() {
                true => BackendError::out_of_memory(len as u64, None).with_source(error),
                false => error.into(),
            }
        })?;
        Ok(CudaTemporary { batch: self, pointer })
    }
}

impl fmt::Debug for CudaBatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaBatch").finish_non_exhaustive()
    }
}

/// Memory for the work of a [`CudaBatch`], until this is dropped.
#[derive(Debug)]
pub struct CudaTemporary<'a> {
    batch: &'a CudaBatch<'a>,
    pointer: CUdeviceptr,
}

impl CudaTemporary<'_> {
    /// The address of the first byte, on the device: a multiple of at least 256.
    #[must_use]
    pub fn pointer(&self) -> CUdeviceptr {
        self.pointer
    }
}

impl Drop for CudaTemporary<'_> {
    fn drop(&mut self) {
        let cuda = self.batch.current.functions();
        // SAFETY: the context is current, and `temporary` made it once for this value, in this stream.
        log_failure(unsafe { cuda.cuMemFreeAsync(self.pointer, self.batch.stream) });
    }
}
