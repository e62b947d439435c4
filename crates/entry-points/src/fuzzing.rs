//! The rules of names and switches as pure functions, for this repository's fuzz targets. Not public API.

use std::ffi::OsString;

use crate::claim::Candidate;
use crate::defaults::Defaults;
use crate::entry_point::EntryPoint;
use crate::pattern::Pattern;
use crate::switches::{Settings, Switches};
use crate::verdict::{judge, standing};

pub use crate::claim::Claim;
pub use crate::verdict::{Standing, Verdict};

/// The switches of a group, from the environment or from code.
pub struct Rules(Settings);

impl Rules {
    /// Reads `PREFIX_AUTOLOAD`, `_INSTALLED`, `_DISABLE` and `_SELECT` through `read`.
    pub fn from_env(prefix: &str, read: impl Fn(&str) -> Option<OsString>) -> Self {
        Self(Settings::from_env(prefix, &Defaults::new(), read))
    }

    /// Takes the switches that a program sets in code.
    pub fn from_code(switches: &Switches) -> Self {
        Self(Settings::from_code(switches))
    }

    /// The verdict on each claim to one name, and the decision on the name. There is at least one claim.
    pub fn judge<P: ?Sized>(
        &self,
        claims: &[(&'static EntryPoint<P>, Claim)],
        reserved: bool,
    ) -> (Vec<Verdict>, Standing) {
        let candidates: Vec<_> = claims.iter().map(|&(point, claim)| Candidate { point, claim }).collect();
        let verdicts = judge(&candidates, reserved, &self.0);
        let standing = standing(&candidates, &verdicts);
        (verdicts, standing)
    }

    /// The complaints about invalid values.
    pub fn complaints(&self) -> &[String] {
        &self.0.complaints
    }

    /// The complaints about patterns without effect on these entry points. `true` marks a built-in one.
    pub fn idle_patterns<P: ?Sized>(&self, points: &[(&'static EntryPoint<P>, bool)]) -> Vec<String> {
        self.0.idle_patterns(points)
    }
}

/// Whether a pattern matches an entry point.
pub fn matches<P: ?Sized>(pattern: &str, point: &EntryPoint<P>) -> bool {
    Pattern::new(pattern).matches(point)
}
