//! Programs of buffers, streams and events, run on the cpu and compared with a sequential model.

use device_conformance::run_program_of;
use device_registry::Device;

/// The input is a program in the text form of `device_conformance::run_program_of`.
pub fn program(input: &[u8]) {
    if let Err(failure) = run_program_of(input, Device::cpu()) {
        panic!("{failure}");
    }
}
