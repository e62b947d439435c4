//! Where the bytes of tensors are: they move once, when the other side needs them, and views of them move
//! nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::tensor::{Device, Int, Tensor};
use device_burn::Transfers;
use device_burn_tests as _;

device_registry::autoload!();

const NAME: &str = "openreg:0";

/// A device whose counts begin at zero, for one test at a time.
fn device() -> (Device, MutexGuard<'static, ()>) {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let device = device_burn::device(NAME).unwrap();
    device_burn::reset_counts(NAME).unwrap();
    (device, alone)
}

/// What moved since the test began: downloads and uploads.
fn moves() -> (u64, u64) {
    let Transfers { downloads, uploads, .. } = device_burn::counts(NAME).unwrap().moved();
    (downloads, uploads)
}

fn native() -> u64 {
    device_burn::counts(NAME).unwrap().native()
}

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

/// `[[2, 4, 6], [8, 10, 12]]`, whose bytes only the device has.
fn on_device(device: &Device) -> Tensor<2> {
    let x = Tensor::<2>::from_floats([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device);
    let sum = x.clone() + x;
    assert_eq!(native(), 1, "a kernel made it");
    device_burn::reset_counts(NAME).unwrap();
    sum
}

#[test]
fn views_of_a_tensor_on_the_device_move_nothing() {
    let (device, _alone) = device();
    let sum = on_device(&device);
    let swapped = sum.clone().swap_dims(0, 1);
    let permuted = sum.clone().permute([1, 0]);
    let reshaped = sum.clone().reshape([3, 2]);
    let flat: Tensor<1> = sum.clone().flatten(0, 1);
    let sliced = sum.clone().slice([1..2, 1..3]);
    let expanded = sum.clone().slice([0..1, 0..3]).expand([4, 3]);
    let row: Tensor<1> = sum.clone().slice([1..2, 0..3]).squeeze_dim(0);
    let of_views = swapped.clone().slice([1..3, 0..1]).unsqueeze::<4>();
    assert_eq!(moves(), (0, 0));
    let counts = device_burn::counts(NAME).unwrap();
    assert_eq!((counts.fallbacks(), counts.native()), (0, 0), "{counts}");

    assert_eq!(values(swapped), [2.0, 8.0, 4.0, 10.0, 6.0, 12.0]);
    assert_eq!(values(permuted), [2.0, 8.0, 4.0, 10.0, 6.0, 12.0]);
    assert_eq!(values(reshaped), [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
    assert_eq!(values(flat), [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
    assert_eq!(values(sliced), [10.0, 12.0]);
    assert_eq!(values(expanded), [2.0, 4.0, 6.0].repeat(4));
    assert_eq!(values(row), [8.0, 10.0, 12.0]);
    assert_eq!(values(of_views), [4.0, 6.0]);
    assert_eq!(moves(), (1, 0), "all views have one storage, which moved once");
}

#[test]
fn a_kernel_works_on_a_contiguous_view_without_a_move() {
    let (device, _alone) = device();
    let sum = on_device(&device);
    let row: Tensor<1> = sum.slice([1..2, 0..3]).squeeze_dim(0);
    let product = row.clone() * row;
    assert_eq!((native(), moves()), (1, (0, 0)));
    assert_eq!(values(product), [64.0, 100.0, 144.0]);
}

#[test]
fn the_bytes_move_once_and_are_kept_on_both_sides() {
    let (device, _alone) = device();
    let x = Tensor::<1>::from_floats([1.0, 2.0, 3.0], &device);
    assert_eq!(moves(), (0, 0), "data is on the host until a kernel needs it");
    let sums = [(); 3].map(|()| x.clone() + x.clone());
    assert_eq!(moves(), (0, 1));
    assert_eq!(device_burn::counts(NAME).unwrap().moved().bytes_to_device, 12);
    // burn's CPU engine uses what the host has kept.
    assert_eq!(values(x.clone().exp().log().round()), [1.0, 2.0, 3.0]);
    assert_eq!(values(x), [1.0, 2.0, 3.0]);
    assert_eq!(moves(), (0, 1));

    let [sum, ..] = sums;
    for _ in 0..3 {
        assert_eq!(values(sum.clone()), [2.0, 4.0, 6.0]);
        assert_eq!(values(sum.clone().neg()), [-2.0, -4.0, -6.0]);
    }
    assert_eq!(moves(), (1, 1));
    assert_eq!(device_burn::counts(NAME).unwrap().moved().bytes_to_host, 12);
    // The kernel uses what the device has kept.
    assert_eq!(values(sum.clone() * sum), [4.0, 16.0, 36.0]);
    assert_eq!(moves(), (2, 1), "the product's bytes came to the host");
}

/// Views that are made before a kernel needs the bytes.
#[test]
fn a_tensor_of_the_host_and_its_views_move_once() {
    let (device, _alone) = device();
    let x = Tensor::<1>::from_floats([1.0, 2.0, 3.0, 4.0], &device);
    let matrix = x.clone().reshape([2, 2]);
    let row: Tensor<1> = matrix.clone().slice([0..1, 0..2]).squeeze_dim(0);
    assert_eq!(values(x.clone() * x.clone()), [1.0, 4.0, 9.0, 16.0]);
    assert_eq!(values(matrix.clone() * matrix), [1.0, 4.0, 9.0, 16.0]);
    assert_eq!(values(row.clone() * row), [1.0, 4.0]);
    assert_eq!(native(), 3);
    assert_eq!(moves(), (3, 1), "each product was read");
    assert_eq!(values(x), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(moves(), (3, 1));
}

#[test]
fn a_tensor_that_only_the_host_uses_takes_no_memory_of_the_device() {
    let (device, _alone) = device();
    let before = allocated();
    let x = Tensor::<2>::ones([64, 64], &device);
    let product = x.clone().matmul(x.clone()).exp().sum_dim(0);
    let indices = Tensor::<1, Int>::arange(0..8, &device);
    let selected = product.select(1, indices) + 1.0;
    assert_eq!(allocated(), before);
    drop(x.clone() + x);
    assert_eq!((native(), allocated()), (1, before), "and none stays");
    let _ = values(selected);
    assert_eq!(allocated(), before);
}

/// A tensor that several handles share is never overwritten, wherever its bytes are.
#[test]
fn a_last_use_in_place_changes_no_clone_and_no_view() {
    let (device, _alone) = device();
    let on_host = || Tensor::<2>::from_floats([[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]], &device);
    let both_sides = || {
        let sum = on_host();
        drop(sum.clone() + sum.clone());
        sum
    };
    let only_device = || {
        let x = on_host();
        x.clone() + x.zeros_like()
    };
    let makers: [(&str, &dyn Fn() -> Tensor<2>); 3] =
        [("host", &on_host), ("both sides", &both_sides), ("device", &only_device)];
    for (name, make) in makers {
        // Each use of the first is the last of its handle, and burn's engine works in place where it may.
        type Use = fn(Tensor<2>) -> Tensor<2>;
        let uses: [(&str, Use); 5] = [
            ("add", |x| x + 100.0),
            ("exp", |x| x.exp()),
            ("kernel", |x| x.clone() * x),
            ("assign", |x| {
                let zero = x.zeros_like().slice([0..1, 0..1]);
                x.slice_assign([0..1, 0..1], zero)
            }),
            ("fill", |x| x.clone().mask_fill(x.greater_elem(0.0), -1.0)),
        ];
        for (operation, change) in uses {
            let x = make();
            let (clone, view, slice) = (x.clone(), x.clone().swap_dims(0, 1), x.clone().slice([1..2, 0..2]));
            let changed = values(change(x));
            let message = format!("{operation} on {name}");
            assert_ne!(changed, [2.0, 4.0, 6.0, 8.0, 10.0, 12.0], "{message}");
            assert_eq!(values(clone), [2.0, 4.0, 6.0, 8.0, 10.0, 12.0], "{message}");
            assert_eq!(values(change(view.clone())).len(), 6, "{message}");
            assert_eq!(values(view), [2.0, 8.0, 4.0, 10.0, 6.0, 12.0], "{message}");
            // The view is the only one left, and its storage is larger than it.
            assert_eq!(values(slice + 1.0), [9.0, 11.0], "{message}");
        }
    }
}

/// The storage of a tensor on two devices is shared too: the copy on the host is one.
#[test]
fn a_last_use_in_place_changes_nothing_on_another_device() {
    let (device, _alone) = device();
    for name in ["cpu", "openreg:1", "flex"] {
        let other = if name == "flex" { Device::flex() } else { device_burn::device(name).unwrap() };
        let x = Tensor::<1>::from_floats([1.0, 2.0], &device);
        let moved = x.clone().to_device(&other);
        let changed = x * 10.0;
        assert_eq!(values(moved.clone()), [1.0, 2.0], "{name}");
        assert_eq!(values(moved * 100.0), [100.0, 200.0], "{name}");
        assert_eq!(values(changed), [10.0, 20.0], "{name}");
    }
}

/// What a program gave burn as data stays the program's.
#[test]
fn a_read_tensor_is_no_alias_of_the_device() {
    let (device, _alone) = device();
    let x = Tensor::<1>::from_floats([1.0, 2.0], &device);
    let mut data = x.to_data();
    data.as_mut_slice::<f32>().unwrap()[0] = 99.0;
    assert_eq!(values(x), [1.0, 2.0]);
}

/// The program enqueues sums faster than the device computes them, and each holds memory until it is done.
#[test]
fn a_program_that_runs_ahead_of_its_device_does_not_fill_it() {
    const LEN: usize = 1 << 18;
    let device = device_burn::device("openreg:1").unwrap();
    let registered = device_registry::device("openreg:1").unwrap();
    // Leaves room for eight tensors. Memory that is never written to takes none of the host.
    let free = registered.memory_info().unwrap().free.unwrap();
    let _filler = registered.allocate(free as usize - 8 * LEN * 4).unwrap();
    let one = Tensor::<1>::ones([LEN], &device);
    let mut sum = Tensor::<1>::zeros([LEN], &device);
    for _ in 0..100 {
        sum = sum + one.clone();
    }
    let values = sum.try_into_data().unwrap().try_to_vec::<f32>().unwrap();
    assert!(values.iter().all(|&value| value == 100.0));
}
