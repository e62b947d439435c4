//! All-reduce, as burn's remote server asks for it: by a call for each device, each on its own thread.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use burn_backend::distributed::{DistributedOps, ReduceOperation};
use burn_backend::ops::FloatTensorOps;
use burn_backend::{DeviceId, DeviceOps, TensorData, read_sync};
use device_burn_backend::{Registry, RegistryDevice, abandon_collectives};
use device_registry::Fault;

use crate::within::within;

#[path = "common/within.rs"]
mod within;

device_registry::autoload!();

const LIMIT: Duration = Duration::from_secs(60);

/// One at a time: `abandon_collectives` is for all of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn device(text: &str) -> RegistryDevice {
    RegistryDevice::new(device_registry::device(text).unwrap()).unwrap()
}

type Reduced = Result<Vec<f32>, String>;

/// A device's part: gives its values, and reads what it gets.
fn take_part(text: &str, values: &[f32], operation: ReduceOperation, ids: &[DeviceId]) -> Reduced {
    let data = TensorData::new(values.to_vec(), [values.len()]);
    let tensor = Registry::float_from_data(data, &device(text));
    let reduced =
        <Registry as DistributedOps<Registry>>::all_reduce(tensor, operation, ids.to_vec()).resolve();
    let data = read_sync(Registry::float_into_data(reduced)).map_err(|error| error.to_string())?;
    Ok(data.try_to_vec().unwrap())
}

/// What each device gets that gives these values, the last one first.
fn reduced(operation: ReduceOperation, given: &'static [(&str, &[f32])]) -> Vec<Reduced> {
    let ids: Vec<DeviceId> = given.iter().map(|(text, _)| device(text).id()).collect();
    within(LIMIT, move || {
        let parts = given.iter().rev().map(|(text, values)| {
            let ids = ids.clone();
            let part = thread::spawn(move || take_part(text, values, operation, &ids));
            thread::sleep(Duration::from_millis(20));
            part
        });
        let parts: Vec<_> = parts.collect();
        parts.into_iter().rev().map(|part| part.join().unwrap()).collect()
    })
}

#[test]
fn each_device_gets_the_sum_or_the_average_of_all() {
    let _alone = alone();
    // Three backends, and one device twice.
    const GIVEN: &[(&str, &[f32])] = &[
        ("openreg:1", &[1.0, 2.0]),
        ("cpu", &[10.0, 20.0]),
        ("openreg:1", &[100.0, 200.0]),
        ("mycpu", &[1e3, 2e3]),
    ];
    for _ in 0..3 {
        assert_eq!(reduced(ReduceOperation::Sum, GIVEN), vec![Ok(vec![1111.0, 2222.0]); 4]);
        assert_eq!(reduced(ReduceOperation::Mean, GIVEN), vec![Ok(vec![277.75, 555.5]); 4]);
    }
    assert_eq!(reduced(ReduceOperation::Mean, &[("cpu", &[7.0])]), [Ok(vec![7.0])]);
}

#[test]
fn the_order_of_the_devices_decides_the_sum_and_not_who_comes_last() {
    let _alone = alone();
    // In another order it is 0.
    const GIVEN: &[(&str, &[f32])] = &[("openreg:0", &[1e30]), ("cpu", &[-1e30]), ("mycpu", &[1.0])];
    assert_eq!(reduced(ReduceOperation::Sum, GIVEN), vec![Ok(vec![1.0]); 3]);
}

#[test]
fn tensors_that_differ_and_a_device_that_is_lost_are_errors_of_all() {
    let _alone = alone();
    let results = reduced(ReduceOperation::Sum, &[("openreg:0", &[1.0]), ("cpu", &[1.0, 2.0])]);
    for result in results {
        let error = result.unwrap_err();
        let expected = "the tensors differ: f32 [1] on openreg:0, and f32 [2] on cpu";
        assert!(error.contains("Distributed.AllReduce") && error.contains(expected), "{error}");
    }

    let lost = device_registry::device("openreg:0").unwrap();
    lost.faults().unwrap().inject(Fault::LoseDevice { nth: 1 }).unwrap();
    // The bytes of a lost device are gone, and those that the host still has are not.
    assert!(lost.allocate(1).is_err());
    let results = reduced(ReduceOperation::Sum, &[("openreg:0", &[1.0]), ("cpu", &[2.0])]);
    assert!(
        results.iter().all(|result| result.as_ref().is_err_and(|error| error.contains("openreg:0"))),
        "{results:?}"
    );
    lost.reset().unwrap();
    assert_eq!(
        reduced(ReduceOperation::Sum, &[("openreg:0", &[1.0]), ("cpu", &[2.0])]),
        [Ok(vec![3.0]), Ok(vec![3.0])]
    );
}

#[test]
fn a_device_that_is_not_named_takes_no_part() {
    let _alone = alone();
    let ids = [device("openreg:0").id()];
    let error = within(LIMIT, move || take_part("cpu", &[1.0], ReduceOperation::Sum, &ids)).unwrap_err();
    assert!(error.contains("on cpu failed: the device is not one of those that take part"), "{error}");
}

#[test]
fn a_device_that_gives_again_before_the_others_have_given_is_an_error() {
    let _alone = alone();
    let ids = ["openreg:0", "cpu"].map(|text| device(text).id());
    let (first, second) = within(LIMIT, move || {
        let first = thread::spawn(move || take_part("cpu", &[1.0], ReduceOperation::Sum, &ids));
        thread::sleep(Duration::from_millis(200));
        let second = take_part("cpu", &[2.0], ReduceOperation::Sum, &ids);
        abandon_collectives();
        (first.join().unwrap(), second)
    });
    let error = second.unwrap_err();
    assert!(error.contains("takes part already"), "{error}");
    assert!(first.is_err());
}

#[test]
fn what_an_ended_client_has_begun_does_not_meet_what_the_next_one_gives() {
    let _alone = alone();
    const SECOND: &[(&str, &[f32])] = &[("openreg:0", &[1.0]), ("cpu", &[2.0])];
    let ids: Vec<DeviceId> = SECOND.iter().map(|(text, _)| device(text).id()).collect();
    let errors = within(LIMIT, move || {
        // Its other device never comes.
        let of_ended = thread::spawn(move || {
            [1.0, 2.0].map(|value| take_part("cpu", &[value], ReduceOperation::Sum, &ids).unwrap_err())
        });
        thread::sleep(Duration::from_millis(200));
        abandon_collectives();
        // The second time its thread does not wait at all.
        of_ended.join().unwrap()
    });
    for error in errors {
        assert!(error.contains("the programs that it was for have ended"), "{error}");
    }
    assert_eq!(reduced(ReduceOperation::Sum, SECOND), vec![Ok(vec![3.0]); 2]);
}
