//! Tensors that burn 0.23 splits over registered devices.
#![cfg(feature = "group")]

use burn::tensor::{Device, Sharding, Tensor, TensorData};

device_registry::autoload!();

const COLUMNS: Sharding = Sharding::Split { dim: 1 };
const ROWS: Sharding = Sharding::Split { dim: 0 };

/// Integers, so that the sum of the parts is exact.
fn matrix(rows: usize, columns: usize, device: &Device) -> Tensor<2> {
    let values = (0..rows * columns).map(|place| (place % 7) as f32 - 3.0).collect::<Vec<_>>();
    Tensor::from_data(TensorData::new(values, [rows, columns]), device)
}

fn values(tensor: Tensor<2>) -> Vec<f32> {
    tensor.try_into_data().unwrap().try_to_vec().unwrap()
}

/// How often a device has computed a product.
fn products(text: &str) -> u64 {
    let counts = device_burn::counts(text).unwrap();
    let product = counts.operations.iter().find(|operation| operation.operation == "Float.Matmul");
    product.map_or(0, |product| product.native + product.host + product.fallback)
}

/// A layer of two products, the first split by columns and the second by rows, and the gradients of both.
fn layer(device: &Device, split: bool) -> [Vec<f32>; 3] {
    let device = device.clone().autodiff();
    let shard = |tensor: Tensor<2>, sharding| if split { tensor.with_sharding(sharding) } else { tensor };
    let x = matrix(3, 8, &device);
    let first = shard(matrix(8, 6, &device), COLUMNS).require_grad();
    let second = shard(matrix(6, 5, &device), ROWS).require_grad();
    let out = x.matmul(first.clone()).matmul(second.clone());
    let gradients = (out.clone() * out.clone()).sum().backward();
    [values(out), values(first.grad(&gradients).unwrap()), values(second.grad(&gradients).unwrap())]
}

#[test]
fn split_products_and_their_gradients_are_those_of_one_device() {
    let one = layer(&device_burn::device("cpu").unwrap(), false);
    for texts in [&["openreg:0", "openreg:1"][..], &["openreg:1", "cpu", "mycpu:0"]] {
        let before = texts.iter().map(|text| products(text)).collect::<Vec<_>>();
        assert_eq!(layer(&device_burn::group(texts).unwrap(), true), one, "{texts:?}");
        // Each computes its parts.
        for (text, before) in texts.iter().zip(before) {
            assert!(products(text) >= before + 4, "{text} of {texts:?}");
        }
    }
}

#[test]
fn the_same_devices_are_one_group_and_one_alone_is_its_device() {
    let group = |texts: &[&str]| device_burn::group(texts).unwrap();
    assert_eq!(group(&["openreg:0", "openreg:1"]), group(&["openreg", "openreg:1"]));
    assert_ne!(group(&["openreg:0", "openreg:1"]), group(&["openreg:1", "openreg:0"]));
    assert_eq!(group(&["openreg:1"]), device_burn::device("openreg:1").unwrap());
}

#[test]
fn no_devices_and_one_that_does_not_exist_are_errors() {
    let error = |texts: &[&str]| {
        device_registry::ErrorChain::new(&device_burn::group(texts).unwrap_err()).to_string()
    };
    assert!(error(&[]).contains("needs at least one device"), "{}", error(&[]));
    let missing = error(&["cpu", "openreg:9"]);
    assert!(missing.contains("unknown device index 9: `openreg`"), "{missing}");
}
