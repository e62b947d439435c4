//! Short training runs.

mod common;

use std::fs;
use std::slice::from_ref;

use burn::module::Module;
use burn::tensor::Device;
use common::options;
use digits::data::Digits;
use digits::evaluation::accuracy;
use digits::model::Network;
use digits::training::{TrainError, train};

/// The device that the tests run on.
fn device() -> Device {
    device_burn::device("cpu").unwrap()
}

#[test]
fn one_epoch_is_clearly_better_than_chance_and_the_saved_network_agrees() {
    let device = device();
    let (training, held_out) = Digits::load().unwrap().split();
    let options = options("one_epoch", 1);
    let steps = training.as_slice().len().div_ceil(digits::training::BATCH_SIZE);
    let trained = train(&options, training, held_out.clone(), from_ref(&device)).unwrap();

    let after = accuracy(&trained.network, &held_out, 64, &device).unwrap();
    assert_eq!(after.total, held_out.as_slice().len());
    assert!(after.fraction() > 0.5, "{after}");

    assert_eq!(trained.losses.len(), steps);
    let (first, last) = (trained.losses[0], trained.losses[steps - 1]);
    assert!(last < first / 2.0, "loss {first} to {last}");

    let file = options.output.join("model.bpk");
    trained.network.save_file(&file).unwrap();
    let loaded = Network::new(&device, 0.0).try_load_file(&file).unwrap();
    assert_eq!(accuracy(&loaded, &held_out, 100, &device).unwrap(), after);
}

#[test]
fn a_resumed_run_continues_after_the_last_checkpoint() {
    let device = device();
    let (training, held_out) = Digits::load().unwrap().split();
    let mut options = options("resume", 1);
    let first = train(&options, training.clone(), held_out.clone(), from_ref(&device)).unwrap().losses;

    options.resume = true;
    options.epochs = options.epochs.saturating_add(1);
    let both = train(&options, training, held_out, from_ref(&device)).unwrap().losses;
    assert_eq!(both.len(), 2 * first.len());
    assert_eq!(both[..first.len()], first);
    assert!(both[first.len()] < first[0] / 2.0, "the second epoch starts at {}", both[first.len()]);
}

#[test]
fn a_run_that_does_not_resume_removes_older_checkpoints_and_no_other_file() {
    let device = device();
    let options = options("fresh", 1);
    let folder = options.output.join("checkpoint");
    fs::create_dir_all(&folder).unwrap();
    for name in ["model-7.bpk", "optim-7.bpk", "scheduler-7.bpk", "notes.txt"] {
        fs::write(folder.join(name), "").unwrap();
    }
    train(&options, few(), few(), from_ref(&device)).unwrap();

    let mut files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name()).collect::<Vec<_>>();
    files.sort();
    assert_eq!(files, ["model-1.bpk", "notes.txt", "optim-1.bpk", "scheduler-1.bpk"]);
}

#[test]
fn nothing_to_resume_and_a_damaged_checkpoint_are_errors() {
    let device = device();
    let mut options = options("damaged", 2);
    options.resume = true;
    let error = train(&options, few(), few(), from_ref(&device)).unwrap_err();
    assert!(matches!(error, TrainError::NoCheckpoint { .. }), "{error:?}");

    for name in ["model-3.bpk", "optim-3.bpk", "scheduler-3.bpk"] {
        fs::write(options.output.join("checkpoint").join(name), "not a record").unwrap();
    }
    let error = train(&options, few(), few(), from_ref(&device)).unwrap_err();
    assert!(matches!(error, TrainError::Checkpoint { epoch: 3, .. }), "{error:?}");
}

#[test]
fn an_output_folder_that_is_a_file_is_an_error() {
    let options = options("file", 1);
    fs::write(&options.output, "").unwrap();
    let error = train(&options, few(), few(), &[device()]).unwrap_err();
    assert!(matches!(error, TrainError::Output { .. }), "{error:?}");
}

fn few() -> Digits {
    let line = format!("{}5\n", "0,".repeat(64));
    Digits::parse(&line.repeat(3)).unwrap()
}
