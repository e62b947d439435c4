//! Operations that several kernels do, one after the other, or an expression: on devices only, they give the
//! results of burn's own CPU engine.

use std::sync::Once;

use burn::tensor::activation::{gelu, hard_sigmoid, leaky_relu, log_sigmoid, prelu, softmin};
use burn::tensor::module::{
    adaptive_avg_pool1d, adaptive_avg_pool3d, attention, batch_norm, conv_transpose1d, conv_transpose2d,
    conv_transpose3d, conv1d, conv3d, embedding, layer_norm, unfold4d,
};
use burn::tensor::ops::{AttentionModuleOptions, ConvOptions, ConvTransposeOptions, PadMode, UnfoldOptions};
use burn::tensor::{Bool, Device, FloatDType, IndexingUpdateOp, Int, Tensor, s};
use device_burn::{Fallback, KernelUse};
use device_host_kernels::HostKernels;
use device_kernels::{Call, Coverage, KernelSet, KernelSetDescriptor, Operator, kernel_sets};
use device_registry::backend::{BackendError, HostMemory, Launch, LoadFailure};

device_registry::autoload!();

type Program = fn(&Device) -> Vec<Vec<f32>>;

/// Numbers without an order, from -2 to 2.
fn numbers<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    let count: usize = shape.iter().product();
    let number = |place: usize| ((place * 37 + 11) % 41) as f32 / 10.0 - 2.0;
    let numbers: Vec<f32> = (0..count).map(number).collect();
    Tensor::<1>::from_floats(&numbers[..], device).reshape(shape)
}

fn of<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_to_vec().unwrap()
}

fn of_ints<const D: usize>(tensor: Tensor<D, Int>) -> Vec<f32> {
    of(tensor.float())
}

fn of_bools<const D: usize>(tensor: Tensor<D, Bool>) -> Vec<f32> {
    of(tensor.float())
}

/// The gradient of a sum with different weights.
fn gradient<const D: usize, const E: usize>(
    shape: [usize; D],
    device: &Device,
    f: impl Fn(Tensor<D>) -> Tensor<E>,
) -> Vec<f32> {
    let device = device.clone().autodiff();
    let x = numbers(shape, &device).require_grad();
    let out = f(x.clone());
    let weights = numbers(out.dims(), &device);
    of(x.grad(&(out * weights).sum().backward()).unwrap())
}

const PROGRAMS: &[(&str, Program)] = &[
    ("the mean of integers", |device| {
        let ints = Tensor::<2, Int>::from_ints([[1, 2, 6], [-7, 5, 0]], device);
        vec![of_ints(ints.clone().mean()), of_ints(ints.clone().mean_dim(0)), of_ints(ints.mean_dim(1))]
    }),
    ("any and all of numbers", |device| {
        let x = Tensor::<2>::from_floats([[0.0, 1.0], [-0.0, 0.0], [2.0, f32::NAN]], device);
        let ints = Tensor::<1, Int>::from_ints([0, 3], device);
        vec![
            of_bools(x.clone().any_dim(1)),
            of_bools(x.clone().all_dim(1)),
            of_bools(x.clone().any()),
            of_bools(x.all()),
            of_bools(ints.clone().any()),
            of_bools(ints.all()),
        ]
    }),
    ("the largest magnitude", |device| {
        let x = numbers([3, 4], device);
        vec![of(x.clone().max_abs()), of(x.max_abs_dim(1))]
    }),
    ("cumulative operations", |device| {
        let x = numbers([2, 7, 3], device);
        let ints = Tensor::<1, Int>::from_ints([3, 1, -2, 5, 4], device);
        let one = numbers([2, 1], device);
        vec![
            of(x.clone().cumsum(1)),
            of(x.clone().swap_dims(0, 1).cumprod(0)),
            of(x.clone().cummax(2)),
            of(x.cummin(0)),
            of_ints(ints.clone().cumsum(0)),
            of_ints(ints.cummin(0)),
            of(one.cumsum(1)),
        ]
    }),
    ("padding", |device| {
        let x = numbers([2, 3, 4], device);
        vec![
            of(x.clone().pad((1, 2, 2, 0), PadMode::Edge)),
            of(x.clone().pad((3, 1, 1, 2), PadMode::Reflect)),
            of(x.swap_dims(0, 2).pad((0, 1, 0, 3), PadMode::Edge)),
        ]
    }),
    ("truths at indices", |device| {
        let x = Tensor::<1, Bool>::from_data([false, true, false, false], device);
        let values = Tensor::<1, Bool>::from_data([true, false, true], device);
        let indices = Tensor::<1, Int>::from_ints([2, 1, 2], device);
        vec![of_bools(x.select_assign(0, indices, values, IndexingUpdateOp::Add))]
    }),
    ("slices at indices of several dimensions", |device| {
        let x = numbers([3, 4, 2], device);
        let indices = Tensor::<2, Int>::from_ints([[2, 1], [0, 3], [2, 1]], device);
        let rows = Tensor::<2, Int>::from_ints([[1], [0]], device);
        let mut found = vec![
            of(x.clone().gather_nd::<2, 2>(indices.clone())),
            of(x.clone().swap_dims(0, 1).gather_nd::<2, 3>(rows)),
        ];
        for update in [
            IndexingUpdateOp::Assign,
            IndexingUpdateOp::Add,
            IndexingUpdateOp::Mul,
            IndexingUpdateOp::Min,
            IndexingUpdateOp::Max,
        ] {
            // Twice one place, but where it is not said which of two values is written.
            let (indices, values) = match update {
                IndexingUpdateOp::Assign => (indices.clone().slice(s![0..2, ..]), numbers([2, 2], device)),
                _ => (indices.clone(), numbers([3, 2], device)),
            };
            found.push(of(x.clone().scatter_nd::<2, 2>(indices, values, update)));
        }
        found
    }),
    ("products of vectors", |device| {
        let (a, b) = (numbers([2, 3], device), numbers([3, 2], device).swap_dims(0, 1) + 1.0);
        vec![of(a.clone().cross(b.clone(), 1)), of(a.swap_dims(0, 1).cross(b.swap_dims(0, 1), 0))]
    }),
    ("slices with negative steps", |device| {
        let x = numbers([5, 6], device);
        let assigned = x.clone().slice_assign(s![1..4;-1, 0..6;-4], numbers([3, 2], device) * 9.0);
        vec![of(x.clone().slice(s![..;-1, 1..6;-2])), of(x.slice(s![4..4;-1, ..])), of(assigned)]
    }),
    ("windows", |device| {
        let x = numbers([2, 7], device);
        let images = numbers([1, 2, 5, 6], device);
        let options = UnfoldOptions::new([2, 1], [1, 2], [1, 2]);
        vec![
            of(x.clone().unfold::<3, _>(1, 3, 2)),
            of(x.swap_dims(0, 1).unfold::<3, _>(0, 2, 1)),
            of(unfold4d(images, [3, 2], options)),
        ]
    }),
    ("convolutions of rows", |device| {
        let (x, weight) = (numbers([2, 4, 9], device), numbers([6, 2, 3], device));
        let options = || ConvOptions::new([2], [1], [2], 2);
        let bias = numbers([6], device);
        let by_weight = gradient([6, 2, 3], device, |weight| {
            conv1d(numbers([2, 4, 9], &weight.device()), weight, None, options())
        });
        let by_x = gradient([2, 4, 9], device, |x| {
            let weight = numbers([6, 2, 3], &x.device());
            conv1d(x, weight, None, options())
        });
        vec![
            of(conv1d(x.clone(), weight.clone(), Some(bias), options())),
            of(conv1d(x, weight, None, options())),
            by_weight,
            by_x,
        ]
    }),
    ("transposed convolutions", |device| {
        let mut found = Vec::new();
        // The last has elements that no weight reaches, and the ones before it have some at only one edge.
        for (stride, padding, padding_out, dilation) in [
            ([1, 1], [0, 0], [0, 0], [1, 1]),
            ([2, 3], [1, 0], [1, 2], [1, 2]),
            ([1, 1], [1, 1], [1, 1], [2, 2]),
        ] {
            let options = || ConvTransposeOptions::new(stride, padding, padding_out, dilation, 2);
            let (x, weight) = (numbers([2, 4, 3, 4], device), numbers([4, 3, 3, 2], device));
            let bias = numbers([6], device);
            found.push(of(conv_transpose2d(x, weight, Some(bias), options())));
        }
        let options = || ConvTransposeOptions::new([2], [1], [1], [1], 1);
        found.push(gradient([3, 2, 4], device, |weight| {
            conv_transpose1d(numbers([2, 3, 5], &weight.device()), weight, None, options())
        }));
        found.push(gradient([2], device, |bias| {
            let device = bias.device();
            conv_transpose1d(numbers([2, 3, 5], &device), numbers([3, 2, 4], &device), Some(bias), options())
        }));
        found.push(gradient([1, 2, 3, 3], device, |x| {
            let options = ConvTransposeOptions::new([2, 2], [1, 1], [1, 1], [1, 1], 1);
            let weight = numbers([2, 2, 3, 3], &x.device());
            conv_transpose2d(x, weight, None, options)
        }));
        found
    }),
    ("convolutions of volumes", |device| {
        let (x, weight) = (numbers([1, 2, 4, 5, 3], device), numbers([2, 2, 3, 2, 2], device));
        let bias = Some(numbers([2], device));
        let options = || ConvOptions::new([2, 1, 2], [1, 0, 1], [1, 2, 1], 1);
        let transposed = ConvTransposeOptions::new([2, 1, 2], [1, 0, 0], [1, 0, 1], [1, 2, 1], 1);
        vec![
            of(conv3d(x.clone(), weight.clone(), bias.clone(), options())),
            of(conv_transpose3d(x, weight, bias, transposed)),
            gradient([1, 2, 4, 5, 3], device, |x| {
                let weight = numbers([2, 2, 3, 2, 2], &x.device());
                conv3d(x, weight, None, options())
            }),
            gradient([2], device, |bias| {
                let device = bias.device();
                let (x, weight) = (numbers([1, 2, 4, 5, 3], &device), numbers([2, 2, 3, 2, 2], &device));
                conv3d(x, weight, Some(bias), options())
            }),
        ]
    }),
    ("an embedding's gradient", |device| {
        vec![gradient([5, 3], device, |weights| {
            let indices = Tensor::<2, Int>::from_ints([[0, 4, 4], [2, 0, 4]], &weights.device());
            embedding(weights, indices)
        })]
    }),
    ("a normalised batch", |device| {
        let channels = || numbers([3], device);
        let variance = channels().abs() + 0.1;
        vec![of(batch_norm(
            numbers([2, 3, 2, 4], device),
            channels(),
            channels() + 1.0,
            channels() - 0.5,
            variance,
            1e-5,
        ))]
    }),
    ("normalised rows", |device| {
        let (gamma, beta) = (numbers([6], device) + 1.0, numbers([6], device) - 0.5);
        let x = numbers([2, 5, 6], device);
        // Whose squares have another mean than the numbers themselves, and which are longer than what is
        // computed at a time.
        let long = numbers([2, 9000], device) + 50.0;
        let one = numbers([7], device);
        let by_gamma = gradient([6], device, |gamma| {
            let x = numbers([2, 5, 6], &gamma.device());
            layer_norm(x, gamma.clone(), Some(gamma), 1e-5)
        });
        let by_x = gradient([5, 6], device, |x| layer_norm(x.clone(), numbers([6], &x.device()), None, 1e-5));
        vec![
            of(layer_norm(x.clone(), gamma.clone(), Some(beta.clone()), 1e-5)),
            of(layer_norm(x.clone(), gamma.clone(), Some(beta.clone()), 3.0)),
            of(layer_norm(x.clone() * 3.0, gamma.clone(), None, 0.1)),
            of(layer_norm(x.swap_dims(0, 1), gamma.clone(), Some(beta.clone()), 1e-5)),
            of(layer_norm(numbers([6, 3], device).swap_dims(0, 1), gamma.clone(), None, 1e-5)),
            of(layer_norm(numbers([3, 1], device).expand([3, 6]), gamma, Some(beta), 1e-5)),
            of(layer_norm(long.clone(), long.clone().slice(s![0, ..]).reshape([9000]), None, 1e-5)),
            of(layer_norm(one.clone(), one.clone(), Some(one), 1e-5)),
            of(layer_norm(numbers([4, 1], device), numbers([1], device), Some(numbers([1], device)), 1e-5)),
            by_gamma,
            by_x,
        ]
    }),
    ("activations", |device| {
        let x = numbers([3, 4], device);
        vec![
            of(leaky_relu(x.clone(), 0.1)),
            of(prelu(x.clone(), numbers([4], device))),
            of(prelu(x.clone(), numbers([1], device))),
            of(hard_sigmoid(x.clone(), 0.4, 0.5)),
            of(softmin(x, 0)),
            gradient([3, 4], device, log_sigmoid),
            gradient([3, 4], device, gelu),
        ]
    }),
    ("attention", |device| {
        let (query, key) = (numbers([2, 2, 3, 4], device), numbers([2, 2, 5, 4], device) * 0.3);
        let value = numbers([2, 2, 5, 6], device);
        let bias = numbers([1, 1, 3, 5], device);
        // All of the second row is masked.
        let mask = numbers([2, 2, 3, 5], device).greater_elem(0.5);
        let rows = Tensor::<4, Bool>::from_data([[[[false], [true], [false]]]], device).expand([2, 2, 3, 5]);
        let options = |is_causal, softcap| AttentionModuleOptions { scale: None, softcap, is_causal };
        let run = |mask: Option<Tensor<4, Bool>>, bias: Option<Tensor<4>>, options| {
            of(attention(query.clone(), key.clone(), value.clone(), mask, bias, options))
        };
        vec![
            run(None, None, options(false, None)),
            run(Some(mask.bool_or(rows)), None, options(false, Some(1.5))),
            run(None, Some(bias), options(true, None)),
        ]
    }),
    ("means of windows of rows and volumes", |device| {
        vec![
            of(adaptive_avg_pool3d(numbers([2, 3, 5, 4, 7], device), [2, 3, 4])),
            gradient([1, 2, 5, 4, 3], device, |x| adaptive_avg_pool3d(x, [2, 3, 2])),
            gradient([2, 2, 7], device, |x| adaptive_avg_pool1d(x, 3)),
        ]
    }),
    ("hypotenuses", |device| {
        let a = Tensor::<1>::from_floats([3.0, 0.0, -1e30, f32::INFINITY, 1e-30, f32::NAN], device);
        let b = Tensor::<1>::from_floats([-4.0, 0.0, 1e30, f32::NEG_INFINITY, 0.0, 1.0], device);
        vec![of(a.hypot(b))]
    }),
];

/// Kernels for `mycpu`: the host's, but of expressions with reductions it has only the parts.
static MYCPU_KERNELS: KernelSetDescriptor = KernelSetDescriptor::new("mycpu", load);

fn load() -> Result<Box<dyn KernelSet>, LoadFailure> {
    Ok(Box::new(InParts))
}

struct InParts;

impl KernelSet for InParts {
    fn coverage(&self, _device: device_registry::Device) -> Vec<Coverage> {
        Coverage::of_all()
    }

    fn supports(&self, _device: device_registry::Device, call: &Call) -> bool {
        !matches!(call.operator(), Operator::Expression(of) if of.dims().is_some())
    }

    fn launch(&self, call: &Call, launch: &Launch<'_>) -> Result<(), BackendError> {
        HostKernels::new(|span| span.memory_as::<HostMemory>()).launch(call, launch)
    }
}

/// Devices with kernels, and no other way to compute.
fn devices() -> [&'static str; 3] {
    static REGISTER: Once = Once::new();
    REGISTER.call_once(|| kernel_sets().register(&MYCPU_KERNELS).unwrap());
    Fallback::Deny.set();
    KernelUse::Always.set();
    ["cpu", "openreg:1", "mycpu"]
}

#[test]
fn devices_alone_give_what_the_engine_gives() {
    let mut wrong = Vec::new();
    for name in devices() {
        let device = device_burn::device(name).unwrap();
        for (program, run) in PROGRAMS {
            let expected = run(&Device::flex());
            let found = match std::panic::catch_unwind(|| run(&device)) {
                Ok(found) => found,
                Err(_) => {
                    wrong.push(format!("{name}, {program}: an error"));
                    continue;
                }
            };
            for (part, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let near = |(a, b): (&f32, &f32)| {
                    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-4 * (1.0 + b.abs())
                };
                if found.len() != expected.len() || !found.iter().zip(expected).all(near) {
                    wrong.push(format!("{name}, {program}, {part}: {found:?}, expected {expected:?}"));
                }
            }
        }
        let counts = device_burn::counts(name).unwrap();
        assert_eq!(counts.operations.iter().map(|count| count.fallback).sum::<u64>(), 0, "{counts}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// In 16 bits the squares would be infinite, or the mean another one.
#[test]
fn halves_are_normalised_as_f32() {
    let run = |device: &Device, dtype| {
        let halves = |tensor: Tensor<1>| tensor.cast(dtype);
        let x = (numbers([3, 40], device) * 10.0 + 300.0).cast(dtype);
        let (gamma, beta) = (halves(numbers([40], device)), halves(numbers([40], device)));
        let all = [
            layer_norm(x.clone(), gamma.clone(), Some(beta), 1e-5),
            layer_norm(x.swap_dims(0, 1).slice(s![0..2, ..]), gamma.slice(s![0..3]), None, 1e-5)
                .reshape([2, 3]),
        ];
        all.map(|one| of(one.cast(FloatDType::F32))).concat()
    };
    for name in devices() {
        let device = device_burn::device(name).unwrap();
        for (dtype, last_bit) in [(FloatDType::F16, 1.0 / 1024.0), (FloatDType::BF16, 1.0 / 128.0)] {
            let expected = run(&Device::flex(), dtype);
            let found = run(&device, dtype);
            let near = |(a, b): (&f32, &f32)| (a - b).abs() <= last_bit * b.abs() + 1e-6;
            assert!(
                found.len() == expected.len() && found.iter().zip(&expected).all(near),
                "{name}, {dtype:?}: {found:?}, expected {expected:?}"
            );
        }
    }
}

/// One behaviour for each index that is out of range: kernels of the host report it.
#[test]
fn an_index_of_several_that_is_out_of_range_is_no_other_slice() {
    let device = device_burn::device("openreg:0").unwrap();
    let x = numbers([3, 4], &device);
    for indices in [[[0, 4]], [[-1, 5]], [[3, -1]], [[1, -1]]] {
        let indices = Tensor::<2, Int>::from_ints(indices, &device);
        let error = x.clone().gather_nd::<2, 1>(indices.clone()).try_into_data().unwrap_err().to_string();
        assert!(error.contains("out of range"), "{error}");
        let values = numbers([1], &device);
        let written = x.clone().scatter_nd::<2, 1>(indices, values, IndexingUpdateOp::Add);
        let error = written.try_into_data().unwrap_err().to_string();
        assert!(error.contains("out of range"), "{error}");
    }
}
