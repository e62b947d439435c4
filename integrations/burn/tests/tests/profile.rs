//! burn's profiling windows measure what the device did.

use std::time::{Duration, Instant};

use burn::tensor::{Device, Distribution, Tensor};
use burn_backend::TimingMethod;
use device_burn_tests as _;

device_registry::autoload!();

/// Some work, which lasts a while. Returns without waiting for it where the device has a queue.
fn work(device: &Device) -> Tensor<2> {
    let x = Tensor::<2>::random([128, 128], Distribution::Default, device);
    (0..8).fold(x.clone(), |product, _| product.matmul(x.clone()) / 128)
}

#[test]
#[cfg_attr(feature = "burn-0-23", ignore = "a group has the time of the host")]
fn a_window_has_the_time_of_its_work_and_those_inside_are_shorter() {
    for name in ["openreg:1", "mycpu:0", "cpu"] {
        let device = device_burn::device(name).unwrap();
        // What is opened and compiled the first time is not measured.
        work(&device).into_data();
        let begin = Instant::now();
        let ((inner, result), outer) = device
            .profile(|| {
                let (first, inner) = device.profile(|| work(&device)).unwrap();
                (inner, first + work(&device))
            })
            .unwrap();
        result.into_data();
        let all = begin.elapsed();
        assert_eq!(outer.timing_method(), TimingMethod::Device, "{name}");
        let [inner, outer] = [inner, outer]
            .map(|window| burn_backend::read_sync(window.resolve()).expect("it has carried work").duration());
        assert!(
            Duration::ZERO < inner && inner < outer && outer <= all,
            "{name}: {inner:?} {outer:?} {all:?}"
        );
    }
}

#[test]
fn a_window_without_work_is_short_and_one_that_unwinds_leaves_the_device_usable() {
    let device = device_burn::device("openreg:1").unwrap();
    work(&device).into_data();
    let (_, window) = device.profile(|| ()).unwrap();
    let empty = burn_backend::read_sync(window.resolve()).expect("both events were reached").duration();
    let (_, window) = device.profile(|| work(&device)).unwrap();
    let full = burn_backend::read_sync(window.resolve()).expect("it has carried work").duration();
    assert!(empty < full, "{empty:?} {full:?}");

    let unwound = std::panic::catch_unwind(|| device.profile(|| panic!("on purpose")).map(|((), _)| ()));
    assert!(unwound.is_err());
    work(&device).into_data();
}
