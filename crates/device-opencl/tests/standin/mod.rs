//! The library that stands in for OpenCL's loader, for tests that run once more in their own process.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use device_conformance::process;

use crate::child::CHILD;

/// Runs the test of this name in a process in which OpenCL is the stand-in. Returns whether this is that
/// process.
pub(crate) fn is_here(test: &str) -> bool {
    is_here_without(test, "")
}

/// Like [`is_here`], with a stand-in that lacks this function.
pub(crate) fn is_here_without(test: &str, function: &str) -> bool {
    if !process::is_child() {
        let library = library_without(function);
        CHILD.passes(test, &[("OPENCL_DYLIB_PATH", library.to_str().expect("the folder's name is text"))]);
    }
    process::is_child()
}

/// Orders something of the stand-in; nothing, with an empty value.
pub(crate) fn order(what: &str, value: &str) {
    let [what, value] = [what, value].map(|text| CString::new(text).expect("it has no zero"));
    // SAFETY: the function is of this type, and both are texts that end with a zero.
    unsafe {
        let order = symbol::<unsafe extern "C" fn(*const c_char, *const c_char)>("standin_order");
        order(what.as_ptr(), value.as_ptr());
    }
}

/// How many of its objects were not released.
pub(crate) fn live() -> usize {
    // SAFETY: the function is of this type.
    unsafe { symbol::<extern "C" fn() -> usize>("standin_live")() }
}

/// How many of its commands are not done.
pub(crate) fn delayed() -> usize {
    // SAFETY: the function is of this type.
    unsafe { symbol::<extern "C" fn() -> usize>("standin_delayed")() }
}

/// How many times a queue was flushed.
pub(crate) fn flushes() -> usize {
    // SAFETY: the function is of this type.
    unsafe { symbol::<extern "C" fn() -> usize>("standin_flushes")() }
}

/// Whether it has made a queue with this property.
pub(crate) fn queue_with(property: u64, value: u64) -> bool {
    // SAFETY: the function is of this type.
    unsafe { symbol::<extern "C" fn(u64, u64) -> bool>("standin_queue_with")(property, value) }
}

/// # Safety
///
/// It is of this type.
unsafe fn symbol<T: Copy>(name: &str) -> T {
    let path = env::var_os("OPENCL_DYLIB_PATH").expect("it is set by `is_here`");
    // SAFETY: the stand-in has no initialisers.
    let library = unsafe { libloading::Library::new(path) }.expect("it opens");
    // SAFETY: as the caller promises; and it stays open.
    let symbol = *unsafe { library.get(name) }.expect("it is there");
    std::mem::forget(library);
    symbol
}

/// The library.
pub(crate) fn library() -> PathBuf {
    library_without("")
}

/// The library without this function, compiled once for a program of tests.
fn library_without(without: &str) -> PathBuf {
    static COMPILED: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    compiled.entry(without.to_owned()).or_insert_with(|| compile(without)).clone()
}

fn compile(without: &str) -> PathBuf {
    let name = format!("{}standin{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(env!("CARGO_CRATE_NAME")).join(without);
    // The same tests may run in another process at the same time: each compiles in its own folder.
    let own = folder.join(std::process::id().to_string());
    std::fs::create_dir_all(&own).expect("the folder can be made");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standin/opencl.rs");
    let compiled = Command::new("rustc")
        .args(["--edition=2024", "--crate-type=cdylib", "--crate-name=standin", "-O"])
        .args(["--cfg", &format!("without=\"{without}\""), "-o"])
        .args([&own.join(&name), &source])
        .status()
        .expect("rustc is there, as this was compiled by it");
    assert!(compiled.success(), "the stand-in does not compile");
    let library = folder.join(&name);
    std::fs::rename(own.join(name), &library).expect("the library can be moved");
    // A folder that is left does no harm.
    let _ = std::fs::remove_dir_all(own);
    library
}
