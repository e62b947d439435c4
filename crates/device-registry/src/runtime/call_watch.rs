//! Which calls into drivers are under way, for programs that report hangs.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Instant;

use crate::device::Device;
use crate::runtime::fork::{PerProcess, Process};

/// Lists the calls into drivers that are under way, so that a program can say where it hangs.
///
/// It is off until [`start`](Self::start), and then stays on. While it is off, a call into a driver only
/// reads one more atomic value. It lists only calls into drivers: a thread that waits in this crate for a
/// stream's work is not listed, but the stream's own thread may be.
///
/// ```
/// use device_registry::{CallWatch, device};
///
/// let watch = CallWatch::start();
/// let buffer = device("cpu")?.allocate(8)?;
/// buffer.write(0, b"returned")?;
/// for call in watch.calls() {
///     println!("{call}");     // `acme:0` write for 9.8s, on the thread `main`
/// }
/// assert!(watch.calls().is_empty(), "all calls have returned");
/// # Ok::<(), device_registry::DeviceError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CallWatch(());

impl CallWatch {
    /// Watches all calls that begin after this one, until the program ends. Further calls have no effect.
    #[must_use]
    pub fn start() -> Self {
        STARTED.store(true, Ordering::Relaxed);
        Self(())
    }

    /// The calls under way in all threads, in the order in which they began. Never blocks on a driver.
    ///
    /// A driver may call another device: then both calls of its thread are listed. A child of `fork` lists
    /// its own calls only.
    #[must_use]
    pub fn calls(self) -> Vec<DriverCall> {
        let threads: Vec<_> = watched_threads().clone();
        let mut calls: Vec<_> = threads.iter().flat_map(|thread| thread.calls().clone()).collect();
        calls.sort_by_key(|call| call.since);
        calls
    }

    /// Calls `observer` before each call into a driver and after it has returned, on the calling thread,
    /// until the program ends. It slows every call down.
    ///
    /// It is for programs that write each step elsewhere, so that another process can read which calls were
    /// under way when this one crashed. The first observer stays; further ones have no effect. It must not
    /// use devices, nor panic.
    pub fn observe(self, observer: fn(&DriverCall, CallStep)) {
        // An error if there is one.
        let _ = OBSERVER.set(observer);
    }
}

/// What [`CallWatch::observe`] reports about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStep {
    /// The call is about to begin.
    Begins,
    /// It has returned.
    Ends,
}

/// A call into a driver that is under way. [`CallWatch::calls`] lists them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DriverCall {
    /// The device, with its index.
    pub device: Device,
    /// The name of the call, as in error messages: `write`.
    pub call: &'static str,
    /// The name of the calling thread, if it has one.
    pub thread: Option<Arc<str>>,
    /// When the call began.
    pub since: Instant,
}

impl fmt::Display for DriverCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {} for {:.1?}, on ", self.device, self.call, self.since.elapsed())?;
        match &self.thread {
            Some(name) => write!(f, "the thread `{name}`"),
            None => f.write_str("a thread without a name"),
        }
    }
}

static STARTED: AtomicBool = AtomicBool::new(false);

static OBSERVER: OnceLock<fn(&DriverCall, CallStep)> = OnceLock::new();

fn observe(call: &DriverCall, step: CallStep) {
    if let Some(observer) = OBSERVER.get() {
        observer(call, step);
    }
}

/// The threads that have called a driver since the start and have not ended.
static THREADS: PerProcess<Mutex<Vec<Arc<Watched>>>> = PerProcess::new([const { Mutex::new(Vec::new()) }; 8]);

thread_local! {
    static OWN: RefCell<Option<Registered>> = const { RefCell::new(None) };
}

fn watched_threads() -> MutexGuard<'static, Vec<Arc<Watched>>> {
    THREADS.current().lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread and its calls under way: an inner call comes after the one that made it.
struct Watched {
    name: Option<Arc<str>>,
    /// A child of `fork` must not wait for the locks of its parent.
    process: Process,
    calls: Mutex<Vec<DriverCall>>,
}

impl Watched {
    fn calls(&self) -> MutexGuard<'_, Vec<DriverCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entry of a thread in the list. Dropping it, at the end of the thread, removes it.
struct Registered(Arc<Watched>);

impl Registered {
    fn new() -> Self {
        let name = thread::current().name().map(Arc::from);
        let watched = Arc::new(Watched { name, process: Process::current(), calls: Mutex::default() });
        watched_threads().push(Arc::clone(&watched));
        Self(watched)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.0.process.is_current() {
            watched_threads().retain(|thread| !Arc::ptr_eq(thread, &self.0));
        }
    }
}

/// A call under way. Dropping it, when the call returns, takes it from the list.
pub(crate) struct UnderWay(Arc<Watched>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.0.process.is_current() {
            let ended = self.0.calls().pop();
            if let Some(call) = ended {
                observe(&call, CallStep::Ends);
            }
        }
    }
}

/// Lists a call of this thread until the returned value is dropped, if a watch was started.
#[inline]
pub(crate) fn enter(device: Device, call: &'static str) -> Option<UnderWay> {
    if STARTED.load(Ordering::Relaxed) { list(device, call) } else { None }
}

#[cold]
fn list(device: Device, call: &'static str) -> Option<UnderWay> {
    // An error if the thread is ending: then the call is not listed.
    let own = OWN.try_with(|own| {
        let mut own = own.borrow_mut();
        let own = match &mut *own {
            Some(own) if own.0.process.is_current() => own,
            missing => missing.insert(Registered::new()),
        };
        Arc::clone(&own.0)
    });
    let thread = own.ok()?;
    let call = DriverCall { device, call, thread: thread.name.clone(), since: Instant::now() };
    thread.calls().push(call.clone());
    observe(&call, CallStep::Begins);
    Some(UnderWay(thread))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::backend::BackendError;
    use crate::runtime::isolation::isolated;

    /// The calls of the thread with this name. Other tests run at the same time.
    fn of(watch: CallWatch, thread: &str) -> Vec<DriverCall> {
        let mut calls = watch.calls();
        calls.retain(|call| call.thread.as_deref() == Some(thread));
        calls
    }

    fn names(calls: &[DriverCall]) -> Vec<&'static str> {
        calls.iter().map(|call| call.call).collect()
    }

    fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
        thread::Builder::new().name(name.to_owned()).spawn(run).unwrap()
    }

    #[test]
    fn a_call_that_hangs_is_listed_until_it_returns() {
        let watch = CallWatch::start();
        let (begun, begins) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let (done, is_done) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = spawn("call_watch::hangs", move || {
            let hangs = || {
                begun.send(()).unwrap();
                released.recv().map_err(|_| BackendError::other("released"))
            };
            isolated(Device::cpu(), "write", hangs).unwrap_err();
            done.send(()).unwrap();
            let _ = ended.recv();
        });
        begins.recv().unwrap();
        let calls = of(watch, "call_watch::hangs");
        assert_eq!(names(&calls), ["write"]);
        assert_eq!(calls[0].device, Device::cpu());
        let text = calls[0].to_string();
        assert!(text.starts_with("`cpu` write for "), "{text}");
        assert!(text.ends_with("s, on the thread `call_watch::hangs`"), "{text}");
        drop(release);
        is_done.recv().unwrap();
        // The thread still runs.
        assert_eq!(names(&of(watch, "call_watch::hangs")), [""; 0]);
        drop(end);
        thread.join().unwrap();
        let left = watched_threads();
        assert!(left.iter().all(|thread| thread.name.as_deref() != Some("call_watch::hangs")));
    }

    #[test]
    fn a_call_within_a_call_stands_behind_it_and_a_panic_ends_both() {
        let watch = CallWatch::start();
        let thread = "call_watch::nests";
        let nests = move || {
            let outer = isolated(Device::cpu(), "copy", || -> Result<(), BackendError> {
                let inner = isolated(Device::cpu(), "read", || {
                    assert_eq!(names(&of(watch, thread)), ["copy", "read"]);
                    Ok(())
                });
                inner.unwrap();
                assert_eq!(names(&of(watch, thread)), ["copy"]);
                panic!("on purpose")
            });
            assert!(outer.unwrap_err().to_string().contains("on purpose"));
            assert_eq!(names(&of(watch, thread)), [""; 0]);
        };
        spawn(thread, nests).join().unwrap();
    }

    #[test]
    fn an_observer_sees_each_call_begin_and_end() {
        static SEEN: Mutex<Vec<(&'static str, CallStep)>> = Mutex::new(Vec::new());
        CallWatch::start().observe(|call, step| {
            if call.thread.as_deref() == Some("call_watch::observed") {
                SEEN.lock().unwrap().push((call.call, step));
            }
        });
        let observed = || {
            isolated(Device::cpu(), "copy", || {
                isolated(Device::cpu(), "read", || Ok(())).unwrap();
                assert_eq!(SEEN.lock().unwrap().len(), 3);
                Ok(())
            })
            .unwrap();
        };
        spawn("call_watch::observed", observed).join().unwrap();
        let begins = CallStep::Begins;
        let ends = CallStep::Ends;
        let expected = [("copy", begins), ("read", begins), ("read", ends), ("copy", ends)];
        assert_eq!(*SEEN.lock().unwrap(), expected);
    }

    #[test]
    fn calls_are_listed_in_the_order_in_which_they_began() {
        let watch = CallWatch::start();
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let threads = ["call_watch::first", "call_watch::second"].map(|name| {
            let (begun, begins) = mpsc::channel();
            let released = Arc::clone(&released);
            let thread = spawn(name, move || {
                let hangs = || {
                    begun.send(()).unwrap();
                    let _ = released.lock().unwrap().recv();
                    Ok(())
                };
                isolated(Device::cpu(), "fill", hangs).unwrap();
            });
            begins.recv().unwrap();
            thread
        });
        let calls = watch.calls();
        let place = |name| calls.iter().position(|call| call.thread.as_deref() == Some(name)).unwrap();
        assert!(place("call_watch::first") < place("call_watch::second"), "{calls:?}");
        drop(release);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
