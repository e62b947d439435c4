//! The devices that programs were offered, each with the streams of its runs and the addresses of its memory.

use std::ffi::CString;
use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};

use device_addresses::Addresses;
use device_registry::{Buffer, Device, DeviceError};
use parking_lot::Mutex;

use crate::api::text;
use crate::failure::Failure;
use crate::stream::RunStream;

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
}

/// What a device has after its first use.
#[derive(Debug)]
struct Opened {
    range: Range<usize>,
    addresses: Mutex<Addresses>,
    /// The streams of runs.
    of_runs: Mutex<Vec<Weak<RunStream>>>,
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
        let addresses = place.opened.get()?.addresses.lock();
        let (buffer, offset) = addresses.find(address)?;
        Some((place, buffer.clone(), offset))
    }

    /// The bytes from an address of this device on.
    pub(crate) fn buffer(&self, address: usize, len: usize) -> Option<Result<Buffer, DeviceError>> {
        let addresses = self.opened.get()?.addresses.lock();
        let (buffer, offset) = addresses.find(address)?;
        Some(buffer.slice(offset..offset.saturating_add(len)))
    }

    fn opened(&self) -> Result<&Opened, Failure> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        self.device.open()?;
        let mut reserved = Addresses::reserve(1)
            .map_err(|error| Failure::new(error).of(format_args!("addresses for `{}`", self.device)))?;
        let addresses = reserved.remove(0);
        // Of two threads, the addresses of one are used.
        Ok(self.opened.get_or_init(|| {
            let range = addresses.range();
            Opened { range, addresses: Mutex::new(addresses), of_runs: Mutex::default() }
        }))
    }

    /// Opens the device, if it was not.
    pub(crate) fn open(&self) -> Result<(), Failure> {
        self.opened()?;
        // A device that this process may not use any more is an error here.
        Ok(self.device.open()?)
    }

    /// Adds the stream of a run.
    pub(crate) fn add_stream(&self, stream: &Arc<RunStream>) -> Result<(), Failure> {
        let mut all = self.opened()?.of_runs.lock();
        all.retain(|stream| stream.strong_count() > 0);
        all.push(Arc::downgrade(stream));
        Ok(())
    }

    /// Waits for all work that runs have enqueued until now, and returns the first failure.
    pub(crate) fn wait_for_runs(&self) -> Result<(), Failure> {
        let of_runs: Vec<_> = self.opened()?.of_runs.lock().iter().filter_map(Weak::upgrade).collect();
        of_runs.iter().map(|stream| stream.wait_for_copy()).fold(Ok(()), Result::and)
    }

    /// Allocates, for a stream if there is one, and returns the address. The reason of a failure is kept for
    /// [`take_failure`](Self::take_failure).
    pub(crate) fn allocate(&self, len: usize, stream: Option<&RunStream>) -> Option<usize> {
        let allocated = self.opened().and_then(|opened| {
            let buffer = match stream {
                Some(stream) => stream.allocate(len)?,
                None => self.device.allocate(len)?,
            };
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
