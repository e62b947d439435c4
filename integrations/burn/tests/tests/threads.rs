//! Threads: tensors are used, shared and dropped by any thread, and nothing is left behind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use burn::tensor::{Device, Tensor};
use device_burn_backend::{RegistryClient, RegistryDevice};
use device_burn_tests as _;
use rayon::prelude::*;

device_registry::autoload!();

fn device(text: &str) -> Device {
    device_burn::device(text).unwrap()
}

fn values(tensor: Tensor<1>) -> Vec<f32> {
    tensor.try_into_data().unwrap().try_to_vec().unwrap()
}

/// What a device has: burn's tensors, and the bytes and allocations of its memory.
fn held(text: &str) -> (usize, u64, u64) {
    let device = device_registry::device(text).unwrap().resolve();
    let client = RegistryClient::of(RegistryDevice::new(device).unwrap());
    // The stream holds the memory of a kernel until the kernel is done.
    device.synchronize().unwrap();
    let memory = device.memory_statistics().unwrap();
    (client.tensors(), memory.allocated, memory.live)
}

/// For tests that compare what a device has: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fails a test that does not end.
fn within_a_minute<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        scope.spawn(move || {
            let _ = sender.send(work());
        });
        match receiver.recv_timeout(Duration::from_secs(60)) {
            Ok(result) => result,
            Err(mpsc::RecvTimeoutError::Disconnected) => panic!("the work panicked"),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                eprintln!("the work does not end");
                std::process::abort();
            }
        }
    })
}

/// A sum by a kernel, a product by a kernel, and a sum by burn's CPU engine: `2 x * x + 1`.
fn compute(x: &Tensor<1>) -> Tensor<1> {
    (x.clone() + x.clone()) * x.clone() + 1.0
}

fn computed(start: usize) -> Vec<f32> {
    (start..start + 64).map(|i| (2 * i * i + 1) as f32).collect()
}

fn ramp(start: usize, device: &Device) -> Tensor<1> {
    let values: Vec<f32> = (start..start + 64).map(|i| i as f32).collect();
    Tensor::from_floats(values.as_slice(), device)
}

#[test]
fn eight_threads_with_tensors_of_their_own_get_their_own_values() {
    let _alone = alone();
    let device = device("openreg:0");
    within_a_minute(|| {
        thread::scope(|scope| {
            for n in 0..8 {
                let device = &device;
                scope.spawn(move || {
                    let x = ramp(n, device);
                    for _ in 0..100 {
                        assert_eq!(values(compute(&x)), computed(n));
                    }
                });
            }
        });
    });
}

#[test]
fn eight_threads_that_share_a_tensor_all_get_its_values() {
    let _alone = alone();
    let device = device("openreg:0");
    let x = ramp(3, &device);
    let shared = x.clone() + x;
    within_a_minute(|| {
        let barrier = Barrier::new(8);
        thread::scope(|scope| {
            for _ in 0..8 {
                let (shared, barrier) = (shared.clone(), &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for _ in 0..100 {
                        // The last use is in place, where no other thread has the tensor.
                        let sum = values(shared.clone() * 1.0 + shared.clone());
                        assert_eq!(sum, (3..67).map(|i| 4.0 * i as f32).collect::<Vec<_>>());
                    }
                });
            }
        });
    });
    assert_eq!(values(shared), (3..67).map(|i| 2.0 * i as f32).collect::<Vec<_>>());
}

#[test]
fn two_devices_compute_at_once_and_exchange_tensors() {
    let _alone = alone();
    within_a_minute(|| {
        let names = ["openreg:0", "openreg:1"];
        thread::scope(|scope| {
            for (n, name) in names.into_iter().enumerate() {
                scope.spawn(move || {
                    let (here, there) = (device(name), device(names[1 - n]));
                    for round in 0..100 {
                        let x = ramp(n + round, &here).to_device(&there);
                        assert_eq!(values(compute(&x).to_device(&here) * 1.0), computed(n + round));
                    }
                });
            }
        });
    });
}

/// burn lowers the count of a tensor's handles before it registers the operation that uses the handle. Two
/// threads that use the last two handles at once see the tensor released too early, unless the client keeps
/// it.
#[test]
#[cfg_attr(feature = "burn-0-23", ignore = "a group panics: burn-group, backend/interpreter.rs:253")]
fn two_threads_that_use_the_last_two_handles_at_once_both_get_the_values() {
    let _alone = alone();
    let device = device("openreg:0");
    let before = held("openreg:0");
    let rounds = 2_000;
    let failures = AtomicUsize::new(0);
    within_a_minute(|| {
        let arrived = AtomicUsize::new(0);
        let meet = |turn: usize| {
            arrived.fetch_add(1, Ordering::AcqRel);
            let mut turns = 0;
            while arrived.load(Ordering::Acquire) < 2 * turn {
                turns += 1;
                if turns % 1000 == 0 { thread::yield_now() } else { std::hint::spin_loop() }
            }
        };
        let places: [Mutex<Option<Tensor<1>>>; 2] = Default::default();
        thread::scope(|scope| {
            for me in 0..2 {
                let (device, failures, meet, places) = (&device, &failures, &meet, &places);
                scope.spawn(move || {
                    let ones = Tensor::<1>::ones([4], device);
                    for round in 0..rounds {
                        if me == 0 {
                            let x = Tensor::<1>::from_floats([1.0, 2.0, 3.0, 4.0], device);
                            *places[0].lock().unwrap() = Some(x.clone());
                            *places[1].lock().unwrap() = Some(x);
                        }
                        meet(2 * round + 1);
                        let mine = places[me].lock().unwrap().take().unwrap();
                        meet(2 * round + 2);
                        // By the CPU in place, by a kernel, as the second operand, by a read, and by a move.
                        let sum = match round % 5 {
                            0 => mine + 1.0,
                            1 => mine + ones.clone(),
                            2 => ones.clone() + mine,
                            3 => match mine.try_into_data() {
                                Ok(data) => Tensor::from_data(data, device) + 1.0,
                                Err(_) => Tensor::zeros([4], device),
                            },
                            _ => mine.to_device(&Device::flex()) + 1.0,
                        };
                        let right =
                            sum.try_into_data().is_ok_and(|data| data == [2.0f32, 3.0, 4.0, 5.0].into());
                        failures.fetch_add(usize::from(!right), Ordering::Relaxed);
                    }
                });
            }
        });
    });
    assert_eq!(failures.into_inner(), 0, "of {} uses", 2 * rounds);
    assert_eq!(held("openreg:0"), before);
}

#[test]
fn a_tensor_is_released_by_the_thread_that_drops_it() {
    let _alone = alone();
    let device = device("openreg:0");
    let before = held("openreg:0");
    let x = ramp(0, &device);
    let sum = x.clone() + x;
    let (tensors, allocated, _) = held("openreg:0");
    assert_eq!(tensors, before.0 + 1, "x was at its last use");
    assert!(allocated > before.1);
    thread::spawn(move || drop(sum)).join().unwrap();
    assert_eq!(held("openreg:0"), before);
}

/// burn does not say which of two threads' handles was the last. What a thread may still need stays until its
/// next operation.
#[test]
fn a_tensor_whose_handles_two_threads_drop_is_released_at_the_next_operation() {
    let _alone = alone();
    let device = device("openreg:0");
    let before = held("openreg:0");
    let x = ramp(0, &device);
    let sum = x.clone() + x;
    let other = sum.clone();
    let product = sum.clone() * 2.0;
    drop(product);
    thread::spawn(move || values(other * 3.0)).join().unwrap();
    drop(sum);
    drop(Tensor::<1>::ones([1], &device) + 1.0);
    assert_eq!(held("openreg:0"), before);
}

#[test]
fn a_thread_that_ends_releases_what_it_kept() {
    let _alone = alone();
    let device = device("openreg:0");
    let before = held("openreg:0");
    let x = ramp(0, &device);
    let sum = x.clone() + x;
    let last = sum.clone();
    drop(sum);
    drop(Tensor::<1>::ones([1], &device) + 1.0);
    thread::spawn(move || drop(last)).join().unwrap();
    assert_eq!(held("openreg:0"), before);
}

#[test]
fn a_tensor_outlives_the_thread_that_made_it() {
    let _alone = alone();
    let before = held("openreg:1");
    let (sum, view) = thread::spawn(|| {
        let x = ramp(5, &device("openreg:1"));
        let sum = x.clone() + x;
        (sum.clone(), sum.slice(1..3))
    })
    .join()
    .unwrap();
    assert_eq!(values(view), [12.0, 14.0]);
    assert_eq!(values(sum.clone() * sum), (5..69).map(|i| (4 * i * i) as f32).collect::<Vec<_>>());
    assert_eq!(held("openreg:1"), before);
}

#[test]
fn ten_thousand_steps_leave_no_tensor_and_no_memory() {
    let _alone = alone();
    let device = device("openreg:1");
    let before = held("openreg:1");
    let ran = device_burn::counts("openreg:1").unwrap().native();
    let mut peak = 0;
    {
        let rate = Tensor::<1>::full([64], 0.25, &device);
        let target = ramp(0, &device);
        let mut weights = Tensor::<1>::zeros([64], &device);
        for step in 0..10_000 {
            // The gradient of the squared distance, and a step against it.
            let gradient = weights.clone() - target.clone();
            weights = weights - gradient * rate.clone();
            if step % 100 == 0 {
                // A step that looks at its result, as for a loss.
                let _ = values(weights.clone());
                peak = peak.max(held("openreg:1").0);
            }
        }
        let distance = values(weights).into_iter().enumerate().map(|(i, weight)| (weight - i as f32).abs());
        assert!(distance.fold(0.0, f32::max) < 1e-3);
    }
    assert!(device_burn::counts("openreg:1").unwrap().native() >= ran + 30_000, "the kernels were not used");
    assert!(peak <= before.0 + 3, "{peak} tensors in a step that has three");
    assert_eq!(held("openreg:1"), before);
}

#[test]
fn operations_within_rayons_threads_end() {
    let _alone = alone();
    let device = device("openreg:0");
    let shared = ramp(1, &device);
    let sums = within_a_minute(|| {
        let one = |n: usize| {
            // Within a thread of rayon's that waits for another one, which can take more of this work
            // meanwhile.
            let x = ramp(n, &device);
            let (left, right) = rayon::join(|| values(compute(&x)), || values(compute(&shared)));
            (left == computed(n)) && (right == computed(1))
        };
        // A matrix product of burn's CPU engine uses rayon itself.
        let product = |n: usize| {
            let matrix = Tensor::<2>::ones([96, 96], &device) * (n as f64);
            let sum = matrix.clone().matmul(matrix).sum().into_data().try_to_vec::<f32>().unwrap()[0];
            sum == (n * n * 96 * 96 * 96) as f32
        };
        (0..64usize).into_par_iter().map(|n| one(n) && product(n % 4)).filter(|right| *right).count()
    });
    assert_eq!(sums, 64);
}

/// The registry refuses what would wait for the stream's own thread.
#[test]
fn an_operation_within_the_work_of_a_stream_is_an_error_that_says_so() {
    let _alone = alone();
    let (burns, inside) = (device("openreg:0"), device("openreg:0"));
    let registered = device_registry::device("openreg:0").unwrap();
    let found = within_a_minute(|| {
        let stream = registered.create_stream().unwrap();
        let (sender, receiver) = mpsc::channel();
        let work = move |_: &device_registry::backend::Launch<'_>| {
            let x = ramp(2, &inside);
            let _ = sender.send(((x.clone() * 2.0).try_into_data(), compute(&x).try_into_data()));
            Ok(())
        };
        stream.launch(&[], work).unwrap();
        stream.synchronize().unwrap();
        receiver.recv().unwrap()
    });
    let (on_the_host, by_a_kernel) = found;
    assert_eq!(on_the_host.unwrap(), (ramp(2, &burns) * 2.0).into_data());
    let error = by_a_kernel.unwrap_err().to_string();
    assert!(error.contains("NumericFloat.Add") && error.contains("may not use devices"), "{error}");
    assert_eq!(values(compute(&ramp(2, &burns))), computed(2));
}
