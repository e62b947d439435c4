//! The simulated driver finds what it is there to find: each misuse of the interface ends the process, with a
//! message.
#![cfg(target_os = "linux")]

use std::env;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::time::Duration;

use device_conformance::process;
use device_cuda::cudarc::driver::sys::{CUcontext, CUdeviceptr, CUevent, CUresult, CUstream, *};

mod child;

const LEN: usize = 1024;

/// The parts of misuses. All belong to the context of the first device, which is current.
struct Parts {
    context: CUcontext,
    other_context: CUcontext,
    stream: CUstream,
    other_stream: CUstream,
    memory: CUdeviceptr,
    pinned: *mut c_void,
    event: CUevent,
    timed: CUevent,
}

fn ok(result: CUresult) {
    assert_eq!(result, CUresult::CUDA_SUCCESS);
}

/// What a function writes to a place.
fn out<T>(call: impl FnOnce(*mut T) -> CUresult) -> T {
    let mut place = MaybeUninit::uninit();
    ok(call(place.as_mut_ptr()));
    // SAFETY: it has succeeded.
    unsafe { place.assume_init() }
}

/// # Safety
///
/// On the simulated driver only, which stops at mistakes.
unsafe fn parts() -> Parts {
    // SAFETY: on the simulated driver only.
    unsafe {
        ok(cuInit(0));
        let [context, other_context] =
            [0, 1].map(|device| out(|place| cuDevicePrimaryCtxRetain(place, device)));
        let [stream, other_stream] = [context, other_context].map(|context| {
            ok(cuCtxSetCurrent(context));
            out(|place| cuStreamCreateWithPriority(place, 1, 0))
        });
        ok(cuCtxSetCurrent(context));
        Parts {
            context,
            other_context,
            stream,
            other_stream,
            memory: out(|place| cuMemAlloc_v2(place, LEN)),
            pinned: out(|place| cuMemHostAlloc(place, LEN, CU_MEMHOSTALLOC_PORTABLE)),
            event: out(|place| cuEventCreate(place, CUevent_flags::CU_EVENT_DISABLE_TIMING as u32)),
            timed: out(|place| cuEventCreate(place, CUevent_flags::CU_EVENT_DEFAULT as u32)),
        }
    }
}

unsafe extern "C" fn sleep(_: *mut c_void) {
    std::thread::sleep(Duration::from_millis(500));
}

unsafe extern "C" fn ask(_: *mut c_void) {
    // SAFETY: a place is given, and the driver stops at the call.
    let _ = out(|place| unsafe { cuDeviceGetCount(place) });
}

impl Parts {
    /// Holds later work of the stream back for a while.
    fn hold(&self) {
        // SAFETY: the function takes anything, and the simulated driver stops at mistakes.
        ok(unsafe { cuLaunchHostFunc(self.stream, Some(sleep), ptr::null_mut()) });
    }
}

/// A misuse, and a part of its message.
type Misuse = (&'static str, &'static str, unsafe fn(&Parts));

#[expect(clippy::undocumented_unsafe_blocks, reason = "each is a misuse, for the simulated driver only")]
const MISUSES: &[Misuse] = &[
    ("no context", "no context is current", |_| unsafe {
        ok(cuCtxSetCurrent(ptr::null_mut()));
        out(|place| cuMemAlloc_v2(place, LEN));
    }),
    ("pop", "no context was pushed", |_| unsafe {
        out(|place| cuCtxPopCurrent_v2(place));
        out(|place| cuCtxPopCurrent_v2(place));
    }),
    ("free twice", "was freed before", |parts| unsafe {
        ok(cuMemFree_v2(parts.memory));
        ok(cuMemFree_v2(parts.memory));
    }),
    ("free inside", "is no allocation", |parts| unsafe { ok(cuMemFree_v2(parts.memory + 256)) }),
    ("free elsewhere", "another context than its own", |parts| unsafe {
        ok(cuCtxSetCurrent(parts.other_context));
        ok(cuMemFree_v2(parts.memory));
    }),
    ("free in use", "while queued work uses it", |parts| unsafe {
        parts.hold();
        ok(cuMemsetD8Async(parts.memory, 1, LEN, parts.stream));
        ok(cuMemFree_v2(parts.memory));
    }),
    ("free pinned in use", "while queued work uses it", |parts| unsafe {
        parts.hold();
        ok(cuMemcpyHtoDAsync_v2(parts.memory, parts.pinned, LEN, parts.stream));
        ok(cuMemFreeHost(parts.pinned));
    }),
    ("free pinned twice", "was freed before", |parts| unsafe {
        ok(cuMemFreeHost(parts.pinned));
        ok(cuMemFreeHost(parts.pinned));
    }),
    ("in a host function", "`cuDeviceGetCount`: it is called within a host function", |parts| unsafe {
        ok(cuLaunchHostFunc(parts.stream, Some(ask), ptr::null_mut()));
        ok(cuStreamSynchronize(parts.stream));
    }),
    ("another's stream", "a stream of another context", |parts| unsafe {
        ok(cuStreamSynchronize(parts.other_stream));
    }),
    ("another's event", "recorded in a stream of another context", |parts| unsafe {
        ok(cuCtxSetCurrent(parts.other_context));
        ok(cuEventRecord(parts.event, parts.other_stream));
    }),
    ("another's memory", "memory of another context", |parts| unsafe {
        ok(cuCtxSetCurrent(parts.other_context));
        ok(cuMemsetD8Async(parts.memory, 1, LEN, parts.other_stream));
    }),
    ("the null stream", "the null stream", |parts| unsafe {
        ok(cuMemsetD8Async(parts.memory, 1, LEN, ptr::null_mut()));
    }),
    ("a blocking stream", "waits for the null stream", |_| unsafe {
        out(|place| cuStreamCreateWithPriority(place, 0, 0));
    }),
    ("elapsed too early", "not done", |parts| unsafe {
        ok(cuEventRecord(parts.timed, parts.stream));
        parts.hold();
        let end = out(|place| cuEventCreate(place, 0));
        ok(cuEventRecord(end, parts.stream));
        elapsed(parts.timed, end);
    }),
    ("elapsed without a time", "an event without one", |parts| unsafe {
        ok(cuEventRecord(parts.event, parts.stream));
        ok(cuEventSynchronize(parts.event));
        elapsed(parts.event, parts.event);
    }),
    ("misaligned", "a memset of 4 bytes", |parts| unsafe {
        ok(cuMemsetD32Async(parts.memory + 2, 1, 4, parts.stream));
    }),
    ("beyond the end", "not inside of an allocation", |parts| unsafe {
        ok(cuMemsetD8Async(parts.memory + 1, 1, LEN, parts.stream));
    }),
    ("over itself", "over itself", |parts| unsafe {
        ok(cuMemcpyDtoDAsync_v2(parts.memory, parts.memory + 4, 8, parts.stream));
    }),
    ("query a captured stream", "it ends the capture of the stream", |parts| unsafe {
        ok(cuStreamBeginCapture_v2(parts.stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED));
        let _ = cuStreamQuery(parts.stream);
    }),
    ("query an event of a captured stream", "it ends the capture of the stream", |parts| unsafe {
        ok(cuEventRecord(parts.event, parts.stream));
        ok(cuStreamBeginCapture_v2(parts.stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED));
        let _ = cuEventQuery(parts.event);
    }),
    ("destroy an event twice", "was destroyed before", |parts| unsafe {
        ok(cuEventDestroy_v2(parts.event));
        ok(cuEventDestroy_v2(parts.event));
    }),
    ("destroy a stream twice", "was destroyed", |parts| unsafe {
        ok(cuStreamDestroy_v2(parts.stream));
        ok(cuStreamDestroy_v2(parts.stream));
    }),
    ("free in order twice", "was freed before", |parts| unsafe {
        let memory = out(|place| cuMemAllocFromPoolAsync(place, LEN, pool(), parts.stream));
        parts.hold();
        ok(cuMemFreeAsync(memory, parts.stream));
        ok(cuMemFreeAsync(memory, parts.stream));
    }),
    ("use behind a free in order", "was freed in the order of a stream", |parts| unsafe {
        let memory = out(|place| cuMemAllocFromPoolAsync(place, LEN, pool(), parts.stream));
        parts.hold();
        ok(cuMemFreeAsync(memory, parts.stream));
        ok(cuMemsetD8Async(memory, 1, LEN, parts.stream));
    }),
    ("another's pool", "is no pool of the stream's device", |parts| unsafe {
        let pool = pool();
        ok(cuCtxSetCurrent(parts.other_context));
        out(|place| cuMemAllocFromPoolAsync(place, LEN, pool, parts.other_stream));
    }),
    ("unload what is no module", "is no module, or was unloaded before", |parts| unsafe {
        ok(cuModuleUnload(parts.stream.cast()));
    }),
    ("launch what is no kernel", "the kernel's module was unloaded", |parts| unsafe {
        let (function, stream, none) = (parts.stream.cast(), parts.stream, ptr::null_mut());
        ok(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, none, none));
    }),
    ("release in use", "a context is destroyed with [1, 1, 1, 2, 0, 0]", |_| unsafe {
        ok(cuDevicePrimaryCtxRelease_v2(0));
    }),
];

/// # Safety
///
/// The events are valid. (The function is looked up: `cudarc` does not have it for all versions.)
unsafe fn elapsed(start: CUevent, end: CUevent) {
    type Elapsed = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> CUresult;
    // SAFETY: the type is the function's, and the rest is the caller's.
    out(|place| unsafe { culib().get::<Elapsed>(b"cuEventElapsedTime\0").unwrap()(place, start, end) });
}

/// A pool of the first device.
///
/// # Safety
///
/// On the simulated driver only.
unsafe fn pool() -> CUmemoryPool {
    type Create = unsafe extern "C" fn(*mut CUmemoryPool, *const [i32; 22]) -> CUresult;
    // Pinned memory without a handle, on the device 0.
    let mut properties = [0; 22];
    (properties[0], properties[2]) = (1, 1);
    // SAFETY: the type is the function's: the properties have 88 bytes.
    out(|place| unsafe { culib().get::<Create>(b"cuMemPoolCreate\0").unwrap()(place, &properties) })
}

/// Correct use of the same parts.
unsafe fn use_well(parts: &Parts) {
    // SAFETY: it is what the reference asks for.
    unsafe {
        parts.hold();
        ok(cuMemsetD32Async(parts.memory, 0x0403_0201, LEN / 4, parts.stream));
        ok(cuMemcpyDtoHAsync_v2(parts.pinned, parts.memory, LEN, parts.stream));
        ok(cuEventRecord(parts.timed, parts.stream));
        assert_eq!(cuStreamQuery(parts.stream), CUresult::CUDA_ERROR_NOT_READY);
        ok(cuEventSynchronize(parts.timed));
        assert_eq!(parts.pinned.cast::<[u8; 5]>().read(), [1, 2, 3, 4, 1]);
        elapsed(parts.timed, parts.timed);
        let is_capturing = || out(|place| cuStreamIsCapturing(parts.stream, place));
        assert_eq!(is_capturing(), CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE);
        ok(cuStreamBeginCapture_v2(parts.stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED));
        assert_eq!(is_capturing(), CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE);
        out(|place| cuStreamEndCapture(parts.stream, place));
        let pool = pool();
        let memory = out(|place| cuMemAllocFromPoolAsync(place, LEN, pool, parts.stream));
        ok(cuMemcpyDtoDAsync_v2(memory, parts.memory, LEN, parts.stream));
        ok(cuMemFreeAsync(memory, parts.stream));
        ok(cuMemPoolDestroy(pool));
        ok(cuStreamSynchronize(parts.stream));
        ok(cuMemFree_v2(parts.memory));
        ok(cuMemFreeHost(parts.pinned));
        ok(cuStreamDestroy_v2(parts.stream));
        ok(cuEventDestroy_v2(parts.event));
        ok(cuEventDestroy_v2(parts.timed));
        ok(cuCtxSetCurrent(parts.other_context));
        ok(cuStreamDestroy_v2(parts.other_stream));
        assert!(!parts.context.is_null());
        ok(cuDevicePrimaryCtxRelease_v2(0));
        ok(cuDevicePrimaryCtxRelease_v2(1));
    }
}

#[test]
fn every_misuse_ends_the_process_with_a_message() {
    const TEST: &str = "every_misuse_ends_the_process_with_a_message";
    if process::is_child() {
        let name = env::var("MISUSE").unwrap();
        let (.., misuse) = MISUSES.iter().find(|(other, ..)| *other == name).unwrap();
        // SAFETY: the child runs on the simulated driver, which ends it.
        unsafe { misuse(&parts()) };
        return;
    }
    for (name, said, _) in MISUSES {
        let output = child::again(TEST, Some(&child::simulated()), &[("MISUSE", name)]);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), None, "`{name}` did not end it: {printed}");
        assert!(printed.contains("simulated CUDA driver: misuse in `cu"), "{name}: {printed}");
        assert!(printed.contains(said), "`{name}` should be `{said}`: {printed}");
    }
}

#[test]
fn correct_use_is_allowed() {
    const TEST: &str = "correct_use_is_allowed";
    if process::is_child() {
        // SAFETY: the child runs on the simulated driver.
        return unsafe { use_well(&parts()) };
    }
    child::passes(TEST, Some(&child::simulated()), &[]);
}
