//! The driver's state: contexts, memory, streams and events, and the context that is current to a thread.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::process::abort;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use cudarc::driver::sys::{CUcontext, CUdeviceptr};
use parking_lot::{Mutex, MutexGuard};

use crate::kernel::Kernel;
use crate::memory::{Allocation, Pinned};
use crate::stream::{Event, Stream};
use crate::{Answer, NOT_INITIALIZED};

pub(crate) const DEVICES: usize = 2;
/// The bytes of each device.
pub(crate) const MEMORY: usize = 256 << 20;
/// The handle of the first context. Nothing of the host is there.
const CONTEXTS: usize = 0xC0DE_0000;

pub(crate) struct State {
    pub(crate) contexts: [Context; DEVICES],
    pub(crate) allocations: BTreeMap<CUdeviceptr, Allocation>,
    pub(crate) next_address: CUdeviceptr,
    pub(crate) pinned: BTreeMap<usize, Pinned>,
    pub(crate) streams: HashMap<usize, Arc<Stream>>,
    pub(crate) events: HashMap<usize, Arc<Event>>,
    pub(crate) modules: HashMap<usize, Arc<Kernel>>,
    pub(crate) pools: HashMap<usize, usize>,
    pub(crate) next_handle: usize,
}

/// The primary context of a device.
#[derive(Default)]
pub(crate) struct Context {
    retained: usize,
    pub(crate) used: usize,
    /// The code that every call returns from now on.
    failed: Option<u32>,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| {
    Mutex::new(State {
        contexts: Default::default(),
        allocations: BTreeMap::new(),
        next_address: 0x0A00_0000_0000,
        pinned: BTreeMap::new(),
        streams: HashMap::new(),
        events: HashMap::new(),
        modules: HashMap::new(),
        pools: HashMap::new(),
        next_handle: 0x5EED_0000,
    })
});
static STARTED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CURRENT: RefCell<Vec<Option<usize>>> = const { RefCell::new(Vec::new()) };
    static CALL: RefCell<String> = const { RefCell::new(String::new()) };
}

pub(crate) fn state() -> MutexGuard<'static, State> {
    STATE.lock()
}

/// Ends the process with a message, for a call that the reference forbids or leaves undefined.
pub(crate) fn misuse(what: impl Display) -> ! {
    let call = CALL.try_with(|call| call.borrow().clone()).unwrap_or_default();
    eprintln!("simulated CUDA driver: misuse in `{call}`: {what}");
    abort()
}

/// For `misuse`, which function this thread is in.
pub(crate) fn set_call(name: &str) {
    // A thread that ends has no such place any more.
    let _ = CALL.try_with(|call| name.clone_into(&mut call.borrow_mut()));
}

pub(crate) fn start() -> Answer {
    if let Ok(code) = std::env::var("SIMULATED_CUDA_INIT") {
        return Err(code.parse().expect("SIMULATED_CUDA_INIT is a code"));
    }
    STARTED.store(true, Ordering::SeqCst);
    Ok(())
}

pub(crate) fn started() -> Answer {
    if STARTED.load(Ordering::SeqCst) { Ok(()) } else { Err(NOT_INITIALIZED) }
}

/// The device whose context is current to this thread. An error if the context has failed.
pub(crate) fn current() -> Result<usize, u32> {
    started()?;
    let Some(device) = CURRENT.with_borrow(|stack| stack.last().copied().flatten()) else {
        misuse("no context is current to this thread");
    };
    alive(device)?;
    Ok(device)
}

/// The code of a context that has failed, as the error.
pub(crate) fn alive(device: usize) -> Answer {
    state().contexts[device].failed.map_or(Ok(()), Err)
}

/// From now on everything in this context fails.
pub(crate) fn fail(device: usize, code: u32) {
    state().contexts[device].failed.get_or_insert(code);
}

pub(crate) fn push(device: usize) {
    CURRENT.with_borrow_mut(|stack| stack.push(Some(device)));
}

pub(crate) fn pop() -> CUcontext {
    let popped = CURRENT.with_borrow_mut(Vec::pop);
    popped.unwrap_or_else(|| misuse("no context was pushed")).map_or(ptr::null_mut(), handle)
}

/// The context that is current to this thread, or null.
pub(crate) fn top() -> CUcontext {
    CURRENT.with_borrow(|stack| stack.last().copied().flatten()).map_or(ptr::null_mut(), handle)
}

pub(crate) fn set(device: Option<usize>) {
    CURRENT.with_borrow_mut(|stack| {
        stack.pop();
        stack.push(device);
    });
}

fn handle(device: usize) -> CUcontext {
    ptr::without_provenance_mut(CONTEXTS + device)
}

impl State {
    pub(crate) fn retain(&mut self, device: usize) -> Result<CUcontext, u32> {
        started()?;
        let context = &mut self.contexts[device];
        if let Some(code) = context.failed {
            return Err(code);
        }
        context.retained += 1;
        Ok(handle(device))
    }

    pub(crate) fn release(&mut self, device: usize) {
        let context = &mut self.contexts[device];
        let Some(retained) = context.retained.checked_sub(1) else {
            misuse("a context is released that was not retained");
        };
        context.retained = retained;
        if retained > 0 || context.failed.is_some() {
            return;
        }
        // It is destroyed now, with all that is in it, and each handle is invalid.
        let left = [
            self.allocations.values().filter(|of| of.device == device).count(),
            self.pinned.values().filter(|of| of.device == device).count(),
            self.streams.values().filter(|of| of.device() == device).count(),
            self.events.values().filter(|of| of.device() == device).count(),
            self.modules.values().filter(|of| of.device == device).count(),
            self.pools.values().filter(|&&of| of == device).count(),
        ];
        if left != [0; 6] {
            misuse(format_args!(
                "a context is destroyed with {left:?} allocations, pinned, streams, events, modules, pools in it"
            ));
        }
    }

    pub(crate) fn is_retained(&self, device: usize) -> bool {
        self.contexts[device].retained > 0
    }

    /// The device of a context that is retained.
    pub(crate) fn context(&self, context: CUcontext) -> usize {
        match context.addr().checked_sub(CONTEXTS) {
            Some(device) if device < DEVICES && self.is_retained(device) => device,
            _ => misuse(format_args!("{context:?} is no context, or one that was released")),
        }
    }

    pub(crate) fn new_handle(&mut self) -> usize {
        self.next_handle += 1;
        self.next_handle
    }
}
