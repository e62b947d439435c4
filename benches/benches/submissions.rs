//! Putting an empty operation in a stream and waiting for it, beside a plain queue; and whether a stream that
//! has done much is slower.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use criterion::{Criterion, criterion_group, criterion_main};
use device_registry::{Device, Stream, device};
use device_registry_benches::{Cores, beside};

device_registry::autoload!();

fn devices() -> [Device; 2] {
    ["cpu", "openreg"].map(|name| device(name).expect("it is linked"))
}

fn stream(device: Device, cores: Cores) -> Stream {
    let stream = device.create_stream().expect("there is always another one");
    cores.keep(|keep| stream.host_call(keep).expect("it is accepted"));
    stream
}

/// Empty operations, and waiting for them.
fn submissions(criterion: &mut Criterion) {
    for device in devices() {
        let mut group = criterion.benchmark_group(format!("submissions/{}", device.name()));
        for (cores, place) in Cores::BOTH {
            let (stream, queue) = (stream(device, cores), PlainQueue::new());
            cores.keep(|keep| queue.call(keep));
            for count in [1, 100] {
                let name = format!("{count} on {place}");
                beside(&mut group, name, || submit(&stream, count), || submit(&queue, count));
            }
            let name = format!("1000 behind one on {place}");
            beside(&mut group, name, || submit_behind(&stream, 1000), || submit_behind(&queue, 1000));
        }
    }
}

/// A queue of closures for another thread.
trait Submit {
    fn call(&self, call: impl FnOnce() + Send + 'static);
    fn synchronize(&self);
}

impl Submit for Stream {
    fn call(&self, call: impl FnOnce() + Send + 'static) {
        self.host_call(call).expect("it is accepted");
    }

    fn synchronize(&self) {
        self.synchronize().expect("nothing fails");
    }
}

fn submit(to: &impl Submit, count: usize) {
    (0..count).for_each(|_| to.call(black_box(|| {})));
    to.synchronize();
}

/// The first one takes until all others are submitted.
fn submit_behind(to: &impl Submit, count: usize) {
    let first = Arc::new(Mutex::new(()));
    let held = first.lock().expect(NO_PANIC);
    let waits = Arc::clone(&first);
    to.call(move || drop(waits.lock().expect(NO_PANIC)));
    (0..count).for_each(|_| to.call(black_box(|| {})));
    drop(held);
    to.synchronize();
}

/// A stream that has done this many operations, beside a new one.
fn after_many(criterion: &mut Criterion) {
    for device in devices() {
        let mut group = criterion.benchmark_group(format!("after many/{}", device.name()));
        let old = stream(device, Cores::One);
        let mut done = 0;
        for many in [1_000, 10_000, 100_000, 1_000_000] {
            while done < many {
                submit(&old, 1000);
                done += 1000;
            }
            let new = stream(device, Cores::One);
            beside(&mut group, many.to_string(), || submit(&old, 100), || submit(&new, 100));
        }
    }
}

/// The plain queue: closures for another thread, under one lock.
struct PlainQueue(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    finished: Condvar,
}

#[derive(Default)]
struct State {
    calls: VecDeque<Box<dyn FnOnce() + Send>>,
    unfinished: usize,
    closed: bool,
}

const NO_PANIC: &str = "nothing panics under the lock";

impl PlainQueue {
    fn new() -> Self {
        let shared = Arc::new(Shared::default());
        let worker = Arc::clone(&shared);
        thread::spawn(move || worker.work());
        Self(shared)
    }
}

impl Submit for PlainQueue {
    fn call(&self, call: impl FnOnce() + Send + 'static) {
        let mut state = self.0.state.lock().expect(NO_PANIC);
        state.calls.push_back(Box::new(call));
        state.unfinished += 1;
        drop(state);
        self.0.work.notify_one();
    }

    fn synchronize(&self) {
        let state = self.0.state.lock().expect(NO_PANIC);
        drop(self.0.finished.wait_while(state, |state| state.unfinished > 0).expect(NO_PANIC));
    }
}

impl Drop for PlainQueue {
    fn drop(&mut self) {
        self.0.state.lock().expect(NO_PANIC).closed = true;
        self.0.work.notify_one();
    }
}

impl Shared {
    fn work(&self) {
        let mut state = self.state.lock().expect(NO_PANIC);
        loop {
            state =
                self.work.wait_while(state, |state| state.calls.is_empty() && !state.closed).expect(NO_PANIC);
            let Some(call) = state.calls.pop_front() else { return };
            drop(state);
            call();
            state = self.state.lock().expect(NO_PANIC);
            state.unfinished -= 1;
            if state.unfinished == 0 {
                self.finished.notify_all();
            }
        }
    }
}

criterion_group! {
    name = benches;
    config = device_registry_benches::criterion();
    targets = submissions, after_many
}
criterion_main!(benches);
