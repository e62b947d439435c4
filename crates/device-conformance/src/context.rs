//! What a check works with: the device, and functions that most checks use.

use std::fmt;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use device_registry::{Buffer, Device, DeviceError, DeviceProperties, Stream, device_count};
use parking_lot::Mutex;

use crate::devices::{all_devices, is_absent, is_lost_permanently};
use crate::failure::{Failure, ensure, ensure_supported};
use crate::watchdog::panic_message;

/// A check's device.
pub(crate) struct Context {
    device: Device,
    properties: DeviceProperties,
    limit: Duration,
}

impl Context {
    pub(crate) fn new(device: Device, limit: Duration) -> Result<Self, Failure> {
        Ok(Self { device, properties: device.properties()?, limit })
    }

    /// How long the check may take.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    pub(crate) fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// Offsets are multiples of this. Lengths are too, unless they reach the end of the buffer.
    pub(crate) fn alignment(&self) -> usize {
        self.properties.copy_alignment
    }

    /// How much memory is free. If that is unknown, the check is unsupported.
    pub(crate) fn free_memory(&self) -> Result<u64, Failure> {
        // Memory in the core's cache is not free for the driver.
        self.device.empty_cache()?;
        let free = self.device.memory_info()?.free;
        free.ok_or_else(|| Failure::unsupported("the device does not report how much memory is free"))
    }

    /// How many devices the backend has.
    pub(crate) fn device_count(&self) -> Result<usize, DeviceError> {
        device_count(self.device.name())
    }

    /// Another device of the backend, which is there. If there is none, the check is unsupported.
    pub(crate) fn peer(&self) -> Result<Device, Failure> {
        let devices = all_devices(self.device)?;
        ensure_supported!(devices.len() >= 2, "the backend has one device, and the check needs two");
        let own = usize::from(self.device.index().unwrap_or(0));
        let next = devices.iter().cycle().skip(own + 1).take(devices.len() - 1);
        let Some(&peer) = next.into_iter().find(|device| !is_absent(**device)) else {
            return Err(Failure::unsupported(
                "the backend's other devices are absent, and the check needs two",
            ));
        };
        ensure_supported!(!is_lost_permanently(peer), "an earlier check lost `{peer}`, and a reset failed");
        Ok(peer)
    }

    /// A stream of the device.
    #[track_caller]
    pub(crate) fn stream(&self) -> Result<Stream, Failure> {
        Ok(self.device.create_stream()?)
    }

    /// Allocates memory on the device.
    #[track_caller]
    pub(crate) fn allocate(&self, len: usize) -> Result<Buffer, Failure> {
        let buffer = self.device.allocate(len)?;
        ensure!(buffer.len() == len, "expected a buffer of {len} bytes, got {}", buffer.len());
        Ok(buffer)
    }

    /// Allocates memory on the device, and writes these bytes to it.
    #[track_caller]
    pub(crate) fn filled(&self, bytes: &[u8]) -> Result<Buffer, Failure> {
        filled(self.device, bytes)
    }

    /// The ranges of a buffer of `len` bytes with one of `offsets` and one of `lens`, both in units of the
    /// alignment. For each offset, there is also the range to the end of the buffer.
    pub(crate) fn ranges(
        &self,
        len: usize,
        offsets: impl IntoIterator<Item = usize>,
        lens: impl Iterator<Item = usize> + Clone,
    ) -> impl Iterator<Item = std::ops::Range<usize>> {
        let unit = self.alignment();
        let ranges = offsets.into_iter().flat_map(move |offset| {
            let start = offset * unit;
            let ends = lens.clone().map(move |len| start + len * unit).chain([len]);
            ends.map(move |end| start..end)
        });
        ranges.filter(move |range| !range.is_empty() && range.end <= len)
    }
}

/// Allocates memory on a device, and writes these bytes to it.
#[track_caller]
pub(crate) fn filled(device: Device, bytes: &[u8]) -> Result<Buffer, Failure> {
    let buffer = device.allocate(bytes.len())?;
    buffer.write(0, bytes)?;
    Ok(buffer)
}

/// All bytes of a buffer.
#[track_caller]
pub(crate) fn content(buffer: &Buffer) -> Result<Vec<u8>, Failure> {
    // Not zeros: a read that does nothing must not look like one of zeroed memory.
    let mut bytes = vec![0xA5; buffer.len()];
    buffer.read(0, &mut bytes)?;
    Ok(bytes)
}

/// `len` bytes of all values. They differ from their neighbours, from bytes a page or a power of two away,
/// and from the bytes of another seed.
pub(crate) fn bytes(seed: u8, len: usize) -> Vec<u8> {
    // Unoptimized checks would spend a quarter of their time here, byte by byte.
    static OF_NO_SEED: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    let mut of_no_seed = OF_NO_SEED.lock();
    let missing = of_no_seed.len()..len;
    of_no_seed.extend(missing.map(|i| ((i as u32).wrapping_mul(0x9E37_79B1) >> 24) as u8));
    let mut bytes = of_no_seed[..len].to_vec();
    drop(of_no_seed);
    let seed = [seed.wrapping_mul(0x3D); 8];
    let (words, rest) = bytes.as_chunks_mut();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ u64::from_ne_bytes(seed)).to_ne_bytes();
    }
    rest.iter_mut().for_each(|byte| *byte ^= seed[0]);
    bytes
}

/// A failure with the first difference, unless both byte strings are equal.
#[track_caller]
pub(crate) fn expect_bytes(got: &[u8], expected: &[u8], what: impl fmt::Display) -> Result<(), Failure> {
    if got == expected {
        return Ok(());
    }
    let len = expected.len();
    ensure!(got.len() == len, "{what}: expected {len} bytes, got {}", got.len());
    let mut wrong = (0..len).filter(|&i| got[i] != expected[i]);
    let first = wrong.next().unwrap_or(0);
    let more = wrong.count();
    Err(Failure::new(format_args!(
        "{what}: expected byte {:#04x} at offset {first} of {len}, got {:#04x}{}",
        expected[first],
        got[first],
        match more {
            0 => String::new(),
            more => format!(" ({more} more differ)"),
        }
    )))
}

/// A failure unless the buffer holds these bytes.
#[track_caller]
pub(crate) fn expect_content(
    buffer: &Buffer,
    expected: &[u8],
    what: impl fmt::Display,
) -> Result<(), Failure> {
    expect_bytes(&content(buffer)?, expected, what)
}

/// Runs the same work on many threads, which all begin at once. Returns the first failure.
#[track_caller]
pub(crate) fn in_threads(
    count: usize,
    work: impl Fn(usize) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    let start = Barrier::new(count);
    let work = &work;
    let outcomes: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|index| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    work(index)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    for (index, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Ok(result) => result.map_err(|failure| failure.during(format_args!("thread {index}")))?,
            Err(panic) => {
                return Err(Failure::new(format_args!(
                    "thread {index} panicked: {}",
                    panic_message(&*panic)
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use device_registry::backend::{Backend, BackendDescriptor, BackendError, OpenedDevice};
    use device_registry::{Presence, backends, device};

    use super::*;
    use crate::devices::present_devices;

    #[test]
    fn bytes_differ_by_offset_and_seed() {
        let long = bytes(0, (1 << 20) + 300);
        for distance in [1, 2, 3, 4, 8, 16, 64, 255, 256, 4095, 4096, 65536, 1 << 20] {
            let same = (0..300).filter(|&i| long[i] == long[i + distance]).count();
            assert_eq!(same, 0, "{distance} bytes away");
        }
        let mut seen = [false; 256];
        long.iter().for_each(|&byte| seen[usize::from(byte)] = true);
        assert!(seen.iter().all(|&seen| seen));
        for seed in 1..=255 {
            assert_ne!(bytes(0, 1), bytes(seed, 1));
        }
    }

    /// Four devices, of which the second and the third are absent.
    struct Gaps;

    impl Backend for Gaps {
        fn device_count(&self) -> Result<usize, BackendError> {
            Ok(4)
        }

        fn presence(&self, ordinal: usize) -> Result<Presence, BackendError> {
            Ok(if matches!(ordinal, 1 | 2) { Presence::absent("unplugged") } else { Presence::Present })
        }

        fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
            Ok(DeviceProperties::new("gaps"))
        }

        fn open(&self, _ordinal: usize) -> Result<OpenedDevice, BackendError> {
            Err(BackendError::other("it is never opened"))
        }
    }

    #[test]
    fn an_absent_device_is_no_peer() {
        static GAPS: BackendDescriptor = BackendDescriptor::new("context_gaps", || Ok(Box::new(Gaps)));
        backends().register(&GAPS).unwrap();
        let of = |index: u16| device(&format!("context_gaps:{index}")).unwrap();
        let peer = |index| Context::new(of(index), Duration::ZERO).unwrap().peer().unwrap();
        assert_eq!((peer(0), peer(3)), (of(3), of(0)));
        assert_eq!(present_devices(of(0)).unwrap(), [of(0), of(3)]);
        assert_eq!(all_devices(of(0)).unwrap().len(), 4);
    }

    #[test]
    fn a_wrong_byte_is_reported_with_its_offset() {
        let message = |got: &[u8], expected: &[u8]| expect_bytes(got, expected, "read").unwrap_err().message;
        assert_eq!(message(b"abc", b"aBc"), "read: expected byte 0x42 at offset 1 of 3, got 0x62");
        assert_eq!(
            message(b"xbz", b"aBc"),
            "read: expected byte 0x61 at offset 0 of 3, got 0x78 (2 more differ)"
        );
        assert_eq!(message(b"ab", b"abc"), "read: expected 3 bytes, got 2");
        assert!(expect_bytes(b"abc", b"abc", "read").is_ok());
    }

    #[test]
    fn a_failure_names_its_thread() {
        let failure =
            in_threads(3, |index| if index == 1 { Err(Failure::new("no")) } else { Ok(()) }).unwrap_err();
        assert_eq!(failure.message, "thread 1: no");
        let panicked = in_threads(2, |index| {
            assert_ne!(index, 1, "on purpose");
            Ok(())
        });
        assert!(panicked.unwrap_err().message.starts_with("thread 1 panicked: "));
    }
}
