//! Random programs, compared with a sequential model.
//!
//! Where two streams access the same bytes, and only there, the later one waits for an event of the earlier
//! one.

use device_registry::Device;

use super::check;
use crate::check::{Check, Need};
use crate::context::Context;
use crate::failure::Failure;
use crate::programs::Kind::{self, Allocate, Call, Copy, Drop, Fill, Read, Record, Slice, Wait, Write};
use crate::programs::{Rules, run_random};

pub(super) const CHECKS: &[Check] = &[
    check!(programs::of_one_stream, "programs of one stream give the results of the sequential model"),
    check!(
        programs::of_several_streams,
        "programs of four streams that wait for each other's events give the results of the sequential model"
    ),
    check!(
        programs::with_functions_that_block,
        "programs of streams and blocking calls give the results of the sequential model"
    ),
    check!(
        programs::that_drop_what_is_in_use,
        "programs that drop buffers with work in flight, and allocate others, give the results of the sequential model"
    ),
    check!(
        programs::of_two_devices,
        "programs on two devices of the backend give the results of the sequential model"
    )
    .needs(&[Need::Peer]),
    check!(
        programs::with_the_cpu,
        "programs on the device and the cpu give the results of the sequential model"
    )
    .uses_cpu(),
    check!(
        programs::on_many_threads,
        "eight programs at once, each on a thread, do not change each other's bytes"
    ),
];

const ONE: &[Kind] = &[Write, Fill, Copy, Copy, Copy, Read, Read, Call, Slice, Slice, Allocate, Drop];

const SEVERAL: &[Kind] =
    &[Write, Write, Fill, Copy, Copy, Copy, Copy, Read, Read, Call, Record, Wait, Slice, Slice, Allocate];

const DROPPING: &[Kind] =
    &[Write, Fill, Copy, Copy, Copy, Read, Call, Call, Slice, Allocate, Allocate, Allocate, Drop, Drop, Drop];

fn of_one_stream(context: &Context) -> Result<(), Failure> {
    run_random(context, &Rules::new(&[context.device()], 1, ONE)?, 1)
}

fn of_several_streams(context: &Context) -> Result<(), Failure> {
    run_random(context, &Rules::new(&[context.device()], 4, SEVERAL)?, 1)
}

fn with_functions_that_block(context: &Context) -> Result<(), Failure> {
    run_random(context, &Rules::new(&[context.device()], 2, SEVERAL)?.with_blocking(), 1)
}

fn that_drop_what_is_in_use(context: &Context) -> Result<(), Failure> {
    run_random(context, &Rules::new(&[context.device()], 3, DROPPING)?, 1)
}

fn of_two_devices(context: &Context) -> Result<(), Failure> {
    run_random(context, &Rules::new(&[context.device(), context.peer()?], 2, SEVERAL)?.with_blocking(), 1)
}

fn with_the_cpu(context: &Context) -> Result<(), Failure> {
    run_random(context, &Rules::new(&[context.device(), Device::cpu()], 2, SEVERAL)?.with_blocking(), 1)
}

fn on_many_threads(context: &Context) -> Result<(), Failure> {
    run_random(context, &Rules::new(&[context.device()], 2, DROPPING)?, 8)
}
