//! One round: all threads, and then the end of everything that they have made.

use std::fmt;
use std::time::{Duration, Instant};

use device_registry::Device;

use crate::check::Rules;
use crate::failure::{self, Identity, is_gone};
use crate::journal::{Interval, Journal, Reporter};
use crate::options::Options;
use crate::plan::{Round, Step, Weather};
use crate::scene::{self, Discarded, Scene, found};
use crate::watchdog;
use crate::worker::{Stop, Worker};

/// The counts of all rounds.
#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) bad_rounds: u64,
    rounds: u64,
    steps: u64,
    injected: u64,
    refused: u64,
    skipped: u64,
    reported: u64,
    only_logged: u64,
    forks: u64,
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bad_rounds, rounds, steps, injected, refused, skipped, reported, only_logged, forks } =
            self;
        write!(
            f,
            "{rounds} rounds, {steps} operations, {forks} forks; failures: {injected} injected, {refused} refused at \
             once, {skipped} skipped behind another, {reported} reported (by each stream that had them), \
             {only_logged} logged when their stream or device was gone; {bad_rounds} rounds were wrong"
        )
    }
}

/// Runs a round. Returns what is wrong.
pub(crate) fn run(options: &Options, number: u64, totals: &mut Totals) -> Vec<String> {
    let plan = Round::new(options.seed, number, options.threads, options.devices.len(), options.calm);
    let scene = Scene::new(number, plan.weather, &options.devices, options.no_query);
    failure::forget_logged();
    watchdog::stage(0);
    let journals = std::thread::scope(|scope| {
        let spawn = |(thread, steps): (usize, Vec<Step>)| {
            let scene = &scene;
            totals.steps += steps.len() as u64;
            scope.spawn(move || work(scene, thread, &steps))
        };
        let threads: Vec<_> = plan.threads.into_iter().enumerate().map(spawn).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, (Journal, u64)>| {
            thread.join().unwrap_or_else(|_| {
                found("a thread of the program panicked");
                Default::default()
            })
        };
        threads.into_iter().map(join).collect::<Vec<_>>()
    });
    let mut journal = Journal::default();
    for (part, forks) in journals {
        totals.forks += forks;
        journal.merge(part);
    }
    watchdog::stage(2);
    end_shared(&scene, &mut journal);
    drop(scene.into_discarded());
    watchdog::stage(3);
    end_devices(&options.devices, plan.weather, &mut journal);
    check_memory(&options.devices);
    watchdog::stage(4);
    check(options, plan.weather, &mut journal, totals);
    totals.rounds += 1;
    scene::findings()
}

/// Runs one thread's part, up to its last read.
fn work(scene: &Scene, thread: usize, steps: &[Step]) -> (Journal, u64) {
    let mut worker = Worker::new(scene, thread);
    for (number, step) in steps.iter().enumerate() {
        watchdog::step(thread, scene.round, number);
        worker.take(number, *step);
    }
    watchdog::step(thread, scene.round, steps.len());
    worker.end();
    watchdog::done(thread, scene.round);
    (worker.journal, worker.forks)
}

impl Worker<'_> {
    /// Finishes the reads, and has the streams say what failed.
    fn end(&mut self) {
        while let Some((read, expected)) = self.reads.pop() {
            let outcome = self.finished(read.wait(), &expected);
            self.end_of(outcome);
        }
        while !self.lanes.is_empty() {
            let outcome = self.synchronize(0);
            self.end_of(outcome);
            if !self.lanes.is_empty() {
                self.lanes.remove(0);
            }
        }
    }

    fn end_of(&mut self, outcome: Result<(), Stop>) {
        match outcome {
            Err(Stop::Error(error)) if self.scene.expects(&error) => self.device_ended(&error),
            Err(Stop::Error(error)) => {
                found(format_args!("{}, at the end: unexpected error: {error}", self.place()))
            }
            _ => {}
        }
    }
}

/// Finishes the reads that no thread has taken, and has the racing streams say what failed.
fn end_shared(scene: &Scene, journal: &mut Journal) {
    let discarded = std::mem::take(&mut *scene.bin.lock());
    for discarded in discarded {
        if let Discarded::Read(read, expected) = discarded {
            expected.compare(read.wait().as_deref(), scene).unwrap_or_else(found);
        }
    }
    let racers = std::mem::take(&mut *scene.racers.lock());
    for racer in racers {
        let (when, outcome) = Interval::of(|| racer.stream.synchronize());
        match outcome {
            Ok(()) => journal.clear(Reporter::Stream(racer.key), when),
            Err(error) => match Identity::of(&error) {
                Some(identity) if !is_gone(&error) => {
                    journal.report(identity, Reporter::Stream(racer.key), when)
                }
                _ if scene.expects(&error) => journal.dropped(racer.key),
                _ => found(format_args!("a racing stream, at the end: unexpected error: {error}")),
            },
        }
    }
}

/// Has each device say what is left: the errors of streams that were dropped.
fn end_devices(devices: &[Device], weather: Weather, journal: &mut Journal) {
    for (place, device) in devices.iter().enumerate() {
        if weather.takes_devices() && device.name() == "openreg" {
            // Else the next round would lose it.
            let _ = device.faults().and_then(|faults| faults.clear());
        }
        loop {
            let (when, outcome) = Interval::of(|| device.synchronize());
            match outcome {
                Ok(()) => break,
                Err(error) => match Identity::of(&error) {
                    Some(identity) if !is_gone(&error) => {
                        journal.report(identity, Reporter::Device(place), when)
                    }
                    _ if weather.takes_devices() => drop(device.reset()),
                    _ => found(format_args!("{device}, at the end: unexpected error: {error}")),
                },
            }
        }
    }
}

/// All is dropped and done, on all devices: a kernel's arguments may be buffers of another device.
fn check_memory(devices: &[Device]) {
    for device in devices {
        let live = || device.memory_statistics().map(|statistics| statistics.live);
        match within_seconds(live, |live| matches!(live, Ok(0))) {
            Ok(0) => {}
            Ok(live) => {
                found(format_args!("{device}: all is dropped and done, and {live} buffers are not freed"))
            }
            Err(error) => found(format_args!("{device}, at the end: unexpected error: {error}")),
        }
    }
}

/// Checks the round. Threads of dropped streams may log a little later, so it tries again for a while.
fn check(options: &Options, weather: Weather, journal: &mut Journal, totals: &mut Totals) {
    let rules = Rules { devices_ended: weather.takes_devices(), strict: options.strict };
    let verdict = within_seconds(
        || {
            end_devices(&options.devices, weather, journal);
            journal.check(&failure::logged(), rules)
        },
        |verdict| verdict.wrong.is_empty(),
    );
    totals.injected += verdict.injected;
    totals.refused += verdict.refused;
    totals.skipped += verdict.skipped;
    totals.reported += verdict.reported;
    totals.only_logged += verdict.only_logged;
    verdict.wrong.iter().for_each(|wrong| found(format_args!("({weather:?}) {wrong}")));
}

/// Repeats `look` until `is_so`, for at most two seconds. Returns the last result.
fn within_seconds<T>(mut look: impl FnMut() -> T, is_so: impl Fn(&T) -> bool) -> T {
    let start = Instant::now();
    loop {
        let found = look();
        if is_so(&found) || start.elapsed() > Duration::from_secs(2) {
            return found;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
