//! burn's own CUDA on the registry's open device.

use burn::tensor::{Device, Tensor};
use device_burn::Error;
use device_conformance::process;

device_registry::autoload!();

const SUBJECT: &str = "cuda:0";

/// burn's device, or `None` where this machine has none for CUDA.
fn device() -> Option<Device> {
    device_conformance::device_or_skip("cuda")?;
    Some(device_burn::device(SUBJECT).unwrap())
}

#[test]
fn tensors_are_those_of_burns_cpu_engine() {
    let Some(device) = device() else { return };
    let computed = |device: &Device| {
        let ramp = Tensor::<1, burn::tensor::Int>::arange(0..64 * 48, device).float();
        let matrix = ramp.reshape([64, 48]) * 0.001 - 1.0;
        let product = matrix.clone().matmul(matrix.transpose());
        burn::tensor::activation::softmax(product * 0.1, 1).into_data()
    };
    computed(&device).assert_approx_eq::<f32>(&computed(&Device::flex()), burn::tensor::Tolerance::default());
}

#[test]
fn the_engine_computes_on_the_registrys_device_and_counts_say_so() {
    let Some(device) = device() else { return };
    assert_eq!(device, device_burn::device("cuda").unwrap());
    let name = device_registry::device(SUBJECT).unwrap().properties().unwrap().name;
    assert_eq!(device.identity().unwrap().name, name);
    assert_eq!(Tensor::<1>::ones([8], &device).sum().into_scalar::<f32>(), 8.0);

    let counts = device_burn::counts(SUBJECT).unwrap();
    let engine = counts.engine.as_deref().unwrap();
    assert!(engine.starts_with("cuda of burn 0.22.1 (device-burn-cuda "), "{engine}");
    assert!(counts.operations.is_empty(), "{counts}");
}

#[test]
fn tensors_stay_when_the_registry_closes_its_device() {
    if !process::is_child() {
        if device_conformance::device_or_skip("cuda").is_some() {
            process::passes("tensors_stay_when_the_registry_closes_its_device", |child| child);
        }
        return;
    }
    let device = device_burn::device(SUBJECT).unwrap();
    let tensor = Tensor::<1>::from_floats([1.0, 2.0, 3.0], &device);
    device_registry::device(SUBJECT).unwrap().close().unwrap();
    assert_eq!((tensor + 1.0).into_data().as_slice::<f32>().unwrap(), [2.0, 3.0, 4.0]);
    assert_eq!(device, device_burn::device(SUBJECT).unwrap());
}

#[test]
fn the_engine_is_linked_for_the_backend() {
    let engine = device_burn::engines::engines().get("cuda").expect("`autoload!` links it");
    assert_eq!(engine.package(), Some("device-burn-cuda"));
    assert_eq!(engine.load().expect("it needs no driver").name(), "cuda of burn 0.22.1");
}

/// A thread of burn's engine would panic there: the registry is asked first.
#[test]
fn without_a_driver_the_error_is_the_registrys() {
    if !process::is_child() {
        return process::passes("without_a_driver_the_error_is_the_registrys", |child| child);
    }
    if !device_registry::is_available("cuda") {
        let error = device_burn::device(SUBJECT).unwrap_err();
        let printed = device_registry::ErrorChain::new(&error).to_string();
        assert!(matches!(error, Error::Device(_)), "{printed}");
        assert!(printed.contains("libcuda"), "{printed}");
    }
}
