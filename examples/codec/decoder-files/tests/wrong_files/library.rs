//! Libraries that are not decoders, or wrong ones: `--cfg wrong="…"` chooses. It declares the interface by
//! itself, as a library in another language does.

use std::ffi::c_void;
use std::ptr;

type Function = unsafe extern "C" fn(call: *const Call) -> u32;

#[repr(C)]
struct Table {
    struct_size: usize,
    decode: Option<Function>,
}

#[repr(C)]
struct Call {
    png: *const u8,
    png_len: usize,
    shape: [usize; 3],
    pixels: *mut u8,
    context: *mut c_void,
    fail: unsafe extern "C" fn(context: *mut c_void, message: *const u8, len: usize),
}

#[cfg(wrong = "needs_more")]
unsafe extern "C" {
    fn function_of_no_library() -> u32;
}

#[cfg(not(wrong = "next_version"))]
#[unsafe(no_mangle)]
extern "C" fn codec_decoder_v0() -> *const Table {
    static SHORT: usize = size_of::<usize>();
    static NO_FUNCTION: Table = Table { struct_size: size_of::<Table>(), decode: None };
    // One of a later version, with functions that this program does not know.
    static LONG: (Table, [usize; 4]) = (Table { struct_size: size_of::<Table>() + 32, decode: Some(decode) }, [0; 4]);
    if cfg!(wrong = "null") {
        ptr::null()
    } else if cfg!(wrong = "short") {
        (&raw const SHORT).cast()
    } else if cfg!(wrong = "no_function") {
        &NO_FUNCTION
    } else {
        &LONG.0
    }
}

#[cfg(wrong = "next_version")]
#[unsafe(no_mangle)]
extern "C" fn codec_decoder_v1() -> *const Table {
    ptr::null()
}

/// Fails, without a message or with two of them and a status that the interface does not have.
unsafe extern "C" fn decode(call: *const Call) -> u32 {
    #[cfg(wrong = "needs_more")]
    return unsafe { function_of_no_library() };
    #[cfg(not(wrong = "needs_more"))]
    {
        let call = unsafe { &*call };
        if cfg!(wrong = "silent") {
            return 2;
        }
        for message in [&b"replaced"[..], b"not UTF-8: \xff"] {
            unsafe { (call.fail)(call.context, message.as_ptr(), message.len()) };
        }
        77
    }
}
