//! The environment variables of the suite.

use std::collections::BTreeSet;
use std::env;
use std::time::Duration;

/// The variable that lists the backends that must not be skipped.
pub const REQUIRE: &str = "DEVICE_CONFORMANCE_REQUIRE";
/// The time limit of each check, in seconds.
pub(crate) const TIME_LIMIT: &str = "DEVICE_CONFORMANCE_TIME_LIMIT";
/// The variable with the seed of random cases.
pub const SEED: &str = "DEVICE_CONFORMANCE_SEED";
/// The variable with the number of random cases that a check runs, of each kind that it has.
pub const CASES: &str = "DEVICE_CONFORMANCE_CASES";
/// Where the checks run: `shared`, `own` or `here`.
pub(crate) const PROCESS: &str = "DEVICE_CONFORMANCE_PROCESS";
/// Set in a process that another one of the suite has started to run checks.
pub(crate) const WORKER: &str = "DEVICE_CONFORMANCE_WORKER";

/// What a process is for that another one of the suite has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worker {
    /// It runs checks at the same time.
    Shared,
    /// It runs one check, and reports each call into a driver.
    Traced,
}

impl Worker {
    /// The value of [`WORKER`].
    pub(crate) fn value(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Traced => "traced",
        }
    }
}

/// Whether another process of the suite has started this one. A value that the suite never sets is an error:
/// a process that takes itself for a worker runs no checks of its own accord.
pub(crate) fn worker() -> Result<Option<Worker>, String> {
    let Ok(value) = env::var(WORKER) else { return Ok(None) };
    if value.is_empty() {
        return Ok(None);
    }
    let worker = [Worker::Shared, Worker::Traced].into_iter().find(|worker| worker.value() == value);
    worker.map(Some).ok_or_else(|| {
        format!(
            "invalid {WORKER}: `{value}`\nhelp: unset it; the suite sets it for the processes that it starts"
        )
    })
}

/// In which process a check runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Processes {
    /// All checks share one process, as long as it does not crash.
    Shared,
    /// Each check has its own process.
    Own,
    /// All checks run in the process that prints the report, as a debugger prefers it.
    Here,
}

/// What `DEVICE_CONFORMANCE_PROCESS` chooses, if it is set. An invalid value is an error.
pub(crate) fn processes() -> Result<Option<Processes>, String> {
    match env::var(PROCESS).as_deref() {
        Err(_) | Ok("") => Ok(None),
        Ok("shared") => Ok(Some(Processes::Shared)),
        Ok("own") => Ok(Some(Processes::Own)),
        Ok("here") => Ok(Some(Processes::Here)),
        Ok(other) => Err(format!("invalid {PROCESS}: expected `shared`, `own` or `here`, found `{other}`")),
    }
}

/// The random cases of a check: [`SEED`] and [`CASES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomCases {
    /// Where the random numbers begin. The same seed makes the same cases.
    pub seed: u64,
    /// How many cases there are, at least one.
    pub cases: u32,
}

impl RandomCases {
    /// Reads the variables.
    ///
    /// # Errors
    ///
    /// If one has an invalid value. Says which.
    pub fn from_env(default_cases: u32) -> Result<Self, String> {
        let value = |name| env::var(name).unwrap_or_default();
        Self::parse(&value(SEED), &value(CASES), default_cases)
    }

    fn parse(seed: &str, cases: &str, default_cases: u32) -> Result<Self, String> {
        let number = |name, value: &str, default| match value {
            "" => Ok(default),
            _ => value.parse().map_err(|_| format!("invalid {name}: expected a number, found `{value}`")),
        };
        let seed = number(SEED, seed, 0)?;
        let cases = number(CASES, cases, default_cases.into())?;
        match u32::try_from(cases) {
            Ok(cases) if cases > 0 => Ok(Self { seed, cases }),
            _ => Err(format!("invalid {CASES}: expected a number from 1 to {}, found {cases}", u32::MAX)),
        }
    }
}

/// The backends that `DEVICE_CONFORMANCE_REQUIRE` lists.
#[must_use]
pub fn required() -> BTreeSet<String> {
    names(&env::var(REQUIRE).unwrap_or_default())
}

/// The time limit of each check that `DEVICE_CONFORMANCE_TIME_LIMIT` sets, if it does.
///
/// # Errors
///
/// If it is not a positive number of seconds.
pub fn time_limit() -> Result<Option<Duration>, String> {
    parse_time_limit(env::var(TIME_LIMIT).ok().as_deref())
}

/// The names in a comma-separated list.
pub(crate) fn names(list: &str) -> BTreeSet<String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn parse_time_limit(value: Option<&str>) -> Result<Option<Duration>, String> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
    let seconds = value.parse().ok().filter(|&seconds: &f64| seconds > 0.0);
    let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match limit {
        Some(limit) => Ok(Some(limit)),
        None => Err(format!("invalid {TIME_LIMIT}: expected a positive number of seconds, found `{value}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_names_is_separated_by_commas() {
        assert_eq!(names(" cpu,openreg ,,").into_iter().collect::<Vec<_>>(), ["cpu", "openreg"]);
        assert!(names("").is_empty());
    }

    #[test]
    fn random_cases_are_numbers() {
        let parse = |seed, cases| RandomCases::parse(seed, cases, 48);
        assert_eq!(parse("", ""), Ok(RandomCases { seed: 0, cases: 48 }));
        assert_eq!(parse("12", "1000"), Ok(RandomCases { seed: 12, cases: 1000 }));
        assert_eq!(
            parse("x", "").unwrap_err(),
            "invalid DEVICE_CONFORMANCE_SEED: expected a number, found `x`"
        );
        for wrong in ["0", "-1", "4294967296", "many"] {
            assert!(parse("", wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_time_limit_is_a_positive_number_of_seconds() {
        assert_eq!(parse_time_limit(None), Ok(None));
        assert_eq!(parse_time_limit(Some("")), Ok(None));
        assert_eq!(parse_time_limit(Some("0.5")), Ok(Some(Duration::from_millis(500))));
        for wrong in ["0", "-1", "10s", "inf", "NaN"] {
            assert!(parse_time_limit(Some(wrong)).unwrap_err().contains(wrong));
        }
    }
}
