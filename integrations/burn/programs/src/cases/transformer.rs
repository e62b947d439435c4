//! A classifier of texts: embeddings of words and of places, burn's transformer encoder, a linear layer.

use burn::nn::attention::generate_padding_mask;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::optim::AdamConfig;
use burn::prelude::*;

use super::{Epoch, Size, learn};
use crate::numbers::Numbers;
use crate::weights::with_weights;

const PADDING: usize = 0;
const CLASSES: usize = 4;

/// The sizes of a network and of its texts.
#[derive(Clone, Copy)]
struct Sizes {
    words: usize,
    longest: usize,
    model: usize,
    batch: usize,
}

#[derive(Module, Debug)]
struct Network {
    words: Embedding,
    places: Embedding,
    encoder: TransformerEncoder,
    output: Linear,
}

impl Network {
    fn new(sizes: Sizes, device: &Device) -> Self {
        let encoder = TransformerEncoderConfig::new(sizes.model, 4 * sizes.model, 4, 2)
            .with_dropout(0.0)
            .with_norm_first(true)
            .with_quiet_softmax(true);
        Self {
            words: EmbeddingConfig::new(sizes.words, sizes.model).init(device),
            places: EmbeddingConfig::new(sizes.longest, sizes.model).init(device),
            encoder: encoder.init(device),
            output: LinearConfig::new(sizes.model, CLASSES).init(device),
        }
    }

    fn forward(&self, words: Tensor<2, Int>, padding: Tensor<2, Bool>) -> Tensor<2> {
        let [texts, length] = words.dims();
        let places = Tensor::arange(0..length as i64, &words.device()).unsqueeze::<2>().repeat_dim(0, texts);
        let embedded = self.words.forward(words) + self.places.forward(places);
        let encoded = self.encoder.forward(TransformerEncoderInput::new(embedded).mask_pad(padding));
        // The first word stands for the text.
        self.output.forward(encoded.narrow(1, 0, 1).squeeze_dim(1))
    }
}

/// A text as its words, and its class.
struct Text {
    words: Vec<usize>,
    class: i64,
}

fn texts(count: usize, sizes: Sizes) -> Vec<Text> {
    let mut numbers = Numbers::new(5);
    let text = |_| {
        let length = sizes.longest / 2 + numbers.below(sizes.longest / 2 + 1);
        let words: Vec<_> = (0..length).map(|_| 1 + numbers.below(sizes.words - 1)).collect();
        let class = (words[0] + words[1]) % CLASSES;
        Text { words, class: class as i64 }
    };
    (0..count).map(text).collect()
}

pub(super) fn prepare(size: Size, device: &Device) -> Epoch {
    let sizes = match size {
        Size::Full => Sizes { words: 1000, longest: 48, model: 128, batch: 16 },
        Size::Tiny => Sizes { words: 20, longest: 6, model: 8, batch: 2 },
    };
    let texts = texts(size.of(8, 2) * sizes.batch, sizes);
    let device = device.clone().autodiff();
    let mut model = with_weights(Network::new(sizes, &device), 6);
    Epoch::training(move || {
        let mut optimizer = AdamConfig::new().init();
        let loss = CrossEntropyLossConfig::new().init(&device);
        let mut losses = Vec::new();
        for texts in texts.chunks(sizes.batch) {
            let words = texts.iter().map(|text| text.words.clone()).collect();
            let words = generate_padding_mask(PADDING, words, Some(sizes.longest), &device);
            let classes = texts.iter().map(|text| Tensor::from_ints([text.class], &device));
            let loss =
                loss.forward(model.forward(words.tensor, words.mask), Tensor::cat(classes.collect(), 0));
            model = learn(loss, model, &mut optimizer, 1e-3, &mut losses);
        }
        losses
    })
}
