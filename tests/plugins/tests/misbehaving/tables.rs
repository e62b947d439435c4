//! Tables that are cut, odd, null, or lack a function.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

use device_plugin::LoadedDevice;

use crate::support::{mistaken, mistakes, others_work, says, with_remedy, works};

#[track_caller]
fn does_not_load(mistake: &str, reason: &str) {
    let device = mistaken(mistake);
    let file = mistakes().display();
    let expected = format!("backend `{mistake}` (mistakes 1.0.0 in {file}) failed to load: {reason}");
    says(device.allocate(8), &with_remedy(mistake, &expected));
    others_work();
}

/// The table `test.numbers` of `mistakes.c`.
#[repr(C)]
struct Numbers {
    twice: extern "C" fn(i32) -> i32,
    mistake_of: unsafe extern "C" fn(*mut c_void) -> *const c_char,
}

#[test]
fn an_extension_of_the_author_is_found_by_its_name() {
    let device = mistaken("sound");
    let extension = |name: &'static str| {
        device.with_driver(move |device: &LoadedDevice| {
            Ok(device.extension(name).map(NonNull::cast::<Numbers>))
        })
    };
    let numbers = extension("test.numbers").unwrap().expect("the library has it");
    // SAFETY: the library's table of this name has this type, and is valid forever.
    assert_eq!((unsafe { numbers.as_ref() }.twice)(21), 42);
    assert!(extension("test.number").unwrap().is_none());

    // A function that needs the device gets the library's own object.
    let object = device.with_driver(|device: &LoadedDevice| Ok(device.object() as usize)).unwrap();
    // SAFETY: the object is a device of this library, whose function returns a text that is valid forever.
    let mistake = unsafe { CStr::from_ptr((numbers.as_ref().mistake_of)(object as *mut c_void)) };
    assert_eq!(mistake.to_str(), Ok("sound"));
}

#[test]
fn a_sound_backend_in_c_works_with_and_without_queues() {
    works(mistaken("sound"));
    works(mistaken("queue"));
    others_work();
}

#[test]
fn a_size_that_no_table_has_is_an_error() {
    for size in ["0", "1", "8", "12", "4097"] {
        does_not_load(
            &format!("size_{size}"),
            &format!(
                "the table `dp_device_api` of the plugin has a `struct_size` of {size}, which no table can have: expected the size of the struct in bytes, as by `sizeof`"
            ),
        );
    }
    does_not_load(
        "queue_odd_event_api",
        "the table `dp_event_api` of the plugin has a `struct_size` of 9, which no table can have: expected the size of the struct in bytes, as by `sizeof`",
    );
}

#[test]
fn a_table_of_a_later_version_is_larger_and_works() {
    works(mistaken("larger"));
    others_work();
}

#[test]
fn what_a_cut_table_lacks_is_unsupported() {
    let device = mistaken("cut_behind_copy");
    works(device);
    // The program fills through `write`, and has no other way to host memory of the device.
    let buffer = device.allocate(4).unwrap();
    buffer.fill(.., b"ab").unwrap();
    says(
        device.allocate_host(8),
        "`cut_behind_copy:0` (mistakes 1.0.0): allocate pinned host memory: not supported: pinned host memory",
    );
    others_work();
}

#[test]
fn a_table_that_is_cut_before_a_required_function_does_not_load() {
    does_not_load(
        "cut_before_copy",
        "the plugin does not have the function `dp_device_api.copy`, which is required",
    );
}

#[test]
fn a_required_function_that_is_missing_is_named() {
    let required = [
        ("backend", &["device_count", "properties", "open"][..]),
        ("device", &["memory_info", "allocate", "free", "write", "read", "copy"]),
        ("stream", &["destroy", "write", "read", "copy", "record", "query", "synchronize"]),
        ("event", &["destroy", "query", "synchronize"]),
    ];
    for (table, functions) in required {
        for function in functions {
            does_not_load(
                &format!("no_{table}_{function}"),
                &format!(
                    "the plugin does not have the function `dp_{table}_api.{function}`, which is required"
                ),
            );
        }
    }
}

#[test]
fn a_missing_table_is_an_error() {
    does_not_load("null_backend_api", "the table `dp_backend_api` of the plugin is null");
    does_not_load("null_device_api", "the table `dp_device_api` of the plugin is null");
    // Of an untouched `dp_backend`, the first table.
    does_not_load("nothing", "the table `dp_backend_api` of the plugin is null");
}

#[test]
fn queues_without_their_tables_are_an_error() {
    does_not_load(
        "queue_null_stream_api",
        "the plugin does not have the function `dp_stream_api.destroy`, which is required",
    );
    does_not_load(
        "queue_null_event_api",
        "the plugin does not have the function `dp_event_api.destroy`, which is required",
    );
}
