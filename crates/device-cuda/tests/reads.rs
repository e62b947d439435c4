//! Pending reads while something else fails, on the simulated driver.
#![cfg(target_os = "linux")]

use std::ffi::c_void;
use std::ptr;
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Duration;

use device_conformance::process::{self, threads};
use device_cuda::cudarc::driver::sys::{
    CUstream, CUstreamCaptureMode, cuLaunchHostFunc, cuStreamBeginCapture_v2, cuStreamEndCapture,
};
use device_cuda::{CudaDevice, CudaStream, check};
use device_registry::backend::BackendError;
use device_registry::{BackendErrorKind, Buffer, Device, DeviceError, Pending, Stream, device};

mod child;

device_registry::autoload!();

/// Whether held work is released.
static RELEASED: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

/// Time for a few queries by the thread that watches reads.
const SOME_TICKS: Duration = Duration::from_millis(200);

unsafe extern "C" fn hold(_: *mut c_void) {
    let (released, changed) = &RELEASED;
    drop(changed.wait_while(released.lock().unwrap(), |released| !*released).unwrap());
}

fn release() {
    *RELEASED.0.lock().unwrap() = true;
    RELEASED.1.notify_all();
}

/// A device, memory that holds sevens, and a stream whose work is held.
fn held() -> (Device, Buffer, Stream) {
    let device = device("cuda:0").unwrap();
    let (buffer, stream) = (device.allocate(16).unwrap(), device.create_stream().unwrap());
    buffer.fill(.., &[7]).unwrap();
    let launched = stream.launch(&[], |launch| {
        launch.driver_as::<CudaDevice>()?.make_current()?;
        let stream = launch.stream_as::<CudaStream>()?.stream();
        // SAFETY: the stream is there, and the function takes anything.
        check("cuLaunchHostFunc", unsafe { cuLaunchHostFunc(stream, Some(hold), ptr::null_mut()) })
    });
    launched.unwrap();
    (device, buffer, stream)
}

/// A read into pinned memory.
fn read(device: Device, buffer: &Buffer, stream: &Stream) -> Result<Pending, DeviceError> {
    stream.read_into(buffer, 0, device.allocate_host(16).unwrap())
}

/// The device does all that it did before.
fn is_well(device: Device, buffer: &Buffer) {
    assert_eq!(*device.create_stream().unwrap().read(buffer, ..).unwrap().wait().unwrap(), [7; 16]);
    device.synchronize().unwrap();
}

fn watches() -> bool {
    threads().iter().any(|name| name == "cuda reads")
}

/// The errors of captures in the process, of a busy driver, and of one that ends with the process.
#[test]
fn a_transient_error_fails_no_read() {
    const TEST: &str = "a_transient_error_fails_no_read";
    if !process::is_child() {
        for order in
            ["cuStreamQuery:900@1", "cuStreamQuery:906@2-4", "cuStreamQuery:1@1-3", "cuStreamQuery:4@1"]
        {
            child::passes(TEST, Some(&child::simulated()), &[("SIMULATED_CUDA_REFUSE", order)]);
        }
        return;
    }
    let (device, buffer, stream) = held();
    let read = read(device, &buffer, &stream).unwrap();
    thread::sleep(SOME_TICKS);
    assert!(!read.is_ready(), "{:?}", read.wait().map(drop));
    release();
    assert_eq!(*read.wait().unwrap(), [7; 16]);
    stream.synchronize().unwrap();
    is_well(device, &buffer);
}

#[test]
fn a_driver_that_has_ended_is_not_queried_again() {
    const TEST: &str = "a_driver_that_has_ended_is_not_queried_again";
    if !process::is_child() {
        child::passes(TEST, Some(&child::simulated()), &[]);
        let variables = [("SIMULATED_CUDA_REFUSE", "cuStreamQuery:4@1")];
        return child::passes(TEST, Some(&child::simulated()), &variables);
    }
    let ends = std::env::var_os("SIMULATED_CUDA_REFUSE").is_some();
    let (device, buffer, stream) = held();
    let read = read(device, &buffer, &stream).unwrap();
    thread::sleep(SOME_TICKS);
    assert_eq!(watches(), !ends, "{:?}", threads());
    assert!(!read.is_ready());
    release();
    read.wait().unwrap();
}

/// The read returns the error after some time. The driver uses the bytes until then: freeing pinned memory in
/// use, or in a host function, ends this process.
#[test]
fn a_permanent_error_is_returned_and_the_device_is_not_lost() {
    const TEST: &str = "a_permanent_error_is_returned_and_the_device_is_not_lost";
    if !process::is_child() {
        let variables = [("SIMULATED_CUDA_REFUSE", "cuStreamQuery:900@1-100")];
        return child::passes(TEST, Some(&child::simulated()), &variables);
    }
    let (device, buffer, stream) = held();
    let read = read(device, &buffer, &stream).unwrap();
    assert!(read.wait_timeout(Duration::from_secs(30)), "the read was never answered");
    let error = read.wait().unwrap_err();
    assert_eq!(error.kind(), Some(BackendErrorKind::Other), "{error}");
    assert!(
        error.to_string().contains("`cuStreamQuery` returned CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"),
        "{error}"
    );
    release();
    // The driver calls the host function now, for a read that has already failed.
    assert_eq!(stream.synchronize().unwrap_err().kind(), Some(BackendErrorKind::Other));
    stream.synchronize().unwrap();
    is_well(device, &buffer);
}

#[test]
fn captures_on_other_threads_continue() {
    const TEST: &str = "captures_on_other_threads_continue";
    if !process::is_child() {
        return child::passes(TEST, Some(&child::simulated()), &[("SIMULATED_CUDA_CAPTURE", "1")]);
    }
    let (device, buffer, stream) = held();
    let read = read(device, &buffer, &stream).unwrap();
    thread::sleep(SOME_TICKS);
    release();
    assert_eq!(*read.wait().unwrap(), [7; 16]);
}

/// Calls the driver with the native stream.
fn with_native(
    stream: &Stream,
    call: impl FnOnce(CUstream) -> Result<(), BackendError> + Send + 'static,
) -> Result<(), DeviceError> {
    stream.launch(&[], |launch| {
        launch.driver_as::<CudaDevice>()?.make_current()?;
        call(launch.stream_as::<CudaStream>()?.stream())
    })
}

/// The driver's queries would end the capture. The simulated driver takes them for misuse.
#[test]
fn a_captured_stream_and_its_events_are_not_queried() {
    const TEST: &str = "a_captured_stream_and_its_events_are_not_queried";
    if !process::is_child() {
        return child::passes(TEST, Some(&child::simulated()), &[]);
    }
    let (device, buffer, stream) = held();
    let event = stream.record().unwrap();
    let read = read(device, &buffer, &stream).unwrap();
    let begun = with_native(&stream, |stream| {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the driver gave the stream, and its context is current.
        check("cuStreamBeginCapture", unsafe { cuStreamBeginCapture_v2(stream, mode) })
    });
    begun.unwrap();
    release();
    // The thread that watches reads queries the stream meanwhile.
    thread::sleep(SOME_TICKS);
    assert_eq!([stream.query().unwrap(), event.query().unwrap()], [false; 2], "it was queried");
    let ended = with_native(&stream, |stream| {
        let mut graph = ptr::null_mut();
        // SAFETY: the driver gave the stream, its context is current, and `graph` is a place for one pointer.
        check("cuStreamEndCapture", unsafe { cuStreamEndCapture(stream, &mut graph) })
    });
    ended.unwrap();
    assert_eq!(*read.wait().unwrap(), [7; 16]);
    event.synchronize().unwrap();
    stream.synchronize().unwrap();
    assert_eq!([stream.query().unwrap(), event.query().unwrap()], [true; 2]);
}

#[test]
fn streams_without_pending_reads_are_not_queried() {
    const TEST: &str = "streams_without_pending_reads_are_not_queried";
    if !process::is_child() {
        return child::passes(TEST, Some(&child::simulated()), &[("SIMULATED_CUDA_IDLE", "1")]);
    }
    let other = device("cuda:0").unwrap().create_stream().unwrap();
    let buffer = device("cuda:0").unwrap().allocate(16).unwrap();
    other.read(&buffer, ..).unwrap().wait().unwrap();
    let (device, buffer, stream) = held();
    let _read = read(device, &buffer, &stream).unwrap();
    thread::sleep(SOME_TICKS);
    // Without an end of the read, at which the stream may be asked just after it.
    std::process::exit(0);
}

/// A capture in the process makes the driver refuse the query, which says nothing about the work.
#[test]
fn a_stream_whose_query_a_capture_refuses_is_not_done_yet() {
    const TEST: &str = "a_stream_whose_query_a_capture_refuses_is_not_done_yet";
    if !process::is_child() {
        let variables = [("SIMULATED_CUDA_REFUSE", "cuStreamQuery:900@1")];
        return child::passes(TEST, Some(&child::simulated()), &variables);
    }
    let device = device("cuda:0").unwrap();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(16).unwrap());
    stream.fill(&buffer, .., &[1]).unwrap();
    assert!(!stream.query().unwrap());
    while !stream.query().unwrap() {}
    stream.synchronize().unwrap();
}

/// An error of earlier work is returned when the host function behind a read is submitted: the driver may
/// call it or not.
#[test]
fn the_argument_of_a_host_function_is_kept_after_a_loss() {
    const TEST: &str = "the_argument_of_a_host_function_is_kept_after_a_loss";
    if !process::is_child() {
        let variables = [("SIMULATED_CUDA_TELL", "cuLaunchHostFunc:700@2")];
        return child::passes(TEST, Some(&child::simulated()), &variables);
    }
    let (device, buffer, stream) = held();
    thread::spawn(|| {
        thread::sleep(SOME_TICKS);
        release();
    });
    let error = read(device, &buffer, &stream).unwrap_err();
    assert_eq!(error.kind(), Some(BackendErrorKind::Lost), "{error}");
    // The copy is done and the function called meanwhile: with what was freed, memory would be spoiled.
    thread::sleep(2 * SOME_TICKS);
    std::mem::forget((buffer, stream));
}

/// The copy returns an error of earlier work, and is still done, into bytes that the driver has pinned.
#[test]
fn bytes_that_a_read_may_still_write_to_are_kept_after_a_loss() {
    const TEST: &str = "bytes_that_a_read_may_still_write_to_are_kept_after_a_loss";
    if !process::is_child() {
        let variables = [("SIMULATED_CUDA_TELL", "cuMemcpyDtoHAsync_v2:700@1")];
        return child::passes(TEST, Some(&child::simulated()), &variables);
    }
    let (device, buffer, stream) = held();
    let error = read(device, &buffer, &stream).unwrap_err();
    assert_eq!(error.kind(), Some(BackendErrorKind::Lost), "{error}");
    // Nothing is waited for on a device that is lost. This one continues, and has its memory in use.
    std::mem::forget((buffer, stream));
}

/// No host function says when the copy is done, so that the backend waits for it before it frees the bytes.
#[test]
fn a_host_function_that_is_refused_is_an_error_and_frees_nothing_in_use() {
    const TEST: &str = "a_host_function_that_is_refused_is_an_error_and_frees_nothing_in_use";
    if !process::is_child() {
        let variables = [("SIMULATED_CUDA_REFUSE", "cuLaunchHostFunc:1@2")];
        return child::passes(TEST, Some(&child::simulated()), &variables);
    }
    let (device, buffer, stream) = held();
    thread::spawn(|| {
        thread::sleep(SOME_TICKS);
        release();
    });
    let error = read(device, &buffer, &stream).unwrap_err();
    assert_eq!(error.kind(), Some(BackendErrorKind::Other), "{error}");
    assert!(error.to_string().contains("`cuLaunchHostFunc`"), "{error}");
    is_well(device, &buffer);
}
