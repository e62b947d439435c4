//! Addresses without memory: each device has a range of them, where the host can neither read nor write.

use std::ptr;
use std::sync::{Once, OnceLock};

use crate::devices;
use crate::failure::Failure;

/// What a device has at most.
const MOST_FOR_DEVICE: usize = 1 << 40;
/// With less, a device has no room for its memory.
const LEAST_FOR_DEVICE: usize = 1 << 32;

/// The addresses of all devices, one range behind the other.
pub(crate) struct Addresses {
    start: usize,
    for_device: usize,
    devices: usize,
}

static ADDRESSES: OnceLock<Addresses> = OnceLock::new();

impl Addresses {
    /// Reserves them at the first use.
    pub(crate) fn get() -> Result<&'static Self, Failure> {
        if let Some(addresses) = ADDRESSES.get() {
            return Ok(addresses);
        }
        let reserved = Self::reserve(devices::all().len().max(1))?;
        Ok(ADDRESSES.get_or_init(|| reserved))
    }

    /// The addresses that were reserved, if any were.
    pub(crate) fn reserved() -> Option<&'static Self> {
        ADDRESSES.get()
    }

    fn reserve(devices: usize) -> Result<Self, Failure> {
        let mut for_device = MOST_FOR_DEVICE;
        while for_device >= LEAST_FOR_DEVICE {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: a new mapping, which changes none that is there.
            let start =
                unsafe { libc::mmap(ptr::null_mut(), for_device * devices, libc::PROT_NONE, flags, -1, 0) };
            if start != libc::MAP_FAILED {
                return Ok(Self { start: start as usize, for_device, devices });
            }
            for_device /= 2;
        }
        let error = std::io::Error::last_os_error();
        Err(Failure::new(format_args!(
            "the system reserves no {LEAST_FOR_DEVICE} addresses for each of {devices} devices: {error}"
        )))
    }

    /// The first address of a device, and how many it has.
    pub(crate) fn of(&self, device: usize) -> (usize, usize) {
        (self.start + device * self.for_device, self.for_device)
    }

    /// The device that has an address.
    pub(crate) fn device_of(&self, address: usize) -> Option<usize> {
        let device = address.checked_sub(self.start)? / self.for_device;
        (device < self.devices).then_some(device)
    }
}

/// Lets a child of a fork know what it is. To be called before a device is used.
pub(crate) fn watch_forks() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the function only touches an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

extern "C" fn in_child() {
    devices::set_forked();
}
