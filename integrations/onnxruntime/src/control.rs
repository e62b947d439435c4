//! `If`, `Loop` and `Scan`: ONNX Runtime's own kernels run their graphs, and need little of a device.

use std::ffi::c_void;
use std::ptr;

use device_kernels::{Operator, run_ref};
use ort_sys::{OrtKernelInfo, OrtStatusPtr, OrtSyncStream, OrtValue};

use crate::abi::{KernelImpl, LoopHelper, ScanHelper, VERSION};
use crate::api::Api;
use crate::context::array_of;
use crate::failure::Failure;
use crate::operators::Control;
use crate::place::Place;
use crate::stream;
use crate::transfer;

/// Makes the kernel of a node that runs graphs.
///
/// # Safety
///
/// The description is alive, and there is room for a pointer.
pub(crate) unsafe fn create_kernel(
    api: Api,
    place: &'static Place,
    control: Control,
    info: *const OrtKernelInfo,
    kernel: *mut *mut KernelImpl,
) -> Result<(), Failure> {
    // SAFETY: see above. ONNX Runtime owns a helper from its call on, and releases it with the kernel.
    api.check(unsafe {
        match control {
            Control::If => (api.ep.CreateIfKernel)(info, kernel),
            Control::Loop => {
                let table = LoopHelper {
                    ort_version_supported: VERSION,
                    Release: Some(release_loop),
                    ConcatOutput: Some(concat),
                };
                let helper = Box::into_raw(Box::new(Helper { table, api, place }));
                (api.ep.CreateLoopKernel)(info, helper.cast(), kernel)
            }
            Control::Scan => {
                let table = ScanHelper {
                    ort_version_supported: VERSION,
                    Release: Some(release_scan),
                    Transpose: Some(transpose),
                };
                let helper = Box::into_raw(Box::new(Helper { table, api, place }));
                (api.ep.CreateScanKernel)(info, helper.cast(), kernel)
            }
        }
    })
}

/// What ONNX Runtime's kernels ask for. It sees the table, which is first.
#[repr(C)]
struct Helper<T> {
    table: T,
    api: Api,
    place: &'static Place,
}

unsafe extern "system" fn release_loop(helper: *mut LoopHelper) {
    // SAFETY: it is one of `create_kernel`, and is not used again.
    drop(unsafe { Box::from_raw(helper.cast::<Helper<LoopHelper>>()) });
}

unsafe extern "system" fn release_scan(helper: *mut ScanHelper) {
    // SAFETY: it is one of `create_kernel`, and is not used again.
    drop(unsafe { Box::from_raw(helper.cast::<Helper<ScanHelper>>()) });
}

unsafe extern "system" fn concat(
    helper: *mut LoopHelper,
    stream: *mut c_void,
    values: *const *const OrtValue,
    count: usize,
    output: *mut c_void,
    room: usize,
) -> OrtStatusPtr {
    // SAFETY: it is one of `create_kernel`.
    let Helper { api, .. } = *unsafe { &*helper.cast::<Helper<LoopHelper>>() };
    api.guard(|| {
        // SAFETY: the handle is of the run's stream.
        let stream = unsafe { stream::of_handle(stream) }.map(|stream| &**stream);
        let mut done = 0_usize;
        for at in 0..count {
            let mut len = 0;
            let mut data = ptr::null();
            // SAFETY: there are so many values, which are alive; there is room for what is asked.
            unsafe {
                let value = *values.add(at);
                api.check((api.ort.GetTensorSizeInBytes)(value, &raw mut len))?;
                api.check((api.ort.GetTensorData)(value, &raw mut data))?;
            }
            if len > room - done {
                return Err(Failure::new(format_args!(
                    "the values of a loop have more than the {room} bytes of its output"
                )));
            }
            if len > 0 {
                transfer::copy_on_devices(data as usize, output as usize + done, len, stream)?;
            }
            done += len;
        }
        Ok(())
    })
}

unsafe extern "system" fn transpose(
    helper: *mut ScanHelper,
    dims: *const usize,
    rank: usize,
    input: *const OrtValue,
    stream: *mut OrtSyncStream,
    output: *mut OrtValue,
) -> OrtStatusPtr {
    // SAFETY: it is one of `create_kernel`.
    let Helper { api, place, .. } = *unsafe { &*helper.cast::<Helper<ScanHelper>>() };
    api.guard(|| {
        // SAFETY: there are so many dimensions, and all are alive.
        let (dims, input, output, stream) = unsafe {
            let dims = std::slice::from_raw_parts(dims, rank);
            let stream = stream::of_runtime(api, stream);
            (dims, array_of(api, place, input)?, array_of(api, place, output)?, stream)
        };
        let stream = stream.ok_or_else(|| Failure::new("a scan without a stream"))?;
        let input = input.with_layout(input.layout.permute(dims)?);
        stream.enqueue(|stream| run_ref(stream, Operator::Copy, &[input.operand()], &[output.operand()]))
    })
}
