//! Operators that other crates declare, as burn operations.

use burn_backend::{DType, Shape};
use burn_ir::{CustomOpIr, OperationIr, ScalarIr, TensorIr};
use burn_router::{RouterClient, RouterTensor};
use device_kernels::{CustomOperator, Scalar};

use crate::client::RegistryClient;

/// A tensor of [`Registry`](crate::Registry): its primitive of any kind.
pub type RegistryPrimitive = RouterTensor<RegistryClient>;

/// Calls an operator that a crate declares, by the kernels of the inputs' device. The outputs have these
/// shapes and dtypes.
///
/// The body of a method of a backend extension for [`Registry`](crate::Registry):
///
/// ```no_run
/// use burn_backend::tensor::FloatTensor;
/// use burn_backend::TensorMetadata;
/// use device_burn_backend::{Registry, custom_operator};
///
/// fn swiglu(gate: FloatTensor<Registry>, value: FloatTensor<Registry>, limit: f64) -> FloatTensor<Registry> {
///     let operator = device_kernels::operator("acme__swiglu").expect("its crate is linked");
///     let out = (gate.shape(), gate.dtype());
///     custom_operator(operator.with_options([limit]), [gate, value], [out]).remove(0)
/// }
/// ```
///
/// Like burn's own operations, it reports an error when a tensor is read: that no kernel set of the device
/// has the operator, for one. burn's CPU engine does not have it, so there is no fallback.
///
/// # Panics
///
/// Without an input, as the first one names the device.
pub fn custom_operator(
    operator: CustomOperator,
    inputs: impl IntoIterator<Item = RegistryPrimitive>,
    outputs: impl IntoIterator<Item = (Shape, DType)>,
) -> Vec<RegistryPrimitive> {
    let inputs: Vec<_> = inputs.into_iter().collect();
    let client =
        inputs.first().expect("an operator has an input, whose device it is called on").client.clone();
    let outputs = outputs.into_iter();
    let outputs = outputs.map(|(shape, dtype)| TensorIr::uninit(client.create_empty_handle(), shape, dtype));
    let scalars = operator.options().map(|option| match option {
        Scalar::Float(value) => ScalarIr::Float(value),
        Scalar::Int(value) => ScalarIr::Int(value),
        Scalar::Bool(value) => ScalarIr::Bool(value),
    });
    let outputs = outputs.collect();
    let scalars = scalars.collect();
    let inputs = inputs.into_iter().map(RouterTensor::into_ir).collect();
    let custom = CustomOpIr { id: operator.name().to_owned(), inputs, outputs, scalars };
    client.register(OperationIr::Custom(custom))
}
