//! A simulation of cuBLASLt, for tests on machines without a GPU. **It is not NVIDIA's code**: it was written
//! from the reference of cuBLASLt.
//!
//! It is a library with cuBLASLt's file name and the functions that the kernel set calls. A product is a
//! launch on the simulated driver, of a kernel that is this library itself, so that it is in the order of its
//! stream and its memory is checked. The sums are exact but for their rounding.
//!
//! It is **strict**: what the reference forbids or leaves undefined ends the process with a message. It
//! refuses one thing that the reference allows, so that tests see it: `f64` with a number for each row. With
//! `SIMULATED_CUBLASLT_FAIL=1` it can be used on no device.

#![allow(non_snake_case, reason = "the names are cuBLASLt's")]

use std::env;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::fs;
use std::process;
use std::ptr;
use std::slice;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use half::{bf16, f16};
use libloading::Library;

const SUCCESS: c_int = 0;
const NOT_INITIALIZED: c_int = 1;
const INVALID_VALUE: c_int = 7;
const NOT_SUPPORTED: c_int = 15;
const EXECUTION_FAILED: c_int = 13;

const F32: c_int = 0;
const F64: c_int = 1;
const F16: c_int = 2;
const BF16: c_int = 14;

const COMPUTE_32F: c_int = 68;
const COMPUTE_64F: c_int = 70;
const COMPUTE_TF32: c_int = 77;

/// The bytes beside its arrays that each product is said to need, if it may have them.
const WORKSPACE: usize = 4096;

/// What an image begins with: see `tests/simulated_driver/kernel.rs` of device-cuda.
const MAGIC: [u8; 8] = *b"\x7fSIMCUD\0";

/// How many products were enqueued, for tests.
static PRODUCTS: AtomicU64 = AtomicU64::new(0);

/// How many handles and descriptors were made and not destroyed.
static ALIVE: AtomicU64 = AtomicU64::new(0);

#[unsafe(no_mangle)]
extern "C" fn simulatedAlive() -> u64 {
    ALIVE.load(Ordering::Relaxed)
}

#[unsafe(no_mangle)]
extern "C" fn simulatedProducts() -> u64 {
    PRODUCTS.load(Ordering::Relaxed)
}

fn misuse(what: impl fmt::Display) -> ! {
    eprintln!("simulated cuBLASLt: misuse: {what}");
    process::abort();
}

/// # Safety
///
/// The pointer is null, or of a value that this library has made and not taken back.
unsafe fn known<'a, T>(pointer: *mut T, what: &str) -> &'a mut T {
    // SAFETY: the caller vouches for it.
    unsafe { pointer.as_mut() }.unwrap_or_else(|| misuse(format_args!("{what} is null")))
}

/// Writes a new value to a place of the caller's.
///
/// # Safety
///
/// The place can be written to.
unsafe fn put<T>(place: *mut *mut T, value: T) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { place.write(Box::into_raw(Box::new(value))) };
    ALIVE.fetch_add(1, Ordering::Relaxed);
    SUCCESS
}

/// # Safety
///
/// `put` has made it, and nothing uses it any more.
unsafe fn take_back<T>(pointer: *mut T) -> c_int {
    if pointer.is_null() {
        misuse("null is destroyed");
    }
    // SAFETY: the caller vouches for it.
    drop(unsafe { Box::from_raw(pointer) });
    ALIVE.fetch_sub(1, Ordering::Relaxed);
    SUCCESS
}

/// The functions of the driver.
struct Driver {
    current: unsafe extern "C" fn(*mut *mut c_void) -> u32,
    load: unsafe extern "C" fn(*mut *mut c_void, *const c_void, u32, *mut c_void, *mut c_void) -> u32,
    unload: unsafe extern "C" fn(*mut c_void) -> u32,
    function: unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const c_char) -> u32,
    launch: unsafe extern "C" fn(
        *mut c_void,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        *mut c_void,
        *mut *mut c_void,
        *mut *mut c_void,
    ) -> u32,
    _library: Library,
}

static DRIVER: LazyLock<Driver> = LazyLock::new(|| {
    // SAFETY: it is the simulated driver, with the driver's types.
    unsafe {
        let library = Library::new("libcuda.so").expect("the simulated driver is there");
        Driver {
            current: *library.get(b"cuCtxGetCurrent").expect("it is there"),
            load: *library.get(b"cuModuleLoadDataEx").expect("it is there"),
            unload: *library.get(b"cuModuleUnload").expect("it is there"),
            function: *library.get(b"cuModuleGetFunction").expect("it is there"),
            launch: *library.get(b"cuLaunchKernel").expect("it is there"),
            _library: library,
        }
    }
});

fn current() -> *mut c_void {
    let mut context = ptr::null_mut();
    // SAFETY: there is a place for a context.
    unsafe { (DRIVER.current)(&mut context) };
    context
}

/// This library's own file, as an image that the simulated driver loads.
fn image() -> Vec<u8> {
    let here = simulatedProducts as *const () as usize;
    let maps = fs::read_to_string("/proc/self/maps").expect("it is there");
    let path = maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let [start, end] = [start, end].map(|address| usize::from_str_radix(address, 16).ok());
        (start?..end?).contains(&here).then(|| rest[rest.find('/')?..].to_owned().into()).flatten()
    });
    let bytes = fs::read::<String>(path.expect("it is mapped")).expect("it is there");
    let mut image = MAGIC.to_vec();
    image.extend((bytes.len() as u64).to_ne_bytes());
    image.extend(bytes);
    image
}

/// The library on one device.
struct Handle {
    context: *mut c_void,
    module: *mut c_void,
    function: *mut c_void,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Described {
    compute: c_int,
    scale: c_int,
    transposed: [c_int; 2],
    epilogue: u32,
    bias: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Layout {
    kind: c_int,
    rows: u64,
    columns: u64,
    leading: i64,
    batch: c_int,
    stride: i64,
}

struct Preference {
    workspace: u64,
    reductions: u32,
    alignments: [u32; 4],
}

#[repr(C)]
struct Heuristic {
    algorithm: [u64; 8],
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

/// An attribute of this type, whose size the caller says.
///
/// # Safety
///
/// There are so many bytes.
unsafe fn attribute<T: Copy>(place: &mut T, value: *const c_void, size: usize) -> c_int {
    if size != size_of::<T>() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller vouches for it.
    *place = unsafe { value.cast::<T>().read_unaligned() };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetVersion() -> usize {
    110_400
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetStatusString(_code: c_int) -> *const c_char {
    c"a status of the simulated library".as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtCreate(place: *mut *mut Handle) -> c_int {
    let context = current();
    if context.is_null() || env::var_os("SIMULATED_CUBLASLT_FAIL").is_some() {
        return NOT_INITIALIZED;
    }
    let image = image();
    let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the image is whole, and there are places for the handles.
    unsafe {
        let none = ptr::null_mut();
        if (DRIVER.load)(&mut module, image.as_ptr().cast(), 0, none, none) != 0
            || (DRIVER.function)(&mut function, module, c"run".as_ptr()) != 0
        {
            return NOT_INITIALIZED;
        }
        put(place, Handle { context, module, function })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtDestroy(handle: *mut Handle) -> c_int {
    // SAFETY: the caller vouches for the handle.
    unsafe {
        let known = known(handle, "the handle");
        if known.context != current() {
            misuse("a handle is destroyed in another context than its own");
        }
        (DRIVER.unload)(known.module);
        take_back(handle)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescCreate(
    place: *mut *mut Described,
    compute: c_int,
    scale: c_int,
) -> c_int {
    let new = Described { compute, scale, transposed: [0; 2], epilogue: 1, bias: 0 };
    // SAFETY: the caller vouches for the place.
    unsafe { put(place, new) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescDestroy(described: *mut Described) -> c_int {
    // SAFETY: the caller vouches for the pointer.
    unsafe { take_back(described) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescSetAttribute(
    described: *mut Described,
    number: c_int,
    value: *const c_void,
    size: usize,
) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe {
        let described = known(described, "a product");
        match number {
            3 | 4 => attribute(&mut described.transposed[number as usize - 3], value, size),
            7 => attribute(&mut described.epilogue, value, size),
            8 => attribute(&mut described.bias, value, size),
            _ => misuse(format_args!("the attribute {number} of a product is not simulated")),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatrixLayoutCreate(
    place: *mut *mut Layout,
    kind: c_int,
    rows: u64,
    columns: u64,
    leading: i64,
) -> c_int {
    // SAFETY: the caller vouches for the place.
    unsafe { put(place, Layout { kind, rows, columns, leading, batch: 1, stride: 0 }) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatrixLayoutDestroy(layout: *mut Layout) -> c_int {
    // SAFETY: the caller vouches for the pointer.
    unsafe { take_back(layout) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatrixLayoutSetAttribute(
    layout: *mut Layout,
    number: c_int,
    value: *const c_void,
    size: usize,
) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe {
        let layout = known(layout, "a matrix");
        match number {
            5 => attribute(&mut layout.batch, value, size),
            6 => attribute(&mut layout.stride, value, size),
            _ => misuse(format_args!("the attribute {number} of a matrix is not simulated")),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceCreate(place: *mut *mut Preference) -> c_int {
    // SAFETY: the caller vouches for the place.
    unsafe { put(place, Preference { workspace: 0, reductions: 7, alignments: [256; 4] }) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceDestroy(preference: *mut Preference) -> c_int {
    // SAFETY: the caller vouches for the pointer.
    unsafe { take_back(preference) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceSetAttribute(
    preference: *mut Preference,
    number: c_int,
    value: *const c_void,
    size: usize,
) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe {
        let preference = known(preference, "a preference");
        match number {
            1 => attribute(&mut preference.workspace, value, size),
            3 => attribute(&mut preference.reductions, value, size),
            5..=8 => attribute(&mut preference.alignments[number as usize - 5], value, size),
            _ => misuse(format_args!("the attribute {number} of a preference is not simulated")),
        }
    }
}

/// A product, checked: the numbers that the kernel gets.
fn numbers(described: &Described, layouts: [&Layout; 4]) -> Result<[i64; 16], c_int> {
    let [a, b, c, d] = layouts;
    let kind = d.kind;
    if [a, b, c].iter().any(|layout| layout.kind != kind || layout.batch != d.batch) {
        return Err(INVALID_VALUE);
    }
    let fits = match described.compute {
        COMPUTE_64F => kind == F64 && described.scale == F64,
        COMPUTE_32F => [F32, F16, BF16].contains(&kind) && described.scale == F32,
        COMPUTE_TF32 => kind == F32 && described.scale == F32,
        _ => false,
    };
    let rows = |layout: &Layout, transposed: c_int| match transposed {
        0 => (layout.rows, layout.columns),
        1 => (layout.columns, layout.rows),
        other => misuse(format_args!("the operation {other} of a matrix")),
    };
    let (m, k) = rows(a, described.transposed[0]);
    let (of_b, n) = rows(b, described.transposed[1]);
    let sizes = of_b == k && [c, d].iter().all(|layout| (layout.rows, layout.columns) == (m, n));
    let strides = layouts.iter().all(|layout| layout.leading >= layout.rows as i64);
    if !fits || !sizes || !strides || [m, n, k].contains(&0) || d.batch < 1 {
        return Err(INVALID_VALUE);
    }
    if described.epilogue == 4 && kind == F64 {
        return Err(NOT_SUPPORTED);
    }
    let [m, n, k] = [m, n, k].map(|size| size as i64);
    let [ta, tb] = described.transposed.map(i64::from);
    let flags = i64::from(described.epilogue == 4) + 2 * i64::from(described.compute == COMPUTE_TF32);
    let leading = layouts.map(|layout| layout.leading);
    let strides = layouts.map(|layout| layout.stride);
    let [la, lb, lc, ld] = leading;
    let [sa, sb, sc, sd] = strides;
    Ok([i64::from(kind), m, n, k, ta, tb, la, lb, lc, ld, sa, sb, sc, sd, d.batch.into(), flags])
}

/// A number that is another one for another product.
fn hash(numbers: &[i64; 16]) -> u64 {
    numbers.iter().fold(0, |hash: u64, &number| hash.wrapping_mul(0x100_0000_01B3) ^ number as u64)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    handle: *mut Handle,
    described: *mut Described,
    a: *mut Layout,
    b: *mut Layout,
    c: *mut Layout,
    d: *mut Layout,
    preference: *mut Preference,
    most: c_int,
    results: *mut Heuristic,
    count: *mut c_int,
) -> c_int {
    // SAFETY: the caller vouches for all of them.
    unsafe {
        known(handle, "the handle");
        let described = known(described, "a product");
        let layouts = [a, b, c, d].map(|layout| &*known(layout, "a matrix"));
        let preference = known(preference, "a preference");
        if described.epilogue == 4 && described.bias == 0 {
            misuse("a product with a bias that is nowhere");
        }
        if preference.reductions & 4 != 0 {
            misuse("sums of parts may be rounded to the type of the output");
        }
        if most < 1 {
            return INVALID_VALUE;
        }
        let workspace = WORKSPACE.min(preference.workspace as usize);
        let numbers = match numbers(described, layouts) {
            Ok(numbers) => numbers,
            Err(code) => return code,
        };
        let mut algorithm = [0; 8];
        algorithm[0] = hash(&numbers);
        for (place, alignment) in algorithm[1..].iter_mut().zip(preference.alignments) {
            *place = alignment.into();
        }
        // Of the bias: what the caller has promised.
        algorithm[5] = if described.epilogue == 4 { 1 << described.bias.trailing_zeros() } else { 1 };
        algorithm[6] = workspace as u64;
        let (state, waves, reserved) = (SUCCESS, 1.0, [0; 4]);
        results.write(Heuristic { algorithm, workspace, state, waves, reserved });
        count.write(1);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmul(
    handle: *mut Handle,
    described: *mut Described,
    alpha: *const c_void,
    a_at: u64,
    a: *mut Layout,
    b_at: u64,
    b: *mut Layout,
    beta: *const c_void,
    c_at: u64,
    c: *mut Layout,
    d_at: u64,
    d: *mut Layout,
    algorithm: *const [u64; 8],
    workspace: u64,
    workspace_len: usize,
    stream: *mut c_void,
) -> c_int {
    // SAFETY: the caller vouches for all of them.
    unsafe {
        let handle = known(handle, "the handle");
        let described = known(described, "a product");
        let layouts = [a, b, c, d].map(|layout| &*known(layout, "a matrix"));
        if handle.context != current() {
            misuse("a product in another context than the handle's");
        }
        let numbers = match numbers(described, layouts) {
            Ok(numbers) => numbers,
            Err(code) => return code,
        };
        let algorithm = *algorithm;
        if algorithm[0] != hash(&numbers) {
            misuse("an algorithm for another product");
        }
        let bias = if described.epilogue == 4 { described.bias } else { d_at };
        for (place, alignment) in [a_at, b_at, c_at, d_at, bias].into_iter().zip(&algorithm[1..]) {
            if !place.is_multiple_of(*alignment) {
                misuse(format_args!("{place:#x} is no multiple of {alignment}, as was said"));
            }
        }
        let needed = algorithm[6] as usize;
        if workspace_len < needed || !workspace.is_multiple_of(256) || (needed > 0 && workspace == 0) {
            misuse(format_args!("a workspace of {workspace_len} bytes at {workspace:#x}"));
        }
        let scale = |at: *const c_void| match described.scale {
            F64 => at.cast::<f64>().read(),
            _ => at.cast::<f32>().read().into(),
        };
        let mut scales = [scale(alpha), scale(beta)];
        // A kernel's addresses are all in memory.
        let mut pointers = [a_at, b_at, c_at, d_at, bias, if needed == 0 { d_at } else { workspace }];
        let mut numbers = numbers;
        numbers[15] += 4 * i64::from(needed > 0);
        let mut arguments: Vec<*mut c_void> =
            pointers.iter_mut().map(|pointer| ptr::from_mut(pointer).cast()).collect();
        arguments.extend(numbers.iter_mut().map(|number| ptr::from_mut(number).cast::<c_void>()));
        arguments.extend(scales.iter_mut().map(|scale| ptr::from_mut(scale).cast::<c_void>()));
        let code = (DRIVER.launch)(
            handle.function,
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            stream,
            arguments.as_mut_ptr(),
            ptr::null_mut(),
        );
        PRODUCTS.fetch_add(1, Ordering::Relaxed);
        if code == 0 { SUCCESS } else { EXECUTION_FAILED }
    }
}

#[repr(transparent)]
struct Text(*const c_char);

// SAFETY: a constant text.
unsafe impl Sync for Text {}

/// Six addresses, sixteen numbers and two factors: see `tests/simulated_driver/kernel.rs` of device-cuda.
#[unsafe(no_mangle)]
static simulated_parameters: Text = {
    const PARAMETERS: &CStr = c"pppppp888888888888888888";
    Text(PARAMETERS.as_ptr())
};

trait Element: Copy {
    fn to(self) -> f64;
    fn of(value: f64) -> Self;
}

macro_rules! elements {
    ($($type:ty: $to:expr, $of:expr;)*) => {$(
        impl Element for $type {
            fn to(self) -> f64 {
                $to(self)
            }

            fn of(value: f64) -> Self {
                $of(value)
            }
        }
    )*};
}

elements! {
    f16: f16::to_f64, |value| f16::from_f32(value as f32);
    bf16: bf16::to_f64, |value| bf16::from_f32(value as f32);
    f32: f64::from, |value| value as f32;
    f64: |value| value, |value| value;
}

/// # Safety
///
/// The arguments have the types in `simulated_parameters`.
#[unsafe(no_mangle)]
unsafe extern "C" fn simulated_launch(
    arguments: *const *const c_void,
    _blocks: *const u32,
    _threads: *const u32,
) -> *const c_char {
    // SAFETY: the caller vouches for them.
    unsafe {
        let arguments = slice::from_raw_parts(arguments, 24);
        let pointers: [*mut u8; 6] =
            std::array::from_fn(|place| arguments[place].cast::<*mut u8>().read_unaligned());
        let numbers: [i64; 16] =
            std::array::from_fn(|place| arguments[6 + place].cast::<i64>().read_unaligned());
        let scales: [f64; 2] =
            std::array::from_fn(|place| arguments[22 + place].cast::<f64>().read_unaligned());
        match numbers[0] as c_int {
            F16 => multiply::<f16>(pointers, numbers, scales),
            BF16 => multiply::<bf16>(pointers, numbers, scales),
            F32 => multiply::<f32>(pointers, numbers, scales),
            _ => multiply::<f64>(pointers, numbers, scales),
        }
        // Its contents are not specified.
        if numbers[15] & 4 != 0 {
            pointers[5].write_bytes(0x5A, WORKSPACE);
        }
    }
    ptr::null()
}

/// # Safety
///
/// The matrices are there.
unsafe fn multiply<T: Element>(pointers: [*mut u8; 6], numbers: [i64; 16], [alpha, beta]: [f64; 2]) {
    let [_, m, n, k, ta, tb, la, lb, lc, ld, sa, sb, sc, sd, batch, flags] = numbers;
    let [a, b, c, d, bias, _] = pointers.map(|pointer| pointer.cast::<T>());
    // SAFETY: here and below, the caller vouches for the matrices.
    let at = |of: *mut T, place: i64| unsafe { of.offset(place as isize).read() }.to();
    // The factors of TensorFloat-32 have 10 bits of fraction.
    let factor = |value: f64| match flags & 2 {
        0 => value,
        _ => f32::from_bits(((value as f32).to_bits() + 0x1000) & !0x1FFF).into(),
    };
    for product in 0..batch {
        for column in 0..n {
            for row in 0..m {
                let sum: f64 = (0..k)
                    .map(|i| {
                        let a_place = if ta == 0 { row + i * la } else { i + row * la };
                        let b_place = if tb == 0 { i + column * lb } else { column + i * lb };
                        factor(at(a, product * sa + a_place)) * factor(at(b, product * sb + b_place))
                    })
                    .sum();
                let mut value = alpha * sum;
                // Where the factor is zero, the matrix is not read.
                if beta != 0.0 {
                    value += beta * at(c, product * sc + row + column * lc);
                }
                if flags & 1 != 0 {
                    value += at(bias, row);
                }
                // SAFETY: the caller vouches for the output.
                unsafe { d.offset((product * sd + row + column * ld) as isize).write(T::of(value)) };
            }
        }
    }
}
