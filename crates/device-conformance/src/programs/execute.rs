//! Runs a program, and compares its results.

use std::thread;
use std::time::Duration;

use device_registry::{Buffer, DeviceError, Event, Pending, Stream};

use super::{By, Program, Step};
use crate::context::{bytes, expect_bytes, expect_content};
use crate::failure::Failure;

/// Why an index into a program is valid.
const MADE: &str = "a program uses only the numbers that it defines";

impl Program {
    /// Runs the program, and compares its reads and its buffers at the end.
    pub(super) fn execute(&self) -> Result<(), Failure> {
        let mut streams: Vec<Option<Stream>> = vec![None; self.streams.len()];
        for stream in self.used_streams() {
            streams[stream] = Some(self.devices[self.streams[stream]].create_stream()?);
        }
        let mut running =
            Running { program: self, streams, buffers: Vec::new(), events: Vec::new(), reads: Vec::new() };
        for step in &self.steps {
            running
                .step(step)
                .map_err(|failure| failure.during(format_args!("in step `{step:?}` of the program")))?;
        }
        running.end()
    }
}

struct Running<'a> {
    program: &'a Program,
    streams: Vec<Option<Stream>>,
    buffers: Vec<Option<Buffer>>,
    events: Vec<Event>,
    reads: Vec<(Pending, &'a [u8])>,
}

impl<'a> Running<'a> {
    fn step(&mut self, step: &'a Step) -> Result<(), Failure> {
        match step {
            Step::Allocate { device, len, seed } => {
                let buffer = self.program.devices[*device].allocate(*len)?;
                buffer.write(0, &bytes(*seed, *len))?;
                self.buffers.push(Some(buffer));
            }
            Step::Slice { of, range } => {
                let part = self.buffer(*of).slice(range.clone())?;
                self.buffers.push(Some(part));
            }
            Step::Drop { buffer } => self.buffers[*buffer] = None,
            Step::Write { by, buffer, at, len, seed } => self.by(
                *by,
                |stream| stream.write(self.buffer(*buffer), *at, bytes(*seed, *len)),
                || self.buffer(*buffer).write(*at, &bytes(*seed, *len)),
            )?,
            Step::Fill { by, buffer, range, pattern } => self.by(
                *by,
                |stream| stream.fill(self.buffer(*buffer), range.clone(), pattern),
                || self.buffer(*buffer).fill(range.clone(), pattern),
            )?,
            Step::Copy { by, from, range, to, at } => {
                let source = self.buffer(*from).slice(range.clone())?;
                let target = self.buffer(*to).slice(*at..*at + range.len())?;
                self.by(*by, |stream| stream.copy(&source, &target), || target.copy_from(&source))?;
            }
            Step::Read { by: By::Host, buffer, range, expected } => {
                let mut got = vec![0xA5; range.len()];
                self.buffer(*buffer).read(range.start, &mut got)?;
                expect_bytes(&got, expected, "a blocking read")?;
            }
            Step::Read { by: By::Stream(stream), buffer, range, expected } => {
                let read = self.stream(*stream).read(self.buffer(*buffer), range.clone())?;
                self.reads.push((read, expected));
            }
            Step::Call { stream, micros } => {
                let micros = Duration::from_micros(*micros);
                self.stream(*stream).host_call(move || thread::sleep(micros))?;
            }
            Step::Record { stream } => {
                let event = self.stream(*stream).record()?;
                self.events.push(event);
            }
            Step::Wait { by, event } => self.by(
                *by,
                |stream| stream.wait_event(&self.events[*event]),
                || self.events[*event].synchronize(),
            )?,
        }
        Ok(())
    }

    fn by(
        &self,
        by: By,
        stream: impl Fn(&Stream) -> Result<(), DeviceError>,
        host: impl Fn() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        match by {
            By::Host => host(),
            By::Stream(index) => stream(self.stream(index)),
        }
    }

    fn buffer(&self, number: usize) -> &Buffer {
        self.buffers[number].as_ref().expect(MADE)
    }

    fn stream(&self, number: usize) -> &Stream {
        self.streams[number].as_ref().expect(MADE)
    }

    fn end(self) -> Result<(), Failure> {
        for stream in self.streams.iter().flatten() {
            stream.synchronize()?;
        }
        for (index, (read, expected)) in self.reads.into_iter().enumerate() {
            expect_bytes(&read.wait()?, expected, format_args!("read r{index} of the program"))?;
        }
        for (index, expected) in &self.program.end {
            let buffer = self.buffers[*index].as_ref().expect(MADE);
            expect_content(buffer, expected, format_args!("buffer b{index} at the end of the program"))?;
        }
        Ok(())
    }
}
