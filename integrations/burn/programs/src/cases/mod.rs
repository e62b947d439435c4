//! The cases, by their names.

mod cnn;
mod lstm;
mod operations;
mod regression;
mod transformer;
mod wgan;

use burn::module::Module;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Tensor};

/// What can be timed: one epoch of a training, or some operations.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a few words.
    pub title: &'static str,
    /// What its time is divided by.
    pub unit: Unit,
    prepare: fn(Size, &Device) -> Epoch,
}

/// What a case counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// An epoch.
    Epoch,
    /// An operation.
    Operation,
}

/// How much a case computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Enough to measure.
    Full,
    /// Just enough to show that it works: for builds without optimization.
    Tiny,
}

impl Size {
    /// The number for this size.
    fn of(self, full: usize, tiny: usize) -> usize {
        match self {
            Self::Full => full,
            Self::Tiny => tiny,
        }
    }
}

/// An epoch that can begin: its weights and what does not count are on the device.
pub struct Epoch {
    /// Runs it and returns its losses, or other results that devices have to agree on. They need not be
    /// computed yet.
    pub run: Box<dyn FnOnce() -> Vec<Tensor<1>>>,
    /// How many operations it is, for [`Unit::Operation`].
    pub operations: usize,
}

impl Epoch {
    fn training(run: impl FnOnce() -> Vec<Tensor<1>> + 'static) -> Self {
        Self { run: Box::new(run), operations: 1 }
    }
}

impl Case {
    /// Makes an epoch with new weights: each is the same as the one before.
    #[must_use]
    pub fn prepare(&self, size: Size, device: &Device) -> Epoch {
        (self.prepare)(size, device)
    }

    /// The case of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        CASES.iter().find(|case| case.name == name)
    }
}

const fn program(name: &'static str, title: &'static str, prepare: fn(Size, &Device) -> Epoch) -> Case {
    Case { name, title, unit: Unit::Epoch, prepare }
}

const fn operation(name: &'static str, title: &'static str, prepare: fn(Size, &Device) -> Epoch) -> Case {
    Case { name, title, unit: Unit::Operation, prepare }
}

/// All cases, in the order of the tables.
pub const CASES: [Case; 9] = [
    program("regression", "a perceptron, with batches of single rows", regression::prepare),
    program("lstm", "two stacked cells of basic operations", lstm::prepare),
    program("transformer", "burn's encoder, as a classifier of texts", transformer::prepare),
    program("wgan", "a generator with batch norms, and its critic", wgan::prepare),
    program("cnn", "two convolutions and two linear layers", cnn::prepare),
    operation("add-1", "`x + y` of one number", operations::add::<1>),
    operation("add-1024", "`x + y` of 1,024 numbers", operations::add::<1024>),
    operation("add-2^20", "`x + y` of 2^20 numbers", operations::add::<{ 1 << 20 }>),
    operation("cat-256", "256 rows of the host to one tensor, and a product", operations::cat),
];

/// The rest of a training step, after the loss.
fn learn<M: Module>(
    loss: Tensor<1>,
    model: M,
    optimizer: &mut ModuleOptimizer,
    rate: f64,
    losses: &mut Vec<Tensor<1>>,
) -> M {
    losses.push(loss.clone().inner());
    let gradients = GradientsParams::from_grads(loss.backward(), &model);
    optimizer.step(rate, model, gradients)
}
