//! The rules of names and switches as pure functions, for this repository's fuzz targets. Not public API.

use std::ffi::OsString;

use crate::entry_point::EntryPoint;
use crate::pattern::Pattern;
use crate::switches::{Settings, Switches};
use crate::verdict::{Candidate, judge, standing};
pub use crate::verdict::{Claim, Standing, Verdict};

/// The switches of a group, wherever they come from.
pub struct Rules(Settings);

impl Rules {
    /// Reads `PREFIX_AUTOLOAD`, `PREFIX_DISABLE` and `PREFIX_SELECT` through `read`.
    pub fn from_env(prefix: &str, read: impl Fn(&str) -> Option<OsString>) -> Self {
        Self(Settings::from_env(prefix, read))
    }

    /// Those that a program sets.
    pub fn from_code(switches: &Switches) -> Self {
        Self(Settings::from_code(switches))
    }

    /// The verdict on each claim to one name, of which there is at least one, and what they come to.
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

    /// The complaints about values that no switch has.
    pub fn complaints(&self) -> &[String] {
        &self.0.complaints
    }

    /// The complaints about patterns without effect on these entry points; `true` is for one that is built in.
    pub fn idle_patterns<P: ?Sized>(&self, points: &[(&'static EntryPoint<P>, bool)]) -> Vec<String> {
        self.0.idle_patterns(points)
    }
}

/// Whether a pattern matches an entry point.
pub fn matches<P: ?Sized>(pattern: &str, point: &EntryPoint<P>) -> bool {
    Pattern::new(pattern).matches(point)
}
