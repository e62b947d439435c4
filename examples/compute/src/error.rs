//! The errors of this program, in addition to the devices'.

use std::io;
use std::path::PathBuf;

use device_registry::registry::LoadError;
use device_registry::{Device, DeviceError};

use crate::work::Work;

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
    /// The source has the compiler's log.
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
    #[error("to {work} takes buffers of {expected:?} bytes, and these have {found:?}")]
    Lengths { work: Work, found: [usize; 3], expected: [usize; 3] },
    /// The device computes something else than the cpu.
    #[error(
        "the result is wrong: element {index} is {found} and on the cpu {expected}; {count} of {len} elements differ"
    )]
    Wrong { index: usize, found: f32, expected: f32, count: usize, len: usize },
}
