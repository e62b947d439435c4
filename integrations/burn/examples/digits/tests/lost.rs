//! Devices that are lost in the middle of a training. In their own process: burn has one data-parallel
//! training at a time in a process.

mod common;

use device_registry::{ErrorChain, Fault, backends};
use digits::data::Digits;
use digits::devices;
use digits::training::{Options, Strategy, TrainError, train};

device_registry::autoload!();

#[test]
fn a_device_that_is_lost_ends_the_training_with_an_error_that_names_it() {
    backends().set_option("openreg", "devices", "4").expect("the backend is not in use");
    let (training, held_out) = Digits::load().unwrap().split();
    for (strategy, names) in [
        (Strategy::Main, ["cpu", "openreg:0"]),
        (Strategy::Sharded, ["openreg:1", "cpu"]),
        #[cfg(not(feature = "burn-0-23"))]
        (Strategy::Ddp, ["openreg:2", "openreg:3"]),
    ] {
        let options = Options { strategy, ..common::options("lost", 1) };
        let given = names.map(str::to_owned);
        let named = devices::open(&given, strategy, None).unwrap();
        let devices: Vec<_> = named.iter().map(|(_, device)| device.clone()).collect();
        let lost = names.into_iter().rfind(|name| *name != "cpu").unwrap();
        let faults = device_registry::device(lost).unwrap().faults().unwrap();
        faults.inject(Fault::LoseDevice { nth: 400 }).unwrap();
        let error = train(&options, training.clone(), held_out.clone(), &devices).unwrap_err();
        assert!(matches!(error, TrainError::Stopped(_) | TrainError::Panicked(_)), "{error:?}");
        let text = ErrorChain::new(&*devices::name_the_lost(error, &named)).to_string();
        assert!(text.starts_with(&format!("lost {lost}: ")), "{strategy:?}: {text}");
        assert!(text.contains(&format!("`{lost}`")) && text.contains("device lost"), "{strategy:?}: {text}");
    }
}
