//! The C interface of a decoder in a file, version 0. The crate `decoder-files` opens such files; this one
//! opens none.
//!
//! The file is a shared library, in any language, that exports the function [`SYMBOL`]. The function has no
//! arguments and returns a [`DecoderTable`]. Only the types in this module cross between the library and the
//! program: a library in Rust has its own copy of this crate, and may have been built by another compiler.
//!
//! - No memory changes its owner. The picture, the pixels and the [`DecodeCall`] belong to the program, and
//!   the library keeps none of their addresses. The library reports an error with [`DecodeCall::fail`], which
//!   copies the message.
//! - No panic and no exception leaves a function.
//! - The table and its functions stay valid until the process ends.
//!
//! A later version may append functions to the table: [`DecoderTable::struct_size`] says which ones a library
//! has. For any other change, the number in the symbol's name grows.

use std::ffi::c_void;

/// The name of the function that a library exports, a [`TableFunction`].
pub const SYMBOL: &str = "codec_decoder_v0";

/// Returned by a [`DecodeFunction`] that has written every pixel.
pub const OK: u32 = 0;
/// Returned by a [`DecodeFunction`] if the picture is damaged or cut off.
pub const DAMAGED: u32 = 1;
/// Returned by a [`DecodeFunction`] after any other error. Programs treat unknown values as this one.
pub const FAILED: u32 = 2;

/// Returns the table, which is never null.
pub type TableFunction = unsafe extern "C" fn() -> *const DecoderTable;

/// Decodes one picture on the host, and returns [`OK`], [`DAMAGED`] or [`FAILED`]. Several threads may call
/// it at once.
pub type DecodeFunction = unsafe extern "C" fn(call: *const DecodeCall) -> u32;

/// The functions of a decoder.
#[repr(C)]
#[derive(Debug)]
pub struct DecoderTable {
    /// The size of this table in bytes, as the library was built.
    pub struct_size: usize,
    /// The function that decodes; a null pointer is an error.
    pub decode: Option<DecodeFunction>,
}

/// The arguments of one [`DecodeFunction`] call, all valid until it returns.
#[repr(C)]
#[derive(Debug)]
pub struct DecodeCall {
    /// The bytes of a PNG file, whose header the program has checked.
    pub png: *const u8,
    /// The number of these bytes.
    pub png_len: usize,
    /// Channels, height and width of the pixels, by the rules of [`decode`](crate::decode()).
    pub shape: [usize; 3],
    /// Where to write the pixels, one byte for each element of the shape: one channel after the other, each
    /// row by row.
    pub pixels: *mut u8,
    /// The first argument of `fail`.
    pub context: *mut c_void,
    /// Reports an error: a message in UTF-8 and its length. The library calls it on the thread of the call,
    /// before it returns another status than [`OK`].
    pub fail: unsafe extern "C" fn(context: *mut c_void, message: *const u8, len: usize),
}
