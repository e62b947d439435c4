//! The errors of this program, in addition to the devices'.

use std::io;
use std::path::PathBuf;

use device_registry::registry::LoadError;
use device_registry::{BackendErrorKind, Device, DeviceError};

use crate::work::MOST_TERMS;

/// Why something was not computed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The device could not be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Nothing is registered for the backend, or it is switched off.
    #[error("there are no kernels for `{device}`")]
    NoKernels {
        device: Device,
        #[source]
        error: LoadError,
    },
    /// A text was given to a device that compiles none.
    #[error(
        "`{origin}` cannot be compiled for `{device}`, whose kernels are {language} and were compiled with this program"
    )]
    NoText { device: Device, origin: String, language: &'static str },
    #[error("cannot read {}", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    /// The compiler's log for the source.
    #[error("`{origin}` does not compile as {language}")]
    Compile {
        origin: String,
        language: &'static str,
        // Boxed, for it is large.
        #[source]
        error: Box<DeviceError>,
    },
    /// Native handles of one device are invalid on another.
    #[error("the kernels were compiled for `{device}`, and the stream is of `{stream}`")]
    OtherDevice { device: Device, stream: Device },
    #[error("{what} have {found:?} bytes, and {expected:?} were expected")]
    Lengths { what: &'static str, found: [usize; 3], expected: [usize; 3] },
    /// The device computes something else than the cpu.
    #[error(
        "the result is wrong: element {index} is {found} and on the cpu {expected}; {count} of {len} elements differ"
    )]
    Wrong { index: usize, found: f32, expected: f32, count: usize, len: usize },
    #[error("the result has {found} bytes, and the cpu's {expected}")]
    ResultLength { found: usize, expected: usize },
    /// No operands are small enough.
    #[error(
        "an element is the sum of {terms} products, and of more than {MOST_TERMS} no `f32` is sure to hold the exact sum"
    )]
    TooManyTerms { terms: u32 },
}

impl Error {
    /// An error of compiling: the text's, unless the device says otherwise.
    pub(crate) fn of_compiling(origin: &str, language: &'static str, error: DeviceError) -> Self {
        match error.kind() {
            Some(BackendErrorKind::Invalid) => {
                Self::Compile { origin: origin.to_owned(), language, error: Box::new(error) }
            }
            _ => Self::Device(error),
        }
    }
}
