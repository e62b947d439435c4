//! What errors say: they are read by people who have nothing else.

use std::error::Error;
use std::iter;

use device_registry::BackendErrorKind;

use super::check;
use super::memory::out_of_memory;
use crate::check::Check;
use crate::context::Context;
use crate::failure::{Failure, ensure};

pub(super) const CHECKS: &[Check] = &[
    check!(
        messages::out_of_memory_tells_what_was_asked,
        "an out-of-memory error tells how many bytes were asked for"
    ),
    check!(
        messages::out_of_memory_tells_what_is_free,
        "an out-of-memory error tells no more memory as free than there is"
    ),
    check!(
        messages::out_of_memory_reads_as_others,
        "the message of an out-of-memory error is one line in the common style"
    ),
    check!(messages::causes_end, "the chain of causes of an error ends, and repeats nothing"),
];

const TOO_MUCH: usize = 1 << 60;

fn out_of_memory_tells_what_was_asked(context: &Context) -> Result<(), Failure> {
    let error = out_of_memory(context.device(), TOO_MUCH)?;
    if let BackendErrorKind::OutOfMemory { asked, .. } = error.kind() {
        ensure!(asked == TOO_MUCH as u64, "expected that {TOO_MUCH} bytes were asked for, got {asked}");
    }
    let said = error.to_string();
    ensure!(said.contains(&TOO_MUCH.to_string()), "expected {TOO_MUCH} in the message, got {said:?}");
    Ok(())
}

fn out_of_memory_tells_what_is_free(context: &Context) -> Result<(), Failure> {
    let error = out_of_memory(context.device(), TOO_MUCH)?;
    let total = context.device().memory_info()?.total;
    if let (BackendErrorKind::OutOfMemory { free: Some(free), .. }, Some(total)) = (error.kind(), total) {
        ensure!(free <= total, "{free} bytes are told as free, of {total}: {error}");
    }
    Ok(())
}

/// One line, in lower case unless it begins with a name, with no full stop and nothing around it.
pub(super) fn reads_as_others(message: &str) -> Result<(), Failure> {
    ensure!(!message.trim().is_empty(), "the message is empty");
    ensure!(message.trim() == message, "the message has spaces around it: {message:?}");
    ensure!(!message.contains(char::is_control), "the message is not one line of text: {message:?}");
    ensure!(!message.ends_with('.'), "the message ends with a full stop: {message:?}");
    let mut letters = message.chars();
    let capital =
        letters.next().is_some_and(char::is_uppercase) && letters.next().is_some_and(char::is_lowercase);
    ensure!(!capital, "the message begins with a capital letter: {message:?}");
    Ok(())
}

fn out_of_memory_reads_as_others(context: &Context) -> Result<(), Failure> {
    reads_as_others(out_of_memory(context.device(), TOO_MUCH)?.message())
}

fn causes_end(context: &Context) -> Result<(), Failure> {
    /// Enough for any honest chain; one that leads back to itself has no end.
    const LONGEST: usize = 16;
    let error = out_of_memory(context.device(), TOO_MUCH)?;
    let causes: Vec<String> = iter::successors(error.source(), |&cause| cause.source())
        .take(LONGEST + 1)
        .map(|cause| cause.to_string())
        .collect();
    ensure!(causes.len() <= LONGEST, "the chain of causes is longer than {LONGEST}: {:?}", &causes[..3]);
    let mut before = error.to_string();
    for cause in causes {
        ensure!(!cause.trim().is_empty(), "a cause says nothing, behind {before:?}");
        ensure!(!before.contains(&cause), "{before:?} says already what is behind it: {cause:?}");
        before = cause;
    }
    Ok(())
}
