//! A decoder in a file, which decodes on the host. A program installs it for any backend without a decoder of
//! its own.
//!
//! It registers nothing: programs find it by the function [`codec_decoder_v0`] in `libhost_decoder.so`. It
//! has its own copy of `codec`, and shares only [`codec::c_interface`] with the program.

use std::slice;

use codec::c_interface::{DAMAGED, DecodeCall, DecoderTable, FAILED, OK};
use codec::{DecodeError, Picture};
use device_registry::registry::isolate;

/// The function that a program looks for.
#[unsafe(no_mangle)]
pub extern "C" fn codec_decoder_v0() -> *const DecoderTable {
    static TABLE: DecoderTable =
        DecoderTable { struct_size: size_of::<DecoderTable>(), decode: Some(decode) };
    &TABLE
}

unsafe extern "C" fn decode(call: *const DecodeCall) -> u32 {
    // SAFETY: by the interface, the call is valid until this function returns.
    let call = unsafe { &*call };
    reported(call, || write_pixels(call))
}

/// A status of the interface, and the message that the program gets with it.
type Failure = (u32, String);

fn write_pixels(call: &DecodeCall) -> Result<(), Failure> {
    let failure = |error| match error {
        DecodeError::Damaged(cause) => (DAMAGED, cause.to_string()),
        error => (FAILED, format!("{error:?}")),
    };
    // SAFETY: by the interface, they are that many bytes.
    let picture = Picture::new(unsafe { slice::from_raw_parts(call.png, call.png_len) }).map_err(failure)?;
    if call.shape != picture.shape() {
        // The copy of `codec` in the program may be of another version.
        let message = format!("expected a picture of shape {:?}, found {:?}", call.shape, picture.shape());
        return Err((FAILED, message));
    }
    let pixels = picture.decode_on_host().map_err(failure)?;
    // SAFETY: by the interface, there is room for the elements of the shape, which `pixels` has.
    let room = unsafe { slice::from_raw_parts_mut(call.pixels, pixels.len()) };
    room.iter_mut().zip(&pixels).for_each(|(to, from)| *to = *from);
    Ok(())
}

/// Reports to the program why `work` failed, and returns the status.
fn reported(call: &DecodeCall, work: impl FnOnce() -> Result<(), Failure>) -> u32 {
    // A panic may not leave a function of C.
    let outcome = isolate(work).unwrap_or_else(|panicked| Err((FAILED, panicked.to_string())));
    let Err((status, message)) = outcome else { return OK };
    // SAFETY: the context belongs to the function, this is the thread of the call, and the message is a
    // string's.
    unsafe { (call.fail)(call.context, message.as_ptr(), message.len()) };
    status
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;

    use super::*;

    const SAMPLE: &[u8] = include_bytes!("../../sample.png");

    /// Calls `function` with the picture and room for pixels of `shape`: the status, the pixels and the
    /// messages.
    fn call(
        png: &[u8],
        shape: [usize; 3],
        function: impl FnOnce(&DecodeCall) -> u32,
    ) -> (u32, Vec<u8>, Vec<String>) {
        unsafe extern "C" fn fail(context: *mut c_void, message: *const u8, len: usize) {
            // SAFETY: `call` made the context, and the message has this length.
            let (messages, message) =
                unsafe { (&mut *context.cast::<Vec<String>>(), slice::from_raw_parts(message, len)) };
            messages.push(String::from_utf8(message.to_vec()).unwrap());
        }
        let mut pixels = vec![0xEE; shape.iter().product()];
        let mut messages = Vec::<String>::new();
        let call = DecodeCall {
            png: png.as_ptr(),
            png_len: png.len(),
            shape,
            pixels: pixels.as_mut_ptr(),
            context: (&raw mut messages).cast(),
            fail,
        };
        let status = function(&call);
        (status, pixels, messages)
    }

    fn decoded(png: &[u8], shape: [usize; 3]) -> (u32, Vec<u8>, Vec<String>) {
        // SAFETY: the table has the function, and the call is valid.
        call(png, shape, |call| unsafe { ((*codec_decoder_v0()).decode.unwrap())(call) })
    }

    #[test]
    fn the_pixels_are_whole_channels() {
        let (status, pixels, messages) = decoded(SAMPLE, [3, 4, 6]);
        assert_eq!((status, &messages[..]), (OK, &[][..]));
        assert_eq!(pixels[..7], [0, 40, 80, 120, 160, 200, 0]);
        assert_eq!(pixels[24..32], [0, 0, 0, 0, 0, 0, 60, 60]);
    }

    #[test]
    fn a_cut_off_picture_another_shape_and_no_picture_are_reported_once_and_write_nothing() {
        let cases = [
            (&SAMPLE[..SAMPLE.len() - 1], [3, 4, 6], DAMAGED, ""),
            (SAMPLE, [3, 4, 7], FAILED, "expected a picture of shape [3, 4, 7], found [3, 4, 6]"),
            (b"text", [3, 4, 6], FAILED, "expected a PNG picture"),
        ];
        for (png, shape, expected, part) in cases {
            let (status, pixels, messages) = decoded(png, shape);
            assert_eq!((status, messages.len()), (expected, 1), "{messages:?}");
            assert!(messages[0].contains(part) && !messages[0].is_empty(), "{messages:?}");
            assert!(pixels.iter().all(|&pixel| pixel == 0xEE));
        }
    }

    #[test]
    fn a_panic_is_reported_and_does_not_leave_the_function() {
        let (status, _, messages) = call(SAMPLE, [3, 4, 6], |call| reported(call, || panic!("on purpose")));
        assert_eq!((status, messages), (FAILED, vec!["it panicked: on purpose".to_owned()]));
    }
}
