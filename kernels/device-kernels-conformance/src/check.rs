//! A check: its name, what it proves, and how it runs.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use device_conformance::harness::{CASES, Outcome, RandomCases, SEED, time_limit, within};
use device_kernels::Call;
use proptest::collection;
use proptest::num::u32::ANY;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

use crate::case::Case;
use crate::draw::{Draw, NUMBERS, Stream};
use crate::failure::Failure;
use crate::subject::Subject;

/// How long a check may take by default. Checks that pass take far less.
pub const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(60);

/// How many random cases each check runs by default, of each kind that it has.
const DEFAULT_CASES: u32 = 8;

/// How checks run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    random: RandomCases,
    limit: Duration,
}

impl Settings {
    /// Reads the environment variables.
    pub(crate) fn from_env() -> Result<Self, String> {
        let limit = time_limit()?.unwrap_or(DEFAULT_TIME_LIMIT);
        Ok(Self { random: RandomCases::from_env(DEFAULT_CASES)?, limit })
    }
}

/// How many smaller cases are tried after a failure.
const SHRINKS: u32 = 400;

/// What a check does.
type Run = dyn Fn(&Subject, Settings) -> Result<(), Failure> + Send + Sync;

/// How a case is drawn.
pub(crate) type Drawn = Box<dyn Fn(&mut Case, &mut Draw<'_>) + Send + Sync>;

/// Some cases of a check: all that are fixed, or one of each random kind.
type Cases = dyn Fn() -> Vec<Case> + Send + Sync;

/// A test of one operator, or of one rule for many of them.
pub struct Check {
    name: String,
    proves: String,
    run: Box<Run>,
    cases: Arc<Cases>,
}

impl Check {
    pub(crate) fn new(
        name: impl Into<String>,
        proves: impl Into<String>,
        run: impl Fn(&Subject, Settings) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Self {
        let cases = Arc::new(Vec::new);
        Self { name: name.into(), proves: proves.into(), run: Box::new(run), cases }
    }

    /// A check of random cases: of each kind of them, as many as the settings say.
    pub(crate) fn random(name: impl Into<String>, proves: impl Into<String>, kinds: Vec<Drawn>) -> Self {
        let name = name.into();
        let kinds = Arc::new(kinds);
        let of = name.clone();
        let drawn = Arc::clone(&kinds);
        let check = Self::new(name, proves, move |subject, settings| random(subject, settings, &of, &kinds));
        Self { cases: Arc::new(move || drawn.iter().map(|kind| draw_once(kind)).collect()), ..check }
    }

    /// A check of cases that are always the same.
    pub(crate) fn fixed(
        name: impl Into<String>,
        proves: impl Into<String>,
        cases: impl Fn() -> Vec<Case> + Send + Sync + 'static,
    ) -> Self {
        let cases: Arc<Cases> = Arc::new(cases);
        let run = Arc::clone(&cases);
        let check = Self::new(name, proves, move |subject, _| {
            let streams = [subject.stream()?, subject.stream()?];
            first_failure(run().iter().map(|case| subject.run(case, &streams)))
        });
        Self { cases, ..check }
    }

    /// Calls of its cases.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let steps = (self.cases)().into_iter().flat_map(|case| case.steps);
        steps.filter_map(|step| step.call().ok()).collect()
    }

    /// The group and the name, such as `binary::add`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One sentence that is true of every kernel set that passes.
    #[must_use]
    pub fn proves(&self) -> &str {
        &self.proves
    }

    /// Runs the check, on its own thread. A panic is a failure, and so is a check that exceeds the time
    /// limit; its thread keeps running, because nothing can stop it.
    ///
    /// The number of cases, the seed and the time limit come from the environment variables.
    pub fn run(self: &Arc<Self>, subject: &Subject) -> Outcome {
        match Settings::from_env() {
            Ok(settings) => self.run_with(subject, settings),
            Err(message) => Outcome::Failed(message),
        }
    }

    pub(crate) fn run_with(self: &Arc<Self>, subject: &Subject, settings: Settings) -> Outcome {
        let check = Arc::clone(self);
        let subject = subject.clone();
        let outcome = within(settings.limit, &self.name, move || (check.run)(&subject, settings));
        match outcome.map_err(|unfinished| unfinished.to_string()) {
            Ok(Ok(())) => Outcome::Passed,
            Ok(Err(Failure::Unsupported(call))) => Outcome::Unsupported(call),
            Ok(Err(Failure::Failed(message))) | Err(message) => {
                Outcome::Failed(format!("{message}\nto pass: {}", self.proves))
            }
        }
    }
}

/// The first case that failed, or that none was supported.
fn first_failure(outcomes: impl Iterator<Item = Result<(), Failure>>) -> Result<(), Failure> {
    let mut passed = false;
    let mut unsupported = None;
    for outcome in outcomes {
        match outcome {
            Ok(()) => passed = true,
            Err(Failure::Unsupported(call)) => {
                unsupported.get_or_insert(call);
            }
            Err(failed) => return Err(failed),
        }
    }
    match unsupported {
        Some(call) if !passed => Err(Failure::Unsupported(call)),
        _ => Ok(()),
    }
}

fn draw_once(kind: &Drawn) -> Case {
    let mut stream = Stream::of(17);
    let numbers: Vec<u32> = (0..NUMBERS).map(|_| stream.next() as u32).collect();
    let mut case = Case::default();
    kind(&mut case, &mut Draw::new(&numbers));
    case
}

/// Runs random cases until one fails, and makes that one as small as it can.
fn random(subject: &Subject, settings: Settings, name: &str, kinds: &[Drawn]) -> Result<(), Failure> {
    let streams = [subject.stream()?, subject.stream()?];
    let RandomCases { seed, cases } = settings.random;
    // Another seed for each check, so that not all begin with the same shapes.
    let hash = name.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let of_kind = |(number, kind): (usize, &Drawn)| {
        let config = Config {
            cases,
            failure_persistence: None,
            // The test itself ends the shrinking, by passing.
            max_shrink_iters: u32::MAX - 1,
            rng_seed: RngSeed::Fixed(hash.wrapping_add(number as u64)),
            ..Config::default()
        };
        let failure = RefCell::new(None);
        let unsupported = RefCell::new(None);
        let passed = RefCell::new(false);
        let shrinks = RefCell::new(0);
        let numbers = collection::vec(ANY, NUMBERS);
        let outcome = TestRunner::new(config).run(&numbers, |numbers| {
            if failure.borrow().is_some() {
                *shrinks.borrow_mut() += 1;
                if *shrinks.borrow() > SHRINKS {
                    return Ok(());
                }
            }
            let mut case = Case::default();
            kind(&mut case, &mut Draw::new(&numbers));
            match subject.run(&case, &streams) {
                Ok(()) => *passed.borrow_mut() = true,
                Err(Failure::Unsupported(call)) => *unsupported.borrow_mut() = Some(call),
                Err(Failure::Failed(message)) => {
                    *failure.borrow_mut() = Some(message);
                    return Err(TestCaseError::fail("it fails"));
                }
            }
            Ok(())
        });
        if let Some(message) = failure.into_inner() {
            return Err(Failure::Failed(format!(
                "{message}\nthe smallest of {cases} random cases that fails, with {SEED}={seed} and {CASES}={cases}"
            )));
        }
        if let Err(error) = outcome {
            return Err(Failure::Failed(format!("cannot draw cases: {error}")));
        }
        match unsupported.into_inner() {
            Some(call) if !passed.into_inner() => Err(Failure::Unsupported(call)),
            _ => Ok(()),
        }
    };
    first_failure(kinds.iter().enumerate().map(of_kind))
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("name", &self.name)
            .field("proves", &self.proves)
            .finish_non_exhaustive()
    }
}
