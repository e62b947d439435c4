//! Where work is done on a device, and how long it takes there.

use std::time::{Duration, Instant};

use device_registry::{Buffer, EventOptions, HostBuffer, Stream};

use crate::error::Error;
use crate::kernels::Kernels;
use crate::work::Work;

/// Memory for some work on a device, and a stream to do it in.
pub(crate) struct Place<'a> {
    kernels: &'a Kernels,
    work: Work,
    pub(crate) stream: Stream,
    pub(crate) buffers: [Buffer; 3],
}

impl<'a> Place<'a> {
    pub(crate) fn new(kernels: &'a Kernels, work: Work) -> Result<Self, Error> {
        let device = kernels.device;
        let [a, b, result] = work.sizes().map(|size| device.allocate(size));
        let buffers = [a?, b?, result?];
        Ok(Self { kernels, work, stream: device.create_stream()?, buffers })
    }

    pub(crate) fn write(&self, operands: &[HostBuffer; 2]) -> Result<(), Error> {
        let [a, b, result] = &self.buffers;
        a.write(0, &operands[0])?;
        b.write(0, &operands[1])?;
        // An element that no kernel writes is not to look like one.
        Ok(result.fill(.., &f32::NAN.to_ne_bytes())?)
    }

    pub(crate) fn launch(&self) -> Result<(), Error> {
        self.kernels.launch(&self.stream, self.work, self.buffers.each_ref())
    }

    pub(crate) fn read(&self) -> Result<HostBuffer, Error> {
        Ok(self.stream.read(&self.buffers[2], ..)?.wait()?)
    }

    /// Does it once to warm up and then `runs` times. Returns the median of the times, or of the two in the
    /// middle the longer, and what it includes.
    ///
    /// On a device with timed events it measures the kernel alone, by the device's clock. On others it
    /// measures from the launch to the end of a wait, by the host's clock.
    pub(crate) fn median(&self, runs: u16) -> Result<(Duration, &'static str), Error> {
        self.launch()?;
        self.stream.synchronize()?;
        let by_events = self.stream.device().properties()?.timed_events;
        let mut times = Vec::new();
        for _ in 0..runs {
            times.push(if by_events {
                let start = self.stream.record_with(&EventOptions::new().timed())?;
                self.launch()?;
                let end = self.stream.record_with(&EventOptions::new().timed())?;
                // The stream has the kernel's error; the event's only says that it was skipped.
                self.stream.synchronize()?;
                end.elapsed_since(&start)?
            } else {
                let start = Instant::now();
                self.launch()?;
                self.stream.synchronize()?;
                start.elapsed()
            });
        }
        times.sort_unstable();
        let clock = match by_events {
            true => "the kernel alone, by timed events",
            false => "launch and wait, by the host's clock",
        };
        Ok((times[times.len() / 2], clock))
    }
}
