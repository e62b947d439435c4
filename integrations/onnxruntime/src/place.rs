//! The devices that programs were offered, each with its stream and the addresses of its memory.

use std::ffi::CString;
use std::ops::Range;
use std::sync::OnceLock;

use device_addresses::Addresses;
use device_registry::{Buffer, Device, Stream};
use parking_lot::Mutex;

use crate::api::text;
use crate::failure::Failure;

/// A device, with what all its sessions share. It is never dropped: tensors may outlive sessions.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) device: Device,
    /// The device's text, such as `openreg:1`: the name of its provider.
    pub(crate) name: CString,
    /// Its number in ONNX Runtime's descriptions of memory.
    pub(crate) number: u32,
    opened: OnceLock<Opened>,
    /// Why the last allocation failed, for the caller that gets null.
    failed: Mutex<Option<Failure>>,
    /// How often the stream has reported a failure of its work, and the last one.
    failures: Mutex<(u64, Option<Failure>)>,
    /// Held while a thread waits for the stream, until the failure that it gets is counted.
    waiting: Mutex<()>,
}

/// What a device has after its first use.
#[derive(Debug)]
struct Opened {
    stream: Stream,
    range: Range<usize>,
    addresses: Mutex<Addresses>,
}

static PLACES: Mutex<Vec<&'static Place>> = Mutex::new(Vec::new());

impl Place {
    /// The place of a device. Opens nothing.
    pub(crate) fn of(device: Device) -> &'static Self {
        let device = device.resolve();
        let mut places = PLACES.lock();
        if let Some(place) = places.iter().find(|place| place.device == device) {
            return place;
        }
        let place = Box::leak(Box::new(Self {
            device,
            name: text(&device.to_string()),
            number: places.len() as u32,
            opened: OnceLock::new(),
            failed: Mutex::new(None),
            failures: Mutex::new((0, None)),
            waiting: Mutex::new(()),
        }));
        places.push(place);
        place
    }

    /// The place with a number.
    pub(crate) fn numbered(number: u32) -> Option<&'static Self> {
        PLACES.lock().get(number as usize).copied()
    }

    /// The place that has an address, with the buffer of it and where in the buffer it is.
    pub(crate) fn find(address: usize) -> Option<(&'static Self, Buffer, usize)> {
        let places = PLACES.lock();
        let has =
            |place: &&&'static Self| place.opened.get().is_some_and(|opened| opened.range.contains(&address));
        let place = *places.iter().find(has)?;
        drop(places);
        let (buffer, offset) = place.buffer(address)?;
        Some((place, buffer, offset))
    }

    /// The buffer of an address of this device, and where in the buffer it is.
    pub(crate) fn buffer(&self, address: usize) -> Option<(Buffer, usize)> {
        let addresses = self.opened.get()?.addresses.lock();
        addresses.find(address).map(|(buffer, offset)| (buffer.clone(), offset))
    }

    fn opened(&self) -> Result<&Opened, Failure> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let stream = self.device.create_stream()?;
        stream.set_label("ONNX Runtime");
        let mut reserved = Addresses::reserve(1)
            .map_err(|error| Failure::new(error).of(format_args!("addresses for `{}`", self.device)))?;
        let addresses = reserved.remove(0);
        // Of two threads, the stream of one is used.
        Ok(self.opened.get_or_init(|| {
            let range = addresses.range();
            Opened { stream, range, addresses: Mutex::new(addresses) }
        }))
    }

    /// The stream of all work. Opens the device at its first use.
    pub(crate) fn stream(&self) -> Result<&Stream, Failure> {
        self.opened().map(|opened| &opened.stream)
    }

    /// Waits for all work. The stream reports a failure once, to any thread that waits: all runs that were
    /// under way then [ask](Self::failure_since) for it.
    pub(crate) fn synchronize(&self) -> Result<(), Failure> {
        let stream = self.stream()?;
        let _waiting = self.waiting.lock();
        stream.synchronize().map_err(|error| {
            let failure = Failure::from(error);
            let mut failures = self.failures.lock();
            *failures = (failures.0 + 1, Some(failure.clone()));
            failure
        })
    }

    /// How often work has failed until now.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.lock().0
    }

    /// The last failure, if work has failed since there were so many failures.
    pub(crate) fn failure_since(&self, count: u64) -> Option<Failure> {
        let failures = self.failures.lock();
        if failures.0 == count { None } else { failures.1.clone() }
    }

    /// Allocates, and returns the address. The reason of a failure is kept for
    /// [`take_failure`](Self::take_failure).
    pub(crate) fn allocate(&self, len: usize) -> Option<usize> {
        let allocated = self.opened().and_then(|opened| {
            let buffer = opened.stream.allocate(len)?;
            let full =
                || Failure::new(format_args!("no range of {len} addresses is free for `{}`", self.device));
            opened.addresses.lock().insert(buffer).ok_or_else(full)
        });
        allocated.map_err(|failure| *self.failed.lock() = Some(failure)).ok()
    }

    /// Frees an allocation. Queued work that uses it keeps the memory.
    pub(crate) fn free(&self, address: usize) {
        let buffer = self.opened.get().and_then(|opened| opened.addresses.lock().remove(address));
        // Dropped without the lock: a driver may take long to free it.
        drop(buffer);
    }

    /// Why the last allocation failed, of any device.
    pub(crate) fn any_failure() -> Failure {
        let places = PLACES.lock();
        let failed = places.iter().find_map(|place| place.failed.lock().take());
        failed.unwrap_or_else(|| Failure::new("there was no memory for a tensor"))
    }

    /// Why the last allocation failed.
    pub(crate) fn take_failure(&self) -> Failure {
        let unknown = || Failure::new(format_args!("there was no memory for `{}`", self.device));
        self.failed.lock().take().unwrap_or_else(unknown)
    }
}
