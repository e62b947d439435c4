//! Operations by themselves: sums of several sizes, and a batch that is joined from rows.

use burn::tensor::{Device, Tensor, TensorData};

use super::{Epoch, Size};
use crate::numbers::Numbers;

/// A chain of sums of `LEN` numbers. burn releases each sum at its last use.
pub(super) fn add<const LEN: usize>(size: Size, device: &Device) -> Epoch {
    // Sums of ones are exact.
    let operations = size.of(if LEN < 1 << 16 { 2000 } else { 40 }, 2);
    let y = Tensor::<1>::ones([LEN], device);
    let mut x = y.clone();
    let run = move || {
        for _ in 0..operations {
            x = x + y.clone();
        }
        vec![x.narrow(0, LEN - 1, 1)]
    };
    Epoch { run: Box::new(run), operations }
}

const ROWS: usize = 256;
const COLUMNS: usize = 8;

/// Rows of the host to one tensor, as a batcher does, and a product that needs it.
pub(super) fn cat(size: Size, device: &Device) -> Epoch {
    let operations = size.of(20, 1);
    let mut numbers = Numbers::new(13);
    let rows: Vec<[f32; COLUMNS]> = (0..ROWS).map(|_| std::array::from_fn(|_| numbers.within(1.0))).collect();
    let weights = TensorData::new(numbers.many(COLUMNS * COLUMNS, 1.0), [COLUMNS, COLUMNS]);
    let weights = Tensor::<2>::from_data(weights, device);
    let device = device.clone();
    let run = move || {
        let batch = || {
            let rows = rows.iter().map(|row| Tensor::<1>::from_floats(*row, &device).unsqueeze());
            Tensor::<2>::cat(rows.collect(), 0).matmul(weights.clone())
        };
        (0..operations).map(|_| batch().narrow(0, ROWS - 1, 1).flatten(0, 1)).collect()
    };
    Epoch { run: Box::new(run), operations }
}
