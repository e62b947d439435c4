//! Random programs of several streams, with events and temporaries, beside a plain model of the bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use device_registry::{Buffer, Device, Event, Pending, Stream};

use super::on_all;
use crate::fake::{Control, Queue};

/// Numbers of Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }
}

/// A buffer, its bytes behind all work that was enqueued, and how uses are ordered.
struct Item {
    buffer: Buffer,
    model: Vec<u8>,
    /// The stream whose work used it last, if any did, with an event behind that work.
    last: Option<(usize, Event)>,
}

struct Program {
    random: Random,
    device: Device,
    streams: Vec<(Stream, Arc<Queue>)>,
    items: Vec<Item>,
    reads: Vec<(Pending, Vec<u8>)>,
}

impl Program {
    /// Orders a use by the stream behind the last use.
    fn turn(&mut self, item: usize, stream: usize) {
        let stream_of = &self.streams[stream].0;
        match &self.items[item].last {
            Some((last, event)) if *last != stream => stream_of.wait_event(event).unwrap(),
            _ => {}
        }
    }

    fn used(&mut self, item: usize, stream: usize) {
        let event = self.streams[stream].0.record().unwrap();
        self.items[item].last = Some((stream, event));
    }

    fn allocate(&mut self) {
        const LENGTHS: [usize; 5] = [512, 1000, 1001, 5000, 70_000];

        let len = LENGTHS[self.random.below(LENGTHS.len())];
        let stream = self.random.below(self.streams.len());
        let buffer = match self.random.below(5) {
            0 => self.device.allocate(len),
            _ => self.streams[stream].0.allocate(len),
        };
        self.items.push(Item { buffer: buffer.unwrap(), model: vec![0; len], last: None });
        // Its content is unspecified: it is read only after it was written. Often another stream writes
        // first.
        let item = self.items.len() - 1;
        let writer = if self.random.below(8) == 0 { self.random.below(self.streams.len()) } else { stream };
        if self.random.below(8) > 0 {
            return self.write(item, writer, 0..len);
        }
        // Two streams write a part each, in no order.
        let middle = 1 + self.random.below(len - 1);
        self.write(item, stream, 0..middle);
        let first = self.items[item].last.take();
        self.write(item, writer, middle..len);
        self.items[item].last = first;
        self.turn(item, writer);
        self.used(item, writer);
    }

    fn write(&mut self, item: usize, stream: usize, range: std::ops::Range<usize>) {
        self.turn(item, stream);
        let byte = self.random.below(256) as u8;
        let (queue, part) = (&self.streams[stream].0, &self.items[item]);
        match self.random.below(3) {
            0 => queue.write(&part.buffer, range.start, vec![byte; range.len()]).unwrap(),
            1 => queue.fill(&part.buffer, range.clone(), &[byte]).unwrap(),
            _ => queue.fill(&part.buffer.slice(range.clone()).unwrap(), .., &[byte]).unwrap(),
        }
        self.items[item].model[range].fill(byte);
        self.used(item, stream);
    }

    fn step(&mut self) {
        let streams = self.streams.len();
        if self.items.is_empty() {
            return self.allocate();
        }
        let item = self.random.below(self.items.len());
        let stream = self.random.below(streams);
        let len = self.items[item].model.len();
        match self.random.below(100) {
            0..=29 if self.items.len() < 24 => self.allocate(),
            0..=34 => {
                let start = self.random.below(len);
                let end = start + 1 + self.random.below(len - start);
                self.write(item, stream, start..end);
            }
            35..=54 => {
                let from = self.random.below(self.items.len());
                if from == item {
                    return;
                }
                let len = len.min(self.items[from].model.len());
                self.turn(item, stream);
                self.turn(from, stream);
                let [source, destination] =
                    [from, item].map(|item| self.items[item].buffer.slice(..len).unwrap());
                self.streams[stream].0.copy(&source, &destination).unwrap();
                let bytes = self.items[from].model[..len].to_vec();
                self.items[item].model[..len].copy_from_slice(&bytes);
                self.used(item, stream);
                self.used(from, stream);
            }
            55..=74 => {
                self.turn(item, stream);
                let read = self.streams[stream].0.read(&self.items[item].buffer, ..).unwrap();
                self.reads.push((read, self.items[item].model.clone()));
                self.used(item, stream);
            }
            75..=92 => drop(self.items.swap_remove(item)),
            93..=95 => self.streams[stream].1.close(),
            96 => {
                // A blocking use, behind the last one.
                self.open();
                if let Some((_, event)) = &self.items[item].last {
                    event.synchronize().unwrap();
                }
                let byte = self.random.below(256) as u8;
                self.items[item].buffer.write(0, &vec![byte; len]).unwrap();
                self.items[item].model.fill(byte);
            }
            97 => self.check(),
            98 => {
                // A stream ends, and another takes its place.
                self.open();
                self.streams.swap_remove(stream);
                self.items.iter_mut().for_each(|item| {
                    item.last.take().into_iter().for_each(|(_, event)| event.synchronize().unwrap());
                });
                self.reads.drain(..).for_each(matches);
            }
            _ => self.device.empty_cache().unwrap(),
        }
    }

    fn open(&self) {
        self.streams.iter().for_each(|(_, gate)| gate.open());
    }

    fn check(&mut self) {
        self.open();
        self.reads.drain(..).for_each(matches);
    }
}

#[track_caller]
fn matches((read, model): (Pending, Vec<u8>)) {
    let bytes = read.wait().unwrap();
    let wrong = bytes.iter().zip(&model).position(|(found, expected)| found != expected);
    assert_eq!(wrong, None, "the bytes differ from the model's");
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn program(device: Device, control: &'static Control, seed: u64, steps: usize) {
    let streams = (0..3).map(|_| control.stream(device)).collect();
    let random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut program = Program { random, device, streams, items: Vec::new(), reads: Vec::new() };
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        // A call may wait for work of another stream: the gates open by themselves, not so fast that no work
        // is ever stopped.
        scope.spawn(|| {
            while !ended.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_micros(500));
                control.open_queues();
            }
        });
        // The thread also ends if this one panics.
        let _end = End(&ended);
        for _ in 0..steps {
            program.step();
            while program.streams.len() < 3 {
                program.streams.push(control.stream(device));
            }
        }
        program.check();
    });
}

#[test]
fn random_programs_agree_with_a_plain_model() {
    on_all(|device, control| {
        for seed in 1..=4 {
            program(device, control, seed, 2500);
        }
        device.synchronize().unwrap();
        let now = device.memory_statistics().unwrap();
        assert_eq!((now.allocated, now.live), (0, 0));
        assert!(now.reused > 1000, "{now:?}");
        device.empty_cache().unwrap();
        let (allocated, freed) = control.calls();
        assert_eq!((allocated - freed, device.memory_statistics().unwrap().reserved), (0, 0));
    });
}
