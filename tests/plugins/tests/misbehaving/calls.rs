//! Functions that report wrongly, or return what no device can have.

use std::time::Duration;

use device_registry::{BackendErrorKind, Device, device_count};

use crate::support::{mistaken, mistakes, others_work, says, with_remedy, works};

/// What an allocation says, after `NAME:0 (mistakes 1.0.0): allocate: `.
#[track_caller]
fn fails_to_allocate(mistake: &str, expected: &str) -> Device {
    let device = mistaken(mistake);
    says(device.allocate(8), &format!("`{mistake}:0` (mistakes 1.0.0): allocate: {expected}"));
    // The failure was of that call alone.
    assert_eq!(device.memory_info().unwrap().total, Some(1000));
    others_work();
    device
}

/// What the first use says, after `NAME:0 (mistakes 1.0.0)`.
#[track_caller]
fn does_not_open(mistake: &str, expected: &str) -> Device {
    let device = mistaken(mistake);
    says(device.allocate(8), &format!("`{mistake}:0` (mistakes 1.0.0){expected}"));
    others_work();
    device
}

#[track_caller]
fn does_not_load(mistake: &str, expected: &str) {
    let (device, file) = (mistaken(mistake), mistakes().display());
    let message = format!("backend `{mistake}` (mistakes 1.0.0 in {file}) {expected}");
    let failed = expected.starts_with("failed ");
    says(device.allocate(8), &if failed { with_remedy(mistake, &message) } else { message });
    others_work();
}

#[test]
fn an_error_without_a_report_has_its_status() {
    fails_to_allocate("no_report", "the plugin reported DP_OTHER without a message");
    does_not_load("load_silent", "failed to load: the plugin reported DP_OTHER without a message");
}

#[test]
fn an_unknown_status_is_an_error() {
    let device = fails_to_allocate("unknown_status", "the fan is stuck");
    assert_eq!(device.allocate(8).unwrap_err().kind(), Some(BackendErrorKind::Other));
    let device = fails_to_allocate("dropped_status", "the fan is stuck");
    assert_eq!(device.allocate(8).unwrap_err().kind(), Some(BackendErrorKind::Other));
}

#[test]
fn a_report_without_a_text_counts_as_none() {
    fails_to_allocate("null_message", "the plugin reported DP_OTHER without a message");
    fails_to_allocate("null_failure", "the report of the plugin is null");
    fails_to_allocate(
        "odd_failure",
        "the report of the plugin has a `struct_size` of 3, which no table can have: expected the size of the struct in bytes, as by `sizeof`",
    );
}

#[test]
fn a_report_has_as_many_causes_as_it_says() {
    fails_to_allocate("no_causes", "the fan is stuck");
    fails_to_allocate("null_causes", "the fan is stuck");
    // Printing stops after 16, and the chain itself a little later.
    let device = fails_to_allocate(
        "many_causes",
        &format!("the fan is stuck{}", "\ncaused by: no current\ncaused by: a fuse is gone".repeat(8)),
    );
    let error = device.allocate(8).unwrap_err();
    let mut causes = 0;
    let mut next = std::error::Error::source(&error);
    while let Some(cause) = next {
        causes += 1;
        next = cause.source();
    }
    assert_eq!(causes, 64);
}

#[test]
fn text_that_is_not_utf8_is_replaced() {
    fails_to_allocate("no_utf8", "the fan \u{fffd}\u{fffd} is stuck");
}

#[test]
fn a_huge_message_arrives() {
    fails_to_allocate("huge_message", &"x".repeat(1 << 16));
}

#[test]
fn a_text_that_is_too_long_is_not_read() {
    let too_long = |len: usize| format!("the plugin passed a text of {len} bytes; expected at most 65536");
    fails_to_allocate("endless_message", &too_long(usize::MAX));
    fails_to_allocate("endless_cause", &format!("the fan is stuck\ncaused by: {}", too_long(65537)));
    does_not_open(
        "endless_name",
        &format!(": properties: `dp_properties.name`: {}", too_long(usize::MAX / 2)),
    );
}

#[test]
fn control_characters_of_a_message_are_escaped() {
    fails_to_allocate("controls", "the \\u{1b}[31mfan\\nis\\0stuck");
}

#[test]
fn a_call_that_succeeds_without_its_object_is_an_error() {
    let missing =
        |place: &str| format!("the plugin returned DP_OK and wrote no object to `{place}`, or NULL");
    does_not_open("null_device", &format!(": open: {}", missing("device")));
    fails_to_allocate("null_memory", &missing("memory"));
    let device = mistaken("queue_null_stream");
    let prefix = "`queue_null_stream:0` (mistakes 1.0.0): create a stream: ";
    says(device.create_stream(), &format!("{prefix}{}", missing("stream")));
    let stream = mistaken("queue_null_event").create_stream().unwrap();
    let prefix = "`queue_null_event:0` (mistakes 1.0.0): record: ";
    says(stream.record(), &format!("{prefix}{}", missing("event")));
    others_work();
}

#[test]
fn of_two_reports_the_second_counts() {
    fails_to_allocate("fails_twice", "the second report");
}

#[test]
fn a_report_of_a_call_that_succeeds_has_no_effect() {
    works(mistaken("ok_after_report"));
    others_work();
}

#[test]
fn out_of_memory_has_its_numbers() {
    let device =
        fails_to_allocate("full", "out of memory: the memory is full; this process has 0 bytes allocated");
    let kind = device.allocate(8).unwrap_err().kind();
    assert_eq!(kind, Some(BackendErrorKind::OutOfMemory { asked: 64, free: Some(5) }));
    fails_to_allocate(
        "full_silently",
        "out of memory: 64 bytes asked for, 5 bytes free; this process has 0 bytes allocated",
    );
    let device = fails_to_allocate(
        "full_of_unknown",
        "out of memory: the memory is full; this process has 0 bytes allocated",
    );
    let kind = device.allocate(8).unwrap_err().kind();
    assert_eq!(kind, Some(BackendErrorKind::OutOfMemory { asked: 64, free: None }));
}

#[test]
fn a_driver_that_is_missing_is_unavailable() {
    does_not_load("load_unavailable", "is unavailable: no driver: looked for libdriver.so.1");
}

#[test]
fn properties_that_are_not_received_are_an_error() {
    does_not_open("no_properties", ": properties: the plugin gave no properties");
    does_not_open("null_properties", ": properties: the plugin's table `dp_properties` is null");
    does_not_open(
        "odd_properties",
        ": properties: the plugin's table `dp_properties` has a `struct_size` of 7, which no table can have: expected the size of the struct in bytes, as by `sizeof`",
    );
}

#[test]
fn of_properties_that_are_received_twice_the_last_count() {
    let device = mistaken("two_properties");
    assert_eq!(device.properties().unwrap().name, "the second name");
    works(device);
    others_work();
}

#[test]
fn properties_before_an_error_do_not_count() {
    does_not_open("unsure_properties", ": properties: the properties may be wrong");
}

#[test]
fn invalid_properties_are_an_error() {
    does_not_open(
        "bad_pci",
        ": properties: the plugin gave an invalid PCI address\ncaused by: `slot 3` does not have the form `0000:3b:00.0`",
    );
    does_not_open(
        "bad_alignment",
        ": properties: invalid copy alignment: expected a power of two of at most 1048576 bytes, found 3",
    );
}

#[test]
fn more_devices_than_there_are_indices_are_an_error() {
    mistaken("too_many");
    says(
        device_count("too_many"),
        "`too_many` (mistakes 1.0.0): device count: invalid device count: expected at most 65536, found 70000",
    );
    others_work();
}

#[test]
fn an_absent_device_has_a_reason() {
    does_not_open("absent", " is absent: the cable is out; the next use looks again");
    does_not_open(
        "silently_absent",
        " is absent: the plugin reported DP_ABSENT without a message; the next use looks again",
    );
}

const AFTER_A_LOSS: &str =
    "; after `Device::reset`, the next use opens the device again where the driver can";

/// A device that is lost during an allocation, or before.
#[track_caller]
fn is_lost(mistake: &str, expected: &str) {
    let device = mistaken(mistake);
    let _ = device.allocate(8);
    assert!(device.is_lost());
    let expected = format!("`{mistake}:0` (mistakes 1.0.0): allocate: device lost: {expected}{AFTER_A_LOSS}");
    says(device.allocate(8), &expected);
    let unsupported = "not supported: resetting the device; the process has to be started again";
    says(device.reset(), &format!("`{mistake}:0` (mistakes 1.0.0): reset: {unsupported}"));
    others_work();
}

#[test]
fn a_loss_is_reported_at_any_time() {
    is_lost("lost_while_opening", "the cable was out at once");
    is_lost("lost_later", "the cable is out");
    is_lost("lost_on_a_thread", "the cable is out");
}

#[test]
fn of_two_losses_the_first_counts() {
    is_lost("lost_twice", "the cable is out");
}

#[test]
fn a_loss_without_a_report_says_so() {
    is_lost("lost_silently", "the plugin reported DP_LOST without a message");
}

#[test]
fn a_loss_before_open_fails_is_no_loss() {
    let device = does_not_open("lost_and_not_open", ": open: the door is shut");
    assert!(!device.is_lost());
}

#[test]
fn host_memory_of_another_length_is_released_and_an_error() {
    let device = mistaken("host_shorter");
    let before = device.native_handle("test.released").unwrap();
    says(
        device.allocate_host(64),
        "`host_shorter:0` (mistakes 1.0.0): allocate pinned host memory: expected 64 bytes, found 32",
    );
    assert!(device.native_handle("test.released").unwrap() > before);
    others_work();
}

#[test]
fn host_memory_without_an_address_is_an_error() {
    says(
        mistaken("host_null").allocate_host(64),
        "`host_null:0` (mistakes 1.0.0): allocate pinned host memory: the plugin has returned bytes without an address",
    );
    others_work();
}

#[test]
fn host_memory_lives_longer_than_its_device() {
    let device = mistaken("host_late");
    let bytes = device.allocate_host(64).unwrap();
    device.close().unwrap();
    assert_eq!(*bytes, [7; 64]);
    let device_again = device.allocate(1).unwrap();
    let before = device.native_handle("test.released").unwrap();
    std::thread::spawn(|| drop(bytes)).join().unwrap();
    assert!(device.native_handle("test.released").unwrap() > before);
    drop(device_again);
    assert_eq!(*mistaken("host_without_release").allocate_host(64).unwrap(), [0; 64]);
    device.synchronize_timeout(Duration::from_secs(1)).unwrap();
    others_work();
}
