//! Host memory as a device's memory: reached through windows, so that no two threads touch a byte at once.
//!
//! A window is a lock on a range of bytes, for reading or for writing. All windows of one operation are opened
//! together: for each memory at one go, and the memories in the order of their addresses, so that no two operations
//! wait for each other. Of those that are in each other's way in one memory, who asked first gets in first, so that a
//! writer is not kept out by readers for ever. Who has windows open already never waits, and goes before those who do.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;

use crate::backend::zeroed_bytes::ZeroedBytes;
use crate::backend::{BackendError, Memory};
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait};

/// Bytes of the host that serve as the memory of a device.
///
/// It is for backends whose memory is ordinary memory, and for kernels that run on the host. Its bytes are reached
/// only through windows, each of which locks a range for the length of one operation. So two operations that race for
/// the same bytes leave either the one's or the other's, and never undefined behaviour. No alignment is promised.
///
/// Windows nest: while a thread has some open it may open more, as a kernel does that calls another one. It does not wait
/// for those, since two threads could then wait for each other: if somebody is in the way it gets an error. In a program
/// whose operations are ordered nobody ever is, but the thread itself, which may read the same bytes twice and not write
/// to them meanwhile. A thread that has windows open may not wait for one that opens windows on the same bytes. A window
/// that is forgotten ([`mem::forget`](std::mem::forget)) is never closed.
///
/// ```
/// use device_registry::{HostMemory, open_windows};
///
/// let memory = HostMemory::zeroed(8)?;
/// memory.write(0..4)?.copy_from_slice(b"abcd");
///
/// // Several windows are opened together, also those of one memory.
/// let ([source], [mut destination]) = open_windows([(&memory, 0..4)], [(&memory, 4..8)])?;
/// destination.copy_from_slice(&source);
/// drop((source, destination));
///
/// assert_eq!(*memory.read(2..6)?, *b"cdab");
/// # Ok::<(), device_registry::BackendError>(())
/// ```
pub struct HostMemory {
    start: NonNull<u8>,
    len: usize,
    windows: Mutex<Windows>,
    closed: Condvar,
    /// Frees the bytes when it is dropped.
    _owner: Owner,
}

enum Owner {
    Own { _bytes: ZeroedBytes },
    Other { _owner: Box<dyn Send> },
}

// SAFETY: the bytes belong to this value alone, and until it is dropped they are touched through windows only. An open
// window that writes overlaps no other open one, whatever the thread: `Windows` sees to that under a lock. The owner is
// `Send`, and nothing reaches it but the drop.
unsafe impl Send for HostMemory {}
// SAFETY: through a shared reference the bytes are touched through windows only, of which no two that are open at once
// overlap where one writes; the owner is not reached at all.
unsafe impl Sync for HostMemory {}

impl Memory for HostMemory {}

impl HostMemory {
    /// Memory of `len` bytes, all of them zero. Pages that are never used may take no room.
    ///
    /// # Errors
    ///
    /// [`BackendError::out_of_memory`] if the host refuses that much, where `vec![0; len]` would end the process.
    pub fn zeroed(len: usize) -> Result<Self, BackendError> {
        let bytes = ZeroedBytes::new(len)?;
        Ok(Self::new(bytes.start(), len, Owner::Own { _bytes: bytes }))
    }

    /// Memory of bytes that somebody else allocated, such as a part of a mapping or what a vendor's library shares
    /// with the host. `owner` is dropped with the memory, on any thread, and frees the bytes or lets go of them.
    ///
    /// ```
    /// use std::ptr::NonNull;
    ///
    /// use device_registry::HostMemory;
    ///
    /// let mut bytes = vec![1_u8, 2, 3];
    /// let start = NonNull::new(bytes.as_mut_ptr()).expect("no pointer of a vector is null");
    /// // SAFETY: the vector owns three initialised bytes, and nobody looks into it before it is dropped.
    /// let memory = unsafe { HostMemory::from_raw_parts(start, 3, bytes) };
    /// assert_eq!(*memory.read(1..3)?, [2, 3]);
    /// # Ok::<(), device_registry::BackendError>(())
    /// ```
    ///
    /// # Safety
    ///
    /// Until `owner` is dropped:
    ///
    /// - the `len` bytes from `start` on are one allocation of at most `isize::MAX` bytes, valid for reads and writes;
    /// - they are initialised;
    /// - nothing but the windows of this memory reads or writes them, in this process or out of it. They belong to no
    ///   other `HostMemory`. (A `Box` of them is no owner: moving it claims them for it alone. A `Vec` may be moved.)
    #[must_use]
    pub unsafe fn from_raw_parts(start: NonNull<u8>, len: usize, owner: impl Send + 'static) -> Self {
        Self::new(start, len, Owner::Other { _owner: Box::new(owner) })
    }

    fn new(start: NonNull<u8>, len: usize, owner: Owner) -> Self {
        Self { start, len, windows: Mutex::default(), closed: Condvar::new(), _owner: owner }
    }

    /// The number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many windows are open or wait to be, at the moment of asking.
    #[must_use]
    pub fn window_count(&self) -> usize {
        self.windows().entered.len()
    }

    /// A window to read from. Blocks while another one writes there, or has been waiting to.
    ///
    /// # Errors
    ///
    /// As [`open_windows`].
    pub fn read(&self, range: Range<usize>) -> Result<Window<'_>, BackendError> {
        open_windows([(self, range)], []).map(|([window], [])| window)
    }

    /// A window to write to. Blocks while another one is open there, or has been waiting to be.
    ///
    /// # Errors
    ///
    /// As [`open_windows`].
    pub fn write(&self, range: Range<usize>) -> Result<WindowMut<'_>, BackendError> {
        open_windows([], [(self, range)]).map(|([], [window])| window)
    }

    /// Enters windows, and waits until those that were entered before and are in the way have been closed.
    fn enter(&self, wanted: &mut [Wanted<'_>]) {
        let mut windows = self.windows();
        let first = windows.next;
        for wanted in &mut *wanted {
            wanted.number = windows.next;
            windows.next += 1;
            let (number, range, writes) = (wanted.number, wanted.range.clone(), wanted.writes);
            windows.entered.push(Entered { number, range, writes, open: false });
        }
        let in_the_way = |windows: &Windows| {
            // Also what was opened since, by a thread that did not wait.
            let mut before = windows.entered.iter().filter(|entered| entered.number < first || entered.open);
            before.any(|entered| wanted.iter().any(|wanted| entered.conflicts(&wanted.range, wanted.writes)))
        };
        // Not `wait_while`, which returns at the first wake-up, whatever it finds, if the lock is poisoned.
        while in_the_way(&windows) {
            windows = wait(&self.closed, windows);
        }
        let own = windows
            .entered
            .iter_mut()
            .filter(|entered| (first..first + wanted.len() as u64).contains(&entered.number));
        own.for_each(|entered| entered.open = true);
    }

    /// Opens windows if nobody is in the way, before those who wait.
    fn enter_at_once(&self, wanted: &mut [Wanted<'_>]) -> Result<(), BackendError> {
        let mut windows = self.windows();
        for wanted in &*wanted {
            let mut open = windows.entered.iter().filter(|entered| entered.open);
            if let Some(other) = open.find(|entered| entered.conflicts(&wanted.range, wanted.writes)) {
                return Err(BackendError::invalid(format!(
                    "a window on bytes {:?} is open, and a thread that has windows open does not wait for one on \
                     {:?} of the same memory: two could wait for each other, or it for itself",
                    other.range, wanted.range
                )));
            }
        }
        for wanted in wanted {
            wanted.number = windows.next;
            windows.next += 1;
            let (number, range, writes) = (wanted.number, wanted.range.clone(), wanted.writes);
            windows.entered.push(Entered { number, range, writes, open: true });
        }
        Ok(())
    }

    fn leave(&self, number: u64) {
        let mut windows = self.windows();
        windows.entered.retain(|entered| entered.number != number);
        let others = !windows.entered.is_empty();
        drop(windows);
        if others {
            self.closed.notify_all();
        }
    }

    fn windows(&self) -> MutexGuard<'_, Windows> {
        // Nothing panics while the list is changed; and if it did, its entries would still be whole.
        lock(&self.windows)
    }
}

/// The windows of one memory that are open or wait to be, in the order in which they were asked for.
#[derive(Default)]
struct Windows {
    entered: Vec<Entered>,
    next: u64,
}

struct Entered {
    number: u64,
    range: Range<usize>,
    writes: bool,
    /// It waits no more.
    open: bool,
}

impl Entered {
    fn conflicts(&self, range: &Range<usize>, writes: bool) -> bool {
        (self.writes || writes) && overlap(&self.range, range)
    }
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMemory").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Opens all windows of one operation: some to read from and some to write to, of any memories. Blocks until none
/// of another operation is in the way, unless this thread has windows open already.
///
/// # Errors
///
/// [`BackendError::invalid`] if a range lies outside of its memory, if one that is written to overlaps another of the
/// operation, or if this thread has windows open already and another window is in the way: none is opened then.
pub fn open_windows<'a, const R: usize, const W: usize>(
    reads: [(&'a HostMemory, Range<usize>); R],
    writes: [(&'a HostMemory, Range<usize>); W],
) -> Result<([Window<'a>; R], [WindowMut<'a>; W]), BackendError> {
    let reads = reads.into_iter().map(|of| (of, false));
    let writes = writes.into_iter().map(|of| (of, true));
    let mut wanted: Vec<Wanted<'a>> = reads
        .chain(writes)
        .enumerate()
        .map(|(place, ((memory, range), writes))| Wanted { memory, range, writes, place, number: 0 })
        .collect();
    check(&wanted)?;

    let address = |wanted: &Wanted<'a>| std::ptr::from_ref(wanted.memory).addr();
    wanted.sort_by_key(address);
    let nested = OPEN.with(Cell::get) > 0;
    let mut entered = 0;
    for of_one_memory in wanted.chunk_by_mut(|a, b| address(a) == address(b)) {
        let memory = of_one_memory[0].memory;
        if !nested {
            memory.enter(of_one_memory);
        } else if let Err(error) = memory.enter_at_once(of_one_memory) {
            wanted[..entered].iter().for_each(|wanted| wanted.memory.leave(wanted.number));
            return Err(error);
        }
        entered += of_one_memory.len();
    }
    wanted.sort_by_key(|wanted| wanted.place);
    OPEN.with(|open| open.set(open.get() + wanted.len()));
    let mut windows = wanted.into_iter().map(|Wanted { memory, range, number, .. }| Window {
        memory,
        range,
        number,
        stays: PhantomData,
    });
    let mut next = || windows.next().expect("there are as many as are asked for");
    Ok((std::array::from_fn(|_| next()), std::array::from_fn(|_| WindowMut(next()))))
}

thread_local! {
    /// How many windows this thread has open.
    static OPEN: Cell<usize> = const { Cell::new(0) };
}

/// A window that is asked for.
struct Wanted<'a> {
    memory: &'a HostMemory,
    range: Range<usize>,
    writes: bool,
    /// Among those of the operation.
    place: usize,
    /// Among those of the memory, once it is entered.
    number: u64,
}

fn check(wanted: &[Wanted<'_>]) -> Result<(), BackendError> {
    for (at, one) in wanted.iter().enumerate() {
        let (range, len) = (&one.range, one.memory.len);
        if range.start > range.end || range.end > len {
            return Err(BackendError::invalid(format!(
                "bytes {range:?} are not inside of a memory of {len} bytes"
            )));
        }
        let conflicts = |other: &&Wanted<'_>| {
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

/// Bytes of a [`HostMemory`] to read from, until it is dropped. It stays on its thread.
pub struct Window<'a> {
    memory: &'a HostMemory,
    range: Range<usize>,
    number: u64,
    /// Not `Send`: it is counted among those of its thread. Others may look into it.
    stays: PhantomData<MutexGuard<'a, ()>>,
}

/// Bytes of a [`HostMemory`] to write to, until it is dropped. It stays on its thread.
pub struct WindowMut<'a>(Window<'a>);

impl Window<'_> {
    fn start(&self) -> *mut u8 {
        // SAFETY: the range was checked to lie inside of the memory.
        unsafe { self.memory.start.add(self.range.start) }.as_ptr()
    }
}

impl Deref for Window<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are initialised and live as long as the memory, which is borrowed. While this window is
        // open, no other open one writes to them.
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
        // SAFETY: the bytes are initialised and live as long as the memory, which is borrowed. While this window is open,
        // which writes, no other is open on any of them.
        unsafe { std::slice::from_raw_parts_mut(self.0.start(), self.0.range.len()) }
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        self.memory.leave(self.number);
        // While a thread ends, the count may be gone.
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
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use super::*;
    use crate::backend::BackendErrorKind;

    /// Runs on a thread of its own, so that windows that wait for each other are a failure and do not take for ever.
    fn ends(run: impl FnOnce() + Send + 'static) {
        let (ended, end) = mpsc::channel();
        std::thread::spawn(move || {
            run();
            let _ = ended.send(());
        });
        assert_eq!(end.recv_timeout(Duration::from_secs(60)), Ok(()));
    }

    #[test]
    fn new_memory_is_zero_and_of_the_length_asked_for() {
        let memory = HostMemory::zeroed(3).unwrap();
        assert_eq!((memory.len(), &*memory.read(0..3).unwrap()), (3, &[0; 3][..]));
        assert!(HostMemory::zeroed(0).unwrap().read(0..0).unwrap().is_empty());
        for len in [usize::MAX, isize::MAX as usize + 1] {
            let error = HostMemory::zeroed(len).unwrap_err();
            assert_eq!(error.kind(), BackendErrorKind::OutOfMemory { asked: len as u64, free: None });
        }
    }

    #[test]
    #[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
    fn memory_that_is_dropped_is_free() {
        // Together more than can be addressed.
        (0..66_000).for_each(|_| drop(HostMemory::zeroed(2 << 30).unwrap()));
    }

    #[test]
    fn bytes_of_an_owner_are_reached_by_windows_and_freed_with_the_memory() {
        struct Owner(Arc<AtomicUsize>, Vec<u8>);
        impl Drop for Owner {
            fn drop(&mut self) {
                assert_eq!(self.1, b"aXc");
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let dropped = Arc::new(AtomicUsize::new(0));
        let mut owner = Owner(Arc::clone(&dropped), b"abc".to_vec());
        let start = NonNull::new(owner.1.as_mut_ptr()).unwrap();
        // SAFETY: the vector owns three initialised bytes, and is not looked into before the memory is dropped.
        let memory = unsafe { HostMemory::from_raw_parts(start, 3, owner) };
        memory.write(1..2).unwrap().fill(b'X');
        assert_eq!(*memory.read(0..3).unwrap(), *b"aXc");
        assert!(memory.read(0..4).is_err());
        assert_eq!(dropped.load(Ordering::SeqCst), 0);
        // On another thread, as a framework's last handle may be.
        std::thread::spawn(move || drop(memory)).join().unwrap();
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
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
    fn a_window_is_its_range_and_nothing_else() {
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
    #[expect(clippy::reversed_empty_ranges, reason = "it is what is refused")]
    fn ranges_outside_are_errors() {
        let memory = HostMemory::zeroed(4).unwrap();
        for range in [0..5, 5..5, 3..2, usize::MAX..usize::MAX] {
            assert!(memory.read(range.clone()).is_err(), "{range:?}");
            assert!(memory.write(range.clone()).is_err(), "{range:?}");
        }
        assert_eq!(
            memory.read(2..9).unwrap_err().to_string(),
            "bytes 2..9 are not inside of a memory of 4 bytes"
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
    fn windows_nest_where_nobody_is_in_the_way_and_never_wait() {
        ends(|| {
            let (memory, other) = (HostMemory::zeroed(8).unwrap(), HostMemory::zeroed(8).unwrap());
            let window = memory.read(0..4).unwrap();
            let nested =
                (memory.read(2..6).unwrap(), memory.write(6..8).unwrap(), other.write(0..8).unwrap());
            assert_eq!((memory.window_count(), other.window_count()), (3, 1));
            for error in [memory.write(0..4).unwrap_err(), other.read(0..1).err().unwrap()] {
                assert!(error.to_string().contains("does not wait for one on"), "{error}");
            }
            // All or none: the memory that comes first is not left locked.
            for (free, taken) in [(4..6, 0..1), (0..1, 4..6)] {
                drop(open_windows([(&memory, free)], [(&other, taken)]).err().unwrap());
            }
            assert_eq!((memory.window_count(), other.window_count()), (3, 1));
            drop((window, nested));
            assert!(memory.write(0..8).is_ok());
        });
    }

    #[test]
    fn who_waits_does_not_get_in_beside_a_window_that_was_nested_meanwhile() {
        ends(|| {
            let memory = HostMemory::zeroed(8).unwrap();
            std::thread::scope(|scope| {
                let outer = memory.read(0..4).unwrap();
                let writer = scope.spawn(|| memory.write(0..8).unwrap().fill(1));
                while memory.window_count() < 2 {
                    std::thread::yield_now();
                }
                // It goes before the writer, which would wait for this thread.
                let nested = memory.read(0..8).unwrap();
                drop(outer);
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
    fn who_waits_to_write_is_not_overtaken_by_those_who_read() {
        ends(|| {
            let memory = HostMemory::zeroed(8).unwrap();
            std::thread::scope(|scope| {
                let reads = memory.read(0..8).unwrap();
                let writer = scope.spawn(|| memory.write(0..8).unwrap().fill(1));
                while memory.windows().entered.len() < 2 {
                    std::thread::yield_now();
                }
                let reader = scope.spawn(|| memory.read(0..1).unwrap()[0]);
                while memory.windows().entered.len() < 3 {
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
            let (a, b) = (HostMemory::zeroed(LEN).unwrap(), HostMemory::zeroed(LEN).unwrap());
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

    /// Each thread fills windows with its own number and looks whether anything else comes into them.
    #[test]
    fn no_two_threads_are_in_the_same_bytes_if_one_writes() {
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
                    // Now and then the two overlap in one memory, and are refused.
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
            assert!(memories.iter().all(|memory| memory.windows().entered.is_empty()));
        });
    }
}
