//! Memory of devices, by the pointers that PyTorch has: addresses where nothing is.
//!
//! An address leads to its buffer, also from within, as PyTorch adds offsets. Addresses are given out one
//! after the other, so that one that was freed leads nowhere for long.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use device_registry::{Buffer, Device, DeviceKind, Event, Stream};
use parking_lot::Mutex;

use crate::addresses::Addresses;
use crate::devices::{self, check_fork};
use crate::failure::{Code, Failure};
use crate::streams;

/// Allocations begin at multiples of it. As many addresses behind each lead nowhere, but the first one: a
/// pointer may be one past the end.
const GRAIN: usize = 512;

/// How many bytes a program allocates, on a device that computes on the host, before it waits until the
/// device has done what was enqueued that many bytes ago. Else each result of a program that is ahead has
/// pages of its own, which are new, while one that waits has the pages of earlier results.
const AHEAD: usize = 16 << 20;

/// The allocations of a device, by their first address.
struct Heap {
    start: usize,
    len: usize,
    next: usize,
    live: BTreeMap<usize, Buffer>,
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

fn heaps() -> Result<&'static [Mutex<Heap>], Failure> {
    static HEAPS: OnceLock<Vec<Mutex<Heap>>> = OnceLock::new();
    check_fork()?;
    if let Some(heaps) = HEAPS.get() {
        return Ok(heaps);
    }
    devices::begin_use();
    let addresses = Addresses::get()?;
    let heap = |device| {
        let (start, len) = addresses.of(device);
        let bytes = Level::default();
        let count = Level::default();
        let live = BTreeMap::new();
        Mutex::new(Heap { start, len, next: start, live, bytes, count, ahead: 0, earlier: None })
    };
    Ok(HEAPS.get_or_init(|| (0..devices::all().len()).map(heap).collect()))
}

fn heap(device: usize) -> Result<&'static Mutex<Heap>, Failure> {
    heaps()?.get(device).ok_or_else(|| devices::absent(i32::try_from(device).unwrap_or(-1)))
}

impl Heap {
    /// A range of addresses that no allocation has.
    fn place(&mut self, len: usize) -> Option<usize> {
        let size = len.checked_add(GRAIN)?.checked_next_multiple_of(GRAIN)?;
        let end = self.start + self.len;
        if end.checked_sub(self.next).is_some_and(|left| size <= left) {
            let free = self.next_free(self.next, end, size);
            if free.is_some() {
                return free;
            }
        }
        // Once around.
        self.next_free(self.start, end, size)
    }

    /// The first gap of `size` in `from..end`.
    fn next_free(&mut self, from: usize, end: usize, size: usize) -> Option<usize> {
        let before = self.live.range(..from).next_back();
        let mut at = before.map_or(from, |(&start, buffer)| from.max(behind(start, buffer.len())));
        for (&start, buffer) in self.live.range(from..end) {
            if start.checked_sub(at).is_some_and(|gap| size <= gap) {
                break;
            }
            at = behind(start, buffer.len());
        }
        (size <= end.checked_sub(at)?).then(|| {
            self.next = at + size;
            at
        })
    }
}

/// The first address that an allocation and its gap leave free.
fn behind(start: usize, len: usize) -> usize {
    (start + len + GRAIN).next_multiple_of(GRAIN)
}

/// Allocates in the current stream of the device, and returns the pointer.
pub(crate) fn allocate(device: usize, len: usize) -> Result<usize, Failure> {
    let heap = heap(device)?;
    let stream = streams::current(device)?;
    let buffer = stream.allocate(len)?;
    let mut heap = heap.lock();
    match heap.place(len) {
        Some(address) => {
            heap.live.insert(address, buffer);
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
    let Some(device) = Addresses::reserved().and_then(|addresses| addresses.device_of(address)) else {
        return;
    };
    let Ok(heap) = heap(device) else { return };
    // Dropped without the lock: a driver may take long to free it.
    let mut heap = heap.lock();
    let buffer = heap.live.remove(&address);
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
    Addresses::reserved()?.device_of(address)
}

/// Where a pointer leads.
pub(crate) fn find(address: usize) -> Result<Place, Failure> {
    let device = device_of(address).ok_or_else(|| {
        Failure::new(format_args!("the pointer {address:#x} is not one of a registered device"))
    })?;
    let heap = heap(device)?.lock();
    match heap.live.range(..=address).next_back() {
        Some((&start, buffer)) if address - start <= buffer.len() => {
            Ok(Place { device, buffer: buffer.clone(), offset: address - start })
        }
        _ => Err(Failure::new(format_args!(
            "the pointer {address:#x} is in memory of `{}` that was freed, or outside of an allocation",
            devices::all()[device]
        ))),
    }
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
