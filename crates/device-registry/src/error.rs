//! Why a device string gave no device, or a device could not be used.

use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use entry_points::message::{and, did_you_mean, shown};
use entry_points::{ErrorChain, LoadError, UnknownName};

use crate::backend::{BackendError, BackendErrorKind, DeviceKind};
use crate::device::Device;
pub use crate::device::grammar::{SyntaxError, SyntaxErrorKind};
use crate::device::list::{DEFAULT_VARIABLE, is_kind};
pub use crate::device::selector::SelectorError;

/// Why a device string gave no device, or a device could not be used.
///
/// `Display` writes the whole message, in several lines where a table helps. [`source`](Error::source) is the
/// backend's own chain of causes. `Debug` writes both, so that a `main` or a test that returns the error
/// prints a readable one.
#[derive(Clone)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device string is not well formed.
    Syntax(SyntaxError),
    /// No backend of this program has the name.
    UnknownBackend(Arc<UnknownName>),
    /// The backend is disabled, two packages offer it, or it failed to load.
    Backend(LoadError),
    /// The backend has no device with this index.
    #[non_exhaustive]
    NoSuchDevice {
        /// The device that does not exist.
        device: Device,
        /// How many devices the backend has.
        count: usize,
    },
    /// A selector (`name@uuid=…`) matches no device of the backend, or several.
    Selector(Arc<SelectorError>),
    /// A call into the backend failed.
    #[non_exhaustive]
    Call {
        /// The device; without an index if the call was to the backend itself.
        device: Device,
        /// The call that failed, such as `allocate`.
        call: &'static str,
        /// The error that the backend returned.
        error: BackendError,
    },
    /// Opening the device requires the same device to be open: directly, through other devices, or across
    /// threads.
    #[non_exhaustive]
    OpenCycle {
        /// The device.
        device: Device,
        /// The names along the cycle: the first and the last are the same.
        path: Arc<[String]>,
    },
    /// The requested bytes lie outside of the buffer.
    #[non_exhaustive]
    OutOfRange {
        /// The buffer's role in the operation.
        role: BufferRole,
        /// The device of the buffer.
        device: Device,
        /// The requested bytes. An end that overflows is `usize::MAX`.
        range: Range<usize>,
        /// The length of the buffer.
        buffer_len: usize,
    },
    /// Source and destination of a copy differ in length.
    #[non_exhaustive]
    LengthMismatch {
        /// The device of the source.
        source: Device,
        /// The length of the source in bytes.
        source_len: usize,
        /// The device of the destination.
        destination: Device,
        /// The length of the destination in bytes.
        destination_len: usize,
    },
    /// Source and destination of a copy overlap.
    #[non_exhaustive]
    Overlap {
        /// The first byte of the source.
        source_offset: usize,
        /// The first byte of the destination, in the same buffer.
        destination_offset: usize,
        /// The length of the copy in bytes.
        len: usize,
    },
    /// A range starts or ends at an offset that is not aligned as the device's copies and fills require.
    #[non_exhaustive]
    Misaligned {
        /// The buffer's role in the operation.
        role: BufferRole,
        /// The device of the buffer.
        device: Device,
        /// The bytes, counted from the start of the memory that contains the buffer.
        range: Range<usize>,
        /// The required alignment in bytes.
        alignment: usize,
    },
    /// A fill pattern has an invalid length, or the range to fill is not aligned to that length.
    #[non_exhaustive]
    Pattern {
        /// The device of the buffer.
        device: Device,
        /// The length of the pattern in bytes.
        pattern_len: usize,
        /// The bytes to fill, counted from the start of the memory that contains the buffer.
        range: Range<usize>,
    },
    /// A buffer was passed to a stream of another device.
    #[non_exhaustive]
    OtherDevice {
        /// The buffer's role in the operation.
        role: BufferRole,
        /// The device of the buffer.
        device: Device,
        /// The device of the stream.
        stream: Device,
    },
    /// The device exists and is [not there now](crate::Presence::Absent). Each use looks again.
    #[non_exhaustive]
    Absent {
        /// The device, which keeps its index.
        device: Device,
        /// Why it is not there.
        reason: BackendError,
    },
    /// A host call, a kernel or native code tried to use a device. None of them may.
    #[non_exhaustive]
    InHostCall {
        /// The device that it tried to use.
        device: Device,
        /// The call that was refused.
        call: &'static str,
    },
    /// A call with a time limit did not finish in time. The work continues, and owns what it uses.
    #[non_exhaustive]
    TimedOut {
        /// The device.
        device: Device,
        /// The call.
        call: &'static str,
        /// Its time limit.
        timeout: Duration,
        /// What is not done yet.
        pending: Arc<str>,
    },
    /// The device was closed after this buffer, stream or event was created, and closing it ended them.
    #[non_exhaustive]
    Closed {
        /// The device. It can be used again, with new buffers, streams and events.
        device: Device,
        /// The call that was refused.
        call: &'static str,
    },
    /// The device, or its backend, was in use when this process was forked from another one. Devices do not
    /// survive a fork.
    #[non_exhaustive]
    Forked {
        /// The device; without an index if it was the backend itself.
        device: Device,
    },
    /// An allocation of host memory that belongs to no device failed. [`HostBuffer`](crate::HostBuffer) and
    /// [`HostMemory`](crate::backend::HostMemory) return the inner error.
    Host(BackendError),
    /// None of several devices can be used.
    NoneAvailable(Arc<NoneAvailable>),
    /// No device matches an item of a [list](crate::Selection), such as `opencl:gpu`.
    NoMatch(Arc<NoMatch>),
    /// A part of a [list](crate::Selection) excludes a device or a backend.
    #[non_exhaustive]
    Excluded {
        /// The device, or the name of the backend.
        what: Arc<str>,
        /// The part: `!wgpu`.
        exclusion: Arc<str>,
    },
    /// The string is `auto`, and there is no [default selection](crate::default_selection).
    NoDefaultSelection,
    /// The [default selection](crate::default_selection) is not a valid list.
    #[non_exhaustive]
    DefaultSelection {
        /// Its origin: the variable's name, or `the program`.
        origin: &'static str,
        /// What is wrong with it.
        error: SyntaxError,
    },
}

/// The role of a buffer in an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BufferRole {
    /// The operation reads from it.
    Source,
    /// The operation writes to it.
    Destination,
    /// It is an argument of a kernel.
    Argument,
    /// It is the buffer that a slice is taken from.
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
    /// The kind of the backend's error, for a caller that reacts to each kind differently. `None` if the
    /// error does not come from a backend or from an allocation of host memory.
    #[must_use]
    pub fn kind(&self) -> Option<BackendErrorKind> {
        self.backend_error().map(BackendError::kind)
    }

    /// The error that the backend, or an allocation of host memory, returned. `None` for every other error.
    #[must_use]
    pub fn backend_error(&self) -> Option<&BackendError> {
        match self {
            Self::Call { error, .. } | Self::Host(error) | Self::Absent { reason: error, .. } => Some(error),
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
                write!(f, "\n{}", unknown.table())?;
                fmt_crate_hint(unknown, f)
            }
            Self::Backend(error) => error.fmt(f),
            Self::NoSuchDevice { device, count } => {
                let name = device.name();
                write!(f, "unknown device index {}: `{name}` has ", device.ordinal())?;
                match (count, device.is_cpu()) {
                    (0, _) => f.write_str("no devices"),
                    (1, true) => f.write_str("1 device (`cpu`)"),
                    (1, false) => write!(f, "1 device (`{name}:0`)"),
                    (_, _) => write!(f, "{count} devices (`{name}:0` to `{name}:{}`)", count - 1),
                }
            }
            Self::Selector(error) => error.fmt(f),
            Self::Absent { device, reason } => {
                fmt_with_package(*device, f)?;
                write!(f, " is absent: {}; the next use looks again", reason.message())
            }
            Self::Call { device, call, error } => {
                fmt_with_package(*device, f)?;
                write!(f, ": {call}: {error}")?;
                if error.kind() == BackendErrorKind::Lost {
                    f.write_str(
                        "; after `Device::reset`, the next use opens the device again where the driver can",
                    )?;
                }
                Ok(())
            }
            Self::OpenCycle { device, path } => {
                write!(f, "`{device}` needs itself to open: {}", path.join(" -> "))
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
            Self::LengthMismatch { source, source_len, destination, destination_len } => write!(
                f,
                "a copy of {source_len} bytes on `{source}` to {destination_len} bytes on `{destination}`: expected one \
                 length; copy a `slice` of the longer buffer"
            ),
            Self::Overlap { source_offset, destination_offset, len } => write!(
                f,
                "source and destination overlap: {len} bytes from byte {source_offset} to byte \
                 {destination_offset} of one buffer"
            ),
            Self::Misaligned { role, device, range, alignment } => write!(
                f,
                "bytes {range:?} of the {role}'s memory on `{device}` are misaligned: expected a start at a multiple of \
                 {alignment} bytes, and an end at a multiple or at the end of the memory (of both memories in a copy)"
            ),
            Self::Pattern { device, pattern_len, range } => match pattern_len {
                1 | 2 | 4 | 8 | 16 => write!(
                    f,
                    "misaligned fill of bytes {range:?} of the memory on `{device}`: expected a start and an end at \
                     multiples of the pattern's {pattern_len} bytes"
                ),
                _ => write!(f, "invalid fill pattern: expected 1, 2, 4, 8 or 16 bytes, found {pattern_len}"),
            },
            Self::OtherDevice { role, device, stream } => write!(
                f,
                "the {role} is a buffer on `{device}`: expected one on `{stream}`, the device of the stream; enqueue \
                 the work in a stream of the buffer's device (for a copy, of the destination's device)"
            ),
            Self::InHostCall { device, call } => write!(
                f,
                "`{device}`: {call}: a host call, a kernel or other native code may not use devices; enqueue the work \
                 in the stream, or wait for the stream and do it then"
            ),
            Self::TimedOut { device, call, timeout, pending } => {
                write!(f, "`{device}`: {call}: not done after {timeout:?}, and the work goes on: {pending}")
            }
            Self::Closed { device, call } => write!(
                f,
                "`{device}`: {call}: the device was closed, and its buffers, streams and events ended with it; new ones \
                 open the device again"
            ),
            Self::Forked { device } => write!(
                f,
                "`{device}` was in use when this process was forked, and devices do not survive a fork; start processes \
                 with `std::process::Command`, or use devices in the child alone"
            ),
            Self::Host(error) => write!(f, "on the host: {error}"),
            Self::NoneAvailable(none) => none.fmt(f),
            Self::NoMatch(none) => none.fmt(f),
            Self::Excluded { what, exclusion } => {
                write!(f, "`{}` is excluded by `{}`", shown(what), shown(exclusion))
            }
            Self::NoDefaultSelection => write!(
                f,
                "`auto` is the list of devices in the variable {DEFAULT_VARIABLE}, which is not set; set it, as in \
                 {DEFAULT_VARIABLE}=cuda,opencl:gpu,cpu, or name a device"
            ),
            Self::DefaultSelection { origin, error } => write!(f, "{origin}: {error}"),
        }
    }
}

/// Writes the device, and the package of its backend.
fn fmt_with_package(device: Device, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "`{device}`")?;
    match (device.backend().package(), device.backend().version()) {
        (Some(package), Some(version)) => write!(f, " ({package} {version})"),
        _ => Ok(()),
    }
}

/// Writes the first line of the message: the list of [`NoneAvailable`] uses only this line, and prints the
/// table once.
fn fmt_unknown_line(unknown: &UnknownName, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let asked = shown(unknown.asked());
    let similar = unknown.nearest().map(str::to_owned).or_else(|| kind_pattern(unknown));
    let similar = did_you_mean(similar);
    write!(f, "no backend called `{asked}` is linked into this program or installed{similar}")
}

/// `*:gpu` for `gpu`: a kind of device that was taken for a backend.
fn kind_pattern(unknown: &UnknownName) -> Option<String> {
    let asked = unknown.asked().to_ascii_lowercase();
    is_kind(&asked).then(|| format!("*:{asked}"))
}

/// Writes a guess at the crate, unless it would mislead: after a likely typing error, or where the crate may
/// be present and unlinked. There is no list of all backends, but by convention crates are named after their
/// backend.
fn fmt_crate_hint(unknown: &UnknownName, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if unknown.nearest().is_some() || kind_pattern(unknown).is_some() || !unknown.is_autoloaded() {
        return Ok(());
    }
    // A crate's name is written with hyphens.
    let package = format!("device-{}", unknown.asked().replace('_', "-"));
    let rows = unknown.report().rows().iter().filter(|row| row.package == Some(&*package));
    let linked = rows.clone().any(|row| row.file.is_none());
    let offered: Vec<_> = rows.map(|row| row.name).collect();
    let name_in_code = package.replace('-', "_");
    if offered.is_empty() && unknown.report().without_block().contains(&&*name_in_code) {
        write!(
            f,
            "\nhint: the crate `{package}` is linked and has no `entry_points!` block in this build: perhaps a feature of \
             it is off, as by `default-features = false`"
        )
    } else if offered.is_empty() {
        write!(
            f,
            "\nhint: backend crates are named `device-NAME` by convention, so `{package}` in this program's Cargo.toml \
             would add it, or `autoload!()` in a library that depends on it; this is a guess from the name, and the \
             crate may not exist"
        )
    } else {
        let linked = if linked { "linked" } else { "installed" };
        write!(f, "\nhint: the crate `{package}` is {linked} and offers `{}`", offered.join("`, `"))
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
            // This error's message contains theirs, so the chain continues with their source: otherwise it
            // would print them twice.
            Self::Backend(error) => error.source(),
            Self::Call { error, .. } | Self::Host(error) | Self::Absent { reason: error, .. } => {
                error.source()
            }
            _ => None,
        }
    }
}

/// The error of [`first_available`](crate::first_available) and [`choose`](crate::choose) when they can use
/// none of the devices: the cause for each.
#[derive(Clone, Debug)]
pub struct NoneAvailable {
    pub(crate) causes: Vec<(String, DeviceError)>,
    pub(crate) declined: Vec<Device>,
}

impl NoneAvailable {
    /// The devices, backends and items of the list in the order in which they were tried, each with the
    /// reason why it cannot be used.
    #[must_use]
    pub fn causes(&self) -> &[(String, DeviceError)] {
        &self.causes
    }

    /// The devices that could be used, and that the program [did not choose](crate::choose).
    #[must_use]
    pub fn declined(&self) -> &[Device] {
        &self.declined
    }
}

impl fmt::Display for NoneAvailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.declined.is_empty() {
            let names: Vec<_> = self.declined.iter().map(|device| format!("`{device}`")).collect();
            write!(f, "the program chose none of {}", and(&names))?;
            if self.causes.is_empty() {
                return Ok(());
            }
            f.write_str("; ")?;
        }
        f.write_str("none of these devices can be used:")?;
        let mut first_unknown = None;
        for (device, cause) in &self.causes {
            write!(f, "\n  {device}: ")?;
            match cause {
                DeviceError::UnknownBackend(unknown) => {
                    fmt_unknown_line(unknown, f)?;
                    first_unknown.get_or_insert(unknown);
                }
                other => f.write_str(&other.to_string().replace('\n', "\n    "))?,
            }
        }
        // One table serves all unknown names, as it lists the same backends for each. The one that the list
        // prefers is the one that was expected.
        match first_unknown {
            Some(unknown) => {
                write!(f, "\n{}", unknown.table())?;
                fmt_crate_hint(unknown, f)
            }
            None => Ok(()),
        }
    }
}

/// The error of an item of a list that no device matches.
#[derive(Clone, Debug)]
pub struct NoMatch {
    pub(crate) pattern: String,
    pub(crate) others: Vec<(Device, DeviceKind)>,
}

impl NoMatch {
    /// The devices that the item was compared with, each with its kind.
    #[must_use]
    pub fn others(&self) -> &[(Device, DeviceKind)] {
        &self.others
    }
}

impl fmt::Display for NoMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` matches no device", shown(&self.pattern))?;
        let others: Vec<_> =
            self.others.iter().map(|(device, kind)| format!("`{device}` is of kind {kind}")).collect();
        if others.is_empty() { f.write_str(": there is none") } else { write!(f, ": {}", and(&others)) }
    }
}

#[cfg(test)]
mod tests {
    use entry_points::Installed;

    use super::*;
    use crate::backend::BackendDescriptor;
    use crate::parse::device;

    // Without it the error guesses no crate, as one may be present and not linked.
    crate::autoload!();

    #[test]
    fn the_error_of_an_unknown_name_lists_what_is_linked_and_guesses_the_crate() {
        let error = device("no_such_thing:3").unwrap_err().to_string();
        assert!(
            error.starts_with("no backend called `no_such_thing` is linked into this program or installed\n"),
            "{error}"
        );
        assert!(error.contains("cpu") && error.contains("built in"), "{error}");
        assert!(
            error.contains(
                "so `device-no-such-thing` in this program's Cargo.toml would add it, or `autoload!()` in"
            ),
            "{error}"
        );
    }

    #[test]
    fn the_hint_for_a_linked_crate_lists_the_names_that_it_offers() {
        static TOY: BackendDescriptor =
            BackendDescriptor::new("renamed_toy", || unreachable!("no test loads it"))
                .in_package("device-half-renamed", "0.1.0");
        crate::backends().register(&TOY).unwrap();
        let error = device("half_renamed").unwrap_err().to_string();
        assert!(
            error.ends_with("hint: the crate `device-half-renamed` is linked and offers `renamed_toy`"),
            "{error}"
        );
    }

    #[test]
    fn the_hint_for_an_installed_package_says_so() {
        let load = |_: &_| unreachable!("no test loads it");
        let installed =
            Installed::new("renamed_file", "/renamed.so", load).package("device-in-a-file", "0.1.0");
        crate::backends().install(installed).unwrap();
        let error = device("in_a_file").unwrap_err().to_string();
        assert!(
            error.ends_with("the crate `device-in-a-file` is installed and offers `renamed_file`"),
            "{error}"
        );
    }

    #[test]
    fn the_error_of_a_misspelt_name_suggests_the_nearest_one() {
        let error = device("cpuu").unwrap_err().to_string();
        assert!(error.lines().next().unwrap().ends_with("did you mean `cpu`?"), "{error}");
        assert!(!error.contains("`device-cpuu`"), "{error}");
    }

    #[test]
    fn a_kind_that_was_taken_for_a_backend_is_suggested_as_a_pattern() {
        for (text, pattern) in [("gpu", "*:gpu"), ("accelerator:1", "*:accelerator")] {
            let error = device(text).unwrap_err().to_string();
            let expected = format!("did you mean `{pattern}`?");
            assert!(error.lines().next().unwrap().ends_with(&expected), "{error}");
            assert!(!error.contains("hint: "), "{error}");
        }
        let error = device("npu").unwrap_err().to_string();
        assert!(error.contains("`device-npu` in this program's Cargo.toml"), "{error}");
    }

    #[test]
    fn an_unknown_name_in_a_list_has_the_hint_of_its_own_error() {
        let error = crate::first_available("no_such_thing:3,another").unwrap_err().to_string();
        assert!(error.contains("`device-no-such-thing` in this program's Cargo.toml"), "{error}");
        assert_eq!(error.matches("hint: ").count(), 1, "{error}");
        let error = crate::first_available("cpuu").unwrap_err().to_string();
        assert!(!error.contains("hint: "), "{error}");
    }

    #[test]
    fn the_error_of_an_index_that_is_too_large_states_the_count() {
        let error = device("cpu:1").unwrap().allocate(1).unwrap_err();
        assert_eq!(error.to_string(), "unknown device index 1: `cpu` has 1 device (`cpu`)");
    }

    #[test]
    fn the_source_of_a_backends_error_is_the_source_of_the_device_error() {
        let error = BackendError::lost("gone").with_source(std::io::Error::other("Xid 79"));
        let error = DeviceError::Call { device: Device::cpu(), call: "read", error };
        let expected = concat!(
            "`cpu` (device-registry ",
            env!("CARGO_PKG_VERSION"),
            "): read: device lost: gone; after `Device::reset`, the next use opens the device again where the driver can"
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
