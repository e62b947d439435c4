//! Defects of transfers. Each function does nothing without one of its defects.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use device_registry::backend::{BackendError, FillPattern, Span, open_windows};
use parking_lot::{Mutex, MutexGuard};

use crate::defect::{Defect, Defect::*};
use crate::pool::{Place, Pool};
use crate::wrong::wrong;

/// Long enough for other threads to interfere, and short enough for a thousand repetitions.
const A_MOMENT: Duration = Duration::from_micros(30);

/// The place as if its offset were zero, if that is the defect.
pub(crate) fn placed(place: &Place, defect: Defect) -> Place {
    if wrong(defect) {
        Place { range: place.memory..place.memory + place.range.len(), ..place.clone() }
    } else {
        place.clone()
    }
}

/// How many of `len` bytes are moved, by defects that stop too early: a byte before the end, at the border of
/// a page, or after a MiB.
pub(crate) fn cut(place: &Place, len: usize, [short, pages, large]: [Defect; 3]) -> usize {
    const PAGE: usize = 4096;
    if wrong(short) {
        return len - 1;
    }
    if wrong(pages) {
        let offset = place.range.start - place.memory;
        return len.min(PAGE - offset % PAGE);
    }
    if wrong(large) { len.min(1 << 20) } else { len }
}

/// The two ends of a copy, exchanged if that is the defect.
pub(crate) fn swapped<'a>(from: &'a Place, to: &'a Place) -> (&'a Place, &'a Place) {
    let of_peers = !Arc::ptr_eq(&from.pool, &to.pool);
    if wrong(CopiesGoBackwards) || wrong(PeerCopiesGoBackwards) && of_peers { (to, from) } else { (from, to) }
}

/// Where a copy from a peer takes its bytes.
pub(crate) fn of_a_peer(from: &Place, to: &Place) -> Place {
    if wrong(PeerCopiesAreOfItsOwnMemory) {
        Place { pool: Arc::clone(&to.pool), ..from.clone() }
    } else {
        from.clone()
    }
}

/// The place in whole words of eight bytes.
fn in_words(place: &Place) -> Range<usize> {
    place.range.start / 8 * 8..place.range.end.next_multiple_of(8)
}

/// Reads whole words, changes some of their bytes, and writes them all.
fn change_words(to: &Place, change: impl FnOnce(&mut [u8])) -> Result<(), BackendError> {
    let words = in_words(to);
    let mut bytes = to.pool.bytes.read(words.clone())?.to_vec();
    let start = to.range.start - words.start;
    change(&mut bytes[start..start + to.range.len()]);
    thread::sleep(A_MOMENT);
    to.pool.bytes.write(words)?.copy_from_slice(&bytes);
    Ok(())
}

/// Through memory that all threads share.
fn by_scratch(bytes: &[u8]) -> Vec<u8> {
    static SCRATCH: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    *SCRATCH.lock() = bytes.to_vec();
    thread::sleep(A_MOMENT);
    let mut bytes = bytes.to_vec();
    let scratch = SCRATCH.lock();
    let both = bytes.len().min(scratch.len());
    bytes[..both].copy_from_slice(&scratch[..both]);
    bytes
}

/// Writes behind the destination of a read.
pub(crate) fn read_too_far(destination: &mut [u8]) {
    if wrong(ReadsWriteTooFar) {
        // SAFETY: none: this is the defect. The check has bytes of its own there.
        unsafe { destination.as_mut_ptr().add(destination.len()).write(0) };
    }
}

/// A copy that is delayed until the next read.
static DEFERRED: Mutex<Option<(Place, Place)>> = Mutex::new(None);

fn copy_what_is_deferred() -> Result<(), BackendError> {
    let deferred = DEFERRED.lock().take();
    deferred.map_or(Ok(()), |(from, to)| just_copy(&from, &to))
}

fn just_copy(from: &Place, to: &Place) -> Result<(), BackendError> {
    let (from, to) = (from.clone(), to.clone());
    let ([source], [mut destination]) =
        open_windows([(&from.pool.bytes, from.range)], [(&to.pool.bytes, to.range)])?;
    destination.copy_from_slice(&source);
    Ok(())
}

/// Identifies memory: the pool, and its first byte.
type Key = (usize, usize);

fn key(place: &Place) -> Key {
    (Arc::as_ptr(&place.pool).addr(), place.memory)
}

/// The memory that something was written to.
static WRITTEN: Mutex<BTreeSet<Key>> = Mutex::new(BTreeSet::new());

/// Writes wrongly. Returns whether it did.
pub(crate) fn written(to: &Place, source: &[u8]) -> Result<bool, BackendError> {
    let write = |range: Range<usize>, bytes: &[u8]| {
        to.pool.bytes.write(range).map(|mut destination| destination.copy_from_slice(bytes))
    };
    let to_all = to.range.clone();
    if wrong(NewMemoryCannotBeRead) {
        WRITTEN.lock().insert(key(to));
    } else if wrong(SkipsZeros) {
        let mut bytes = to.pool.bytes.write(to_all)?;
        bytes.iter_mut().zip(source).filter(|(_, byte)| **byte != 0).for_each(|(to, byte)| *to = *byte);
        return Ok(true);
    } else if wrong(LosesTheHighBit) {
        write(to_all, &source.iter().map(|byte| byte & 0x7F).collect::<Vec<_>>())?;
        return Ok(true);
    } else if wrong(LongRunsWrap) && source.len() > 0xFFFF && source.iter().all(|&byte| byte == source[0]) {
        let run = source.len() & 0xFFFF;
        write(to_all.start..to_all.start + run, &source[..run])?;
        return Ok(true);
    } else if wrong(HostPointersHaveToBeAligned) && !source.as_ptr().addr().is_multiple_of(4) {
        return Err(BackendError::invalid("a host pointer is not aligned to 4 bytes"));
    } else if wrong(WritesOnceOnly) {
        static LAST: Mutex<Option<(Key, Range<usize>)>> = Mutex::new(None);
        let this = Some((key(to), to_all));
        return Ok(std::mem::replace(&mut *LAST.lock(), this.clone()) == this);
    } else if wrong(WritesInTheBackground) {
        let (to, source) = (to.clone(), source.to_vec());
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            to.pool.bytes.write(to.range.clone()).map(|mut bytes| bytes.copy_from_slice(&source))
        });
        return Ok(true);
    } else if wrong(WritesWholeWords) {
        change_words(to, |bytes| bytes.copy_from_slice(source))?;
        return Ok(true);
    } else if wrong(SharesAScratchBuffer) {
        write(to_all, &by_scratch(source))?;
        return Ok(true);
    } else if wrong(ClearsBeforeItWrites) {
        to.pool.bytes.write(to_all)?.fill(0);
        thread::sleep(10 * A_MOMENT);
    }
    Ok(false)
}

/// Reads wrongly. Returns whether it did.
pub(crate) fn read(from: &Place, destination: &mut [u8]) -> Result<bool, BackendError> {
    if wrong(NewMemoryCannotBeRead) && !WRITTEN.lock().contains(&key(from)) {
        return Err(BackendError::invalid("nothing was written to this memory"));
    } else if wrong(ReadsDestroy) {
        destination.copy_from_slice(&from.pool.bytes.read(from.range.clone())?[..destination.len()]);
        from.pool.bytes.write(from.range.clone())?.fill(0);
        return Ok(true);
    } else if wrong(SharesAScratchBuffer) {
        let bytes = from.pool.bytes.read(from.range.clone())?.to_vec();
        destination.copy_from_slice(&by_scratch(&bytes));
        return Ok(true);
    } else if wrong(CopiesOnTheNextRead) {
        copy_what_is_deferred()?;
    }
    Ok(false)
}

/// Copies wrongly. Returns whether it did.
pub(crate) fn copied(from: &Place, to: &Place) -> Result<bool, BackendError> {
    let touch = from.range.end == to.range.start || to.range.end == from.range.start;
    if wrong(NewMemoryCannotBeRead) && !WRITTEN.lock().contains(&key(from)) {
        return Err(BackendError::invalid("nothing was written to this memory"));
    } else if wrong(NewMemoryCannotBeRead) {
        WRITTEN.lock().insert(key(to));
    } else if wrong(NeighboursOverlap) && touch && key(from) != key(to) {
        return Err(BackendError::invalid("source and destination overlap"));
    } else if wrong(CopiesMove) {
        just_copy(from, to)?;
        from.pool.bytes.write(from.range.clone())?.fill(0);
        return Ok(true);
    } else if wrong(CopiesOnTheNextRead) {
        copy_what_is_deferred()?;
        *DEFERRED.lock() = Some((from.clone(), to.clone()));
        return Ok(true);
    } else if wrong(SharesAScratchBuffer) {
        let bytes = from.pool.bytes.read(from.range.clone())?.to_vec();
        to.pool.bytes.write(to.range.clone())?.copy_from_slice(&by_scratch(&bytes));
        return Ok(true);
    }
    Ok(false)
}

/// The locks of the two memories, which right copies do not take.
pub(crate) fn locked(from: &Place, to: &Place) -> Vec<MutexGuard<'static, ()>> {
    static LOCKS: Mutex<BTreeMap<Key, &'static Mutex<()>>> = Mutex::new(BTreeMap::new());
    let of = |place| *LOCKS.lock().entry(key(place)).or_insert_with(|| Box::leak(Box::default()));
    if wrong(LocksOneMemoryTwice) {
        let (low, high) = if key(from) < key(to) { (from, to) } else { (to, from) };
        return vec![of(low).lock(), of(high).lock()];
    }
    if wrong(LocksTheSourceFirst) && key(from) != key(to) {
        let source = of(from).lock();
        thread::sleep(A_MOMENT);
        return vec![source, of(to).lock()];
    }
    Vec::new()
}

/// Fills wrongly. Returns whether it did.
pub(crate) fn filled(to: &Place, pattern: &FillPattern) -> Result<bool, BackendError> {
    let (pattern, len) = (pattern.as_bytes(), to.range.len());
    let fill = |pattern: &[u8], len: usize| {
        let mut bytes = to.pool.bytes.write(to.range.start..to.range.start + len)?;
        bytes.chunks_mut(pattern.len()).for_each(|part| part.copy_from_slice(&pattern[..part.len()]));
        Ok(true)
    };
    if wrong(ShortFills) {
        fill(pattern, len - 1)
    } else if wrong(FillsWriteThePatternOnce) {
        fill(pattern, pattern.len().min(len))
    } else if wrong(FillsReverseThePattern) {
        fill(&pattern.iter().rev().copied().collect::<Vec<_>>(), len)
    } else if wrong(LongPatternsAreCut) {
        fill(&pattern[..pattern.len().min(8)], len)
    } else if wrong(FillsStopAtPages) {
        fill(pattern, len.min(4096 - (to.range.start - to.memory) % 4096))
    } else if wrong(LargeFillsAreCut) {
        fill(pattern, len.min(8 << 20))
    } else if wrong(FillsLeaveTheTail) {
        fill(pattern, len / 16 * 16)
    } else if wrong(FillsWithZerosAreSkipped) && pattern.contains(&0) {
        Ok(true)
    } else if wrong(FillsWholeWords) {
        let fill = |bytes: &mut [u8]| {
            bytes.chunks_mut(pattern.len()).for_each(|part| part.copy_from_slice(&pattern[..part.len()]));
        };
        change_words(to, fill).map(|()| true)
    } else {
        if wrong(NewMemoryCannotBeRead) {
            WRITTEN.lock().insert(key(to));
        }
        Ok(false)
    }
}

/// Memory that was freed is new again.
pub(crate) fn forget(pool: usize, memory: usize) {
    WRITTEN.lock().remove(&(pool, memory));
}

/// Writes without any defect: what other blunders need.
pub(crate) fn wipe(pool: &Pool, range: Range<usize>, value: u8) {
    if let Ok(mut bytes) = pool.bytes.write(range) {
        bytes.fill(value);
    }
}

/// Keeps spans permanently.
pub(crate) fn keep(span: &Span) {
    static KEPT: Mutex<Vec<Span>> = Mutex::new(Vec::new());
    if wrong(SpansAreKept) {
        KEPT.lock().push(span.clone());
    }
}

/// Runs when a transfer fails, with its span and its error.
pub(crate) fn fail(span: &Span, error: BackendError) -> BackendError {
    if wrong(FailedCopiesHarmTheirNeighbours)
        && let Ok(place) = Place::of(span)
    {
        wipe(&place.pool, place.memory..place.range.start, 0xDD);
    }
    error
}
