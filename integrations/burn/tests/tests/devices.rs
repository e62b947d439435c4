//! Devices: tensors move between any two of them with their values, a seed gives the same numbers everywhere,
//! and a burn device is equal to another of the same device string.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::tensor::{Bool, DType, Device, Distribution, Int, Tensor, TensorData};
use burn_backend::Device as _;
use device_burn_backend::RegistryDevice;
use device_burn_tests as _;

device_registry::autoload!();

/// The registered devices of these tests, by their device strings.
const STRINGS: [&str; 4] = ["cpu", "openreg:0", "openreg:1", "mycpu:0"];

fn device(text: &str) -> Device {
    device_burn::device(text).unwrap()
}

/// The registered devices, and burn's own CPU engine.
fn devices() -> Vec<(&'static str, Device)> {
    let registered = STRINGS.map(|text| (text, device(text)));
    registered.into_iter().chain([("flex", Device::flex())]).collect()
}

fn same(found: &TensorData, expected: &TensorData, message: &str) {
    assert_eq!(found.dtype(), expected.dtype(), "{message}");
    assert_eq!(found.shape(), expected.shape(), "{message}");
    assert_eq!(found.as_bytes(), expected.as_bytes(), "{message}");
}

/// Calls a function with each shape, and the number of its elements.
fn for_each_shape(mut call: impl FnMut([usize; 3], usize)) {
    for shape in [[2, 3, 4], [1, 1, 1], [1, 5, 1], [0, 3, 2], [2, 0, 1]] {
        call(shape, shape.iter().product());
    }
}

/// Moves a tensor and its views from each device to each other, and compares with the values before.
macro_rules! moves {
    ($kind:ty, $dtype:expr, $data:expr) => {
        for_each_shape(|shape, len| {
            let data = TensorData::new((0..len).map($data).collect::<Vec<_>>(), shape).convert_dtype($dtype);
            for (from_name, from) in devices() {
                let tensor = Tensor::<3, $kind>::from_data(data.clone(), (&from, $dtype));
                let sliced = tensor.clone().slice([0..shape[0], shape[1] / 2..shape[1], 0..shape[2]]);
                let views = [tensor.clone(), tensor.swap_dims(0, 2), sliced.clone(), sliced.swap_dims(1, 2)];
                let before = views.clone().map(Tensor::into_data);
                same(&before[0], &data, from_name);
                for (to_name, to) in devices() {
                    for (place, (view, before)) in views.iter().zip(&before).enumerate() {
                        let message =
                            format!("view {place} of {:?} {shape:?} from {from_name} to {to_name}", $dtype);
                        let moved = view.clone().to_device(&to);
                        assert_eq!(moved.device(), to, "{message}");
                        same(&moved.clone().into_data(), before, &message);
                        same(&moved.to_device(&from).into_data(), before, &format!("{message} and back"));
                    }
                }
            }
        });
    };
}

#[test]
fn f32_tensors_move_between_any_two_devices() {
    moves!(burn::tensor::Float, DType::F32, |i| i as f32 / 3.0);
}

#[test]
fn f64_tensors_move_between_any_two_devices() {
    moves!(burn::tensor::Float, DType::F64, |i| i as f64 / 3.0);
}

#[test]
fn f16_tensors_move_between_any_two_devices() {
    moves!(burn::tensor::Float, DType::F16, |i| i as f32 / 4.0);
}

#[test]
fn i64_tensors_move_between_any_two_devices() {
    moves!(Int, DType::I64, |i| i as i64 - (1 << 40));
}

#[test]
fn i32_tensors_move_between_any_two_devices() {
    moves!(Int, DType::I32, |i| i as i32 - 7);
}

#[test]
fn u8_tensors_move_between_any_two_devices() {
    moves!(Int, DType::U8, |i| i as u8 + 200);
}

#[test]
fn u32_tensors_move_between_any_two_devices() {
    moves!(Int, DType::U32, |i| i as u32 + (1 << 31));
}

#[test]
fn bool_tensors_move_between_any_two_devices() {
    moves!(Bool, DType::Bool(burn::tensor::BoolStore::Native), |i| i % 3 == 0);
}

/// The bytes of a sum by a kernel of `openreg` are nowhere else.
#[test]
fn a_tensor_whose_bytes_are_only_on_its_device_moves_to_every_other() {
    for from in ["openreg:0", "openreg:1"].map(device) {
        for (name, to) in devices() {
            let ones = Tensor::<2>::from_floats([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], &from);
            let sum = ones.clone() + ones;
            let view = sum.clone().swap_dims(0, 1).to_device(&to);
            let values = view.into_data().try_to_vec::<f32>().unwrap();
            assert_eq!(values, [2.0, 8.0, 4.0, 10.0, 6.0, 12.0], "{from:?} to {name}");
            // A kernel of the target continues with it.
            let there = sum.to_device(&to);
            let values = (there.clone() * there).into_data().try_to_vec::<f32>().unwrap();
            assert_eq!(values, [4.0, 16.0, 36.0, 64.0, 100.0, 144.0], "{from:?} to {name}");
        }
    }
}

/// A failed tensor has no values to move, and its error moves instead.
#[test]
#[cfg_attr(feature = "burn-0-23", ignore = "a group panics: burn-group, backend/channel.rs:35")]
fn the_error_of_a_tensor_moves_with_it() {
    let (first, second) = (device("openreg:0"), device("cpu"));
    // A range without values, which burn's engine refuses by a panic.
    let failed = Tensor::<1>::random([2], Distribution::Uniform(2.0, 1.0), &first);
    let moved = failed.to_device(&second);
    let error = moved.try_into_data().unwrap_err().to_string();
    assert!(error.contains("openreg:0"), "{error}");
}

/// burn's Flex has one generator for the process.
fn generators() -> MutexGuard<'static, ()> {
    static GENERATORS: Mutex<()> = Mutex::new(());
    GENERATORS.lock().unwrap_or_else(PoisonError::into_inner)
}

const DISTRIBUTIONS: [Distribution; 4] = [
    Distribution::Default,
    Distribution::Normal(1.0, 2.0),
    Distribution::Uniform(-3.0, 9.0),
    Distribution::Bernoulli(0.4),
];

/// The next random numbers of a device: of each distribution, as several types.
fn draw(device: &Device) -> Vec<TensorData> {
    let floats = DISTRIBUTIONS.iter().flat_map(|&distribution| {
        [DType::F32, DType::F64, DType::F16]
            .map(|dtype| Tensor::<2>::random([3, 5], distribution, (device, dtype)).into_data())
    });
    let ints = [DType::I32, DType::I64, DType::U8, DType::U32].map(|dtype| {
        Tensor::<2, Int>::random([3, 5], Distribution::Uniform(0.0, 99.0), (device, dtype)).into_data()
    });
    floats.chain(ints).collect()
}

#[test]
fn a_seed_gives_the_same_random_tensors_on_every_device() {
    let _alone = generators();
    let first = device(STRINGS[0]);
    first.seed(41);
    let expected = [draw(&first), draw(&first)];
    assert_ne!(expected[0], expected[1], "the generator stands still");
    for text in &STRINGS[1..] {
        let device = device(text);
        device.seed(41);
        let found = [draw(&device), draw(&device)];
        for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
            same(found, expected, text);
        }
        device.seed(42);
        assert_ne!(draw(&device), expected[0], "{text}: the seed changes nothing");
    }
}

#[test]
fn two_devices_used_alternately_have_a_generator_each() {
    let _alone = generators();
    let devices = ["openreg:0", "openreg:1", "cpu"].map(device);
    devices[2].seed(5);
    let expected: Vec<_> = (0..3).map(|_| draw(&devices[2])).collect();
    devices[..2].iter().for_each(|device| device.seed(5));
    for expected in expected {
        assert_eq!(draw(&devices[0]), expected);
        let _ = draw(&devices[2]);
        assert_eq!(draw(&devices[1]), expected);
    }
}

/// burn's traits have a place for one device of a backend, which is `cpu`.
#[cfg(not(feature = "burn-0-23"))]
#[test]
fn burn_enumerates_cpu() {
    let enumerated = Device::enumerate(burn::tensor::DeviceType::NdArray).into_vec();
    assert_eq!(enumerated, [device("cpu")]);
}

#[test]
fn all_devices_are_listed() {
    let all: BTreeSet<_> = device_burn::devices().into_iter().collect();
    for text in STRINGS {
        assert!(
            all.contains(&device_registry::device(text).unwrap().resolve().to_string()),
            "{text} of {all:?}"
        );
    }
    for text in all {
        assert_eq!(device_burn::device(&text).unwrap(), device(&text));
    }
}

#[test]
fn a_device_is_equal_to_another_of_the_same_string_and_to_no_other() {
    let devices = devices();
    for (place, (name, one)) in devices.iter().enumerate() {
        for (other_place, (other_name, other)) in devices.iter().enumerate() {
            assert_eq!(one == other, place == other_place, "{name} and {other_name}");
        }
    }
    assert_eq!(device("openreg"), device("openreg:0"));
    assert_eq!(device("cpu:0"), device("cpu"));
    assert_eq!(device("openreg:1").autodiff(), device("openreg:1"));
    let tensor = Tensor::<1>::zeros([1], &device("openreg:1"));
    assert_eq!(tensor.device(), device("openreg:1"));
}

/// burn's autodiff and its clients keep identifiers, and make devices of them again.
#[test]
fn a_device_survives_its_identifier() {
    let mut identifiers = BTreeSet::new();
    for text in STRINGS {
        let registered = RegistryDevice::new(device_registry::device(text).unwrap()).unwrap();
        let id = registered.to_id();
        assert_eq!(RegistryDevice::from_id(id), registered, "{text}");
        assert!(identifiers.insert((id.type_id, id.index_id)), "{text} has the identifier of another");
        // burn packs its own number of the backend into the identifier.
        let burns = device(text);
        assert!(survives(burns.as_dispatch()), "{text}");
    }
}

fn survives<D: burn_backend::Device + PartialEq>(device: &D) -> bool {
    D::from_id(device.to_id()) == *device
}

#[test]
fn memory_that_is_not_there_is_an_error_on_each_device() {
    for name in ["cpu", "openreg:1"] {
        let device = device_burn::device(name).unwrap();
        let column = Tensor::<2>::ones([1 << 23, 1], &device);
        let row = column.clone().transpose();
        for tensor in [Tensor::<2>::ones([1 << 23, 1 << 23], &device), column + row] {
            let message = tensor.try_into_data().unwrap_err().to_string();
            assert!(message.contains("out of memory"), "{name}: {message}");
        }
        let twice = Tensor::<1>::from_floats([1.0, 2.0], &device) * 2.0;
        assert_eq!(twice.try_into_data().unwrap().try_to_vec::<f32>().unwrap(), [2.0, 4.0]);
    }
}

#[test]
fn the_mean_of_bytes_is_an_error_on_each_device() {
    for name in ["cpu", "openreg:1"] {
        let device = device_burn::device(name).unwrap();
        let bytes =
            Tensor::<1, Int>::from_data(TensorData::new(vec![200_u8; 5000], [5000]), (&device, DType::U8));
        let message = bytes.mean().try_into_data().unwrap_err().to_string();
        assert!(message.contains("int_mean: unsupported dtype U8"), "{name}: {message}");
    }
}
