//! The program's table; each library gets one.

use std::path::Path;

use device_registry::registry::isolate;

use crate::abi::{self, Host, Object, Str, Table};

/// A table for the library in a file. It is valid forever.
pub(crate) fn table(file: &Path) -> *const Host {
    let file: &'static str = file.display().to_string().leak();
    Box::leak(Box::new(Host {
        major: abi::MAJOR,
        minor: abi::MINOR,
        name: Str::of(env!("CARGO_PKG_NAME")),
        version: Str::of(env!("CARGO_PKG_VERSION")),
        file: Str::of(file),
        context: std::ptr::from_mut(Box::leak(Box::new(file))).cast(),
        log_level: log::max_level() as u32,
        log: Some(log),
        panicked: Some(panicked),
        ..Host::ZEROED
    }))
}

unsafe extern "C" fn log(_context: Object, level: u32, target: Str, message: Str) {
    // SAFETY: the library passes texts that are valid during the call.
    let (target, message) = unsafe { (target.shown(), message.shown_lines()) };
    let level = match level {
        0 => return,
        1 => log::Level::Error,
        2 => log::Level::Warn,
        3 => log::Level::Info,
        4 => log::Level::Debug,
        5.. => log::Level::Trace,
    };
    // A logger is foreign code, and its panic must not enter the library.
    let _ = isolate(|| log::log!(target: &target, level, "{message}"));
}

unsafe extern "C" fn panicked(context: Object, message: Str, place: Str) {
    // SAFETY: `table` has made the context of a file's name, and it is valid forever.
    let file = unsafe { *context.cast::<&'static str>() };
    // SAFETY: the library passes texts that are valid during the call.
    let (message, place) = unsafe { (message.shown_lines(), place.shown()) };
    let at = if place.is_empty() { String::new() } else { format!(", at {place}") };
    // Only a panic calls the program's hook. One that cannot be caught, or comes while another unwinds, would
    // end the program.
    if cfg!(panic = "unwind") && !std::thread::panicking() {
        let _ = isolate(|| panic!("{message} (in {file}{at})"));
    } else {
        let _ = isolate(|| log::error!("a panic in {file}{at}: {message}"));
    }
}
