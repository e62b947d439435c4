//! Why an operator was not enqueued, and what kernels there are instead.

use std::fmt;

use device_registry::{Device, DeviceError};
use entry_points::LoadError;

use crate::buffers::BufferProblem;
use crate::call::{Call, CallError};
use crate::coverage::Coverage;
use crate::dtype::DType;
use crate::set::LinkedSet;

/// Why an operator was not enqueued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The arguments do not fit the operator.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A buffer does not fit its array.
    #[error("{call}: {problem}")]
    #[non_exhaustive]
    Buffers {
        /// The call.
        call: Call,
        /// What is wrong with the buffer.
        #[source]
        problem: BufferProblem,
    },
    /// A kernel set is linked and does not load.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// No kernel set has a kernel for the call.
    #[error("{call}: no kernel for `{device}`: {sets}{}", Why { call, device: *device, sets: &sets.0 })]
    #[non_exhaustive]
    Unsupported {
        /// The call.
        call: Call,
        /// The device.
        device: Device,
        /// The sets that were asked.
        sets: Sets,
    },
    /// An expression that no set has as a whole, in the place of a call that is one launch.
    #[error("{call}: no kernel set has the whole expression; `Planned::enqueue` and `run` do it in parts")]
    #[non_exhaustive]
    Parts {
        /// The call.
        call: Call,
    },
    /// The stream refused it.
    #[error("{call}: not enqueued")]
    #[non_exhaustive]
    Device {
        /// The call.
        call: Call,
        /// The error of the stream.
        #[source]
        error: DeviceError,
    },
}

/// The kernel sets of a backend. `Display` says what to do if there are none.
#[derive(Clone, Debug)]
pub struct Sets(pub(crate) Vec<LinkedSet>);

impl fmt::Display for Sets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(
                "no kernel set of its backend is linked, or it is switched off; add the crate of one to Cargo.toml",
            );
        }
        let names: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        write!(f, "these kernel sets do not have it: {}", names.join(", "))
    }
}

/// Why kernel sets have no kernel for a call; a message names the sets before it.
struct Why<'a> {
    call: &'a Call,
    device: Device,
    sets: &'a [LinkedSet],
}

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.sets.is_empty() {
            return Ok(());
        }
        let coverage: Vec<_> = self.sets.iter().flat_map(|set| set.set().coverage(self.device)).collect();
        let properties = self.device.properties();
        let doubles = properties.ok().and_then(|properties| properties.is_native_dtype("f64"));
        f.write_str(&missing(self.call, &coverage, doubles))
    }
}

/// What there is instead of a kernel for a call. `doubles` says whether the device computes with `f64`.
fn missing(call: &Call, coverage: &[Coverage], doubles: Option<bool>) -> String {
    let name = call.operator().name();
    let there: Vec<_> =
        coverage.iter().filter(|one| one.operator() == name).map(ToString::to_string).collect();
    let mut text = match there.is_empty() {
        true => format!("; they have no `{name}`"),
        false => format!("; they have {}", there.join("; ")),
    };
    if doubles == Some(false) && call.arrays().any(|(dtype, _)| dtype == DType::F64) {
        text += "; the device does not compute with f64";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::argument::Argument;
    use crate::layout::Layout;
    use crate::operator::Binary;

    #[test]
    fn a_call_without_a_kernel_says_what_there_is() {
        let call = |operator: Binary| {
            let array = Argument::Array(DType::F64, Layout::contiguous([2]).unwrap());
            Call::new(operator, &[array, array], &[array]).unwrap()
        };
        let coverage = [Coverage::of("add").dtypes([DType::F32, DType::F16]).contiguous()];
        let without = "; they have add of f32, f16, contiguous; the device does not compute with f64";
        assert_eq!(missing(&call(Binary::Add), &coverage, Some(false)), without);
        assert_eq!(missing(&call(Binary::Add), &coverage, None), "; they have add of f32, f16, contiguous");
        assert_eq!(missing(&call(Binary::Sub), &coverage, Some(true)), "; they have no `sub`");
    }
}
