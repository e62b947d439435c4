//! Runs programs until one fails, and makes that one as small as it can.

use std::cell::RefCell;
use std::env;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Instant;

use proptest::collection;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};

use super::draw::{Draft, drafts};
use super::{Program, Rules};
use crate::context::{Context, in_threads};
use crate::failure::Failure;
use crate::outcome::Outcome;
use crate::watchdog;

/// Which programs are run: `DEVICE_CONFORMANCE_SEED` and `DEVICE_CONFORMANCE_CASES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    seed: u64,
    cases: u32,
}

const SEED: &str = "DEVICE_CONFORMANCE_SEED";
const CASES: &str = "DEVICE_CONFORMANCE_CASES";

impl Settings {
    /// What the environment says.
    pub(crate) fn from_env() -> Result<Self, String> {
        let value = |name| env::var(name).unwrap_or_default();
        Self::parse(&value(SEED), &value(CASES))
    }

    fn parse(seed: &str, cases: &str) -> Result<Self, String> {
        let number = |name, value: &str, without| match value {
            "" => Ok(without),
            _ => value.parse().map_err(|_| format!("{name} is `{value}`, and has to be a number")),
        };
        let (seed, cases) = (number(SEED, seed, 0)?, number(CASES, cases, 48)?);
        match u32::try_from(cases) {
            Ok(cases) if cases > 0 => Ok(Self { seed, cases }),
            _ => Err(format!("{CASES} is {cases}, and has to be from 1 to {}", u32::MAX)),
        }
    }
}

/// What is known of a failure by now.
#[derive(Default)]
struct Found {
    /// Of the smallest draft that failed: why, and the program.
    failure: Option<(String, Program)>,
    /// A program did not end. To look for a smaller one would take as long each time.
    hung: bool,
}

/// Runs programs that keep the rules, `at_once` of them at the same time. The failure has the smallest program that
/// fails too.
pub(crate) fn hold(context: &Context, rules: &Rules, at_once: usize) -> Result<(), Failure> {
    let settings = Settings::from_env().map_err(Failure::new)?;
    hold_with(context, rules, at_once, settings, |programs| {
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

/// A way to run programs at the same time. The failure is that of one of them, by its place.
type Run = fn(&[Program]) -> Result<(), (Failure, usize)>;

/// The same with another way to run them.
fn hold_with(
    context: &Context,
    rules: &Rules,
    at_once: usize,
    settings: Settings,
    run: Run,
) -> Result<(), Failure> {
    /// How often a smaller program is tried before it counts as one that passes: whether a race shows is luck.
    const TRIES: usize = 3;
    const STEPS: usize = 40;
    let Settings { seed, cases } = settings;
    let limit = context.limit();
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_time: u32::try_from((limit / 8).as_millis()).unwrap_or(u32::MAX).max(1),
        // Time is what counts. (The largest number stands for four times the cases.)
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
            let (tell, told) = mpsc::channel();
            let running = Arc::clone(&programs);
            let outcome = watchdog::run("a program", limit / 4, move || {
                run(&running).map_err(|(failure, index)| {
                    let _ = tell.send(index);
                    failure
                })
            });
            let why = match outcome {
                Ok(Outcome::Passed) => return true,
                Ok(Outcome::Failed(why) | Outcome::Unsupported(why)) => why,
                Err(hung) => {
                    found.borrow_mut().hung = true;
                    Outcome::from(hung).to_string()
                }
            };
            let index: usize = told.try_recv().unwrap_or_default();
            found.borrow_mut().failure = Some((why, programs[index].clone()));
            false
        })
    };
    let test =
        |drafts: Vec<Draft>| if passes(&drafts) { Ok(()) } else { Err(TestCaseError::fail("it fails")) };
    let outcome = TestRunner::new(config).run(&collection::vec(drafts(STEPS), at_once), test);
    if let Err(TestError::Fail(_, drafts)) = &outcome {
        make_smaller(drafts.clone(), Instant::now() + limit / 4, passes);
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
        (Err(error), None) => Err(Failure::new(format_args!("no programs could be made: {error}"))),
    }
}

/// Goes on where proptest ends, which tries to leave out each step once: what others are can depend on those before.
fn make_smaller(mut drafts: Vec<Draft>, end: Instant, passes: impl Fn(&[Draft]) -> bool) {
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

    const SETTINGS: Settings = Settings { seed: 7, cases: 60 };

    #[test]
    fn programs_pass_on_the_cpu() {
        let settings = Settings { seed: 1, cases: 30 };
        let run = |programs: &[Program]| programs[0].execute().map_err(|failure| (failure, 0));
        hold_with(&context(), &rules(), 1, settings, run).unwrap();
    }

    #[test]
    fn a_program_that_fails_is_made_small() {
        // As if copies of more than one byte were lost.
        let run = |programs: &[Program]| {
            let fails = |step: &Step| matches!(step, Step::Copy { range, .. } if range.len() > 1);
            if programs[0].steps.iter().any(fails) {
                Err((Failure::new("a copy is lost"), 0))
            } else {
                Ok(())
            }
        };
        let failure = hold_with(&context(), &rules(), 1, SETTINGS, run).unwrap_err().message;
        let (head, code) = failure.split_once(":\n\n").unwrap();
        assert!(head.starts_with("a copy is lost\nat "), "{head}");
        assert!(head.contains("DEVICE_CONFORMANCE_SEED=7"), "{head}");
        let steps: Vec<_> = code.lines().filter(|line| line.trim_start().starts_with('s')).collect();
        assert!(steps.len() == 2 && steps[0].starts_with("    s0.copy("), "{code}");
    }

    #[test]
    fn one_that_does_not_end_is_told_as_it_is() {
        let context = Context::new(Device::cpu(), Duration::from_millis(200)).unwrap();
        let run = |programs: &[Program]| {
            if programs[0].steps.iter().any(|step| matches!(step, Step::Copy { .. })) {
                thread::sleep(Duration::from_secs(5));
            }
            Ok(())
        };
        let failure = hold_with(&context, &rules(), 1, SETTINGS, run).unwrap_err().message;
        assert!(failure.starts_with("failed: it exceeded the time limit of 50ms"), "{failure}");
        assert!(failure.contains(".copy("), "{failure}");
    }

    #[test]
    fn of_several_at_once_the_one_that_fails_is_told() {
        let run = |programs: &[Program]| match programs.iter().position(|program| program.steps.len() > 6) {
            Some(index) => Err((Failure::new("it is too long"), index)),
            None => Ok(()),
        };
        let failure = hold_with(&context(), &rules(), 3, SETTINGS, run).unwrap_err().message;
        assert!(failure.contains(", at the same time as 2 others:"), "{failure}");
    }

    #[test]
    fn the_same_seed_makes_the_same_programs() {
        let made = |seed| {
            let run = |programs: &[Program]| Err((Failure::new(programs[0].to_string()), 0));
            let settings = Settings { seed, cases: 1 };
            hold_with(&context(), &rules(), 1, settings, run).unwrap_err().message.len()
        };
        assert_eq!(made(3), made(3));
    }

    #[test]
    fn settings_are_numbers() {
        assert_eq!(Settings::parse("", ""), Ok(Settings { seed: 0, cases: 48 }));
        assert_eq!(Settings::parse("12", "1000"), Ok(Settings { seed: 12, cases: 1000 }));
        assert_eq!(
            Settings::parse("x", "").unwrap_err(),
            "DEVICE_CONFORMANCE_SEED is `x`, and has to be a number"
        );
        for wrong in ["0", "-1", "4294967296", "many"] {
            assert!(Settings::parse("", wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }
}
