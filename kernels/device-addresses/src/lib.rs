#![doc = include_str!("../README.md")]

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use device_registry::Buffer;

/// How many addresses a device gets, where the system has so many.
const MOST: usize = 1 << 40;
/// With fewer, a device has no room for its memory.
const LEAST: usize = 1 << 32;

/// Allocations begin at multiples of it, and as many addresses behind each lead nowhere.
const GRAIN: usize = 512;

/// The addresses of one device, and which of them lead to which buffer.
///
/// An address within an allocation leads to it too, and so does the one behind its last byte, as a pointer
/// may be there. Addresses are given out one after the other, so that one that was freed leads nowhere for
/// long.
#[derive(Debug)]
pub struct Addresses {
    range: Range<usize>,
    next: usize,
    live: BTreeMap<usize, Buffer>,
}

impl Addresses {
    /// Reserves addresses for so many devices: ranges of one length, one behind the other. They are never
    /// given back to the system.
    ///
    /// # Errors
    ///
    /// If the system has no range of 4 GiB for each, or has no way to reserve one.
    pub fn reserve(devices: usize) -> io::Result<Vec<Self>> {
        let mut len = MOST;
        loop {
            match system::reserve(len.saturating_mul(devices.max(1))) {
                Ok(start) => {
                    let range = |index| start + index * len..start + (index + 1) * len;
                    let new = |range: Range<usize>| Self { next: range.start, range, live: BTreeMap::new() };
                    return Ok((0..devices).map(|index| new(range(index))).collect());
                }
                Err(error) if len == LEAST => return Err(error),
                Err(_) => len /= 2,
            }
        }
    }

    /// All addresses of the device.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Gives a buffer an address. `None` if no gap between others is long enough.
    pub fn insert(&mut self, buffer: Buffer) -> Option<usize> {
        let address = self.place(buffer.len())?;
        self.live.insert(address, buffer);
        Some(address)
    }

    /// Takes the buffer of an address that [`insert`](Self::insert) returned.
    pub fn remove(&mut self, address: usize) -> Option<Buffer> {
        self.live.remove(&address)
    }

    /// The buffer that an address leads to, and how many bytes behind its start the address is.
    #[must_use]
    pub fn find(&self, address: usize) -> Option<(&Buffer, usize)> {
        let (&start, buffer) = self.live.range(..=address).next_back()?;
        let offset = address - start;
        (offset <= buffer.len()).then_some((buffer, offset))
    }

    /// A range of addresses that no allocation has.
    fn place(&mut self, len: usize) -> Option<usize> {
        let size = len.checked_add(GRAIN)?.checked_next_multiple_of(GRAIN)?;
        if self.range.end.checked_sub(self.next).is_some_and(|left| size <= left) {
            let free = self.next_free(self.next, size);
            if free.is_some() {
                return free;
            }
        }
        // Once around.
        self.next_free(self.range.start, size)
    }

    /// The first gap of `size` from an address on.
    fn next_free(&mut self, from: usize, size: usize) -> Option<usize> {
        let before = self.live.range(..from).next_back();
        let mut at = before.map_or(from, |(&start, buffer)| from.max(behind(start, buffer.len())));
        for (&start, buffer) in self.live.range(from..) {
            if start.checked_sub(at).is_some_and(|gap| size <= gap) {
                break;
            }
            at = behind(start, buffer.len());
        }
        (size <= self.range.end.checked_sub(at)?).then(|| {
            self.next = at + size;
            at
        })
    }
}

/// The first address that an allocation and its gap leave free.
fn behind(start: usize, len: usize) -> usize {
    (start + len + GRAIN).next_multiple_of(GRAIN)
}

#[cfg(unix)]
mod system {
    use std::{io, ptr};

    /// Reserves addresses where the host can neither read nor write.
    pub(crate) fn reserve(len: usize) -> io::Result<usize> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, which changes none that is there.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(start as usize) }
    }
}

#[cfg(not(unix))]
mod system {
    use std::io;

    pub(crate) fn reserve(_: usize) -> io::Result<usize> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "addresses can be reserved on Unix systems alone"))
    }
}

#[cfg(test)]
mod tests {
    use device_registry::Device;

    use super::*;

    fn buffer(len: usize) -> Buffer {
        Device::cpu().allocate(len).unwrap()
    }

    fn addresses() -> Addresses {
        Addresses::reserve(1).unwrap().remove(0)
    }

    /// The buffer's length and the offset that an address leads to.
    fn found(addresses: &Addresses, address: usize) -> Option<(usize, usize)> {
        addresses.find(address).map(|(buffer, offset)| (buffer.len(), offset))
    }

    #[test]
    fn each_device_has_a_range_of_its_own() {
        let all = Addresses::reserve(3).unwrap();
        assert_eq!(all.len(), 3);
        for pair in all.windows(2) {
            assert_eq!(pair[0].range().end, pair[1].range().start);
            assert_eq!(pair[0].range().len(), pair[1].range().len());
        }
        assert!(all[0].range().len() >= LEAST);
    }

    #[test]
    fn an_address_leads_to_its_buffer_from_the_first_byte_to_the_one_behind_the_last() {
        let mut addresses = addresses();
        let first = addresses.insert(buffer(100)).unwrap();
        let second = addresses.insert(buffer(7)).unwrap();
        assert_eq!(found(&addresses, first), Some((100, 0)));
        assert_eq!(found(&addresses, first + 100), Some((100, 100)));
        assert_eq!(found(&addresses, first + 101), None);
        assert_eq!(found(&addresses, second + 3), Some((7, 3)));
        assert_eq!(found(&addresses, first - 1), None);
        assert!(second >= first + 100 + GRAIN, "a gap is between the two");
    }

    #[test]
    fn what_was_removed_leads_nowhere_and_its_address_is_not_the_next() {
        let mut addresses = addresses();
        let first = addresses.insert(buffer(100)).unwrap();
        assert_eq!(addresses.remove(first).unwrap().len(), 100);
        assert!(addresses.remove(first).is_none() && addresses.find(first).is_none());
        assert_ne!(addresses.insert(buffer(100)).unwrap(), first);
    }

    #[test]
    fn gaps_are_found_again_once_around() {
        let mut addresses = addresses();
        addresses.range.end = addresses.range.start + 4 * GRAIN;
        let first = addresses.insert(buffer(GRAIN)).unwrap();
        let second = addresses.insert(buffer(GRAIN)).unwrap();
        assert!(addresses.insert(buffer(1)).is_none(), "all is taken");
        addresses.remove(first);
        assert!(addresses.insert(buffer(GRAIN + 1)).is_none(), "the gap is too short");
        assert_eq!(addresses.insert(buffer(GRAIN)).unwrap(), first);
        addresses.remove(second);
        assert_eq!(addresses.insert(buffer(1)).unwrap(), second);
    }

    #[test]
    fn random_allocations_never_overlap() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut addresses = addresses();
        addresses.range.end = addresses.range.start + 64 * GRAIN;
        let mut live: Vec<(usize, usize)> = Vec::new();
        for _ in 0..5000 {
            if random.bool() || live.is_empty() {
                let len = random.usize(0..4 * GRAIN);
                let Some(address) = addresses.insert(buffer(len)) else { continue };
                assert!(addresses.range().contains(&address) && addresses.range().contains(&(address + len)));
                let is_apart =
                    |&(other, its): &(usize, usize)| address > other + its || other > address + len;
                assert!(live.iter().all(is_apart), "{address:#x} {len} {live:x?}");
                live.push((address, len));
            } else {
                let (address, len) = live.swap_remove(random.usize(0..live.len()));
                assert_eq!(addresses.remove(address).unwrap().len(), len);
            }
            for &(address, len) in &live {
                assert_eq!(found(&addresses, address + len / 2), Some((len, len / 2)));
            }
        }
    }

    #[test]
    fn a_length_that_no_device_has_has_no_place() {
        let mut addresses = addresses();
        assert_eq!(addresses.place(usize::MAX), None);
        assert_eq!(addresses.place(addresses.range.len()), None);
    }
}
