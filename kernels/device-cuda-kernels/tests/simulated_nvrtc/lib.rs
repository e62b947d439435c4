//! A simulation of NVRTC, for tests on machines without a GPU. **It is not NVIDIA's code**: it was written
//! from the NVRTC reference.
//!
//! It is a library with NVRTC's file name and the functions that the kernel set calls. It compiles the same
//! text as NVRTC, with definitions of its own in front, by this machine's C++ compiler (`CXX`, or `c++`), to
//! an image that the simulated driver runs on the processor. A text without the definitions for NVRTC in
//! front is an error, and so is an option that is not known.
//!
//! `SIMULATED_NVRTC_MAJOR=13` makes it another version.
//!
//! A kernel that leaves a `__local` array, reads what is not aligned, or whose items do not all reach a
//! barrier, ends the process with a message.

#![allow(non_snake_case, reason = "the names are NVRTC's")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::fs;
use std::process::Command;
use std::slice;

const SUCCESS: c_int = 0;
const INVALID_INPUT: c_int = 3;
const INVALID_PROGRAM: c_int = 4;
const INVALID_OPTION: c_int = 5;
const COMPILATION: c_int = 6;

/// What comes before a text in the place of NVRTC's definitions, and behind it.
const DEFINITIONS: &str = include_str!("host.h");
const LAUNCH: &str = include_str!("launch.h");

/// The lines before the definitions for NVRTC and behind them.
const MARKS: [&str; 2] = ["\n#line 1 \"cuda.h\"\n", "\n#line 1 \"run.cl\"\n"];

/// Before `long` is a macro.
const HEADERS: &str = "#include <cstring>\n#include <ucontext.h>\nusing std::memcpy;";

/// What an image begins with: see `tests/simulated_driver/kernel.rs` of device-cuda.
const MAGIC: [u8; 8] = *b"\x7fSIMCUD\0";

/// Among them checks whose functions are in `launch.h`.
const OPTIONS: [&str; 7] =
    ["-std=c++17", "-O1", "-w", "-fPIC", "-shared", "-fsanitize=bounds,alignment", "-fno-strict-aliasing"];

struct Program {
    source: String,
    log: Vec<u8>,
    image: Vec<u8>,
}

/// # Safety
///
/// The pointer is null, or of a program that was created and not destroyed.
unsafe fn program<'a>(program: *mut Program) -> Option<&'a mut Program> {
    // SAFETY: the caller vouches for it.
    unsafe { program.as_mut() }
}

/// # Safety
///
/// There are two places for numbers.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> c_int {
    // SAFETY: the caller vouches for the places.
    unsafe {
        // No real one has this version, so that what is kept of programs is never taken for its.
        major.write(
            std::env::var("SIMULATED_NVRTC_MAJOR").map_or(11, |major| major.parse().expect("a number")),
        );
        minor.write(99);
    }
    SUCCESS
}

/// # Safety
///
/// There is a place for a number.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetNumSupportedArchs(count: *mut c_int) -> c_int {
    // SAFETY: the caller vouches for the place.
    unsafe { count.write(2) };
    SUCCESS
}

/// # Safety
///
/// There are as many places as `nvrtcGetNumSupportedArchs` says.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetSupportedArchs(architectures: *mut c_int) -> c_int {
    // SAFETY: the caller vouches for two places.
    unsafe { slice::from_raw_parts_mut(architectures, 2) }.copy_from_slice(&[75, 89]);
    SUCCESS
}

/// # Safety
///
/// The arguments are what the NVRTC reference asks for.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcCreateProgram(
    place: *mut *mut Program,
    source: *const c_char,
    _name: *const c_char,
    headers: c_int,
    _texts: *const *const c_char,
    _names: *const *const c_char,
) -> c_int {
    // SAFETY: the caller vouches for a text with a zero at its end.
    let source = unsafe { CStr::from_ptr(source) }.to_string_lossy().into_owned();
    if headers != 0 {
        return INVALID_INPUT;
    }
    let program = Box::new(Program { source, log: vec![0], image: Vec::new() });
    // SAFETY: the caller vouches for the place.
    unsafe { place.write(Box::into_raw(program)) };
    SUCCESS
}

/// # Safety
///
/// It is the place of a program that was created and not destroyed.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcDestroyProgram(place: *mut *mut Program) -> c_int {
    // SAFETY: the caller vouches for the program, which `nvrtcCreateProgram` made.
    drop(unsafe { Box::from_raw(place.read()) });
    SUCCESS
}

/// # Safety
///
/// The arguments are what the NVRTC reference asks for.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcCompileProgram(
    program: *mut Program,
    count: c_int,
    options: *const *const c_char,
) -> c_int {
    // SAFETY: the caller vouches for the program.
    let Some(program) = (unsafe { self::program(program) }) else { return INVALID_PROGRAM };
    // SAFETY: the caller vouches for so many texts with zeros at their ends.
    let options = unsafe { slice::from_raw_parts(options, count as usize) }
        .iter()
        .map(|&option| unsafe { CStr::from_ptr(option) }.to_string_lossy().into_owned());
    let (mut one_axis, mut contract) = (false, true);
    let mut for_device = false;
    for option in options {
        match option.as_str() {
            // The simulated device has the capability 8.9.
            "--gpu-architecture=sm_89" | "--std=c++17" | "--diag-suppress=161,177" => {}
            "--fmad=false" => contract = false,
            "--device-as-default-execution-space" => for_device = true,
            "--define-macro=GROUPS_ON_ONE_AXIS" => one_axis = true,
            _ => {
                program.log = format!("nvrtc: error: invalid value for {option}\0").into_bytes();
                return INVALID_OPTION;
            }
        }
    }
    let parts = program.source.split_once(MARKS[0]).filter(|_| for_device);
    let Some((common, text)) = parts.and_then(|(common, rest)| Some((common, rest.split_once(MARKS[1])?.1)))
    else {
        program.log = b"the definitions are missing\0".to_vec();
        return COMPILATION;
    };
    match compile(common, text, one_axis, contract) {
        Ok(image) => {
            program.image = image;
            SUCCESS
        }
        Err(log) => {
            program.log = CString::new(log.replace('\0', "")).expect("it has no zero").into_bytes_with_nul();
            COMPILATION
        }
    }
}

/// An image for the simulated driver, or the compiler's log.
fn compile(common: &str, text: &str, one_axis: bool, contract: bool) -> Result<Vec<u8>, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let (source, library) = (folder.path().join("run.cpp"), folder.path().join("run.so"));
    let whole = format!("{HEADERS}\n{common}\n{DEFINITIONS}\n#line 1\n{text}\n{LAUNCH}");
    fs::write(&source, whole).map_err(|error| error.to_string())?;
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let mut command = Command::new(compiler);
    command.args(OPTIONS).arg("-o").arg(&library).arg(&source);
    command.args(text.contains("barrier(").then_some("-DIN_TURNS"));
    // Where the processor has a fused multiply-add, as each GPU.
    #[cfg(target_arch = "x86_64")]
    command.args(is_x86_feature_detected!("fma").then_some("-mfma"));
    command.arg(if contract { "-ffp-contract=fast" } else { "-ffp-contract=off" });
    command.args(one_axis.then_some("-DGROUPS_ON_ONE_AXIS"));
    let output = command.output().map_err(|error| format!("the C++ compiler does not start: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let library = fs::read(library).map_err(|error| error.to_string())?;
    Ok([&MAGIC[..], &(library.len() as u64).to_ne_bytes(), &library].concat())
}

/// # Safety
///
/// The pointer is a program's, and there is a place for a number.
unsafe fn len(program: *mut Program, place: *mut usize, of: fn(&Program) -> &[u8]) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe {
        let Some(program) = self::program(program) else { return INVALID_PROGRAM };
        place.write(of(program).len());
    }
    SUCCESS
}

/// # Safety
///
/// The pointer is a program's, and there are as many places as `len` says.
unsafe fn read(program: *mut Program, to: *mut c_char, of: fn(&Program) -> &[u8]) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe {
        let Some(program) = self::program(program) else { return INVALID_PROGRAM };
        let bytes = of(program);
        to.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
    }
    SUCCESS
}

/// Two functions for bytes of a program.
macro_rules! bytes {
    ($($len:ident $read:ident $of:expr;)*) => {
        $(
            /// # Safety
            ///
            /// The arguments are what the NVRTC reference asks for.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $len(program: *mut Program, place: *mut usize) -> c_int {
                // SAFETY: the caller vouches for both.
                unsafe { len(program, place, $of) }
            }

            /// # Safety
            ///
            /// The arguments are what the NVRTC reference asks for.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $read(program: *mut Program, to: *mut c_char) -> c_int {
                // SAFETY: the caller vouches for both.
                unsafe { read(program, to, $of) }
            }
        )*
    };
}

bytes! {
    nvrtcGetProgramLogSize nvrtcGetProgramLog |program| &program.log;
    nvrtcGetCUBINSize nvrtcGetCUBIN |program| &program.image;
    nvrtcGetPTXSize nvrtcGetPTX |_| &[];
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetErrorString(code: c_int) -> *const c_char {
    let text = match code {
        SUCCESS => c"NVRTC_SUCCESS",
        INVALID_INPUT => c"NVRTC_ERROR_INVALID_INPUT",
        INVALID_PROGRAM => c"NVRTC_ERROR_INVALID_PROGRAM",
        INVALID_OPTION => c"NVRTC_ERROR_INVALID_OPTION",
        COMPILATION => c"NVRTC_ERROR_COMPILATION",
        _ => c"NVRTC_ERROR unknown",
    };
    text.as_ptr()
}
