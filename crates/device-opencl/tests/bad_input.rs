//! What goes wrong on a device that is there: each is an error value with its reason, and harms nothing else.

mod child;
#[allow(dead_code, reason = "not every test program needs all of it")]
mod standin;

use std::pin::pin;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use device_conformance::process;
use device_conformance::testing::{error_kind, read_all};
use device_opencl::sys::{
    CL_DEVICE_NOT_AVAILABLE, CL_QUEUE_PRIORITY_HIGH_KHR, CL_QUEUE_PRIORITY_KHR, CL_QUEUE_PRIORITY_LOW_KHR,
    CL_QUEUE_PROFILING_ENABLE, CL_QUEUE_PROPERTIES,
};
use device_opencl::{OpenClDevice, OpenClError, OpenClMemory, OpenClStream};
use device_registry::{
    BackendErrorKind, Buffer, Device, DeviceError, DeviceKind, EventOptions, Priority, Stream, StreamOptions,
    device,
};

use crate::child::CHILD;

device_registry::autoload!();

/// How many bytes of addresses the process has.
#[cfg(target_os = "linux")]
fn addresses() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    pages * 4096
}

/// Lets the process have this many more bytes of addresses than it has.
#[cfg(target_os = "linux")]
fn allow_no_more_than(bytes: u64) {
    let most = addresses() + bytes;
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: the limit is one, and lives as long as the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

#[cfg(target_os = "linux")]
#[test]
fn the_end_of_a_real_devices_memory_is_out_of_memory() {
    const NAME: &str = "the_end_of_a_real_devices_memory_is_out_of_memory";
    const PIECE: usize = 64 << 20;
    if !process::is_child() {
        return CHILD.passes(NAME, &[]);
    }
    let Some(device) = device_conformance::device_or_skip("opencl") else { return };
    let properties = device.properties().unwrap();
    if properties.kind != DeviceKind::Cpu {
        return eprintln!("skipped {NAME}: the device's memory is not the host's, which can be limited");
    }
    // It has started all that it starts.
    let stream = device.create_stream().unwrap();
    let buffer = device.allocate(8).unwrap();
    stream.write(&buffer, 0, *b"contents").unwrap();
    stream.synchronize().unwrap();

    allow_no_more_than(8 * PIECE as u64);
    let mut held = Vec::new();
    let error = loop {
        match device.allocate(PIECE) {
            Ok(buffer) => held.push(buffer),
            Err(error) => break error,
        }
        assert!(held.len() < 8, "more was given than there is");
    };
    assert!(held.len() >= 2, "{error}");
    let expected = BackendErrorKind::OutOfMemory { asked: PIECE as u64, free: None };
    assert_eq!(error.kind(), Some(expected));
    // Nothing else is harmed, and it is there again once it is let go.
    assert_eq!(read_all(&buffer), b"contents");
    held.clear();
    device.allocate(PIECE).unwrap().write(0, b"again").unwrap();

    let limit = properties.largest_allocation.unwrap();
    let error = device.allocate(limit as usize + 1).unwrap_err();
    assert!(error.to_string().contains(&limit.to_string()), "{error}");
}

#[test]
fn ranges_and_buffers_that_do_not_fit_are_refused_before_opencl_sees_them() {
    let Some(opencl) = device_conformance::device_or_skip("opencl") else { return };
    let (buffer, foreign) = (opencl.allocate(8).unwrap(), Device::cpu().allocate(8).unwrap());
    buffer.write(0, b"contents").unwrap();
    assert!(buffer.write(1, &[0; 8]).is_err());
    assert!(buffer.read(usize::MAX, &mut [0]).is_err());
    assert!(buffer.fill(0..9, &[0]).is_err());
    assert!(buffer.copy_from(&foreign.slice(1..).unwrap()).is_err());
    let stream = opencl.create_stream().unwrap();
    assert!(stream.write(&buffer, 8, [1]).is_err());
    assert!(stream.write(&foreign, 0, [1]).is_err());
    assert!(stream.launch(&[&foreign], |_| Ok(())).is_err());
    stream.synchronize().unwrap();
    assert_eq!(read_all(&buffer), b"contents");
}

#[test]
fn a_kernel_on_another_device_is_told_that_it_is_no_opencl() {
    let (cpu, buffer) = (Device::cpu(), Device::cpu().allocate(8).unwrap());
    let stream = cpu.create_stream().unwrap();
    stream.launch(&[&buffer], |launch| launch.driver_as::<OpenClDevice>().map(drop)).unwrap();
    assert_eq!(error_kind(stream.synchronize()), Some(BackendErrorKind::Unsupported));
    stream.launch(&[&buffer], |launch| launch.stream_as::<OpenClStream>().map(drop)).unwrap();
    assert_eq!(error_kind(stream.synchronize()), Some(BackendErrorKind::Unsupported));
    let memory = |span: &device_registry::backend::Span| span.memory_as::<OpenClMemory>().map(drop);
    stream.launch(&[&buffer], move |launch| memory(launch.spans()[0].as_ref().unwrap())).unwrap();
    assert_eq!(error_kind(stream.synchronize()), Some(BackendErrorKind::Invalid));
}

#[test]
fn options_with_a_zero_are_an_error() {
    let Some(device) = device_conformance::device_or_skip("opencl") else { return };
    let stream = device.create_stream().unwrap();
    let launched =
        stream.launch(&[], |launch| launch.driver_as::<OpenClDevice>()?.build("", "a\0b").map(drop));
    assert_eq!(error_kind(launched), Some(BackendErrorKind::Invalid));
}

#[test]
fn a_device_that_a_kernel_finds_lost_can_be_reset() {
    const NAME: &str = "a_device_that_a_kernel_finds_lost_can_be_reset";
    if !process::is_child() {
        return CHILD.passes(NAME, &[]);
    }
    let Some(device) = device_conformance::device_or_skip("opencl") else { return };
    let (buffer, pinned) = (device.allocate(4).unwrap(), device.allocate_host(4).unwrap());
    let stream = device.create_stream().unwrap();
    stream.write(&buffer, 0, [1; 4]).unwrap();
    let event = stream.record().unwrap();
    let lost = OpenClError::new("clEnqueueNDRangeKernel", CL_DEVICE_NOT_AVAILABLE);
    assert_eq!(
        error_kind(stream.launch(&[&buffer], move |_| Err(lost.into()))),
        Some(BackendErrorKind::Lost)
    );
    for outcome in [
        buffer.write(0, &[2]),
        stream.synchronize(),
        event.synchronize(),
        stream.write(&buffer, 0, [3]),
        device.allocate(1).map(drop),
    ] {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("CL_DEVICE_NOT_AVAILABLE (-2)"), "{error}");
    }

    device.reset().unwrap();
    let anew = device.allocate(4).unwrap();
    anew.write(0, b"anew").unwrap();
    assert_eq!(read_all(&anew), b"anew");
    assert!(buffer.read(0, &mut [0; 4]).is_err(), "it was of the device that is lost");
    // What belongs to the old context can still be dropped.
    drop((buffer, pinned, event, stream));
    assert_eq!(read_all(&anew), b"anew");
}

/// Every call that a driver can refuse with a loss.
type Call = fn(&Device, &Buffer) -> Result<(), DeviceError>;

#[test]
fn each_call_that_finds_the_device_lost_says_so() {
    if !standin::is_here("each_call_that_finds_the_device_lost_says_so") {
        return;
    }
    let calls: [(&str, Call); 11] = [
        ("clCreateBuffer", |device, _| device.allocate(4).map(drop)),
        ("clEnqueueFillBuffer", |device, _| device.allocate(4).map(drop)),
        ("clEnqueueWriteBuffer", |_, buffer| buffer.write(0, &[1])),
        ("clEnqueueReadBuffer", |_, buffer| buffer.read(0, &mut [1])),
        ("clEnqueueFillBuffer", |_, buffer| buffer.fill(.., &[1])),
        ("clCreateCommandQueue", |device, _| device.create_stream().map(drop)),
        ("clEnqueueWriteBuffer", |device, buffer| device.create_stream()?.write(buffer, 0, [1])),
        ("clEnqueueReadBuffer", |device, buffer| device.create_stream()?.read(buffer, ..)?.wait().map(drop)),
        ("clEnqueueMarkerWithWaitList", |device, _| device.create_stream()?.record().map(drop)),
        ("clFlush", |device, _| device.create_stream()?.record()?.synchronize()),
        ("clFinish", |device, _| device.create_stream()?.synchronize()),
    ];
    let device = device("opencl:1").unwrap();
    for (function, call) in calls {
        for status in [-2, -1121, -36] {
            let buffer = device.allocate(4).unwrap();
            standin::order("refuses", &format!("{function}:{status}"));
            let error = call(&device, &buffer).unwrap_err();
            standin::order("refuses", "");
            assert!(error.to_string().contains(function), "{error}");
            assert_eq!(error.kind(), Some(BackendErrorKind::Lost), "{function} says {status}");
            assert_eq!(
                error_kind(buffer.write(0, &[1])),
                Some(BackendErrorKind::Lost),
                "{function}: the loss is permanent"
            );
            device.reset().unwrap();
            device.allocate(4).unwrap();
        }
    }
    // And another device was not harmed by any of it.
    device_registry::device("opencl:0").unwrap().allocate(4).unwrap();
}

/// A command to the first buffer, which a copy takes from the second.
type Submit = fn(&Stream, &Buffer, &Buffer);

#[test]
fn commands_that_fail_are_told_by_what_is_behind_them() {
    if !standin::is_here("commands_that_fail_are_told_by_what_is_behind_them") {
        return;
    }
    let device = device("opencl").unwrap();
    let (buffer, other) = (device.allocate(4).unwrap(), device.allocate(4).unwrap());
    let commands: [(&str, Submit); 3] = [
        ("clEnqueueWriteBuffer", |stream, buffer, _| stream.write(buffer, 0, [1]).unwrap()),
        ("clEnqueueCopyBuffer", |stream, buffer, other| stream.copy(other, buffer).unwrap()),
        ("clEnqueueFillBuffer", |stream, buffer, _| stream.fill(buffer, .., &[1]).unwrap()),
    ];
    for (function, submit) in commands {
        let stream = device.create_stream().unwrap();
        let before = stream.record().unwrap();
        standin::order("fails", &format!("{function}:-9999"));
        submit(&stream, &buffer, &other);
        standin::order("fails", "");
        let behind = stream.record().unwrap();
        before.synchronize().unwrap();
        let expected = format!("{function}: UNKNOWN_ERROR (-9999)");
        for error in [behind.synchronize().unwrap_err(), behind.query().unwrap_err()] {
            assert!(error.to_string().contains(&expected), "{error}");
        }
        let error = stream.synchronize().unwrap_err();
        assert!(error.to_string().contains(&expected), "{error}");
        // Once reported, it is over, except for the event behind it.
        stream.synchronize().unwrap();
        assert!(stream.query().unwrap());
        stream.record().unwrap().synchronize().unwrap();
        assert!(behind.query().is_err());
    }

    let stream = device.create_stream().unwrap();
    standin::order("fails", "clEnqueueWriteBuffer:-9999");
    stream.write(&buffer, 0, [1]).unwrap();
    standin::order("fails", "");
    assert!(stream.query().unwrap_err().to_string().contains("(-9999)"));
    assert!(stream.query().unwrap());
}

#[test]
fn a_failure_that_the_wait_for_the_queue_returns_as_well_is_told_once() {
    if !standin::is_here("a_failure_that_the_wait_for_the_queue_returns_as_well_is_told_once") {
        return;
    }
    let device = device("opencl").unwrap();
    let buffer = device.allocate(4).unwrap();
    let stream = device.create_stream().unwrap();
    standin::order("finishes", "tells");
    standin::order("fails", "clEnqueueWriteBuffer:-5");
    // A blocking call, which has its own queue.
    let error = buffer.write(0, &[3]).unwrap_err();
    assert!(error.kind() != Some(BackendErrorKind::Lost), "{error}");
    stream.write(&buffer, 0, [1]).unwrap();
    stream.write(&buffer, 0, [2]).unwrap();
    standin::order("fails", "");
    let error = stream.synchronize().unwrap_err();
    assert!(error.to_string().contains("clEnqueueWriteBuffer: CL_OUT_OF_RESOURCES (-5)"), "{error}");
    stream.synchronize().unwrap();
    stream.fill(&buffer, .., &[4]).unwrap();
    stream.record().unwrap().synchronize().unwrap();
    assert_eq!(read_all(&buffer), [4; 4]);
    // An error of the call itself comes each time.
    standin::order("refuses", "clFinish:-5");
    let error = stream.synchronize().unwrap_err();
    assert!(error.to_string().contains("clFinish: CL_OUT_OF_RESOURCES (-5)"), "{error}");
}

#[test]
fn an_event_says_the_same_whatever_fails_and_is_told_later() {
    if !standin::is_here("an_event_says_the_same_whatever_fails_and_is_told_later") {
        return;
    }
    let device = device("opencl").unwrap();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    let fail = |status: i32| {
        standin::order("fails", &format!("clEnqueueWriteBuffer:{status}"));
        stream.write(&buffer, 0, [1]).unwrap();
        standin::order("fails", "");
    };
    let before = stream.record().unwrap();
    let mut behind = Vec::new();
    for status in [-9001, -9002, -9003] {
        fail(status);
        // The stream tells of the first one only, and so do the events behind both.
        fail(status - 100);
        behind.push((stream.record().unwrap(), status));
        assert!(stream.query().unwrap_err().to_string().contains(&format!("({status})")));
        assert!(stream.query().unwrap());
        let after = stream.record().unwrap();
        assert!(before.query().unwrap() && after.query().unwrap());
        for (event, status) in &behind {
            for error in [event.query().unwrap_err(), event.synchronize().unwrap_err()] {
                assert!(error.to_string().contains(&format!("({status})")), "{error}, and not {status}");
            }
        }
    }
    // Also events recorded behind work that is not yet known to have failed.
    standin::order("delays", "clEnqueueWriteBuffer:200,clEnqueueMarkerWithWaitList:1");
    let before = stream.record().unwrap();
    fail(-9004);
    fail(-9005);
    let early = stream.record().unwrap();
    assert!(!early.query().unwrap() && standin::delayed() > 0, "the test comes too late");
    for error in
        [early.synchronize().unwrap_err(), stream.synchronize().unwrap_err(), early.query().unwrap_err()]
    {
        assert!(error.to_string().contains("(-9004)"), "{error}");
    }
    before.synchronize().unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn an_event_behind_a_read_that_failed_says_so_before_opencl_calls_back() {
    if !standin::is_here("an_event_behind_a_read_that_failed_says_so_before_opencl_calls_back") {
        return;
    }
    let device = device("opencl").unwrap();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    standin::order("holds", "clSetEventCallback");
    standin::order("fails", "clEnqueueReadBuffer:-9999");
    let read = stream.read(&buffer, ..).unwrap();
    let event = stream.record().unwrap();
    let error = event.synchronize().unwrap_err();
    assert!(error.to_string().contains("clEnqueueReadBuffer: UNKNOWN_ERROR (-9999)"), "{error}");
    assert!(read.wait().is_err());
    assert!(stream.synchronize().is_err());
    stream.synchronize().unwrap();
    assert!(event.query().is_err());
    stream.record().unwrap().synchronize().unwrap();
    standin::order("holds", "");
}

#[test]
fn a_read_that_failed_ends_although_opencl_never_calls_back() {
    if !standin::is_here("a_read_that_failed_ends_although_opencl_never_calls_back") {
        return;
    }
    let device = device("opencl").unwrap();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    standin::order("holds", "clSetEventCallback");
    standin::order("fails", "clEnqueueReadBuffer:-9999");
    let error = stream.read(&buffer, ..).unwrap().wait().unwrap_err();
    assert!(error.to_string().contains("clEnqueueReadBuffer: UNKNOWN_ERROR (-9999)"), "{error}");
    assert!(stream.synchronize().is_err());
    standin::order("fails", "");
    standin::order("holds", "");
    assert!(stream.read(&buffer, ..).unwrap().wait().is_ok());
}

#[test]
fn a_read_that_failed_is_no_success_where_opencl_calls_back_when_its_event_is_released() {
    const NAME: &str = "a_read_that_failed_is_no_success_where_opencl_calls_back_when_its_event_is_released";
    if !standin::is_here(NAME) {
        return;
    }
    let device = device("opencl").unwrap();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    standin::order("releases", "clSetEventCallback");
    standin::order("fails", "clEnqueueReadBuffer:-9999");
    let read = stream.read(&buffer, ..).unwrap();
    // Finds the failure before the thread looks.
    let _ = stream.query();
    let error = read.wait().unwrap_err();
    assert!(error.to_string().contains("clEnqueueReadBuffer: UNKNOWN_ERROR (-9999)"), "{error}");
}

/// Calls a function while this process has too few addresses for the stack of a thread.
#[cfg(target_os = "linux")]
fn without_new_threads<R>(call: impl FnOnce() -> R) -> R {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the place is one for a limit, and lives as long as the call.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut before) }, 0);
    let set = |limit: &libc::rlimit| {
        // SAFETY: the limit is one, and lives as long as the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, limit) }, 0);
    };
    set(&libc::rlimit { rlim_cur: addresses() + (1 << 20), ..before });
    let result = call();
    set(&before);
    result
}

#[cfg(target_os = "linux")]
#[test]
fn a_read_is_refused_where_no_thread_can_look_for_its_failure() {
    if !standin::is_here("a_read_is_refused_where_no_thread_can_look_for_its_failure") {
        return;
    }
    let device = device("opencl").unwrap();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    let error = without_new_threads(|| stream.read(&buffer, ..).map(drop)).unwrap_err();
    assert!(format!("{error:?}").contains("the thread that ends reads does not start"), "{error:?}");
    stream.synchronize().unwrap();
    assert_eq!(*stream.read(&buffer, ..).unwrap().wait().unwrap(), [0; 4]);
}

#[test]
fn an_event_behind_a_reported_failure_of_a_read_does_not_fail_while_the_reads_task_is_woken() {
    const NAME: &str =
        "an_event_behind_a_reported_failure_of_a_read_does_not_fail_while_the_reads_task_is_woken";
    /// It keeps the driver's callback in `Completion::finish`.
    struct WakesSlowly(Mutex<Receiver<()>>);

    impl Wake for WakesSlowly {
        fn wake(self: Arc<Self>) {
            self.0.lock().unwrap().recv().unwrap();
        }
    }

    if !standin::is_here(NAME) {
        return;
    }
    let device = device("opencl").unwrap();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    standin::order("delays", "clEnqueueReadBuffer:200");
    standin::order("fails", "clEnqueueReadBuffer:-9999");
    let mut read = pin!(stream.read(&buffer, ..).unwrap());
    standin::order("delays", "");
    let (release, released) = channel();
    let waker = Waker::from(Arc::new(WakesSlowly(Mutex::new(released))));
    assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "the test comes too late");
    let before = stream.record().unwrap();
    let error = loop {
        match stream.query() {
            Ok(_) => thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("(-9999)"), "{error}");
    stream.record().unwrap().synchronize().unwrap();
    assert!(before.query().is_err());
    release.send(()).unwrap();
    assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

#[test]
fn borrowed_bytes_are_given_back_when_nothing_touches_them_any_more() {
    if !standin::is_here("borrowed_bytes_are_given_back_when_nothing_touches_them_any_more") {
        return;
    }
    let device = device("opencl").unwrap();
    let buffer = device.allocate(4).unwrap();
    buffer.write(0, b"here").unwrap();
    // A command that continues although the wait for it has failed.
    for function in ["clEnqueueReadBuffer", "clEnqueueWriteBuffer"] {
        standin::order("delays", &format!("{function}:50"));
        standin::order("refuses", "clWaitForEvents:-9999");
        let mut bytes = *b"none";
        let outcome = match function {
            "clEnqueueReadBuffer" => buffer.read(0, &mut bytes),
            _ => buffer.write(0, b"here"),
        };
        assert_eq!(standin::delayed(), 0, "{function}");
        standin::order("refuses", "");
        standin::order("delays", "");
        assert!(outcome.unwrap_err().to_string().contains("(-9999)"));
        assert_eq!(bytes == *b"here", function == "clEnqueueReadBuffer", "the command was done");
    }
}

#[test]
fn a_read_without_a_callback_is_waited_for_before_its_bytes_are_freed() {
    if !standin::is_here("a_read_without_a_callback_is_waited_for_before_its_bytes_are_freed") {
        return;
    }
    let device = device("opencl").unwrap();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    standin::order("delays", "clEnqueueReadBuffer:50");
    standin::order("refuses", "clSetEventCallback:-6");
    let pinned = device.allocate_host(4).unwrap();
    let live = standin::live();
    let refused = stream.read_into(&buffer, 0, pinned);
    assert_eq!(standin::delayed(), 0);
    assert!(refused.map(drop).unwrap_err().to_string().contains("clSetEventCallback"));
    assert!(standin::live() < live, "the bytes were not freed");

    // What cannot be waited for may still be written to.
    let pinned = device.allocate_host(4).unwrap();
    let live = standin::live();
    standin::order("refuses", "clSetEventCallback:-6,clWaitForEvents:-9999");
    assert!(stream.read_into(&buffer, 0, pinned).is_err());
    standin::order("refuses", "");
    stream.synchronize().unwrap();
    assert_eq!(standin::live(), live, "the bytes were freed");
}

#[test]
fn what_a_failed_read_may_still_write_to_is_not_freed() {
    if !standin::is_here("what_a_failed_read_may_still_write_to_is_not_freed") {
        return;
    }
    let device = device("opencl").unwrap();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    let read = |outcome: &str| {
        let pinned = device.allocate_host(4).unwrap();
        let live = standin::live();
        standin::order("delays", "clEnqueueReadBuffer:300");
        standin::order("fails", outcome);
        let read = stream.read_into(&buffer, 0, pinned).unwrap().wait();
        standin::order("fails", "");
        standin::order("delays", "");
        assert_eq!(read.is_err(), !outcome.is_empty());
        drop(read);
        let _ = stream.synchronize();
        stream.synchronize().unwrap();
        // The thread that calls back lets go of the event a little later.
        thread::sleep(Duration::from_millis(300));
        live.checked_sub(standin::live()).unwrap()
    };
    let freed = read("");
    assert!(freed > 0, "the test does not see what is freed");
    assert_eq!(read("clEnqueueReadBuffer:-9999"), 0);
}

#[test]
fn what_blocks_tells_of_its_own_command() {
    if !standin::is_here("what_blocks_tells_of_its_own_command") {
        return;
    }
    let device = device("opencl").unwrap();
    let buffer = device.allocate(4).unwrap();
    let calls: [(&str, Call); 4] = [
        ("clEnqueueWriteBuffer", |_, buffer| buffer.write(0, &[1])),
        ("clEnqueueReadBuffer", |_, buffer| buffer.read(0, &mut [1])),
        ("clEnqueueFillBuffer", |_, buffer| buffer.fill(.., &[1])),
        ("clEnqueueCopyBuffer", |device, buffer| buffer.copy_from(&device.allocate(4)?)),
    ];
    for (function, call) in calls {
        // The fill of an allocation is not meant.
        let spare = device.allocate(4).unwrap();
        drop(spare);
        standin::order("fails", &format!("{function}:-9999"));
        let error = call(&device, &buffer).unwrap_err();
        standin::order("fails", "");
        assert!(error.to_string().contains(&format!("{function}: UNKNOWN_ERROR (-9999)")), "{error}");
        call(&device, &buffer).unwrap();
    }
}

#[test]
fn memory_that_is_not_there_at_its_first_use_is_an_allocation_that_fails() {
    if !standin::is_here("memory_that_is_not_there_at_its_first_use_is_an_allocation_that_fails") {
        return;
    }
    let device = device("opencl").unwrap();
    let out_of_memory = Some(BackendErrorKind::OutOfMemory { asked: 7, free: None });
    for status in [-4, -5, -6, -61] {
        standin::order("refuses", &format!("clCreateBuffer:{status}"));
        assert_eq!(error_kind(device.allocate(7)), out_of_memory, "clCreateBuffer: {status}");
        standin::order("refuses", "");
    }
    for (order, status) in [("refuses", -4), ("refuses", -5), ("fails", -4), ("fails", -5)] {
        standin::order(order, &format!("clEnqueueFillBuffer:{status}"));
        assert_eq!(error_kind(device.allocate(7)), out_of_memory, "clEnqueueFillBuffer {order}: {status}");
        standin::order(order, "");
    }
    assert_eq!(read_all(&device.allocate(7).unwrap()), [0; 7], "it has something else in it when it is new");
}

#[test]
fn a_loader_that_is_older_than_its_devices_will_do() {
    const NAME: &str = "a_loader_that_is_older_than_its_devices_will_do";
    if !standin::is_here_without(NAME, "clCreateCommandQueueWithProperties") {
        return;
    }
    standin::order("version", "OpenCL 3.0");
    let device = device("opencl").unwrap();
    assert_eq!(read_all(&device.allocate(7).unwrap()), [0; 7]);
    let high = StreamOptions::new().with_priority(Priority::High);
    device.create_stream_with(&high).unwrap().synchronize().unwrap();
    assert_eq!(*device.allocate_host(4).unwrap(), [0; 4]);
}

#[test]
fn a_function_that_the_loader_lacks_is_an_error_where_it_is_needed_and_only_there() {
    const NAME: &str = "a_function_that_the_loader_lacks_is_an_error_where_it_is_needed_and_only_there";
    if !standin::is_here_without(NAME, "clEnqueueFillBuffer") {
        return;
    }
    let device = device("opencl").unwrap();
    device.open().unwrap();
    let stream = device.create_stream().unwrap();
    stream.record().unwrap().synchronize().unwrap();
    let live = standin::live();
    let error = device.allocate(7).unwrap_err();
    assert_eq!(error.kind(), Some(BackendErrorKind::Unsupported), "{error}");
    let expected = "clEnqueueFillBuffer: the OpenCL loader does not have this function";
    assert!(error.to_string().contains(expected), "{error}");
    assert_eq!(standin::live(), live, "the memory was not released");
    stream.synchronize().unwrap();
}

#[test]
fn an_allocation_that_fails_of_something_else_is_not_want_of_memory() {
    if !standin::is_here("an_allocation_that_fails_of_something_else_is_not_want_of_memory") {
        return;
    }
    let device = device("opencl").unwrap();
    for (function, status, expected) in [
        ("clCreateCommandQueue", -9999, BackendErrorKind::Other),
        ("clCreateCommandQueue", -35, BackendErrorKind::Invalid),
        ("clEnqueueFillBuffer", -30, BackendErrorKind::Invalid),
    ] {
        standin::order("refuses", &format!("{function}:{status}"));
        let error = device.allocate(7).unwrap_err();
        standin::order("refuses", "");
        assert!(error.to_string().contains(function), "{error}");
        assert_eq!(error.kind(), Some(expected), "{function}: {status}");
    }
}

#[test]
fn pinned_memory_that_is_too_large_names_the_limit() {
    if !standin::is_here("pinned_memory_that_is_too_large_names_the_limit") {
        return;
    }
    let device = device("opencl").unwrap();
    let limit = device.properties().unwrap().largest_allocation.unwrap();
    standin::order("refuses", "clCreateBuffer:-61");
    let large = device.allocate_host(limit as usize + 1).unwrap_err();
    let small = device.allocate_host(4).unwrap_err();
    standin::order("refuses", "");
    assert!(large.to_string().contains(&format!("at most {limit} bytes in one allocation")), "{large}");
    let expected = BackendErrorKind::OutOfMemory { asked: limit + 1, free: None };
    assert_eq!(large.kind(), Some(expected));
    assert!(!small.to_string().contains(&limit.to_string()), "{small}");
}

#[test]
fn a_streams_priority_is_a_hint_for_its_queue() {
    const NAME: &str = "a_streams_priority_is_a_hint_for_its_queue";
    if !standin::is_here(NAME) {
        return;
    }
    standin::order("version", "OpenCL 3.0");
    for (name, has_hints) in [("opencl:0", false), ("opencl:2", true)] {
        let device = device(name).unwrap();
        for (priority, hint) in
            [(Priority::High, CL_QUEUE_PRIORITY_HIGH_KHR), (Priority::Low, CL_QUEUE_PRIORITY_LOW_KHR)]
        {
            device.create_stream_with(&StreamOptions::new().with_priority(priority)).unwrap();
            let hinted = standin::queue_with(CL_QUEUE_PRIORITY_KHR, hint);
            assert_eq!(hinted, has_hints, "{name}, {priority:?}");
        }
        assert!(standin::queue_with(CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE), "{name}");
    }
}

#[test]
fn a_read_that_fails_is_told_to_who_waits_for_it_and_to_the_stream_once() {
    if !standin::is_here("a_read_that_fails_is_told_to_who_waits_for_it_and_to_the_stream_once") {
        return;
    }
    let device = device("opencl").unwrap();
    let buffer = device.allocate(4).unwrap();
    let stream = device.create_stream().unwrap();
    standin::order("fails", "clEnqueueReadBuffer:-9999");
    let read = stream.read(&buffer, ..);
    standin::order("fails", "");
    // What has failed before the call returns is refused, and then nothing of the stream's.
    let (error, of_the_stream) = match read {
        Ok(read) => (read.wait().unwrap_err(), true),
        Err(error) => (error, false),
    };
    assert!(error.to_string().contains("clEnqueueReadBuffer: UNKNOWN_ERROR (-9999)"), "{error}");
    assert_eq!(stream.synchronize().is_err(), of_the_stream);
    stream.synchronize().unwrap();

    // A driver that does not call back must not make a thread wait forever.
    standin::order("refuses", "clSetEventCallback:-6");
    let error = stream.read(&buffer, ..).map(drop).unwrap_err();
    standin::order("refuses", "");
    assert!(error.to_string().contains("clSetEventCallback"), "{error}");
    assert_eq!(*stream.read(&buffer, ..).unwrap().wait().unwrap(), [0; 4]);
}

#[test]
fn a_queue_without_times_says_so_when_one_is_asked_for() {
    if !standin::is_here("a_queue_without_times_says_so_when_one_is_asked_for") {
        return;
    }
    standin::order("queues", "0");
    let device = device("opencl").unwrap();
    assert!(!device.properties().unwrap().timed_events);
    let stream = device.create_stream().unwrap();
    assert_eq!(
        error_kind(stream.record_with(&EventOptions::new().timed())),
        Some(BackendErrorKind::Unsupported)
    );
    stream.record().unwrap().synchronize().unwrap();
}

#[test]
fn a_timer_without_a_resolution_is_no_timer() {
    if !standin::is_here("a_timer_without_a_resolution_is_no_timer") {
        return;
    }
    standin::order("resolution", "0");
    let device = device("opencl").unwrap();
    assert!(!device.properties().unwrap().timed_events);
    let timed = device.create_stream().unwrap().record_with(&EventOptions::new().timed());
    assert_eq!(error_kind(timed), Some(BackendErrorKind::Unsupported));
}

#[test]
fn timestamps_that_are_numbers_of_states_are_an_error_and_no_duration() {
    if !standin::is_here("timestamps_that_are_numbers_of_states_are_an_error_and_no_duration") {
        return;
    }
    let stream = device("opencl").unwrap().create_stream().unwrap();
    let [start, end] = [(); 2].map(|()| stream.record_with(&EventOptions::new().timed()).unwrap());
    end.elapsed_since(&start).unwrap();
    standin::order("times", "none");
    let error = end.elapsed_since(&start).unwrap_err();
    assert_eq!(error.kind(), Some(BackendErrorKind::Unsupported), "{error}");
    assert!(
        error.to_string().contains("the driver has no timestamps: the one of this event is 3 ns"),
        "{error}"
    );
}

#[test]
fn events_are_waited_for_in_the_queue_within_a_device_and_by_the_host_elsewhere() {
    if !standin::is_here("events_are_waited_for_in_the_queue_within_a_device_and_by_the_host_elsewhere") {
        return;
    }
    let [one, other] = ["opencl:0", "opencl:1"].map(|name| device(name).unwrap().create_stream().unwrap());
    let [here, elsewhere] = [one.record().unwrap(), other.record().unwrap()];
    standin::order("refuses", "clEnqueueBarrierWithWaitList:-9999");
    assert_eq!(error_kind(one.wait_event(&here)), Some(BackendErrorKind::Other), "the queue was not asked");
    one.wait_event(&elsewhere).unwrap();
    one.synchronize().unwrap();
}

#[test]
fn whatever_was_made_is_released_also_where_it_failed() {
    if !standin::is_here("whatever_was_made_is_released_also_where_it_failed") {
        return;
    }
    let device = device("opencl").unwrap();
    for orders in ["", "clEnqueueFillBuffer:-4", "clEnqueueReadBuffer:-9999", "clEnqueueWriteBuffer:-9999"] {
        for what in ["refuses", "fails"] {
            standin::order(what, orders);
            let all = || {
                let (buffer, pinned) = (device.allocate(4)?, device.allocate_host(4)?);
                let stream = device.create_stream()?;
                for _ in 0..100 {
                    stream.write(&buffer, 0, [1; 4]).unwrap_or(());
                    drop(stream.read(&buffer, ..));
                    stream.wait_event(&stream.record()?)?;
                }
                buffer.write(0, &pinned)?;
                stream.synchronize()
            };
            let outcome = all();
            assert!(outcome.is_ok() || !orders.is_empty(), "{outcome:?}");
            standin::order(what, "");
            let _ = device.synchronize();
            device.close().unwrap_or_default();
            assert_eq!(standin::live(), 0, "after {orders} {what}");
        }
    }
}

struct Logged(Mutex<Vec<String>>);

impl log::Log for Logged {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        self.0.lock().unwrap().push(format!("{}: {}", record.level(), record.args()));
    }

    fn flush(&self) {}
}

#[test]
fn what_a_driver_reports_beside_its_statuses_is_logged() {
    static LOGGED: Logged = Logged(Mutex::new(Vec::new()));
    if !standin::is_here("what_a_driver_reports_beside_its_statuses_is_logged") {
        return;
    }
    log::set_logger(&LOGGED).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    standin::order("reports", "1");
    let held = device("opencl:2").unwrap().allocate(4).unwrap();
    // A release that fails is no panic.
    standin::order("refuses", "clReleaseMemObject:-38");
    drop(held);
    device("opencl:2").unwrap().empty_cache().unwrap();
    let logged = LOGGED.0.lock().unwrap();
    for expected in [
        "WARN: the OpenCL platform `Broken` does not list its devices: clGetDeviceIDs: UNKNOWN_ERROR (-9999)",
        "WARN: `opencl:2` reports: a report",
        "WARN: clReleaseMemObject: CL_INVALID_MEM_OBJECT (-38)",
    ] {
        assert!(logged.iter().any(|line| line == expected), "`{expected}` is not in {logged:?}");
    }
}

#[test]
fn what_is_behind_a_failure_is_let_go_while_nobody_waits_for_the_stream() {
    if !standin::is_here("what_is_behind_a_failure_is_let_go_while_nobody_waits_for_the_stream") {
        return;
    }
    let device = device("opencl").unwrap();
    let (buffer, stream) = (device.allocate(4).unwrap(), device.create_stream().unwrap());
    standin::order("fails", "clEnqueueWriteBuffer:-9999");
    stream.write(&buffer, 0, [1]).unwrap();
    standin::order("fails", "");
    // Behind it there are marks of the core's before the failure is reported.
    for _ in 0..200 {
        stream.write(&buffer, 0, [1]).unwrap();
    }
    stream.query().unwrap_err();
    let mut live = Vec::new();
    for _ in 0..4 {
        for _ in 0..6400 {
            stream.write(&buffer, 0, [1]).unwrap();
        }
        assert!(stream.query().unwrap());
        live.push(standin::live());
    }
    assert!(live[3] < live[0] + 100, "what is done is kept: {live:?}");
}

#[test]
fn an_ordinal_beyond_the_count_is_an_error_of_the_backend() {
    let Some(device) = device_conformance::device_or_skip("opencl") else { return };
    let backend = device.backend().load().unwrap();
    let count = backend.device_count().unwrap();
    for ordinal in [count, usize::MAX] {
        let expected = format!("no device has the ordinal {ordinal}: there are {count} devices");
        assert_eq!(backend.open(ordinal).unwrap_err().message(), expected);
        assert_eq!(backend.properties(ordinal).unwrap_err().message(), expected);
    }
}
