//! Prints a program as Rust code.

use std::fmt;

use super::{By, Program, Step};

/// Bytes as a Rust expression.
struct Literal<'a>(&'a [u8]);

impl fmt::Display for Literal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [first, rest @ ..] if rest.len() > 3 && rest.iter().all(|byte| byte == first) => {
                write!(f, "[{first:#04x}; {}]", self.0.len())
            }
            bytes => {
                f.write_str("[")?;
                for (index, byte) in bytes.iter().enumerate() {
                    let comma = if index > 0 { ", " } else { "" };
                    write!(f, "{comma}{byte:#04x}")?;
                }
                f.write_str("]")
            }
        }
    }
}

/// Prints a `main.rs` that does the same as the program, through the public API, and panics where it fails.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEAD)?;
        for (index, device) in self.devices.iter().enumerate() {
            writeln!(f, "    let d{index} = device(\"{device}\")?;")?;
        }
        let streams: Vec<_> = self.used_streams().collect();
        for stream in &streams {
            writeln!(f, "    let s{stream} = d{}.create_stream()?;", self.streams[*stream])?;
        }
        let mut buffers = 0..;
        let mut events = 0..;
        let mut reads = 0..;
        let next = |numbers: &mut std::ops::RangeFrom<usize>| numbers.next().unwrap_or_default();
        for step in &self.steps {
            match step {
                Step::Allocate { device, len, seed } => {
                    let b = next(&mut buffers);
                    writeln!(f, "    let b{b} = d{device}.allocate({len})?;")?;
                    writeln!(f, "    b{b}.write(0, &bytes({seed}, {len}))?;")?;
                }
                Step::Slice { of, range } => {
                    writeln!(f, "    let b{} = b{of}.slice({range:?})?;", next(&mut buffers))?;
                }
                Step::Drop { buffer } => writeln!(f, "    drop(b{buffer});")?,
                Step::Write { by: By::Host, buffer, at, len, seed } => {
                    writeln!(f, "    b{buffer}.write({at}, &bytes({seed}, {len}))?;")?;
                }
                Step::Write { by: By::Stream(s), buffer, at, len, seed } => {
                    writeln!(f, "    s{s}.write(&b{buffer}, {at}, bytes({seed}, {len}))?;")?;
                }
                Step::Fill { by: By::Host, buffer, range, pattern } => {
                    writeln!(f, "    b{buffer}.fill({range:?}, &{})?;", Literal(pattern))?;
                }
                Step::Fill { by: By::Stream(s), buffer, range, pattern } => {
                    writeln!(f, "    s{s}.fill(&b{buffer}, {range:?}, &{})?;", Literal(pattern))?;
                }
                Step::Copy { by: By::Host, from, range, to, at } => {
                    let target = *at..*at + range.len();
                    writeln!(f, "    b{to}.slice({target:?})?.copy_from(&b{from}.slice({range:?})?)?;")?;
                }
                Step::Copy { by: By::Stream(s), from, range, to, at } => {
                    let target = *at..*at + range.len();
                    writeln!(f, "    s{s}.copy(&b{from}.slice({range:?})?, &b{to}.slice({target:?})?)?;")?;
                }
                Step::Read { by: By::Host, buffer, range, expected } => {
                    let part = format!("&b{buffer}.slice({range:?})?");
                    writeln!(f, "    assert_eq!(content({part})?, {});", Literal(expected))?;
                }
                Step::Read { by: By::Stream(s), buffer, range, .. } => {
                    writeln!(f, "    let r{} = s{s}.read(&b{buffer}, {range:?})?;", next(&mut reads))?;
                }
                Step::Call { stream, micros } => {
                    let sleep = format!("std::thread::sleep(std::time::Duration::from_micros({micros}))");
                    writeln!(f, "    s{stream}.host_call(|| {sleep})?;")?;
                }
                Step::Record { stream } => {
                    writeln!(f, "    let e{} = s{stream}.record()?;", next(&mut events))?;
                }
                Step::Wait { by: By::Host, event } => writeln!(f, "    e{event}.synchronize()?;")?,
                Step::Wait { by: By::Stream(s), event } => writeln!(f, "    s{s}.wait_event(&e{event})?;")?,
            }
        }
        for stream in streams {
            writeln!(f, "    s{stream}.synchronize()?;")?;
        }
        let read = |step: &Step| match step {
            Step::Read { by: By::Stream(_), expected, .. } => Some(Literal(expected).to_string()),
            _ => None,
        };
        for (index, expected) in self.steps.iter().filter_map(read).enumerate() {
            writeln!(f, "    assert_eq!(*r{index}.wait()?, {expected});")?;
        }
        for (buffer, expected) in &self.end {
            writeln!(f, "    assert_eq!(content(&b{buffer})?, {});", Literal(expected))?;
        }
        f.write_str("    Ok(())\n}\n")
    }
}

const HEAD: &str = r#"//! A program that the conformance suite has made.

use device_registry::{Buffer, DeviceError, device};

device_registry::autoload!();

/// `len` bytes, different for each seed.
fn bytes(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i as u32).wrapping_mul(0x9E37_79B1) >> 24) as u8 ^ seed.wrapping_mul(0x3D)).collect()
}

fn content(buffer: &Buffer) -> Result<Vec<u8>, DeviceError> {
    let mut bytes = vec![0xA5; buffer.len()];
    buffer.read(0, &mut bytes)?;
    Ok(bytes)
}

fn main() -> Result<(), DeviceError> {
"#;

#[cfg(test)]
mod tests {
    use device_registry::Device;

    use super::*;
    use crate::context::bytes;

    /// The program in `tests/printed_program.rs`, with a step of each kind.
    fn program() -> Program {
        let host = By::Host;
        let first = By::Stream(0);
        let second = By::Stream(2);
        let one = bytes(1, 6);
        let two = bytes(2, 4);
        let steps = vec![
            Step::Allocate { device: 0, len: 8, seed: 0 },
            Step::Allocate { device: 1, len: 6, seed: 1 },
            Step::Slice { of: 0, range: 2..8 },
            Step::Call { stream: 0, micros: 500 },
            Step::Fill { by: first, buffer: 0, range: 0..8, pattern: vec![0x11, 0x22] },
            Step::Read { by: first, buffer: 2, range: 0..2, expected: vec![0x11, 0x22] },
            Step::Write { by: first, buffer: 2, at: 1, len: 4, seed: 2 },
            Step::Record { stream: 0 },
            Step::Wait { by: second, event: 0 },
            Step::Copy { by: second, from: 2, range: 1..5, to: 1, at: 2 },
            Step::Read { by: second, buffer: 1, range: 2..6, expected: two.clone() },
            Step::Drop { buffer: 2 },
            Step::Record { stream: 2 },
            Step::Wait { by: host, event: 1 },
            Step::Read { by: host, buffer: 1, range: 0..2, expected: one[..2].to_vec() },
            Step::Write { by: host, buffer: 1, at: 0, len: 1, seed: 3 },
            Step::Copy { by: host, from: 1, range: 0..1, to: 0, at: 7 },
            Step::Fill { by: host, buffer: 1, range: 0..6, pattern: vec![0x33] },
        ];
        let last = [&[0x11, 0x22, 0x11][..], &two, &bytes(3, 1)].concat();
        let end = vec![(0, last), (1, vec![0x33; 6])];
        Program { devices: vec![Device::cpu(); 2], streams: vec![0, 0, 1], steps, end }
    }

    #[test]
    fn a_printed_program_is_the_one_that_is_run_as_a_test() {
        let printed = program().to_string();
        let run = include_str!("../../tests/printed_program.rs");
        assert!(printed == run, "tests/printed_program.rs has to be:\n{printed}");
    }

    #[test]
    fn the_program_that_is_printed_passes_as_the_one_that_is_executed() {
        program().execute().unwrap();
    }
}
