//! Host bytes between two guards, for the validating layer, which finds accesses beyond them and after their
//! release.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::backend::BackendError;
use crate::backend::zeroed_bytes::ZeroedBytes;

/// The length of each guard.
pub(crate) const GUARD: usize = 64;
/// The number of bytes in which canaries are written.
const WORD: usize = size_of::<u64>();
/// The byte that guards consist of.
const INTACT: u8 = 0xC5;
/// What bytes are overwritten with when they are released.
const RELEASED: u8 = 0xDB;
/// How many unchanged bytes at one end of a read count as not written. Fewer may be unchanged by chance.
const UNWRITTEN: usize = 8;

/// Released bytes, which a driver may still read or write: they are freed when this many bytes were released
/// after them.
static QUARANTINE: Mutex<(VecDeque<ZeroedBytes>, usize)> = Mutex::new((VecDeque::new(), 0));
const LONGEST_QUARANTINE: usize = 64 << 20;

/// Frees all released bytes.
pub(crate) fn empty_quarantine() {
    if let Ok(mut quarantine) = QUARANTINE.try_lock() {
        *quarantine = (VecDeque::new(), 0);
    }
}

/// Bytes between two guards. When they are dropped, they are overwritten, and freed later.
pub(crate) struct GuardedBytes {
    /// `None` during the drop.
    bytes: Option<ZeroedBytes>,
    len: usize,
    canary: u64,
    /// Counts the values that are not dropped.
    alive: Arc<AtomicUsize>,
}

impl GuardedBytes {
    /// Bytes that are all canaries: [`check_written`](Self::check_written) finds those that were not
    /// written.
    pub(crate) fn new(len: usize, alive: &Arc<AtomicUsize>) -> Result<Self, BackendError> {
        let guarded = len.checked_add(2 * GUARD);
        let mut bytes =
            ZeroedBytes::new(guarded.ok_or_else(|| BackendError::out_of_memory(len as u64, None))?)?;
        let canary = next_canary();
        bytes.as_mut_slice().fill(INTACT);
        write_canaries(canary, &mut bytes.as_mut_slice()[GUARD..GUARD + len]);
        alive.fetch_add(1, Ordering::Relaxed);
        Ok(Self { bytes: Some(bytes), len, canary, alive: Arc::clone(alive) })
    }

    /// A copy of these bytes.
    pub(crate) fn copy_of(source: &[u8], alive: &Arc<AtomicUsize>) -> Result<Self, BackendError> {
        let mut bytes = Self::new(source.len(), alive)?;
        bytes.as_mut_slice().copy_from_slice(source);
        Ok(bytes)
    }

    /// A copy of these bytes, which is overwritten on its own.
    pub(crate) fn again(&self) -> Result<Self, BackendError> {
        Self::copy_of(self.as_slice(), &self.alive)
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.all()[GUARD..GUARD + self.len]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        let range = GUARD..GUARD + self.len;
        &mut self.bytes.as_mut().expect("it is not dropped").as_mut_slice()[range]
    }

    fn all(&self) -> &[u8] {
        self.bytes.as_ref().expect("it is not dropped").as_slice()
    }

    /// An error if a guard was written.
    pub(crate) fn check_guards(&self) -> Result<(), String> {
        let before = &self.all()[..GUARD];
        let after = &self.all()[GUARD + self.len..];
        check_guard_behind(after, self.len)?;
        if let Some(first) = before.iter().position(|&byte| byte != INTACT) {
            return Err(format!("it wrote {} bytes before {} bytes of the host", GUARD - first, self.len));
        }
        Ok(())
    }

    /// An error if bytes at the start or at the end were not written since [`new`](Self::new).
    pub(crate) fn check_written(&self) -> Result<(), String> {
        check_written(self.canary, self.as_slice())
    }
}

/// Makes a guard of these bytes.
pub(crate) fn write_guard(guard: &mut [u8]) {
    guard.fill(INTACT);
}

/// An error if the guard behind `len` bytes was written.
pub(crate) fn check_guard_behind(guard: &[u8], len: usize) -> Result<(), String> {
    match guard.iter().rposition(|&byte| byte != INTACT) {
        Some(last) => Err(format!("it wrote {} bytes past the end of {len} bytes of the host", last + 1)),
        None => Ok(()),
    }
}

/// A number for [`write_canaries`].
pub(crate) fn next_canary() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// An error if bytes at the start or at the end were not written since [`write_canaries`].
pub(crate) fn check_written(canary: u64, bytes: &[u8]) -> Result<(), String> {
    let is_canary = |&(at, &byte): &(usize, &u8)| byte == canary_at(canary, at);
    let first = bytes.iter().enumerate().take_while(is_canary).count();
    let last = bytes.iter().enumerate().rev().take_while(is_canary).count();
    let (which, count) = if first >= last { ("first", first) } else { ("last", last) };
    if count < UNWRITTEN {
        return Ok(());
    }
    let len = bytes.len();
    Err(format!("it is done, and the {which} {count} of {len} bytes of the host were not written"))
}

pub(crate) fn write_canaries(canary: u64, bytes: &mut [u8]) {
    // By words, for builds without optimisation.
    for (at, word) in bytes.chunks_mut(WORD).enumerate() {
        word.copy_from_slice(&canary_word(canary, at)[..word.len()]);
    }
}

fn canary_at(canary: u64, at: usize) -> u8 {
    canary_word(canary, at / WORD)[at % WORD]
}

fn canary_word(canary: u64, at: usize) -> [u8; WORD] {
    let mixed = (canary ^ at as u64).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (mixed ^ (mixed >> 32)).to_le_bytes()
}

impl Drop for GuardedBytes {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
        let Some(mut bytes) = self.bytes.take() else { return };
        bytes.as_mut_slice().fill(RELEASED);
        // In a child of `fork`, a thread of the parent may hold the lock forever.
        let Ok(mut quarantine) = QUARANTINE.try_lock() else { return };
        let (released, len) = &mut *quarantine;
        *len += bytes.as_slice().len();
        released.push_back(bytes);
        while *len > LONGEST_QUARANTINE {
            let Some(oldest) = released.pop_front() else { break };
            *len -= oldest.as_slice().len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarded(len: usize) -> GuardedBytes {
        GuardedBytes::new(len, &Arc::default()).unwrap()
    }

    fn damage(bytes: &mut GuardedBytes, at: usize) {
        bytes.bytes.as_mut().unwrap().as_mut_slice()[at] ^= 1;
    }

    #[test]
    fn a_byte_beyond_either_end_is_found() {
        let mut bytes = guarded(5);
        assert_eq!(bytes.check_guards(), Ok(()));
        damage(&mut bytes, GUARD + 5 + 2);
        let expected = "it wrote 3 bytes past the end of 5 bytes of the host";
        assert_eq!(bytes.check_guards(), Err(expected.to_owned()));
        let mut bytes = guarded(5);
        damage(&mut bytes, GUARD - 1);
        assert_eq!(bytes.check_guards(), Err("it wrote 1 bytes before 5 bytes of the host".to_owned()));
    }

    #[test]
    fn bytes_that_were_not_written_are_found_at_both_ends() {
        let mut bytes = guarded(100);
        let unwritten =
            |which| Err(format!("it is done, and the {which} of 100 bytes of the host were not written"));
        assert_eq!(bytes.check_written(), unwritten("first 100"));
        for byte in &mut bytes.as_mut_slice()[..80] {
            *byte ^= 1;
        }
        assert_eq!(bytes.check_written(), unwritten("last 20"));
        for byte in &mut bytes.as_mut_slice()[80..] {
            *byte ^= 1;
        }
        assert_eq!(bytes.check_written(), Ok(()));
        assert_eq!(guarded(7).check_written(), Ok(()), "so few may be the same by chance");
    }

    #[test]
    fn released_bytes_are_overwritten_and_stay_for_a_while() {
        let alive = Arc::default();
        let bytes = GuardedBytes::copy_of(&[7; 4099], &alive).unwrap();
        assert_eq!((bytes.as_slice(), alive.load(Ordering::Relaxed)), (&[7; 4099][..], 1));
        drop(bytes);
        assert_eq!(alive.load(Ordering::Relaxed), 0);
        let quarantine = QUARANTINE.lock().unwrap();
        let mut released = quarantine.0.iter().filter(|bytes| bytes.as_slice().len() == 4099 + 2 * GUARD);
        assert!(released.any(|bytes| bytes.as_slice().iter().all(|&byte| byte == RELEASED)));
    }
}
