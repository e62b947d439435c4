//! A library that stands in for OpenCL's loader, so that tests see what no driver does to order: several
//! platforms, one of them broken, devices that are too old, and calls and commands that fail.
//!
//! It is compiled by the tests that need it, and named to the backend by `OPENCL_DYLIB_PATH`. Commands are
//! done when they are enqueued, unless they are ordered to take a while. The platforms are, in this order,
//! `Zeta` with one device, `Broken`, which does not list its devices, and `Alpha` with two; and if they are
//! ordered `Nothing`, which has none, and `Empty`, whose one is not there. What goes wrong is ordered by
//! `standin_order`, at any time:
//!
//! - `platforms`, `Alpha,Broken`: these alone, by name.
//! - `mended`: the device of `Empty` is there.
//! - `version`, `OpenCL 1.1`: the version of all devices.
//! - `refuses`, `clFinish:-36`: what these functions return.
//! - `fails`, `clEnqueueWriteBuffer:-5`: what becomes of these commands.
//! - `finishes`, `tells`: `clFinish` returns the failures of the queue's commands too, one in each call, as
//!   NVIDIA's driver may.
//! - `keeps`, `clFinish,blocking,commands`: a queue keeps the failure of a command, as with Rusticl.
//!   `clFinish` returns it, commands that block are refused with it, and later commands fail with it. Without
//!   `commands` the next command that does not block ends that.
//! - `early`, `clFinish`: it does not wait for commands that take a while, as with Rusticl of Mesa 22.3
//!   behind `clFlush`.
//! - `hides`, `failures`: a command that has failed has the status of a success, as with Intel's driver for
//!   processors. `clWaitForEvents` fails, and callbacks get the failure.
//! - `delays`, `clEnqueueReadBuffer:50`: after how many milliseconds these commands are done, on a thread,
//!   one after another; the call of another command waits for them. For `clSetEventCallback`, how much later
//!   it calls back.
//! - `holds`, `clSetEventCallback`: no event calls back until the order is taken back.
//! - `locks`, `Alpha 1`: the events of these devices call back under a lock of their driver, as with Rusticl
//!   of Mesa 22.3. Functions that look at an event of the device take it too.
//! - `stalls`, `Alpha 1`: these drivers stay in the callback, with their lock, until the order is taken back.
//! - `releases`, `clSetEventCallback`: an event calls back, on a thread and with the status of a success,
//!   while its first reference is released.
//! - `unavailable`: no device can be used now.
//! - `queues`, `0`: what their queues can do, 2 being times.
//! - `resolution`, `0`: of their timers, in nanoseconds.
//! - `times`, `none`: the times of each event are 0, 1, 2 and 3.
//! - `types`, `15`: the types of all devices, as a set of bits.
//! - `reports`: a context reports something when it is made.
//!
//! Compiled with `without = "clEnqueueFillBuffer"` it does not have this function, as loaders of OpenCL 1.1;
//! so with `clCreateCommandQueueWithProperties`, which those before OpenCL 2.0 do not have.

#![allow(non_snake_case)]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

type Info = unsafe extern "system" fn(*const c_char, *const c_void, usize, *mut c_void);
type Callback = unsafe extern "system" fn(*mut c_void, i32, *mut c_void);

const INVALID_VALUE: i32 = -30;

/// The callbacks of events, by their addresses, each with its data, that are called when the event is
/// released.
static CALLBACKS: Mutex<BTreeMap<usize, (Callback, usize)>> = Mutex::new(BTreeMap::new());

struct Device {
    name: &'static str,
    extensions: &'static str,
    /// By the numbers of `clGetDeviceInfo`.
    facts: &'static [(u32, &'static [u8])],
}

struct Platform {
    name: &'static str,
    devices: &'static [Device],
}

static PLATFORMS: [Platform; 5] = [
    Platform { name: "Nothing", devices: &[] },
    Platform { name: "Empty", devices: &[Device { name: "Empty 1", extensions: "", facts: &[] }] },
    Platform {
        name: "Zeta",
        devices: &[Device {
            name: "Zeta 1",
            extensions: "cl_amd_device_attribute_query cl_khr_priority_hints",
            facts: &[(0x4037, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x3d, 0, 0])],
        }],
    },
    Platform { name: "Broken", devices: &[] },
    Platform {
        name: "Alpha",
        devices: &[
            Device {
                name: "Alpha 1",
                extensions: "cl_khr_device_uuid cl_khr_pci_bus_info",
                facts: &[
                    (0x106a, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]),
                    (0x410f, &[0, 0, 0, 0, 0x3b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
                    (0x100c, &[0xdc, 5, 0, 0]),
                    (0x101e, &[0, 0, 4, 0, 0, 0, 0, 0]),
                    (0x1019, &[0, 4, 0, 0]),
                ],
            },
            Device {
                name: "Alpha 2",
                extensions: "cl_nv_device_attribute_query",
                facts: &[
                    (0x4008, &[0x3c, 0, 0, 0]),
                    (0x4009, &[0, 0, 0, 0]),
                    // It does not know its clock, its cache and its alignment.
                    (0x100c, &[0, 0, 0, 0]),
                    (0x101e, &[0, 0, 0, 0, 0, 0, 0, 0]),
                    (0x1019, &[0, 0, 0, 0]),
                ],
            },
        ],
    },
];

static ORDERS: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// Orders something, or takes the order back, with an empty value.
#[unsafe(no_mangle)]
unsafe extern "C" fn standin_order(what: *const c_char, value: *const c_char) {
    let [what, value] =
        [what, value].map(|text| unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned());
    ORDERS.lock().unwrap().insert(what, value);
}

fn ordered(what: &str) -> Option<String> {
    ORDERS.lock().unwrap().get(what).cloned().filter(|value| !value.is_empty())
}

/// What an order says of a function.
fn status(what: &str, function: &str) -> i32 {
    let statuses = ordered(what).unwrap_or_default();
    let status = statuses.split(',').find_map(|order| {
        let (name, status) = order.split_once(':')?;
        (name == function).then(|| status.parse().unwrap())
    });
    status.unwrap_or(0)
}

fn refusal(function: &str) -> i32 {
    status("refuses", function)
}

/// Whether an order names this.
fn names(what: &str, name: &str) -> bool {
    ordered(what).is_some_and(|names| names.split(',').any(|named| named == name))
}

fn platforms() -> Vec<&'static Platform> {
    let names = ordered("platforms").unwrap_or_else(|| "Zeta,Broken,Alpha".into());
    PLATFORMS.iter().filter(|platform| names.split(',').any(|name| name == platform.name)).collect()
}

unsafe fn answer(value: &[u8], size: usize, to: *mut c_void, size_out: *mut usize) -> i32 {
    unsafe {
        if !size_out.is_null() {
            *size_out = value.len();
        }
        if to.is_null() {
            return 0;
        }
        if size < value.len() {
            return INVALID_VALUE;
        }
        to.cast::<u8>().copy_from_nonoverlapping(value.as_ptr(), value.len());
    }
    0
}

fn text(value: &str) -> Vec<u8> {
    [value.as_bytes(), &[0]].concat()
}

#[unsafe(no_mangle)]
unsafe extern "system" fn clGetPlatformIDs(count: u32, to: *mut *const c_void, count_out: *mut u32) -> i32 {
    let found = platforms();
    if found.is_empty() {
        return -1001;
    }
    unsafe {
        if !count_out.is_null() {
            *count_out = found.len() as u32;
        }
        if !to.is_null() {
            for (place, platform) in found.into_iter().take(count as usize).enumerate() {
                *to.add(place) = ptr::from_ref(platform).cast();
            }
        }
    }
    refusal("clGetPlatformIDs")
}

#[unsafe(no_mangle)]
unsafe extern "system" fn clGetPlatformInfo(
    platform: *const Platform,
    what: u32,
    size: usize,
    to: *mut c_void,
    size_out: *mut usize,
) -> i32 {
    let value = match what {
        0x0902 => unsafe { (*platform).name },
        _ => "a stand-in",
    };
    unsafe { answer(&text(value), size, to, size_out) }
}

#[unsafe(no_mangle)]
unsafe extern "system" fn clGetDeviceIDs(
    platform: *const Platform,
    _kinds: u64,
    count: u32,
    to: *mut *const c_void,
    count_out: *mut u32,
) -> i32 {
    // Like PoCL: the first query takes a while, and queries meanwhile find no devices.
    static QUESTIONS: AtomicUsize = AtomicUsize::new(0);
    static ANSWERED: AtomicBool = AtomicBool::new(false);
    if QUESTIONS.fetch_add(1, Ordering::SeqCst) == 0 {
        thread::sleep(Duration::from_millis(50));
        ANSWERED.store(true, Ordering::SeqCst);
    } else if !ANSWERED.load(Ordering::SeqCst) {
        unsafe { *count_out = 0 };
        return 0;
    }
    let platform = unsafe { &*platform };
    if platform.name == "Broken" {
        return -9999;
    }
    let devices = match platform.name {
        // This is how a driver should report it; PoCL reports it the other way.
        "Nothing" => return -1,
        "Empty" if ordered("mended").is_none() => &[],
        _ => platform.devices,
    };
    unsafe {
        if !count_out.is_null() {
            *count_out = devices.len() as u32;
        }
        if !to.is_null() {
            for (place, device) in devices.iter().take(count as usize).enumerate() {
                *to.add(place) = ptr::from_ref(device).cast();
            }
        }
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "system" fn clGetDeviceInfo(
    device: *const Device,
    what: u32,
    size: usize,
    to: *mut c_void,
    size_out: *mut usize,
) -> i32 {
    let device = unsafe { &*device };
    let value = match what {
        0x1000 => ordered("types").map_or(4_u64, |bits| bits.parse().unwrap()).to_ne_bytes().into(),
        0x1025 => ordered("resolution").map_or(1_usize, |ns| ns.parse().unwrap()).to_ne_bytes().into(),
        0x1010 => (1_u64 << 28).to_ne_bytes().into(),
        0x101f => (1_u64 << 30).to_ne_bytes().into(),
        0x1027 => u32::from(ordered("unavailable").is_none()).to_ne_bytes().into(),
        0x102a => ordered("queues").map_or(2_u64, |bits| bits.parse().unwrap()).to_ne_bytes().into(),
        0x102b => text(device.name),
        0x102c => text("nobody"),
        0x102d => text("7"),
        0x102f => text(&ordered("version").unwrap_or_else(|| "OpenCL 1.2".into())),
        0x1030 => text(device.extensions),
        _ => match device.facts.iter().find(|(number, _)| *number == what) {
            Some((_, value)) => value.to_vec(),
            None => return INVALID_VALUE,
        },
    };
    unsafe { answer(&value, size, to, size_out) }
}

unsafe fn made(function: &str, status: *mut i32, object: impl FnOnce() -> *mut c_void) -> *mut c_void {
    let refusal = refusal(function);
    unsafe { *status = refusal };
    if refusal == 0 { object() } else { ptr::null_mut() }
}

/// Objects that were made and not released.
static LIVE: AtomicUsize = AtomicUsize::new(0);

#[unsafe(no_mangle)]
extern "C" fn standin_live() -> usize {
    LIVE.load(Ordering::SeqCst)
}

fn boxed<T>(value: T) -> *mut c_void {
    LIVE.fetch_add(1, Ordering::SeqCst);
    Box::into_raw(Box::new(value)).cast()
}

unsafe fn unboxed<T>(object: *mut T) {
    LIVE.fetch_sub(1, Ordering::SeqCst);
    drop(unsafe { Box::from_raw(object) });
}

/// Contexts: an address, and that they are there.
#[unsafe(no_mangle)]
unsafe extern "system" fn clCreateContext(
    _properties: *const isize,
    _count: u32,
    _devices: *const *const Device,
    notify: Option<Info>,
    user_data: *mut c_void,
    status: *mut i32,
) -> *mut c_void {
    if let (Some(notify), Some(_)) = (notify, ordered("reports")) {
        unsafe { notify(c"a report".as_ptr(), ptr::null(), 0, user_data) };
    }
    unsafe { made("clCreateContext", status, || boxed(0_u64)) }
}

#[unsafe(no_mangle)]
unsafe extern "system" fn clReleaseContext(context: *mut u64) -> i32 {
    unsafe { unboxed(context) };
    refusal("clReleaseContext")
}

#[unsafe(no_mangle)]
unsafe extern "system" fn clCreateCommandQueue(
    _context: *mut c_void,
    device: *const Device,
    _properties: u64,
    status: *mut i32,
) -> *mut c_void {
    unsafe { made("clCreateCommandQueue", status, || boxed(Queue::new(device))) }
}

struct Queue {
    device: &'static Device,
    /// The failure of its last command that did not block, or 0.
    failure: AtomicI32,
    /// The failures of all its commands.
    failures: Mutex<Vec<i32>>,
}

impl Queue {
    fn new(device: *const Device) -> Self {
        Self { device: unsafe { &*device }, failure: AtomicI32::new(0), failures: Mutex::default() }
    }

    /// The failure that this function returns in place of its own.
    fn kept(&self, function: &str) -> i32 {
        if names("keeps", function) { self.failure.load(Ordering::SeqCst) } else { 0 }
    }
}

/// The properties of the queues that were made with some, as lists of numbers.
static QUEUES: Mutex<Vec<Vec<u64>>> = Mutex::new(Vec::new());

/// Whether a queue was made with this property.
#[unsafe(no_mangle)]
extern "C" fn standin_queue_with(property: u64, value: u64) -> bool {
    QUEUES.lock().unwrap().iter().any(|list| list.chunks(2).any(|pair| pair == [property, value]))
}

#[cfg(not(without = "clCreateCommandQueueWithProperties"))]
#[unsafe(no_mangle)]
unsafe extern "system" fn clCreateCommandQueueWithProperties(
    _context: *mut c_void,
    device: *const Device,
    properties: *const u64,
    status: *mut i32,
) -> *mut c_void {
    let list = (0..).map(|place| unsafe { *properties.add(place) }).take_while(|&number| number != 0);
    QUEUES.lock().unwrap().push(list.collect());
    unsafe { made("clCreateCommandQueueWithProperties", status, || boxed(Queue::new(device))) }
}

#[unsafe(no_mangle)]
unsafe extern "system" fn clReleaseCommandQueue(queue: *mut Queue) -> i32 {
    unsafe { unboxed(queue) };
    refusal("clReleaseCommandQueue")
}

#[unsafe(no_mangle)]
unsafe extern "system" fn clFlush(_queue: *mut c_void) -> i32 {
    FLUSHES.fetch_add(1, Ordering::SeqCst);
    refusal("clFlush")
}

static FLUSHES: AtomicUsize = AtomicUsize::new(0);

/// How many times a queue was flushed.
#[unsafe(no_mangle)]
extern "C" fn standin_flushes() -> usize {
    FLUSHES.load(Ordering::SeqCst)
}

#[unsafe(no_mangle)]
unsafe extern "system" fn clFinish(queue: *mut Queue) -> i32 {
    if ordered("early").is_none() {
        wait_for_delayed();
    }
    let queue = unsafe { &*queue };
    let kept = queue.kept("clFinish");
    if kept != 0 {
        return kept;
    }
    let failure = queue.failures.lock().unwrap().pop();
    match failure.filter(|_| ordered("finishes").is_some()) {
        Some(status) => status,
        None => refusal("clFinish"),
    }
}

type Buffer = Vec<u8>;

#[unsafe(no_mangle)]
unsafe extern "system" fn clCreateBuffer(
    _context: *mut c_void,
    _flags: u64,
    len: usize,
    _host: *mut c_void,
    status: *mut i32,
) -> *mut c_void {
    // Not zeros, which OpenCL does not promise.
    unsafe { made("clCreateBuffer", status, || boxed::<Buffer>(vec![0xaa; len])) }
}

#[unsafe(no_mangle)]
unsafe extern "system" fn clReleaseMemObject(buffer: *mut Buffer) -> i32 {
    unsafe { unboxed(buffer) };
    refusal("clReleaseMemObject")
}

struct Event {
    device: &'static Device,
    /// 1 is running.
    status: AtomicI32,
    time: u64,
    references: AtomicI32,
}

impl Device {
    /// The lock of its driver, if that calls back under it.
    fn lock(&self) -> Option<MutexGuard<'static, ()>> {
        static LOCKS: Mutex<BTreeMap<&str, &Mutex<()>>> = Mutex::new(BTreeMap::new());
        if !names("locks", self.name) {
            return None;
        }
        let lock = *LOCKS.lock().unwrap().entry(self.name).or_insert_with(|| Box::leak(Box::default()));
        Some(lock.lock().unwrap())
    }

    unsafe fn call_back(&self, callback: Callback, event: *mut Event, status: i32, user_data: *mut c_void) {
        let _lock = self.lock();
        unsafe { callback(event.cast(), status, user_data) };
        wait_until(|| !names("stalls", self.name));
    }
}

/// Nanoseconds since a second before the first event.
fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    1_000_000_000 + START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// How many commands there were that take a while, and how many of them are done, one after another.
static STARTED: AtomicUsize = AtomicUsize::new(0);
static FINISHED: AtomicUsize = AtomicUsize::new(0);

#[unsafe(no_mangle)]
extern "C" fn standin_delayed() -> usize {
    STARTED.load(Ordering::SeqCst) - FINISHED.load(Ordering::SeqCst)
}

fn wait_for_delayed() {
    wait_until(|| standin_delayed() == 0);
}

fn wait_until(done: impl Fn() -> bool) {
    while !done() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Pointers that a thread may have.
struct Sent<T>(T);

unsafe impl<T> Send for Sent<T> {}

impl<T> Sent<T> {
    fn get(self) -> T {
        self.0
    }
}

fn delay(function: &str) -> Duration {
    Duration::from_millis(status("delays", function) as u64)
}

/// Does a command at once, unless it is to fail or to take a while, and makes its event.
unsafe fn command(
    queue: *const Queue,
    blocking: u32,
    function: &str,
    event: *mut *mut c_void,
    run: impl FnOnce() + 'static,
) -> i32 {
    let queue = unsafe { &*queue };
    let kept = if blocking == 0 { 0 } else { queue.kept("blocking") };
    for refusal in [refusal(function), kept] {
        if refusal != 0 {
            return refusal;
        }
    }
    let (status, delay) = (status("fails", function), delay(function));
    let status = if status == 0 { queue.kept("commands") } else { status };
    if status != 0 {
        queue.failures.lock().unwrap().push(status);
    }
    if status != 0 || blocking == 0 {
        queue.failure.store(status, Ordering::SeqCst);
    }
    // Maps have their own queue.
    if delay.is_zero() && !function.contains("Map") {
        wait_for_delayed();
    }
    let run = move || {
        if status == 0 {
            run();
        }
    };
    let made = |status, references| {
        boxed(Event {
            device: queue.device,
            status: AtomicI32::new(status),
            time: now(),
            references: AtomicI32::new(references),
        })
    };
    if delay.is_zero() {
        run();
        unsafe { *event = made(status, 1) };
        return 0;
    }
    // One reference is the thread's.
    let made = made(1, 2);
    unsafe { *event = made };
    let place = STARTED.fetch_add(1, Ordering::SeqCst);
    let sent = Sent((run, made.cast::<Event>()));
    thread::spawn(move || {
        let (run, event) = sent.get();
        wait_until(|| FINISHED.load(Ordering::SeqCst) == place);
        thread::sleep(delay);
        run();
        unsafe {
            (*event).status.store(status, Ordering::SeqCst);
            clReleaseEvent(event);
        }
        FINISHED.fetch_add(1, Ordering::SeqCst);
    });
    0
}

#[cfg(not(without = "clEnqueueFillBuffer"))]
#[unsafe(no_mangle)]
unsafe extern "system" fn clEnqueueFillBuffer(
    queue: *const Queue,
    buffer: *mut Buffer,
    pattern: *const u8,
    pattern_len: usize,
    offset: usize,
    len: usize,
    _count: u32,
    _events: *const *mut c_void,
    event: *mut *mut c_void,
) -> i32 {
    unsafe {
        let pattern = slice::from_raw_parts(pattern, pattern_len).to_vec();
        command(queue, 0, "clEnqueueFillBuffer", event, move || {
            let bytes = &mut (&mut *buffer)[offset..offset + len];
            bytes.chunks_mut(pattern_len).for_each(|chunk| chunk.copy_from_slice(&pattern));
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "system" fn clEnqueueWriteBuffer(
    queue: *const Queue,
    buffer: *mut Buffer,
    blocking: u32,
    offset: usize,
    len: usize,
    from: *const u8,
    _count: u32,
    _events: *const *mut c_void,
    event: *mut *mut c_void,
) -> i32 {
    unsafe {
        command(queue, blocking, "clEnqueueWriteBuffer", event, move || {
            (&mut *buffer)[offset..offset + len].copy_from_slice(slice::from_raw_parts(from, len));
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "system" fn clEnqueueReadBuffer(
    queue: *const Queue,
    buffer: *mut Buffer,
    blocking: u32,
    offset: usize,
    len: usize,
    to: *mut u8,
    _count: u32,
    _events: *const *mut c_void,
    event: *mut *mut c_void,
) -> i32 {
    unsafe {
        command(queue, blocking, "clEnqueueReadBuffer", event, move || {
            slice::from_raw_parts_mut(to, len).copy_from_slice(&(&*buffer)[offset..offset + len]);
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "system" fn clEnqueueCopyBuffer(
    queue: *const Queue,
    from: *mut Buffer,
    to: *mut Buffer,
    from_offset: usize,
    to_offset: usize,
    len: usize,
    _count: u32,
    _events: *const *mut c_void,
    event: *mut *mut c_void,
) -> i32 {
    unsafe {
        command(queue, 0, "clEnqueueCopyBuffer", event, move || {
            let bytes = (&*from)[from_offset..from_offset + len].to_vec();
            (&mut *to)[to_offset..to_offset + len].copy_from_slice(&bytes);
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "system" fn clEnqueueMarkerWithWaitList(
    queue: *const Queue,
    _count: u32,
    _events: *const *mut c_void,
    event: *mut *mut c_void,
) -> i32 {
    unsafe { command(queue, 0, "clEnqueueMarkerWithWaitList", event, || ()) }
}

#[unsafe(no_mangle)]
unsafe extern "system" fn clEnqueueBarrierWithWaitList(
    queue: *const Queue,
    _count: u32,
    _events: *const *mut c_void,
    event: *mut *mut c_void,
) -> i32 {
    unsafe { command(queue, 0, "clEnqueueBarrierWithWaitList", event, || ()) }
}

#[unsafe(no_mangle)]
unsafe extern "system" fn clEnqueueMapBuffer(
    queue: *const Queue,
    buffer: *mut Buffer,
    blocking: u32,
    _access: u64,
    offset: usize,
    _len: usize,
    _count: u32,
    _events: *const *mut c_void,
    event: *mut *mut c_void,
    status: *mut i32,
) -> *mut c_void {
    unsafe {
        *status = command(queue, blocking, "clEnqueueMapBuffer", event, || ());
        (&mut *buffer).as_mut_ptr().add(offset).cast()
    }
}

#[unsafe(no_mangle)]
unsafe extern "system" fn clEnqueueUnmapMemObject(
    queue: *const Queue,
    _buffer: *mut Buffer,
    _start: *mut c_void,
    _count: u32,
    _events: *const *mut c_void,
    event: *mut *mut c_void,
) -> i32 {
    unsafe { command(queue, 0, "clEnqueueUnmapMemObject", event, || ()) }
}

#[unsafe(no_mangle)]
unsafe extern "system" fn clGetEventProfilingInfo(
    event: *const Event,
    what: u32,
    size: usize,
    to: *mut c_void,
    size_out: *mut usize,
) -> i32 {
    let time = match ordered("times") {
        Some(_) => u64::from(what - 0x1280),
        None => unsafe { (*event).time },
    };
    unsafe { answer(&time.to_ne_bytes(), size, to, size_out) }
}

#[unsafe(no_mangle)]
unsafe extern "system" fn clGetEventInfo(
    event: *const Event,
    _what: u32,
    size: usize,
    to: *mut c_void,
    size_out: *mut usize,
) -> i32 {
    let _lock = unsafe { (*event).device.lock() };
    let status = unsafe { (*event).status.load(Ordering::SeqCst) };
    let status = if ordered("hides").is_some() { status.max(0) } else { status };
    unsafe { answer(&status.to_ne_bytes(), size, to, size_out) }
}

#[unsafe(no_mangle)]
unsafe extern "system" fn clWaitForEvents(count: u32, events: *const *const Event) -> i32 {
    let refusal = refusal("clWaitForEvents");
    if refusal != 0 {
        return refusal;
    }
    let events = unsafe { slice::from_raw_parts(events, count as usize) };
    let status = |event: &*const Event| unsafe { (**event).status.load(Ordering::SeqCst) };
    wait_until(|| events.iter().all(|event| status(event) <= 0));
    let _lock = events.first().and_then(|event| unsafe { (**event).device.lock() });
    if events.iter().any(|event| status(event) < 0) { -14 } else { 0 }
}

#[unsafe(no_mangle)]
unsafe extern "system" fn clRetainEvent(event: *const Event) -> i32 {
    unsafe { (*event).references.fetch_add(1, Ordering::SeqCst) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "system" fn clReleaseEvent(event: *mut Event) -> i32 {
    if let Some((callback, user_data)) = CALLBACKS.lock().unwrap().remove(&event.addr()) {
        let sent = Sent((callback, event, user_data as *mut c_void));
        let called = thread::spawn(move || unsafe {
            let (callback, event, user_data) = sent.get();
            (*event).device.call_back(callback, event, 0, user_data);
        });
        called.join().unwrap();
    }
    if unsafe { (*event).references.fetch_sub(1, Ordering::SeqCst) } == 1 {
        unsafe { unboxed(event) };
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "system" fn clSetEventCallback(
    event: *mut Event,
    _status: i32,
    callback: Callback,
    user_data: *mut c_void,
) -> i32 {
    let refusal = refusal("clSetEventCallback");
    if refusal == 0 && ordered("releases").is_some() {
        CALLBACKS.lock().unwrap().insert(event.addr(), (callback, user_data as usize));
    } else if refusal == 0 {
        let (status, device) = unsafe { ((*event).status.load(Ordering::SeqCst), (*event).device) };
        if status > 0 {
            unsafe { clRetainEvent(event) };
        }
        let (sent, delay) = (Sent((event, user_data)), delay("clSetEventCallback"));
        // On its own thread, as drivers do.
        thread::spawn(move || unsafe {
            let (event, user_data) = sent.get();
            let mut outcome = status;
            if status > 0 {
                wait_until(|| (*event).status.load(Ordering::SeqCst) <= 0);
                outcome = (*event).status.load(Ordering::SeqCst);
                clReleaseEvent(event);
            }
            thread::sleep(delay);
            wait_until(|| ordered("holds").is_none());
            device.call_back(callback, event, outcome, user_data);
        });
    }
    refusal
}
