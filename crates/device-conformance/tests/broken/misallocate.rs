//! Defects of allocating, freeing and counting memory. Each function does nothing without one of its defects.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use device_registry::backend::{BackendError, BackendErrorKind, MemoryInfo};
use parking_lot::Mutex;

use crate::defect::Defect::*;
use crate::mistransfer::{forget, wipe};
use crate::pool::{CAPACITY, Pool, TwinMemory};
use crate::wrong::wrong;

/// Allocations that were made, and those that are not dropped.
static MADE: AtomicUsize = AtomicUsize::new(0);
static HELD: AtomicUsize = AtomicUsize::new(0);

/// An error from which the device does not recover.
static POISONED: AtomicBool = AtomicBool::new(false);

/// The pool that was used last, whichever device it is of.
static LAST_USED: Mutex<Option<Arc<Pool>>> = Mutex::new(None);

/// The pool of the device that was opened last.
static NEWEST: Mutex<Option<Arc<Pool>>> = Mutex::new(None);

/// The memory of a device that is opened.
pub(crate) fn pool() -> Result<Arc<Pool>, BackendError> {
    let mut newest = NEWEST.lock();
    let pool = match &*newest {
        Some(one) if wrong(EveryOrdinalIsOneDevice) => return Ok(Arc::clone(one)),
        Some(one) if wrong(DevicesShareTheirMemory) => Arc::new(Pool::over(Arc::clone(&one.bytes))),
        _ => Arc::new(Pool::new()?),
    };
    *newest = Some(Arc::clone(&pool));
    Ok(pool)
}

/// Leaks a thread or a file when a device is closed.
pub(crate) fn close() -> Result<(), BackendError> {
    let failed = |error| BackendError::other("the device does not close").with_source(error);
    if wrong(CloseLeavesAThread) {
        fn stay() {
            loop {
                thread::park();
            }
        }
        thread::Builder::new().spawn(stay).map_err(failed)?;
    } else if wrong(CloseLeavesAFile) {
        std::mem::forget(std::fs::File::open("/dev/null").map_err(failed)?);
    }
    Ok(())
}

/// The thread that allocated memory.
pub(crate) struct Maker(ThreadId);

impl Maker {
    pub(crate) fn new() -> Self {
        Self(thread::current().id())
    }

    fn is_here(&self) -> bool {
        self.0 == thread::current().id()
    }
}

/// Runs before each allocation.
pub(crate) fn before(pool: &Arc<Pool>, len: usize) -> Result<(), BackendError> {
    let (made, held) = (MADE.fetch_add(1, Ordering::Relaxed), HELD.load(Ordering::Relaxed));
    if wrong(LargeAllocationsFail) && len >= 1 << 20 || wrong(AllocationsFailNowAndThen) && made % 3 == 2 {
        return Err(BackendError::other("it cannot be allocated"));
    }
    if wrong(HandlesAreNotReturned) && made >= 15_000 || wrong(FewHandles) && held >= 1000 {
        return Err(BackendError::other("there are no more handles"));
    }
    if wrong(FreesOnTheDeviceUsedLast) {
        *LAST_USED.lock() = Some(Arc::clone(pool));
    }
    if POISONED.load(Ordering::Relaxed) { Err(BackendError::other("a lock is poisoned")) } else { Ok(()) }
}

/// Runs after each allocation, with its memory or its error.
pub(crate) fn after(
    pool: &Arc<Pool>,
    len: usize,
    outcome: Result<TwinMemory, BackendError>,
) -> Result<TwinMemory, BackendError> {
    let error = match outcome {
        Ok(memory) => {
            HELD.fetch_add(1, Ordering::Relaxed);
            if wrong(NewMemoryIsClearedTooFar) {
                wipe(pool, memory.start.saturating_sub(64)..memory.start, 0);
            }
            return Ok(memory);
        }
        Err(error) => error,
    };
    assert!(!wrong(OutOfMemoryPanics), "out of memory");
    let kind = |asked, free| BackendErrorKind::OutOfMemory { asked, free };
    if wrong(OutOfMemoryStaysAnError) {
        POISONED.store(true, Ordering::Relaxed);
    } else if wrong(OutOfMemoryWipes) {
        wipe(pool, 0..1 << 20, 0);
    } else if wrong(FailedAllocationsLeak) {
        pool.take(4096);
    } else if wrong(OutOfMemoryIsAnyError) {
        return Err(BackendError::other(error.message()));
    } else if wrong(OutOfMemoryAsksForMore) {
        return Err(BackendError::out_of_memory(len as u64 + 4096, None));
    } else if wrong(OutOfMemoryReportsTooMuch) {
        return Err(BackendError::out_of_memory(len as u64, Some(2 * CAPACITY as u64)));
    } else if wrong(OutOfMemoryShouts) {
        return Err(BackendError::new(kind(len as u64, None), format_args!("Out of memory: {len} bytes.\n")));
    } else if wrong(OutOfMemorySaysNothing) {
        return Err(BackendError::new(kind(len as u64, None), ""));
    } else if wrong(CausesRepeatTheMessage) {
        let again = error.to_string();
        return Err(error.with_source(again));
    }
    Err(error)
}

/// Runs before each use of memory.
pub(crate) fn look_at(memory: &TwinMemory) -> Result<(), BackendError> {
    if wrong(MemoryIsOfItsThread) && !memory.made_by.is_here() {
        return Err(BackendError::invalid("the memory is of another thread"));
    }
    if wrong(FreesOnTheDeviceUsedLast) {
        *LAST_USED.lock() = Some(Arc::clone(&memory.pool));
    }
    Ok(())
}

/// Frees memory wrongly. Returns whether it did.
pub(crate) fn freed(memory: &TwinMemory) -> bool {
    let (pool, start, taken) = (&memory.pool, memory.start, memory.taken);
    HELD.fetch_sub(1, Ordering::Relaxed);
    if wrong(NewMemoryCannotBeRead) {
        forget(Arc::as_ptr(pool).addr(), start);
    }
    let range = start..start + taken;
    let here = memory.made_by.is_here();
    if wrong(MemoryLeaks)
        || wrong(LargeMemoryLeaks) && taken > 1 << 20
        || wrong(FreesOnItsThreadOnly) && !here
    {
        return true;
    } else if wrong(FreesTooMuch) {
        pool.give_back(start, taken + 64);
        return true;
    } else if wrong(FreesTheOneBeforeOnOtherThreads) && !here {
        pool.give_back(start.saturating_sub(taken), taken);
        return true;
    } else if wrong(FreesOnTheDeviceUsedLast) {
        let last = LAST_USED.lock().clone();
        last.as_ref().unwrap_or(pool).give_back(start, taken);
        return true;
    } else if wrong(WipesWhatItHasFreed) {
        pool.give_back(start, taken);
        thread::sleep(Duration::from_micros(500));
        wipe(pool, range, 0xDD);
        return true;
    } else if wrong(WipesAtTheNextDrop) {
        static LAST: Mutex<Option<(Arc<Pool>, Range<usize>)>> = Mutex::new(None);
        let last = LAST.lock().replace((Arc::clone(pool), range));
        last.inspect(|(pool, range)| wipe(pool, range.clone(), 0xDD));
    } else if wrong(FreesOnTheNewDevice) {
        let new = NEWEST.lock().clone();
        wipe(new.as_ref().unwrap_or(pool), range, 0xDD);
    } else if wrong(PanicsPoison) && thread::panicking() {
        POISONED.store(true, Ordering::Relaxed);
    }
    false
}

/// The thread that opened a device, and the number of the opening.
pub(crate) struct Opener {
    thread: ThreadId,
    number: u64,
}

/// How many devices were opened.
static OPENED: AtomicU64 = AtomicU64::new(0);

impl Opener {
    pub(crate) fn new() -> Self {
        Self { thread: thread::current().id(), number: OPENED.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

/// Runs at the beginning of each call to a driver.
pub(crate) fn enter(opened_by: &Opener) -> Result<(), BackendError> {
    if wrong(WorksOnOneThread) && thread::current().id() != opened_by.thread {
        return Err(BackendError::invalid("the device was opened on another thread"));
    }
    if wrong(OpeningClosesOthers) && OPENED.load(Ordering::Relaxed) != opened_by.number {
        return Err(BackendError::invalid("the device is not open any more"));
    }
    if wrong(FewThreads) {
        static SEEN: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());
        static NEXT: AtomicU64 = AtomicU64::new(0);
        thread_local! {
            static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        let mut seen = SEEN.lock();
        seen.insert(NUMBER.with(|number| *number));
        if seen.len() > 200 {
            return Err(BackendError::other("there is room for no more threads"));
        }
    }
    Ok(())
}

/// The reported memory.
pub(crate) fn memory_info(pool: &Pool) -> MemoryInfo {
    let (mut total, mut free) = (CAPACITY as u64, pool.free() as u64);
    if wrong(FreeMemoryStays) {
        free = total;
    } else if wrong(MoreIsFreeThanThereIs) {
        free = total + 4096;
    } else if wrong(TotalIsWhatIsFree) {
        total = free;
    } else if wrong(TotalIsZero) {
        (total, free) = (0, 0);
    } else if wrong(ReportsBits) {
        (total, free) = (8 * total, 8 * free);
    } else if wrong(MeasuresByTakingAll) {
        let taken: Vec<_> =
            (0..28).map(|power| 1 << power).rev().filter_map(|len| Some((pool.take(len)?, len))).collect();
        thread::sleep(Duration::from_millis(1));
        taken.into_iter().for_each(|(start, len)| pool.give_back(start, len));
    } else if wrong(SumsInPlace) {
        static SUM: AtomicU64 = AtomicU64::new(0);
        SUM.store(0, Ordering::Relaxed);
        thread::sleep(Duration::from_micros(50));
        free += SUM.fetch_add(free, Ordering::Relaxed);
    }
    MemoryInfo::unknown().with_total(total).with_free(free)
}

/// Runs before each allocation of pinned memory.
pub(crate) fn before_pinned_memory() -> Result<(), BackendError> {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    if wrong(PinnedMemoryIsDeclaredOnly) {
        Err(BackendError::unsupported("pinned host memory"))
    } else if wrong(UnsupportedIsAnyError) {
        Err(BackendError::other("error 801"))
    } else if wrong(UnsupportedShouts) {
        Err(BackendError::unsupported("Pinned host memory.\n"))
    } else if wrong(UnsupportedChanges) {
        let calls = CALLS.fetch_add(1, Ordering::Relaxed);
        Err(BackendError::unsupported(format_args!("pinned host memory, requested {calls} times before")))
    } else {
        Ok(())
    }
}

pub(crate) fn every_third_time() -> bool {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    CALLS.fetch_add(1, Ordering::Relaxed) % 3 == 2
}
