//! The training: burn's `SupervisedTraining` with Adam, cross-entropy, metrics and checkpoints.

use std::any::Any;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::{fs, io};

use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::lr_scheduler::LrSchedulerRecord;
use burn::lr_scheduler::constant::ConstantLr;
use burn::optim::{AdamConfig, OptimizerRecord};
use burn::prelude::*;
use burn::store::RecordError;
use burn::tensor::distributed::{DistributedConfig, ReduceOperation};
use burn::train::checkpoint::KeepLastNCheckpoints;
use burn::train::logger::{FileMetricLogger, MetricLogger};
use burn::train::metric::store::Split;
use burn::train::metric::{AccuracyMetric, LossMetric, NumericEntry};
use burn::train::{ExecutionStrategy, Learner, MultiDeviceOptim, SupervisedTraining, TrainingError};

use crate::batch::{DigitBatch, DigitBatcher};
use crate::data::Digits;
use crate::model::Network;
use crate::progress::EpochLines;

/// Digits per training step.
pub const BATCH_SIZE: usize = 32;
/// How far a training step moves the parameters.
pub const LEARNING_RATE: f64 = 2e-3;

/// What a training run needs in addition to the digits and the device.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often the network sees each training digit.
    pub epochs: NonZeroUsize,
    /// Seeds the parameters, the order of the digits and the dropout.
    pub seed: u64,
    /// The part of the features that each training step leaves out, from 0 to below 1.
    pub dropout: f64,
    /// The folder for checkpoints and metrics. The training creates it.
    pub output: PathBuf,
    /// Continue after the last checkpoint in `output`.
    pub resume: bool,
    /// How several devices share the work. It makes no difference to one.
    pub strategy: Strategy,
}

/// How several devices share the work, by the engines of burn. In each step, each device has a batch of its
/// own, so that an epoch on two devices has half as many steps, with twice as many digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// The first device adds the gradients of all up, and updates the parameters.
    #[default]
    Main,
    /// The same, with the parameters distributed: each device updates some of them.
    Sharded,
    /// Distributed data parallel: each device has all parameters, and updates them with the average of the
    /// gradients, through one of burn's collective operations. burn has it for its GPU backends and for the
    /// devices of one remote server.
    Ddp,
}

impl FromStr for Strategy {
    type Err = UnknownStrategy;

    fn from_str(name: &str) -> Result<Self, UnknownStrategy> {
        match name {
            "main" => Ok(Self::Main),
            "sharded" => Ok(Self::Sharded),
            "ddp" => Ok(Self::Ddp),
            _ => Err(UnknownStrategy),
        }
    }
}

/// No strategy has this name.
#[derive(Debug, thiserror::Error)]
#[error("expected `main`, `sharded` or `ddp`")]
pub struct UnknownStrategy;

/// The result of a training run.
#[derive(Debug)]
pub struct Trained {
    /// The network, ready for inference.
    pub network: Network,
    /// The loss of each training step, including the epochs before a resumed run.
    pub losses: Vec<f64>,
}

/// Why a training run ends without a network.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The output folder cannot be read or written.
    #[error("cannot use the output folder `{}`", path.display())]
    Output {
        /// The folder or the file in it.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// There is nothing to resume from.
    #[error("no checkpoint in `{}`: run once without `--resume`, or name the folder with `--output`", path.display())]
    NoCheckpoint {
        /// Where the checkpoints would be.
        path: PathBuf,
    },
    /// A checkpoint is damaged, or it is one of another network.
    #[error("cannot read the checkpoint of epoch {epoch}: delete it to resume from an earlier one")]
    Checkpoint {
        /// The epoch in the checkpoint's file names.
        epoch: usize,
        /// burn's reason.
        source: RecordError,
    },
    /// burn stopped the training, for example because the device returned an error.
    #[error("the training stopped")]
    Stopped(#[source] Arc<TrainingError>),
    /// burn panicked, which is how some of its strategies end when a device fails.
    #[error("the training stopped: {0}")]
    Panicked(String),
    /// The metrics that the training wrote cannot be read back.
    #[error("cannot read the losses of epoch {epoch} in `{}`: {problem}", path.display())]
    Losses {
        /// The epoch.
        epoch: usize,
        /// The output folder.
        path: PathBuf,
        /// burn's reason.
        problem: String,
    },
}

/// Trains a network on `devices`, and returns it on the first.
///
/// `held_out` has no influence on the parameters: it gives the held-out metrics after each epoch.
///
/// # Panics
///
/// If there are no devices.
pub fn train(
    options: &Options,
    training: Digits,
    held_out: Digits,
    devices: &[Device],
) -> Result<Trained, TrainError> {
    let device = devices.first().expect("a device to train on");
    let checkpoints = options.output.join("checkpoint");
    fs::create_dir_all(&checkpoints).map_err(at(&checkpoints))?;
    let done = match options.resume {
        true => Some(last_checkpoint(&checkpoints)?),
        false => {
            remove_checkpoints(&checkpoints)?;
            None
        }
    };

    // A resumed run does not repeat the order of the first epochs.
    let seed = options.seed.wrapping_add(done.unwrap_or(0) as u64);
    devices.iter().for_each(|device| device.seed(seed));
    let network = Network::new(&device.clone().autodiff(), options.dropout);
    let learner = Learner::new(network, AdamConfig::new().init(), ConstantLr::from(LEARNING_RATE));

    let mut run = SupervisedTraining::<Network>::new(
        &options.output,
        loader(training, Some(seed), device),
        loader(held_out, None, device),
    )
    .metrics((LossMetric::new(), AccuracyMetric::new()))
    .renderer(Box::new(EpochLines::default()))
    .with_application_logger(None)
    .with_default_checkpointers()
    .with_checkpointing_strategy(KeepLastNCheckpoints::new(2))
    .num_epochs(options.epochs.get());
    if let Some(epoch) = done {
        check_checkpoint(&checkpoints, epoch, device)?;
        run = run.checkpoint(epoch);
    }

    let launch = || run.with_training_strategy(options.strategy.on(devices).into()).launch(learner);
    let result =
        catch_unwind(AssertUnwindSafe(launch)).map_err(|panic| TrainError::Panicked(text(&*panic)))?;
    if let Some(error) = result.error {
        return Err(TrainError::Stopped(error));
    }
    let epochs = options.epochs.get().max(done.unwrap_or(0));
    Ok(Trained { network: result.model, losses: losses(&options.output, epochs)? })
}

impl Strategy {
    /// Returns burn's strategy.
    fn on(self, devices: &[Device]) -> ExecutionStrategy {
        let devices = devices.iter().map(|device| device.clone().autodiff()).collect();
        match self {
            Self::Main => ExecutionStrategy::multi(devices, MultiDeviceOptim::OptimMainDevice),
            Self::Sharded => ExecutionStrategy::multi(devices, MultiDeviceOptim::OptimSharded),
            Self::Ddp => {
                let config = DistributedConfig { all_reduce_op: ReduceOperation::Mean };
                ExecutionStrategy::ddp(devices, config)
            }
        }
    }
}

/// The text of a panic.
fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("burn panicked without a message").to_owned()
}

/// The digits in batches on `device`, in an order that the seed decides, or in their own.
pub fn loader(digits: Digits, shuffle: Option<u64>, device: &Device) -> Arc<dyn DataLoader<DigitBatch>> {
    let builder = DataLoaderBuilder::new(DigitBatcher).batch_size(BATCH_SIZE).set_device(device.clone());
    match shuffle {
        Some(seed) => builder.shuffle(seed).build(digits),
        None => builder.build(digits),
    }
}

/// The three files that make a checkpoint, under the names that burn gives them.
const PARTS: [&str; 3] = ["model", "optim", "scheduler"];

fn part(checkpoints: &Path, part: &str, epoch: usize) -> PathBuf {
    checkpoints.join(format!("{part}-{epoch}.bpk"))
}

/// The last epoch whose checkpoint has all its parts.
fn last_checkpoint(checkpoints: &Path) -> Result<usize, TrainError> {
    epochs_of(checkpoints, PARTS[0])?
        .into_iter()
        .filter(|epoch| PARTS.iter().all(|name| part(checkpoints, name, *epoch).is_file()))
        .max()
        .ok_or_else(|| TrainError::NoCheckpoint { path: checkpoints.to_owned() })
}

/// A later `--resume` must not find the checkpoints of an earlier and longer run.
fn remove_checkpoints(checkpoints: &Path) -> Result<(), TrainError> {
    for name in PARTS {
        for epoch in epochs_of(checkpoints, name)? {
            let path = part(checkpoints, name, epoch);
            fs::remove_file(&path).map_err(at(&path))?;
        }
    }
    Ok(())
}

fn epochs_of(checkpoints: &Path, part: &str) -> Result<Vec<usize>, TrainError> {
    let entries = fs::read_dir(checkpoints).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let names = entries.map_err(at(checkpoints))?.into_iter().map(|entry| entry.file_name());
    let epoch = |name: std::ffi::OsString| {
        name.to_str()?.strip_prefix(part)?.strip_prefix('-')?.strip_suffix(".bpk")?.parse().ok()
    };
    Ok(names.filter_map(epoch).collect())
}

/// burn's loop panics on a checkpoint that it cannot read. This reads it first and returns the error.
fn check_checkpoint(checkpoints: &Path, epoch: usize, device: &Device) -> Result<(), TrainError> {
    let [model, optimizer, scheduler] = PARTS.map(|name| part(checkpoints, name, epoch));
    let read = || {
        Network::new(device, 0.0).try_load_file(model)?;
        OptimizerRecord::load(optimizer)?;
        LrSchedulerRecord::load(scheduler)?;
        Ok(())
    };
    read().map_err(|source| TrainError::Checkpoint { epoch, source })
}

/// The loss of each step, from the files that burn's metric logger wrote.
fn losses(output: &Path, epochs: usize) -> Result<Vec<f64>, TrainError> {
    let mut log = FileMetricLogger::new(output);
    let mut losses = Vec::new();
    for epoch in 1..=epochs {
        let entries = log.read_numeric("Loss", epoch, &Split::Train);
        let entries =
            entries.map_err(|problem| TrainError::Losses { epoch, path: output.to_owned(), problem })?;
        // The last entry of an epoch is its average.
        let steps = entries.iter().filter(|entry| !matches!(entry, NumericEntry::Final(_)));
        losses.extend(steps.map(NumericEntry::current));
    }
    Ok(losses)
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> TrainError {
    let path = path.to_owned();
    move |source| TrainError::Output { path, source }
}
