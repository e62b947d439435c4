//! Why a device string gave no device, or a device could not be used.

use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use entry_points::message::shown;
use entry_points::{ErrorChain, LoadError, UnknownName};

use crate::backend::{BackendError, BackendErrorKind};
use crate::device::Device;
pub use crate::device::grammar::{SyntaxError, SyntaxErrorKind};
pub use crate::device::selector::SelectorError;

/// Why a device string gave no device, or a device could not be used.
///
/// `Display` tells all that is known, in several lines where a table helps; [`source`](Error::source) is the
/// backend's own chain. `Debug` is both, for those whose `main` or test returns the error.
#[derive(Clone)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device string is not well formed.
    Syntax(SyntaxError),
    /// No backend of this program has the name.
    UnknownBackend(Arc<UnknownName>),
    /// The backend is disabled, is offered twice, or did not load.
    Backend(LoadError),
    /// The backend has no device with this index.
    #[non_exhaustive]
    NoSuchDevice {
        /// What was asked for.
        device: Device,
        /// How many devices there are.
        count: usize,
    },
    /// A selector (`name@uuid=…`) fits no device of the backend, or several.
    Selector(Arc<SelectorError>),
    /// A call into the backend did not work.
    #[non_exhaustive]
    Call {
        /// The device; without an index if the call was to the backend itself.
        device: Device,
        /// What was to be done, such as `allocate`.
        call: &'static str,
        /// What the backend reported.
        error: BackendError,
    },
    /// Opening the device needs the device itself, open: directly, through others, or across threads.
    #[non_exhaustive]
    OpenCycle {
        /// The device.
        device: Device,
        /// The way round, with the same name at both ends.
        path: Arc<[String]>,
    },
    /// The bytes asked for lie outside of the buffer.
    #[non_exhaustive]
    OutOfRange {
        /// What the buffer is in the operation.
        role: BufferRole,
        /// Where the buffer is.
        device: Device,
        /// The bytes asked for. An end that overflows is `usize::MAX`.
        range: Range<usize>,
        /// The length of the buffer.
        buffer_len: usize,
    },
    /// Source and destination of a copy overlap.
    #[non_exhaustive]
    Overlap {
        /// The first byte of the source.
        source_offset: usize,
        /// The first byte of the destination, in the same buffer.
        destination_offset: usize,
        /// How many bytes were to be copied.
        len: usize,
    },
    /// A range does not begin or end where the device's copies and fills can.
    #[non_exhaustive]
    Misaligned {
        /// What the buffer is in the operation.
        role: BufferRole,
        /// Where the buffer is.
        device: Device,
        /// The bytes, as they lie in the memory of which the buffer may be a part.
        range: Range<usize>,
        /// What they have to be multiples of, in bytes.
        alignment: usize,
    },
    /// A pattern to fill with has a length that none can have, or the bytes to fill are no multiple of it.
    #[non_exhaustive]
    Pattern {
        /// Where the buffer is.
        device: Device,
        /// The length of the pattern in bytes.
        pattern_len: usize,
        /// The bytes to fill, as they lie in the memory of which the buffer may be a part.
        range: Range<usize>,
    },
    /// A buffer was given to a stream of another device.
    #[non_exhaustive]
    OtherDevice {
        /// What the buffer is in the operation.
        role: BufferRole,
        /// Where the buffer is.
        device: Device,
        /// Where the stream is.
        stream: Device,
    },
    /// A host call of a stream, a kernel or native code, none of which may use devices, has tried to.
    #[non_exhaustive]
    InHostCall {
        /// The device that it tried to use.
        device: Device,
        /// What was to be done.
        call: &'static str,
    },
    /// The device was closed, and what was made before belongs to what is closed.
    #[non_exhaustive]
    Closed {
        /// The device, which can be used again, by what is made now.
        device: Device,
        /// What was to be done.
        call: &'static str,
    },
    /// The device, or its backend, was in use when this process was forked from another one. Devices do not survive
    /// that.
    #[non_exhaustive]
    Forked {
        /// The device; without an index if it was the backend itself.
        device: Device,
    },
    /// Memory of the host, which belongs to no device, cannot be had. [`HostBuffer`](crate::HostBuffer) and
    /// [`HostMemory`](crate::backend::HostMemory) return the inner error.
    Host(BackendError),
    /// None of several devices can be used.
    NoneAvailable(Arc<NoneAvailable>),
}

/// What a buffer is in an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BufferRole {
    /// The operation reads from it.
    Source,
    /// The operation writes to it.
    Destination,
    /// A kernel was launched with it.
    Argument,
    /// A slice of it was asked for.
    Original,
}

impl fmt::Display for BufferRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Source => "source",
            Self::Destination => "destination",
            Self::Argument => "argument",
            Self::Original => "original",
        })
    }
}

impl DeviceError {
    /// What kind of thing went wrong in a call into the backend, as far as callers act on it differently.
    #[must_use]
    pub fn kind(&self) -> Option<BackendErrorKind> {
        self.backend_error().map(BackendError::kind)
    }

    /// What the backend reported, if a call into it did not work.
    #[must_use]
    pub fn backend_error(&self) -> Option<&BackendError> {
        match self {
            Self::Call { error, .. } | Self::Host(error) => Some(error),
            _ => None,
        }
    }
}

impl From<SyntaxError> for DeviceError {
    fn from(error: SyntaxError) -> Self {
        Self::Syntax(error)
    }
}

impl From<LoadError> for DeviceError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Unknown(unknown) => Self::UnknownBackend(unknown),
            other => Self::Backend(other),
        }
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(error) => error.fmt(f),
            Self::UnknownBackend(unknown) => {
                fmt_unknown_line(unknown, f)?;
                write!(f, "\n{}", unknown.report())?;
                // If a slip is likelier, or the crate may be there and not linked, the guess would mislead.
                if unknown.nearest().is_none() && unknown.is_autoloaded() {
                    fmt_crate_hint(unknown, f)
                } else {
                    Ok(())
                }
            }
            Self::Backend(error) => error.fmt(f),
            Self::NoSuchDevice { device, count } => {
                write!(f, "there is no device `{device}`: `{}` has ", device.name())?;
                match (count, device.is_cpu()) {
                    (0, _) => f.write_str("no devices"),
                    (1, true) => f.write_str("1 device, `cpu`"),
                    (1, false) => write!(f, "1 device, `{}:0`", device.name()),
                    (_, _) => write!(f, "{count} devices, `{0}:0` to `{0}:{1}`", device.name(), count - 1),
                }
            }
            Self::Selector(error) => error.fmt(f),
            Self::Call { device, call, error } => {
                write!(f, "`{device}`")?;
                // Whose code it was that ran.
                if let (Some(package), Some(version)) =
                    (device.backend().package(), device.backend().version())
                {
                    write!(f, " ({package} {version})")?;
                }
                write!(f, ": {call}: {error}")?;
                match error.kind() {
                    BackendErrorKind::Lost => {
                        f.write_str("; `Device::reset` lets it be opened afresh, where that is possible")
                    }
                    _ => Ok(()),
                }
            }
            Self::OpenCycle { device, path } => {
                write!(f, "`{device}` needs itself in order to open: {}", path.join(" -> "))
            }
            Self::OutOfRange { role, device, range, buffer_len } => {
                match range.end {
                    usize::MAX => {
                        write!(f, "bytes from {} on, more than can be addressed, are", range.start)?
                    }
                    end if end < range.start => {
                        write!(f, "bytes {range:?}, which end before they start, are")?
                    }
                    _ => write!(f, "bytes {range:?} are")?,
                }
                write!(f, " not inside of the {role}, a buffer of {buffer_len} bytes on `{device}`")
            }
            Self::Overlap { source_offset, destination_offset, len } => write!(
                f,
                "source and destination overlap: {len} bytes from byte {source_offset} to byte \
                 {destination_offset} of one buffer"
            ),
            Self::Misaligned { role, device, range, alignment } => write!(
                f,
                "bytes {range:?} of the {role}'s memory on `{device}` are not aligned: this device's copies and fills \
                 begin at multiples of {alignment} bytes, and end at one or, on both sides, at the end of the memory"
            ),
            Self::Pattern { device, pattern_len, range } => match pattern_len {
                1 | 2 | 4 | 8 | 16 => write!(
                    f,
                    "bytes {range:?} of the memory on `{device}` cannot be filled with a pattern of {pattern_len} \
                     bytes: they do not begin and end at multiples of it"
                ),
                _ => write!(
                    f,
                    "a pattern to fill with has 1, 2, 4, 8 or 16 bytes, and this one has {pattern_len}"
                ),
            },
            Self::OtherDevice { role, device, stream } => write!(
                f,
                "the {role} is a buffer on `{device}`, and the stream is of `{stream}`: work goes into a stream of \
                 the device whose memory it uses (of the destination's device for a copy)"
            ),
            Self::InHostCall { device, call } => write!(
                f,
                "`{device}`: {call}: a host call, a kernel or other native code may not use devices: do it behind the \
                 call, in the stream or after waiting for it"
            ),
            Self::Closed { device, call } => write!(
                f,
                "`{device}`: {call}: the device was closed, and with it all that was made on it before; what is made now \
                 opens it afresh"
            ),
            Self::Forked { device } => write!(
                f,
                "`{device}` was in use when this process was forked, and devices do not survive that: start processes \
                 that use devices by `std::process::Command`, or use devices in the child alone"
            ),
            Self::Host(error) => write!(f, "on the host: {error}"),
            Self::NoneAvailable(none) => none.fmt(f),
        }
    }
}

/// The one line that says what was asked for; used alone where the table stands elsewhere.
fn fmt_unknown_line(unknown: &UnknownName, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "no backend called `{}` is linked into this program", shown(unknown.asked()))?;
    match unknown.nearest() {
        Some(nearest) => write!(f, "; is `{nearest}` meant?"),
        None => Ok(()),
    }
}

/// Nobody knows all backends there are; but by custom the name tells the crate.
fn fmt_crate_hint(unknown: &UnknownName, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    // A crate's name is written with hyphens.
    let package = format!("device-{}", unknown.asked().replace('_', "-"));
    let rows = unknown.report().rows().iter();
    let offered: Vec<_> = rows.filter(|row| row.package == Some(&*package)).map(|row| row.name).collect();
    if offered.is_empty() {
        write!(
            f,
            "\nhint: backend crates are by custom named `device-NAME`, so that a crate `{package}` in Cargo.toml \
         would add it; this is a guess from the name, and there may be no such crate"
        )
    } else {
        write!(
            f,
            "\nhint: the crate `{package}` is linked, and what it offers is called `{}`",
            offered.join("`, `")
        )
    }
}

impl fmt::Debug for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ErrorChain::new(self).fmt(f)
    }
}

impl Error for DeviceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // Their own message stands in ours already; the chain goes on behind it.
            Self::Backend(error) => error.source(),
            Self::Call { error, .. } | Self::Host(error) => error.source(),
            _ => None,
        }
    }
}

/// None of several devices can be used: each with its cause.
#[derive(Clone, Debug)]
pub struct NoneAvailable {
    pub(crate) causes: Vec<(String, DeviceError)>,
}

impl NoneAvailable {
    /// Each device string in the order that it was tried, with the reason why it cannot be used.
    #[must_use]
    pub fn causes(&self) -> &[(String, DeviceError)] {
        &self.causes
    }
}

impl fmt::Display for NoneAvailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("none of these devices can be used:")?;
        let mut table = None;
        for (device, cause) in &self.causes {
            write!(f, "\n  {device}: ")?;
            match cause {
                DeviceError::UnknownBackend(unknown) => {
                    fmt_unknown_line(unknown, f)?;
                    table = Some(unknown.report());
                }
                other => f.write_str(&other.to_string().replace('\n', "\n    "))?,
            }
        }
        // Once, for all that are unknown.
        match table {
            Some(report) => write!(f, "\n{report}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BackendDescriptor;
    use crate::parse::device;

    // Without it, nobody would guess a crate: it may be there and not linked.
    crate::autoload!();

    #[test]
    fn an_unknown_name_is_told_what_is_linked_and_what_crate_might_add_it() {
        let error = device("no_such_thing:3").unwrap_err().to_string();
        assert!(
            error.starts_with("no backend called `no_such_thing` is linked into this program"),
            "{error}"
        );
        assert!(error.contains("cpu") && error.contains("built in"), "{error}");
        assert!(
            error.contains("a crate `device-no-such-thing` in Cargo.toml would add it; this is a guess"),
            "{error}"
        );
    }

    #[test]
    fn a_crate_that_is_linked_is_told_by_the_names_that_it_offers() {
        static TOY: BackendDescriptor =
            BackendDescriptor::new("renamed_toy", || unreachable!("nobody uses it"))
                .in_package("device-half-renamed", "0.1.0");
        crate::backends().register(&TOY).unwrap();
        let error = device("half_renamed").unwrap_err().to_string();
        assert!(
            error.ends_with(
                "hint: the crate `device-half-renamed` is linked, and what it offers is called `renamed_toy`"
            ),
            "{error}"
        );
    }

    #[test]
    fn a_slip_of_the_pen_is_told_the_nearest_name() {
        let error = device("cpuu").unwrap_err().to_string();
        assert!(error.lines().next().unwrap().ends_with("is `cpu` meant?"), "{error}");
        assert!(!error.contains("`device-cpuu`"), "{error}");
    }

    #[test]
    fn the_count_stands_in_the_message_of_an_index_that_is_too_large() {
        let error = device("cpu:1").unwrap().allocate(1).unwrap_err();
        assert_eq!(error.to_string(), "there is no device `cpu:1`: `cpu` has 1 device, `cpu`");
    }

    #[test]
    fn the_source_of_a_backends_error_is_the_source_of_ours() {
        let error = BackendError::lost("gone").with_source(std::io::Error::other("Xid 79"));
        let error = DeviceError::Call { device: Device::cpu(), call: "read", error };
        let expected = concat!(
            "`cpu` (device-registry ",
            env!("CARGO_PKG_VERSION"),
            "): read: device lost: gone; `Device::reset` lets it be opened afresh, where that is possible"
        );
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.source().unwrap().to_string(), "Xid 79");
        assert_eq!(format!("{error:?}"), format!("{expected}\ncaused by: Xid 79"));
    }

    #[test]
    fn an_error_is_small_enough_to_return() {
        assert!(size_of::<DeviceError>() <= 96, "{}", size_of::<DeviceError>());
    }
}
