//! The accuracy, by a plain loop: the network and the comparison run on the device, the count comes back.

use std::fmt;

use burn::data::dataloader::batcher::Batcher;
use burn::prelude::*;
use burn::tensor::TensorReadError;

use crate::batch::DigitBatcher;
use crate::data::Digits;
use crate::model::Network;

/// How many digits a network reads correctly. Prints as a fraction with two decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accuracy {
    /// Digits whose highest score is their label's.
    pub correct: usize,
    /// All digits of the evaluation.
    pub total: usize,
}

impl Accuracy {
    /// The fraction of correct digits; 0 when there are none.
    pub fn fraction(self) -> f64 {
        if self.total == 0 { 0.0 } else { self.correct as f64 / self.total as f64 }
    }
}

impl fmt::Display for Accuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}", self.fraction())
    }
}

/// Evaluates `network` on `digits`, `batch_size` digits at a time.
///
/// Returns the error of the device when a count cannot be read back from it.
///
/// # Panics
///
/// When `batch_size` is 0.
pub fn accuracy(
    network: &Network,
    digits: &Digits,
    batch_size: usize,
    device: &Device,
) -> Result<Accuracy, TensorReadError> {
    let mut correct = 0;
    for chunk in digits.as_slice().chunks(batch_size) {
        let batch = DigitBatcher.batch(chunk.to_vec(), device);
        let guesses = network.forward(batch.images).argmax(1).squeeze_dim::<1>(1);
        correct += guesses.equal(batch.labels).int().sum().try_into_scalar::<i64>()? as usize;
    }
    Ok(Accuracy { correct, total: digits.as_slice().len() })
}
