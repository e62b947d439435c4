//! A simulation of the CUDA driver's interface, for tests on machines without a GPU. **It is not hardware and
//! not NVIDIA's code**: it was written from the CUDA driver API reference, and what passes on it has been
//! shown to keep to that, as far as it was understood, and nothing more.
//!
//! It is a library with the driver's file name and the functions that the backend calls, so that tests go the
//! whole way from a `Buffer` through `cudarc`'s loading and a C call to bytes and back. It has two devices of
//! 256 MiB, whose memory has addresses that are invalid on the host. A stream is a thread with a queue. It
//! runs kernels that a simulated compiler has made (see `kernel`), on the processor, and no PTX.
//!
//! It is **strict**: a call that the reference forbids or leaves undefined ends the process with a message,
//! where hardware may continue, or write into memory of others. See the callers of `misuse`.
//!
//! | variable | what it does |
//! |---|---|
//! | `SIMULATED_CUDA_INIT=100` | `cuInit` returns this code |
//! | `SIMULATED_CUDA_FAULT=700@5` | the fifth copy or memset that is executed fails with this code, and from then on everything in its context |
//! | `SIMULATED_CUDA_REFUSE=cuStreamQuery:900@3` | the third call of this function returns this code and does nothing; `@3-5` the third to the fifth |
//! | `SIMULATED_CUDA_TELL=cuLaunchHostFunc:700@3` | that call does what it does, and returns the code as one of earlier work |
//! | `SIMULATED_CUDA_MULTIPROCESSORS=132` | so many, and not 4 |
//! | `SIMULATED_CUDA_CAPTURE=1` | as if another thread captured a stream in the global mode all the time: querying a stream is a misuse, unless the thread's mode is relaxed |
//! | `SIMULATED_CUDA_IDLE=1` | querying a stream without work is a misuse |
//! | `SIMULATED_CUDA_UNTIMED=1` | a timed event is a misuse |

#![allow(non_snake_case, reason = "the names are the driver's")]

mod errors;
mod kernel;
mod memory;
mod orders;
mod state;
mod stream;

use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ushort, c_void};
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction, CUgraph, CUhostFn,
    CUjit_option, CUmemoryPool, CUmodule, CUresult, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus,
    CUuuid,
};

use crate::kernel::Kernel;
use crate::memory::Place;
use crate::orders::Order;
use crate::state::{DEVICES, MEMORY, misuse, state};
use crate::stream::{Event, HostPlace, Stream, Work};

/// Results that are given here.
const INVALID_VALUE: u32 = 1;
const NOT_INITIALIZED: u32 = 3;
const INVALID_DEVICE: u32 = 101;
const INVALID_PTX: u32 = 218;
const JIT_COMPILER_NOT_FOUND: u32 = 221;
const NOT_READY: u32 = 600;

type Answer = Result<(), u32>;

/// How many functions were called.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// How many functions of the driver were called, for tests.
#[unsafe(no_mangle)]
extern "C" fn simulatedCalls() -> u64 {
    CALLS.load(Ordering::Relaxed)
}

/// Goes around each function.
fn call(name: &str, run: impl FnOnce() -> Answer) -> u32 {
    CALLS.fetch_add(1, Ordering::Relaxed);
    state::set_call(name);
    if stream::is_in_host_function() {
        misuse("it is called within a host function");
    }
    let order = orders::next(name);
    match order {
        Some(Order::Refuse(code)) => code,
        Some(Order::Tell(code)) => {
            let _ = run();
            code
        }
        None => run().err().unwrap_or(0),
    }
}

/// Writes to a place of the caller's.
fn put<T>(place: *mut T, value: T) {
    if place.is_null() {
        misuse("a place to write to is null");
    }
    // SAFETY: the caller of the driver's function vouches for the place.
    unsafe { place.write(value) };
}

/// Writes a text with a zero at its end into a buffer of the caller's.
fn put_text(buffer: *mut c_char, len: c_int, text: &str) {
    let len = usize::try_from(len).unwrap_or(0);
    if buffer.is_null() || len <= text.len() {
        misuse(format_args!("a buffer of {len} bytes for `{text}`"));
    }
    // SAFETY: the caller vouches for this many bytes.
    let buffer = unsafe { slice::from_raw_parts_mut(buffer.cast::<u8>(), len) };
    buffer[..text.len()].copy_from_slice(text.as_bytes());
    buffer[text.len()] = 0;
}

fn known(device: CUdevice) -> Result<usize, u32> {
    state::started()?;
    usize::try_from(device).ok().filter(|&device| device < DEVICES).ok_or(INVALID_DEVICE)
}

/// The functions, each with the arguments that `cudarc` has for it, or it does not compile.
macro_rules! driver {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $body:block)*) => {
        $(
            /// # Safety
            ///
            /// The arguments are what the CUDA driver API reference asks for.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
                call(stringify!($name), || $body)
            }

            const _: unsafe fn($($type),*) -> CUresult = sys::$name;
        )*
    };
}

driver! {
    fn cuInit(flags: c_uint) {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        state::start()
    }

    fn cuDriverGetVersion(version: *mut c_int) {
        put(version, 11040);
        Ok(())
    }

    fn cuDeviceGetCount(count: *mut c_int) {
        state::started()?;
        put(count, DEVICES as c_int);
        Ok(())
    }

    fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) {
        known(ordinal)?;
        put(device, ordinal);
        Ok(())
    }

    fn cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice) {
        known(device)?;
        put_text(name, len, "Simulated CUDA device");
        Ok(())
    }

    fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice) {
        let device = known(device)? as u8;
        // In the form that RFC 9562 leaves to implementers (version 8).
        let bytes = [device, 0, b's', b'i', b'm', b'u', 0x80, b'l', 0x80, b'a', b't', b'e', b'd', 0, 0, 0xff];
        put(uuid, CUuuid { bytes: bytes.map(|byte| byte as c_char) });
        Ok(())
    }

    fn cuDeviceGetPCIBusId(text: *mut c_char, len: c_int, device: CUdevice) {
        // Digits in capitals, as the driver has them.
        put_text(text, len, &format!("FFFE:0{:X}:00.0", 0xA + known(device)?));
        Ok(())
    }

    fn cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice) {
        known(device)?;
        put(value, match attribute {
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED => 0,
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS => 1,
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => 8,
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => 9,
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => {
                std::env::var("SIMULATED_CUDA_MULTIPROCESSORS").map_or(4, |count| count.parse().expect("a number"))
            }
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE => 32,
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK => 1024,
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => 99 << 10,
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH => 256,
            // In kHz.
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE => 1_000_000,
            // An older driver: the backend leaves out what it does not know.
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE => return Err(INVALID_VALUE),
            other => misuse(format_args!("the attribute {other:?} is not simulated")),
        });
        Ok(())
    }

    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) {
        known(device)?;
        put(bytes, MEMORY);
        Ok(())
    }

    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) {
        put(context, state().retain(known(device)?)?);
        Ok(())
    }

    fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) {
        state().release(known(device)?);
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int) {
        let device = known(device)?;
        put(flags, 0);
        put(active, c_int::from(state().is_retained(device)));
        Ok(())
    }

    fn cuCtxPushCurrent_v2(context: CUcontext) {
        state::push(state().context(context));
        Ok(())
    }

    fn cuCtxPopCurrent_v2(context: *mut CUcontext) {
        put(context, state::pop());
        Ok(())
    }

    fn cuCtxSetCurrent(context: CUcontext) {
        state::set((!context.is_null()).then(|| state().context(context)));
        Ok(())
    }

    fn cuCtxGetCurrent(context: *mut CUcontext) {
        state::started()?;
        put(context, state::top());
        Ok(())
    }

    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        state::current()?;
        // This distinguishes it from 0, which streams without a priority have.
        put(least, 1);
        put(greatest, -5);
        Ok(())
    }

    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let device = state::current()?;
        put(free, state().free_memory(device));
        put(total, MEMORY);
        Ok(())
    }

    fn cuMemAlloc_v2(pointer: *mut CUdeviceptr, len: usize) {
        // The reference does not say which error a length that no memory has is.
        if len == 0 || len > usize::MAX / 4 {
            return Err(INVALID_VALUE);
        }
        let device = state::current()?;
        put(pointer, state().allocate(device, len)?);
        Ok(())
    }

    fn cuMemFree_v2(pointer: CUdeviceptr) {
        let device = state::current()?;
        state().free(device, pointer);
        Ok(())
    }

    fn cuMemHostAlloc(pointer: *mut *mut c_void, len: usize, flags: c_uint) {
        if len == 0 || flags != sys::CU_MEMHOSTALLOC_PORTABLE {
            misuse(format_args!("{len} bytes of pinned memory with the flags {flags}"));
        }
        let device = state::current()?;
        put(pointer, state().allocate_pinned(device, len)?);
        Ok(())
    }

    fn cuMemFreeHost(pointer: *mut c_void) {
        let device = state::current()?;
        state().free_pinned(device, pointer);
        Ok(())
    }

    fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, len: usize, stream: CUstream) {
        let stream = Stream::of(stream)?;
        let (from, to) = (HostPlace::new(from.cast_mut(), len), Place::new(stream.device(), to, len));
        stream.submit(Work::Write { from, to });
        Ok(())
    }

    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, len: usize, stream: CUstream) {
        let stream = Stream::of(stream)?;
        let (from, to) = (Place::new(stream.device(), from, len), HostPlace::new(to, len));
        let is_pinned = to.is_pinned();
        stream.submit(Work::Read { from, to });
        // To memory that is not pinned it returns when the copy is done.
        if is_pinned { Ok(()) } else { stream.synchronize() }
    }

    fn cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, len: usize, stream: CUstream) {
        let stream = Stream::of(stream)?;
        let (from, to) = (Place::new(stream.device(), from, len), Place::new(stream.device(), to, len));
        if from.overlaps(&to) {
            misuse("a copy of memory over itself");
        }
        stream.submit(Work::Copy { from, to });
        Ok(())
    }

    fn cuMemcpyPeerAsync(
        to: CUdeviceptr,
        to_context: CUcontext,
        from: CUdeviceptr,
        from_context: CUcontext,
        len: usize,
        stream: CUstream
    ) {
        let stream = Stream::of(stream)?;
        let to_device = state().context(to_context);
        let from_device = state().context(from_context);
        state::alive(from_device)?;
        let (from, to) = (Place::new(from_device, from, len), Place::new(to_device, to, len));
        stream.submit(Work::Copy { from, to });
        Ok(())
    }

    fn cuMemsetD8Async(to: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream) {
        stream::set(to, &[value], count, stream)
    }

    fn cuMemsetD16Async(to: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream) {
        stream::set(to, &value.to_ne_bytes(), count, stream)
    }

    fn cuMemsetD32Async(to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) {
        stream::set(to, &value.to_ne_bytes(), count, stream)
    }

    fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int) {
        if flags != sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint {
            misuse("a stream that waits for the null stream, and it for the stream");
        }
        if !(-5..=1).contains(&priority) {
            misuse(format_args!("the priority {priority}, where there are -5 to 1"));
        }
        put(stream, Stream::create(state::current()?, priority));
        Ok(())
    }

    fn cuStreamGetPriority(stream: CUstream, priority: *mut c_int) {
        put(priority, Stream::of(stream)?.priority());
        Ok(())
    }

    fn cuStreamDestroy_v2(stream: CUstream) {
        Stream::destroy(stream)
    }

    fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode) {
        state::started()?;
        stream::exchange_capture_mode(mode)
    }

    fn cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) {
        if mode != CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED {
            misuse(format_args!("a capture in the mode {mode:?}, which is not simulated"));
        }
        Stream::of(stream)?.set_captured(true);
        Ok(())
    }

    fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) {
        Stream::of(stream)?.set_captured(false);
        put(graph, std::ptr::null_mut());
        Ok(())
    }

    fn cuStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus) {
        let is_captured = Stream::of(stream)?.is_captured();
        put(status, if is_captured {
            CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE
        } else {
            CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE
        });
        Ok(())
    }

    fn cuStreamQuery(stream: CUstream) {
        stream::leave_captures_alone();
        let stream = Stream::of(stream)?;
        stream.expect_no_capture();
        let done = stream.is_done();
        if done && orders::is_set("SIMULATED_CUDA_IDLE") {
            misuse("a stream with nothing in it is asked");
        }
        state::alive(stream.device())?;
        if done { Ok(()) } else { Err(NOT_READY) }
    }

    fn cuStreamSynchronize(stream: CUstream) {
        Stream::of(stream)?.synchronize()
    }

    fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        // The event may be of any context.
        let stream = Stream::of(stream)?;
        if let Some(record) = Event::of(event).recorded() {
            stream.submit(Work::Wait(record));
        }
        Ok(())
    }

    fn cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void) {
        let function = function.ok_or(INVALID_VALUE)?;
        Stream::of(stream)?.submit(Work::Host { function, data: data.expose_provenance() });
        Ok(())
    }

    fn cuEventCreate(event: *mut CUevent, flags: c_uint) {
        let timed = flags & sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint == 0;
        if timed && orders::is_set("SIMULATED_CUDA_UNTIMED") {
            misuse("an event that takes the time");
        }
        put(event, Event::create(state::current()?, timed));
        Ok(())
    }

    fn cuEventDestroy_v2(event: CUevent) {
        state::current()?;
        Event::destroy(event);
        Ok(())
    }

    fn cuEventRecord(event: CUevent, stream: CUstream) {
        let (event, stream) = (Event::of(event), Stream::of(stream)?);
        if event.device() != stream.device() {
            misuse("an event is recorded in a stream of another context");
        }
        stream.submit(Work::Record(event.record(&stream)));
        Ok(())
    }

    fn cuEventQuery(event: CUevent) {
        state::current()?;
        let event = Event::of(event);
        event.expect_no_capture();
        let done = event.recorded().is_none_or(|record| record.is_done());
        // An error of earlier work is returned here too.
        state::alive(event.device())?;
        if done { Ok(()) } else { Err(NOT_READY) }
    }

    fn cuEventSynchronize(event: CUevent) {
        state::current()?;
        let event = Event::of(event);
        if let Some(record) = event.recorded() {
            record.wait();
        }
        state::alive(event.device())
    }

    fn cuModuleLoadDataEx(
        module: *mut CUmodule,
        image: *const c_void,
        count: c_uint,
        options: *mut CUjit_option,
        values: *mut *mut c_void
    ) {
        let device = state::current()?;
        // SAFETY: the caller vouches for a binary, or for a text with a zero at its end, and none is shorter.
        if unsafe { image.cast::<[u8; 4]>().read() } == kernel::MAGIC[..4] {
            // SAFETY: it is an image of the simulated compiler.
            let kernel = unsafe { Kernel::load(device, image) };
            let mut state = state();
            let handle = state.new_handle();
            state.modules.insert(handle, kernel);
            put(module, ptr::without_provenance_mut(handle));
            return Ok(());
        }
        // SAFETY: the caller vouches for a text with a zero at its end.
        let text = unsafe { CStr::from_ptr(image.cast()) };
        // SAFETY: the caller vouches for `count` options.
        let options = unsafe { slice::from_raw_parts(options, count as usize) };
        // SAFETY: the caller vouches for `count` values.
        let values = unsafe { slice::from_raw_parts(values, count as usize) };
        let value = |wanted| options.iter().position(|&option| option == wanted).map(|place| values[place]);
        // It looks at the first line, and compiles nothing.
        if text.to_bytes().trim_ascii_start().starts_with(b".version") {
            return Err(JIT_COMPILER_NOT_FOUND);
        }
        let buffer = value(CUjit_option::CU_JIT_ERROR_LOG_BUFFER);
        let len = value(CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
        if let (Some(buffer), Some(len)) = (buffer, len) {
            // The number is the value itself, in place of a pointer.
            put_text(buffer.cast(), len.addr() as c_int, "simulated: the text does not begin with .version");
        }
        Err(INVALID_PTX)
    }

    fn cuModuleUnload(module: CUmodule) {
        let device = state::current()?;
        match state().modules.remove(&module.addr()) {
            Some(kernel) if kernel.device == device => Ok(()),
            Some(_) => misuse("a module of another context than the current one"),
            None => misuse(format_args!("{module:?} is no module, or was unloaded before")),
        }
    }

    fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) {
        state::current()?;
        // SAFETY: the caller vouches for a text with a zero at its end.
        let name = unsafe { CStr::from_ptr(name) };
        put(function, ptr::without_provenance_mut(Kernel::of(module.addr(), name.to_bytes())?));
        Ok(())
    }

    fn cuLaunchKernel(
        function: CUfunction,
        blocks_x: c_uint,
        blocks_y: c_uint,
        blocks_z: c_uint,
        threads_x: c_uint,
        threads_y: c_uint,
        threads_z: c_uint,
        shared_len: c_uint,
        stream: CUstream,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void
    ) {
        if shared_len != 0 || !extra.is_null() {
            misuse("dynamic shared memory, or arguments in a buffer, which are not simulated");
        }
        let (blocks, threads) = ([blocks_x, blocks_y, blocks_z], [threads_x, threads_y, threads_z]);
        let stream = Stream::of(stream)?;
        // SAFETY: the caller vouches for the arguments.
        unsafe { kernel::launch(function.addr(), blocks, threads, &stream, arguments) }
    }

    fn cuMemAllocFromPoolAsync(pointer: *mut CUdeviceptr, len: usize, pool: CUmemoryPool, stream: CUstream) {
        let stream = Stream::of(stream)?;
        if state().pools.get(&pool.addr()) != Some(&stream.device()) {
            misuse(format_args!("{pool:?} is no pool of the stream's device"));
        }
        if len == 0 {
            return Err(INVALID_VALUE);
        }
        put(pointer, state().allocate(stream.device(), len)?);
        Ok(())
    }

    fn cuMemFreeAsync(pointer: CUdeviceptr, stream: CUstream) {
        let stream = Stream::of(stream)?;
        state().free_in_order(stream.device(), pointer);
        stream.submit(Work::Free(pointer));
        Ok(())
    }

    fn cuMemPoolDestroy(pool: CUmemoryPool) {
        state::started()?;
        match state().pools.remove(&pool.addr()) {
            Some(_) => Ok(()),
            None => misuse(format_args!("{pool:?} is no pool, or was destroyed before")),
        }
    }
}

/// The first numbers of `CUmemPoolProps`.
#[repr(C)]
struct PoolProperties {
    allocation_type: c_int,
    handle_types: c_int,
    location_type: c_int,
    location: c_int,
}

/// # Safety
///
/// The arguments are what the CUDA driver API reference asks for.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const PoolProperties) -> u32 {
    call("cuMemPoolCreate", || {
        // SAFETY: the caller vouches for the properties.
        let of = unsafe { &*properties };
        if (of.allocation_type, of.handle_types, of.location_type) != (1, 0, 1) {
            return Err(INVALID_VALUE);
        }
        let device = known(of.location)?;
        let mut state = state();
        let handle = state.new_handle();
        state.pools.insert(handle, device);
        put(pool, ptr::without_provenance_mut(handle));
        Ok(())
    })
}

/// # Safety
///
/// The arguments are what the CUDA driver API reference asks for.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_int, value: *mut c_void) -> u32 {
    call("cuMemPoolSetAttribute", || {
        if attribute != 4 || value.is_null() || !state().pools.contains_key(&pool.addr()) {
            return Err(INVALID_VALUE);
        }
        Ok(())
    })
}

/// # Safety
///
/// The arguments are what the CUDA driver API reference asks for.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) -> u32 {
    call("cuEventElapsedTime", || {
        state::current()?;
        put(milliseconds, Event::elapsed(&Event::of(start), &Event::of(end)));
        Ok(())
    })
}

/// # Safety
///
/// The arguments are what the CUDA driver API reference asks for.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(error: u32, text: *mut *const c_char) -> u32 {
    call("cuGetErrorName", || errors::find(error, text, |(_, name, _)| name))
}

/// # Safety
///
/// The arguments are what the CUDA driver API reference asks for.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(error: u32, text: *mut *const c_char) -> u32 {
    call("cuGetErrorString", || errors::find(error, text, |(_, _, text)| text))
}
