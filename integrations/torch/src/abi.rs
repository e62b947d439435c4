//! The functions of `python/device_torch/csrc/device_torch.h`.
//!
//! The shim is the only caller. It passes pointers that are valid for what the header says of them, and
//! handles that it got from here.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::time::Instant;
use std::{ptr, slice, str};

use device_kernels::Scalar;
use device_registry::{HostBuffer, device_list};
use smallvec::SmallVec;

use crate::activity::{self, Recording};
use crate::choice::choice;
use crate::copies::{Mapped, Shared};
use crate::counts;
use crate::devices;
use crate::expressions::Compiled;
use crate::failure::{Code, Failure, last, set_last};
use crate::operators::{Call, TABLE, Tensor, Value, check_kernels, has_kernels};
use crate::{copies, events, host_memory, memory, streams};

/// Runs a function for C++: a failure becomes a code, and a panic too.
fn guard(run: impl FnOnce() -> Result<(), Failure>) -> c_int {
    let code = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => Code::Ok,
        Ok(Err(failure)) => {
            set_last(&failure.message);
            failure.code
        }
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            set_last(&format!("a panic in device_torch: {}", text.unwrap_or("no message")));
            Code::Failed
        }
    };
    code as c_int
}

/// Writes a result.
///
/// # Safety
///
/// `place` may be written to.
unsafe fn put<T>(place: *mut T, value: T) {
    // SAFETY: see above.
    unsafe { place.write(value) };
}

/// A PyTorch index; a negative one belongs to no device.
fn index(device: c_int) -> usize {
    usize::try_from(device).unwrap_or(usize::MAX)
}

/// A number of a stream.
fn number(stream: i64) -> usize {
    usize::try_from(stream).unwrap_or(usize::MAX)
}

/// A text for C, that is the thread's until its next call.
fn as_last(text: &str) -> *const c_char {
    set_last(text);
    last(CStr::as_ptr)
}

#[unsafe(no_mangle)]
extern "C" fn dt_error() -> *const c_char {
    last(CStr::as_ptr)
}

#[unsafe(no_mangle)]
extern "C" fn dt_choose(name: *mut *const c_char, notes: *mut *const c_char) -> c_int {
    static TEXTS: OnceLock<(CString, CString)> = OnceLock::new();
    guard(|| {
        let choice = choice().map_err(Failure::new)?;
        let text = |text: &str| CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
        let (chosen, noted) = TEXTS.get_or_init(|| (text(&choice.name), text(&choice.notes)));
        // SAFETY: the caller's places.
        unsafe {
            put(name, chosen.as_ptr());
            put(notes, noted.as_ptr());
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dt_device_count() -> c_int {
    let count = catch_unwind(|| devices::all().len());
    count.ok().and_then(|count| c_int::try_from(count).ok()).unwrap_or(0)
}

#[unsafe(no_mangle)]
extern "C" fn dt_is_open(device: c_int) -> c_int {
    streams::is_used(index(device)).into()
}

#[unsafe(no_mangle)]
extern "C" fn dt_device_name(device: c_int, name: *mut *const c_char) -> c_int {
    static NAMES: [OnceLock<CString>; devices::MOST] = [const { OnceLock::new() }; devices::MOST];
    guard(|| {
        let device = devices::get(device).map(|found| (found, index(device)))?;
        let text = NAMES[device.1].get_or_init(|| CString::new(device.0.to_string()).unwrap_or_default());
        // SAFETY: the caller's place.
        unsafe { put(name, text.as_ptr()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dt_device_properties(device: c_int, lines: *mut *const c_char) -> c_int {
    guard(|| {
        let found = devices::properties(device)?;
        // SAFETY: the caller's place.
        unsafe { put(lines, as_last(&found)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dt_describe() -> *const c_char {
    match catch_unwind(|| device_list().to_string()) {
        Ok(list) => as_last(&list),
        Err(_) => as_last("a panic while the devices were listed"),
    }
}

#[unsafe(no_mangle)]
extern "C" fn dt_is_forked() -> c_int {
    devices::is_forked().into()
}

#[unsafe(no_mangle)]
extern "C" fn dt_allocate(device: c_int, len: usize, pointer: *mut *mut c_void) -> c_int {
    guard(|| {
        let address = memory::allocate(index(device), len)?;
        // SAFETY: the caller's place.
        unsafe { put(pointer, ptr::without_provenance_mut(address)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dt_free(pointer: *mut c_void) {
    guard(|| {
        memory::free(pointer.addr());
        Ok(())
    });
}

#[unsafe(no_mangle)]
extern "C" fn dt_device_of(pointer: *const c_void) -> c_int {
    memory::device_of(pointer.addr()).and_then(|device| c_int::try_from(device).ok()).unwrap_or(-1)
}

#[unsafe(no_mangle)]
extern "C" fn dt_empty_caches() -> c_int {
    guard(|| {
        devices::check_fork()?;
        for device in (0..devices::MOST).filter(|&device| streams::is_used(device)) {
            memory::registered(device)?.empty_cache()?;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dt_memory_info(device: c_int, available: *mut u64, total: *mut u64) -> c_int {
    guard(|| {
        let registered = memory::registered(index(device))?;
        let info = registered.memory_info()?;
        let (Some(free), Some(all)) = (info.free, info.total) else {
            let message = format!("`{registered}` does not say how much memory it has");
            return Err(Failure { code: Code::Unsupported, message });
        };
        // SAFETY: the caller's places.
        unsafe {
            put(available, free);
            put(total, all);
        }
        Ok(())
    })
}

/// `dt_statistics` of the header.
#[derive(Default)]
#[repr(C)]
struct Statistics {
    allocated: u64,
    peak_allocated: u64,
    ever_allocated: u64,
    live: u64,
    peak_live: u64,
    ever_live: u64,
    active: u64,
    reserved: u64,
    peak_reserved: u64,
    retries: u64,
}

#[unsafe(no_mangle)]
extern "C" fn dt_memory_statistics(device: c_int, statistics: *mut Statistics) -> c_int {
    guard(|| {
        if !streams::is_used(index(device)) {
            // It is not opened to be asked.
            devices::get(device)?;
            // SAFETY: the caller's place.
            unsafe { put(statistics, Statistics::default()) };
            return Ok(());
        }
        let of_device = memory::registered(index(device))?.memory_statistics()?;
        let (bytes, count) = memory::levels(index(device))?;
        let found = Statistics {
            allocated: bytes.now,
            peak_allocated: bytes.peak,
            ever_allocated: bytes.ever,
            live: count.now,
            peak_live: count.peak,
            ever_live: count.ever,
            active: of_device.active,
            reserved: of_device.reserved,
            peak_reserved: of_device.peak_reserved,
            retries: of_device.retries,
        };
        // SAFETY: the caller's place.
        unsafe { put(statistics, found) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dt_reset_statistics(device: c_int, ever: c_int) -> c_int {
    guard(|| match streams::is_used(index(device)) {
        true => memory::reset_levels(index(device), ever != 0),
        false => devices::get(device).map(|_| ()),
    })
}

#[unsafe(no_mangle)]
extern "C" fn dt_allocate_host(device: c_int, len: usize, pointer: *mut *mut c_void) -> c_int {
    guard(|| {
        let address = host_memory::allocate(index(device), len)?;
        // SAFETY: the caller's place.
        unsafe { put(pointer, ptr::with_exposed_provenance_mut(address)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dt_free_host(pointer: *mut c_void) {
    guard(|| {
        host_memory::free(pointer.addr());
        Ok(())
    });
}

#[unsafe(no_mangle)]
extern "C" fn dt_is_host_allocation(pointer: *const c_void) -> c_int {
    host_memory::contains(pointer.addr()).into()
}

#[unsafe(no_mangle)]
extern "C" fn dt_write(destination: *mut c_void, source: *const u8, len: usize) -> c_int {
    guard(|| {
        // SAFETY: the caller has `len` bytes there, which nothing writes to meanwhile.
        let source = unsafe { slice::from_raw_parts(source, len) };
        copies::write(destination.addr(), source)
    })
}

#[unsafe(no_mangle)]
extern "C" fn dt_write_later(destination: *mut c_void, source: *mut u8, len: usize) -> c_int {
    guard(|| {
        let kept = NonNull::new(source).zip(host_memory::holder(source.addr(), len));
        let Some((start, memory)) = kept else {
            // SAFETY: the caller has `len` bytes there, which nothing writes to meanwhile.
            return copies::write(destination.addr(), unsafe { slice::from_raw_parts(source, len) });
        };
        // SAFETY: the bytes are inside the memory, which is the owner. The caller promises that nothing
        // writes to them until the stream has done its work, which drops the owner.
        let source = unsafe { HostBuffer::from_shared_parts(start, len, memory) };
        copies::enqueue(destination.addr(), source)
    })
}

#[unsafe(no_mangle)]
extern "C" fn dt_read(destination: *mut u8, source: *const c_void, len: usize) -> c_int {
    guard(|| {
        // SAFETY: the caller has `len` bytes there, which nothing else uses meanwhile.
        let destination = unsafe { slice::from_raw_parts_mut(destination, len) };
        copies::read(destination, source.addr())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dt_copy(destination: *mut c_void, source: *const c_void, len: usize) -> c_int {
    guard(|| copies::copy(destination.addr(), source.addr(), len))
}

/// `dt_range` of the header.
#[repr(C)]
struct Range {
    pointer: *mut c_void,
    len: usize,
    is_written: c_int,
    host: *mut u8,
}

#[unsafe(no_mangle)]
extern "C" fn dt_with_mapped(
    ranges: *mut Range,
    count: usize,
    context: *mut c_void,
    compute: extern "C" fn(*mut c_void),
    mapped: *mut c_int,
) -> c_int {
    guard(|| {
        // SAFETY: the caller has `count` ranges there, which nothing else uses meanwhile.
        let ranges = unsafe { slice::from_raw_parts_mut(ranges, count) };
        let described: SmallVec<[Mapped; 4]> = ranges
            .iter()
            .map(|range| Mapped {
                address: range.pointer.addr(),
                len: range.len,
                is_written: range.is_written != 0,
            })
            .collect();
        let is_mapped = copies::with_mapped(&described, |pointers| {
            ranges.iter_mut().zip(pointers).for_each(|(range, pointer)| range.host = *pointer);
            compute(context);
        })?;
        // SAFETY: the caller's place.
        unsafe { put(mapped, is_mapped.into()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dt_share(
    pointer: *mut c_void,
    len: usize,
    host: *mut *mut u8,
    owner: *mut *mut Shared,
) -> c_int {
    guard(|| {
        let shared = copies::share(pointer.addr(), len)?.map(Box::new);
        let start = shared.as_ref().map_or(ptr::null_mut(), |shared| shared.host.as_ptr());
        // SAFETY: the caller's places.
        unsafe {
            put(host, start);
            put(owner, shared.map_or(ptr::null_mut(), Box::into_raw));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dt_unshare(owner: *mut Shared) {
    if !owner.is_null() && !devices::is_forked() {
        // SAFETY: an owner of `dt_share`, which the caller gives back.
        let shared = unsafe { Box::from_raw(owner) };
        guard(|| {
            drop(shared);
            Ok(())
        });
    }
}

#[unsafe(no_mangle)]
extern "C" fn dt_current_stream(device: c_int) -> i64 {
    streams::current_number(index(device)) as i64
}

#[unsafe(no_mangle)]
extern "C" fn dt_set_current_stream(device: c_int, stream: i64) {
    streams::set_current(index(device), number(stream));
}

#[unsafe(no_mangle)]
extern "C" fn dt_new_stream(device: c_int, high_priority: c_int, stream: *mut i64) -> c_int {
    guard(|| {
        let number = streams::next(index(device), high_priority != 0)?;
        // SAFETY: the caller's place.
        unsafe { put(stream, number as i64) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dt_query_stream(device: c_int, stream: i64, done: *mut c_int) -> c_int {
    guard(|| {
        let is_done = streams::get(index(device), number(stream))?.query()?;
        // SAFETY: the caller's place.
        unsafe { put(done, is_done.into()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dt_synchronize_stream(device: c_int, stream: i64) -> c_int {
    guard(|| Ok(streams::get(index(device), number(stream))?.synchronize()?))
}

#[unsafe(no_mangle)]
extern "C" fn dt_synchronize(device: c_int) -> c_int {
    guard(|| {
        devices::check_fork()?;
        if !streams::is_used(index(device)) {
            // It has no work, and is not opened for that.
            return devices::get(device).map(|_| ());
        }
        Ok(memory::registered(index(device))?.synchronize()?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn dt_record(device: c_int, stream: i64, timed: c_int, event: *mut u64) -> c_int {
    guard(|| {
        let recorded = streams::record(index(device), number(stream), timed != 0)?;
        // SAFETY: the caller's place.
        let recorded_before = unsafe { event.read() };
        let event_number = events::put(recorded_before, recorded);
        // SAFETY: the caller's place.
        unsafe { put(event, event_number) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dt_wait_event(event: u64, device: c_int, stream: i64) -> c_int {
    guard(|| Ok(streams::get(index(device), number(stream))?.wait_event(&events::get(event)?)?))
}

#[unsafe(no_mangle)]
extern "C" fn dt_query_event(event: u64, done: *mut c_int) -> c_int {
    guard(|| {
        let is_done = events::get(event)?.query()?;
        // SAFETY: the caller's place.
        unsafe { put(done, is_done.into()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dt_synchronize_event(event: u64) -> c_int {
    guard(|| Ok(events::get(event)?.synchronize()?))
}

#[unsafe(no_mangle)]
extern "C" fn dt_elapsed(start: u64, end: u64, milliseconds: *mut f64) -> c_int {
    guard(|| {
        let elapsed = events::get(end)?.elapsed_since(&events::get(start)?)?;
        // SAFETY: the caller's place.
        unsafe { put(milliseconds, elapsed.as_secs_f64() * 1e3) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dt_destroy_event(event: u64) {
    guard(|| {
        events::remove(event);
        Ok(())
    });
}

/// `dt_value` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
struct RawValue {
    kind: i32,
    dtype: i32,
    device: i32,
    len: usize,
    data: *const u8,
    sizes: *const i64,
    strides: *const i64,
    values: *const Self,
    number: f64,
    integer: i64,
}

/// `dt_call` of the header.
#[repr(C)]
struct RawCall {
    arguments: *const RawValue,
    argument_count: usize,
    context: *mut c_void,
    empty: extern "C" fn(
        *mut c_void,
        c_int,
        c_int,
        *const i64,
        *const i64,
        usize,
        c_int,
        *mut RawValue,
    ) -> c_int,
    seed: extern "C" fn(*mut c_void, *mut u64) -> c_int,
}

const NONE: i32 = 0;
const TENSOR: i32 = 1;
const FLOAT: i32 = 2;
const INT: i32 = 3;
const BOOL: i32 = 4;
const INTS: i32 = 5;
const TEXT: i32 = 6;
const TENSORS: i32 = 7;

/// Elements of C++, which may be none at all.
///
/// # Safety
///
/// There are `len` elements, which live and stay as they are for `'a`.
unsafe fn elements<'a, T>(start: *const T, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    // SAFETY: see above.
    unsafe { slice::from_raw_parts(start, len) }
}

impl RawValue {
    /// # Safety
    ///
    /// What the value points to lives and stays as it is for `'a`.
    unsafe fn tensor<'a>(&self) -> Option<Tensor<'a>> {
        if self.kind != TENSOR {
            return None;
        }
        // SAFETY: see above.
        let (sizes, strides) = unsafe { (elements(self.sizes, self.len), elements(self.strides, self.len)) };
        let dtype = self.dtype;
        let device = self.device;
        let data = self.data.addr();
        Some(Tensor { dtype, device, data, sizes, strides })
    }

    /// The value, whose lists of tensors are in `lists`, one after the other.
    ///
    /// # Safety
    ///
    /// What the value points to lives and stays as it is for `'a`.
    unsafe fn value<'a>(&self, lists: &mut &'a [Option<Tensor<'a>>]) -> Value<'a> {
        match self.kind {
            NONE => Value::None,
            // SAFETY: see above.
            TENSOR => unsafe { self.tensor() }.map_or(Value::None, Value::Tensor),
            FLOAT => Value::Number(Scalar::Float(self.number)),
            INT => Value::Number(Scalar::Int(self.integer)),
            BOOL => Value::Number(Scalar::Bool(self.integer != 0)),
            // SAFETY: see above.
            INTS => Value::Ints(unsafe { elements(self.sizes, self.len) }),
            // SAFETY: see above.
            TEXT => {
                // SAFETY: see above.
                let text = unsafe { elements(self.data, self.len) };
                str::from_utf8(text).map_or(Value::Other, Value::Text)
            }
            TENSORS => {
                let (list, rest) = lists.split_at(self.len);
                *lists = rest;
                Value::Tensors(list)
            }
            _ => Value::Other,
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn dt_operator(number: usize, len: *mut usize) -> *const c_char {
    let Some((name, _)) = TABLE.get(number) else { return ptr::null() };
    // SAFETY: the caller's place.
    unsafe { put(len, name.len()) };
    name.as_ptr().cast()
}

#[unsafe(no_mangle)]
extern "C" fn dt_has_kernels(device: c_int) -> c_int {
    catch_unwind(|| has_kernels(index(device))).unwrap_or(true).into()
}

/// Calls `compute` with a call of C++, and then `count` with the type of its first tensor and the nanoseconds
/// that it took.
///
/// # Safety
///
/// The call and its arguments live until this returns.
unsafe fn run(
    call: *const RawCall,
    compute: impl FnOnce(&Call<'_>) -> Result<(), Failure>,
    count: impl FnOnce(i32, u64),
) -> c_int {
    guard(|| {
        let begun = Instant::now();
        // SAFETY: see above.
        let (call, arguments) = unsafe { (&*call, elements((*call).arguments, (*call).argument_count)) };
        let mut tensors: SmallVec<[Option<Tensor<'_>>; 4]> = SmallVec::new();
        for argument in arguments.iter().filter(|argument| argument.kind == TENSORS) {
            // SAFETY: as above.
            tensors.extend(unsafe {
                elements(argument.values, argument.len).iter().map(|value| value.tensor())
            });
        }
        let mut lists: &[Option<Tensor<'_>>] = &tensors;
        // SAFETY: what an argument points to lives until this returns.
        let value = |argument: &RawValue| unsafe { argument.value(&mut lists) };
        let values: SmallVec<[Value<'_>; 8]> = arguments.iter().map(value).collect();
        check_kernels(&values)?;
        let dtype = values.iter().find_map(|value| match value {
            Value::Tensor(tensor) => Some(tensor.dtype),
            _ => None,
        });
        let empty = |device: i32, dtype: i32, sizes: &[i64], strides: Option<&[i64]>, result: bool| {
            let mut made = RawValue {
                kind: NONE,
                dtype: 0,
                device: 0,
                len: 0,
                data: ptr::null(),
                sizes: ptr::null(),
                strides: ptr::null(),
                values: ptr::null(),
                number: 0.0,
                integer: 0,
            };
            let start = sizes.as_ptr();
            let rank = sizes.len();
            let strides = strides.map_or(ptr::null(), <[i64]>::as_ptr);
            let code =
                (call.empty)(call.context, device, dtype, start, strides, rank, result.into(), &raw mut made);
            match code {
                // SAFETY: what was made lives as long as the call.
                0 => Ok(unsafe { made.tensor() }),
                // The shim has the exception.
                _ => Err(Failure::new("a tensor could not be made")),
            }
        };
        let seed = || {
            let mut drawn = 0;
            match (call.seed)(call.context, &raw mut drawn) {
                0 => Ok(drawn),
                // The shim has the exception.
                _ => Err(Failure::new("a seed could not be drawn")),
            }
        };
        compute(&Call { values: &values, empty: &empty, seed: &seed })?;
        let nanoseconds = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        count(dtype.unwrap_or(-1), nanoseconds);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dt_run(number: usize, call: *const RawCall) -> c_int {
    let compute = |call: &Call<'_>| match TABLE.get(number) {
        Some((_, compute)) => compute(call),
        None => Err(Failure::declined("no operator has this number")),
    };
    // SAFETY: the caller's call, and its arguments, which live until this returns.
    unsafe { run(call, compute, |dtype, nanoseconds| counts::add_native(number, dtype, nanoseconds)) }
}

#[unsafe(no_mangle)]
extern "C" fn dt_expression(text: *const u8, len: usize, expression: *mut *const Compiled) -> c_int {
    guard(|| {
        // SAFETY: the caller's text.
        let text = str::from_utf8(unsafe { elements(text, len) }).map_err(Failure::new)?;
        let compiled = Compiled::of(text)?;
        // SAFETY: the caller's place.
        unsafe { put(expression, compiled) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dt_run_expression(expression: *const Compiled, call: *const RawCall) -> c_int {
    // SAFETY: it is from `dt_expression`, and stays for the life of the program.
    let expression = unsafe { &*expression };
    // SAFETY: the caller's call, and its arguments, which live until this returns.
    unsafe { run(call, |call| expression.run(call), |_, nanoseconds| expression.count(nanoseconds)) }
}

#[unsafe(no_mangle)]
extern "C" fn dt_count_fallback(name: *const c_char, dtype: c_int, nanoseconds: u64, bytes: u64) {
    guard(|| {
        // SAFETY: the caller's text.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        counts::add_fallback(&name, dtype, nanoseconds, bytes);
        Ok(())
    });
}

#[unsafe(no_mangle)]
extern "C" fn dt_counts() -> *const c_char {
    as_last(&counts::lines())
}

#[unsafe(no_mangle)]
extern "C" fn dt_reset_counts() {
    counts::reset();
}

#[unsafe(no_mangle)]
extern "C" fn dt_fallback_policy(policy: *mut c_int) -> c_int {
    guard(|| {
        let chosen = counts::policy().as_ref().map_err(Failure::new)?;
        // SAFETY: the caller's place.
        unsafe { put(policy, *chosen as c_int) };
        Ok(())
    })
}

/// `dt_activity` of the header.
#[repr(C)]
struct RawActivity {
    kind: i32,
    device: i32,
    name: *const c_char,
    len: usize,
    stream: u64,
    stream_name: *const c_char,
    stream_len: usize,
    thread: i64,
    operator: u64,
    bytes: u64,
    begin: i64,
    end: i64,
    error: i64,
}

#[unsafe(no_mangle)]
extern "C" fn dt_begin_recording(recording: *mut *mut Recording) -> c_int {
    guard(|| {
        let begun = Recording::begin()?;
        // SAFETY: the caller's place.
        unsafe { put(recording, Box::into_raw(Box::new(begun))) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dt_end_recording(
    recording: *mut Recording,
    context: *mut c_void,
    each: extern "C" fn(*mut c_void, *const RawActivity),
    problems: *mut *const c_char,
) -> c_int {
    guard(|| {
        // SAFETY: a recording of `dt_begin_recording`, which the caller gives back.
        let (rows, found) = unsafe { Box::from_raw(recording) }.end();
        for row in rows {
            let raw = RawActivity {
                kind: row.kind as i32,
                device: row.device,
                name: row.name.as_ptr().cast(),
                len: row.name.len(),
                stream: row.stream,
                stream_name: row.stream_name.as_ptr().cast(),
                stream_len: row.stream_name.len(),
                thread: row.thread,
                operator: row.operator,
                bytes: row.bytes,
                begin: row.begin,
                end: row.end,
                error: row.error,
            };
            each(context, &raw const raw);
        }
        let text = if found.is_empty() { ptr::null() } else { as_last(&found.join("; ")) };
        // SAFETY: the caller's place.
        unsafe { put(problems, text) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dt_enter_operator(number: u64, thread: i64) {
    guard(|| {
        activity::enter_operator(number, thread);
        Ok(())
    });
}

#[unsafe(no_mangle)]
extern "C" fn dt_leave_operator() {
    guard(|| {
        activity::leave_operator();
        Ok(())
    });
}

#[unsafe(no_mangle)]
extern "C" fn dt_len_of(pointer: *const c_void, len: *mut usize) -> c_int {
    guard(|| {
        let place = memory::find(pointer.addr())?;
        // SAFETY: the caller's place.
        unsafe { put(len, place.buffer.len()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dt_is_computing() -> c_int {
    streams::are_unused().into()
}
