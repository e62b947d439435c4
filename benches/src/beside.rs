//! Ratios of one run: two functions run in turns, so that other load on the machine affects both.

use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, SamplingMode};

/// Measures `ours` as criterion does, and `other` beside it. Prints the median of the rounds' ratios of
/// `ours` to `other` in time, with the interval that half of the rounds lie in.
pub fn beside(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: impl Into<String>,
    mut ours: impl FnMut(),
    mut other: impl FnMut(),
) {
    rounds(group, name.into(), |times| time(times, &mut ours), |times| time(times, &mut other));
}

/// Measures like [`beside`], for functions that return how long they took because a part of them does not
/// count.
pub fn beside_timed(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: impl Into<String>,
    mut ours: impl FnMut() -> Duration,
    mut other: impl FnMut() -> Duration,
) {
    let sum = |times, call: &mut dyn FnMut() -> Duration| (0..times).map(|_| call()).sum();
    rounds(group, name.into(), |times| sum(times, &mut ours), |times| sum(times, &mut other));
}

/// Measures in rounds of this many calls.
fn rounds(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: String,
    mut ours: impl FnMut(u64) -> Duration,
    mut other: impl FnMut(u64) -> Duration,
) {
    let mut rounds = Vec::new();
    // Short: many short rounds say more than few long ones, and each measures four times.
    group.sampling_mode(SamplingMode::Flat);
    group.warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(500));
    group.bench_function(name, |bench| {
        bench.iter_custom(|times| {
            // In an order that favours neither in time or in the caches.
            let first = ours(times);
            let other = other(times) + other(times);
            let ours = first + ours(times);
            rounds.push(Round { ours, other, times });
            ours / 2
        });
    });
    report(&rounds);
}

/// The times of one round, in which each side runs twice `times` times.
struct Round {
    ours: Duration,
    other: Duration,
    times: u64,
}

fn time(times: u64, call: &mut impl FnMut()) -> Duration {
    let start = Instant::now();
    (0..times).for_each(|_| call());
    start.elapsed()
}

fn report(rounds: &[Round]) {
    // Criterion warms up in rounds of other lengths, and tests in one. Filtered out, it calls nothing.
    let [.., last] = rounds else { return };
    let measured: Vec<_> = rounds.iter().filter(|round| round.times == last.times).collect();
    if measured.len() < 4 {
        return;
    }
    let quartiles = |of: &dyn Fn(&Round) -> f64| {
        let mut values: Vec<_> = measured.iter().map(|round| of(round)).collect();
        values.sort_by(f64::total_cmp);
        [1, 2, 3].map(|quarter| values[values.len() * quarter / 4])
    };
    let [low, ratio, high] = quartiles(&|round| round.ours.as_secs_f64() / round.other.as_secs_f64());
    let per_call = |time: Duration, round: &Round| time.as_nanos() as f64 / (2 * round.times) as f64;
    let [_, ours, _] = quartiles(&|round| per_call(round.ours, round));
    let [_, other, _] = quartiles(&|round| per_call(round.other, round));
    println!(
        "                        ratio: {ratio:.3} ({low:.3} to {high:.3}); {ours:.1} ns beside {other:.1} ns"
    );
}
