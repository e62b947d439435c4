//! A program in Rust whose backends are linked: what it writes, and what is an error.
//!
//! `ORT_DYLIB_PATH` has to be the path of ONNX Runtime's library, such as the one in its package for Python.

use device_openreg as _;
use device_openreg_kernels as _;
use ort::editor::{Graph, Model, Node, ONNX_DOMAIN, Opset};
use ort::environment::Environment;
use ort::session::Session;
use ort::session::builder::SessionBuilder;
use ort::value::{Outlet, Shape, SymbolicDimensions, Tensor, TensorElementType, ValueType};

device_registry::autoload!();

/// The only environment of the process.
fn environment() -> &'static Environment {
    static ENVIRONMENT: std::sync::OnceLock<Environment> = std::sync::OnceLock::new();
    ENVIRONMENT.get_or_init(|| ort::init().build().expect("ORT_DYLIB_PATH is ONNX Runtime's library"))
}

fn outlet(name: &str) -> Outlet {
    let ty = TensorElementType::Float32;
    let dimension_symbols = SymbolicDimensions::empty(1);
    Outlet::new(name, ValueType::Tensor { ty, shape: Shape::new([3]), dimension_symbols })
}

/// A session of `y = x + x`.
fn doubling(builder: &SessionBuilder) -> ort::Result<Session> {
    let mut graph = Graph::new()?;
    graph.set_inputs([outlet("x")])?;
    graph.set_outputs([outlet("y")])?;
    graph.add_node(Node::new("Add", ONNX_DOMAIN, "add", ["x", "x"], ["y"], [])?)?;
    let mut model = Model::new([Opset::new(ONNX_DOMAIN, 17)?])?;
    model.set_graph(graph)?;
    model.into_session(builder)
}

#[test]
fn a_program_computes_on_its_own_linked_backends() -> ort::Result<()> {
    let environment = environment();
    device_ort::register_backend(environment, "openreg")?;
    let device = device_ort::device(environment, "openreg:1")?;
    let mut session = doubling(&Session::builder(environment)?.with_devices([device], None)?)?;
    let x = Tensor::from_array(([3_usize], vec![1.0_f32, 2.0, 3.5]))?;
    let outputs = session.run(ort::inputs![x])?;
    assert_eq!(outputs["y"].try_extract_tensor::<f32>()?.1, [2.0, 4.0, 7.0]);
    // Not on the CPU.
    assert_eq!(device_ort::counts()["openreg:1"]["taken"], 1);
    // Again.
    device_ort::register_backend(environment, "openreg")?;
    Ok(())
}

#[test]
fn a_device_that_is_not_there_is_an_error_that_lists_those_that_are() {
    let error = device_ort::device(environment(), "openreg:7").err().unwrap().to_string();
    assert!(error.contains("`openreg:7` is no device of this environment, which has"), "{error}");
    assert!(error.contains("CPUExecutionProvider"), "{error}");
    let error = device_ort::register_backend(environment(), "opneclish").unwrap_err().to_string();
    assert!(error.contains("opneclish"), "{error}");
}
