//! How long kernels take.

use std::fmt;
use std::time::{Duration, Instant};

use device_registry::{EventOptions, Stream};

use crate::error::Error;

/// The median of several runs; of the two in the middle, the longer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    pub(crate) median: Duration,
    runs: u16,
    by_events: bool,
}

/// Runs `launch`, which puts work in `stream`, once to warm up and then `runs` times.
///
/// It is the kernel alone, by the device's clock, where events have a time; else by the host's clock, from the launch to
/// the return of a wait for it. Only one of the two is ever used for a device.
pub(crate) fn median(
    stream: &Stream,
    runs: u16,
    launch: impl Fn() -> Result<(), Error>,
) -> Result<Time, Error> {
    launch()?;
    stream.synchronize()?;
    let by_events = stream.device().properties()?.timed_events;
    let run = |_| match by_events {
        true => {
            let start = stream.record_with(&EventOptions::new().timed())?;
            launch()?;
            let end = stream.record_with(&EventOptions::new().timed())?;
            // The kernel's own failure, where the event only says that it was skipped.
            stream.synchronize()?;
            Ok(end.elapsed_since(&start)?)
        }
        false => {
            let start = Instant::now();
            launch()?;
            stream.synchronize()?;
            Ok(start.elapsed())
        }
    };
    let mut times = (0..runs).map(run).collect::<Result<Vec<Duration>, Error>>()?;
    times.sort_unstable();
    Ok(Time { median: times[times.len() / 2], runs, by_events })
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.by_events {
            true => "the kernel alone, by timed events",
            false => "launch and wait, by the host's clock",
        };
        write!(f, "{:.3} ms ({what}; median of {})", self.median.as_secs_f64() * 1e3, self.runs)
    }
}
