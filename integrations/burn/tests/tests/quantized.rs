//! Quantized tensors: burn's CPU engine computes with them, and they are read as all others. burn 0.22 has
//! none for backends such as the registry's.
#![cfg(feature = "burn-0-23")]

use burn::tensor::quantization::{QuantScheme, QuantStore, QuantValue, ScaleDtype};
use burn::tensor::{Device, Distribution, Int, Tensor};

device_registry::autoload!();

const DEVICES: [&str; 3] = ["cpu", "openreg:1", "mycpu"];

fn schemes() -> [QuantScheme; 2] {
    let scheme = QuantScheme::default().with_value(QuantValue::Q8S).with_store(QuantStore::Native);
    [scheme, scheme.per_block([16], ScaleDtype::F32)]
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.dequantize().try_into_data().unwrap().try_to_vec().unwrap()
}

/// What is computed with a quantized matrix, and its bytes.
fn computed(matrix: &Tensor<2>, scheme: &QuantScheme, device: &Device) -> (Vec<Vec<f32>>, Vec<u8>) {
    let x = Tensor::<2>::from_data(matrix.to_data(), device);
    let q = x.clone().quantize_dynamic(scheme);
    let indices = Tensor::<1, Int>::from_ints([3, 0], device);
    let results = vec![
        values(q.clone()),
        values(q.clone().matmul(q.clone())),
        values(x.matmul(q.clone().transpose())),
        values(q.clone().reshape([16, 64])),
        values(q.clone().slice([0..16, 0..32])),
        values(q.clone().select(0, indices)),
        values(q.clone() * 2.0),
    ];
    (results, q.try_into_data().unwrap().as_bytes().to_vec())
}

#[test]
fn a_quantized_matrix_gives_on_each_device_what_it_gives_on_burns_cpu_engine() {
    let flex = Device::flex();
    let matrix = Tensor::random([32, 32], Distribution::Uniform(-1.0, 1.0), &flex);
    for scheme in schemes() {
        let expected = computed(&matrix, &scheme, &flex);
        assert!(expected.0[0] != matrix.to_data().try_to_vec::<f32>().unwrap(), "nothing was quantized");
        for text in DEVICES {
            let device = device_burn::device(text).unwrap();
            assert_eq!(computed(&matrix, &scheme, &device), expected, "{scheme:?} on {text}");
        }
    }
}

#[test]
fn data_that_is_quantized_already_is_read_back_as_it_is() {
    let scheme = schemes()[0];
    let data = burn::tensor::TensorData::quantized(vec![1_i8, 2, 3, -4], [2, 2], scheme, &[0.5], None);
    for text in DEVICES {
        let tensor = Tensor::<2>::from_data(data.clone(), &device_burn::device(text).unwrap());
        assert_eq!(tensor.clone().try_into_data().unwrap(), data, "{text}");
        assert_eq!(values(tensor), [0.5, 1.0, 1.5, -2.0], "{text}");
    }
}
