//! Reads: awaited, with a timeout, and into given memory.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use crate::{error_text, filled, on_both};

#[test]
fn a_read_can_be_awaited() {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    on_both(|device, control| {
        let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"rust"));
        control.close();
        let mut read = pin!(stream.read(&buffer, 1..3).unwrap());
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        assert!(read.as_mut().poll(&mut context).is_pending());
        control.open();
        let bytes = loop {
            match read.as_mut().poll(&mut context) {
                Poll::Ready(bytes) => break bytes.unwrap(),
                Poll::Pending => thread::park_timeout(Duration::from_secs(30)),
            }
        };
        assert_eq!(*bytes, *b"us");
        let Poll::Ready(again) = read.as_mut().poll(&mut context) else { panic!("it is ready") };
        assert!(error_text(again).contains("already taken"));
    });
}

#[test]
fn a_wait_may_have_a_timeout() {
    on_both(|device, control| {
        let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"rust"));
        control.close();
        let read = stream.read(&buffer, ..).unwrap();
        assert!(!read.wait_timeout(Duration::from_millis(20)), "the gate is closed");
        control.open();
        assert!(read.wait_timeout(Duration::from_secs(60)));
        assert_eq!(*read.wait().unwrap(), *b"rust");
    });
}

#[test]
fn a_read_fills_the_given_memory() {
    on_both(|device, _| {
        let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"rust"));
        let pinned = device.allocate_host(2).unwrap();
        let read = stream.read_into(&buffer, 1, pinned).unwrap().wait().unwrap();
        assert!(read.is_pinned() && *read == *b"us");
        stream.write(&buffer, 0, read).unwrap();
        assert_eq!(*stream.read(&buffer, 0..4).unwrap().wait().unwrap(), *b"usst");
    });
}
