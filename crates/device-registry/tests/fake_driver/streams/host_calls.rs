//! Host calls and kernels: foreign code, in a stream's order.

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use device_registry::backend::{BackendError, BackendErrorKind};
use device_registry::{DeviceError, Stream, device_count};

use crate::fake::{Queue, plain, queued};
use crate::{SHORT, content, ends, error_text, filled, kind, on_both};

#[test]
fn a_host_call_runs_in_order() {
    on_both(|device, control| {
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(1).unwrap());
        let log = Arc::new(Mutex::new(Vec::new()));
        control.close();
        stream.write(&buffer, 0, b"x").unwrap();
        let early = Arc::clone(&log);
        stream.host_call(move || early.lock().unwrap().push("call")).unwrap();
        stream.write(&buffer, 0, b"y").unwrap();
        let event = stream.record().unwrap();
        assert!(matches!(event.synchronize_timeout(SHORT), Err(DeviceError::TimedOut { .. })));
        assert!(log.lock().unwrap().is_empty(), "the host call ran before the earlier work");
        control.open();
        event.synchronize().unwrap();
        assert_eq!(*log.lock().unwrap(), ["call"]);
        assert_eq!(content(&buffer), b"y");
    });
}

#[test]
fn work_behind_a_host_call_waits_for_it() {
    on_both(|device, _| {
        let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"."));
        let (go, wait) = mpsc::channel::<()>();
        stream.host_call(move || wait.recv().unwrap()).unwrap();
        stream.write(&buffer, 0, b"x").unwrap();
        let event = stream.record().unwrap();
        assert!(matches!(event.synchronize_timeout(SHORT), Err(DeviceError::TimedOut { .. })));
        assert!(!stream.query().unwrap() && !event.query().unwrap());
        assert_eq!(content(&buffer), b".");
        go.send(()).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(content(&buffer), b"x");
    });
}

#[test]
fn a_host_call_may_not_use_devices_and_its_dropped_buffers_are_freed_later() {
    on_both(|device, control| {
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(1).unwrap());
        let pinned = device.allocate_host(8).unwrap();
        assert!(pinned.is_pinned());
        let (send, receive) = mpsc::channel();
        let (used, event) = (stream.clone(), stream.record().unwrap());
        stream
            .host_call(move || {
                let results = [
                    buffer.write(0, b"x"),
                    device.allocate(1).map(drop),
                    used.synchronize(),
                    used.record().map(drop),
                    event.synchronize(),
                    device.synchronize(),
                    device_count(device.name()).map(drop),
                ];
                // Allowed, and does not collect the streams' work.
                device.memory_statistics().unwrap();
                drop((buffer, pinned, event));
                send.send((results, control.live())).unwrap();
            })
            .unwrap();
        let (results, live) = receive.recv().unwrap();
        for result in results {
            assert!(matches!(result, Err(DeviceError::InHostCall { .. })), "{result:?}");
        }
        assert_eq!(live, 2, "freeing memory calls the driver, which a host call may not do");
        stream.synchronize().unwrap();
        device.memory_statistics().unwrap();
        assert_eq!(control.live(), 0);
    });
}

#[test]
fn a_panic_in_a_host_call_is_an_error_of_queued_work() {
    on_both(|device, _| {
        let stream = device.create_stream().unwrap();
        stream.host_call(|| panic!("on purpose")).unwrap();
        assert!(error_text(stream.synchronize()).ends_with("host call: it panicked: on purpose"));
        stream.host_call(|| ()).unwrap();
        stream.synchronize().unwrap();
    });
}

#[test]
fn a_kernel_gets_its_buffers_and_the_stream_of_the_driver_if_there_is_one() {
    ends(|| {
        let (device, _) = plain();
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(8).unwrap());
        let empty = device.allocate(0).unwrap();
        let part = buffer.slice(2..6).unwrap();
        stream
            .launch(&[&part, &empty], move |launch| {
                assert_eq!(launch.device(), device);
                assert_eq!(launch.spans()[0].as_ref().unwrap().range(), 2..6);
                assert!(launch.spans()[1].is_none());
                launch.stream_as::<Queue>().map(drop)
            })
            .unwrap();
        assert_eq!(kind(&stream.synchronize().unwrap_err()), BackendErrorKind::Unsupported);

        let (device, control) = queued();
        let stream = device.create_stream().unwrap();
        control.close();
        let dropped = device.allocate(1).unwrap();
        let (send, ran) = mpsc::channel();
        stream
            .launch(&[&dropped], move |launch| {
                launch.stream_as::<Queue>()?.submit(move || send.send(()).unwrap());
                Ok(())
            })
            .unwrap();
        ran.recv().unwrap();
        drop(dropped);
        let marked = stream.record().unwrap();
        assert_eq!(control.live(), 1, "the memory was freed before an event behind the kernel was done");
        control.open();
        marked.synchronize().unwrap();
        stream.synchronize().unwrap();
        assert_eq!(control.live(), 0);
    });
}

#[test]
fn a_driver_stream_is_notified_when_a_kernel_returns_whatever_its_result() {
    ends(|| {
        type Kernel = fn() -> Result<(), BackendError>;
        let kernels: [Kernel; 3] =
            [|| Ok(()), || Err(BackendError::other("on purpose")), || panic!("on purpose")];
        for kernel in kernels {
            let (device, control) = queued();
            let (stream, seen) = (device.create_stream().unwrap(), Arc::new(Mutex::new(Vec::new())));
            control.log();
            let inside = Arc::clone(&seen);
            let launched = stream.launch(&[], move |_| {
                *inside.lock().unwrap() = control.log();
                kernel()
            });
            drop(launched);
            assert_eq!(*seen.lock().unwrap(), [""; 0], "the driver was notified too early");
            assert_eq!(control.log(), ["launched"]);
        }
    });
}

#[test]
fn a_kernel_may_not_use_devices_either() {
    on_both(|device, _| {
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(1).unwrap());
        let (send, result) = mpsc::channel();
        let used = buffer.clone();
        stream
            .launch(&[&buffer], move |_| {
                send.send(used.write(0, b"x")).unwrap();
                Ok(())
            })
            .unwrap();
        assert!(matches!(result.recv().unwrap(), Err(DeviceError::InHostCall { .. })));
    });
}

#[test]
fn a_stream_continues_after_a_dropped_value_panics_or_uses_devices() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            assert!(thread::panicking(), "on purpose");
        }
    }
    struct Waits(Stream);
    impl Drop for Waits {
        fn drop(&mut self) {
            assert!(matches!(self.0.synchronize(), Err(DeviceError::InHostCall { .. })));
        }
    }
    on_both(|device, control| {
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
        // Skipped by the stream's thread, or by this one once the failure is known.
        for pause in [Duration::ZERO, SHORT] {
            stream.host_call(|| panic!("on purpose")).unwrap();
            thread::sleep(pause);
            let (panics, waits) = (Panics, Waits(stream.clone()));
            stream.host_call(move || drop(panics)).unwrap();
            stream.host_call(move || drop(waits)).unwrap();
            assert!(error_text(stream.synchronize()).ends_with("on purpose"));
            let _ = stream.synchronize();
        }
        // Refused by the device, which is lost meanwhile.
        let ((go, gate), (begin, begun)) = (mpsc::channel::<()>(), mpsc::channel());
        stream
            .host_call(move || {
                begin.send(()).unwrap();
                gate.recv().unwrap();
            })
            .unwrap();
        begun.recv().unwrap();
        let panics = Panics;
        stream.host_call(move || drop(panics)).unwrap();
        control.fail(BackendError::lost("gone"));
        buffer.write(0, b"x").unwrap_err();
        let waiting = stream.record();
        go.send(()).unwrap();
        assert_eq!(kind(&waiting.unwrap_err()), BackendErrorKind::Lost);
        assert_eq!(kind(&stream.synchronize().unwrap_err()), BackendErrorKind::Lost);
    });
}
