//! The tables that the program prints.

use device_burn::Counts;

use crate::cases::{Case, Unit};
use crate::rounds::{Measured, Place};

const NAME: usize = 12;
const COLUMN: usize = 22;

/// The line with the devices' names.
#[must_use]
pub fn header(places: &[Place]) -> String {
    let mut line = format!("{:NAME$}", "");
    for place in places {
        line += &format!("  {:>COLUMN$}", place.name);
    }
    line
}

/// The times of a case, and what each is beside the first.
#[must_use]
pub fn times(case: &Case, measured: &[Measured]) -> String {
    let mut line = format!("{:NAME$}", case.name);
    for (number, Measured { time, ratio, .. }) in measured.iter().enumerate() {
        let text = match case.unit {
            Unit::Epoch => format!("{:.2} ms", time.as_secs_f64() * 1e3),
            Unit::Operation => format!("{:.2} µs", time.as_secs_f64() * 1e6),
        };
        let ratio = match number {
            0 => String::new(),
            _ => format!("{ratio:.2}"),
        };
        line += &format!("  {text:>14}{ratio:>8}");
    }
    line
}

/// How many of a case's operations were by kernels, by burn's CPU engine though there is a kernel, views, and
/// fell back.
#[must_use]
pub fn counts(case: &Case, measured: &[Measured]) -> String {
    let mut line = format!("{:NAME$}", case.name);
    for Measured { counts, .. } in measured {
        let text = counts.as_ref().map_or(String::new(), |counts| {
            let [native, host] = [counts.native(), counts.on_host()];
            format!("{native} / {host} / {} / {}", views(counts), counts.fallbacks())
        });
        line += &format!("  {text:>COLUMN$}");
    }
    line
}

fn views(counts: &Counts) -> u64 {
    counts.operations.iter().map(|operation| operation.views).sum()
}

/// The operations that fell back though others did not, or `None`.
#[must_use]
pub fn fallbacks(case: &Case, place: &Place, counts: &Counts) -> Option<String> {
    if counts.native() + counts.on_host() == 0 || counts.fallbacks() == 0 {
        return None;
    }
    let names = counts.operations.iter().filter(|operation| operation.fallback > 0);
    let names: Vec<_> =
        names.map(|operation| format!("{} {}", operation.operation, operation.fallback)).collect();
    Some(format!("`{}` on {} fell back: {}", case.name, place.name, names.join(", ")))
}
