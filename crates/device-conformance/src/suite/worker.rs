//! A worker: a process that loads backends and runs checks for another one, which prints the report.

use std::io::{self, Write};
use std::sync::Arc;
use std::thread;

use device_registry::{CallStep, CallWatch, DriverCall};

use super::builder::Suite;
use super::host::Here;
use super::wire::{Reply, Request, parse_request, reply_line};
use crate::checks::checks;
use crate::environment::{WORKER, Worker};
use crate::verdict::Verdict;

/// Serves requests until the other process closes the standard input, which also happens when it ends.
///
/// # Errors
///
/// If there is no request, because no suite has started this process, or a wrong one.
pub(super) fn serve(suite: &Arc<Suite>, worker: Worker) -> Result<(), String> {
    if worker == Worker::Traced {
        CallWatch::start().observe(report);
    }
    let here = Arc::new(Here::new(suite));
    let mut is_idle = true;
    for line in io::stdin().lines() {
        let line = line.map_err(|error| format!("a worker of the conformance suite cannot read: {error}"))?;
        let Some((number, request)) = parse_request(&line) else {
            return Err(format!(
                "a worker of the conformance suite got a request that it does not know: {line}"
            ));
        };
        let here = Arc::clone(&here);
        let work = move || send(&reply(&here, number, &request));
        thread::Builder::new()
            .spawn(work)
            .map_err(|error| format!("cannot start a thread for a check: {error}"))?;
        is_idle = false;
    }
    if is_idle {
        return Err(format!(
            "{WORKER} is set, and the standard input has no request, so nothing was tested\n\
             help: unset it; the suite sets it for the processes that it starts"
        ));
    }
    send(&Reply::Bye);
    Ok(())
}

fn reply(here: &Here, number: u64, request: &Request) -> Reply {
    match request {
        Request::Load { backend } => Reply::Loaded(number, here.load(backend)),
        Request::Run { backend, device, check } => {
            let judged = match checks().find(|of| of.name() == check) {
                Some(check) => here.run(backend, device, check),
                None => Verdict::Failed(format!("there is no check `{check}`")).into(),
            };
            Reply::Judged(number, judged)
        }
    }
}

fn report(call: &DriverCall, step: CallStep) {
    let thread = format!("{:?}", thread::current().id());
    send(&match step {
        CallStep::Begins => {
            let caller = call.thread.as_deref().unwrap_or("a thread without a name");
            Reply::Begins(thread, format!("`{}` {}, on `{caller}`", call.device, call.call))
        }
        CallStep::Ends => Reply::Ends(thread),
    });
}

fn send(reply: &Reply) {
    let mut stdout = io::stdout().lock();
    // Fails if the other process has ended: then so does this one, as its standard input is at its end.
    let _ = stdout.write_all(reply_line(reply).as_bytes()).and_then(|()| stdout.flush());
}
