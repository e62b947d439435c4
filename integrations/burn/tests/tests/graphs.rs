//! Graphs of operations that burn registers once and runs again with other tensors, and second names of a
//! tensor.

use std::task::{Context, Poll, Waker};

use burn_backend::{DType, Shape, TensorData};
use burn_ir::{
    BinaryOpIr, GraphBindings, GraphId, NumericOperationIr, OperationIr, ScalarIr, ScalarOpIr, TensorId,
    TensorIr, TensorStatus,
};
use burn_router::{RouterClient, RouterTensor};
use device_burn_backend::{RegistryClient, RegistryDevice};
use device_burn_tests as _;

device_registry::autoload!();

/// A tensor of one dimension whose size is the first one that a graph is bound to.
fn tensor(id: u64, status: TensorStatus) -> TensorIr {
    TensorIr { id: TensorId::new(id), shape: Shape::new([0]), status, dtype: DType::F32 }
}

/// `out = (a + b) * scalar`, by the identifiers 0, 1, 2 and 3.
fn operations() -> Vec<OperationIr> {
    let sum = BinaryOpIr {
        lhs: tensor(0, TensorStatus::ReadOnly),
        rhs: tensor(1, TensorStatus::ReadOnly),
        out: tensor(2, TensorStatus::NotInit),
    };
    let product = ScalarOpIr {
        lhs: tensor(2, TensorStatus::ReadWrite),
        rhs: ScalarIr::UInt(0),
        out: tensor(3, TensorStatus::NotInit),
    };
    vec![
        OperationIr::NumericFloat(DType::F32, NumericOperationIr::Add(sum)),
        OperationIr::NumericFloat(DType::F32, NumericOperationIr::MulScalar(product)),
    ]
}

fn client(text: &str) -> RegistryClient {
    let device = device_registry::device(text).unwrap();
    RegistryClient::of(RegistryDevice::new(device).unwrap())
}

/// Some tensors that a test does not use, so that there are more than a graph makes by itself.
fn others(client: &RegistryClient) -> Vec<RouterTensor<RegistryClient>> {
    (0..100).map(|value| client.register_tensor_data(TensorData::new(vec![value as f32], [1]))).collect()
}

fn read(client: &RegistryClient, id: TensorId, len: usize) -> Vec<f32> {
    let tensor = TensorIr { id, shape: Shape::new([len]), status: TensorStatus::ReadOnly, dtype: DType::F32 };
    let mut reading = client.read_tensor_async(tensor);
    match reading.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(data) => data.unwrap().try_to_vec().unwrap(),
        Poll::Pending => panic!("a read is done when the call returns"),
    }
}

#[test]
fn a_graph_runs_again_with_other_tensors_shapes_and_scalars() {
    for text in ["cpu", "openreg:0", "mycpu"] {
        let client = client(text);
        let others = others(&client);
        let graph = GraphId(17);
        for (turn, (values, scalar, expected)) in [
            (vec![1.0_f32, 2.0], 10.0, vec![20.0_f32, 40.0]),
            (vec![0.5, 1.5, 2.5], 2.0, vec![2.0, 6.0, 10.0]),
        ]
        .into_iter()
        .enumerate()
        {
            let len = values.len();
            let input = client.register_tensor_data(TensorData::new(values, [len]));
            let out = client.create_empty_handle();
            let id = input.id();
            let bindings = GraphBindings {
                tensors: vec![(TensorId::new(0), id), (TensorId::new(1), id), (TensorId::new(3), out)],
                shapes: vec![len],
                scalars: vec![ScalarIr::Float(scalar)],
                ranges: Vec::new(),
            };
            match turn {
                0 => client.register_and_execute_graph(graph, operations(), bindings),
                _ => client.execute_graph(graph, bindings),
            }
            assert_eq!(read(&client, out, len), expected, "{text}");
            client.register_op(OperationIr::Drop(TensorIr {
                id: out,
                shape: Shape::new([len]),
                status: TensorStatus::ReadWrite,
                dtype: DType::F32,
            }));
        }
        for (value, other) in others.iter().enumerate() {
            assert_eq!(read(&client, other.id(), 1), [value as f32], "{text}");
        }
    }
}

#[test]
fn a_tensor_has_its_values_by_a_second_name_after_the_first_is_dropped() {
    let client = client("openreg:1");
    let before = client.tensors();
    let first = client.register_tensor_data(TensorData::new(vec![3.0_f32, 4.0], [2]));
    let second = client.create_empty_handle();
    client.register_alias(second, first.id());
    drop(first);
    assert_eq!(read(&client, second, 2), [3.0, 4.0]);
    let tensor =
        TensorIr { id: second, shape: Shape::new([2]), status: TensorStatus::ReadWrite, dtype: DType::F32 };
    client.register_op(OperationIr::Drop(tensor));
    assert_eq!(client.tensors(), before);
}
