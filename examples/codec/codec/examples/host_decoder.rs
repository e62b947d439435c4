//! A decoder in a file, which decodes on the host. A program installs it for any backend without a decoder of
//! its own.
//!
//! It registers nothing: programs find it by the function [`codec_decode_v0`] in `libhost_decoder.so`. It has
//! its own copy of `codec`, and shares only [`codec::c_interface`] with the program.

use codec::c_interface::DecodeCall;

/// The function that a program looks for.
///
/// # Safety
///
/// [`codec::c_interface`] says which calls are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn codec_decode_v0(call: *const DecodeCall) -> u32 {
    // SAFETY: by the interface, the call is valid until this function returns.
    unsafe { (*call).decode_with(|picture| picture.decode_on_host()) }
}
