//! What goes wrong on a device: on the GPU of this machine, if there is one, and on the simulated driver.

use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use device_conformance::{device_or_skip, process};
use device_cuda::cudarc::driver::sys::{CUcontext, CUresult, cuCtxGetCurrent, cuDevicePrimaryCtxGetState};
use device_cuda::{CudaDevice, check};
use device_registry::{BackendErrorKind, Device, DeviceError, ErrorChain, EventOptions, device};

mod child;
mod kernel;

device_registry::autoload!();

/// Runs a check on the GPU of this machine, and once more on the simulated driver.
fn on_both(test: &str, check: impl FnOnce(Device)) {
    if let Some(device) = device_or_skip("cuda") {
        check(device);
    }
    if cfg!(target_os = "linux") && !process::is_child() {
        child::passes(test, Some(&child::simulated()), &[("DEVICE_CONFORMANCE_REQUIRE", "cuda")]);
    }
}

#[test]
fn more_memory_than_there_is_is_an_error_that_says_what_is_free() {
    on_both("more_memory_than_there_is_is_an_error_that_says_what_is_free", |device| {
        let total = device.memory_info().unwrap().total.unwrap();
        for len in [total as usize + 1, 1 << 46, isize::MAX as usize] {
            let error = device.allocate(len).unwrap_err();
            let Some(BackendErrorKind::OutOfMemory { asked, free }) = error.kind() else { panic!("{error}") };
            assert_eq!(asked, len as u64);
            assert!(free.is_some_and(|free| 0 < free && free <= total), "{error}");
        }
        device.allocate(1000).unwrap();
    });
}

#[test]
fn pinned_memory_that_the_host_has_not_is_an_error() {
    on_both("pinned_memory_that_the_host_has_not_is_an_error", |device| {
        let error = device.allocate_host(1 << 46).unwrap_err();
        assert!(matches!(error.kind(), Some(BackendErrorKind::OutOfMemory { .. })), "{error}");
        assert!(device.allocate_host(1000).unwrap().iter().all(|&byte| byte == 0));
    });
}

#[test]
fn new_memory_holds_nothing_of_what_was_there_before() {
    on_both("new_memory_holds_nothing_of_what_was_there_before", |device| {
        // Memory in the core's cache has bytes of this program.
        device.set_cache_limit(0).unwrap();
        for _ in 0..3 {
            let buffer = device.allocate(1 << 20).unwrap();
            let mut bytes = vec![1; 1 << 20];
            buffer.read(0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|&byte| byte == 0));
            buffer.fill(.., &[0x5E]).unwrap();
        }
    });
}

#[test]
fn ranges_outside_and_buffers_of_others_never_reach_the_driver() {
    on_both("ranges_outside_and_buffers_of_others_never_reach_the_driver", |device| {
        let (buffer, foreign) = (device.allocate(100).unwrap(), Device::cpu().allocate(100).unwrap());
        let stream = device.create_stream().unwrap();
        assert!(matches!(buffer.write(99, b"ab"), Err(DeviceError::OutOfRange { .. })));
        assert!(matches!(stream.fill(&buffer, 90..101, &[1]), Err(DeviceError::OutOfRange { .. })));
        assert!(matches!(stream.launch(&[&foreign], |_| Ok(())), Err(DeviceError::OtherDevice { .. })));
        let (first, second) = (buffer.slice(..50).unwrap(), buffer.slice(1..51).unwrap());
        assert!(matches!(second.copy_from(&first), Err(DeviceError::Overlap { .. })));
        // Copies between devices are what both can do.
        foreign.fill(.., &[7]).unwrap();
        stream.copy(&foreign, &buffer).unwrap();
        assert_eq!(*stream.read(&buffer, 0..100).unwrap().wait().unwrap(), [7; 100]);
    });
}

#[test]
fn memory_of_another_backend_is_an_error_for_a_kernel() {
    on_both("memory_of_another_backend_is_an_error_for_a_kernel", |_| {
        let buffer = Device::cpu().allocate(4).unwrap();
        let stream = Device::cpu().create_stream().unwrap();
        stream.launch(&[&buffer], |launch| kernel::launch(launch, kernel::ADD, "add", 1)).unwrap();
        let error = stream.synchronize().unwrap_err();
        assert_eq!(error.kind(), Some(BackendErrorKind::Unsupported), "{error}");
    });
}

/// After a loss each call returns it, no thread waits forever, and drops do no harm.
fn is_lost(device: Device, name: &str) {
    for error in [device.allocate(16).unwrap_err(), device.synchronize().unwrap_err()] {
        assert_eq!(error.kind(), Some(BackendErrorKind::Lost), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
    let error = device.reset().unwrap_err();
    assert_eq!(error.kind(), Some(BackendErrorKind::Unsupported));
    assert!(error.to_string().contains("the process has to be started again"), "{error}");
}

#[test]
fn a_failure_in_queued_work_loses_the_device_and_answers_every_read() {
    const TEST: &str = "a_failure_in_queued_work_loses_the_device_and_answers_every_read";
    if !process::is_child() {
        if cfg!(target_os = "linux") {
            // At the memset of the first allocation, and at each operation after that.
            for nth in 1..=9 {
                let fault = format!("700@{nth}");
                child::passes(TEST, Some(&child::simulated()), &[("SIMULATED_CUDA_FAULT", &fault)]);
            }
        }
        return;
    }
    let device = device("cuda:0").unwrap();
    let work = || -> Result<(), DeviceError> {
        let buffer = device.allocate(1 << 16)?;
        let stream = device.create_stream()?;
        let pinned = device.allocate_host(1 << 16)?;
        let mut reads = Vec::new();
        for round in 0..3 {
            stream.fill(&buffer, .., &[round])?;
            reads.push(stream.read(&buffer, ..)?);
        }
        reads.push(stream.read_into(&buffer, 0, pinned)?);
        let event = stream.record()?;
        for read in reads {
            assert!(read.wait_timeout(Duration::from_secs(5)), "a read was never answered");
            read.wait()?;
        }
        event.synchronize()?;
        buffer.fill(.., &[9])?;
        stream.synchronize()
    };
    let error = work().unwrap_err();
    assert_eq!(error.kind(), Some(BackendErrorKind::Lost), "{error}");
    is_lost(device, "CUDA_ERROR_ILLEGAL_ADDRESS (700)");
    // The other device has another context, and continues.
    let other = self::device("cuda:1").unwrap();
    let buffer = other.allocate(100).unwrap();
    buffer.fill(.., &[1]).unwrap();
    assert!(other.create_stream().unwrap().read(&buffer, ..).unwrap().wait().is_ok());
}

#[test]
fn a_code_that_no_version_knows_is_an_error_with_its_number() {
    const TEST: &str = "a_code_that_no_version_knows_is_an_error_with_its_number";
    if !process::is_child() {
        if cfg!(target_os = "linux") {
            child::passes(TEST, Some(&child::simulated()), &[("SIMULATED_CUDA_FAULT", "40000@1")]);
        }
        return;
    }
    let error = device("cuda:0").unwrap().allocate(16).unwrap_err();
    let message = ErrorChain::new(&error).to_string();
    assert!(message.contains("error 40000, which this driver has no name for"), "{message}");
}

/// On hardware, in its own process, which has the device no more then.
#[test]
fn a_kernel_that_traps_loses_the_device() {
    const TEST: &str = "a_kernel_that_traps_loses_the_device";
    if !process::is_child() {
        if device_or_skip("cuda").is_some() {
            child::passes(TEST, None, &[]);
        }
        return;
    }
    let device = device("cuda:0").unwrap();
    let stream = device.create_stream().unwrap();
    let buffer = device.allocate(100).unwrap();
    stream.launch(&[], |launch| kernel::launch(launch, kernel::TRAP, "fail", 1)).unwrap();
    let read = stream.read(&buffer, ..).and_then(|read| {
        assert!(read.wait_timeout(Duration::from_secs(30)), "a read was never answered");
        read.wait()
    });
    assert_eq!(read.unwrap_err().kind(), Some(BackendErrorKind::Lost));
    is_lost(device, "CUDA_ERROR_");
}

/// The simulated driver compiles nothing, and refuses one malformed text with a log: the test is that it gets
/// here.
#[test]
fn the_log_of_a_compiler_is_in_the_error() {
    const TEST: &str = "the_log_of_a_compiler_is_in_the_error";
    if !process::is_child() {
        if cfg!(target_os = "linux") {
            child::passes(TEST, Some(&child::simulated()), &[]);
        }
        return;
    }
    let stream = device("cuda:1").unwrap().create_stream().unwrap();
    let failed = |text: &str| {
        let text = text.to_owned();
        let launched = stream.launch(&[], move |launch| kernel::launch(launch, &text, "add", 1));
        launched.unwrap_err().to_string()
    };
    let error = failed(&kernel::ADD.replace(".version 6.0", ""));
    assert!(error.contains("the kernel does not compile: simulated: the text does not begin"), "{error}");
    let sound = failed(kernel::ADD);
    assert!(
        sound.contains("the kernel does not compile") && !sound.contains("simulated: the text"),
        "{sound}"
    );
}

fn current() -> CUcontext {
    let mut context = ptr::null_mut();
    // SAFETY: the driver is started, and the place is there.
    check("cuCtxGetCurrent", unsafe { cuCtxGetCurrent(&mut context) }).unwrap();
    context
}

#[test]
fn the_context_that_others_made_current_to_a_thread_stays_so() {
    on_both("the_context_that_others_made_current_to_a_thread_stays_so", |device| {
        let use_it = || {
            let (buffer, stream) = (device.allocate(8).unwrap(), device.create_stream().unwrap());
            buffer.write(0, &[1; 8]).unwrap();
            let event = stream.record().unwrap();
            stream.read(&buffer, ..).unwrap().wait().unwrap();
            stream.wait_event(&event).unwrap();
            assert!(stream.query().is_ok() && device.memory_info().is_ok());
            drop((buffer, stream, event, device.allocate_host(8).unwrap()));
            // What is due is dropped by a call.
            device.synchronize().unwrap();
            device.allocate(8).unwrap().fill(.., &[2]).unwrap();
        };
        use_it();
        assert!(current().is_null(), "a context was left behind");
        let made_current = device
            .create_stream()
            .unwrap()
            .launch(&[], |launch| launch.driver_as::<CudaDevice>()?.make_current());
        made_current.unwrap();
        let context = current();
        assert!(!context.is_null());
        use_it();
        assert_eq!(current(), context);
    });
}

/// The error that a kernel gets with the old context current, after the device was closed and opened again.
#[test]
fn a_kernel_with_a_context_of_before_does_not_lose_the_device() {
    on_both("a_kernel_with_a_context_of_before_does_not_lose_the_device", |device| {
        let stream = device.create_stream().unwrap();
        let launched =
            stream.launch(&[], |_| check("cuSomething", CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED));
        assert_eq!(launched.unwrap_err().kind(), Some(BackendErrorKind::Invalid));
        device.allocate(16).unwrap();
    });
}

/// Whether anybody in the process has the context of the device with this ordinal.
fn is_retained(ordinal: i32) -> bool {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: the driver is started, and the places are there.
    let result = unsafe { cuDevicePrimaryCtxGetState(ordinal, &mut flags, &mut active) };
    check("cuDevicePrimaryCtxGetState", result).unwrap();
    active != 0
}

/// In its own process, the only one with the device: on the GPU of this machine and on the
/// simulated driver.
#[test]
fn what_a_program_still_has_when_a_device_is_closed_stays_valid_and_then_the_context_goes() {
    const TEST: &str =
        "what_a_program_still_has_when_a_device_is_closed_stays_valid_and_then_the_context_goes";
    if !process::is_child() {
        if device_or_skip("cuda").is_some() {
            child::passes(TEST, None, &[]);
        }
        if cfg!(target_os = "linux") {
            child::passes(TEST, Some(&child::simulated()), &[]);
        }
        return;
    }
    let device = device("cuda:0").unwrap();
    device.properties().unwrap();
    assert!(!is_retained(0), "what a device is can be asked without a context");
    let (buffer, stream) = (device.allocate(100).unwrap(), device.create_stream().unwrap());
    let mut pinned = device.allocate_host(100).unwrap();
    let event = stream.record_with(&EventOptions::new().timed()).unwrap();
    stream.read(&buffer, ..).unwrap().wait().unwrap();
    device.close().unwrap();
    pinned.fill(3);
    assert!(matches!(buffer.write(0, b"a"), Err(DeviceError::Closed { .. })));
    // And again beside what is left of it.
    let again = device.allocate(100).unwrap();
    drop((event, stream, buffer));
    again.write(0, b"abc").unwrap();
    drop(again);
    device.close().unwrap();
    assert!(is_retained(0) && pinned.iter().all(|&byte| byte == 3));
    drop(pinned);
    // The thread that watches reads may still have it for a moment.
    let start = Instant::now();
    while is_retained(0) {
        assert!(start.elapsed() < Duration::from_secs(10), "the context is kept");
        thread::sleep(Duration::from_millis(1));
    }
}
