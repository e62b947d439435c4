//! Steps on a thread's own buffers, in streams and by blocking calls, and their expected contents.

use std::time::Duration;

use device_registry::{DeviceError, StreamGuard};
use fastrand::Rng;

use crate::journal::Interval;
use crate::model::{Expected, Last};
use crate::plan::{Kind, Step};
use crate::scene::{Discarded, found};
use crate::worker::{Done, Stop, Worker, chosen};

/// How many reads a thread has under way.
const READS: usize = 16;

impl Worker<'_> {
    /// Has a stream come behind all that has touched a buffer.
    pub(crate) fn use_in(&mut self, at: usize, buffer: usize) -> Done {
        let key = self.lanes[at].key;
        match self.buffers[buffer].last {
            Last::Nothing => {
                self.buffers[buffer].last = Last::Lane(key);
                return Ok(());
            }
            Last::Lane(last) if last == key => return Ok(()),
            _ => {}
        }
        if !self.lanes[at].failed.is_empty() && !self.scene.weather.is_private() {
            // Whether the wait is skipped is not known: another thread may report the failure meanwhile.
            self.synchronize(at)?;
        }
        self.buffers[buffer].moved = true;
        match std::mem::replace(&mut self.buffers[buffer].last, Last::Lane(key)) {
            Last::Nothing => Ok(()),
            Last::Mark(mark) => self.wait(at, &mark),
            Last::Lane(last) => {
                let other = self.lanes.iter().position(|lane| lane.key == last);
                let other = other.expect("a stream that is dropped leaves a mark");
                let mut mark = self.record(other)?;
                if !self.spreads(&mark) {
                    self.synchronize(other)?;
                    mark = self.record(other)?;
                }
                self.wait(at, &mark)
            }
        }
    }

    /// Ends the step if a failure was reported in it for which one of the buffers is not known any more.
    pub(crate) fn usable(&self, buffers: &[usize]) -> Done {
        if buffers.iter().any(|&at| self.buffers[at].spoiled) { Err(Stop::Nothing) } else { Ok(()) }
    }

    /// Changes the expected contents of a buffer after work in a stream.
    pub(crate) fn change(&mut self, at: usize, buffer: usize, change: impl FnOnce(&mut Option<Vec<u8>>)) {
        let (lane, held) = (&self.lanes[at], &mut self.buffers[buffer]);
        if !self.scene.weather.has_contents() {
            held.bytes = None;
        } else if lane.failed.is_empty() {
            change(&mut held.bytes);
        } else if !self.scene.weather.is_private() {
            held.bytes = None;
        }
        // Otherwise the stream skips it.
    }

    pub(crate) fn write(&mut self, step: Step) -> Done {
        let (lane, at) = self.lane_and_buffer(step)?;
        self.use_in(lane, at)?;
        self.usable(&[at])?;
        let (stream, buffer) = (&self.lanes[lane].stream, &self.buffers[at].buffer);
        let range = range_in(buffer.len(), step);
        let mut bytes = vec![0; range.len()];
        if step.kind == Kind::Fill {
            let pattern = &step.value.to_le_bytes()[..1 << (step.value % 4)];
            bytes.iter_mut().zip(pattern.iter().cycle()).for_each(|(byte, from)| *byte = *from);
            stream.fill(buffer, range.clone(), pattern)?;
        } else {
            Rng::with_seed(step.value).fill(&mut bytes);
            match self.scene.devices[self.lanes[lane].device].allocate_host(range.len()) {
                Ok(mut pinned) if step.value.is_multiple_of(2) => {
                    pinned.copy_from_slice(&bytes);
                    stream.write(buffer, range.start, pinned)?;
                }
                _ => stream.write(buffer, range.start, bytes.clone())?,
            }
        }
        let len = buffer.len();
        self.change(lane, at, |known| put(known, len, range.start, &bytes));
        Ok(())
    }

    pub(crate) fn copy(&mut self, step: Step) -> Done {
        let (lane, to) = self.lane_and_buffer(step)?;
        let from = chosen(step.pick[2], self.buffers.len())?;
        if from == to {
            return Err(Stop::Nothing);
        }
        self.use_in(lane, from)?;
        self.use_in(lane, to)?;
        self.usable(&[from, to])?;
        let (source, target) = (&self.buffers[from], &self.buffers[to]);
        let (range, offset) = ranges_of_copy(source.buffer.len(), target.buffer.len(), step);
        let destination = target.buffer.slice(offset..offset + range.len())?;
        self.lanes[lane].stream.copy(&source.buffer.slice(range.clone())?, &destination)?;
        let (bytes, len) = (source.bytes.as_ref().map(|bytes| bytes[range].to_vec()), target.buffer.len());
        self.change(lane, to, |known| match bytes {
            Some(bytes) => put(known, len, offset, &bytes),
            None => *known = None,
        });
        Ok(())
    }

    pub(crate) fn read(&mut self, step: Step) -> Done {
        let (lane, at) = self.lane_and_buffer(step)?;
        self.use_in(lane, at)?;
        self.usable(&[at])?;
        let (lane, held) = (&self.lanes[lane], &self.buffers[at]);
        let range = range_in(held.buffer.len(), step);
        let expected = Expected {
            bytes: held.bytes.as_ref().map(|bytes| bytes[range.clone()].to_vec()),
            failed: lane.failed.clone(),
            place: self.place(),
        };
        let read = lane.stream.read(&held.buffer, range)?;
        match step.value % 8 {
            0 => drop(read),
            1 => self.scene.bin.lock().push(Discarded::Read(read, expected)),
            _ => self.reads.push((read, expected)),
        }
        if self.reads.len() > READS { self.finish_read(step) } else { Ok(()) }
    }

    pub(crate) fn finish_read(&mut self, step: Step) -> Done {
        let at = chosen(step.pick[2], self.reads.len())?;
        let (mut read, expected) = self.reads.swap_remove(at);
        match step.value % 4 {
            0 => {
                // The wait below is of a read that is done or not.
                let _ = read.wait_timeout(Duration::from_micros(step.value % 700));
            }
            1 => {
                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                if let std::task::Poll::Ready(result) = std::pin::pin!(&mut read).poll(&mut context) {
                    return self.finished(result, &expected);
                }
            }
            2 => {
                while !read.is_ready() {
                    std::thread::yield_now();
                }
            }
            _ => {}
        }
        let result = read.wait();
        self.finished(result, &expected)
    }

    pub(crate) fn finished<B: std::ops::Deref<Target = [u8]>>(
        &mut self,
        read: Result<B, DeviceError>,
        expected: &Expected,
    ) -> Done {
        expected.compare(read.as_deref(), self.scene).unwrap_or_else(found);
        match read {
            // This thread's model of the device is invalid too.
            Err(error) if self.scene.expects(&error) => Err(Stop::Error(error)),
            _ => Ok(()),
        }
    }

    /// Waits for all that has touched a buffer, to use it without a stream.
    pub(crate) fn settle(&mut self, buffer: usize) -> Done {
        match &self.buffers[buffer].last {
            Last::Nothing => {}
            Last::Mark(mark) => {
                let mark = mark.clone();
                self.synchronize_mark(&mark)?;
            }
            Last::Lane(key) => {
                let at = self.lanes.iter().position(|lane| lane.key == *key);
                self.synchronize(at.expect("a stream that is dropped leaves a mark"))?;
            }
        }
        self.buffers[buffer].last = Last::Nothing;
        Ok(())
    }

    pub(crate) fn blocking_write(&mut self, step: Step) -> Done {
        let at = chosen(step.pick[1], self.buffers.len())?;
        self.settle(at)?;
        self.usable(&[at])?;
        let held = &mut self.buffers[at];
        let range = range_in(held.buffer.len(), step);
        let mut bytes = vec![0; range.len()];
        Rng::with_seed(step.value).fill(&mut bytes);
        held.buffer.write(range.start, &bytes)?;
        if self.scene.weather.has_contents() {
            put(&mut held.bytes, held.buffer.len(), range.start, &bytes);
        }
        Ok(())
    }

    pub(crate) fn blocking_read(&mut self, step: Step) -> Done {
        let at = chosen(step.pick[1], self.buffers.len())?;
        self.settle(at)?;
        self.usable(&[at])?;
        let held = &self.buffers[at];
        // A part of the buffer, through another handle.
        let range = range_in(held.buffer.len(), step);
        let part = held.buffer.slice(range.clone())?;
        let mut bytes = vec![0; range.len()];
        let expected = Expected {
            bytes: held.bytes.as_ref().map(|bytes| bytes[range].to_vec()),
            failed: Vec::new(),
            place: self.place(),
        };
        let read = part.read(0, &mut bytes).map(|()| bytes);
        self.finished(read, &expected)
    }

    pub(crate) fn blocking_copy(&mut self, step: Step) -> Done {
        let (from, to) =
            (chosen(step.pick[1], self.buffers.len())?, chosen(step.pick[2], self.buffers.len())?);
        if from == to {
            return Err(Stop::Nothing);
        }
        self.settle(from)?;
        self.settle(to)?;
        self.usable(&[from, to])?;
        let (source, target) = (&self.buffers[from], &self.buffers[to]);
        let (range, offset) = ranges_of_copy(source.buffer.len(), target.buffer.len(), step);
        let destination = target.buffer.slice(offset..offset + range.len())?;
        destination.copy_from(&source.buffer.slice(range.clone())?)?;
        let bytes = source.bytes.as_ref().map(|bytes| bytes[range].to_vec());
        let target = &mut self.buffers[to];
        match bytes {
            Some(bytes) => put(&mut target.bytes, target.buffer.len(), offset, &bytes),
            None => target.bytes = None,
        }
        Ok(())
    }

    /// A blocking read with a stream as the thread's current one: it waits for the stream, and returns its
    /// error.
    pub(crate) fn guarded_read(&mut self, step: Step) -> Done {
        let (at, buffer) = self.lane_and_buffer(step)?;
        self.use_in(at, buffer)?;
        self.usable(&[buffer])?;
        let held = &self.buffers[buffer];
        let mut bytes = vec![0; held.buffer.len()];
        let expected = Expected { bytes: held.bytes.clone(), failed: Vec::new(), place: self.place() };
        let guard = StreamGuard::new(&self.lanes[at].stream);
        let (when, outcome) = Interval::of(|| held.buffer.read(0, &mut bytes));
        drop(guard);
        match outcome {
            Ok(()) => {
                let read = Ok(bytes);
                if self.scene.weather.takes_devices() {
                    // The buffer may be of a device that was opened anew, which the stream is not of.
                    self.synchronize(at)?;
                } else {
                    self.synchronized(at, when, Ok(()))?;
                }
                self.finished(read, &expected)
            }
            Err(error) => self.reported(at, when, error),
        }
    }
}

/// A part of so many bytes, or all of them: in units of sixteen, to which every device copies.
fn range_in(len: usize, step: Step) -> std::ops::Range<usize> {
    let units = len / 16;
    match step.value % 5 {
        0 | 1 => 0..len,
        _ => {
            let start = step.pick[2] % units;
            let end = start + 1 + (step.value >> 8) as usize % (units - start);
            start * 16..end * 16
        }
    }
}

fn ranges_of_copy(source: usize, target: usize, step: Step) -> (std::ops::Range<usize>, usize) {
    let from = range_in(source.min(target), step);
    let offset = (step.value >> 32) as usize % ((target - from.len()) / 16 + 1) * 16;
    (from, offset)
}

/// Changes what is known of a buffer, of which all is known or nothing.
fn put(known: &mut Option<Vec<u8>>, len: usize, offset: usize, bytes: &[u8]) {
    match known {
        Some(known) => known[offset..offset + bytes.len()].copy_from_slice(bytes),
        None if bytes.len() == len => *known = Some(bytes.to_vec()),
        None => {}
    }
}
