//! burn's own wgpu on the registry's open device.

use burn::tensor::{Device, Distribution, Tensor, TensorData};
use device_burn::Error;
use device_conformance::process;
use device_registry::BackendErrorKind;
use device_wgpu::{WgpuDevice, wgpu};

device_registry::autoload!();

const SUBJECT: &str = "wgpu:0";

/// burn's device, or `None` where this machine has none for wgpu.
fn device() -> Option<Device> {
    device_conformance::device_or_skip("wgpu")?;
    Some(device_burn::device(SUBJECT).unwrap())
}

/// Runs a test in its own process, as it closes or loses the device. `None` in the process that starts
/// it.
fn alone(test: &str) -> Option<Device> {
    if process::is_child() {
        return Some(device_burn::device(SUBJECT).unwrap());
    }
    device_conformance::device_or_skip("wgpu")?;
    process::passes(test, |child| child);
    None
}

fn registered() -> device_registry::Device {
    device_registry::device(SUBJECT).unwrap()
}

/// What a few operations give, among them a product, a convolution and gradients.
fn computed(device: &Device) -> Vec<TensorData> {
    let ramp = |len: i64| Tensor::<1, burn::tensor::Int>::arange(0..len, device).float();
    let matrix = ramp(64 * 48).reshape([64, 48]) * 0.001 - 1.0;
    let product = matrix.clone().matmul(matrix.clone().transpose());
    let softmax = burn::tensor::activation::softmax(product.clone() * 0.1, 1);
    let image = ramp(2 * 3 * 8 * 8).reshape([2, 3, 8, 8]) * 0.01;
    let weight = ramp(4 * 3 * 3 * 3).reshape([4, 3, 3, 3]) * 0.02 - 1.0;
    let options = burn::tensor::ops::ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
    let convolved = burn::tensor::module::conv2d(image, weight, None, options);
    let x = matrix.autodiff().require_grad();
    let gradients = x.clone().tanh().powi_scalar(2).mean().backward();
    vec![
        product.into_data(),
        softmax.sum_dim(0).into_data(),
        convolved.into_data(),
        x.grad(&gradients).unwrap().into_data(),
    ]
}

#[test]
fn tensors_are_those_of_burns_cpu_engine() {
    let Some(device) = device() else { return };
    for (found, expected) in computed(&device).iter().zip(computed(&Device::flex())) {
        found.assert_approx_eq::<f32>(&expected, burn::tensor::Tolerance::default());
    }
}

#[test]
fn the_engine_computes_and_counts_say_so() {
    let Some(device) = device() else { return };
    assert!(format!("{device:?}").contains("Wgpu"), "{device:?}");
    let mean = Tensor::<1>::random([1000], Distribution::Default, &device).mean().into_scalar::<f32>();
    assert!((0.4..0.6).contains(&mean), "{mean}");

    let counts = device_burn::counts(SUBJECT).unwrap();
    let engine = counts.engine.as_deref().unwrap();
    assert_eq!(engine, device_burn::engine_of(SUBJECT).unwrap().unwrap().to_string());
    assert!(engine.starts_with("wgpu of burn 0.22.1 (device-burn-wgpu "), "{engine}");
    assert!(counts.operations.is_empty(), "{counts}");
}

#[test]
fn a_device_string_gives_the_same_device_each_time() {
    let Some(device) = device() else { return };
    let threads: Vec<_> =
        (0..4).map(|_| std::thread::spawn(|| device_burn::device("wgpu").unwrap())).collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), device);
    }
}

#[test]
fn it_is_the_device_of_the_registry() {
    let Some(device) = device() else { return };
    let name = registered().properties().unwrap().name;
    assert_eq!(device.identity().unwrap().name, name);
}

/// burn's engine reads the features of the adapter, not the device's.
#[test]
fn the_device_has_the_features_that_burns_kernels_use() {
    if device().is_none() {
        return;
    }
    let used = wgpu::Features::TIMESTAMP_QUERY
        | wgpu::Features::SUBGROUP
        | wgpu::Features::SHADER_F16
        | wgpu::Features::SHADER_F64
        | wgpu::Features::SHADER_INT64
        | wgpu::Features::SHADER_FLOAT32_ATOMIC;
    let missing = |driver: &WgpuDevice| Ok((driver.adapter().features() & used) - driver.device().features());
    assert_eq!(registered().with_driver(missing).unwrap(), wgpu::Features::empty());
}

#[test]
fn buffers_of_the_registry_and_tensors_are_used_at_once() {
    let Some(device) = device() else { return };
    let stream = registered().create_stream().unwrap();
    let buffer = registered().allocate(4096).unwrap();
    for round in 0..20_u8 {
        let tensor = Tensor::<1>::full([4096], f32::from(round), &device) * 2.0;
        stream.write(&buffer, 0, vec![round; 4096]).unwrap();
        assert_eq!(tensor.sum().into_scalar::<f32>(), f32::from(round) * 8192.0);
        assert!(stream.read(&buffer, ..).unwrap().wait().unwrap().iter().all(|byte| *byte == round));
    }
}

#[test]
fn a_closed_device_leaves_tensors_intact_and_is_another_one_afterwards() {
    let test = "a_closed_device_leaves_tensors_intact_and_is_another_one_afterwards";
    let Some(before) = alone(test) else { return };
    let tensor = Tensor::<1>::from_floats([1.0, 2.0, 3.0], &before) * 2.0;
    let data = tensor.clone().into_data();
    assert_eq!(data.as_slice::<f32>().unwrap(), [2.0, 4.0, 6.0]);
    registered().close().unwrap();
    // burn may have given out the device's mapped memory as the data.
    assert_eq!(data.as_slice::<f32>().unwrap(), [2.0, 4.0, 6.0]);
    assert_eq!((tensor + 1.0).into_data().as_slice::<f32>().unwrap(), [3.0, 5.0, 7.0]);

    let after = device_burn::device(SUBJECT).unwrap();
    assert_ne!(after, before);
    assert_eq!(after, device_burn::device(SUBJECT).unwrap());
    assert_eq!(Tensor::<1>::ones([8], &after).sum().into_scalar::<f32>(), 8.0);
}

#[test]
fn a_lost_device_is_an_error_of_tensors_and_of_the_registry_until_it_is_reset() {
    let test = "a_lost_device_is_an_error_of_tensors_and_of_the_registry_until_it_is_reset";
    let Some(device) = alone(test) else { return };
    let tensor = Tensor::<1>::from_floats([1.0, 2.0, 3.0], &device);
    let buffer = registered().allocate(4).unwrap();
    assert_eq!(tensor.clone().sum().into_scalar::<f32>(), 6.0);
    let destroy = |driver: &WgpuDevice| {
        driver.device().destroy();
        Ok(())
    };
    registered().with_driver(destroy).unwrap();

    let error = device_burn::device(SUBJECT).unwrap_err();
    let printed = device_registry::ErrorChain::new(&error).to_string();
    assert!(matches!(error, Error::Engine { .. }), "{printed}");
    assert!(printed.contains("Device::reset"), "{printed}");
    let error = buffer.read(0, &mut [0; 4]).unwrap_err();
    assert_eq!(error.kind(), Some(BackendErrorKind::Lost), "{error}");
    assert!(device.sync().unwrap_err().to_string().contains("Destroyed"));
    // burn reads the bytes when they are looked at.
    let error = (tensor + 1.0).try_into_data().unwrap().try_to_vec::<f32>().unwrap_err().to_string();
    assert!(error.contains("The device is poisoned") && error.contains("Destroyed"), "{error}");

    drop(buffer);
    registered().reset().unwrap();
    let after = device_burn::device(SUBJECT).unwrap();
    assert_ne!(after, device);
    assert_eq!(Tensor::<1>::ones([8], &after).sum().into_scalar::<f32>(), 8.0);
}

#[test]
fn without_the_engine_the_registry_computes() {
    if !process::is_child() {
        if device_conformance::device_or_skip("wgpu").is_some() {
            let test = "without_the_engine_the_registry_computes";
            process::passes(test, |child| child.env("DEVICE_BURN_ENGINES_DISABLE", "wgpu"));
        }
        return;
    }
    let device = device_burn::device(SUBJECT).unwrap();
    assert!(format!("{device:?}").contains("NdArray(wgpu:0)"), "{device:?}");
    assert_eq!(Tensor::<1>::ones([8], &device).sum().into_scalar::<f32>(), 8.0);
    let counts = device_burn::counts(SUBJECT).unwrap();
    assert_eq!(counts.engine, None);
    assert!(!counts.operations.is_empty());
}

#[test]
fn without_a_driver_the_device_is_an_error() {
    if !process::is_child() {
        return process::passes("without_a_driver_the_device_is_an_error", |child| {
            child.envs([("VK_ICD_FILENAMES", "/nonexistent"), ("VK_DRIVER_FILES", "/nonexistent")])
        });
    }
    // The machine may have an adapter of another interface.
    if !device_registry::is_available("wgpu") {
        let error = device_burn::device(SUBJECT).unwrap_err();
        assert!(matches!(error, Error::Device(_)), "{error}");
    }
}
