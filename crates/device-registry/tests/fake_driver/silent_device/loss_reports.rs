//! A driver reports the loss of its device while no call returns: every thread that waits is woken.

use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use device_registry::backend::BackendError;
use device_registry::{BackendErrorKind, DeviceError, Presence, is_available};

use crate::fake::{Moment, plain};
use crate::{LONG, begin};

#[track_caller]
fn is_lost<T: std::fmt::Debug>(result: Result<T, DeviceError>) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), Some(BackendErrorKind::Lost), "{error}");
    assert!(error.to_string().contains("device lost: unplugged"), "{error}");
}

struct Notify(mpsc::Sender<()>);

impl Wake for Notify {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}

#[test]
fn a_report_wakes_every_thread_and_task_that_waits() {
    let (device, control) = plain();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    control.close();
    // The stream's thread hangs in the first read, and all other work is behind it.
    let first = stream.read(&buffer, ..).unwrap();
    let second = stream.read(&buffer, ..).unwrap();
    let mut awaited = std::pin::pin!(stream.read(&buffer, ..).unwrap());
    let event = stream.record().unwrap();
    let (woken, wakes) = mpsc::channel();
    let waker = Waker::from(Arc::new(Notify(woken)));
    let mut context = Context::from_waker(&waker);
    assert!(awaited.as_mut().poll(&mut context).is_pending());

    let reads = [first, second].map(|read| begin(move || read.wait()));
    let synchronizes = begin({
        let stream = stream.clone();
        move || stream.synchronize()
    });
    let waits = begin(move || event.synchronize());
    let whole = begin(move || device.synchronize());
    // No call of the driver shows that they wait in the core. Threads that do not yet find the loss.
    thread::sleep(Duration::from_millis(50));
    control.report(BackendError::lost("unplugged"));

    for read in reads {
        is_lost(read.recv_timeout(LONG).expect("a read was not woken"));
    }
    is_lost(synchronizes.recv_timeout(LONG).expect("`Stream::synchronize` was not woken"));
    is_lost(waits.recv_timeout(LONG).expect("`Event::synchronize` was not woken"));
    is_lost(whole.recv_timeout(LONG).expect("`Device::synchronize` was not woken"));
    wakes.recv_timeout(LONG).expect("the task was not woken");
    let Poll::Ready(read) = awaited.as_mut().poll(&mut context) else { panic!("still pending") };
    is_lost(read);

    assert!(device.is_lost() && !is_available(&device.to_string()));
    assert!(matches!(device.presence().unwrap(), Presence::Lost(error) if error.message() == "unplugged"));
    is_lost(device.allocate(1));
    control.open();
}

#[test]
fn work_that_is_enqueued_behind_a_stuck_call_fails_as_well() {
    let (device, control) = plain();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    control.close();
    let read = stream.read(&buffer, ..).unwrap();
    control.report(BackendError::lost("unplugged"));
    is_lost(stream.read(&buffer, ..).and_then(|read| read.wait()));
    is_lost(read.wait());
    is_lost(stream.record());
    control.open();
}

#[test]
fn only_the_first_report_counts_and_every_error_becomes_a_loss() {
    let (device, control) = plain();
    device.open().unwrap();
    control.report(BackendError::other("unplugged").with_source(std::io::Error::other("ENODEV")));
    control.report(BackendError::lost("a second time"));
    let error = device.allocate(1).unwrap_err();
    is_lost::<()>(Err(error.clone()));
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "ENODEV");
}

#[test]
fn a_report_before_the_device_is_open_takes_effect_when_it_is() {
    let (device, control) = plain();
    control.on(Moment::Open, || control.report(BackendError::lost("unplugged while it was opened")));
    is_lost(device.allocate(1));
    assert!(device.is_lost());
}

#[test]
fn a_report_of_an_earlier_open_harms_no_later_one() {
    for lost_first in [false, true] {
        let (device, control) = plain();
        device.open().unwrap();
        let old = control.reporter();
        if lost_first {
            old.report(BackendError::lost("unplugged"));
            device.reset().unwrap();
        } else {
            device.close().unwrap();
        }
        device.open().unwrap();
        old.report(BackendError::lost("unplugged"));
        assert!(!device.is_lost());
        device.allocate(1).unwrap();
        control.report(BackendError::lost("unplugged"));
        is_lost(device.allocate(1));
    }
}
