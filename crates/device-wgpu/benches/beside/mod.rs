//! Ratios of one run: two functions take turns, so that whatever else the machine does meets both.

use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, SamplingMode};

/// Measures `ours` as criterion does, and `other` beside it, and prints the median of the rounds' ratios with what half
/// of the rounds lie between.
pub(crate) fn beside(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    mut ours: impl FnMut(),
    mut other: impl FnMut(),
) {
    beside_timed(group, name, || timed(&mut ours), || timed(&mut other));
}

fn timed(call: &mut impl FnMut()) -> Duration {
    let start = Instant::now();
    call();
    start.elapsed()
}

/// The same for functions that say themselves how long they took.
pub(crate) fn beside_timed(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    mut ours: impl FnMut() -> Duration,
    mut other: impl FnMut() -> Duration,
) {
    let mut rounds = Vec::new();
    group.sampling_mode(SamplingMode::Flat);
    group.warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_secs(1));
    group.bench_function(name, |bench| {
        bench.iter_custom(|times| {
            let mut round = [Duration::ZERO; 2];
            for number in 0..times {
                // Neither is always the first.
                for turn in [number % 2, (number + 1) % 2] {
                    round[turn as usize] += if turn == 0 { ours() } else { other() };
                }
            }
            rounds.push((times, round));
            round[0]
        });
    });
    let Some(&(last, _)) = rounds.last() else { return };
    // Criterion warms up in rounds of other lengths, and tests in one.
    rounds.retain(|(times, _)| *times == last);
    if rounds.len() < 4 {
        return;
    }
    let quartiles = |of: &dyn Fn(&[Duration; 2]) -> f64| {
        let mut values: Vec<_> = rounds.iter().map(|(_, round)| of(round)).collect();
        values.sort_by(f64::total_cmp);
        [1, 2, 3].map(|quarter| values[values.len() * quarter / 4])
    };
    let [low, ratio, high] = quartiles(&|[ours, other]| ours.as_secs_f64() / other.as_secs_f64());
    let [_, ours, _] = quartiles(&|[ours, _]| ours.as_secs_f64() * 1e6 / last as f64);
    let [_, other, _] = quartiles(&|[_, other]| other.as_secs_f64() * 1e6 / last as f64);
    println!("{name}: ratio {ratio:.3} ({low:.3} to {high:.3}); {ours:.2} us beside {other:.2} us");
}
