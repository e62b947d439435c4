//! Runs random programs until one fails, and shrinks that one.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Instant;

use proptest::collection;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};

use super::draw::{Draft, drafts};
use super::{Program, Rules};
use crate::context::{Context, in_threads};
use crate::environment::{RandomCases, SEED};
use crate::failure::Failure;
use crate::outcome::Outcome;
use crate::watchdog;

/// How many programs a check runs by default.
const DEFAULT_CASES: u32 = 48;

/// The settings of random programs.
pub(crate) fn settings() -> Result<RandomCases, String> {
    RandomCases::from_env(DEFAULT_CASES)
}

/// The failure found so far.
#[derive(Default)]
struct Found {
    /// The message and the program of the smallest draft that failed.
    failure: Option<(String, Program)>,
    /// A program exceeded its time limit. Shrinking would take as long for each smaller program.
    hung: bool,
}

/// Runs random programs that follow the rules, `at_once` of them at the same time. The failure shows the
/// smallest program that fails.
pub(crate) fn run_random(context: &Context, rules: &Rules, at_once: usize) -> Result<(), Failure> {
    let settings = settings().map_err(Failure::new)?;
    run_random_with(context, rules, at_once, settings, |programs| {
        if let [program] = programs {
            return program.execute().map_err(|failure| (failure, 0));
        }
        let failed = AtomicUsize::new(0);
        in_threads(programs.len(), |index| {
            programs[index].execute().inspect_err(|_| failed.store(index, Ordering::Relaxed))
        })
        .map_err(|failure| (failure, failed.into_inner()))
    })
}

/// Runs programs at the same time. The error has the index of the program that failed.
type Run = fn(&[Program]) -> Result<(), (Failure, usize)>;

/// Like [`run_random`], with another function that runs the programs.
fn run_random_with(
    context: &Context,
    rules: &Rules,
    at_once: usize,
    settings: RandomCases,
    run: Run,
) -> Result<(), Failure> {
    /// How often a smaller program has to pass before it counts as one that passes, because a race may not
    /// show each time.
    const TRIES: usize = 3;
    const STEPS: usize = 40;
    let RandomCases { seed, cases } = settings;
    let limit = context.limit();
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_time: u32::try_from((limit / 8).as_millis()).unwrap_or(u32::MAX).max(1),
        // The time limit ends the shrinking. (`u32::MAX` would mean four times the cases.)
        max_shrink_iters: u32::MAX - 1,
        rng_seed: RngSeed::Fixed(seed),
        ..Config::default()
    };
    let found = RefCell::new(Found::default());
    let passes = |drafts: &[Draft]| {
        if found.borrow().hung {
            return true;
        }
        let programs: Arc<[Program]> = drafts.iter().map(|draft| rules.program(draft)).collect();
        let tries = if found.borrow().failure.is_some() { TRIES } else { 1 };
        (0..tries).all(|_| {
            let (sender, failed) = mpsc::channel();
            let running = Arc::clone(&programs);
            let outcome = watchdog::run("a program", context.device(), limit / 4, move || {
                run(&running).map_err(|(failure, index)| {
                    let _ = sender.send(index);
                    failure
                })
            });
            let why = match outcome {
                Ok(Outcome::Passed) => return true,
                Ok(Outcome::Failed(why) | Outcome::Unsupported(why)) => why,
                Err(hung) => {
                    found.borrow_mut().hung = true;
                    hung.to_string()
                }
            };
            let index: usize = failed.try_recv().unwrap_or_default();
            found.borrow_mut().failure = Some((why, programs[index].clone()));
            false
        })
    };
    let test =
        |drafts: Vec<Draft>| if passes(&drafts) { Ok(()) } else { Err(TestCaseError::fail("it fails")) };
    let outcome = TestRunner::new(config).run(&collection::vec(drafts(STEPS), at_once), test);
    if let Err(TestError::Fail(_, drafts)) = &outcome {
        shrink(drafts.clone(), Instant::now() + limit / 4, passes);
    }
    match (outcome, found.into_inner().failure) {
        (Ok(()), _) => Ok(()),
        (Err(_), Some((why, program))) => Err(Failure::new(format_args!(
            "{why}\nthe smallest program that fails, of {cases} with {SEED}={seed}{}:\n\n{program}",
            match at_once {
                1 => String::new(),
                _ => format!(", at the same time as {} others", at_once - 1),
            }
        ))),
        (Err(error), None) => Err(Failure::new(format_args!("cannot generate programs: {error}"))),
    }
}

/// Continues after proptest, which tries to remove each step only once. Removing one step can make another
/// removable.
fn shrink(mut drafts: Vec<Draft>, end: Instant, passes: impl Fn(&[Draft]) -> bool) {
    let smaller = |drafts: &[Draft]| {
        for (index, draft) in drafts.iter().enumerate() {
            for simpler in draft.simpler() {
                if Instant::now() > end {
                    return None;
                }
                let mut candidate = drafts.to_vec();
                candidate[index] = simpler;
                if !passes(&candidate) {
                    return Some(candidate);
                }
            }
        }
        None
    };
    while let Some(candidate) = smaller(&drafts) {
        drafts = candidate;
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use device_registry::Device;

    use super::super::{Kind, Step};
    use super::*;

    const KINDS: &[Kind] = &[Kind::Write, Kind::Fill, Kind::Copy, Kind::Read, Kind::Slice, Kind::Drop];

    fn context() -> Context {
        Context::new(Device::cpu(), Duration::from_secs(8)).unwrap()
    }

    fn rules() -> Rules {
        Rules::new(&[Device::cpu()], 2, KINDS).unwrap()
    }

    const SETTINGS: RandomCases = RandomCases { seed: 7, cases: 60 };

    #[test]
    fn programs_pass_on_the_cpu() {
        let settings = RandomCases { seed: 1, cases: 30 };
        let run = |programs: &[Program]| programs[0].execute().map_err(|failure| (failure, 0));
        run_random_with(&context(), &rules(), 1, settings, run).unwrap();
    }

    #[test]
    fn a_program_that_fails_is_shrunk() {
        // Acts as if copies of more than one byte were lost.
        let run = |programs: &[Program]| {
            let fails = |step: &Step| matches!(step, Step::Copy { range, .. } if range.len() > 1);
            if programs[0].steps.iter().any(fails) {
                Err((Failure::new("a copy is lost"), 0))
            } else {
                Ok(())
            }
        };
        let failure = run_random_with(&context(), &rules(), 1, SETTINGS, run).unwrap_err().message;
        let (head, code) = failure.split_once(":\n\n").unwrap();
        assert!(head.starts_with("a copy is lost\nat "), "{head}");
        assert!(head.contains("DEVICE_CONFORMANCE_SEED=7"), "{head}");
        let steps: Vec<_> = code.lines().filter(|line| line.trim_start().starts_with('s')).collect();
        assert!(steps.len() == 2 && steps[0].starts_with("    s0.copy("), "{code}");
    }

    #[test]
    fn a_program_that_hangs_is_reported_without_shrinking() {
        let context = Context::new(Device::cpu(), Duration::from_millis(200)).unwrap();
        let run = |programs: &[Program]| {
            if programs[0].steps.iter().any(|step| matches!(step, Step::Copy { .. })) {
                thread::sleep(Duration::from_secs(5));
            }
            Ok(())
        };
        let failure = run_random_with(&context, &rules(), 1, SETTINGS, run).unwrap_err().message;
        assert!(failure.starts_with("it exceeded the time limit of 50ms; no call into"), "{failure}");
        assert!(failure.contains(".copy("), "{failure}");
    }

    #[test]
    fn the_failed_program_of_several_at_once_is_reported() {
        let run = |programs: &[Program]| match programs.iter().position(|program| program.steps.len() > 6) {
            Some(index) => Err((Failure::new("it is too long"), index)),
            None => Ok(()),
        };
        let failure = run_random_with(&context(), &rules(), 3, SETTINGS, run).unwrap_err().message;
        assert!(failure.contains(", at the same time as 2 others:"), "{failure}");
    }

    #[test]
    fn the_same_seed_makes_the_same_programs() {
        let made = |seed| {
            let run = |programs: &[Program]| Err((Failure::new(programs[0].to_string()), 0));
            let settings = RandomCases { seed, cases: 1 };
            run_random_with(&context(), &rules(), 1, settings, run).unwrap_err().message.len()
        };
        assert_eq!(made(3), made(3));
    }
}
