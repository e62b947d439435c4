//! Two stacked LSTM cells, written with linear layers, functions of one number and a layer norm. They learn
//! the next number of a wave.

use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::AdamConfig;
use burn::prelude::*;
use burn::tensor::TensorData;
use burn::tensor::activation::sigmoid;

use super::{Epoch, Size, learn};
use crate::numbers::Numbers;
use crate::weights::with_weights;

const HIDDEN: usize = 32;
const BATCH: usize = 32;

#[derive(Module, Debug)]
struct Cell {
    from_input: Linear,
    from_hidden: Linear,
    norm: LayerNorm,
}

/// What a cell remembers: `[batch, HIDDEN]` each.
struct State {
    hidden: Tensor<2>,
    memory: Tensor<2>,
}

impl Cell {
    fn new(inputs: usize, device: &Device) -> Self {
        Self {
            from_input: LinearConfig::new(inputs, 4 * HIDDEN).init(device),
            from_hidden: LinearConfig::new(HIDDEN, 4 * HIDDEN).with_bias(false).init(device),
            norm: LayerNormConfig::new(HIDDEN).init(device),
        }
    }

    fn step(&self, input: Tensor<2>, state: State) -> State {
        let gates = self.from_input.forward(input) + self.from_hidden.forward(state.hidden);
        let gate = |number| gates.clone().narrow(1, number * HIDDEN, HIDDEN);
        let add = sigmoid(gate(0));
        let forget = sigmoid(gate(1));
        let show = sigmoid(gate(2));
        let memory = forget * state.memory + add * gate(3).tanh();
        State { hidden: show * self.norm.forward(memory.clone()).tanh(), memory }
    }

    /// `[batch, time, inputs]` to `[batch, time, HIDDEN]`.
    fn forward(&self, sequence: Tensor<3>) -> Tensor<3> {
        let [batch, time, _] = sequence.dims();
        let zeros = || Tensor::zeros([batch, HIDDEN], &sequence.device());
        let mut state = State { hidden: zeros(), memory: zeros() };
        let mut outputs = Vec::with_capacity(time);
        for now in 0..time {
            state = self.step(sequence.clone().narrow(1, now, 1).squeeze_dim(1), state);
            outputs.push(state.hidden.clone());
        }
        Tensor::stack(outputs, 1)
    }
}

#[derive(Module, Debug)]
struct Network {
    cells: Vec<Cell>,
    output: Linear,
}

impl Network {
    fn new(device: &Device) -> Self {
        Self {
            cells: vec![Cell::new(1, device), Cell::new(HIDDEN, device)],
            output: LinearConfig::new(HIDDEN, 1).init(device),
        }
    }

    fn forward(&self, sequence: Tensor<3>) -> Tensor<2> {
        let outputs = self.cells.iter().fold(sequence, |sequence, cell| cell.forward(sequence));
        let last = outputs.dims()[1] - 1;
        self.output.forward(outputs.narrow(1, last, 1).squeeze_dim(1))
    }
}

/// Waves of `time` numbers, each with the number that follows.
fn waves(count: usize, time: usize) -> Vec<(Vec<f32>, f32)> {
    let mut numbers = Numbers::new(3);
    let wave = |_| {
        let phase = numbers.within(3.0);
        let speed = 0.5 + numbers.within(0.2);
        let mut values: Vec<f32> = (0..=time).map(|at| (phase + speed * at as f32).sin()).collect();
        let next = values.pop().unwrap_or_default();
        (values, next)
    };
    (0..count).map(wave).collect()
}

fn batch(waves: &[(Vec<f32>, f32)], device: &Device) -> (Tensor<3>, Tensor<2>) {
    let row = |(values, _): &(Vec<f32>, f32)| {
        Tensor::<3>::from_data(TensorData::new(values.clone(), [1, values.len(), 1]), device)
    };
    let target = |(_, next): &(Vec<f32>, f32)| Tensor::<2>::from_floats([[*next]], device);
    (Tensor::cat(waves.iter().map(row).collect(), 0), Tensor::cat(waves.iter().map(target).collect(), 0))
}

pub(super) fn prepare(size: Size, device: &Device) -> Epoch {
    let waves = waves(size.of(10, 2) * size.of(BATCH, 4), size.of(40, 4));
    let batch_size = size.of(BATCH, 4);
    let device = device.clone().autodiff();
    let mut model = with_weights(Network::new(&device), 4);
    Epoch::training(move || {
        let mut optimizer = AdamConfig::new().init();
        let mut losses = Vec::new();
        for waves in waves.chunks(batch_size) {
            let (sequences, targets) = batch(waves, &device);
            let loss = MseLoss::new().forward(model.forward(sequences), targets, Reduction::Mean);
            model = learn(loss, model, &mut optimizer, 1e-3, &mut losses);
        }
        losses
    })
}
