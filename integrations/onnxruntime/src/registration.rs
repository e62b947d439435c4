//! What other programs look up in the library.

// Named as in ONNX Runtime's header, and types of its interface.
#![allow(non_snake_case, private_interfaces)]

use std::ffi::{CStr, c_char};
use std::fmt::Write as _;
use std::ptr;

use device_registry::Device;
use ort_sys::{OrtApiBase, OrtLogger, OrtStatusPtr};

use crate::abi;
use crate::api::{Api, caught, text};
use crate::choice;
use crate::counts;
use crate::factory::Factory;
use crate::failure::Failure;
use crate::place::Place;

/// How many factories ONNX Runtime takes of one registration. Each device has one.
pub(crate) const FACTORIES: usize = 4;

/// The devices of a registration. Its name is a backend, and with a number behind `#` the devices from that
/// one on: a registration has room for four.
fn devices_of(name: &str) -> Result<Vec<Device>, Failure> {
    let (backend, first) = match name.split_once('#') {
        Some((backend, first)) => {
            let first = first.parse().map_err(|_| Failure::new(format_args!("no number in `{name}`")))?;
            (backend, first)
        }
        None => (name, 0),
    };
    let names = choice::names().map_err(Failure::new)?;
    if !names.iter().any(|name| name == backend) {
        return Err(Failure::new(format_args!(
            "`{name}` is no backend of this program: expected one of {names:?}, and behind `#` the number of a device"
        )));
    }
    let devices = choice::devices_of(backend).map_err(|why| Failure::new(why).of(backend))?;
    Ok(devices.into_iter().skip(first).take(FACTORIES).collect())
}

/// Keeps the library in the process: threads of streams run in it, also when ONNX Runtime closes it.
fn stay() {
    #[cfg(unix)]
    // SAFETY: it asks for the library that has this function, and opens it once more, by the same path.
    unsafe {
        let mut found = std::mem::zeroed::<libc::Dl_info>();
        if libc::dladdr(stay as *const () as *const libc::c_void, &raw mut found) != 0 {
            libc::dlopen(found.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE);
        }
    }
}

/// Makes a factory for each device of a registration.
///
/// # Safety
///
/// ONNX Runtime calls it, with room for `most` factories and their count.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn CreateEpFactories(
    name: *const c_char,
    base: *const OrtApiBase,
    _logger: *const OrtLogger,
    factories: *mut *mut abi::Factory,
    most: usize,
    count: *mut usize,
) -> OrtStatusPtr {
    // SAFETY: the runtime stays in the process.
    let api = match unsafe { Api::of(base) } {
        Ok(api) => api,
        Err(status) => return status,
    };
    api.guard(|| {
        stay();
        // SAFETY: the name is a text, and there is room for the count.
        let name = unsafe {
            *count = 0;
            CStr::from_ptr(name)
        };
        let devices = devices_of(&name.to_string_lossy())?;
        for (at, device) in devices.into_iter().take(most).enumerate() {
            let factory = Factory::of_place(api, Place::of(device))?;
            // SAFETY: there is room for `most` of them.
            unsafe {
                *factories.add(at) = factory;
                *count = at + 1;
            }
        }
        Ok(())
    })
}

/// Releases nothing: sessions may outlive the registration, and need the factory.
#[unsafe(no_mangle)]
pub extern "system" fn ReleaseEpFactory(_: *mut abi::Factory) -> OrtStatusPtr {
    OrtStatusPtr(ptr::null_mut())
}

/// A text for the Python package, which the caller frees with `free` of C: of `what` = 0, the offered
/// backends (a line for each, with its devices, or after `!` why it has none); of 1, the counts of all
/// sessions. Null for other numbers, and without memory.
#[unsafe(no_mangle)]
pub extern "C" fn device_ort_text(what: u32) -> *mut c_char {
    let found = caught(|| match what {
        0 => Ok(Some(backends())),
        1 => Ok(Some(counts::lines())),
        _ => Ok(None),
    });
    let lines = match found {
        Ok(Some(lines)) => lines,
        Ok(None) => return ptr::null_mut(),
        Err(failure) => format!("!{}\n", failure.message().replace('\n', " ")),
    };
    // SAFETY: a text, which is copied.
    unsafe { libc::strdup(text(&lines).as_ptr()) }
}

fn backends() -> String {
    let names = match choice::names() {
        Ok(names) => names,
        Err(why) => return format!("!{}\n", why.replace('\n', " ")),
    };
    let mut lines = String::new();
    for name in names {
        match choice::devices_of(&name) {
            Ok(devices) => {
                let devices: Vec<String> = devices.iter().map(Device::to_string).collect();
                let _ = writeln!(lines, "{name}\t{}", devices.join(" "));
            }
            Err(why) => {
                let _ = writeln!(lines, "{name}\t!{}", why.replace('\n', " "));
            }
        }
    }
    lines
}
