//! The C interface of a decoder in a file, version 0. [`files`](crate::files) opens such files.
//!
//! The file is a shared library, in any language, that exports one function: a [`DecodeFunction`] with the
//! name [`SYMBOL`]. Only the types in this module cross between the library and the program. A library in
//! Rust has its own copy of this crate, and may have been built by another compiler.
//!
//! - No memory changes its owner. The picture, the pixels and the [`DecodeCall`] belong to the program, and
//!   the library keeps none of their addresses. The library reports an error with [`DecodeCall::fail`], which
//!   copies the message.
//! - No panic and no exception leaves a function.
//!
//! After any change, the number in the symbol's name grows. An interface of more functions would export a
//! table of them that begins with its size, as `device_plugin.h` does.

use std::ffi::c_void;
use std::slice;

use device_registry::registry::isolate;
use device_tensor::ndarray::Array3;

use crate::{DecodeError, Picture};

/// The name of the function that a library exports, a [`DecodeFunction`].
pub const SYMBOL: &str = "codec_decode_v0";

/// Returned by a [`DecodeFunction`] that has written every pixel.
pub const OK: u32 = 0;
/// Returned by a [`DecodeFunction`] if the picture is damaged or cut off.
pub const DAMAGED: u32 = 1;
/// Returned by a [`DecodeFunction`] after any other error. Programs treat unknown values as this one.
pub const FAILED: u32 = 2;

/// Decodes one picture on the host, and returns [`OK`], [`DAMAGED`] or [`FAILED`]. Several threads may call
/// it at once.
pub type DecodeFunction = unsafe extern "C" fn(call: *const DecodeCall) -> u32;

/// The arguments of one [`DecodeFunction`] call, all valid until it returns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
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

impl DecodeCall {
    /// Serves the call in a library that is written in Rust: writes the pixels that `decode` returns, or
    /// reports an error. Returns the status.
    ///
    /// A panic of `decode` is an error, and does not leave this function.
    ///
    /// # Safety
    ///
    /// The call must be as the program passed it, and this thread the one that got it.
    #[must_use]
    pub unsafe fn decode_with(
        &self,
        decode: impl FnOnce(&Picture<'_>) -> Result<Array3<u8>, DecodeError>,
    ) -> u32 {
        let failure = |error| match error {
            DecodeError::Damaged(cause) => (DAMAGED, cause.to_string()),
            error => (FAILED, format!("{error:?}")),
        };
        let write = || {
            // SAFETY: by the interface, they are that many bytes.
            let png = unsafe { slice::from_raw_parts(self.png, self.png_len) };
            let pixels = Picture::new(png).and_then(|picture| decode(&picture)).map_err(failure)?;
            // The program may have another version of this crate.
            if pixels.shape() != self.shape {
                let (expected, found) = (self.shape, pixels.shape());
                return Err((FAILED, format!("expected a picture of shape {expected:?}, found {found:?}")));
            }
            // SAFETY: by the interface, there is room for the elements of the shape, which `pixels` has.
            let room = unsafe { slice::from_raw_parts_mut(self.pixels, pixels.len()) };
            room.iter_mut().zip(&pixels).for_each(|(to, from)| *to = *from);
            Ok(())
        };
        let outcome = isolate(write).unwrap_or_else(|panicked| Err((FAILED, panicked.to_string())));
        let Err((status, message)) = outcome else { return OK };
        // SAFETY: the context belongs to the function, this is the thread of the call, and the message is a
        // string's.
        unsafe { (self.fail)(self.context, message.as_ptr(), message.len()) };
        status
    }
}
