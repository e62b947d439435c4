//! Decoders in files: a program [installs](install) a shared library as the decoder for a backend, without
//! being rebuilt.
//!
//! [`c_interface`](crate::c_interface) says what is in such a file. It decodes on the host, and this module
//! moves the pixels to the device.

use std::error::Error;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::path::{self, Path, PathBuf};
use std::slice;

use device_registry::Device;
use device_tensor::Tensor;
use device_tensor::ndarray::Array3;
use entry_points::{Installed, LoadFailure, RegisterError};
use libloading::Library;

use crate::c_interface::{DAMAGED, DecodeCall, DecodeFunction, OK, SYMBOL};
use crate::{DecodeError, Decoder, Picture, decoders};

/// Installs the library `file` as the decoder for the backend `name`.
///
/// It opens nothing: the first use of that decoder does, and the library then stays open. A decoder that is
/// linked goes before it. A file that is missing or not a decoder is an error of that use,
/// [`DecodeError::NoDecoder`], and harms no other decoder.
///
/// # Errors
///
/// If no backend can have the name, or if the name has a built-in decoder.
///
/// # Safety
///
/// A library's code runs in this process with all its rights, from the moment when the library is opened. The
/// file and the libraries that it needs must be sound to run here. If the file exports `codec_decode_v0`,
/// that function must be as [`c_interface`](crate::c_interface) demands.
#[track_caller]
pub unsafe fn install(name: impl Into<String>, file: impl Into<PathBuf>) -> Result<(), RegisterError> {
    let file = file.into();
    // Else it would be another file if the program changed its folder before the first use.
    let file = path::absolute(&file).unwrap_or(file);
    let opened = file.clone();
    let load = move |_: &_| {
        // SAFETY: the caller of `install` vouches for the file.
        let decoder = unsafe { FileDecoder::open(&opened) }?;
        Ok(Box::new(decoder) as Box<dyn Decoder>)
    };
    decoders().install(Installed::new(name, file, load))
}

struct FileDecoder {
    decode: DecodeFunction,
}

impl FileDecoder {
    /// # Safety
    ///
    /// The file must be as [`install`] demands.
    unsafe fn open(file: &Path) -> Result<Self, LoadFailure> {
        // A path without a folder would be searched for in the system's folders, and an empty one is the
        // program itself.
        let file = file.canonicalize().map_err(|error| not_a_decoder(&error))?;
        // SAFETY: the caller vouches for the library's code.
        let library = unsafe { open_library(&file) }.map_err(|error| not_a_decoder(&error))?;
        // Its functions are to stay valid, and a thread of its own may run in it.
        let library = ManuallyDrop::new(library);
        // SAFETY: a function of this name has this type, by the interface.
        let decode =
            unsafe { library.get::<DecodeFunction>(SYMBOL) }.map_err(|error| not_a_decoder(&error))?;
        Ok(Self { decode: *decode })
    }
}

impl Decoder for FileDecoder {
    fn decode(&self, picture: &Picture<'_>, device: Device) -> Result<Tensor, DecodeError> {
        let mut pixels = Array3::<u8>::zeros(picture.shape());
        let mut message = String::from("it reported no message");
        let call = DecodeCall {
            png: picture.bytes().as_ptr(),
            png_len: picture.bytes().len(),
            shape: picture.shape(),
            pixels: pixels.as_mut_ptr(),
            context: (&raw mut message).cast(),
            fail,
        };
        // SAFETY: all that the call refers to outlives it, and the pixels are as many as the shape says.
        match unsafe { (self.decode)(&call) } {
            OK => Ok(Tensor::new(pixels, device)?),
            DAMAGED => Err(DecodeError::Damaged(message.into())),
            _ => Err(DecodeError::Decoder { device, source: message.into() }),
        }
    }
}

/// The callback for errors: replaces the message on the stack of [`FileDecoder::decode`]. Null is no message.
unsafe extern "C" fn fail(context: *mut c_void, message: *const u8, len: usize) {
    if message.is_null() {
        return;
    }
    // SAFETY: by the interface, these are bytes that live during this call.
    let message = unsafe { slice::from_raw_parts(message, len) };
    // SAFETY: the context is the string of a `decode` that has not returned, and the only thread that may
    // come here is its own.
    unsafe { *context.cast() = String::from_utf8_lossy(message).into_owned() };
}

/// # Safety
///
/// The initialisers of the library, and of those that it needs, run now: they must be sound.
unsafe fn open_library(file: &Path) -> Result<Library, libloading::Error> {
    #[cfg(unix)]
    {
        use libloading::os::unix;
        // With RTLD_LAZY, a function that the library misses would end the process at the call.
        // SAFETY: the caller vouches for the initialisers.
        unsafe { unix::Library::open(Some(file), unix::RTLD_NOW | unix::RTLD_LOCAL) }.map(Library::from)
    }
    #[cfg(not(unix))]
    // SAFETY: the caller vouches for the initialisers.
    unsafe {
        Library::new(file)
    }
}

fn not_a_decoder(error: &dyn Error) -> LoadFailure {
    // The loader's text has the details; the error around it has the name of a C function.
    let cause = error.source().unwrap_or(error).to_string();
    LoadFailure::new(format!("expected a shared library with the function `{SYMBOL}`")).with_source(cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::c_interface::FAILED;

    const SAMPLE: &[u8] = include_bytes!("../../sample.png");

    /// What the loader reports of a library whose function is `decode`.
    fn reported(decode: DecodeFunction) -> String {
        let picture = Picture::new(SAMPLE).unwrap();
        format!("{:?}", FileDecoder { decode }.decode(&picture, Device::cpu()).unwrap_err())
    }

    fn failed(cause: &str) -> String {
        format!("the decoder for `cpu` failed\ncaused by: {cause}")
    }

    #[test]
    fn a_library_reports_a_panic_another_shape_and_bytes_that_are_no_picture() {
        unsafe extern "C" fn panics(call: *const DecodeCall) -> u32 {
            // SAFETY: this is the call that the loader made.
            unsafe { (*call).decode_with(|_| panic!("on purpose")) }
        }
        unsafe extern "C" fn returns_another_shape(call: *const DecodeCall) -> u32 {
            // SAFETY: this is the call that the loader made.
            unsafe { (*call).decode_with(|_| Ok(Array3::zeros([3, 4, 7]))) }
        }
        unsafe extern "C" fn gets_no_picture(call: *const DecodeCall) -> u32 {
            // SAFETY: this is the call that the loader made, with fewer bytes.
            unsafe { DecodeCall { png_len: 0, ..*call }.decode_with(|picture| picture.decode_on_host()) }
        }
        assert_eq!(reported(panics), failed("it panicked: on purpose"));
        let other = failed("expected a picture of shape [3, 4, 6], found [3, 4, 7]");
        assert_eq!(reported(returns_another_shape), other);
        assert!(reported(gets_no_picture).starts_with(&failed("expected a PNG picture")));
    }

    #[test]
    fn the_last_message_counts_and_every_unknown_status_is_a_failure() {
        unsafe extern "C" fn silent(_: *const DecodeCall) -> u32 {
            FAILED
        }
        unsafe extern "C" fn strange(call: *const DecodeCall) -> u32 {
            for message in [&b"replaced"[..], b"not UTF-8: \xff"] {
                // SAFETY: this is the call that the loader made, and the message has this length.
                unsafe { ((*call).fail)((*call).context, message.as_ptr(), message.len()) };
            }
            77
        }
        assert_eq!(reported(silent), failed("it reported no message"));
        assert_eq!(reported(strange), failed("not UTF-8: \u{fffd}"));
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn libraries_that_exist_find_each_field_where_it_was() {
        use std::mem::offset_of;
        assert_eq!([offset_of!(DecodeCall, png), offset_of!(DecodeCall, png_len)], [0, 8]);
        assert_eq!([offset_of!(DecodeCall, shape), offset_of!(DecodeCall, pixels)], [16, 40]);
        assert_eq!([offset_of!(DecodeCall, context), offset_of!(DecodeCall, fail)], [48, 56]);
    }
}
