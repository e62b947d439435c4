//! A decoder in a file, which decodes on the host. A program installs it for any backend without a decoder of
//! its own.
//!
//! It registers nothing: programs find it by the function [`codec_decoder_v0`] in `libhost_decoder.so`. It
//! has its own copy of `codec`, and shares only [`codec::c_interface`] with the program.

use codec::c_interface::{DecodeCall, DecoderTable};

/// The function that a program looks for.
#[unsafe(no_mangle)]
pub extern "C" fn codec_decoder_v0() -> *const DecoderTable {
    static TABLE: DecoderTable =
        DecoderTable { struct_size: size_of::<DecoderTable>(), decode: Some(decode) };
    &TABLE
}

unsafe extern "C" fn decode(call: *const DecodeCall) -> u32 {
    // SAFETY: by the interface, the call is valid until this function returns.
    unsafe { (*call).decode_with(|picture| picture.decode_on_host()) }
}
