//! Whether a device is there at the moment.

use std::fmt;

use crate::backend::BackendError;

/// Whether a device that a backend counts can be used at the moment.
///
/// A device that is configured and not there keeps its index: a server that is down, a card that another
/// process has for itself, hardware that can be unplugged. The other devices keep theirs.
///
/// ```
/// use device_registry::{Presence, device};
///
/// match device("cpu")?.presence()? {
///     Presence::Present => println!("ready"),
///     Presence::Absent(reason) => println!("not there: {}", reason.message()),
///     Presence::Lost(reason) => println!("lost: {}", reason.message()),
///     _ => {}
/// }
/// # Ok::<(), device_registry::DeviceError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Presence {
    /// The device can be opened, or is open.
    Present,
    /// The device is not there now, for this reason. It may turn up later: each use looks again.
    Absent(BackendError),
    /// The device was open and is lost, for this reason. [`Device::reset`](crate::Device::reset) may recover
    /// it.
    Lost(BackendError),
}

impl Presence {
    /// A device that is not there now. The reason is in lower case and has no full stop.
    #[must_use]
    pub fn absent(reason: impl fmt::Display) -> Self {
        Self::Absent(BackendError::unavailable(reason))
    }

    /// Whether the device can be used.
    #[must_use]
    pub fn is_present(&self) -> bool {
        matches!(self, Self::Present)
    }

    /// Why the device cannot be used. `None` if it is present.
    #[must_use]
    pub fn reason(&self) -> Option<&BackendError> {
        match self {
            Self::Present => None,
            Self::Absent(reason) | Self::Lost(reason) => Some(reason),
        }
    }
}

impl fmt::Display for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present => f.pad("present"),
            Self::Absent(reason) => write!(f, "absent: {}", reason.message()),
            Self::Lost(reason) => write!(f, "lost: {}", reason.message()),
        }
    }
}
