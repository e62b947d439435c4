//! Ends a run that stands still, and says what each thread was doing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::options::Options;
use crate::plan::Round;

/// How far each thread is: a number that grows, from which the round and the step are known again.
static THREADS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// The stages between the rounds.
static STAGE: AtomicU64 = AtomicU64::new(0);

const STAGES: [&str; 5] = [
    "the threads' steps",
    "the threads' last reads and streams",
    "what they share",
    "the devices",
    "the check",
];

const PER_ROUND: u64 = 1 << 20;

/// A thread begins a step.
pub(crate) fn step(thread: usize, round: u64, step: usize) {
    THREADS[thread].store(round * PER_ROUND + step as u64 + 1, Ordering::Relaxed);
}

/// A thread has no more steps in this round.
pub(crate) fn done(thread: usize, round: u64) {
    THREADS[thread].store((round + 1) * PER_ROUND - 1, Ordering::Relaxed);
}

/// Sets the stage, by its place in [`STAGES`].
pub(crate) fn stage(stage: u64) {
    STAGE.store(stage, Ordering::Relaxed);
}

/// Looks at the threads until the program ends.
pub(crate) fn watch(options: &Options) {
    let state = || {
        let threads = THREADS.iter().take(options.threads).map(|thread| thread.load(Ordering::Relaxed));
        threads.chain([STAGE.load(Ordering::Relaxed)]).collect::<Vec<_>>()
    };
    let (seed, threads, devices) = (options.seed, options.threads, options.devices.len());
    let (mut before, mut since) = (state(), vec![Instant::now(); threads + 1]);
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let now = state();
        for (place, since) in since.iter_mut().enumerate() {
            // One that is done waits for the others, which are watched too.
            let is_done = place < threads && now[place] % PER_ROUND == PER_ROUND - 1;
            if now[place] != before[place]
                || (is_done && now[threads] == 0)
                || (place == threads && now[threads] == 0)
            {
                *since = Instant::now();
            }
        }
        let stage = now[threads] as usize;
        let still = |place: usize| since[place].elapsed() > options.patience;
        let hangs = if stage == 0 { (0..threads).any(still) } else { still(threads) };
        if hangs {
            eprintln!(
                "stress: no progress for {:?}, in {}",
                options.patience,
                STAGES[stage.min(STAGES.len() - 1)]
            );
            for (thread, at) in now[..threads].iter().enumerate() {
                let (round, step) = (at / PER_ROUND, at % PER_ROUND);
                let plan = Round::new(seed, round, threads, devices, options.calm);
                match plan.threads[thread].get((step as usize).wrapping_sub(1)) {
                    Some(doing) => {
                        eprintln!("  thread {thread}: round {round}, step {}: {doing:?}", step - 1)
                    }
                    None => eprintln!("  thread {thread}: round {round}, its last reads and streams"),
                }
            }
            print_system_threads();
            eprintln!("replay: --seed {seed} --round {}", now[0] / PER_ROUND);
            // Nothing that runs at exit may hang too.
            std::process::abort();
        }
        before = now;
    }
}

/// The threads of the process, those of streams and drivers too, as the system shows them.
fn print_system_threads() {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return };
    for task in tasks.flatten() {
        let read = |name| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let status = read("status");
        let state = status.lines().find(|line| line.starts_with("State")).unwrap_or_default();
        eprintln!("  {}: {} {}", read("comm").trim(), state.trim(), read("wchan").trim());
    }
}
