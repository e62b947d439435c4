//! Kernels that a simulated compiler has made for this machine's processor.
//!
//! An image begins with [`MAGIC`] and the length of what follows as 64 bits: a shared library with a text
//! `simulated_parameters`, which has a letter for each parameter (`p` for an address, `4` and `8` for that
//! many bytes), and a function `simulated_launch`, which runs all blocks and returns what was wrong.

use std::ffi::{CStr, c_char, c_void};
use std::io::Write;
use std::ptr;
use std::sync::Arc;

use libloading::Library;
use parking_lot::Mutex;

use crate::memory::Place;
use crate::state::{misuse, state};
use crate::stream::{Stream, Work};
use crate::{Answer, INVALID_VALUE};

pub(crate) const MAGIC: [u8; 8] = *b"\x7fSIMCUD\0";

const NOT_FOUND: u32 = 500;

type Run = unsafe extern "C" fn(*const *const c_void, *const u32, *const u32) -> *const c_char;

/// A module with its one kernel.
pub(crate) struct Kernel {
    pub(crate) device: usize,
    /// A letter for each parameter.
    parameters: Vec<u8>,
    run: Run,
    _library: Library,
}

/// A launch: the kernel with its arguments.
pub(crate) struct Launch {
    kernel: Arc<Kernel>,
    values: Vec<[u8; 8]>,
    /// The memory that arguments are addresses in, by their places.
    memory: Vec<(usize, Place)>,
    blocks: [u32; 3],
    threads: [u32; 3],
}

impl Kernel {
    /// # Safety
    ///
    /// The image begins with [`MAGIC`] and is whole.
    pub(crate) unsafe fn load(device: usize, image: *const c_void) -> Arc<Self> {
        let start = image.cast::<u8>();
        // SAFETY: the caller vouches for the length, and for that many bytes.
        let bytes = unsafe {
            let len = start.add(MAGIC.len()).cast::<u64>().read_unaligned();
            std::slice::from_raw_parts(start.add(MAGIC.len() + 8), len as usize)
        };
        let mut file = tempfile::NamedTempFile::new().expect("there is room");
        file.write_all(bytes).expect("there is room");
        // SAFETY: it was made by the simulated compiler, and has no initialisers.
        let library = unsafe { Library::new(file.path()) }.expect("it can be opened");
        // SAFETY: the compiler gives both symbols these types.
        let (parameters, run) = unsafe {
            let text: *const *const c_char = *library.get(b"simulated_parameters").expect("it is there");
            let run: Run = *library.get(b"simulated_launch").expect("it is there");
            (CStr::from_ptr(*text).to_bytes().to_vec(), run)
        };
        Arc::new(Self { device, parameters, run, _library: library })
    }

    pub(crate) fn of(handle: usize, name: &[u8]) -> Result<usize, u32> {
        if !state().modules.contains_key(&handle) {
            misuse(format_args!("{handle:#x} is no module, or was unloaded"));
        }
        if name == b"run" { Ok(handle) } else { Err(NOT_FOUND) }
    }
}

/// # Safety
///
/// There are as many addresses of arguments as the kernel has, each of a value of its type.
pub(crate) unsafe fn launch(
    function: usize,
    blocks: [u32; 3],
    threads: [u32; 3],
    stream: &Stream,
    arguments: *mut *mut c_void,
) -> Answer {
    let found = state().modules.get(&function).cloned();
    let kernel = found.unwrap_or_else(|| misuse("the kernel's module was unloaded"));
    if kernel.device != stream.device() {
        misuse("a kernel of another context than the stream's");
    }
    let items: u64 = threads.iter().map(|&size| u64::from(size)).product();
    let too_many = blocks[0] > i32::MAX as u32 || blocks[1] > 65_535 || blocks[2] > 65_535 || items > 1024;
    if too_many || blocks.contains(&0) || threads.contains(&0) {
        return Err(INVALID_VALUE);
    }
    let (mut values, mut memory) = (Vec::new(), Vec::new());
    for (place, kind) in kernel.parameters.iter().enumerate() {
        let len = if *kind == b'4' { 4 } else { 8 };
        let mut value = [0; 8];
        // SAFETY: the caller vouches for an address here, and for a value of this size there.
        unsafe { (*arguments.add(place)).cast::<u8>().copy_to_nonoverlapping(value.as_mut_ptr(), len) };
        if *kind == b'p' {
            memory.push((place, Place::rest(stream.device(), u64::from_ne_bytes(value))));
        }
        values.push(value);
    }
    stream.submit(Work::Kernel(Launch { kernel, values, memory, blocks, threads }));
    Ok(())
}

/// What is shared by the items of a block is static memory of the library.
static RUNNING: Mutex<()> = Mutex::new(());

impl Launch {
    pub(crate) fn run(self) {
        let _turn = RUNNING.lock();
        let Self { kernel, mut values, memory, blocks, threads } = self;
        let mut allocations: Vec<_> = memory.iter().map(|(_, place)| &place.bytes).collect();
        // Each once, and all in one order.
        allocations.sort_by_key(|bytes| Arc::as_ptr(bytes));
        allocations.dedup_by_key(|bytes| Arc::as_ptr(bytes));
        let mut locked: Vec<_> =
            allocations.iter().map(|bytes| (Arc::as_ptr(bytes), bytes.write())).collect();
        for (place, of) in &memory {
            let (_, bytes) =
                locked.iter_mut().find(|(found, _)| *found == Arc::as_ptr(&of.bytes)).expect("it is locked");
            let address = bytes.as_mut_ptr().wrapping_add(of.start);
            values[*place] = (address.expose_provenance() as u64).to_ne_bytes();
        }
        let arguments: Vec<*const c_void> = values.iter().map(|value| ptr::from_ref(value).cast()).collect();
        // SAFETY: the kernel has these parameters, and its memory is locked.
        let wrong = unsafe { (kernel.run)(arguments.as_ptr(), blocks.as_ptr(), threads.as_ptr()) };
        if !wrong.is_null() {
            // SAFETY: it is a text of the library.
            misuse(format_args!("a kernel: {}", unsafe { CStr::from_ptr(wrong) }.to_string_lossy()));
        }
        locked.iter().for_each(|(_, bytes)| bytes.check());
    }
}
