//! Kernels: the group of their languages, compiled kernels, and the launch.
//!
//! ```text
//! let kernels = Kernels::compile(device, None)?;                       // once for a device
//! kernels.launch(&stream, Work::Add { len }, [&a, &b, &sum])?;         // as often as wanted, in any stream
//! stream.synchronize()?;
//! ```
//!
//! Each backend's kernels stand in their own module, and register in the group `compute.kernels` by the
//! name of the backend: see the block `entry_points!` in main.rs. Nothing here names one.

#[cfg(test)]
mod tests;

// Native handles are what they are about; each says why what it does with them holds.
#[cfg(feature = "cuda")]
#[allow(unsafe_code)]
pub(crate) mod cuda;
pub(crate) mod host;
#[cfg(feature = "opencl-kernels")]
#[allow(unsafe_code)]
pub(crate) mod opencl;
#[cfg(feature = "wgpu")]
pub(crate) mod wgpu;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use device_registry::backend::{BackendError, Launch, Span};
use device_registry::{BackendErrorKind, Buffer, Device, DeviceError, Stream};
use entry_points::EntryPoint;

use crate::error::Error;
use crate::work::Work;

/// The kernels of one backend: the language that they are written in, and how they come to its devices.
pub struct Language {
    /// Such as `OpenCL C`.
    pub(crate) name: &'static str,
    /// The text that is compiled by default. `None` if the kernels were compiled with this program.
    built_in: Option<&'static str>,
    /// Compiles a text for a device. The error is of the kind [`Invalid`](BackendErrorKind::Invalid), with
    /// the compiler's log, if the text is at fault.
    compile: fn(Device, &str) -> Compiled,
}

pub(crate) type Compiled = Result<Arc<dyn NativeKernels>, DeviceError>;

/// Kernels that are compiled for one device.
pub(crate) trait NativeKernels: Send + Sync {
    /// Submits a kernel to the stream of the launch. Both operands and the result have as many bytes as the
    /// work says, and begin wherever they like in their memory, which may be one for all three.
    fn enqueue(&self, launch: &Launch<'_>, work: Work, spans: [&Span; 3]) -> Result<(), BackendError>;
}

entry_points::group! {
    /// The distributed slice that kernels register in.
    pub(crate) static KERNELS: [EntryPoint<Language>];

    /// The group `compute.kernels`, by the names of the backends. Variables with the prefix `COMPUTE_KERNELS`
    /// switch its entries on and off.
    pub(crate) fn kernel_sets() -> Group<Language> {
        entry_points::Group::new("compute.kernels").noun("kernel set").switches("COMPUTE_KERNELS")
    }
}

/// Kernels for one device, compiled.
///
/// The caller owns them, and each launch keeps them until the device is done; the last drop frees them. They
/// belong to the open device: after a close or a reset, compile them again. A framework would keep the
/// kernels of each device in a map, and remove them then.
pub(crate) struct Kernels {
    pub(crate) device: Device,
    /// The name of their language.
    pub(crate) language: &'static str,
    native: Arc<dyn NativeKernels>,
}

impl Kernels {
    /// Compiles a file, or the built-in text, for a device, which opens it. Where kernels were compiled with
    /// this program, nothing is opened.
    ///
    /// # Errors
    ///
    /// [`Error::NoKernels`], [`Error::NoText`], [`Error::Unreadable`], [`Error::Compile`], or the device's.
    pub(crate) fn compile(device: Device, file: Option<&Path>) -> Result<Self, Error> {
        // The current device may be another one later.
        let device = device.resolve();
        let set = kernel_sets().load(device.name()).map_err(|error| Error::NoKernels { device, error })?;
        let language = set.name;
        let origin = file.map_or("the built-in text".to_owned(), |file| file.display().to_string());
        let text = match file {
            Some(path) => fs::read_to_string(path)
                .map_err(|error| Error::Unreadable { path: path.to_owned(), error })?,
            None => set.built_in.unwrap_or_default().to_owned(),
        };
        if file.is_some() && set.built_in.is_none() {
            return Err(Error::NoText { device, origin, language });
        }
        let native = (set.compile)(device, &text).map_err(|error| match error.kind() {
            Some(BackendErrorKind::Invalid) => Error::Compile { origin, language, error: Box::new(error) },
            _ => Error::Device(error),
        })?;
        Ok(Self { device, language, native })
    }

    /// Enqueues work in a stream of their device. The buffers are both operands and the result, which
    /// overlaps neither.
    ///
    /// # Errors
    ///
    /// [`Error::Lengths`], [`Error::OtherDevice`], or the device's.
    pub(crate) fn launch(&self, stream: &Stream, work: Work, buffers: [&Buffer; 3]) -> Result<(), Error> {
        // The only check of lengths: a device may read beyond its memory if they are wrong.
        let expected = work.sizes();
        let found = buffers.map(Buffer::len);
        if found != expected {
            return Err(Error::Lengths { work, found, expected });
        }
        if stream.device() != self.device {
            return Err(Error::OtherDevice { device: self.device, stream: stream.device() });
        }
        let native = Arc::clone(&self.native);
        let launched = stream.launch(&buffers, move |launch| {
            // Without bytes there is nothing to compute.
            let [Some(a), Some(b), Some(result)] = launch.spans() else { return Ok(()) };
            // The device may still run it when everybody else has dropped it.
            launch.keep(Arc::clone(&native));
            native.enqueue(launch, work, [a, b, result])
        });
        Ok(launched?)
    }
}

/// Where the first element of a span is in its memory, counted in elements.
#[cfg(any(feature = "cuda", feature = "opencl-kernels", feature = "wgpu"))]
fn first_element(span: &Span) -> Result<usize, BackendError> {
    let offset = span.offset();
    if offset.is_multiple_of(size_of::<f32>()) {
        Ok(offset / size_of::<f32>())
    } else {
        Err(BackendError::invalid(format_args!(
            "an operand begins at byte {offset} of its memory, and a device reads `f32` at multiples of 4"
        )))
    }
}
