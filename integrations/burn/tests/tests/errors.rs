//! What fails is an error of its tensor, says why, and disturbs nothing else.

use std::panic;
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use burn::tensor::{Device, Int, Tensor};
use device_burn_tests as _;
use device_host_kernels::HostKernels;
use device_kernels::{Binary, Call, Coverage, KernelSet, KernelSetDescriptor, Operator, kernel_sets};
use device_registry::Fault;
use device_registry::backend::{BackendError, HostMemory, Launch, LoadFailure};

use crate::within::within;

#[path = "common/child.rs"]
mod child;
#[path = "common/within.rs"]
mod within;

device_registry::autoload!();

const LIMIT: Duration = Duration::from_secs(60);

fn vector(values: [f32; 3], device: &Device) -> Tensor<1> {
    Tensor::from_floats(values, device)
}

fn values(tensor: Tensor<1>) -> Vec<f32> {
    tensor.try_into_data().unwrap().try_to_vec().unwrap()
}

fn error<const D: usize>(tensor: Tensor<D>) -> String {
    tensor.try_into_data().unwrap_err().to_string()
}

/// The messages of panics that a test causes on purpose stay out of its output.
fn hush() {
    static HUSH: Once = Once::new();
    HUSH.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let text = panic.payload_as_str().unwrap_or_default();
            if !text.starts_with("on purpose") && !text.ends_with(EMPTY) {
                print(panic);
            }
        }));
    });
}

/// What burn's CPU engine panics with for [`empty_max`].
const EMPTY: &str = "cannot reduce an empty tensor";

/// burn lets it pass, and its CPU engine panics.
fn empty_max(device: &Device) -> Tensor<1> {
    hush();
    Tensor::<2>::zeros([0, 3], device).max()
}

#[test]
fn an_error_names_the_operation_its_types_its_shapes_the_device_and_the_cause() {
    let openreg = device_registry::device("openreg:0").unwrap();
    let device = device_burn::device("openreg:0").unwrap();
    let a = Tensor::<2>::from_floats([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], &device);
    let squares = a.clone() * a.clone();
    squares.try_into_data().unwrap();

    openreg.faults().unwrap().inject(Fault::FailAllocation { nth: 1 }).unwrap();
    let message = error(a.clone() + a.clone());
    openreg.faults().unwrap().clear().unwrap();
    let begin = "NumericFloat.Add(f32 [2, 3], f32 [2, 3]) -> f32 [2, 3] on openreg:0 failed: ";
    assert!(message.contains(begin), "{message}");
    assert!(message.contains("out of memory: 24 bytes asked for"), "{message}");

    let sum = (a.clone() + a).try_into_data().unwrap();
    assert_eq!(sum.try_to_vec::<f32>().unwrap(), [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
}

#[test]
fn an_engine_that_panics_is_named_with_the_text_of_its_panic() {
    let device = device_burn::device("openreg:1").unwrap();
    let message = error(empty_max(&device));
    let begin = "NumericFloat.Max(f32 [0, 3]) -> f32 [1] on openreg:1 failed: burn's CPU engine panicked: ";
    assert!(message.contains(begin) && message.contains(EMPTY), "{message}");
}

#[test]
#[cfg_attr(feature = "burn-0-23", ignore = "a group panics: burn-group, backend/channel.rs:35")]
fn what_is_computed_from_an_error_carries_the_same_error() {
    let device = device_burn::device("openreg:1").unwrap();
    let first = empty_max(&device);
    let view = first.clone().reshape([1, 1]);
    let native = first.clone() + first.clone();
    let fallback = first.clone().exp() * 2.0;
    let ints: Tensor<1, Int> = first.clone().int();
    let moved = first.clone().to_device(&device_burn::device("mycpu").unwrap());
    let message = error(first);
    assert!(message.contains("NumericFloat.Max"), "{message}");
    assert_eq!(error(view), message);
    assert_eq!(error(native), message);
    assert_eq!(error(fallback), message);
    assert_eq!(ints.try_into_data().unwrap_err().to_string(), message);
    assert_eq!(error(moved), message);
}

#[test]
fn other_tensors_work_after_an_error() {
    let device = device_burn::device("openreg:1").unwrap();
    let before = vector([1.0, 2.0, 3.0], &device);
    let sum = before.clone() + before.clone();
    let failed = empty_max(&device);
    let after = before.clone() * sum.clone();
    error(failed);
    assert_eq!(values(before), [1.0, 2.0, 3.0]);
    assert_eq!(values(sum), [2.0, 4.0, 6.0]);
    assert_eq!(values(after), [2.0, 8.0, 18.0]);
}

#[test]
fn sync_returns_an_unreported_failure_once() {
    let device = device_burn::device("openreg:1").unwrap();
    device.sync().unwrap();
    let failed = empty_max(&device);
    let message = device.sync().unwrap_err().to_string();
    assert!(message.contains("NumericFloat.Max"), "{message}");
    device.sync().unwrap();
    assert_eq!(error(failed), message);
}

#[test]
fn sync_returns_a_failure_of_a_dropped_tensor() {
    let device = device_burn::device("openreg:1").unwrap();
    drop(empty_max(&device));
    device.sync().unwrap_err();
    device.sync().unwrap();
}

#[test]
fn sync_returns_no_failure_that_a_read_has_returned() {
    let device = device_burn::device("openreg:1").unwrap();
    error(empty_max(&device));
    device.sync().unwrap();
}

#[test]
fn sync_returns_the_second_failure_if_a_read_has_returned_the_first() {
    let device = device_burn::device("openreg:1").unwrap();
    let (first, second) = (empty_max(&device), Tensor::<2>::zeros([0, 3], &device).min());
    error(first);
    let message = device.sync().unwrap_err().to_string();
    assert!(message.contains("NumericFloat.Min"), "{message}");
    device.sync().unwrap();
    error(second);
}

#[test]
fn panics_of_the_engine_on_eight_threads_wedge_nothing() {
    within(LIMIT, || {
        let device = device_burn::device("openreg:1").unwrap();
        let shared = vector([1.0, 2.0, 3.0], &device);
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let (device, shared) = (device.clone(), shared.clone());
                thread::spawn(move || {
                    for _ in 0..20 {
                        let failed = empty_max(&device);
                        let sum = shared.clone() + shared.clone();
                        assert!(error(failed.clone() + failed).contains(EMPTY));
                        assert_eq!(values(sum.exp().log().round()), [2.0, 4.0, 6.0]);
                    }
                    device.sync().unwrap();
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(values(shared), [1.0, 2.0, 3.0]);
    });
}

/// Kernels for `mycpu`: one that works and one for each way to break.
static MYCPU_KERNELS: KernelSetDescriptor = KernelSetDescriptor::new("mycpu", load);

fn load() -> Result<Box<dyn KernelSet>, LoadFailure> {
    Ok(Box::new(Breaking))
}

struct Breaking;

impl KernelSet for Breaking {
    fn coverage(&self, _device: device_registry::Device) -> Vec<Coverage> {
        Binary::ALL.iter().map(|binary| Coverage::of(binary.name())).collect()
    }

    fn supports(&self, _device: device_registry::Device, call: &Call) -> bool {
        if call.operator() == Operator::Binary(Binary::Div) {
            panic!("on purpose: the set does not know whether it divides");
        }
        matches!(call.operator(), Operator::Binary(_))
    }

    /// The others wait at the gate.
    fn is_short(&self, call: &Call) -> bool {
        call.outputs()[0].1.shape() == [4]
    }

    fn launch(&self, call: &Call, launch: &Launch<'_>) -> Result<(), BackendError> {
        GATE.pass();
        match call.operator() {
            Operator::Binary(Binary::Add) => {
                HostKernels::new(|span| span.memory_as::<HostMemory>()).launch(call, launch)
            }
            Operator::Binary(Binary::Mul) => panic!("on purpose: the kernel is broken"),
            other => Err(BackendError::other(format_args!("no stars to {other} by"))),
        }
    }
}

/// Holds kernels back, so that a test enqueues others behind them.
struct Gate {
    shut: Mutex<bool>,
    opened: Condvar,
}

static GATE: Gate = Gate { shut: Mutex::new(false), opened: Condvar::new() };

impl Gate {
    fn pass(&self) {
        let shut = self.shut.lock().unwrap();
        let (_shut, timeout) = self.opened.wait_timeout_while(shut, LIMIT, |shut| *shut).unwrap();
        assert!(!timeout.timed_out(), "the gate stayed shut");
    }

    fn set(&self, shut: bool) {
        *self.shut.lock().unwrap() = shut;
        self.opened.notify_all();
    }
}

/// `mycpu` with the breaking kernels, for one test at a time: a failure of its stream reaches all work that
/// is enqueued.
fn mycpu() -> (Device, MutexGuard<'static, ()>) {
    static ONE: Mutex<()> = Mutex::new(());
    static REGISTER: Once = Once::new();
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    hush();
    REGISTER.call_once(|| kernel_sets().register(&MYCPU_KERNELS).unwrap());
    (device_burn::device("mycpu").unwrap(), guard)
}

/// Enqueues a kernel that fails by `operation`, and others behind it.
fn failing_kernel(operation: fn(Tensor<1>, Tensor<1>) -> Tensor<1>, cause: &'static str, name: &'static str) {
    within(LIMIT, move || {
        let (device, _guard) = mycpu();
        let (a, b) = (vector([1.0, 2.0, 3.0], &device), vector([10.0, 20.0, 30.0], &device));
        let before = a.clone() + b.clone();
        device.sync().unwrap();

        GATE.set(true);
        let failed = operation(a.clone(), b.clone());
        let behind = a.clone() + b.clone();
        let of_failed = failed.clone() + a.clone();
        GATE.set(false);

        let message = error(failed.clone());
        assert!(
            message.contains(cause) && message.contains(name) && message.contains("mycpu:0"),
            "{message}"
        );
        assert!(message.contains("f32 [3]"), "{message}");
        assert!(error(behind.clone()).contains(cause));
        assert!(error(of_failed).contains(cause));
        // Whether they are read by a kernel or by the CPU.
        assert!(error(behind + a.clone()).contains(cause));
        assert!(error(failed.exp()).contains(cause));
        let _ = device.sync();
        device.sync().unwrap();

        assert_eq!(values(a.clone()), [1.0, 2.0, 3.0], "the host wrote it");
        assert_eq!(values(before.clone()), [11.0, 22.0, 33.0], "it was written before");
        assert_eq!(values(before + a.clone()), [12.0, 24.0, 36.0]);
        assert_eq!(values(a + b), [11.0, 22.0, 33.0]);
    });
}

#[test]
fn a_kernel_that_fails_in_the_stream_spoils_what_is_enqueued_behind_it_and_nothing_before() {
    failing_kernel(|a, b| a - b, "no stars to sub by", "NumericFloat.Sub");
}

#[test]
fn a_kernel_that_panics_in_the_stream_is_an_error_like_any_other() {
    failing_kernel(|a, b| a * b, "on purpose: the kernel is broken", "NumericFloat.Mul");
}

#[test]
fn a_kernel_that_fails_on_the_thread_that_enqueues_it_is_an_error_like_any_other() {
    for (operation, cause) in [
        ((|a, b| a - b) as fn(Tensor<1>, Tensor<1>) -> Tensor<1>, "no stars to sub by"),
        (|a, b| a * b, "on purpose: the kernel is broken"),
    ] {
        within(LIMIT, move || {
            let (device, _guard) = mycpu();
            let a = Tensor::<1>::from_floats([1.0, 2.0, 3.0, 4.0], &device);
            let before = a.clone() + a.clone();
            device.sync().unwrap();
            let failed = operation(a.clone(), a.clone());
            let behind = failed.clone() + a.clone();
            assert!(error(failed).contains(cause));
            assert!(error(behind).contains(cause));
            let _ = device.sync();
            assert_eq!(values(before), [2.0, 4.0, 6.0, 8.0]);
            assert_eq!(values(a.clone() + a), [2.0, 4.0, 6.0, 8.0]);
        });
    }
}

#[test]
fn once_a_failure_is_returned_other_tensors_are_computed_again() {
    within(LIMIT, || {
        let (device, _guard) = mycpu();
        let a = vector([1.0, 2.0, 3.0], &device);
        let twice = || values(a.clone() + a.clone());
        for by_operation in [false, true] {
            let failed = a.clone() - a.clone();
            // The kernel has run by then, and no call has asked the stream for its failure.
            thread::sleep(Duration::from_millis(50));
            let failed = if by_operation { failed + a.clone() } else { failed };
            assert!(error(failed).contains("no stars to sub by"));
            assert_eq!(twice(), [2.0, 4.0, 6.0]);
        }
        device.sync().unwrap();
    });
}

#[test]
fn sync_returns_the_failure_of_a_kernel_in_the_stream_once() {
    within(LIMIT, || {
        let (device, _guard) = mycpu();
        let a = vector([1.0, 2.0, 3.0], &device);
        let failed = a.clone() - a.clone();
        let message = device.sync().unwrap_err().to_string();
        assert!(message.contains("NumericFloat.Sub") && message.contains("no stars to sub by"), "{message}");
        device.sync().unwrap();
        assert!(error(failed).contains("no stars to sub by"));
        assert_eq!(values(a.clone() + a), [2.0, 4.0, 6.0]);
        device.sync().unwrap();
    });
}

#[test]
fn no_thread_reads_memory_that_a_skipped_kernel_left_unwritten() {
    within(LIMIT, || {
        let (device, _guard) = mycpu();
        let stop = Instant::now() + Duration::from_secs(2);
        let syncing = (0..2).map(|_| {
            let device = device.clone();
            thread::spawn(move || {
                while Instant::now() < stop {
                    let _ = device.sync();
                }
            })
        });
        let syncing: Vec<_> = syncing.collect();
        let reading = (0..4).map(|_| {
            let device = device.clone();
            thread::spawn(move || {
                while Instant::now() < stop {
                    let a = vector([1.0, 2.0, 3.0], &device);
                    let failed = a.clone() - a.clone();
                    let behind = a.clone() + a.clone();
                    // It has run if another thread's call returned the failure before.
                    if let Ok(data) = behind.try_into_data() {
                        assert_eq!(data.try_to_vec::<f32>().unwrap(), [2.0, 4.0, 6.0]);
                    }
                    error(failed);
                }
            })
        });
        let reading: Vec<_> = reading.collect();
        syncing.into_iter().chain(reading).for_each(|thread| thread.join().unwrap());
        let _ = device.sync();
        device.sync().unwrap();
    });
}

#[test]
fn a_failure_that_the_registry_has_returned_is_still_that_of_its_tensors() {
    within(LIMIT, || {
        let (device, _guard) = mycpu();
        let a = vector([1.0, 2.0, 3.0], &device);
        let failed = a.clone() - a.clone();
        let behind = a.clone() + a.clone();
        let message = device_registry::device("mycpu").unwrap().synchronize().unwrap_err();
        assert!(device_registry::ErrorChain::new(&message).to_string().contains("no stars to sub by"));

        let of_failed = failed.clone() + a.clone();
        for tensor in [of_failed, failed.clone().exp(), behind, failed] {
            let message = error(tensor);
            assert!(message.contains("no stars to sub by"), "{message}");
        }
        let _ = device.sync();
        assert_eq!(values(a.clone() + a), [2.0, 4.0, 6.0]);
        device.sync().unwrap();
    });
}

#[test]
fn a_kernel_set_that_panics_before_it_launches_is_an_error_of_the_tensor() {
    within(LIMIT, || {
        let (device, _guard) = mycpu();
        let a = vector([1.0, 2.0, 3.0], &device);
        let message = error(a.clone() / a.clone());
        assert!(
            message.contains("NumericFloat.Div(f32 [3], f32 [3]) -> f32 [3] on mycpu:0 failed: "),
            "{message}"
        );
        assert!(message.contains("on purpose: the set does not know"), "{message}");
        assert!(!message.contains("CPU engine"), "{message}");
        assert_eq!(values(a.clone() + a), [2.0, 4.0, 6.0]);
    });
}

#[test]
fn a_wrong_device_string_is_an_error_with_what_exists() {
    let message = |text: &str| device_burn::device(text).unwrap_err().to_string();
    for text in ["openrag:0", "", "openreg:", "openreg:x", "openreg:-1"] {
        assert!(!message(text).is_empty(), "{text}");
    }
    let unknown = message("openrag:0");
    assert!(unknown.contains("openrag") && unknown.contains("openreg"), "{unknown}");
    assert_eq!(
        message("openreg:9"),
        "unknown device index 9: `openreg` has 2 devices (`openreg:0` to `openreg:1`)"
    );
    assert!(device_burn::counts("openrag").is_err() && device_burn::reset_counts("openrag").is_err());
}

#[test]
fn an_invalid_fallback_variable_is_an_error_with_the_values_that_exist() {
    child::run("child_with_an_invalid_fallback_variable", &[("DEVICE_BURN_FALLBACK", "maybe")]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_with_an_invalid_fallback_variable() {
    let expected = "DEVICE_BURN_FALLBACK=\"maybe\" is invalid: expected allow, warn or deny";
    assert_eq!(device_burn::device("openreg:0").unwrap_err().to_string(), expected);
    // Code takes precedence over the variable.
    device_burn::Fallback::Allow.set();
    let device = device_burn::device("openreg:0").unwrap();
    assert_eq!(values(vector([1.0, 2.0, 3.0], &device).neg()), [-1.0, -2.0, -3.0]);
}

static UNLOADABLE: KernelSetDescriptor =
    KernelSetDescriptor::new("cpu", || Err(LoadFailure::unavailable("no kernels at this time of the year")));

#[test]
fn a_kernel_set_that_does_not_load_is_an_error_and_no_fallback() {
    kernel_sets().register(&UNLOADABLE).unwrap();
    let device = device_burn::device("cpu").unwrap();
    let a = vector([1.0, 2.0, 3.0], &device);
    for _ in 0..2 {
        let message = error(a.clone() + a.clone());
        assert!(
            message.contains("NumericFloat.Add(f32 [3], f32 [3]) -> f32 [3] on cpu failed: "),
            "{message}"
        );
        assert!(message.contains("no kernels at this time of the year"), "{message}");
    }
    assert!(error(a.clone().neg()).contains("no kernels at this time of the year"));
    assert_eq!(values(a.reshape([3, 1]).reshape([3])), [1.0, 2.0, 3.0], "a view needs no kernel");
}

#[test]
fn a_disabled_kernel_set_falls_back() {
    child::run("child_with_the_kernels_disabled", &[("DEVICE_KERNELS_DISABLE", "openreg")]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_with_the_kernels_disabled() {
    let device = device_burn::device("openreg:0").unwrap();
    let a = vector([1.0, 2.0, 3.0], &device);
    assert_eq!(values(a.clone() + a), [2.0, 4.0, 6.0]);
    let counts = device_burn::counts("openreg:0").unwrap();
    assert_eq!((counts.native(), counts.fallbacks()), (0, 1), "{counts}");
}
