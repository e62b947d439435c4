//! What some real drivers do and others do not, done by the stand-in: callbacks under a lock of the driver,
//! and the ways in which failures of commands are returned.
#![cfg(target_os = "linux")]

mod child;
#[allow(dead_code, reason = "not every test program needs all of it")]
mod standin;

use std::pin::pin;
use std::ptr;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use device_conformance::testing::read_all;
use device_opencl::{OpenClDevice, OpenClMemory, OpenClStream, handles};
use device_registry::backend::{BackendError, Launch};
use device_registry::{Buffer, Device, DeviceError, Stream, device};

device_registry::autoload!();

/// Ends the process with an error where the test does not end: a driver that waits for itself never does.
fn expect_an_end() {
    thread::spawn(|| {
        thread::sleep(Duration::from_secs(20));
        eprintln!("the test does not end");
        std::process::exit(1);
    });
}

#[track_caller]
fn expect_error(outcome: Result<(), DeviceError>, expected: &str) {
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains(expected), "`{expected}` is not in: {error}");
}

/// Waits until the other thread is in its wait for the receiver.
struct WakesSlowly(Mutex<Receiver<()>>);

impl Wake for WakesSlowly {
    fn wake(self: Arc<Self>) {
        self.0.lock().unwrap().recv().unwrap();
    }
}

#[test]
fn reads_end_where_a_driver_calls_back_under_its_lock() {
    if !standin::is_here("reads_end_where_a_driver_calls_back_under_its_lock") {
        return;
    }
    expect_an_end();
    standin::order("locks", "Alpha 1");
    let device = device("opencl:0").unwrap();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    for delay in ["", "clEnqueueReadBuffer:20"] {
        standin::order("delays", delay);
        let reads: Vec<_> = (0..10).map(|_| stream.read(&buffer, ..).unwrap()).collect();
        reads.into_iter().for_each(|read| assert_eq!(*read.wait().unwrap(), [0; 4]));
        standin::order("fails", "clEnqueueReadBuffer:-9999");
        let read = stream.read(&buffer, ..);
        standin::order("fails", "");
        expect_error(
            read.and_then(|read| read.wait()).map(drop),
            "clEnqueueReadBuffer: UNKNOWN_ERROR (-9999)",
        );
        let _ = stream.synchronize();
        stream.synchronize().unwrap();
    }
}

#[test]
fn a_task_that_a_read_wakes_may_wait_for_a_thread_that_the_lock_of_the_driver_holds_up() {
    const NAME: &str = "a_task_that_a_read_wakes_may_wait_for_a_thread_that_the_lock_of_the_driver_holds_up";
    if !standin::is_here(NAME) {
        return;
    }
    expect_an_end();
    standin::order("locks", "Alpha 1");
    let device = device("opencl:0").unwrap();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    standin::order("delays", "clEnqueueReadBuffer:100");
    let mut read = pin!(stream.read(&buffer, ..).unwrap());
    standin::order("delays", "");
    let (release, released) = channel();
    let waker = Waker::from(Arc::new(WakesSlowly(Mutex::new(released))));
    assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "the test comes too late");
    while standin::delayed() > 0 {
        thread::yield_now();
    }
    // Long enough for the callback.
    thread::sleep(Duration::from_millis(50));
    stream.synchronize().unwrap();
    release.send(()).unwrap();
    assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

#[test]
fn a_driver_that_stalls_in_a_callback_holds_up_no_other_device() {
    if !standin::is_here("a_driver_that_stalls_in_a_callback_holds_up_no_other_device") {
        return;
    }
    expect_an_end();
    let [stalled, other] = ["opencl:0", "opencl:1"].map(|name| {
        let device = device(name).unwrap();
        (device.create_stream().unwrap(), device.allocate(4).unwrap())
    });
    let reads = |(stream, buffer): &(Stream, Buffer)| -> Vec<_> {
        (0..100).map(|_| stream.read(buffer, ..).unwrap()).collect()
    };
    // With a thread that has looked at reads of both.
    for device in [&stalled, &other] {
        reads(device).into_iter().for_each(|read| drop(read.wait().unwrap()));
    }
    standin::order("holds", "clSetEventCallback");
    let waiting = reads(&stalled);
    standin::order("locks", "Alpha 1");
    standin::order("stalls", "Alpha 1");
    standin::order("holds", "");
    thread::sleep(Duration::from_millis(20));
    for _ in 0..2 {
        reads(&other).into_iter().for_each(|read| drop(read.wait().unwrap()));
    }
    let of_failure = {
        standin::order("holds", "clSetEventCallback");
        standin::order("fails", "clEnqueueReadBuffer:-9999");
        other.0.read(&other.1, ..)
    };
    standin::order("fails", "");
    standin::order("holds", "");
    expect_error(of_failure.and_then(|read| read.wait()).map(drop), "(-9999)");
    standin::order("stalls", "");
    waiting.into_iter().for_each(|read| drop(read.wait().unwrap()));
}

/// The threads of this name that the process has.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
    names.filter(|found| found.trim() == name).count()
}

#[test]
fn the_thread_of_a_devices_reads_ends_with_the_device() {
    if !standin::is_here("the_thread_of_a_devices_reads_ends_with_the_device") {
        return;
    }
    expect_an_end();
    for _ in 0..3 {
        for (number, name) in ["opencl:0", "opencl:1"].into_iter().enumerate() {
            let device = device(name).unwrap();
            let buffer = device.allocate(4).unwrap();
            for _ in 0..3 {
                device.create_stream().unwrap().read(&buffer, ..).unwrap().wait().unwrap();
            }
            assert_eq!(threads("opencl reads"), number + 1);
        }
        for name in ["opencl:0", "opencl:1"] {
            device(name).unwrap().close().unwrap();
        }
        while threads("opencl reads") > 0 {
            thread::yield_now();
        }
    }
}

/// A command to the first buffer, which a copy takes from the second.
type Submit = fn(&Stream, &Buffer, &Buffer) -> Result<(), DeviceError>;

const COMMANDS: [(&str, Submit); 4] = [
    ("clEnqueueWriteBuffer", |stream, buffer, _| stream.write(buffer, 0, [1])),
    ("clEnqueueCopyBuffer", |stream, buffer, other| stream.copy(other, buffer)),
    ("clEnqueueFillBuffer", |stream, buffer, _| stream.fill(buffer, .., &[1])),
    ("clEnqueueBarrierWithWaitList", |stream, _, _| stream.wait_event(&stream.record()?)),
];

type Call = fn(&Device, &Buffer) -> Result<(), DeviceError>;

const CALLS: [(&str, Call); 3] = [
    ("clEnqueueWriteBuffer", |_, buffer| buffer.write(0, &[1])),
    ("clEnqueueReadBuffer", |_, buffer| buffer.read(0, &mut [1])),
    ("clEnqueueFillBuffer", |_, buffer| buffer.fill(.., &[1])),
];

/// Expects that failures of commands are reported once, and harm nothing later.
fn expect_failures_once(device: &Device, status: &str) {
    let (buffer, other) = (device.allocate(4).unwrap(), device.allocate(4).unwrap());
    for (function, submit) in COMMANDS {
        let expected = format!("{function}: {status}");
        let stream = device.create_stream().unwrap();
        let before = stream.record().unwrap();
        let fail = |count: usize| {
            standin::order("fails", &format!("{function}:-5"));
            (0..count).for_each(|_| submit(&stream, &buffer, &other).unwrap());
            standin::order("fails", "");
        };
        fail(1);
        let behind = stream.record().unwrap();
        before.synchronize().unwrap();
        expect_error(behind.synchronize(), &expected);
        expect_error(behind.query().map(drop), &expected);
        expect_error(stream.synchronize(), &expected);
        stream.synchronize().unwrap();
        // Found by a look, and by the wait of later work.
        fail(1);
        expect_error(stream.query().map(drop), &expected);
        stream.synchronize().unwrap();
        fail(3);
        expect_error(stream.synchronize(), &expected);
        stream.synchronize().unwrap();
        assert!(stream.query().unwrap());
        stream.fill(&buffer, .., &[7]).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(read_all(&buffer), [7; 4]);
        stream.record().unwrap().synchronize().unwrap();
    }
    for (function, call) in CALLS {
        standin::order("fails", &format!("{function}:-5"));
        let failed = call(device, &buffer);
        standin::order("fails", "");
        expect_error(failed, &format!("{function}: {status}"));
        CALLS.iter().for_each(|(_, call)| call(device, &buffer).unwrap());
    }
    let stream = device.create_stream().unwrap();
    standin::order("delays", "clEnqueueReadBuffer:10");
    standin::order("fails", "clEnqueueReadBuffer:-5");
    let read = stream.read(&buffer, ..).unwrap();
    standin::order("fails", "");
    standin::order("delays", "");
    expect_error(read.wait().map(drop), "clEnqueueReadBuffer: ");
    expect_error(stream.synchronize(), "clEnqueueReadBuffer: ");
    stream.synchronize().unwrap();
    stream.read(&buffer, ..).unwrap().wait().unwrap();
}

#[test]
fn a_failure_that_the_status_of_its_event_hides_is_reported() {
    if !standin::is_here("a_failure_that_the_status_of_its_event_hides_is_reported") {
        return;
    }
    expect_an_end();
    standin::order("hides", "failures");
    let status = "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST (-14)";
    expect_failures_once(&device("opencl").unwrap(), status);
}

#[test]
fn a_failure_that_stays_with_its_queue_is_reported_once() {
    if !standin::is_here("a_failure_that_stays_with_its_queue_is_reported_once") {
        return;
    }
    expect_an_end();
    for (order, form) in [
        ("keeps", "clFinish"),
        ("keeps", "blocking"),
        ("keeps", "commands"),
        ("keeps", "clFinish,blocking,commands"),
        ("finishes", "tells"),
    ] {
        standin::order(order, form);
        expect_failures_once(&device("opencl").unwrap(), "CL_OUT_OF_RESOURCES (-5)");
        standin::order(order, "");
    }
}

#[test]
fn a_command_that_fails_for_one_before_it_is_not_reported_as_well() {
    if !standin::is_here("a_command_that_fails_for_one_before_it_is_not_reported_as_well") {
        return;
    }
    expect_an_end();
    standin::order("keeps", "commands");
    let device = device("opencl").unwrap();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    standin::order("fails", "clEnqueueWriteBuffer:-5");
    stream.write(&buffer, 0, [1]).unwrap();
    standin::order("fails", "");
    standin::order("delays", "clEnqueueFillBuffer:20");
    stream.fill(&buffer, .., &[2]).unwrap();
    standin::order("delays", "");
    expect_error(stream.query().map(drop), "clEnqueueWriteBuffer: CL_OUT_OF_RESOURCES (-5)");
    assert!(standin::delayed() > 0, "the test comes too late");
    // The next command waits for it, and goes to another queue.
    stream.fill(&buffer, .., &[3]).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(read_all(&buffer), [3; 4]);
}

/// Enqueues a fill for which the stream has no event.
fn fill_unseen(launch: &Launch<'_>) -> Result<(), BackendError> {
    let (cl, span) = (launch.driver_as::<OpenClDevice>()?.functions(), launch.spans()[0].as_ref().unwrap());
    let queue = launch.stream_as::<OpenClStream>()?.command_queue();
    let buffer = span.memory_as::<OpenClMemory>()?.buffer();
    let mut event = ptr::null_mut();
    // SAFETY: the pattern is copied by the call, and the four bytes lie inside the buffer. The event is
    // released once.
    let enqueued = unsafe {
        cl.clEnqueueFillBuffer(queue, buffer, [9_u8].as_ptr().cast(), 1, 0, 4, 0, ptr::null(), &mut event)
            .and_then(|()| cl.clReleaseEvent(event))
    };
    Ok(enqueued?)
}

#[test]
fn a_kernel_has_one_queue_also_where_a_failure_is_found_meanwhile() {
    if !standin::is_here("a_kernel_has_one_queue_also_where_a_failure_is_found_meanwhile") {
        return;
    }
    expect_an_end();
    let device = device("opencl").unwrap();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    standin::order("delays", "clEnqueueWriteBuffer:50,clEnqueueMarkerWithWaitList:1");
    standin::order("fails", "clEnqueueWriteBuffer:-5");
    stream.write(&buffer, 0, [1]).unwrap();
    standin::order("fails", "");
    let behind = stream.record().unwrap();
    let queues = Arc::new(Mutex::new(Vec::new()));
    let of_kernel = Arc::clone(&queues);
    stream
        .launch(&[], move |launch| {
            let mut queues = of_kernel.lock().unwrap();
            queues.push(launch.stream_as::<OpenClStream>()?.command_queue().addr());
            assert!(standin::delayed() > 0, "the test comes too late");
            thread::spawn(move || behind.synchronize().unwrap_err()).join().unwrap();
            queues.push(handles::command_queue(launch)?.addr());
            Ok(())
        })
        .unwrap();
    stream.synchronize().unwrap_err();
    let of_kernel = Arc::clone(&queues);
    stream
        .launch(&[], move |launch| {
            let queue = launch.stream_as::<OpenClStream>()?.command_queue().addr();
            of_kernel.lock().unwrap().push(queue);
            Ok(())
        })
        .unwrap();
    stream.synchronize().unwrap();
    let queues = queues.lock().unwrap();
    assert_eq!(queues[0], queues[1], "while the kernel runs");
    assert_ne!(queues[1], queues[2], "after the failure");
}

#[test]
fn a_wait_for_a_stream_waits_where_the_wait_for_its_queue_returns_early() {
    if !standin::is_here("a_wait_for_a_stream_waits_where_the_wait_for_its_queue_returns_early") {
        return;
    }
    expect_an_end();
    standin::order("early", "clFinish");
    let device = device("opencl").unwrap();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    let delay = |function: &str, submit: &dyn Fn()| {
        standin::order("delays", &format!("{function}:50,clEnqueueMarkerWithWaitList:1"));
        submit();
        standin::order("delays", "clEnqueueMarkerWithWaitList:1");
        assert!(standin::delayed() > 0, "the test comes too late");
        stream.synchronize().unwrap();
        assert_eq!(standin::delayed(), 0);
    };
    delay("clEnqueueWriteBuffer", &|| stream.write(&buffer, 0, [1]).unwrap());
    // From now on also for commands of kernels.
    delay("clEnqueueFillBuffer", &|| stream.launch(&[&buffer], fill_unseen).unwrap());
    // The failure of a command is not a failure of the marker behind it.
    standin::order("fails", "clEnqueueWriteBuffer:-5,clEnqueueMarkerWithWaitList:-5");
    stream.write(&buffer, 0, [1]).unwrap();
    expect_error(stream.synchronize(), "clEnqueueWriteBuffer: CL_OUT_OF_RESOURCES (-5)");
    standin::order("fails", "");
    stream.synchronize().unwrap();
}

#[test]
fn a_failure_that_only_the_wait_for_the_queue_returns_is_reported_once() {
    if !standin::is_here("a_failure_that_only_the_wait_for_the_queue_returns_is_reported_once") {
        return;
    }
    expect_an_end();
    let device = device("opencl").unwrap();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    for (order, form) in [("keeps", "clFinish"), ("keeps", "clFinish,commands"), ("finishes", "tells")] {
        standin::order(order, form);
        standin::order("fails", "clEnqueueFillBuffer:-5");
        stream.launch(&[&buffer], fill_unseen).unwrap();
        standin::order("fails", "");
        expect_error(stream.synchronize(), "clFinish: CL_OUT_OF_RESOURCES (-5)");
        stream.synchronize().unwrap();
        stream.fill(&buffer, .., &[4]).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(read_all(&buffer), [4; 4]);
        standin::order(order, "");
    }
}

#[test]
fn pinned_memory_is_mapped_again_where_a_queue_refuses_what_blocks_after_a_failure() {
    const NAME: &str = "pinned_memory_is_mapped_again_where_a_queue_refuses_what_blocks_after_a_failure";
    if !standin::is_here(NAME) {
        return;
    }
    expect_an_end();
    standin::order("keeps", "blocking");
    let device = device("opencl").unwrap();
    let held = device.allocate_host(4).unwrap();
    standin::order("fails", "clEnqueueMapBuffer:-5");
    standin::order("refuses", "clEnqueueMapBuffer:-5");
    assert!(device.allocate_host(4).is_err());
    standin::order("refuses", "");
    // Here the call succeeds, and its command fails.
    assert!(device.allocate_host(4).is_err());
    standin::order("fails", "");
    assert_eq!(*device.allocate_host(4).unwrap(), [0; 4]);
    drop(held);
}
