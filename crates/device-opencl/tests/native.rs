//! Kernels, through the native handles.

mod child;

use std::ffi::CStr;
use std::mem::size_of_val;
use std::ptr;
use std::sync::{Arc, Mutex};

use device_conformance::process;
use device_opencl::cl3::command_queue::enqueue_nd_range_kernel;
use device_opencl::cl3::kernel::{create_kernel, release_kernel, set_kernel_arg};
use device_opencl::cl3::types::{cl_int, cl_kernel};
use device_opencl::{OpenClDevice, OpenClMemory, OpenClProgram, OpenClStream, native_error};
use device_registry::DeviceError;
use device_registry::backend::{BackendError, BackendErrorKind, Launch, Span};

use crate::child::CHILD;

device_registry::autoload!();

const SCALE: &str = "
    kernel void scale(global int *values, ulong offset, int by) {
        values[offset + get_global_id(0)] *= by;
    }
";

fn set<T>(kernel: cl_kernel, index: u32, value: &T) -> Result<(), cl_int> {
    // SAFETY: the kernels here have an argument of this type at this place, and it is copied by the call.
    unsafe { set_kernel_arg(kernel, index, size_of_val(value), ptr::from_ref(value).cast()) }
}

/// Multiplies the integers of a span.
fn scale(launch: &Launch<'_>, span: &Span, by: cl_int) -> Result<(), BackendError> {
    const NAME: &CStr = c"scale";
    let program: OpenClProgram = launch.driver_as::<OpenClDevice>()?.build(SCALE, "")?;
    let queue = launch.stream_as::<OpenClStream>()?.command_queue();
    let buffer = span.memory_as::<OpenClMemory>()?.buffer();
    let (offset, count) = (span.offset() as u64 / 4, span.len() / 4);
    let kernel =
        create_kernel(program.program(), NAME).map_err(|status| native_error("clCreateKernel", status))?;
    let enqueued = set(kernel, 0, &buffer)
        .and_then(|()| set(kernel, 1, &offset))
        .and_then(|()| set(kernel, 2, &by))
        // SAFETY: the arguments are set, and the kernel touches `count` integers of the span, which the core keeps.
        .and_then(|()| unsafe {
            let none = ptr::null();
            enqueue_nd_range_kernel(queue, kernel, 1, none, &count, none, 0, ptr::null())
        })
        // SAFETY: it is the command's event, of which nobody else knows.
        .and_then(|event| unsafe { device_opencl::cl3::event::release_event(event) });
    // SAFETY: it was made above; what is enqueued keeps it alive.
    unsafe { release_kernel(kernel) }.and(enqueued).map_err(|status| native_error("the kernel", status))
}

fn ints(values: impl IntoIterator<Item = i32>) -> Vec<u8> {
    values.into_iter().flat_map(i32::to_ne_bytes).collect()
}

#[test]
fn a_kernel_works_on_its_span_in_the_streams_order() {
    let Some(device) = device_conformance::device_or_skip("opencl") else { return };
    let stream = device.create_stream().unwrap();
    let buffer = device.allocate(4 * 1000).unwrap();
    stream.write(&buffer, 0, ints(0..1000)).unwrap();
    let part = buffer.slice(4 * 10..4 * 990).unwrap();
    for by in [3, -1] {
        let launched = stream.launch(&[&part], move |launch| match launch.spans() {
            [Some(span)] => scale(launch, span, by),
            _ => Ok(()),
        });
        launched.unwrap();
    }
    let read = stream.read(&buffer, ..).unwrap().wait().unwrap();
    let expected = (0..1000).map(|value| if (10..990).contains(&value) { -3 * value } else { value });
    assert!(*read == ints(expected), "{read:?}");
}

#[test]
fn a_stream_is_not_done_before_what_a_kernel_has_enqueued() {
    const SPIN: &str = "
        kernel void spin(global uint *value, ulong rounds) {
            uint x = *value;
            for (ulong i = 0; i < rounds; i++) x = x * 1664525u + 1013904223u + (x >> 7);
            *value = x;
        }
    ";
    let Some(device) = device_conformance::device_or_skip("opencl") else { return };
    let stream = device.create_stream().unwrap();
    let buffer = device.allocate(4).unwrap();
    // Compiled and idle.
    let spin = move |launch: &Launch<'_>, rounds: u64| {
        let program = launch.driver_as::<OpenClDevice>()?.build(SPIN, "")?;
        let memory = launch.spans()[0].as_ref().unwrap().memory_as::<OpenClMemory>()?.buffer();
        let queue = launch.stream_as::<OpenClStream>()?.command_queue();
        let enqueue = || {
            let kernel = create_kernel(program.program(), c"spin")?;
            set(kernel, 0, &memory)?;
            set(kernel, 1, &rounds)?;
            // SAFETY: the arguments are those of the source, and the program and the buffer outlive the launch.
            unsafe {
                let none = ptr::null();
                let event = enqueue_nd_range_kernel(queue, kernel, 1, none, &1, none, 0, ptr::null())?;
                device_opencl::cl3::event::release_event(event)?;
                release_kernel(kernel)
            }
        };
        enqueue().map_err(|status| native_error("spin", status))
    };
    stream.launch(&[&buffer], move |launch| spin(launch, 1)).unwrap();
    stream.synchronize().unwrap();
    assert!(stream.query().unwrap(), "it was waited for");
    stream.launch(&[&buffer], move |launch| spin(launch, 300_000_000)).unwrap();
    let done = stream.query().unwrap();
    let start = std::time::Instant::now();
    stream.synchronize().unwrap();
    let left = start.elapsed();
    assert!(!done || left.as_millis() < 1, "it was said to be done {left:?} before it was");
    assert!(stream.query().unwrap());
}

/// Sets an integer to one, with a program that may be of another context.
fn set_one(launch: &Launch<'_>, program: &OpenClProgram) -> Result<(), BackendError> {
    let queue = launch.stream_as::<OpenClStream>()?.command_queue();
    let buffer = launch.spans()[0].as_ref().unwrap().memory_as::<OpenClMemory>()?.buffer();
    let enqueue = || {
        let kernel = create_kernel(program.program(), c"set_one")?;
        let enqueued = set(kernel, 0, &buffer)
            // SAFETY: the kernel touches one integer of the buffer, which the core keeps.
            .and_then(|()| unsafe {
                enqueue_nd_range_kernel(queue, kernel, 1, ptr::null(), &1, ptr::null(), 0, ptr::null())
            })
            // SAFETY: it is the command's event, of which nobody else knows.
            .and_then(|event| unsafe { device_opencl::cl3::event::release_event(event) });
        // SAFETY: it was made above; what is enqueued keeps it alive.
        unsafe { release_kernel(kernel) }.and(enqueued)
    };
    enqueue().map_err(|status| native_error("set_one", status))
}

#[test]
fn a_program_of_an_earlier_opening_is_a_mistake_of_its_user_and_no_loss() {
    const SOURCE: &str = "kernel void set_one(global int *value) { *value = 1; }";
    const NAME: &str = "a_program_of_an_earlier_opening_is_a_mistake_of_its_user_and_no_loss";
    // In a process of its own, as it closes the device.
    if !process::is_child() {
        return CHILD.passes(NAME, &[]);
    }
    let Some(device) = device_conformance::device_or_skip("opencl") else { return };
    let kept = Arc::new(Mutex::new(None));
    {
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
        let kept = Arc::clone(&kept);
        let built = stream.launch(&[&buffer], move |launch| {
            let program = launch.driver_as::<OpenClDevice>()?.build(SOURCE, "")?;
            set_one(launch, &program)?;
            *kept.lock().unwrap() = Some(program);
            Ok(())
        });
        built.unwrap();
        assert_eq!(*stream.read(&buffer, ..).unwrap().wait().unwrap(), ints([1]));
    }
    device.close().unwrap();

    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    let other = device.allocate(4).unwrap();
    let program = kept.lock().unwrap().take().unwrap();
    let error = stream.launch(&[&buffer], move |launch| set_one(launch, &program)).unwrap_err();
    assert_eq!(error.kind(), Some(BackendErrorKind::Invalid), "{error}");
    other.write(0, &ints([2])).unwrap();
    assert_eq!(*stream.read(&other, ..).unwrap().wait().unwrap(), ints([2]));
}

#[test]
fn a_malformed_kernel_is_an_error_with_the_compilers_log() {
    let Some(device) = device_conformance::device_or_skip("opencl") else { return };
    let stream = device.create_stream().unwrap();
    let refused = stream.launch(&[], |launch| {
        let driver = launch.driver_as::<OpenClDevice>()?;
        driver.build("kernel void broken(global int *x) { *x = no_such_name; }", "").map(drop)
    });
    let error = refused.unwrap_err();
    assert!(matches!(&error, DeviceError::Call { error, .. } if error.kind() == BackendErrorKind::Invalid));
    assert!(error.to_string().contains("no_such_name"), "{error}");

    // Nothing is left of it.
    let built = stream.launch(&[], |launch| launch.driver_as::<OpenClDevice>()?.build(SCALE, "").map(drop));
    built.unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn a_program_ends_while_its_device_works() {
    const NAME: &str = "a_program_ends_while_its_device_works";
    if !process::is_child() {
        return CHILD.passes(NAME, &[]);
    }
    let Some(device) = device_conformance::device_or_skip("opencl") else { return };
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(16 << 20).unwrap());
    for _ in 0..50 {
        stream.write(&buffer, 0, vec![1; 16 << 20]).unwrap();
    }
    let read = stream.read(&buffer, ..).unwrap();
    // Nothing is dropped or waited for, and the harness' other thread ends the process.
    std::mem::forget((stream, buffer, read));
}

#[test]
fn an_empty_program_has_no_kernels() {
    let Some(device) = device_conformance::device_or_skip("opencl") else { return };
    let stream = device.create_stream().unwrap();
    let launched = stream.launch(&[], |launch| {
        let program = launch.driver_as::<OpenClDevice>()?.build("", "")?;
        create_kernel(program.program(), c"scale")
            .map(drop)
            .map_err(|status| native_error("clCreateKernel", status))
    });
    let error = launched.unwrap_err();
    assert_eq!(error.kind(), Some(BackendErrorKind::Invalid), "{error}");
}
