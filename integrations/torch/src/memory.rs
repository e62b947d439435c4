//! Memory of devices, by the pointers that PyTorch has: [addresses](device_addresses) where nothing is.

use std::sync::OnceLock;

use device_addresses::Addresses;
use device_registry::{Buffer, Device, DeviceKind, Event, Stream};
use parking_lot::Mutex;

use crate::devices::{self, check_fork};
use crate::failure::{Code, Failure};
use crate::streams;

/// How many bytes a program allocates, on a device that computes on the host, before it waits until the
/// device has done what was enqueued that many bytes ago. Else each result of a program that is ahead has
/// pages of its own, which are new, while one that waits has the pages of earlier results.
const AHEAD: usize = 16 << 20;

/// The allocations of a device.
struct Heap {
    addresses: Addresses,
    bytes: Level,
    count: Level,
    /// The bytes since the newest of these events.
    ahead: usize,
    earlier: Option<Event>,
}

/// How much there is, the most since the last reset, and how much there ever was.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Level {
    pub(crate) now: u64,
    pub(crate) peak: u64,
    pub(crate) ever: u64,
}

impl Level {
    fn add(&mut self, amount: u64) {
        self.now += amount;
        self.ever += amount;
        self.peak = self.peak.max(self.now);
    }
}

/// Where a pointer leads.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The index of the device.
    pub(crate) device: usize,
    /// The whole allocation.
    pub(crate) buffer: Buffer,
    /// Bytes from its start to the pointer.
    pub(crate) offset: usize,
}

static HEAPS: OnceLock<Vec<Mutex<Heap>>> = OnceLock::new();

/// Where the addresses of all devices begin, and how many each has.
static RANGES: OnceLock<(usize, usize)> = OnceLock::new();

fn heaps() -> Result<&'static [Mutex<Heap>], Failure> {
    check_fork()?;
    if let Some(heaps) = HEAPS.get() {
        return Ok(heaps);
    }
    devices::begin_use();
    let all = Addresses::reserve(devices::all().len()).map_err(|error| {
        Failure::new(format_args!("the system reserves no addresses for the devices: {error}"))
    })?;
    // Of two threads, the addresses of one are used.
    Ok(HEAPS.get_or_init(|| {
        if let Some(first) = all.first() {
            let _ = RANGES.set((first.range().start, first.range().len()));
        }
        let heap = |addresses| {
            let bytes = Level::default();
            let count = Level::default();
            Mutex::new(Heap { addresses, bytes, count, ahead: 0, earlier: None })
        };
        all.into_iter().map(heap).collect()
    }))
}

fn heap(device: usize) -> Result<&'static Mutex<Heap>, Failure> {
    heaps()?.get(device).ok_or_else(|| devices::absent(i32::try_from(device).unwrap_or(-1)))
}

/// Allocates in the current stream of the device, and returns the pointer.
pub(crate) fn allocate(device: usize, len: usize) -> Result<usize, Failure> {
    let heap = heap(device)?;
    let stream = streams::current(device)?;
    let buffer = stream.allocate(len)?;
    let mut heap = heap.lock();
    match heap.addresses.insert(buffer) {
        Some(address) => {
            heap.bytes.add(len as u64);
            heap.count.add(1);
            heap.ahead += len;
            if heap.ahead >= AHEAD {
                heap.ahead = 0;
                drop(heap);
                wait_for_earlier(device, stream);
            }
            Ok(address)
        }
        None => Err(Failure {
            code: Code::OutOfMemory,
            message: format!("no range of {len} free addresses is left for `{}`", devices::all()[device]),
        }),
    }
}

/// Waits until a device that computes on the host has done what was enqueued before the last such wait.
#[cold]
fn wait_for_earlier(device: usize, stream: &Stream) {
    let kind = stream.device().properties().map(|properties| properties.kind);
    let (Ok(DeviceKind::Cpu | DeviceKind::Simulated), Ok(heap)) = (kind, heap(device)) else { return };
    // A failure is the stream's, which reports it.
    let Ok(newest) = stream.record() else { return };
    let earlier = heap.lock().earlier.replace(newest);
    let _ = earlier.map(|event| event.synchronize());
}

/// Frees an allocation. Queued work that uses it keeps the memory until it is done.
pub(crate) fn free(address: usize) {
    // In a child of a fork, the parent's memory stays where it is.
    let Some(device) = device_of(address) else { return };
    let Ok(heap) = heap(device) else { return };
    // Dropped without the lock: a driver may take long to free it.
    let mut heap = heap.lock();
    let buffer = heap.addresses.remove(address);
    if let Some(buffer) = &buffer {
        heap.bytes.now -= buffer.len() as u64;
        heap.count.now -= 1;
    }
    drop(heap);
    drop(buffer);
}

/// The bytes and the number of allocations.
pub(crate) fn levels(device: usize) -> Result<(Level, Level), Failure> {
    let heap = heap(device)?.lock();
    Ok((heap.bytes, heap.count))
}

/// Resets the largest values to the present ones, or with `ever` the totals.
pub(crate) fn reset_levels(device: usize, ever: bool) -> Result<(), Failure> {
    let mut heap = heap(device)?.lock();
    let Heap { bytes, count, .. } = &mut *heap;
    for level in [bytes, count] {
        if ever {
            level.ever = level.now;
        } else {
            level.peak = level.now;
        }
    }
    Ok(())
}

/// The index of the device that a pointer is of.
pub(crate) fn device_of(address: usize) -> Option<usize> {
    let &(start, for_device) = RANGES.get()?;
    let device = address.checked_sub(start)? / for_device;
    (device < devices::all().len()).then_some(device)
}

/// Where a pointer leads.
pub(crate) fn find(address: usize) -> Result<Place, Failure> {
    let device = device_of(address).ok_or_else(|| {
        Failure::new(format_args!("the pointer {address:#x} is not one of a registered device"))
    })?;
    let heap = heap(device)?.lock();
    let (buffer, offset) = heap.addresses.find(address).ok_or_else(|| {
        Failure::new(format_args!(
            "the pointer {address:#x} is in memory of `{}` that was freed, or outside of an allocation",
            devices::all()[device]
        ))
    })?;
    Ok(Place { device, buffer: buffer.clone(), offset })
}

/// A buffer without bytes, for arrays without elements, whose pointer is null.
pub(crate) fn empty(device: usize) -> Result<Buffer, Failure> {
    static EMPTY: [OnceLock<Buffer>; devices::MOST] = [const { OnceLock::new() }; devices::MOST];
    check_fork()?;
    let place = EMPTY.get(device).ok_or_else(|| Failure::new(format_args!("no device {device}")))?;
    if let Some(buffer) = place.get() {
        return Ok(buffer.clone());
    }
    let buffer = registered(device)?.allocate(0)?;
    Ok(place.get_or_init(|| buffer).clone())
}

/// The device with an index, for calls that a fork must not make.
pub(crate) fn registered(device: usize) -> Result<Device, Failure> {
    check_fork()?;
    devices::begin_use();
    devices::get(i32::try_from(device).unwrap_or(-1))
}
