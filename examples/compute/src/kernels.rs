//! Kernels: the group of their languages, compiled kernels, and the launch.
//!
//! ```text
//! let kernels = Kernels::compile(device, None)?;          // once for a device
//! kernels.add(&stream, [&a, &b, &sum])?;                  // as often as wanted, in any stream of the device
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
use device_registry::{Buffer, Device, DeviceError, Stream};
use entry_points::EntryPoint;

use crate::error::Error;

/// The kernels of one backend: the language that they are written in, and how they come to its devices.
pub trait Language: Send + Sync {
    /// Such as `OpenCL C`.
    fn name(&self) -> &'static str;

    /// How they come to a device.
    fn form(&self) -> Form<'_>;
}

/// How kernels come to a device.
pub enum Form<'a> {
    /// They were compiled with this program, and are for every device of the backend.
    Linked(Arc<dyn NativeKernels>),
    /// They are text, compiled for each device.
    Text {
        /// The text that is compiled by default.
        built_in: &'static str,
        /// The compiler.
        compiler: &'a dyn Compiler,
    },
}

/// Compiles text for a backend's devices.
pub trait Compiler {
    /// Compiles for a device.
    ///
    /// # Errors
    ///
    /// Of the kind [`Invalid`](device_registry::BackendErrorKind::Invalid), with the compiler's log, if the
    /// text is at fault.
    fn compile(&self, device: Device, text: &str) -> Result<Arc<dyn NativeKernels>, DeviceError>;
}

/// Kernels that are compiled for one device. They are called in a launch, and submit to its stream.
///
/// The bytes of the spans are as many as the lengths say, and begin wherever they like in their memory, which
/// may be one for all three.
pub trait NativeKernels: Send + Sync {
    /// `sum[i] = a[i] + b[i]`, with `len` elements.
    fn add(&self, launch: &Launch<'_>, spans: [&Span; 3], len: u32) -> Result<(), BackendError>;

    /// `product = a * b`: matrices by rows.
    fn matmul(&self, launch: &Launch<'_>, spans: [&Span; 3], shape: Shape) -> Result<(), BackendError>;
}

entry_points::group! {
    /// The distributed slice that kernels register in.
    pub static KERNELS: [EntryPoint<dyn Language>];

    /// The group `compute.kernels`, by the names of the backends. Variables with the prefix `COMPUTE_KERNELS`
    /// switch its entries on and off.
    pub fn kernel_sets() -> Group<dyn Language> {
        entry_points::Group::new("compute.kernels").noun("kernel set").switches("COMPUTE_KERNELS")
    }
}

/// Kernels for one device, compiled.
///
/// The caller owns them, and each launch keeps them until the device is done; the last drop frees them. They
/// belong to the open device: after a close or a reset, compile them again. A framework would keep the
/// kernels of each device in a map, and remove them then.
pub(crate) struct Kernels {
    device: Device,
    language: &'static dyn Language,
    native: Arc<dyn NativeKernels>,
}

impl Kernels {
    /// Compiles `text`, or what is built in, for a device, which opens it. Where kernels were compiled with
    /// this program, nothing is opened.
    ///
    /// # Errors
    ///
    /// [`Error::NoKernels`], [`Error::NoText`], [`Error::Compile`], or the device's error.
    pub(crate) fn compile(device: Device, text: Option<Text>) -> Result<Self, Error> {
        // The current device may be another one later.
        let device = device.resolve();
        // First, as the error for a device that does not exist is more helpful. It opens no device.
        device.properties()?;
        let language =
            kernel_sets().load(device.name()).map_err(|error| Error::NoKernels { device, error })?;
        let name = language.name();
        let native = match (language.form(), text) {
            (Form::Linked(native), None) => native,
            (Form::Linked(_), Some(Text { origin, .. })) => {
                return Err(Error::NoText { device, origin, language: name });
            }
            (Form::Text { built_in, compiler }, text) => {
                let text = text.unwrap_or_else(|| Text::built_in(built_in));
                compiler
                    .compile(device, &text.text)
                    .map_err(|error| Error::of_compiling(&text.origin, name, error))?
            }
        };
        Ok(Self { device, language, native })
    }

    /// Their language.
    pub(crate) fn language(&self) -> &'static str {
        self.language.name()
    }

    /// Puts `sum = a + b` in a stream: vectors of `f32`, all of one length. `sum` overlaps neither.
    pub(crate) fn add(&self, stream: &Stream, [a, b, sum]: [&Buffer; 3]) -> Result<(), Error> {
        let len = u32::try_from(sum.len() / 4).unwrap_or(u32::MAX);
        check_lengths("vectors", [a, b, sum], [bytes(len); 3])?;
        self.launch(stream, [a, b, sum], move |native, launch, spans| native.add(launch, spans, len))
    }

    /// Puts `product = a * b` in a stream: matrices of `f32`, by rows. `product` overlaps neither.
    pub(crate) fn matmul(
        &self,
        stream: &Stream,
        [a, b, product]: [&Buffer; 3],
        shape: Shape,
    ) -> Result<(), Error> {
        check_lengths("matrices", [a, b, product], shape.lens().map(bytes))?;
        self.launch(stream, [a, b, product], move |native, launch, spans| native.matmul(launch, spans, shape))
    }

    fn launch(
        &self,
        stream: &Stream,
        buffers: [&Buffer; 3],
        kernel: impl FnOnce(&dyn NativeKernels, &Launch<'_>, [&Span; 3]) -> Result<(), BackendError>
        + Send
        + 'static,
    ) -> Result<(), Error> {
        if stream.device() != self.device {
            return Err(Error::OtherDevice { device: self.device, stream: stream.device() });
        }
        let native = Arc::clone(&self.native);
        let launched = stream.launch(&buffers, move |launch| {
            // Without bytes there is nothing to compute.
            let [Some(a), Some(b), Some(result)] = launch.spans() else { return Ok(()) };
            // The device may still run it when everybody else has dropped it.
            launch.keep(Arc::clone(&native));
            kernel(&*native, launch, [a, b, result])
        });
        Ok(launched?)
    }
}

/// The shapes of a product: `rows` x `inner` times `inner` x `columns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    rows: u32,
    inner: u32,
    columns: u32,
}

impl Shape {
    /// `None` if a matrix has no elements, or more than kernels can count.
    pub(crate) fn new(rows: u32, inner: u32, columns: u32) -> Option<Self> {
        let matrices = [(rows, inner), (inner, columns), (rows, columns)];
        let fits = matrices.iter().all(|&(m, n)| m.checked_mul(n).is_some_and(|len| len > 0));
        fits.then_some(Self { rows, inner, columns })
    }

    /// The rows of the first factor, and of the product.
    pub(crate) fn rows(self) -> u32 {
        self.rows
    }

    /// The columns of the first factor, and the rows of the second: as many products are added up for an
    /// element.
    pub(crate) fn inner(self) -> u32 {
        self.inner
    }

    /// The columns of the second factor, and of the product.
    pub(crate) fn columns(self) -> u32 {
        self.columns
    }

    /// The elements of both factors and the product.
    pub(crate) fn lens(self) -> [u32; 3] {
        [self.rows * self.inner, self.inner * self.columns, self.rows * self.columns]
    }
}

/// How many bytes this many `f32` have.
pub(crate) fn bytes(len: u32) -> usize {
    // Where `usize` has 32 bits, some are more than there can be: no device has so many.
    (len as usize).saturating_mul(size_of::<f32>())
}

/// The only check of lengths: a device may read beyond its memory if they are wrong.
fn check_lengths(what: &'static str, buffers: [&Buffer; 3], expected: [usize; 3]) -> Result<(), Error> {
    let found = buffers.map(Buffer::len);
    if found == expected { Ok(()) } else { Err(Error::Lengths { what, found, expected }) }
}

/// Kernels as they are written.
pub(crate) struct Text {
    text: String,
    /// Where it is from.
    origin: String,
}

impl Text {
    /// The text of a file, in UTF-8.
    pub(crate) fn from_file(path: &Path) -> Result<Self, Error> {
        let text =
            fs::read_to_string(path).map_err(|error| Error::Unreadable { path: path.to_owned(), error })?;
        Ok(Self { text, origin: path.display().to_string() })
    }

    fn built_in(text: &str) -> Self {
        Self { text: text.to_owned(), origin: "the built-in text".to_owned() }
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
