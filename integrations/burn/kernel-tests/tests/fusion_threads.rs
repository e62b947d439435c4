//! Operations of one thread that wait, and what other threads do with their results.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use burn::tensor::{Device, Tensor};
use rayon::prelude::*;

use crate::within::within;

#[path = "../../tests/tests/common/within.rs"]
mod within;

device_registry::autoload!();

const LIMIT: Duration = Duration::from_secs(60);
const NAME: &str = "openreg:0";

fn device() -> Device {
    device_burn::device(NAME).unwrap()
}

/// For tests that compare what a device has: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn allocated() -> (u64, u64) {
    let device = device_registry::device(NAME).unwrap();
    device.synchronize().unwrap();
    let memory = device.memory_statistics().unwrap();
    (memory.allocated, memory.live)
}

/// What the device has before a test. The thread of the test before releases its last tensors as it ends.
fn allocated_before() -> (u64, u64) {
    for _ in 0..1000 {
        if allocated() == (0, 0) {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    allocated()
}

fn values(tensor: Tensor<1>) -> Vec<f32> {
    tensor.try_into_data().unwrap().try_to_vec().unwrap()
}

fn ramp(start: usize) -> Tensor<1> {
    let numbers: Vec<f32> = (start..start + 64).map(|number| number as f32).collect();
    Tensor::from_floats(&numbers[..], &device())
}

/// `2 x * x + 1`, which waits.
fn compute(x: &Tensor<1>) -> Tensor<1> {
    (x.clone() + x.clone()) * x.clone() + 1.0
}

fn computed(start: usize) -> Vec<f32> {
    (start..start + 64).map(|number| (2 * number * number + 1) as f32).collect()
}

#[test]
fn threads_that_share_a_waiting_result_all_get_its_values() {
    let _alone = alone();
    within(LIMIT, || {
        for round in 0..100 {
            let x = ramp(round);
            let shared = compute(&x);
            let part = shared.clone().slice(3..5);
            let barrier = Barrier::new(9);
            thread::scope(|scope| {
                for number in 0..8 {
                    let (shared, part, barrier, x) = (shared.clone(), part.clone(), &barrier, x.clone());
                    scope.spawn(move || {
                        barrier.wait();
                        let expected = computed(round);
                        match number % 4 {
                            0 => assert_eq!(values(shared), expected),
                            1 => assert_eq!(values(part), expected[3..5]),
                            2 => assert_eq!(values(shared - compute(&x)), [0.0; 64]),
                            _ => assert_eq!(values(shared.clone() * 2.0 - shared), expected),
                        }
                    });
                }
                // Meanwhile this thread adds to its chain.
                let next = shared.clone() + 1.0;
                barrier.wait();
                let more = next * 2.0;
                let expected: Vec<f32> = computed(round).iter().map(|value| (value + 1.0) * 2.0).collect();
                assert_eq!(values(more), expected);
            });
        }
    });
}

#[test]
fn threads_drop_results_of_others_while_they_run() {
    let _alone = alone();
    let before = allocated_before();
    within(LIMIT, || {
        for round in 0..200 {
            let x = ramp(round);
            let results = [compute(&x), compute(&x) * 2.0, compute(&x) - 1.0];
            let sum = results.iter().cloned().reduce(|sum, result| sum + result).unwrap();
            thread::scope(|scope| {
                for result in results {
                    scope.spawn(move || drop(result));
                }
                let first = computed(round)[0];
                assert_eq!(values(sum)[0], first + 2.0 * first + first - 1.0);
            });
        }
    });
    drop(values(ramp(0)));
    assert_eq!(allocated(), before);
}

/// burn lowers the count of a tensor's handles before it registers the operation that uses the handle.
#[test]
fn two_threads_that_use_the_last_two_handles_at_once_both_get_the_values() {
    let _alone = alone();
    within(LIMIT, || {
        let places: [Mutex<Option<Tensor<1>>>; 2] = Default::default();
        let failures = AtomicUsize::new(0);
        let barrier = Barrier::new(2);
        thread::scope(|scope| {
            for me in 0..2 {
                let (places, failures, barrier) = (&places, &failures, &barrier);
                scope.spawn(move || {
                    for round in 0..500 {
                        if me == 0 {
                            let x = compute(&ramp(1));
                            *places[0].lock().unwrap() = Some(x.clone());
                            *places[1].lock().unwrap() = Some(x);
                        }
                        barrier.wait();
                        let mine = places[me].lock().unwrap().take().unwrap();
                        barrier.wait();
                        let sum = match round % 3 {
                            0 => mine + 1.0,
                            1 => ramp(0) * 0.0 + mine + 1.0,
                            _ => mine.to_device(&Device::flex()) + 1.0,
                        };
                        let right = sum
                            .try_into_data()
                            .is_ok_and(|data| data.try_to_vec::<f32>().unwrap()[..2] == [4.0, 10.0]);
                        failures.fetch_add(usize::from(!right), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(failures.into_inner(), 0);
    });
}

#[test]
fn a_result_outlives_the_thread_whose_operation_waited() {
    let _alone = alone();
    let before = allocated_before();
    let (result, view) = thread::spawn(|| {
        let result = compute(&ramp(5));
        (result.clone(), result.slice(1..3))
    })
    .join()
    .unwrap();
    assert_eq!(allocated(), before, "it waits still");
    assert_eq!(values(view), computed(5)[1..3]);
    assert_eq!(values(result * 1.0), computed(5));
    assert_eq!(allocated(), before);
}

#[test]
fn ten_thousand_steps_leave_no_memory() {
    let _alone = alone();
    let before = allocated_before();
    let target = ramp(0);
    let mut weights = Tensor::<1>::zeros([64], &device());
    let mut average = weights.clone();
    for step in 0..10_000 {
        let gradient = weights.clone() - target.clone();
        weights = weights - gradient * 0.25;
        average = average * 0.9 + weights.clone() * 0.1;
        if step % 1000 == 0 {
            let _ = values(weights.clone());
            let now = allocated().1 - before.1;
            assert!(now <= 8, "{now} allocations in a step that has three");
        }
    }
    let distance = values(weights).into_iter().enumerate().map(|(i, weight)| (weight - i as f32).abs());
    assert!(distance.fold(0.0, f32::max) < 1e-3);
    assert!((values(average)[63] - 63.0).abs() < 1e-2);
    drop(target);
    assert_eq!(allocated(), before);
}

#[test]
fn operations_within_rayons_threads_end() {
    let _alone = alone();
    let right = within(LIMIT, || {
        let shared = compute(&ramp(1));
        let one = |number: usize| {
            let x = compute(&ramp(number));
            // burn's CPU engine has no kernel to wait for here, but it also uses rayon.
            let (left, right) = rayon::join(|| values(x.clone() * 1.0), || values(shared.clone() * 1.0));
            left == computed(number) && right == computed(1) && values(x) == computed(number)
        };
        (0..64_usize).into_par_iter().map(one).filter(|right| *right).count()
    });
    assert_eq!(right, 64);
}

#[test]
fn a_profiling_window_has_the_operations_that_were_called_in_it() {
    let _alone = alone();
    let device = device();
    let x = Tensor::<1>::from_floats(&vec![0.5_f32; 1 << 18][..], &device);
    let work = || (0..30).fold(x.clone(), |y, _| y.sin() + x.clone());
    drop(work().into_data());
    let time = |work: &(dyn Fn() -> Tensor<1> + Sync)| {
        let (result, window) = device.profile(work).unwrap();
        let ticks = burn_backend::read_sync(window.resolve()).unwrap();
        drop(result.into_data());
        ticks.duration()
    };
    let empty = time(&|| x.clone());
    let full = time(&work);
    assert!(full > 3 * empty, "{empty:?} {full:?}");
}
