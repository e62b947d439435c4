//! An operator that another crate declares, as a burn backend extension.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, NdArray, TensorMetadata, backend_extension};
use burn::tensor::{Device, Tensor};
use device_burn::custom_operator;

device_registry::autoload!();

/// The backends that have the operator.
#[backend_extension(NdArray)]
pub trait SwigluBackend: Backend {
    /// See [`swiglu::swiglu`].
    fn swiglu(gate: FloatTensor<Self>, value: FloatTensor<Self>, limit: f64) -> FloatTensor<Self>;
}

impl SwigluBackend for NdArray {
    fn swiglu(gate: FloatTensor<Self>, value: FloatTensor<Self>, limit: f64) -> FloatTensor<Self> {
        let operator = swiglu::swiglu(limit).expect("its crate is linked");
        let out = (gate.shape(), gate.dtype());
        custom_operator(operator, [gate, value], [out]).remove(0)
    }
}

fn swiglu<const D: usize>(gate: Tensor<D>, value: Tensor<D>, limit: f64) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::swiglu(gate.into_dispatch(), value.into_dispatch(), limit))
}

fn tensors(device: &Device) -> [Tensor<2>; 2] {
    let gate = Tensor::<2>::from_floats([[-1.0, 0.5, 9.0], [2.0, -3.0, 0.0]], device);
    let value = Tensor::<2>::from_floats([[1.0, -2.0, -9.0], [3.0, 4.0, 5.0]], device);
    [gate, value]
}

#[test]
fn a_kernel_of_another_crate_is_an_operation() {
    for name in ["cpu", "openreg:1"] {
        let device = device_burn::device(name).unwrap();
        let [gate, value] = tensors(&device);
        // Views and results of other operations are inputs, and its result is one of others.
        let found = swiglu(gate.clone().transpose() * 1.0, value.clone().transpose(), 7.0) + 1.0;
        let gate = gate.transpose().clamp_max(7.0);
        let expected = gate.clone() / (gate.neg().exp() + 1.0) * value.transpose().clamp(-7.0, 7.0) + 1.0;
        let off = (found - expected).abs().max().into_scalar::<f32>();
        assert!(off < 1e-5, "{name}: {off}");
        let counts = device_burn::counts(name).unwrap();
        let count = counts.operations.iter().find(|count| count.operation == "Custom.acme__swiglu");
        let count = count.unwrap_or_else(|| panic!("{counts}"));
        assert_eq!((count.native, count.fallback, count.failed), (1, 0, 0), "{counts}");
    }
}

#[test]
fn nothing_falls_back_and_errors_name_the_operator() {
    // No set of it has kernels.
    let device = device_burn::device("mycpu").unwrap();
    let [gate, value] = tensors(&device);
    let error = swiglu(gate, value, 7.0).try_into_data().unwrap_err().to_string();
    assert!(error.contains("acme__swiglu<limit 7.0>(f32 [2, 3], f32 [2, 3])"), "{error}");

    let device = device_burn::device("openreg:0").unwrap();
    let [gate, value] = tensors(&device);
    let error = swiglu(gate.clone(), value, -1.0).try_into_data().unwrap_err().to_string();
    assert!(error.contains("expected a number above 0 as the limit, found -1"), "{error}");
    let other = Tensor::<2>::from_floats([[1.0]], &device);
    let error = swiglu(gate, other, 1.0).try_into_data().unwrap_err().to_string();
    assert!(error.contains("expected [2, 3] as the shape of the value, found [1, 1]"), "{error}");
}
