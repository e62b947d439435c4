//! Random programs: what comes of them is what a plain sequential model says.
//!
//! Where two streams touch the same bytes, the later one waits for an event of the earlier one, and for nothing else.

use device_registry::Device;

use super::check;
use crate::check::{Check, Need};
use crate::context::Context;
use crate::failure::Failure;
use crate::programs::Kind::{self, Allocate, Call, Copy, Drop, Fill, Read, Record, Slice, Wait, Write};
use crate::programs::{Rules, hold};

pub(super) const CHECKS: &[Check] = &[
    check!(programs::of_one_stream, "programs of one stream give what they give one step after the other"),
    check!(
        programs::of_several_streams,
        "programs of four streams that wait for each other's events give what they give step by step"
    ),
    check!(
        programs::with_functions_that_block,
        "programs that use streams and functions that block give what they give step by step"
    ),
    check!(
        programs::that_drop_what_is_in_use,
        "programs that drop buffers with work in the queue, and allocate others, give what they would without"
    ),
    check!(programs::of_two_devices, "programs that use two devices of the backend give the model's bytes")
        .needs(&[Need::Peer]),
    check!(programs::with_the_cpu, "programs that use the device and the cpu give the model's bytes")
        .uses_cpu(),
    check!(
        programs::on_many_threads,
        "eight programs at once, each on a thread, do not touch each other's bytes"
    ),
];

const ONE: &[Kind] = &[Write, Fill, Copy, Copy, Copy, Read, Read, Call, Slice, Slice, Allocate, Drop];

const SEVERAL: &[Kind] =
    &[Write, Write, Fill, Copy, Copy, Copy, Copy, Read, Read, Call, Record, Wait, Slice, Slice, Allocate];

const DROPPING: &[Kind] =
    &[Write, Fill, Copy, Copy, Copy, Read, Call, Call, Slice, Allocate, Allocate, Allocate, Drop, Drop, Drop];

fn of_one_stream(context: &Context) -> Result<(), Failure> {
    hold(context, &Rules::new(&[context.device()], 1, ONE)?, 1)
}

fn of_several_streams(context: &Context) -> Result<(), Failure> {
    hold(context, &Rules::new(&[context.device()], 4, SEVERAL)?, 1)
}

fn with_functions_that_block(context: &Context) -> Result<(), Failure> {
    hold(context, &Rules::new(&[context.device()], 2, SEVERAL)?.with_blocking(), 1)
}

fn that_drop_what_is_in_use(context: &Context) -> Result<(), Failure> {
    hold(context, &Rules::new(&[context.device()], 3, DROPPING)?, 1)
}

fn of_two_devices(context: &Context) -> Result<(), Failure> {
    hold(context, &Rules::new(&[context.device(), context.peer()?], 2, SEVERAL)?.with_blocking(), 1)
}

fn with_the_cpu(context: &Context) -> Result<(), Failure> {
    hold(context, &Rules::new(&[context.device(), Device::cpu()], 2, SEVERAL)?.with_blocking(), 1)
}

fn on_many_threads(context: &Context) -> Result<(), Failure> {
    hold(context, &Rules::new(&[context.device()], 2, DROPPING)?, 8)
}
