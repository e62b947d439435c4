//! A device that fails in the midst of a training: an error with its cause, no hang, and the training
//! continues from its last record, to exactly the numbers of an undisturbed training.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use burn::module::{Module, Param};
use burn::optim::{GradientsParams, SgdConfig};
use burn::tensor::{Device, ExecutionError, Tensor, TensorData};
use device_registry::Fault;

use crate::within::within;

#[path = "common/child.rs"]
mod child;
#[path = "common/within.rs"]
mod within;

device_registry::autoload!();

const LIMIT: Duration = Duration::from_secs(120);
const STEPS: usize = 3;

#[derive(Module, Debug)]
struct Network {
    first: Param<Tensor<2>>,
    second: Param<Tensor<2>>,
}

/// The parameters, on the host.
#[derive(Clone, Debug, PartialEq)]
struct Record([TensorData; 2]);

impl Record {
    fn start() -> Self {
        let weights = |rows: usize, columns: usize| {
            let values = (0..rows * columns).map(|i| ((i * 37 % 23) as f32 - 11.0) / 20.0).collect();
            TensorData::new::<f32, _>(values, [rows, columns])
        };
        Self([weights(3, 8), weights(8, 1)])
    }
}

impl Network {
    fn load(Record([first, second]): &Record, device: &Device) -> Self {
        let parameter = |data: &TensorData| Param::from_data(data.clone(), device);
        Self { first: parameter(first), second: parameter(second) }
    }

    fn record(&self) -> Result<Record, ExecutionError> {
        Ok(Record([self.first.val().try_into_data()?, self.second.val().try_into_data()?]))
    }

    fn loss(&self, x: Tensor<2>, y: Tensor<2>) -> Tensor<1> {
        let difference = x.matmul(self.first.val()).tanh().matmul(self.second.val()) - y;
        (difference.clone() * difference).mean()
    }
}

/// A few steps from `record`. Returns the losses and the next record, or the first error that a read returns.
fn train(device: &Device, record: &Record) -> Result<(Vec<f32>, Record), ExecutionError> {
    let device = device.clone().autodiff();
    let x = Tensor::<2>::from_floats([[0., 0., 1.], [0., 1., 1.], [1., 0., 1.], [1., 1., 1.]], &device);
    let y = Tensor::<2>::from_floats([[0.], [1.], [1.], [0.]], &device);
    let mut network = Network::load(record, &device);
    let mut optimizer = SgdConfig::new().init();
    let mut losses = Vec::new();
    for _ in 0..STEPS {
        let loss = network.loss(x.clone(), y.clone());
        let gradients = GradientsParams::from_grads(loss.backward(), &network);
        network = optimizer.step(0.5, network, gradients);
        losses.push(loss);
    }
    let losses = losses.into_iter().map(|loss| Ok(loss.try_into_data()?.try_to_vec::<f32>().unwrap()[0]));
    Ok((losses.collect::<Result<_, ExecutionError>>()?, network.record()?))
}

/// The result of burn's CPU engine alone.
fn undisturbed(record: &Record) -> (Vec<f32>, Record) {
    train(&Device::flex(), record).unwrap()
}

/// A device of `openreg` for one test at a time: its faults are all tests'.
fn openreg(index: usize) -> (device_registry::Device, Device, MutexGuard<'static, ()>) {
    static ONE: [Mutex<()>; 2] = [const { Mutex::new(()) }; 2];
    let guard = ONE[index].lock().unwrap_or_else(PoisonError::into_inner);
    let text = format!("openreg:{index}");
    let registered = device_registry::device(&text).unwrap();
    (registered, device_burn::device(&text).unwrap(), guard)
}

fn vector(device: &Device) -> Tensor<1> {
    Tensor::from_floats([1.0, 2.0, 3.0], device)
}

fn values(tensor: Tensor<1>) -> Vec<f32> {
    tensor.try_into_data().unwrap().try_to_vec().unwrap()
}

/// Injects `fault` at each place of a training in turn, until a training is over before. Each time, the
/// training fails with `cause`, and continues from its record after `recover`.
fn at_each_place(fault: fn(u64) -> Fault, cause: &str, recover: fn(device_registry::Device)) {
    let (registered, device, _guard) = openreg(0);
    let (_, record) = train(&device, &Record::start()).unwrap();
    let expected = undisturbed(&record);
    let mut failures = 0;
    for nth in 1.. {
        registered.faults().unwrap().inject(fault(nth)).unwrap();
        let result = train(&device, &record);
        let synced = [device.sync(), device.sync()];
        match result {
            Err(error) => {
                let message = error.to_string();
                assert!(
                    message.contains("on openreg:0 failed") && message.contains(cause),
                    "{nth}: {message}"
                );
                failures += 1;
            }
            // The fault is still to come, for the sync too.
            Ok(result) => {
                assert_eq!(result, expected, "{nth}");
                assert!(synced.iter().all(Result::is_ok), "{nth}: {synced:?}");
                registered.faults().unwrap().clear().unwrap();
                break;
            }
        }
        recover(registered);
        let _ = device.sync();
        assert_eq!(train(&device, &record).unwrap(), expected, "after a failure at {nth}");
        device.sync().unwrap();
    }
    assert!(failures > 10, "{failures}");
}

#[test]
fn a_training_goes_on_after_a_loss_of_the_device_at_any_operation() {
    within(LIMIT, || {
        let reset = |device: device_registry::Device| {
            assert!(device.is_lost());
            device.reset().unwrap();
        };
        at_each_place(|nth| Fault::LoseDevice { nth }, "device lost: by an injected fault", reset);
    });
}

#[test]
fn a_training_goes_on_after_any_allocation_that_fails() {
    within(LIMIT, || at_each_place(|nth| Fault::FailAllocation { nth }, "out of memory", drop));
}

#[test]
fn a_training_goes_on_after_any_copy_that_fails() {
    within(LIMIT, || at_each_place(|nth| Fault::FailCopy { nth }, "injected", drop));
}

#[test]
fn work_that_is_enqueued_after_a_failed_read_runs() {
    within(LIMIT, || {
        let (registered, device, _guard) = openreg(0);
        let a = vector(&device);
        for _ in 0..500 {
            let sum = a.clone() + a.clone();
            registered.faults().unwrap().inject(Fault::FailCopy { nth: 1 }).unwrap();
            let message = sum.try_into_data().unwrap_err().to_string();
            assert!(message.contains("injected"), "{message}");
            assert_eq!(values(a.clone() + a.clone()), [2.0, 4.0, 6.0]);
        }
        device.sync().unwrap();
    });
}

#[test]
fn a_lost_device_says_so_until_it_is_reset() {
    within(LIMIT, || {
        let (registered, device, _guard) = openreg(0);
        let a = vector(&device);
        let on_device = a.clone() + a.clone();
        device.sync().unwrap();
        registered.faults().unwrap().inject(Fault::LoseDevice { nth: 1 }).unwrap();
        for _ in 0..2 {
            let message = (a.clone() * a.clone()).try_into_data().unwrap_err().to_string();
            assert!(
                message.contains("NumericFloat.Mul(f32 [3], f32 [3]) -> f32 [3] on openreg:0"),
                "{message}"
            );
            assert!(message.contains("device lost"), "{message}");
            assert!(device.sync().unwrap_err().to_string().contains("device lost"));
        }
        let message = on_device.clone().try_into_data().unwrap_err().to_string();
        assert!(message.contains("device lost"), "{message}");
        assert_eq!(values(a.clone().neg()), [-1.0, -2.0, -3.0], "the host has it");

        registered.reset().unwrap();
        let message = on_device.try_into_data().unwrap_err().to_string();
        assert!(message.contains("on openreg:0") && message.contains("reset"), "{message}");
        assert_eq!(values(a.clone() * a), [1.0, 4.0, 9.0]);
        let _ = device.sync();
        device.sync().unwrap();
    });
}

#[test]
#[cfg_attr(
    feature = "burn-0-23",
    ignore = "a group holds a lock for each call: burn-group, backend/client.rs:62"
)]
fn a_stalled_device_delays_only_what_uses_it() {
    within(LIMIT, || {
        let (registered, device, _guard) = openreg(0);
        let (_, record) = train(&device, &Record::start()).unwrap();
        let on_host = vector(&device);
        let faults = registered.faults().unwrap();
        faults.inject(Fault::Stall { nth: 10 }).unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let training = {
            let (device, record, done) = (device.clone(), record.clone(), Arc::clone(&done));
            thread::spawn(move || {
                let result = train(&device, &record);
                done.store(true, Ordering::Relaxed);
                result
            })
        };
        thread::sleep(Duration::from_millis(200));
        assert!(!done.load(Ordering::Relaxed), "the stall is in the training");
        assert_eq!(values(on_host.neg()), [-1.0, -2.0, -3.0], "the CPU has no need to wait");
        faults.clear().unwrap();
        assert_eq!(training.join().unwrap().unwrap(), undisturbed(&record));
    });
}

#[test]
fn a_closed_device_works_again_and_says_what_is_lost() {
    within(LIMIT, || {
        let (registered, device, _guard) = openreg(1);
        let a = vector(&device);
        let on_device = a.clone() + a.clone();
        let view = on_device.clone().reshape([3, 1]);
        let read_before = a.clone() * a.clone();
        read_before.clone().try_into_data().unwrap();
        registered.close().unwrap();

        device.sync().unwrap();
        let lost = "on openreg:1 failed: the data was on openreg:1, which has been reset or closed since: compute it again, or load it";
        let of_lost = [on_device.clone() + a.clone(), on_device.clone().neg(), on_device];
        for tensor in of_lost {
            let message = tensor.try_into_data().unwrap_err().to_string();
            assert!(message.contains(lost), "{message}");
        }
        assert!(view.try_into_data().unwrap_err().to_string().contains(lost));

        device_burn::reset_counts("openreg:1").unwrap();
        assert_eq!(values(a.clone()), [1.0, 2.0, 3.0]);
        assert_eq!(values(read_before.clone()), [1.0, 4.0, 9.0]);
        assert_eq!(values(read_before.clone() + read_before), [2.0, 8.0, 18.0], "uploaded again");
        assert_eq!(values(a.clone() - a), [0.0, 0.0, 0.0]);
        assert_eq!(device_burn::counts("openreg:1").unwrap().native(), 2, "on the device");
        device.sync().unwrap();
    });
}

#[test]
fn a_device_that_is_closed_during_trainings_ends_them_with_an_error_or_not_at_all() {
    within(LIMIT, || {
        let (registered, device, _guard) = openreg(1);
        let record = Record::start();
        let expected = undisturbed(&record);
        let [stop, whole, failed] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (device, record, expected) = (device.clone(), record.clone(), expected.clone());
                let [stop, whole, failed] = [&stop, &whole, &failed].map(Arc::clone);
                thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        match train(&device, &record) {
                            Ok(result) => {
                                assert_eq!(result, expected);
                                whole.store(true, Ordering::Relaxed);
                            }
                            Err(error) => {
                                let message = error.to_string();
                                assert!(message.contains("closed"), "{message}");
                                failed.store(true, Ordering::Relaxed);
                            }
                        }
                    }
                })
            })
            .collect();
        let mut closed = 0;
        while closed < 50 || ![&whole, &failed].into_iter().all(|seen| seen.load(Ordering::Relaxed)) {
            thread::sleep(Duration::from_millis(closed * 7 % 60));
            // It returns what failed in the stream of a training.
            let _ = registered.close();
            closed += 1;
            assert!(threads.iter().all(|thread| !thread.is_finished()), "a thread fails");
        }
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let _ = device.sync();
        assert_eq!(train(&device, &record).unwrap(), expected);
        device.sync().unwrap();
    });
}

#[test]
fn a_fault_of_a_variable_is_an_error_with_its_cause() {
    child::run(
        "child_with_a_fault_of_a_variable",
        &[("OPENREG_LOSE_DEVICE", "20"), ("CAUSE", "device lost")],
    );
    child::run(
        "child_with_a_fault_of_a_variable",
        &[("OPENREG_FAIL_ALLOCATION", "7"), ("CAUSE", "out of memory")],
    );
    child::run("child_with_a_fault_of_a_variable", &[("OPENREG_FAIL_COPY", "7"), ("CAUSE", "injected")]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_with_a_fault_of_a_variable() {
    let (registered, device, _guard) = openreg(0);
    let cause = std::env::var("CAUSE").unwrap();
    let message = train(&device, &Record::start()).unwrap_err().to_string();
    assert!(message.contains(&cause), "{message}");
    if registered.is_lost() {
        registered.reset().unwrap();
    }
    assert_eq!(train(&device, &Record::start()).unwrap(), undisturbed(&Record::start()));
}
