//! From digits to tensors on a device.

use burn::data::dataloader::batcher::Batcher;
use burn::prelude::*;
use burn::tensor::TensorData;

use crate::data::{Digit, MAX_PIXEL, PIXELS, SIDE};

/// Some digits as tensors.
#[derive(Clone, Debug)]
pub struct DigitBatch {
    /// The pictures, `[digits, 1, 8, 8]`, each pixel between 0 and 1.
    pub images: Tensor<4>,
    /// The labels, `[digits]`.
    pub labels: Tensor<1, Int>,
}

/// Makes a [`DigitBatch`] of the digits that a data loader picks.
#[derive(Clone, Copy, Debug, Default)]
pub struct DigitBatcher;

impl Batcher<Digit, DigitBatch> for DigitBatcher {
    fn batch(&self, digits: Vec<Digit>, device: &Device) -> DigitBatch {
        // One upload for the pictures and one for the labels.
        let mut pixels = Vec::with_capacity(digits.len() * PIXELS);
        for digit in &digits {
            pixels.extend(digit.pixels.map(|pixel| f32::from(pixel) / f32::from(MAX_PIXEL)));
        }
        let labels = digits.iter().map(|digit| i64::from(digit.label)).collect::<Vec<_>>();
        DigitBatch {
            images: Tensor::from_data(TensorData::new(pixels, [digits.len(), 1, SIDE, SIDE]), device),
            labels: Tensor::from_data(TensorData::new(labels, [digits.len()]), device),
        }
    }
}
