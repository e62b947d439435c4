//! Host calls, in the order of their stream.

use std::sync::mpsc;

use super::check;
use crate::busy::{busy_pair, hold_back, keep_busy};
use crate::check::Check;
use crate::context::{Context, expect_content};
use crate::failure::{Failure, ensure};

pub(super) const CHECKS: &[Check] = &[
    check!(
        host_calls::come_behind_the_work_before,
        "when a host call runs, blocking calls see the work before it"
    ),
    check!(
        host_calls::hold_back_the_work_behind,
        "work behind a host call begins when the call has returned"
    ),
    check!(host_calls::in_turn_with_work, "hundreds of host calls between other work all run, in order"),
    check!(
        host_calls::on_many_streams,
        "host calls of many streams at once each come after the work of their own stream"
    ),
];

fn come_behind_the_work_before(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let pair = busy_pair(context)?;
    for round in 0..20 {
        let buffer = context.filled(&[0xEE; 2000])?;
        let (call, called) = mpsc::channel();
        keep_busy(&stream, &pair, 16)?;
        stream.fill(&buffer, 0..2000, &[round])?;
        stream.host_call(move || {
            let _ = call.send(());
        })?;
        called.recv().map_err(|_| Failure::new("the host call was dropped without a run"))?;
        expect_content(&buffer, &[round; 2000], format_args!("when the host call ran, in round {round}"))?;
    }
    Ok(())
}

fn hold_back_the_work_behind(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    for round in 0..10 {
        let buffer = context.filled(&[0xEE; 2000])?;
        let release = hold_back(&stream)?;
        stream.fill(&buffer, 0..2000, &[round])?;
        stream.write(&buffer, 0, vec![round; 2000])?;
        expect_content(&buffer, &[0xEE; 2000], format_args!("while the host call runs, in round {round}"))?;
        drop(release);
        stream.synchronize()?;
        expect_content(
            &buffer,
            &[round; 2000],
            format_args!("when the host call has returned, in round {round}"),
        )?;
    }
    Ok(())
}

fn in_turn_with_work(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let buffer = context.allocate(1000)?;
    let (call, called) = mpsc::channel();
    let mut reads = Vec::new();
    for index in 0..300_usize {
        let call = call.clone();
        stream.fill(&buffer, 0..1000, &[index as u8])?;
        stream.host_call(move || {
            let _ = call.send(index);
        })?;
        reads.push(stream.read(&buffer, 0..1000)?);
    }
    drop(call);
    for (index, read) in reads.into_iter().enumerate() {
        let read = read.wait()?;
        ensure!(read.iter().all(|&byte| byte == index as u8), "read {index} of 300 has another fill's bytes");
    }
    let order: Vec<usize> = called.into_iter().collect();
    ensure!(order.iter().copied().eq(0..300), "expected 300 host calls in order, got {order:?}");
    Ok(())
}

fn on_many_streams(context: &Context) -> Result<(), Failure> {
    let (call, called) = mpsc::channel();
    let mut all = Vec::new();
    for index in 0..16_usize {
        let stream = context.stream()?;
        let buffer = context.filled(&[0xEE; 2000])?;
        let call = call.clone();
        stream.fill(&buffer, 0..2000, &[index as u8])?;
        stream.host_call(move || {
            let _ = call.send(index);
        })?;
        all.push((stream, buffer));
    }
    drop(call);
    let mut ran = 0;
    for index in called {
        let (stream, buffer) = &all[index];
        expect_content(
            buffer,
            &[index as u8; 2000],
            format_args!("when the host call of stream {index} ran"),
        )?;
        stream.synchronize()?;
        ran += 1;
    }
    ensure!(ran == 16, "expected 16 host calls, got {ran}");
    Ok(())
}
