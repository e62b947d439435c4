//! Operations wait until one of their results is needed, and then run together: which ones, when, in which
//! memory, and what is never computed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::module::{Module, Param};
use burn::optim::{AdamConfig, GradientsParams, ModuleOptimizer};
use burn::tensor::activation::{relu, sigmoid};
use burn::tensor::{Bool, Device, IndexingUpdateOp, Int, Tensor, s};
use device_burn::{Counts, LaunchCount};

#[path = "../../tests/tests/common/child.rs"]
mod child;

device_registry::autoload!();

const NAME: &str = "openreg:0";

/// A device whose counts begin at zero, for one test at a time.
fn device() -> (Device, MutexGuard<'static, ()>) {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let device = device_burn::device(NAME).unwrap();
    device.sync().unwrap();
    device_burn::reset_counts(NAME).unwrap();
    (device, alone)
}

fn counts() -> Counts {
    device_burn::counts(NAME).unwrap()
}

/// Each kind of launch: its operators, how many operations and kernels it is, and how often.
fn launches() -> Vec<(String, u64, u64, u64)> {
    let row =
        |LaunchCount { operators, operations, kernels, times, .. }| (operators, operations, kernels, times);
    counts().launches.into_iter().map(row).collect()
}

fn launch(operators: &str, operations: u64, times: u64) -> (String, u64, u64, u64) {
    (operators.to_owned(), operations, 1, times)
}

/// The bytes that the device has, and in how many allocations. Nothing that waits runs for it.
fn allocated() -> (u64, u64) {
    let device = device_registry::device(NAME).unwrap();
    // The stream holds the memory of a kernel until the kernel is done.
    device.synchronize().unwrap();
    let memory = device.memory_statistics().unwrap();
    (memory.allocated, memory.live)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.try_into_data().unwrap().try_to_vec().unwrap()
}

/// `[1, 2, 3, …]`, of which the device has a copy.
fn ramp(len: usize, device: &Device) -> Tensor<1> {
    let numbers: Vec<f32> = (1..=len).map(|number| number as f32).collect();
    let ramp = Tensor::from_floats(&numbers[..], device);
    let twice = ramp.clone() + ramp.clone();
    assert_eq!(values(twice)[0], 2.0);
    device_burn::reset_counts(NAME).unwrap();
    ramp
}

#[test]
fn operations_wait_until_a_result_is_read_and_run_together() {
    let (device, _alone) = device();
    let x = ramp(3, &device);
    let before = allocated();
    let y = relu(x.clone() * 2.0 - 3.0);
    assert_eq!(allocated(), before, "nothing has run");
    assert_eq!(values(y), [0.0, 1.0, 3.0]);
    assert_eq!(launches(), [launch("mul·sub·relu", 3, 1)]);
    let counts = counts();
    assert_eq!((counts.native(), counts.fused(), counts.fallbacks()), (3, 3, 0), "{counts}");
    assert_eq!(allocated(), before, "and the result is released");
}

#[test]
fn numbers_of_the_program_may_be_others_the_next_time() {
    let (device, _alone) = device();
    let x = ramp(3, &device);
    for step in 1..=4_u8 {
        let step = f32::from(step);
        assert_eq!(values(x.clone() * step + step), [2.0 * step, 3.0 * step, 4.0 * step]);
    }
    assert_eq!(launches(), [launch("mul·add", 2, 4)]);
}

#[test]
fn an_operation_alone_runs_as_it_does_without_fusion() {
    let (device, _alone) = device();
    let x = ramp(3, &device);
    assert_eq!(values(x + 1.0), [2.0, 3.0, 4.0]);
    let counts = counts();
    assert_eq!((counts.native(), counts.fused(), counts.launches.len()), (1, 0, 0), "{counts}");
}

#[test]
fn what_is_dropped_before_it_is_needed_is_never_computed() {
    let (device, _alone) = device();
    let x = ramp(3, &device);
    drop(x.clone() * 2.0);
    // A branch of a chain is dropped, and the rest of it runs.
    let sum = x.clone() + 1.0;
    let dropped = sum.clone().exp() * x.clone();
    drop(dropped);
    assert_eq!(values(sum * x), [2.0, 6.0, 12.0]);
    assert_eq!(launches(), [launch("add·mul", 2, 1)]);
    assert_eq!(counts().native(), 2);
}

#[test]
fn a_result_between_two_operations_takes_no_memory() {
    let (device, _alone) = device();
    let x = ramp(1024, &device);
    let peak = || device_registry::device(NAME).unwrap().memory_statistics().unwrap();
    let before = allocated().0;
    let y = (0..10).fold(x.clone(), |y, _| y * 1.5 + x.clone());
    device.sync().unwrap();
    assert_eq!(allocated().0, before + 4096, "one result: {:?}", peak());
    assert_eq!(counts().launches[0].operations, 20);
    drop(y);
}

#[test]
fn several_results_come_from_one_launch() {
    let (device, _alone) = device();
    let x = ramp(3, &device);
    let double = x.clone() * 2.0;
    let next = double.clone() + 1.0;
    let is_large = next.clone().greater_elem(4.0);
    assert_eq!(values(next), [3.0, 5.0, 7.0]);
    assert_eq!(values(double), [2.0, 4.0, 6.0]);
    assert_eq!(is_large.into_data().try_to_vec::<bool>().unwrap(), [false, true, true]);
    assert_eq!(launches(), [launch("mul·add·gt", 3, 1)]);
}

#[test]
fn views_of_a_result_wait_as_it_does() {
    let (device, _alone) = device();
    let x = ramp(6, &device).reshape([2, 3]);
    let before = allocated();
    let y = (x + 1.0) * 2.0;
    let turned = y.clone().transpose();
    let part = y.clone().slice([1..2, 1..3]);
    let wide = y.clone().slice([0..1, 0..3]).expand([2, 3]);
    assert_eq!(allocated(), before);
    assert_eq!(values(turned), [4.0, 10.0, 6.0, 12.0, 8.0, 14.0]);
    assert_eq!(values(part * 1.0), [12.0, 14.0]);
    assert_eq!(values(wide), [4.0, 6.0, 8.0, 4.0, 6.0, 8.0]);
    assert_eq!(values(y), [4.0, 6.0, 8.0, 10.0, 12.0, 14.0]);
    assert_eq!(launches(), [launch("add·mul", 2, 1)]);
}

#[test]
fn an_operation_on_a_view_of_a_result_reads_the_view() {
    let (device, _alone) = device();
    let x = ramp(4, &device).reshape([2, 2]);
    let y = x * 2.0;
    // The same shape, with other elements at each place.
    let sum = y.clone() + y.clone().transpose();
    assert_eq!(values(sum), [4.0, 10.0, 10.0, 16.0]);
    assert_eq!(values(y), [2.0, 4.0, 6.0, 8.0]);
}

#[test]
fn each_need_of_a_result_runs_what_waits() {
    let (device, _alone) = device();
    let x = ramp(4, &device).reshape([2, 2]);
    let other = device_burn::device("openreg:1").unwrap();
    type Need<'a> = (&'a str, &'a dyn Fn(&Tensor<2>));
    let needs: [Need<'_>; 7] = [
        ("a read", &|y| drop(y.to_data())),
        ("a product of matrices", &|y| drop(y.clone().matmul(y.clone()))),
        ("a sync", &|_| device.sync().unwrap()),
        ("the counts", &|_| drop(counts())),
        ("a move", &|y| drop(y.clone().to_device(&other))),
        ("a profiling window", &|_| drop(device.profile(|| ()))),
        ("another thread", &|y| {
            let y = y.clone();
            std::thread::spawn(move || drop(y.exp().into_data())).join().unwrap();
        }),
    ];
    for (name, need) in needs {
        let before = allocated();
        let y = (x.clone() + 1.0) * 3.0;
        assert_eq!(allocated(), before, "{name}");
        need(&y);
        assert_eq!(allocated().0, before.0 + 16, "{name}");
        assert_eq!(values(y), [6.0, 9.0, 12.0, 15.0], "{name}");
    }
}

#[test]
fn a_sync_of_another_thread_runs_nothing_of_this_one() {
    let (device, _alone) = device();
    let x = ramp(3, &device);
    let before = allocated();
    let y = x * 2.0 + 1.0;
    std::thread::spawn(move || device.sync().unwrap()).join().unwrap();
    assert_eq!(allocated(), before);
    assert_eq!(values(y), [3.0, 5.0, 7.0]);
}

#[test]
fn more_operations_than_an_expression_has_run_as_several() {
    let (device, _alone) = device();
    let x = ramp(3, &device);
    let y = (0..100).fold(x.clone(), |y, _| y + x.clone());
    assert_eq!(values(y), [101.0, 202.0, 303.0]);
    let launches = counts().launches;
    let operations: u64 = launches.iter().map(|launch| launch.operations * launch.times).sum();
    assert_eq!(operations, 100);
    assert!(launches.iter().map(|launch| launch.times).sum::<u64>() <= 3, "{launches:?}");
}

#[test]
fn more_inputs_and_results_than_an_expression_has_run_as_several() {
    let (device, _alone) = device();
    let inputs: Vec<_> = (0..40_u8).map(|number| ramp(3, &device) * f32::from(number)).collect();
    device.sync().unwrap();
    let sum = inputs.iter().cloned().reduce(|sum, input| sum + input).unwrap();
    assert_eq!(values(sum), [780.0, 1560.0, 2340.0]);

    let mut results = vec![inputs[1].clone()];
    for _ in 0..30 {
        results.push(results[results.len() - 1].clone() + 1.0);
    }
    for (number, result) in results.into_iter().enumerate() {
        let number = number as f32;
        assert_eq!(values(result), [1.0 + number, 2.0 + number, 3.0 + number]);
    }
}

#[test]
fn operations_on_results_of_two_chains_make_them_one() {
    let (device, _alone) = device();
    let x = ramp(3, &device);
    let [left, right] = [x.clone() * 2.0, x.clone() + 10.0];
    let kept = right.clone();
    let sum = left.exp().log() * right;
    assert_eq!(values(sum.round()), [22.0, 48.0, 78.0]);
    assert_eq!(values(kept), [11.0, 12.0, 13.0]);
    assert_eq!(counts().launches.len(), 1, "{}", counts());
    assert_eq!(counts().fused(), 6);
}

#[test]
fn smaller_results_are_broadcast() {
    let (device, _alone) = device();
    let x = ramp(6, &device).reshape([2, 3]);
    let row = ramp(3, &device).reshape([1, 3]) * 10.0 + 1.0;
    let sum = (x + row.clone()) * 2.0;
    assert_eq!(values(sum), [24.0, 46.0, 68.0, 30.0, 52.0, 74.0]);
    assert_eq!(values(row), [11.0, 21.0, 31.0]);
}

#[test]
fn a_tensor_that_is_used_twice_is_read_once() {
    let (device, _alone) = device();
    let x = ramp(3, &device);
    let square = x.clone() * x.clone();
    let fourth = square.clone() * square;
    assert_eq!(values(fourth + x), [2.0, 18.0, 84.0]);
    assert_eq!(launches(), [launch("mul·mul·add", 3, 1)]);
}

/// Gradients of slices and of selected rows begin so.
#[test]
fn an_assignment_takes_the_value_of_a_tensor_that_is_not_written() {
    let (device, _alone) = device();
    let x = ramp(3, &device);
    let zeros = Tensor::<1>::zeros([6], &device);
    let before = allocated();
    let assigned = zeros.clone().slice_assign(s![2..5], x.clone());
    // The result, and no zeros.
    assert_eq!(allocated(), (before.0 + 24, before.1 + 1));
    assert_eq!(values(assigned), [0.0, 0.0, 1.0, 2.0, 3.0, 0.0]);
    let backwards = zeros.clone().reshape([2, 3]).slice_assign([1..2, 0..3], x.clone().flip([0]).unsqueeze());
    assert_eq!(values(backwards), [0.0, 0.0, 0.0, 3.0, 2.0, 1.0]);
    let places = Tensor::<1, Int>::from_ints([0, 5, 0], &device);
    let halves = Tensor::<1>::full([6], 0.5, &device);
    let added = halves.clone().select_assign(0, places.clone(), x.clone(), IndexingUpdateOp::Add);
    assert_eq!(values(added), [4.5, 0.5, 0.5, 0.5, 0.5, 2.5]);
    let scattered = halves.scatter(0, places, x, IndexingUpdateOp::Add);
    assert_eq!(values(scattered), [4.5, 0.5, 0.5, 0.5, 0.5, 2.5]);
    let sevens = Tensor::<1, Int>::from_ints([7, 7], &device);
    let ones = Tensor::<1, Int>::ones([3], &device).slice_assign(s![1..3], sevens);
    assert_eq!(values(ones.float()), [1.0, 7.0, 7.0]);
    for operation in ["BaseFloat.Zeros", "NumericFloat.Full", "BaseInt.Ones"] {
        let counts = counts();
        assert!(counts.operations.iter().all(|count| count.operation != operation), "{counts}");
    }
    assert_eq!(counts().fallbacks(), 0);
    assert_eq!(values(zeros), [0.0; 6], "it is written for the read");
}

#[test]
fn a_tensor_of_one_value_is_a_number_in_an_expression() {
    let (device, _alone) = device();
    let x = ramp(3, &device);
    let before = allocated();
    let zeros = Tensor::<1>::zeros([3], &device);
    let ones = x.ones_like();
    let halves = Tensor::<1>::full([1], 0.5, &device).expand([3]);
    let y = (x.clone() + ones.clone()) * halves - zeros.clone();
    device.sync().unwrap();
    assert_eq!(allocated().0, before.0 + 12, "only the result is written");
    assert_eq!(launches(), [launch("add·mul·sub", 3, 1)]);
    assert_eq!(values(y), [1.0, 1.5, 2.0]);
    // An expression of such tensors alone.
    assert_eq!(values((zeros.clone() + ones.clone()) * 3.0), [3.0; 3]);
    assert_eq!(values((ones.clone() * 2.0).sum()), [6.0]);
    // They are tensors nonetheless.
    assert_eq!(values(ones), [1.0; 3]);
    assert_eq!(values(zeros.reshape([1, 3]).matmul(Tensor::<2>::ones([3, 1], &device))), [0.0]);
    let mask = Tensor::<1, Bool>::full([3], true, &device);
    assert_eq!(values(Tensor::<1>::zeros([3], &device).mask_fill(mask, 7.0)), [7.0; 3]);
}

#[test]
fn results_take_the_memory_of_tensors_at_their_last_use() {
    let (device, _alone) = device();
    let base = ramp(1024, &device);
    let make = || {
        let x = base.clone() * 2.0 + 0.0;
        device.sync().unwrap();
        x
    };
    let x = make();
    let before = allocated();
    let y = x * 3.0 - 1.0;
    device.sync().unwrap();
    assert_eq!(allocated(), before, "the memory is the input's");
    assert_eq!(values(y)[..3], [5.0, 11.0, 17.0]);

    // Something else still has it: a clone, or a view.
    type Keep = fn(&Tensor<1>) -> Tensor<1>;
    for keep in
        [(|x| x.clone()) as Keep, |x| x.clone().slice(0..2), |x| x.clone().reshape([2, 512]).flatten(0, 1)]
    {
        let x = make();
        let kept = keep(&x);
        let before = allocated();
        let y = x * 3.0 - 1.0;
        device.sync().unwrap();
        assert_eq!(allocated().0, before.0 + 4096);
        assert_eq!(values(kept)[..2], [2.0, 4.0]);
        assert_eq!(values(y)[..3], [5.0, 11.0, 17.0]);
    }
    // Another type, and a view that is not all of it.
    let x = make();
    let y = (x.slice(1..1024) * 3.0).int() + 1;
    assert_eq!(y.into_data().try_to_vec::<i32>().unwrap()[..2], [13, 19]);
    assert_eq!(values(base)[..2], [1.0, 2.0]);
}

#[test]
fn rows_of_a_reduction_are_overwritten_where_nothing_else_has_them() {
    let (device, _alone) = device();
    for shape in [[4, 256], [64, 5], [1, 4096]] {
        let x = ramp(shape[0] * shape[1], &device).reshape(shape) / 100.0 + 0.0;
        let expected = softmax(Tensor::from_data(x.to_data(), &Device::flex()));
        let before = allocated();
        let y = softmax(x);
        device.sync().unwrap();
        assert_eq!(allocated(), before);
        assert_close(&values(y), &values(expected));
    }
}

fn softmax(x: Tensor<2>) -> Tensor<2> {
    let powers = (x.clone() - x.max_dim(1)).exp();
    powers.clone() / powers.sum_dim(1)
}

fn assert_close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= 1e-5 * (1.0 + expected.abs()), "{found} instead of {expected}");
    }
}

#[test]
fn reductions_run_together_with_what_is_before_and_behind_them() {
    let (device, _alone) = device();
    let numbers: Vec<f32> = (0..60_u16).map(|number| f32::from(number * 37 % 41) / 10.0 - 2.0).collect();
    type Program = fn(Tensor<3>) -> Vec<Tensor<3>>;
    let programs: [(&str, Program, u64); 9] = [
        (
            "softmax",
            |x| {
                let powers = (x.clone() - x.max_dim(2)).exp();
                vec![powers.clone() / powers.sum_dim(2)]
            },
            5,
        ),
        (
            "norm",
            |x| {
                let mean = x.clone().mean_dim(1);
                let off = x - mean.clone();
                let variance = (off.clone() * off.clone()).mean_dim(1);
                vec![off / (variance.clone() + 1e-5).sqrt(), mean, variance]
            },
            7,
        ),
        (
            "a loss and its parts",
            |x| {
                let square = x.clone() * x;
                vec![(square.clone().mean() * 2.0).reshape([1, 1, 1]), square]
            },
            3,
        ),
        ("of all, broadcast", |x| vec![x.clone() - x.sum().reshape([1, 1, 1])], 1),
        ("several dimensions", |x| vec![(x * 2.0).sum_dims(&[0, 2]) + 1.0], 3),
        (
            "other dimensions",
            |x| {
                let y = x * 2.0;
                vec![y.clone().sum_dim(0), y.clone().prod_dim(2), y.max_dim(0).min_dim(1)]
            },
            0,
        ),
        ("of a reduced one", |x| vec![((x + 1.0).sum_dim(2) * 2.0).sum_dim(2)], 3),
        (
            "of a broadcast one",
            |x| vec![(x.clone().slice([0..1, 0..1, 0..5]).expand([3, 4, 5]) * 2.0).sum_dim(0)],
            2,
        ),
        (
            "of equal sizes",
            |x| {
                let square = x.slice([0..1, 0..4, 0..4]) * 1.5;
                vec![square.clone().sum_dim(2).swap_dims(1, 2) + square]
            },
            0,
        ),
    ];
    for (name, program, fused) in programs {
        let tensor = |device: &Device| Tensor::<1>::from_floats(&numbers[..], device).reshape([3, 4, 5]);
        let x = tensor(&device);
        device_burn::reset_counts(NAME).unwrap();
        let found = program(x);
        device.sync().unwrap();
        let counts = counts();
        assert_eq!(counts.fallbacks(), 0, "{name}: {counts}");
        if fused > 0 {
            assert!(counts.fused() == fused || fused == 1, "{name}: {counts}");
            assert!(counts.launches.len() <= 1, "{name}: {counts}");
        }
        for (found, expected) in found.into_iter().zip(program(tensor(&Device::flex()))) {
            assert_eq!(found.dims(), expected.dims(), "{name}");
            assert_close(&values(found), &values(expected));
        }
    }
}

#[derive(Module, Debug)]
struct Parameters {
    first: Param<Tensor<2>>,
    second: Param<Tensor<2>>,
    bias: Param<Tensor<1>>,
}

/// Steps of Adam, by which a small network learns.
fn train(device: &Device, steps: usize) -> Vec<f32> {
    let device = device.clone().autodiff();
    let weights = |start: usize| {
        let numbers: Vec<f32> =
            (start..start + 16).map(|number| (number * 37 % 23) as f32 / 20.0 - 0.5).collect();
        Param::from_tensor(Tensor::<1>::from_floats(&numbers[..], &device).reshape([4, 4]))
    };
    let bias = Param::from_tensor(Tensor::<1>::from_floats([0.1, -0.1, 0.2, 0.0], &device));
    let mut model = Parameters { first: weights(0), second: weights(3), bias };
    let mut optimizer: ModuleOptimizer = AdamConfig::new().init();
    let x = weights(7).val().detach();
    for _ in 0..steps {
        let hidden = sigmoid(x.clone().matmul(model.first.val()));
        let y = hidden.matmul(model.second.val()) + model.bias.val().unsqueeze();
        let off = y - x.clone();
        let gradients = GradientsParams::from_grads((off.clone() * off).mean().backward(), &model);
        model = optimizer.step(0.01, model, gradients);
    }
    [values(model.first.val()), values(model.second.val()), values(model.bias.val())].concat()
}

#[test]
fn a_step_of_adam_is_one_launch_for_each_parameter() {
    let (device, _alone) = device();
    let expected = train(&Device::flex(), 5);
    let found = train(&device, 5);
    assert_close(&found, &expected);
    let launches = launches();
    // The first step of a parameter has no moments yet.
    let of_adam = |launch: &&(String, u64, u64, u64)| launch.3 == 3 * 4;
    let [(_, operations, kernels, _)] = launches.iter().filter(of_adam).collect::<Vec<_>>()[..] else {
        panic!("{}", counts());
    };
    assert_eq!((*operations, *kernels), (13, 1), "{}", counts());
}

#[test]
fn a_chain_that_nothing_needs_for_long_runs_and_releases_its_inputs() {
    let (device, _alone) = device();
    let before = allocated();
    let x = ramp(1024, &device);
    let waits = x.clone().slice(0..4) * 2.0 + 1.0;
    drop(x);
    assert_eq!(allocated().0, before.0 + 4096, "the chain keeps its input");
    let one = Tensor::<1>::from_floats([1.0], &device);
    for _ in 0..300 {
        drop(one.clone() + 1.0);
    }
    assert_eq!(allocated().0, before.0 + 16);
    assert_eq!(values(waits), [3.0, 5.0, 7.0, 9.0]);
}

#[test]
fn a_thread_has_a_bounded_number_of_chains() {
    let (device, _alone) = device();
    let x = ramp(3, &device);
    let before = allocated();
    let chains: Vec<_> = (0..50_u8).map(|number| x.clone() * f32::from(number) + 1.0).collect();
    let ran = (allocated().0 - before.0) / 12;
    assert!((1..50).contains(&ran), "{ran}");
    for (number, chain) in chains.into_iter().enumerate() {
        assert_eq!(values(chain)[0], number as f32 + 1.0);
    }
}

#[test]
fn waiting_operations_give_their_inputs_back_where_memory_is_short() {
    const LEN: usize = 1 << 16;
    let name = "openreg:1";
    let device = device_burn::device(name).unwrap();
    let registered = device_registry::device(name).unwrap();
    device.sync().unwrap();
    let base = Tensor::<1>::from_floats(&vec![1.0_f32; LEN][..], &device);
    let large = base.clone() + base.clone();
    device.sync().unwrap();
    let free = registered.memory_info().unwrap().free.unwrap();
    // Leaves room for small tensors.
    let _filler = registered.allocate(free as usize - 4096).unwrap();
    let waits = large.slice(0..4) * 2.0 + 1.0;
    let first = base.clone() * 3.0 + 1.0;
    assert_eq!(values(first.slice(0..1)), [4.0], "it has the memory that the one that waits has kept");
    assert_eq!(values(waits), [5.0; 4]);
}

#[test]
fn an_operation_that_waits_with_a_tensor_of_one_value_survives_that_ones_failure() {
    let name = "openreg:1";
    let device = device_burn::device(name).unwrap();
    let registered = device_registry::device(name).unwrap();
    let small = Tensor::<1>::from_floats([1.0, 2.0, 3.0, 4.0], &device);
    device.sync().unwrap();
    let free = registered.memory_info().unwrap().free.unwrap();
    let filler = registered.allocate(free as usize - 4096).unwrap();
    let large = Tensor::<1>::full([1 << 16], 0.5, &device);
    let waits = small + large.clone().slice(0..4);
    // There is no memory for it, also after the operation that waits has run.
    assert!(large.try_into_data().is_err());
    assert_eq!(values(waits), [1.5, 2.5, 3.5, 4.5]);
    drop(filler);
    let _ = device.sync();
}

#[test]
fn types_that_differ_and_integers_run_together() {
    let (device, _alone) = device();
    let x = ramp(4, &device);
    let ints = (x.clone() * 1.5).int() + 1;
    let mask = ints.clone().equal_elem(4).bool_or(x.clone().greater_elem(3.5));
    let y = x.clone().mask_where(mask.clone(), ints.clone().float() * 100.0).mask_fill(mask.bool_not(), -1.0);
    assert_eq!(values(y), [-1.0, 400.0, -1.0, 700.0]);
    assert_eq!(ints.into_data().try_to_vec::<i32>().unwrap(), [2, 4, 5, 7]);
    assert_eq!(counts().launches.len(), 1, "{}", counts());
    let clamped = Tensor::<1, Int>::from_ints([1, 500, -500], &device).clamp(-7, 7) * 2;
    assert_eq!(clamped.into_data().try_to_vec::<i32>().unwrap(), [2, 14, -14]);
}

#[test]
fn the_table_says_which_operations_ran_together() {
    let (device, _alone) = device();
    let x = ramp(3, &device);
    drop(values(x.clone() * 2.0 + 1.0));
    drop(values(x * 3.0));
    let table = counts().to_string();
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[1][..3], ["operation", "native", "fused"], "{table}");
    let of = |name: &str| lines.iter().find(|line| line.first() == Some(&name)).unwrap();
    assert_eq!(of("NumericFloat.MulScalar")[1..3], ["2", "1"], "{table}");
    assert_eq!(of("total")[1..3], ["3", "2"], "{table}");
    assert_eq!(of("together")[1..], ["operations", "kernels", "times"], "{table}");
    assert_eq!(of("mul·add")[1..], ["2", "1", "1"], "{table}");
    let json = counts().to_json();
    assert!(json.contains("\"operators\": \"mul·add\"") && json.contains("\"fused\": 1"), "{json}");
}

#[test]
fn fusion_is_off_where_the_program_or_the_user_says_so() {
    child::run("child_without_fusion", &[("DEVICE_BURN_FUSION", "0")]);
    child::run("child_without_fusion", &[("DEVICE_BURN_FUSION", "off")]);
    child::run("child_without_fusion", &[("DEVICE_BURN_FUSION", "1"), ("SET_BY_CODE", "1")]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_without_fusion() {
    if std::env::var_os("SET_BY_CODE").is_some() {
        device_burn::Fusion::Off.set();
    }
    let (device, _alone) = device();
    let x = ramp(3, &device);
    let before = allocated();
    let y = x.clone() * 2.0 + 1.0;
    assert_eq!(allocated().0, before.0 + 12, "it has run");
    assert_eq!(values(y), [3.0, 5.0, 7.0]);
    let counts = counts();
    assert_eq!((counts.native(), counts.fused(), counts.launches.len()), (2, 0, 0), "{counts}");
    assert!(!counts.to_string().contains("together"), "{counts}");
    // What waits already runs together.
    device_burn::Fusion::On.set();
    let y = x * 3.0;
    device_burn::Fusion::Off.set();
    let z = y.clone() + 1.0;
    assert_eq!(values(z), [4.0, 7.0, 10.0]);
    assert_eq!(values(y), [3.0, 6.0, 9.0]);
}

#[test]
fn another_word_is_an_error_of_the_device() {
    child::run("child_with_another_word", &[("DEVICE_BURN_FUSION", "never")]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_with_another_word() {
    let error = device_burn::device(NAME).unwrap_err().to_string();
    assert!(error.starts_with("DEVICE_BURN_FUSION=\"never\" is invalid: expected 1, true"), "{error}");
}

#[test]
fn nothing_waits_on_a_device_whose_memory_is_the_hosts() {
    let device = device_burn::device("cpu").unwrap();
    let x = Tensor::<1>::from_floats([1.0, 2.0, 3.0], &device);
    assert_eq!(values(x * 2.0 + 1.0), [3.0, 5.0, 7.0]);
    let counts = device_burn::counts("cpu").unwrap();
    assert_eq!((counts.fused(), counts.launches.len()), (0, 0), "{counts}");
}
