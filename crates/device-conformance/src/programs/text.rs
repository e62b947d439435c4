//! Drafts as text of any bytes, for a fuzzer and for people.

use device_registry::Device;

use super::Rules;
use super::draw::{Draft, Kind};
use crate::check::DEFAULT_TIME_LIMIT;
use crate::failure::Failure;
use crate::outcome::Outcome;
use crate::watchdog;

/// The kind of step for each digit in the text.
const KINDS: &[Kind] = &[
    Kind::Write,
    Kind::Fill,
    Kind::Copy,
    Kind::Read,
    Kind::Record,
    Kind::Wait,
    Kind::Call,
    Kind::Slice,
    Kind::Allocate,
    Kind::Drop,
];

/// The maximum number of steps, so that every program ends soon. Ignores further lines.
const STEPS: usize = 40;

/// Makes a program of a text, runs it, and compares its results with the model. The error shows the program.
///
/// Each byte is a number, counted from `0`. A missing number is zero. The numbers of the first line are: the
/// streams of each device, minus one; whether blocking calls do some of the work; the number of devices,
/// minus one, all of which are `device`; and the scale of the buffers. Each further line is a step: its kind
/// by its index in `KINDS`, and the numbers that `Rules::program` makes a step of.
pub fn run_program_of(text: &[u8], device: Device) -> Result<(), String> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let [streams, blocking, devices, scale, ..] = numbers(lines.next().unwrap_or_default());
    let steps = lines.take(STEPS).map(numbers).collect();
    let devices = vec![device; 1 + usize::from(devices % 2)];
    let failed = |failure: Failure| format!("{}\nat {}", failure.message, failure.at);
    let rules = Rules::new(&devices, 1 + usize::from(streams % 4), KINDS).map_err(failed)?;
    let rules = if blocking % 2 == 1 { rules.with_blocking() } else { rules };
    let program = rules.program(&Draft::new(scale as u8, steps));
    let printed = program.to_string();
    match watchdog::run("a program", device, DEFAULT_TIME_LIMIT, move || program.execute()) {
        Ok(Outcome::Passed) => Ok(()),
        Ok(Outcome::Failed(why) | Outcome::Unsupported(why)) => Err(format!("{why}\n\n{printed}")),
        Err(hung) => Err(format!("{hung}\n\n{printed}")),
    }
}

fn numbers(line: &[u8]) -> [u16; 8] {
    let number = |at| line.get(at).map_or(0, |byte: &u8| byte.wrapping_sub(b'0').into());
    std::array::from_fn(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_a_number_from_the_digit_zero_on_and_a_missing_one_is_zero() {
        assert_eq!(numbers(b"019:"), [0, 1, 9, 10, 0, 0, 0, 0]);
        assert_eq!(numbers(b"/12345678"), [255, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(numbers(b""), [0; 8]);
    }

    #[test]
    fn a_step_of_every_kind_is_run_by_its_digit() {
        let all: String = (0..KINDS.len()).map(|kind| format!("\n{kind}1")).collect();
        assert_eq!(run_program_of(format!("1111{all}").as_bytes(), Device::cpu()), Ok(()));
    }

    #[test]
    fn a_failure_has_the_program() {
        let error = run_program_of(b"0\n0", Device::parse("cpu:1").unwrap()).unwrap_err();
        assert!(error.contains("unknown device index 1: `cpu` has 1 device"), "{error}");
    }
}
