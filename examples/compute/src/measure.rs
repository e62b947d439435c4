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

/// Runs `launch`, which enqueues work in `stream`, once to warm up and then `runs` times.
///
/// On a device with timed events it measures the kernel alone, by the device's clock. On others it measures
/// from the launch to the end of a wait, by the host's clock.
pub(crate) fn median(
    stream: &Stream,
    runs: u16,
    launch: impl Fn() -> Result<(), Error>,
) -> Result<Time, Error> {
    launch()?;
    stream.synchronize()?;
    let by_events = stream.device().properties()?.timed_events;
    let run = |_| {
        if by_events {
            let start = stream.record_with(&EventOptions::new().timed())?;
            launch()?;
            let end = stream.record_with(&EventOptions::new().timed())?;
            // The stream has the kernel's error; the event's only says that it was skipped.
            stream.synchronize()?;
            Ok(end.elapsed_since(&start)?)
        } else {
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
        let what = if self.by_events {
            "the kernel alone, by timed events"
        } else {
            "launch and wait, by the host's clock"
        };
        write!(f, "{:.3} ms ({what}; median of {})", self.median.as_secs_f64() * 1e3, self.runs)
    }
}
