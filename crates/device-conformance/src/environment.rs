//! The environment variables of the suite, except those of the random programs.

use std::collections::BTreeSet;
use std::env;
use std::time::Duration;

/// Lists the backends that must not be skipped.
pub(crate) const REQUIRE: &str = "DEVICE_CONFORMANCE_REQUIRE";
/// The time limit of each check, in seconds.
pub(crate) const TIME_LIMIT: &str = "DEVICE_CONFORMANCE_TIME_LIMIT";

/// The backends that `DEVICE_CONFORMANCE_REQUIRE` lists.
pub(crate) fn required() -> BTreeSet<String> {
    names(&env::var(REQUIRE).unwrap_or_default())
}

/// The time limit that `DEVICE_CONFORMANCE_TIME_LIMIT` sets, if it does. An invalid value is an error.
pub(crate) fn time_limit() -> Result<Option<Duration>, String> {
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
    fn a_time_limit_is_a_positive_number_of_seconds() {
        assert_eq!(parse_time_limit(None), Ok(None));
        assert_eq!(parse_time_limit(Some("")), Ok(None));
        assert_eq!(parse_time_limit(Some("0.5")), Ok(Some(Duration::from_millis(500))));
        for wrong in ["0", "-1", "10s", "inf", "NaN"] {
            assert!(parse_time_limit(Some(wrong)).unwrap_err().contains(wrong));
        }
    }
}
