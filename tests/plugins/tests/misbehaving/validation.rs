//! Mistakes that only the validating layer sees. Each test runs once more, in a process with
//! `DEVICE_VALIDATE=1`.

use std::thread;
use std::time::{Duration, Instant};

use device_conformance::process;
use device_registry::{Device, Stream, backends, take_validation_reports};

use crate::support::{mistaken, others_work, says, works};

/// Runs a test in a process with the layer. Returns whether this is that process.
#[track_caller]
fn is_validated(test: &str) -> bool {
    if !process::is_child() {
        process::passes(&format!("validation::{test}"), |child| child.env("DEVICE_VALIDATE", "1"));
    }
    process::is_child()
}

/// What a mistake leads to: the rest of the error of `run`, and the report of the layer.
#[track_caller]
fn breaks_a_rule<T>(
    mistake: &str,
    call: &str,
    rule: &str,
    run: impl FnOnce(Device) -> Result<T, device_registry::DeviceError>,
) {
    let device = mistaken(mistake);
    says(run(device), &format!("`{mistake}:0` (mistakes 1.0.0): {call}: the driver breaks a rule: {rule}"));
    assert_eq!(
        take_validation_reports(),
        [format!("`{mistake}:0`: {call}: the driver breaks a rule: {rule}")]
    );
    others_work();
    assert_eq!(take_validation_reports(), [""; 0]);
}

fn read(device: Device) -> Result<(), device_registry::DeviceError> {
    device.allocate(100)?.read(0, &mut [0; 100])
}

fn queued_read(device: Device) -> Result<(), device_registry::DeviceError> {
    let buffer = device.allocate(100)?;
    device.create_stream()?.read(&buffer, ..)?.wait().map(drop)
}

#[test]
fn a_sound_backend_has_no_reports_and_reports_say_that_it_is_validated() {
    if !is_validated("a_sound_backend_has_no_reports_and_reports_say_that_it_is_validated") {
        return;
    }
    for mistake in ["sound", "queue"] {
        let device = mistaken(mistake);
        works(device);
        device.close().unwrap();
    }
    others_work();
    assert_eq!(take_validation_reports(), [""; 0]);
    let report = backends().report().to_string();
    assert!(report.contains("DEVICE_VALIDATE is set: calls into drivers are validated"), "{report}");
}

#[test]
fn a_read_that_writes_too_far_is_an_error_and_harms_nothing() {
    if is_validated("a_read_that_writes_too_far_is_an_error_and_harms_nothing") {
        let rule = "it wrote 1 bytes past the end of 100 bytes of the host";
        breaks_a_rule("reads_too_far", "read", rule, read);
        breaks_a_rule("queue_reads_too_far", "read", rule, queued_read);
    }
}

#[test]
fn a_read_that_is_done_before_its_bytes_are_there_is_an_error() {
    if is_validated("a_read_that_is_done_before_its_bytes_are_there_is_an_error") {
        let rule = |which| format!("it is done, and the {which} of 100 bytes of the host were not written");
        breaks_a_rule("reads_nothing", "read", &rule("first 100"), read);
        breaks_a_rule("queue_reads_the_half", "read", &rule("last 50"), queued_read);
    }
}

#[test]
fn what_a_driver_keeps_is_an_error_of_the_close() {
    if is_validated("what_a_driver_keeps_is_an_error_of_the_close") {
        let write_and_close = |device: Device| {
            let buffer = device.allocate(4)?;
            let stream = device.create_stream()?;
            stream.write(&buffer, 0, b"rust")?;
            stream.synchronize()?;
            device.close()
        };
        let rule = "the source of each queued write is released, and 1 were not when the device was closed";
        breaks_a_rule("queue_keeps_sources", "close", rule, write_and_close);
        let read_and_close = |device: Device| queued_read(device).and_then(|()| device.close());
        let rule =
            "the destination of each queued read is released, and 1 were not when the device was closed";
        breaks_a_rule("queue_keeps_destinations", "close", rule, read_and_close);
        let read_never = |device: Device| {
            let buffer = device.allocate(4)?;
            let _pending = device.create_stream()?.read(&buffer, ..)?;
            device.close()
        };
        let rule = "each queued read is finished, and 1 were not when the device was closed";
        breaks_a_rule("queue_never", "close", rule, read_never);
    }
}

#[test]
fn a_source_that_is_used_after_its_work_has_other_bytes() {
    if is_validated("a_source_that_is_used_after_its_work_has_other_bytes") {
        let device = mistaken("queue_writes_late");
        let (buffer, stream) = (device.allocate(4).unwrap(), device.create_stream().unwrap());
        stream.write(&buffer, 0, b"rust").unwrap();
        stream.synchronize().unwrap();
        assert_eq!(*stream.read(&buffer, ..).unwrap().wait().unwrap(), [0xDB; 4]);
    }
}

#[test]
fn a_source_that_a_library_uses_after_its_release_has_other_bytes() {
    if is_validated("a_source_that_a_library_uses_after_its_release_has_other_bytes") {
        let device = mistaken("queue_writes_late");
        let (buffer, stream) = (device.allocate(4).unwrap(), device.create_stream().unwrap());
        stream.write(&buffer, 0, b"rust").unwrap();
        // The core still has the source.
        assert_eq!(*stream.read(&buffer, ..).unwrap().wait().unwrap(), [0xDB; 4]);
    }
}

#[test]
fn an_event_that_is_done_stays_so() {
    if is_validated("an_event_that_is_done_stays_so") {
        let rule = "an event that is done stays so, and this one is not done any longer";
        breaks_a_rule("queue_undone_event", "query an event", rule, |device| {
            let event = device.create_stream()?.record()?;
            assert!(event.query()?);
            event.query()
        });
    }
}

#[test]
fn an_event_is_done_when_all_work_before_it_is_done() {
    if is_validated("an_event_is_done_when_all_work_before_it_is_done") {
        let rule = "an event is done when all work before it is done, and this one is not";
        let looks: [fn(&Stream); 4] = [
            |stream| assert!(stream.record().unwrap().query().unwrap()),
            |stream| stream.record().unwrap().synchronize().unwrap(),
            |stream| assert!(stream.query().unwrap()),
            |stream| stream.synchronize().unwrap(),
        ];
        for look in looks {
            breaks_a_rule("queue_later_event_first", "query an event", rule, |device| {
                let stream = device.create_stream()?;
                let event = stream.record()?;
                assert!(!event.query()?);
                look(&stream);
                event.query()
            });
        }
    }
}

#[test]
fn a_read_into_pinned_memory_is_looked_at_too() {
    if is_validated("a_read_into_pinned_memory_is_looked_at_too") {
        let read = |device: Device| {
            let (buffer, pinned) = (device.allocate(100)?, device.allocate_host(100)?);
            assert_eq!((pinned.len(), pinned.is_pinned()), (100, true));
            device.create_stream()?.read_into(&buffer, 0, pinned)?.wait().map(drop)
        };
        read(mistaken("queue")).unwrap();
        let rule = "it wrote 1 bytes past the end of 100 bytes of the host";
        breaks_a_rule("queue_reads_too_far", "read", rule, read);
        let rule = "it is done, and the last 50 of 100 bytes of the host were not written";
        breaks_a_rule("queue_reads_the_half", "read", rule, read);
    }
}

#[test]
fn a_read_that_is_refused_is_not_finished() {
    if is_validated("a_read_that_is_refused_is_not_finished") {
        let rule = "a read that is refused is dropped, and this one was finished";
        breaks_a_rule("queue_refused_and_finished", "read", rule, queued_read);
    }
}

#[test]
fn a_read_that_is_finished_under_a_lock_of_the_driver_is_reported() {
    if is_validated("a_read_that_is_finished_under_a_lock_of_the_driver_is_reported") {
        for mistake in ["queue_locks_itself", "queue_locks_the_device"] {
            queued_read(mistaken(mistake)).unwrap();
            let rule =
                "a driver holds no lock that its functions take while it finishes a read, and this one does";
            let expected = format!("`{mistake}:0`: read: the driver breaks a rule: {rule}");
            let (since, mut reports) = (Instant::now(), take_validation_reports());
            // The layer knows it only when the driver has released the lock.
            while reports.is_empty() && since.elapsed() < Duration::from_secs(60) {
                thread::sleep(Duration::from_millis(1));
                reports = take_validation_reports();
            }
            assert_eq!(reports, [expected]);
        }
        others_work();
        assert_eq!(take_validation_reports(), [""; 0]);
    }
}
