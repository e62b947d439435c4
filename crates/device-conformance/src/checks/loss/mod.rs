//! Lost devices: which calls report the loss, which devices still work, and what a reset restores.
//!
//! A device that offers `Fault::LoseDevice` has to support `reset`, because these checks share a process with
//! all others.

use device_registry::{Buffer, Device, DeviceError, Event, Pending, Stream};

use crate::check::Check;
use crate::context::{bytes, expect_bytes, expect_content, filled};
use crate::failure::Failure;

/// A check that loses the device.
macro_rules! loss_check {
    ($check:ident, $proves:literal) => {
        $crate::checks::check!(loss::$check, $proves).needs(&[$crate::check::Need::Faults]).leaves_failures()
    };
}

mod dropping;
mod other_devices;
mod reporting;
mod resetting;
mod waiting;

pub(super) static THEMES: &[&[Check]] =
    &[reporting::CHECKS, waiting::CHECKS, other_devices::CHECKS, dropping::CHECKS, resetting::CHECKS];

const LEN: usize = 2000;

/// Expects a device to write and read, by blocking calls and by a stream.
fn works(device: Device, what: &str) -> Result<(), Failure> {
    let expected = bytes(0x55, LEN);
    expect_content(&filled(device, &expected)?, &expected, what)?;
    let stream = device.create_stream()?;
    let buffer = device.allocate(LEN)?;
    stream.write(&buffer, 0, expected.clone())?;
    let read = stream.read(&buffer, 0..LEN)?.wait()?;
    expect_bytes(&read, &expected, what)?;
    stream.record()?.synchronize()?;
    Ok(stream.synchronize()?)
}

/// One handle of each kind on a device, and every call on them.
struct Handles {
    buffer: Buffer,
    stream: Stream,
    event: Event,
}

impl Handles {
    fn new(device: Device) -> Result<Self, Failure> {
        let buffer = filled(device, &[1; LEN])?;
        let stream = device.create_stream()?;
        stream.fill(&buffer, 0..LEN, &[2])?;
        let event = stream.record()?;
        stream.synchronize()?;
        Ok(Self { buffer, stream, event })
    }

    /// Makes every call once.
    fn call_all(&self) -> Vec<(&'static str, Result<(), DeviceError>)> {
        let Self { buffer, stream, event } = self;
        let halves = || Ok::<_, DeviceError>((buffer.slice(..LEN / 2)?, buffer.slice(LEN / 2..)?));
        vec![
            ("write", buffer.write(0, &[3; LEN])),
            ("read", buffer.read(0, &mut [0; LEN])),
            ("copy", halves().and_then(|(first, second)| first.copy_from(&second))),
            ("fill", buffer.fill(0..LEN, &[3])),
            ("a write by the stream", stream.write(buffer, 0, vec![3; LEN])),
            ("a read by the stream", stream.read(buffer, 0..LEN).and_then(Pending::wait).map(drop)),
            ("a copy by the stream", halves().and_then(|(first, second)| stream.copy(&first, &second))),
            ("a fill by the stream", stream.fill(buffer, 0..LEN, &[3])),
            ("a host call", stream.host_call(|| ())),
            ("a kernel", stream.launch(&[buffer], |_| Ok(()))),
            ("recording an event", stream.record().map(drop)),
            ("waiting for an event", stream.wait_event(event)),
            ("querying the stream", stream.query().map(drop)),
            ("synchronizing the stream", stream.synchronize()),
            ("querying the event", event.query().map(drop)),
            ("synchronizing the event", event.synchronize()),
        ]
    }
}
