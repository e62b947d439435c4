//! The messages of errors. Often they are all that a user has.

use std::error::Error;
use std::iter;

use device_registry::backend::{BackendError, BackendErrorKind, Fault};
use device_registry::{Buffer, DeviceError, Stream};

use super::check;
use super::memory::{TOO_MUCH, out_of_memory};
use crate::check::{Check, Need};
use crate::context::Context;
use crate::failure::{Failure, ensure};
use crate::fault_injection::{enqueue_failing, expect_error, expect_failed, fail_next_copy, inject, lose};

pub(super) const CHECKS: &[Check] = &[
    check!(messages::out_of_memory_tells_what_was_asked, "an out-of-memory error names the requested length"),
    check!(
        messages::out_of_memory_tells_what_is_free,
        "an out-of-memory error reports at most the total memory as free"
    ),
    check!(
        messages::out_of_memory_reads_as_others,
        "the message of an out-of-memory error is one line in the common style"
    ),
    check!(messages::causes_end, "the source chain of an error ends, and repeats nothing"),
    check!(
        messages::failures_tell_which_call,
        "the error of a failed copy names the device and the call, in the common style, also of queued work"
    )
    .needs(&[Need::Faults])
    .leaves_failures(),
    check!(
        messages::a_failed_allocation_reads_as_others,
        "an allocation with an injected failure returns the same message as one that does not fit"
    )
    .needs(&[Need::Faults])
    .leaves_failures(),
    check!(messages::a_loss_says_why, "the error of a lost device gives the reason, in the common style")
        .needs(&[Need::Faults])
        .leaves_failures(),
];

fn out_of_memory_tells_what_was_asked(context: &Context) -> Result<(), Failure> {
    let error = out_of_memory(context.device(), TOO_MUCH)?;
    if let BackendErrorKind::OutOfMemory { asked, .. } = error.kind() {
        ensure!(asked == TOO_MUCH as u64, "expected a requested length of {TOO_MUCH}, got {asked}");
    }
    let said = error.to_string();
    // In bytes, or in a unit of which it is a whole number.
    let units = [("", 0), (" KiB", 10), (" MiB", 20), (" GiB", 30), (" TiB", 40), (" PiB", 50), (" EiB", 60)];
    let says = |&(unit, shift): &(&str, u32)| said.contains(&format!("{}{unit}", TOO_MUCH as u64 >> shift));
    ensure!(
        units.iter().filter(|&(_, shift)| TOO_MUCH as u64 >> shift > 0).any(says),
        "expected {TOO_MUCH} bytes in the message, got {said:?}"
    );
    Ok(())
}

fn out_of_memory_tells_what_is_free(context: &Context) -> Result<(), Failure> {
    let error = out_of_memory(context.device(), TOO_MUCH)?;
    let total = context.device().memory_info()?.total;
    if let (BackendErrorKind::OutOfMemory { free: Some(free), .. }, Some(total)) = (error.kind(), total) {
        ensure!(free <= total, "expected at most {total} bytes as free, got {free}: {error}");
    }
    Ok(())
}

/// What the loader of backends in files says in place of a library's text: if there is none, if the report
/// cannot be read, and if the text is too long.
const TEXTS_OF_THE_LOADER: [&str; 3] =
    ["without a message", "the report of the plugin has", "the plugin passed a text of"];

/// Expects the common style: one line, lower case unless it begins with a name, no full stop, no surrounding
/// space.
pub(super) fn reads_as_others(message: &str) -> Result<(), Failure> {
    ensure!(!message.trim().is_empty(), "the message is empty");
    ensure!(message.trim() == message, "the message has spaces around it: {message:?}");
    ensure!(!message.contains(char::is_control), "the message is not one line of text: {message:?}");
    // The loader of backends in files escapes control characters, and replaces bytes that are not UTF-8.
    let is_escaped = ["\\n", "\\r", "\\t", "\\0", "\\u{"].iter().any(|escape| message.contains(escape));
    ensure!(!is_escaped, "the message is not one line of text: {message:?}");
    ensure!(!message.contains('\u{fffd}'), "the message is not UTF-8: {message:?}");
    let is_of_the_loader = TEXTS_OF_THE_LOADER.iter().any(|text| message.contains(text));
    ensure!(!is_of_the_loader, "the library gives no text of its own: {message:?}");
    ensure!(!message.ends_with('.'), "the message ends with a full stop: {message:?}");
    let mut letters = message.chars();
    let capital =
        letters.next().is_some_and(char::is_uppercase) && letters.next().is_some_and(char::is_lowercase);
    ensure!(!capital, "the message begins with a capital letter: {message:?}");
    Ok(())
}

fn out_of_memory_reads_as_others(context: &Context) -> Result<(), Failure> {
    let error = out_of_memory(context.device(), TOO_MUCH)?;
    // The core adds to it.
    let (of_backend, _) = error.message().rsplit_once("; this process has ").unwrap_or((error.message(), ""));
    reads_as_others(of_backend)
}

fn causes_end(context: &Context) -> Result<(), Failure> {
    its_causes_end(&out_of_memory(context.device(), TOO_MUCH)?)
}

fn its_causes_end(error: &BackendError) -> Result<(), Failure> {
    /// Longer than any finite chain. A chain that leads back to itself has no end.
    const LONGEST: usize = 16;
    let causes: Vec<String> = iter::successors(error.source(), |&cause| cause.source())
        .take(LONGEST + 1)
        .map(|cause| cause.to_string())
        .collect();
    ensure!(causes.len() <= LONGEST, "the source chain is longer than {LONGEST}: {:?}", &causes[..3]);
    let mut before = error.to_string();
    for cause in causes {
        ensure!(!cause.trim().is_empty(), "an empty source behind {before:?}");
        ensure!(!before.contains(&cause), "{before:?} repeats its source: {cause:?}");
        before = cause;
    }
    Ok(())
}

/// Expects an error of the backend in the common style.
fn has_good_text(error: &DeviceError) -> Result<(), Failure> {
    let Some(of_backend) = error.backend_error() else {
        return Err(Failure::new(format_args!("expected an error of the backend, got: {error}")));
    };
    reads_as_others(of_backend.message())?;
    its_causes_end(of_backend)
}

/// Expects an error of the backend in the common style, with the device and the call in its message.
fn has_good_message(context: &Context, error: &DeviceError, call: &str) -> Result<(), Failure> {
    has_good_text(error)?;
    let said = error.to_string();
    let device = format!("`{}`", context.device());
    ensure!(said.starts_with(&device) && said.contains(call), "expected {device} and `{call}`, got: {said}");
    Ok(())
}

fn failures_tell_which_call(context: &Context) -> Result<(), Failure> {
    type Copy = fn(&Buffer, &Buffer) -> Result<(), DeviceError>;
    let copies: [(&str, Copy); 4] = [
        ("write", |buffer, _| buffer.write(0, &[1; 64])),
        ("read", |buffer, _| buffer.read(0, &mut [0; 64])),
        ("copy", |buffer, other| buffer.copy_from(other)),
        ("fill", |buffer, _| buffer.fill(0..64, &[1])),
    ];
    let buffer = context.filled(&[1; 64])?;
    let other = context.filled(&[2; 64])?;
    for (call, copy) in copies {
        fail_next_copy(context.device())?;
        has_good_message(context, &expect_failed(copy(&buffer, &other), call)?, call)?;
    }
    queued_failures_say_what(context, &buffer, &other)
}

/// A driver reports the failures of queued work in other calls, and failures of reads in a third way.
fn queued_failures_say_what(context: &Context, buffer: &Buffer, other: &Buffer) -> Result<(), Failure> {
    let stream = context.stream()?;
    fail_next_copy(context.device())?;
    let read = stream.read(buffer, 0..64).and_then(|read| read.wait());
    has_good_text(&expect_failed(read, "a queued read")?)?;
    // The stream may report it once more.
    let _ = stream.synchronize();
    type Work = fn(&Stream, &Buffer, &Buffer) -> Result<(), DeviceError>;
    let works: [(&str, Work); 3] = [
        ("write", |stream, buffer, _| stream.write(buffer, 0, vec![1; 64])),
        ("copy", |stream, buffer, other| stream.copy(other, buffer)),
        ("fill", |stream, buffer, _| stream.fill(buffer, 0..64, &[1])),
    ];
    for (call, work) in works {
        enqueue_failing(&stream, || work(&stream, buffer, other))?;
        has_good_text(&expect_failed(stream.synchronize(), &format!("a queued {call}"))?)?;
    }
    Ok(())
}

fn a_failed_allocation_reads_as_others(context: &Context) -> Result<(), Failure> {
    inject(context.device(), Fault::FailAllocation { nth: 1 })?;
    let error = expect_error(context.device().allocate(12_345), "an allocation with an injected failure")?;
    has_good_message(context, &error, "allocate")?;
    ensure!(
        error.to_string().contains("12345"),
        "expected the requested length, 12345, in the message, got: {error}"
    );
    Ok(())
}

fn a_loss_says_why(context: &Context) -> Result<(), Failure> {
    has_good_message(context, &lose(context.device())?, "write")?;
    // Later calls return the reason too.
    let later = expect_error(context.device().allocate(16), "an allocation on a lost device")?;
    has_good_message(context, &later, "allocate")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_the_loader_is_none_of_the_library() {
        for text in [
            "the plugin reported DP_OTHER without a message",
            "the report of the plugin has a `struct_size` of 0, which no table can have",
            "the plugin passed a text of 70000 bytes; expected at most 65536",
        ] {
            let failure = reads_as_others(text).unwrap_err();
            assert!(
                failure.message.starts_with("the library gives no text of its own: "),
                "{}",
                failure.message
            );
        }
        reads_as_others("the plugin has no fan").unwrap();
    }

    #[test]
    fn a_text_that_the_loader_had_to_mend_is_not_good() {
        for (text, complaint) in [
            ("the fan\\nis stuck", "the message is not one line of text: "),
            ("the fan is stuck\\0", "the message is not one line of text: "),
            ("the \\u{1b}[31mfan is stuck", "the message is not one line of text: "),
            ("the l\u{fffd}fter is stuck", "the message is not UTF-8: "),
        ] {
            let failure = reads_as_others(text).unwrap_err();
            assert!(failure.message.starts_with(complaint), "{}", failure.message);
        }
    }
}
