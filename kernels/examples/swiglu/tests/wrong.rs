//! Kernels with mistakes, which the suite has to find by the definition's examples and reference.

use device_host_kernels::HostKernels;
use device_kernels::{Call, Coverage, Layout, Operator};
use device_kernels_conformance::{Outcome, Subject, checks};
use device_registry::Device;
use device_registry::backend::{BackendError, HostMemory};
use swiglu as _;

device_registry::autoload!();

/// A kernel that may ignore the strides, the gate's limit, the value's limit, and the sign.
fn compute<const STRIDES: bool, const GATE: bool, const VALUE: bool, const SIGN: bool>(
    call: &Call,
    inputs: &[Option<&[u8]>],
    outputs: &mut [&mut [u8]],
) -> Result<(), BackendError> {
    let Operator::Custom(custom) = call.operator() else { return Err(BackendError::unsupported(call)) };
    let limit = custom.option(0).map_or(0.0, |limit| limit.as_f64() as f32);
    let layouts: Vec<&Layout> = call.arrays().map(|(_, layout)| layout).collect();
    let place = |layout: &Layout, element: usize| {
        if !STRIDES {
            return element * 4;
        }
        let (mut rest, mut place) = (element, layout.offset() as isize - layout.range().start as isize);
        for (&size, &stride) in layout.shape().iter().zip(layout.strides()).rev() {
            place += (rest % size) as isize * stride;
            rest /= size;
        }
        place as usize * 4
    };
    let number = |input: usize, element: usize| {
        let bytes = inputs[input].expect("it is an array");
        let at = place(layouts[input], element);
        f32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    };
    for element in 0..layouts[2].len() {
        let (mut gate, mut value) = (number(0, element), number(1, element));
        gate = if GATE { gate.min(limit) } else { gate };
        value = if VALUE { value.clamp(-limit, limit) } else { value };
        let exponent = if SIGN { -gate } else { gate };
        let result = gate / (1.0 + exponent.exp()) * value;
        let at = place(layouts[2], element);
        outputs[0][at..at + 4].copy_from_slice(&result.to_ne_bytes());
    }
    Ok(())
}

fn outcome(compute: device_kernels::ComputeOnHost) -> Outcome {
    let coverage = vec![Coverage::of("acme__swiglu").dtypes([device_kernels::DType::F32])];
    let set = HostKernels::computing(|span| span.memory_as::<HostMemory>(), coverage, compute);
    let subject = Subject::new(Device::cpu(), Box::leak(Box::new(set)));
    let check = checks().into_iter().find(|check| check.name() == "custom::acme__swiglu");
    check.expect("the operator is linked").run(&subject)
}

#[test]
fn a_right_kernel_passes() {
    assert_eq!(outcome(compute::<true, true, true, true>).to_string(), Outcome::Passed.to_string());
}

#[test]
fn each_mistake_is_found() {
    for (mistake, compute) in [
        ("strides", compute::<false, true, true, true> as device_kernels::ComputeOnHost),
        ("the limit of the gate", compute::<true, false, true, true>),
        ("the limit of the value", compute::<true, true, false, true>),
        ("the sign", compute::<true, true, true, false>),
    ] {
        match outcome(compute) {
            Outcome::Failed(message) => assert!(message.contains("acme__swiglu<limit "), "{message}"),
            outcome => panic!("without {mistake}: {outcome}"),
        }
    }
}
