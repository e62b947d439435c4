//! Operations that waited and then fail: each error is returned once, names the operations and the cause, and
//! disturbs nothing else.

use std::panic;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

use burn::tensor::{Device, Tensor};
use device_host_kernels::HostKernels;
use device_kernels::{
    Binary, Call, Coverage, KernelSet, KernelSetDescriptor, NodeKind, Operator, Unary, kernel_sets,
};
use device_registry::Fault;
use device_registry::backend::{BackendError, HostMemory, Launch, LoadFailure};

use crate::within::within;

#[path = "../../tests/tests/common/within.rs"]
mod within;

device_registry::autoload!();

const LIMIT: Duration = Duration::from_secs(60);

fn vector(device: &Device) -> Tensor<1> {
    Tensor::from_floats([1.0, 2.0, 3.0], device)
}

fn values(tensor: Tensor<1>) -> Vec<f32> {
    tensor.try_into_data().unwrap().try_to_vec().unwrap()
}

fn error(tensor: Tensor<1>) -> String {
    tensor.try_into_data().unwrap_err().to_string()
}

/// A device of `openreg`, for one test at a time: its faults are all tests'.
fn openreg() -> (device_registry::Device, Device, MutexGuard<'static, ()>) {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let registered = device_registry::device("openreg:0").unwrap();
    let device = device_burn::device("openreg:0").unwrap();
    let _ = device.sync();
    (registered, device, guard)
}

const NAME: &str = "Fused.mul·add<NumericFloat.MulScalar, NumericFloat.AddScalar>(f32 [3]) -> f32 [3] on openreg:0 \
                    failed: ";

/// `x * 2 + 1`, whose launch is going to fail, as there is no memory for the result.
fn failing(registered: device_registry::Device, x: &Tensor<1>) -> Tensor<1> {
    let y = x.clone() * 2.0 + 1.0;
    registered.faults().unwrap().inject(Fault::FailAllocation { nth: 1 }).unwrap();
    y
}

#[test]
fn an_error_names_all_operations_their_types_and_the_cause_and_is_returned_once() {
    let (registered, device, _guard) = openreg();
    let x = vector(&device);
    drop(values(x.clone() + x.clone()));
    let message = error(failing(registered, &x));
    assert!(message.contains(NAME) && message.contains("out of memory: 12 bytes asked for"), "{message}");
    device.sync().unwrap();
    assert_eq!(values(x * 2.0 + 1.0), [3.0, 5.0, 7.0]);
}

#[test]
fn sync_returns_the_failure_of_what_it_runs_once() {
    let (registered, device, _guard) = openreg();
    let x = vector(&device);
    drop(values(x.clone() + x.clone()));
    let failed = failing(registered, &x);
    let message = device.sync().unwrap_err().to_string();
    assert!(message.contains(NAME), "{message}");
    device.sync().unwrap();
    assert_eq!(error(failed), message);
}

#[test]
fn all_results_and_what_is_computed_from_them_have_the_same_error() {
    let (registered, device, _guard) = openreg();
    let x = vector(&device);
    drop(values(x.clone() + x.clone()));
    let first = x.clone() * 2.0;
    let second = failing(registered, &x) - first.clone();
    let view = second.clone().slice(0..2);
    let message = error(first.clone());
    assert!(message.contains("NumericFloat.Sub"), "{message}");
    assert_eq!(error(second.clone()), message);
    assert_eq!(error(view), message);
    assert_eq!(error(second.clone() + 1.0), message);
    assert_eq!(error(second.clone().sort(0)), message);
    assert_eq!(error(second.to_device(&device_burn::device("mycpu").unwrap())), message);
    assert_eq!(values(x), [1.0, 2.0, 3.0]);
    device.sync().unwrap();
}

#[test]
fn another_thread_that_runs_them_gets_the_error_and_the_owner_does_not_get_it_again() {
    let (registered, device, _guard) = openreg();
    let x = vector(&device);
    drop(values(x.clone() + x.clone()));
    let failed = failing(registered, &x);
    let message = thread::spawn(move || error(failed)).join().unwrap();
    assert!(message.contains(NAME), "{message}");
    device.sync().unwrap();
}

#[test]
fn a_failure_in_another_thread_that_nothing_has_returned_is_the_owners() {
    let (registered, device, _guard) = openreg();
    let x = vector(&device);
    drop(values(x.clone() + x.clone()));
    let failed = failing(registered, &x);
    let of_thread = device.clone();
    thread::spawn(move || {
        // It needs the result, and no read needs what follows from it.
        drop(failed.sort(0));
        of_thread.sync().unwrap();
    })
    .join()
    .unwrap();
    let message = device.sync().unwrap_err().to_string();
    assert!(message.contains(NAME), "{message}");
    device.sync().unwrap();
}

#[test]
fn what_waited_for_a_device_that_was_closed_is_computed_from_the_hosts_bytes() {
    let (registered, device, _guard) = openreg();
    let x = vector(&device);
    let on_device = x.clone() + x.clone();
    device.sync().unwrap();
    let of_host = x.clone() * 2.0 + 1.0;
    let of_lost = on_device.clone() * 2.0 + 1.0;
    registered.close().unwrap();
    assert_eq!(values(of_host), [3.0, 5.0, 7.0]);
    let message = error(of_lost);
    assert!(message.contains(NAME) && message.contains("has been reset or closed since"), "{message}");
    assert_eq!(values(x * 2.0 + 1.0), [3.0, 5.0, 7.0]);
    let _ = device.sync();
    device.sync().unwrap();
}

#[test]
fn a_lost_device_is_an_error_until_it_is_reset() {
    let (registered, device, _guard) = openreg();
    let x = vector(&device);
    drop(values(x.clone() + x.clone()));
    let y = x.clone() * 2.0 + 1.0;
    registered.faults().unwrap().inject(Fault::LoseDevice { nth: 1 }).unwrap();
    let message = error(y);
    assert!(message.contains("Fused.mul·add") && message.contains("device lost"), "{message}");
    registered.reset().unwrap();
    assert_eq!(values(x * 2.0 + 1.0), [3.0, 5.0, 7.0]);
    let _ = device.sync();
    device.sync().unwrap();
}

/// Kernels for `mycpu`: the host's, except that some break.
static MYCPU_KERNELS: KernelSetDescriptor = KernelSetDescriptor::new("mycpu", load);

fn load() -> Result<Box<dyn KernelSet>, LoadFailure> {
    Ok(Box::new(Breaking))
}

struct Breaking;

fn operators(call: &Call) -> Vec<Operator> {
    let of_node = |kind: &NodeKind| match kind {
        NodeKind::Result { operator, .. } => Some(*operator),
        _ => None,
    };
    match call.operator() {
        Operator::Expression(of) => of.nodes().iter().filter_map(|node| of_node(&node.kind)).collect(),
        operator => vec![operator],
    }
}

impl KernelSet for Breaking {
    fn coverage(&self, _device: device_registry::Device) -> Vec<Coverage> {
        Coverage::of_all()
    }

    fn supports(&self, _device: device_registry::Device, call: &Call) -> bool {
        let operators = operators(call);
        let is_expression = matches!(call.operator(), Operator::Expression(_));
        if operators.contains(&Operator::Unary(Unary::Tan)) && is_expression {
            panic!("on purpose: the set does not know whether it has tangents");
        }
        // Others are done in parts.
        operators.len() <= 4 && !operators.contains(&Operator::Unary(Unary::Erf))
    }

    fn launch(&self, call: &Call, launch: &Launch<'_>) -> Result<(), BackendError> {
        let operators = operators(call);
        if operators.contains(&Operator::Binary(Binary::Mul)) {
            panic!("on purpose: the kernel is broken");
        }
        if operators.contains(&Operator::Binary(Binary::Sub)) {
            return Err(BackendError::other("no stars to subtract by"));
        }
        HostKernels::new(|span| span.memory_as::<HostMemory>()).launch(call, launch)
    }
}

/// `mycpu` with the breaking kernels, for one test at a time: a failure of its stream reaches all work that
/// is enqueued.
fn mycpu() -> (Device, MutexGuard<'static, ()>) {
    static ONE: Mutex<()> = Mutex::new(());
    static REGISTER: Once = Once::new();
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    REGISTER.call_once(|| {
        kernel_sets().register(&MYCPU_KERNELS).unwrap();
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !panic.payload_as_str().unwrap_or_default().starts_with("on purpose") {
                print(panic);
            }
        }));
    });
    (device_burn::device("mycpu").unwrap(), guard)
}

#[test]
fn a_kernel_of_several_operations_that_fails_or_panics_is_an_error_with_all_their_names() {
    type Operation = fn(Tensor<1>) -> Tensor<1>;
    for (operation, cause, name) in [
        ((|x| (x - 1.0).exp()) as Operation, "no stars to subtract by", "NumericFloat.SubScalar, Float.Exp"),
        (|x| (x * 2.0).exp(), "on purpose: the kernel is broken", "NumericFloat.MulScalar, Float.Exp"),
    ] {
        within(LIMIT, move || {
            let (device, _guard) = mycpu();
            let x = vector(&device);
            let before = x.clone() + 1.0;
            device.sync().unwrap();
            let failed = operation(x.clone());
            let of_failed = failed.clone() + x.clone();
            let message = error(failed.clone());
            assert!(message.contains(cause) && message.contains(name), "{message}");
            assert!(error(of_failed).contains(cause));
            assert!(error(failed.sort(0)).contains(cause));
            let _ = device.sync();
            device.sync().unwrap();
            assert_eq!(values(before), [2.0, 3.0, 4.0]);
            assert_eq!(values((x + 1.0) / 2.0), [1.0, 1.5, 2.0]);
        });
    }
}

#[test]
fn sync_returns_the_failure_of_a_kernel_of_several_operations_once() {
    within(LIMIT, || {
        let (device, _guard) = mycpu();
        let failed = (vector(&device) - 1.0).exp();
        let message = device.sync().unwrap_err().to_string();
        assert!(message.contains("NumericFloat.SubScalar, Float.Exp"), "{message}");
        device.sync().unwrap();
        assert!(error(failed).contains("no stars to subtract by"));
    });
}

#[test]
fn an_expression_that_the_device_has_only_in_parts_runs_in_parts() {
    let (device, _guard) = mycpu();
    let x = vector(&device);
    device_burn::reset_counts("mycpu").unwrap();
    for step in [1.0, 2.0] {
        let y = ((((x.clone() + step) / 2.0) + 3.0) / 4.0) + x.clone();
        let expected = [1.0, 2.0, 3.0].map(|x: f32| ((x + step) / 2.0 + 3.0) / 4.0 + x);
        assert_eq!(values(y), expected);
    }
    let counts = device_burn::counts("mycpu").unwrap();
    let launches: Vec<_> =
        counts.launches.iter().map(|launch| (launch.operations, launch.kernels, launch.times)).collect();
    assert_eq!(launches, [(5, 5, 2)], "{counts}");
    assert_eq!(counts.fused(), 10, "{counts}");
}

#[test]
fn operations_without_an_expression_run_one_by_one() {
    let (device, _guard) = mycpu();
    let x = vector(&device);
    device_burn::reset_counts("mycpu").unwrap();
    // The set panics for the expression, and has each operator.
    let y = (x.clone() + 1.0).tan() / 2.0;
    let expected = [2.0_f32, 3.0, 4.0].map(|x| x.tan() / 2.0);
    for (found, expected) in values(y).into_iter().zip(expected) {
        assert!((found - expected).abs() < 1e-5);
    }
    let counts = device_burn::counts("mycpu").unwrap();
    assert_eq!((counts.native(), counts.fused(), counts.fallbacks()), (3, 0, 0), "{counts}");

    // The device has no kernel for one of them.
    device_burn::reset_counts("mycpu").unwrap();
    let kept = x.clone() + 1.0;
    let y = kept.clone().erf() / 2.0 + x.reshape([3]);
    let expected = Tensor::<1>::from_floats([2.0, 3.0, 4.0], &Device::flex()).erf();
    let expected = values(expected / 2.0 + vector(&Device::flex()));
    assert_eq!(values(y), expected);
    assert_eq!(values(kept), [2.0, 3.0, 4.0]);
    let counts = device_burn::counts("mycpu").unwrap();
    assert_eq!((counts.native(), counts.fused(), counts.fallbacks()), (3, 0, 1), "{counts}");
}
