//! Sorts by the kernels of devices give what burn's own CPU engine gives, to the last bit.
//!
//! The engine's sort is unstable: where a row has more than twenty elements, it does not say which of two
//! equal ones is first. So rows with equal elements are short here, or only their elements are compared.

use burn::tensor::{Device, FloatDType, Int, IntDType, Tensor, TensorData};
use device_burn::{Fallback, KernelUse};

device_registry::autoload!();

/// Each number twice, with both zeros, and with NaN of both signs.
fn with_equals(count: usize) -> Vec<f32> {
    let special = [f32::NAN, -0.0, f32::NEG_INFINITY, 0.0, -f32::NAN, f32::INFINITY];
    let number = |at: usize| {
        if at.is_multiple_of(5) {
            special[at / 5 % 6]
        } else {
            ((at * 37 + 11) % (count / 2 + 1)) as f32 - 7.0
        }
    };
    (0..count).map(number).collect()
}

/// Numbers without an order, each once.
fn without_equals(count: usize) -> Vec<f32> {
    (0..count).map(|at| ((at * 7919 + 13) % count) as f32 - 100.0).collect()
}

fn floats<const D: usize>(numbers: Vec<f32>, shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(numbers, shape), device)
}

/// Every operation that sorts, in one dimension.
fn all<const D: usize>(x: &Tensor<D>, dim: usize) -> Vec<TensorData> {
    let k = x.dims()[dim].min(3);
    let (up, up_at) = x.clone().sort_with_indices(dim);
    let (down, down_at) = x.clone().sort_descending_with_indices(dim);
    let (top, top_at) = x.clone().topk_with_indices(k, dim);
    let mut found = vec![up.into_data(), down.into_data(), top.into_data()];
    found.extend([up_at, down_at, top_at].map(Tensor::into_data));
    found.extend(
        [x.clone().sort(dim), x.clone().sort_descending(dim), x.clone().topk(k, dim)].map(Tensor::into_data),
    );
    found.extend([x.clone().argsort(dim), x.clone().argsort_descending(dim)].map(Tensor::into_data));
    if k < x.dims()[dim] {
        found.push(x.clone().argtopk(k, dim).into_data());
    }
    found
}

fn all_of_ints<const D: usize>(x: &Tensor<D, Int>, dim: usize) -> Vec<TensorData> {
    let (up, up_at) = x.clone().sort_with_indices(dim);
    let (top, top_at) = x.clone().topk_with_indices(2, dim);
    let found = [
        up,
        up_at,
        top,
        top_at,
        x.clone().sort_descending(dim),
        x.clone().argsort(dim),
        x.clone().topk(2, dim),
    ];
    found.map(Tensor::into_data).into()
}

/// Integers as `i64`: the indices of the engine are that, also where the tensor has a shorter type.
fn comparable(data: TensorData) -> TensorData {
    if data.dtype().is_float() { data } else { data.convert::<i64>() }
}

type Program = fn(&Device) -> Vec<TensorData>;

const PROGRAMS: &[(&str, Program)] = &[
    ("each dimension of a view", |device| {
        let x = floats(with_equals(4 * 5 * 6), [4, 5, 6], device).swap_dims(0, 2).flip([1]);
        (0..3).flat_map(|dim| all(&x, dim)).collect()
    }),
    ("each type of floats", |device| {
        // A conversion may give a NaN another sign.
        let numbers: Vec<f32> = with_equals(36).iter().map(|x| if x.is_nan() { 2.0 } else { *x }).collect();
        [FloatDType::F16, FloatDType::BF16, FloatDType::F64]
            .into_iter()
            .flat_map(|dtype| all(&floats(numbers.clone(), [2, 18], device).cast(dtype), 1))
            .collect()
    }),
    ("each type of integers", |device| {
        let ints = |dtype| {
            Tensor::<2, Int>::from_ints([[3, 1, 2, 200, 3, 0], [9, 9, 7, 8, 7, 9]], device).cast(dtype)
        };
        // Indices have the type of the tensor, and kernels have none of `u8`.
        let of_bytes = ints(IntDType::U8);
        let mut found = vec![of_bytes.clone().sort(1).into_data(), of_bytes.topk(2, 0).into_data()];
        for dtype in [IntDType::I64, IntDType::I32, IntDType::U32] {
            found.extend([all_of_ints(&ints(dtype), 0), all_of_ints(&ints(dtype), 1)].concat());
        }
        found
    }),
    ("negative integers", |device| {
        let x = Tensor::<2, Int>::from_ints([[-3, 1, i32::MIN, 200, i32::MAX, 0]], device);
        all_of_ints(&x, 1)
    }),
    ("long rows", |device| {
        let x = floats(without_equals(3 * 5000), [3, 5000], device);
        let elements = floats(with_equals(40_000), [2, 20_000], device);
        let mut found = all(&x, 1);
        found.extend([elements.clone().sort(1), elements.topk(100, 1)].map(Tensor::into_data));
        found
    }),
    ("one element and none", |device| {
        let (one, none) = (floats(vec![2.0, 1.0], [2, 1], device), Tensor::<2>::empty([2, 0], device));
        let mut found = all(&one, 1);
        found.push(none.sort(1).into_data());
        found
    }),
];

#[test]
fn devices_alone_sort_as_the_engine_does() {
    Fallback::Deny.set();
    KernelUse::Always.set();
    for name in ["cpu", "openreg:1"] {
        let device = device_burn::device(name).unwrap();
        for (program, run) in PROGRAMS {
            for (part, (found, expected)) in run(&device).into_iter().zip(run(&Device::flex())).enumerate() {
                let (found, expected) = (comparable(found), comparable(expected));
                assert_eq!(found.dtype(), expected.dtype(), "{name}, {program}, {part}");
                assert!(
                    found.shape() == expected.shape() && found.as_bytes() == expected.as_bytes(),
                    "{name}, {program}, {part}: {found:?}, expected {expected:?}"
                );
            }
        }
        let counts = device_burn::counts(name).unwrap();
        assert_eq!(counts.operations.iter().map(|count| count.fallback).sum::<u64>(), 0, "{counts}");
        for operation in ["Sort", "ArgSort", "SortWithIndices", "TopK", "ArgTopK", "TopKWithIndices"] {
            let native = |of: &str| {
                let operation = format!("{of}.{operation}");
                counts
                    .operations
                    .iter()
                    .find(|count| count.operation == operation)
                    .map_or(0, |count| count.native)
            };
            assert!(native("NumericFloat") > 0, "{operation}: {counts}");
        }
    }
}
