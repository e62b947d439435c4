//! Which operations run as kernels on a device whose memory is the host's own, and what is joined on the
//! host. The choice is the process's, so that each one has its own process.

use burn::tensor::activation::sigmoid;
use burn::tensor::module::{conv2d, interpolate};
use burn::tensor::ops::{ConvOptions, InterpolateMode, InterpolateOptions, PadMode};
use burn::tensor::{Device, Int, Tensor};
use device_burn::{Fallback, KernelUse, OperationCount};

#[path = "../../tests/tests/common/child.rs"]
mod child;

device_registry::autoload!();

/// How often an operation ran as kernels, on burn's CPU engine beside a kernel, and only on burn's CPU
/// engine.
fn counts(device: &str, operation: &str) -> [u64; 3] {
    let counts = device_burn::counts(device).unwrap();
    let count = |count: &OperationCount| [count.native, count.host, count.fallback];
    counts.operations.iter().find(|count| count.operation == operation).map_or([0; 3], count)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_to_vec().unwrap()
}

/// A sum, a mean over a dimension, and a convolution.
fn program(device: &Device) {
    let a = Tensor::<2>::from_floats([[1.0, 2.0], [3.0, 4.0]], device);
    let sum = a.clone() + a.clone();
    assert_eq!(values(sum.clone().mean_dim(1)), [3.0, 7.0]);
    let image = sum.reshape([1, 1, 2, 2]);
    let weight = Tensor::<4>::from_floats([[[[1.0, -1.0]]]], device);
    let convolved = conv2d(image, weight, None, ConvOptions::new([1, 1], [0, 0], [1, 1], 1));
    // The engine takes what a kernel wrote, and the other way round.
    assert_eq!(values(convolved * 10.0), [-20.0, -20.0]);
    let counts = device_burn::counts("cpu").unwrap();
    assert_eq!(counts.moved(), device_burn::Transfers::default(), "the bytes are shared:\n{counts}");
}

#[test]
fn kernels_do_what_they_do_faster() {
    child::run("child_with_auto", &[]);
    child::run("child_with_auto", &[("DEVICE_BURN_KERNELS", "Auto")]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_with_auto() {
    let device = device_burn::device("cpu").unwrap();
    program(&device);
    program(&device);
    assert_eq!(counts("cpu", "NumericFloat.Add"), [0, 2, 0]);
    assert_eq!(counts("cpu", "NumericFloat.MeanDim"), [0, 2, 0]);
    assert_eq!(counts("cpu", "Module.Conv2d"), [2, 0, 0]);
    // No kernel set has it.
    let stretched = |device: &Device| {
        let options = InterpolateOptions::new(InterpolateMode::Nearest).with_output_size([1, 4]);
        interpolate(Tensor::<4>::from_floats([[[[2.0, 1.0]]]], device), options)
    };
    assert_eq!(values(stretched(&device)), [2.0, 2.0, 1.0, 1.0]);
    assert_eq!(counts("cpu", "Module.Interpolate"), [0, 0, 1]);

    // From 4,096 elements on.
    for (len, by_kernels) in [(4095, [0, 1, 0]), (4096, [1, 1, 0]), (4095, [1, 2, 0])] {
        let half = sigmoid(Tensor::<1>::zeros([len], &device));
        assert!(values(half).iter().all(|value| *value == 0.5));
        assert_eq!(counts("cpu", "Activation.Sigmoid"), by_kernels);
    }

    // From 256 elements on, though the largest are few.
    for (len, by_kernels) in [(255, [0, 1, 0]), (256, [1, 1, 0])] {
        let largest = Tensor::<1>::from_floats(vec![1.0; len].as_slice(), &device).topk(2, 0);
        assert_eq!(values(largest), [1.0; 2]);
        assert_eq!(counts("cpu", "NumericFloat.TopK"), by_kernels);
    }

    // What has a kernel is no fallback, though the engine does it.
    Fallback::Deny.set();
    program(&device);
    assert_eq!(counts("cpu", "NumericFloat.Add"), [0, 3, 0]);
    let error = stretched(&device).try_into_data().unwrap_err().to_string();
    assert!(error.contains("no kernel of the device does it"), "{error}");
}

/// A padding in one dimension has a kernel, and one in nine has none, as kernels have eight.
fn pad(numbers: &[f32], has_kernel: bool) -> Vec<f32> {
    let device = device_burn::device("cpu").unwrap();
    let row = Tensor::<1>::from_floats(numbers, &device);
    if has_kernel {
        return values(row.pad([(1, 0)], PadMode::Constant(0.0)));
    }
    values(row.reshape([1, 1, 1, 1, 1, 1, 1, 1, numbers.len()]).pad([(1, 0)], PadMode::Constant(0.0)))
}

#[test]
fn what_the_engine_does_without_a_plan_hides_no_fallback_that_matters() {
    child::run("child_with_two_pads", &[("DEVICE_BURN_FALLBACK", "allow")]);
    child::run("child_with_two_pads", &[("DEVICE_BURN_FALLBACK", "warn")]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_with_two_pads() {
    for _ in 0..2 {
        assert_eq!(pad(&[1.0, 2.0], true), [0.0, 1.0, 2.0]);
    }
    assert_eq!(pad(&[1.0, 2.0], false), [0.0, 1.0, 2.0]);
    let expected = match Fallback::current().unwrap() {
        // It had a kernel once, and is not planned again.
        Fallback::Allow => [0, 3, 0],
        _ => [0, 2, 1],
    };
    assert_eq!(counts("cpu", "NumericFloat.Pad"), expected);
}

#[test]
fn a_tensor_without_elements_decides_nothing() {
    child::run("child_with_an_empty_tensor", &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_with_an_empty_tensor() {
    assert_eq!(pad(&[], true), [0.0]);
    assert_eq!(pad(&[1.0, 2.0], false), [0.0, 1.0, 2.0]);
    assert_eq!(counts("cpu", "NumericFloat.Pad"), [0, 1, 1]);
}

#[test]
fn kernels_do_all_that_they_can_if_the_program_says_so() {
    child::run("child_with_always", &[("DEVICE_BURN_KERNELS", "always")]);
    child::run("child_with_always", &[("DEVICE_BURN_KERNELS", "auto"), ("SET_BY_CODE", "1")]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_with_always() {
    if std::env::var_os("SET_BY_CODE").is_some() {
        KernelUse::Always.set();
    }
    program(&device_burn::device("cpu").unwrap());
    assert_eq!(counts("cpu", "NumericFloat.Add"), [1, 0, 0]);
    assert_eq!(counts("cpu", "NumericFloat.MeanDim"), [1, 0, 0]);
    assert_eq!(counts("cpu", "Module.Conv2d"), [1, 0, 0]);
}

#[test]
fn another_word_is_an_error_of_the_device() {
    child::run("child_with_another_word", &[("DEVICE_BURN_KERNELS", "never")]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_with_another_word() {
    let error = device_burn::device("cpu").unwrap_err().to_string();
    assert_eq!(error, "DEVICE_BURN_KERNELS=\"never\" is invalid: expected auto or always");
}

#[test]
fn rows_of_the_host_are_joined_there_and_uploaded_once() {
    let device = device_burn::device("openreg:1").unwrap();
    let row = |value: f32| Tensor::<2>::from_floats([[value, value + 0.5]], &device);
    let rows: Vec<_> = (0..256_u16).map(|value| row(value.into())).collect();
    device_burn::reset_counts("openreg:1").unwrap();
    let batch = Tensor::cat(rows, 0);
    let doubled = batch.clone() + batch.clone();
    assert_eq!(values(doubled.narrow(0, 255, 1)), [510.0, 511.0]);
    assert_eq!(counts("openreg:1", "BaseFloat.Cat"), [0, 1, 0]);
    let moved = device_burn::counts("openreg:1").unwrap().moved();
    assert_eq!((moved.uploads, moved.bytes_to_device), (1, 256 * 8));

    // What the device has is joined by a kernel.
    let more = Tensor::cat(vec![batch.clone(), row(1.0)], 0);
    assert_eq!(values(more.narrow(0, 256, 1)), [1.0, 1.5]);
    assert_eq!(counts("openreg:1", "BaseFloat.Cat"), [1, 1, 0]);

    // A row of the host that several joins need.
    device_burn::reset_counts("openreg:1").unwrap();
    let again = row(2.0);
    for _ in 0..3 {
        let joined = Tensor::cat(vec![again.clone(), batch.clone(), again.clone()], 0);
        assert_eq!(values(joined.narrow(0, 257, 1)), [2.0, 2.5]);
    }
    assert_eq!(device_burn::counts("openreg:1").unwrap().moved().uploads, 1);
}

/// More than a thread keeps of the tensors that it drops.
#[test]
fn thousands_of_rows_are_joined() {
    const ROWS: u16 = 5000;
    for name in ["cpu", "mycpu", "openreg:0"] {
        let device = device_burn::device(name).unwrap();
        let rows: Vec<_> = (0..ROWS).map(|row| Tensor::<1>::from_floats([f32::from(row)], &device)).collect();
        let shared = rows.clone();
        let numbers = (0..ROWS).map(|row| Tensor::<1, Int>::from_ints([i32::from(row)], &device));
        let expected: Vec<f32> = (0..ROWS).map(f32::from).collect();
        assert_eq!(values(Tensor::cat(rows, 0)), expected, "{name}");
        assert_eq!(values(Tensor::cat(shared, 0)), expected, "{name}");
        assert_eq!(values(Tensor::cat(numbers.collect(), 0).float()), expected, "{name}");
    }
}
