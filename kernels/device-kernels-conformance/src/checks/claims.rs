//! The group `claims`: what a set says that it can do.

use std::thread;

use device_kernels::{Call, Coverage, Operator, operators};

use super::{custom, streams};
use crate::case::Case;
use crate::check::Check;
use crate::draw::{Draw, NUMBERS, Stream};
use crate::failure::Failure;
use crate::subject::Subject;

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check::new("claims::something", "a set claims at least one call", |subject, _| {
            match calls().iter().any(|(call, _)| subject.find(call).is_some()) {
                true => Ok(()),
                false => Err(Failure::Failed(
                    "expected kernel sets that claim a call, found none: no set is linked, or none supports any call"
                        .to_owned(),
                )),
            }
        }),
        Check::new(
            "claims::supports_is_constant",
            "a set claims the same calls each time, on each thread, and after it has run them",
            |subject, _| constant(subject),
        ),
        Check::new(
            "claims::coverage",
            "what a set supports is in its coverage, and of each part of that it supports a call",
            |subject, _| coverage(subject),
        ),
    ]
}

fn coverage(subject: &Subject) -> Result<(), Failure> {
    let calls = super::calls();
    let device = subject.device();
    let calls: Vec<&Call> = calls.iter().filter(|call| !call.is_empty()).collect();
    let mut claimed = false;
    for set in subject.sets() {
        let coverage = set.coverage(device);
        let supported: Vec<&Call> = calls.iter().copied().filter(|call| set.supports(device, call)).collect();
        claimed |= !supported.is_empty();
        let undeclared = supported.iter().find(|call| coverage.iter().all(|one| !one.covers(call)));
        if let Some(call) = undeclared {
            return Err(Failure::Failed(format!(
                "the set supports a call that `KernelSet::coverage` does not have: {call}"
            )));
        }
        // If none of the suite's calls is in a part, nothing is known of it except that there is such an
        // operator.
        let is_empty = |one: &&Coverage| {
            let is_tried = calls.iter().any(|call| one.covers(call));
            let exists = || Operator::names().any(|name| name == one.operator());
            let is_custom = || operators().iter().any(|entry| entry.name() == one.operator());
            if is_tried { !supported.iter().any(|call| one.covers(call)) } else { !exists() && !is_custom() }
        };
        if let Some(one) = coverage.iter().find(is_empty) {
            return Err(Failure::Failed(format!(
                "`KernelSet::coverage` has `{one}`, of which the set supports no call"
            )));
        }
    }
    if claimed { Ok(()) } else { Err(Failure::Unsupported("no call is claimed".to_owned())) }
}

/// Some calls of each family, with the cases that they are in.
fn calls() -> Vec<(Call, Case)> {
    let mut stream = Stream::of(17);
    let mut calls = Vec::new();
    for family in streams::families().into_iter().chain(custom::families()) {
        for _ in 0..4 {
            let numbers: Vec<u32> = (0..NUMBERS).map(|_| stream.next() as u32).collect();
            let mut case = Case::default();
            family(&mut case, &mut Draw::new(&numbers));
            if let Ok(call) = case.steps[0].call() {
                calls.push((call, case));
            }
        }
    }
    calls
}

fn constant(subject: &Subject) -> Result<(), Failure> {
    let calls = calls();
    let claims = || calls.iter().map(|(call, _)| subject.find(call).is_some()).collect::<Vec<bool>>();
    let first = claims();
    if !first.contains(&true) {
        return Err(Failure::Unsupported("no call is claimed".to_owned()));
    }
    let same = |when: &str, second: Vec<bool>| match first.iter().zip(&second).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(Failure::Failed(format!(
            "expected the same answer as before, found that the set {} the call {when}: {}",
            if second[at] { "claims" } else { "does not claim" },
            calls[at].0
        ))),
    };
    same("at another time", claims())?;
    // With another question before each, as a set may answer each second one differently.
    let twice = |(call, _): &(Call, Case)| {
        let _ = subject.find(call);
        subject.find(call).is_some()
    };
    same("when it is asked twice", calls.iter().map(twice).collect())?;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(claims)).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(second) => same("on another thread", second),
            Err(_) => Err(Failure::Failed("`supports` panicked".to_owned())),
        })
    })?;
    let streams = [subject.stream()?];
    for (_, case) in calls.iter().zip(&first).filter(|(_, claimed)| **claimed).map(|(call, _)| call) {
        // Whether the result is right is the matter of other checks.
        let _ = subject.run(case, &streams);
    }
    same("after it has run", claims())
}
