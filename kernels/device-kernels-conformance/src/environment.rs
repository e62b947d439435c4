//! The environment variables of the suite. They have the names that they have in `device-conformance`.

use std::collections::BTreeSet;
use std::env;
use std::time::Duration;

use crate::check::DEFAULT_TIME_LIMIT;

/// Lists the backends that must not be skipped.
pub(crate) const REQUIRE: &str = "DEVICE_CONFORMANCE_REQUIRE";
/// The time limit of each check, in seconds.
const TIME_LIMIT: &str = "DEVICE_CONFORMANCE_TIME_LIMIT";
/// The seed of the random cases.
pub(crate) const SEED: &str = "DEVICE_CONFORMANCE_SEED";
/// How many random cases each check runs, of each kind that it has, such as each type.
pub(crate) const CASES: &str = "DEVICE_CONFORMANCE_CASES";
/// So many by default.
const DEFAULT_CASES: u32 = 8;

/// How checks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) seed: u64,
    pub(crate) cases: u32,
    pub(crate) limit: Duration,
}

impl Settings {
    /// Reads the environment variables.
    pub(crate) fn from_env() -> Result<Self, String> {
        let value = |name| env::var(name).unwrap_or_default();
        Self::parse(&value(SEED), &value(CASES), &value(TIME_LIMIT))
    }

    fn parse(seed: &str, cases: &str, limit: &str) -> Result<Self, String> {
        fn number<T: std::str::FromStr>(name: &str, value: &str, default: T) -> Result<T, String> {
            match value {
                "" => Ok(default),
                _ => value.parse().map_err(|_| format!("invalid {name}: expected a number, found `{value}`")),
            }
        }
        let seed = number(SEED, seed, 0)?;
        let cases = number(CASES, cases, DEFAULT_CASES)?;
        if cases == 0 {
            return Err(format!("invalid {CASES}: expected a number from 1 on, found `0`"));
        }
        let seconds = number(TIME_LIMIT, limit, DEFAULT_TIME_LIMIT.as_secs_f64())?;
        let limit = Duration::try_from_secs_f64(seconds).ok().filter(|limit| !limit.is_zero());
        let limit = limit.ok_or_else(|| {
            format!("invalid {TIME_LIMIT}: expected a positive number of seconds, found `{seconds}`")
        })?;
        Ok(Self { seed, cases, limit })
    }
}

/// The backends that `DEVICE_CONFORMANCE_REQUIRE` lists.
pub(crate) fn required() -> BTreeSet<String> {
    names(&env::var(REQUIRE).unwrap_or_default())
}

fn names(list: &str) -> BTreeSet<String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_positive_numbers() {
        let limit = DEFAULT_TIME_LIMIT;
        assert_eq!(Settings::parse("", "", ""), Ok(Settings { seed: 0, cases: DEFAULT_CASES, limit }));
        let limit = Duration::from_millis(1500);
        assert_eq!(Settings::parse("7", "100", "1.5"), Ok(Settings { seed: 7, cases: 100, limit }));
        for (seed, cases, limit) in
            [("x", "", ""), ("", "0", ""), ("", "", "-1"), ("", "", "0"), ("", "", "inf")]
        {
            assert!(Settings::parse(seed, cases, limit).is_err());
        }
    }

    #[test]
    fn a_list_of_names_is_separated_by_commas() {
        assert_eq!(names(" cpu,openreg ,,").into_iter().collect::<Vec<_>>(), ["cpu", "openreg"]);
    }
}
