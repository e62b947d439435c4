//! Windows: locked access to the bytes of a [`HostMemory`], so that no thread writes to a byte that another
//! one uses.
//!
//! A window is a lock on a range of bytes, for reading or for writing. All windows of one operation open
//! together: all windows of a memory in one step, and the memories in the order of their addresses, so that
//! no two operations deadlock.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};

use crate::backend::range_lock::{Request, overlap};
use crate::backend::{BackendError, HostMemory};
use crate::sync::MutexGuard;

/// Opens all windows of one operation: some to read from and some to write to, of any memories. Blocks until
/// no window of another operation conflicts, unless this thread already has windows open.
///
/// # Errors
///
/// [`BackendError::invalid`] if a range lies outside of its memory, if a range to write to overlaps another
/// one of the operation, or if this thread already has windows open and another window conflicts. It then
/// opens none.
pub fn open_windows<'a, const R: usize, const W: usize>(
    reads: [(&'a HostMemory, Range<usize>); R],
    writes: [(&'a HostMemory, Range<usize>); W],
) -> Result<([Window<'a>; R], [WindowMut<'a>; W]), BackendError> {
    let mut wanted = Wanted {
        reads: reads.map(|(memory, range)| Request::new(memory, range, false)),
        writes: writes.map(|(memory, range)| Request::new(memory, range, true)),
    };
    lock_all(wanted.as_mut_slice())?;
    let writes = wanted.writes.map(|request| WindowMut(Window::new(request)));
    Ok((wanted.reads.map(Window::new), writes))
}

/// Opens all windows of one operation, as [`open_windows`] does, where their number is known only when it
/// runs.
///
/// # Errors
///
/// Returns the errors of [`open_windows`].
pub fn open_all_windows<'a>(
    reads: impl IntoIterator<Item = (&'a HostMemory, Range<usize>)>,
    writes: impl IntoIterator<Item = (&'a HostMemory, Range<usize>)>,
) -> Result<(Vec<Window<'a>>, Vec<WindowMut<'a>>), BackendError> {
    let read = reads.into_iter().map(|(memory, range)| Request::new(memory, range, false));
    let mut wanted: Vec<_> = read.collect();
    let reads = wanted.len();
    wanted.extend(writes.into_iter().map(|(memory, range)| Request::new(memory, range, true)));
    lock_all(&mut wanted)?;
    let writes = wanted.split_off(reads);
    let writes = writes.into_iter().map(|request| WindowMut(Window::new(request)));
    let writes = writes.collect();
    Ok((wanted.into_iter().map(Window::new).collect(), writes))
}

/// The requests of one operation, side by side.
#[repr(C)]
struct Wanted<'a, const R: usize, const W: usize> {
    reads: [Request<&'a HostMemory>; R],
    writes: [Request<&'a HostMemory>; W],
}

impl<'a, const R: usize, const W: usize> Wanted<'a, R, W> {
    fn as_mut_slice(&mut self) -> &mut [Request<&'a HostMemory>] {
        // SAFETY: in the layout of C, two arrays of one type lie one after the other, without padding. The
        // slice borrows both for its life.
        unsafe { std::slice::from_raw_parts_mut(std::ptr::from_mut(self).cast(), R + W) }
    }
}

fn lock_all(wanted: &mut [Request<&HostMemory>]) -> Result<(), BackendError> {
    check(wanted)?;
    let nested = OPEN.with(Cell::get) > 0;
    let mut entered = 0;
    // They are few: looking for the next memory costs less than sorting a list.
    while let Some(memory) = next_memory(wanted, entered) {
        let of_memory = wanted.iter_mut().filter(|request| std::ptr::eq(request.memory, memory));
        if !nested {
            memory.windows.lock(of_memory);
        } else if let Err(error) = memory.windows.try_lock(of_memory) {
            let before = wanted.iter().filter(|request| address(request.memory) <= entered);
            before.for_each(|request| request.memory.windows.unlock(request.number));
            return Err(error);
        }
        entered = address(memory);
    }
    OPEN.with(|open| open.set(open.get() + wanted.len()));
    Ok(())
}

/// The memory with the lowest address behind `entered`.
fn next_memory<'a>(wanted: &[Request<&'a HostMemory>], entered: usize) -> Option<&'a HostMemory> {
    let memories = wanted.iter().map(|request| request.memory);
    memories.filter(|memory| address(memory) > entered).min_by_key(|memory| address(memory))
}

fn address(memory: &HostMemory) -> usize {
    std::ptr::from_ref(memory).addr()
}

/// Opens one window, like [`open_windows`], without a search for its memory.
#[inline]
fn open_one(memory: &HostMemory, range: Range<usize>, writes: bool) -> Result<Window<'_>, BackendError> {
    let mut wanted = [Request::new(memory, range, writes)];
    check(&wanted)?;
    if OPEN.with(Cell::get) == 0 {
        memory.windows.lock(wanted.iter_mut());
    } else {
        memory.windows.try_lock(wanted.iter_mut())?;
    }
    OPEN.with(|open| open.set(open.get() + 1));
    let [request] = wanted;
    Ok(Window::new(request))
}

/// Opens one window to read from.
pub(super) fn open_window(memory: &HostMemory, range: Range<usize>) -> Result<Window<'_>, BackendError> {
    open_one(memory, range, false)
}

/// Opens one window to write to.
pub(super) fn open_window_mut(
    memory: &HostMemory,
    range: Range<usize>,
) -> Result<WindowMut<'_>, BackendError> {
    open_one(memory, range, true).map(WindowMut)
}

/// Whether this thread has windows open, which others may wait for.
#[inline]
pub(crate) fn is_any_window_open() -> bool {
    OPEN.try_with(Cell::get).is_ok_and(|open| open > 0)
}

thread_local! {
    /// How many windows this thread has open.
    static OPEN: Cell<usize> = const { Cell::new(0) };
}

fn check(wanted: &[Request<&HostMemory>]) -> Result<(), BackendError> {
    for (at, one) in wanted.iter().enumerate() {
        let range = &one.range;
        let len = one.memory.len();
        if range.start > range.end || range.end > len {
            return Err(BackendError::invalid(format!(
                "bytes {range:?} are outside of a memory of {len} bytes"
            )));
        }
        let conflicts = |other: &&Request<&HostMemory>| {
            let of_one_memory = std::ptr::eq(one.memory, other.memory);
            of_one_memory && (one.writes || other.writes) && overlap(range, &other.range)
        };
        if let Some(other) = wanted[..at].iter().find(conflicts) {
            return Err(BackendError::invalid(format!(
                "bytes {:?} and {range:?} of one memory overlap, and one of the windows writes",
                other.range
            )));
        }
    }
    Ok(())
}

/// Bytes of a [`HostMemory`] to read from. The drop closes the window. It cannot be sent to another thread.
pub struct Window<'a> {
    memory: &'a HostMemory,
    range: Range<usize>,
    number: u64,
    /// Not `Send`, as each thread counts its open windows, but `Sync`: other threads may read the bytes.
    stays: PhantomData<MutexGuard<'a, ()>>,
}

/// Bytes of a [`HostMemory`] to write to. The drop closes the window. It cannot be sent to another thread.
pub struct WindowMut<'a>(Window<'a>);

impl<'a> Window<'a> {
    fn new(locked: Request<&'a HostMemory>) -> Self {
        let Request { memory, range, number, .. } = locked;
        Self { memory, range, number, stays: PhantomData }
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: the range was checked to lie inside the memory.
        unsafe { self.memory.start.add(self.range.start) }.as_ptr()
    }
}

impl Deref for Window<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are initialised and live as long as the memory, which is borrowed. While this
        // window is open, no other open one writes to them.
        unsafe { std::slice::from_raw_parts(self.start(), self.range.len()) }
    }
}

impl Deref for WindowMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for WindowMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the bytes are initialised and live as long as the memory, which is borrowed. While this
        // window, which writes, is open, no other window is open on any of them.
        unsafe { std::slice::from_raw_parts_mut(self.0.start(), self.0.range.len()) }
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        self.memory.windows.unlock(self.number);
        // While a thread ends, its count may be destroyed.
        let _ = OPEN.try_with(|open| open.set(open.get() - 1));
    }
}

impl fmt::Debug for Window<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window").field("range", &self.range).finish_non_exhaustive()
    }
}

impl fmt::Debug for WindowMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowMut").field("range", &self.0.range).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Runs on a separate thread, so that a deadlock fails the test instead of blocking it forever.
    fn ends(run: impl FnOnce() + Send + 'static) {
        let (ended, end) = mpsc::channel();
        std::thread::spawn(move || {
            run();
            let _ = ended.send(());
        });
        assert_eq!(end.recv_timeout(Duration::from_secs(60)), Ok(()));
    }

    #[test]
    fn windows_are_counted_until_they_are_closed() {
        let memory = HostMemory::zeroed(8).unwrap();
        let windows = open_windows([(&memory, 0..2), (&memory, 1..3)], [(&memory, 4..8)]).unwrap();
        assert_eq!(memory.window_count(), 3);
        drop(windows);
        assert_eq!(memory.window_count(), 0);
    }

    #[test]
    fn any_number_of_windows_opens_at_once_or_none() {
        let a = HostMemory::zeroed(8).unwrap();
        let b = HostMemory::zeroed(8).unwrap();
        let (reads, mut writes) = open_all_windows([(&a, 0..2), (&b, 0..4)], [(&b, 4..8)]).unwrap();
        assert_eq!((reads.len(), a.window_count(), b.window_count()), (2, 1, 2));
        writes[0].fill(7);
        drop((reads, writes));
        assert_eq!(*b.read(3..5).unwrap(), [0, 7]);
        open_all_windows([(&a, 0..8)], [(&a, 7..8)]).unwrap_err();
        assert_eq!((a.window_count(), b.window_count()), (0, 0));
    }

    #[test]
    fn a_window_gives_access_to_its_range_only() {
        ends(|| {
            let memory = HostMemory::zeroed(6).unwrap();
            memory.write(0..6).unwrap().copy_from_slice(b"abcdef");
            memory.write(2..4).unwrap().copy_from_slice(b"XY");
            assert_eq!(&*memory.read(1..5).unwrap(), b"bXYe");
        });
    }

    #[test]
    fn a_panic_closes_the_windows_of_its_thread() {
        ends(|| {
            let memory = HostMemory::zeroed(4).unwrap();
            let kernel = std::panic::AssertUnwindSafe(|| {
                let _window = memory.write(0..4).unwrap();
                panic!("in a kernel");
            });
            assert!(std::panic::catch_unwind(kernel).is_err());
            assert!(memory.write(0..4).is_ok());
        });
    }

    #[test]
    #[expect(clippy::reversed_empty_ranges, reason = "an invalid range must be refused")]
    fn ranges_outside_are_errors() {
        let memory = HostMemory::zeroed(4).unwrap();
        for range in [0..5, 5..5, 3..2, usize::MAX..usize::MAX] {
            assert!(memory.read(range.clone()).is_err(), "{range:?}");
            assert!(memory.write(range.clone()).is_err(), "{range:?}");
        }
        assert_eq!(
            memory.read(2..9).unwrap_err().to_string(),
            "bytes 2..9 are outside of a memory of 4 bytes"
        );
    }

    #[test]
    fn windows_of_one_operation_may_not_overlap_if_one_writes() {
        let memory = HostMemory::zeroed(8).unwrap();
        assert!(open_windows([(&memory, 0..4), (&memory, 2..6)], []).is_ok());
        assert!(open_windows([(&memory, 0..4)], [(&memory, 4..8)]).is_ok());
        let error = open_windows([(&memory, 0..4)], [(&memory, 3..5)]).unwrap_err();
        assert!(error.to_string().contains("bytes 0..4 and 3..5 of one memory overlap"), "{error}");
        assert!(open_windows([], [(&memory, 0..4), (&memory, 3..5)]).is_err());
        let other = HostMemory::zeroed(8).unwrap();
        assert!(open_windows([(&memory, 0..4)], [(&other, 0..4)]).is_ok());
    }

    #[test]
    fn windows_nest_where_none_conflicts_and_never_wait() {
        ends(|| {
            let memory = HostMemory::zeroed(8).unwrap();
            let other = HostMemory::zeroed(8).unwrap();
            let window = memory.read(0..4).unwrap();
            let nested =
                (memory.read(2..6).unwrap(), memory.write(6..8).unwrap(), other.write(0..8).unwrap());
            assert_eq!((memory.window_count(), other.window_count()), (3, 1));
            for error in [memory.write(0..4).unwrap_err(), other.read(0..1).err().unwrap()] {
                assert!(error.to_string().contains("cannot open a window on bytes"), "{error}");
            }
            // The failed call opens none: it must not leave the first memory locked.
            for (free, taken) in [(4..6, 0..1), (0..1, 4..6)] {
                drop(open_windows([(&memory, free)], [(&other, taken)]).err().unwrap());
            }
            assert_eq!((memory.window_count(), other.window_count()), (3, 1));
            drop((window, nested));
            assert!(memory.write(0..8).is_ok());
        });
    }

    #[test]
    fn a_waiting_writer_also_waits_for_a_window_that_was_nested_since() {
        ends(|| {
            let memory = HostMemory::zeroed(8).unwrap();
            std::thread::scope(|scope| {
                let outer = memory.read(0..4).unwrap();
                let writer = scope.spawn(|| memory.write(0..8).unwrap().fill(1));
                while memory.window_count() < 2 {
                    std::thread::yield_now();
                }
                // It overtakes the writer, which waits for this thread: waiting for the writer would
                // deadlock.
                let nested = memory.read(0..8).unwrap();
                drop(outer);
                // A writer that takes no notice of it would write now.
                std::thread::sleep(Duration::from_millis(20));
                assert_eq!(*nested, [0; 8]);
                drop(nested);
                writer.join().unwrap();
            });
            assert_eq!(*memory.read(0..8).unwrap(), [1; 8]);
        });
    }

    #[test]
    fn windows_that_read_and_windows_on_other_bytes_are_open_at_once() {
        ends(|| {
            let memory = HostMemory::zeroed(8).unwrap();
            let _reads = memory.read(0..4).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| drop(memory.read(0..4).unwrap()));
                scope.spawn(|| memory.write(4..8).unwrap().fill(1));
            });
        });
    }

    #[test]
    fn readers_do_not_overtake_a_waiting_writer() {
        ends(|| {
            let memory = HostMemory::zeroed(8).unwrap();
            std::thread::scope(|scope| {
                let reads = memory.read(0..8).unwrap();
                let writer = scope.spawn(|| memory.write(0..8).unwrap().fill(1));
                while memory.window_count() < 2 {
                    std::thread::yield_now();
                }
                let reader = scope.spawn(|| memory.read(0..1).unwrap()[0]);
                while memory.window_count() < 3 {
                    std::thread::yield_now();
                }
                drop(reads);
                writer.join().unwrap();
                assert_eq!(reader.join().unwrap(), 1);
            });
        });
    }

    #[test]
    fn copies_in_opposite_directions_do_not_wait_for_each_other() {
        const LEN: usize = if cfg!(miri) { 64 } else { 1 << 14 };
        ends(|| {
            let a = HostMemory::zeroed(LEN).unwrap();
            let b = HostMemory::zeroed(LEN).unwrap();
            let copy = |from, to| {
                for _ in 0..if cfg!(miri) { 20 } else { 5000 } {
                    let ([from], [mut to]) = open_windows([(from, 0..LEN)], [(to, 0..LEN)]).unwrap();
                    to.copy_from_slice(&from);
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(|| copy(&a, &b));
                scope.spawn(|| copy(&b, &a));
            });
        });
    }

    /// Each thread fills windows with its own number, and checks that no other thread changes the bytes.
    #[test]
    fn no_two_threads_access_the_same_bytes_if_one_writes() {
        const LEN: usize = 64;
        ends(|| {
            let memories = [HostMemory::zeroed(LEN).unwrap(), HostMemory::zeroed(LEN).unwrap()];
            let seed = AtomicUsize::new(1);
            let work = |own: u8| {
                let mut state = seed.fetch_add(1, Ordering::Relaxed) as u64;
                let mut random = |below: usize| {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 33) as usize % below
                };
                for _ in 0..if cfg!(miri) { 20 } else { 3000 } {
                    let mut range = || {
                        let start = random(LEN);
                        (&memories[random(2)], start..start + random(LEN - start + 1))
                    };
                    // Sometimes the two overlap in one memory, which is an error.
                    let Ok(([read], [mut written])) = open_windows([range()], [range()]) else { continue };
                    let before = read.to_vec();
                    written.fill(own);
                    let (memory, within) = range();
                    if let Ok(mut nested) = memory.write(within) {
                        nested.fill(own);
                        std::thread::yield_now();
                        assert!(nested.iter().all(|&byte| byte == own));
                    }
                    std::thread::yield_now();
                    assert_eq!(*read, before[..]);
                    assert!(written.iter().all(|&byte| byte == own));
                }
            };
            std::thread::scope(|scope| (0..4).for_each(|own| drop(scope.spawn(move || work(own)))));
            assert!(memories.iter().all(|memory| memory.window_count() == 0));
        });
    }
}
