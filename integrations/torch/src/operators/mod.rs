//! PyTorch's operators in terms of `device-kernels`.
//!
//! A structured PyTorch operator, with all of its forms, ends in one whose name has `out`, with a tensor
//! of the right shape for the result. So most names below are of that form. What no kernel has is declined:
//! then the CPU computes it.

mod call;
mod elementwise;
mod images;
mod indices;
mod losses;
mod matrices;
mod norms;
mod promotion;
mod random;
mod reductions;

pub(crate) use call::{Array, Call, Input, Shape, Tensor, Value, broadcast, number_of};

use std::sync::OnceLock;

use device_kernels::Kernels;

use crate::devices;
use crate::failure::Failure;

/// Computes an operator, or declines.
pub(crate) type Compute = fn(&Call<'_>) -> Result<(), Failure>;

/// A PyTorch name, with its overload, and what computes it.
pub(crate) type Row = (&'static str, Compute);

/// All operators that have kernels.
pub(crate) static TABLE: &[Row] = &concat::<COUNT>(&[
    elementwise::TABLE,
    images::TABLE,
    indices::TABLE,
    losses::TABLE,
    matrices::TABLE,
    norms::TABLE,
    random::TABLE,
    reductions::TABLE,
]);

const COUNT: usize = elementwise::TABLE.len()
    + images::TABLE.len()
    + indices::TABLE.len()
    + losses::TABLE.len()
    + matrices::TABLE.len()
    + norms::TABLE.len()
    + random::TABLE.len()
    + reductions::TABLE.len();

const fn concat<const N: usize>(tables: &[&[Row]]) -> [Row; N] {
    let mut all: [Row; N] = [("", nothing); N];
    let mut table = 0;
    let mut at = 0;
    while table < tables.len() {
        let mut row = 0;
        while row < tables[table].len() {
            all[at] = tables[table][row];
            at += 1;
            row += 1;
        }
        table += 1;
    }
    all
}

fn nothing(_: &Call<'_>) -> Result<(), Failure> {
    Ok(())
}

/// Whether a device has kernels at all.
pub(crate) fn has_kernels(device: usize) -> bool {
    static HAS_KERNELS: [OnceLock<bool>; devices::MOST] = [const { OnceLock::new() }; devices::MOST];
    // A set that does not load is its own reason, which a call then gets.
    let look = || {
        devices::all()
            .get(device)
            .is_none_or(|&device| Kernels::of(device).map_or(true, |k| !k.sets().is_empty()))
    };
    HAS_KERNELS.get(device).is_none_or(|known| *known.get_or_init(look))
}

/// Declines at once where the device has no kernels at all.
pub(crate) fn check_kernels(values: &[Value<'_>]) -> Result<(), Failure> {
    let device = values.iter().find_map(|value| match value {
        Value::Tensor(tensor) => usize::try_from(tensor.device).ok(),
        _ => None,
    });
    if device.is_none_or(has_kernels) { Ok(()) } else { Err(Failure::declined("its backend has no kernels")) }
}
