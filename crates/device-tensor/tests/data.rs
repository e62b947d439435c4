//! Making tensors and reading them back: any nesting, any order in memory, and the errors.

use device_registry::Device;
use device_tensor::ndarray::{Array1, ArrayD, ArrayViewD, Axis, IxDyn, Slice};
use device_tensor::{Element, Tensor, TensorError, bf16, f16};
use proptest::collection::vec;
use proptest::prelude::*;

/// A change to the order of an array's elements in memory. Axes wrap around.
#[derive(Clone, Debug)]
enum Change {
    Swap(usize, usize),
    /// From one place to another, in steps forwards or backwards.
    Slice(usize, [usize; 2], isize),
    /// One axis more, along which all are the same.
    Repeat(usize),
}

fn change() -> impl Strategy<Value = Change> {
    let step = prop_oneof![-3_isize..=-1, 1_isize..=3];
    prop_oneof![
        (0..5_usize, 0..5_usize).prop_map(|(a, b)| Change::Swap(a, b)),
        (0..5_usize, [0..6_usize, 0..6], step).prop_map(|(axis, ends, step)| Change::Slice(axis, ends, step)),
        (0..3_usize).prop_map(Change::Repeat),
    ]
}

/// Checks the array and what becomes of it by each of the changes.
fn check<T: Element>(mut array: ArrayViewD<'_, T>, changes: &[Change]) {
    let tensor = Tensor::new(&array, Device::cpu()).unwrap();
    assert_eq!(tensor.shape(), array.shape());
    assert_eq!(tensor.dtype(), T::DTYPE);
    assert_eq!(tensor.to_vec::<T>().unwrap(), array.iter().copied().collect::<Vec<_>>());
    assert_eq!(tensor.to_ndarray::<T>().unwrap(), array);
    assert_eq!(tensor.item::<T>().ok().as_ref(), array.first().filter(|_| array.len() == 1));
    assert!(tensor.to_string().starts_with("tensor("));

    let Some((change, rest)) = changes.split_first() else { return };
    let axes = array.ndim();
    match *change {
        Change::Repeat(times) => {
            let shape = [&[times], array.shape()].concat();
            return check(array.broadcast(shape).unwrap(), rest);
        }
        _ if axes == 0 => {}
        Change::Swap(a, b) => array.swap_axes(a % axes, b % axes),
        Change::Slice(axis, [a, b], step) => {
            let axis = Axis(axis % axes);
            let (a, b) = (a.min(array.len_of(axis)), b.min(array.len_of(axis)));
            array.slice_axis_inplace(axis, Slice::from(a.min(b)..a.max(b)).step_by(step));
        }
    }
    check(array, rest);
}

/// The numbers from 0 on, as elements, in an array of this shape.
fn count<T>(shape: &[usize], element: fn(u8) -> T) -> ArrayD<T> {
    let len = shape.iter().product::<usize>();
    Array1::from_iter((0..len).map(|at| element(at as u8))).into_shape_with_order(IxDyn(shape)).unwrap()
}

proptest! {
    #[test]
    fn an_array_in_any_order_in_memory_survives_the_round_trip(
        shape in vec(0..6_usize, 0..5),
        changes in vec(change(), 0..5),
    ) {
        check(count(&shape, |at| at % 2 == 0).view(), &changes);
        check(count(&shape, |at| at).view(), &changes);
        check(count(&shape, |at| at as i8).view(), &changes);
        check(count(&shape, |at| i16::from(at) * -128).view(), &changes);
        check(count(&shape, |at| i32::MIN + i32::from(at)).view(), &changes);
        check(count(&shape, |at| i64::MAX - i64::from(at)).view(), &changes);
        check(count(&shape, |at| f16::from_bits(u16::from(at))).view(), &changes);
        check(count(&shape, |at| bf16::from_bits(u16::from(at))).view(), &changes);
        check(count(&shape, |at| f32::from(at) / 7.0).view(), &changes);
        check(count(&shape, |at| f64::from(at) / 7.0).view(), &changes);
    }

    #[test]
    fn rows_make_a_tensor_if_they_are_of_one_shape_and_an_error_that_points_at_one_that_is_not(
        rows in vec(vec(vec(any::<i16>(), 1..3), 1..3), 0..4),
    ) {
        let first = rows.first().map_or(0, Vec::len);
        let first_of_first = rows.first().and_then(|rows| rows.first()).map_or(0, Vec::len);
        let regular = rows.iter().all(|row| row.len() == first)
            && rows.concat().iter().all(|row| row.len() == first_of_first);
        match Tensor::new(&rows, Device::cpu()) {
            Ok(tensor) => {
                prop_assert!(regular);
                prop_assert_eq!(tensor.shape(), [rows.len(), first, first_of_first]);
                prop_assert_eq!(tensor.to_vec::<i16>().unwrap(), rows.concat().concat());
            }
            Err(TensorError::Ragged { first: wanted, row, other, .. }) => {
                prop_assert!(!regular);
                prop_assert_ne!(&wanted, &other);
                match row[..] {
                    [a] => {
                        prop_assert_eq!(other, [rows[a].len(), rows[a][0].len()]);
                        prop_assert_eq!(wanted, [first, first_of_first]);
                    }
                    [a, b] => {
                        prop_assert_eq!(other, [rows[a][b].len()]);
                        prop_assert_eq!(wanted, [first_of_first]);
                    }
                    _ => prop_assert!(false, "{:?}", row),
                }
            }
            Err(error) => prop_assert!(false, "{}", error),
        }
    }

    #[test]
    fn floats_keep_all_their_bits(bits in vec(any::<u64>(), 0..20)) {
        let floats: Vec<_> = bits.iter().map(|bits| f64::from_bits(*bits)).collect();
        let tensor = Tensor::new(floats, Device::cpu()).unwrap();
        let back = tensor.to_vec::<f64>().unwrap().into_iter().map(f64::to_bits);
        prop_assert!(back.eq(bits));
        prop_assert!(tensor.to_string().starts_with("tensor(["));
    }
}

fn refusal(made: Result<Tensor, TensorError>) -> String {
    made.unwrap_err().to_string()
}

#[test]
fn more_bytes_than_can_be_addressed_are_refused_and_not_counted_one_by_one() {
    // References to the same rows take no memory.
    let row = vec![0_u8; 1 << 20];
    let rows = vec![&row; 1 << 20];
    assert_eq!(
        refusal(Tensor::new(vec![vec![&rows; 1 << 12]; 1 << 12], Device::cpu())),
        "a tensor of shape [4096, 4096, 1048576, 1048576] and dtype u8 has more bytes than can be addressed"
    );
    let wide = Array1::<f64>::zeros(1);
    let len = isize::MAX as usize / 4;
    assert_eq!(
        refusal(Tensor::new(wide.broadcast(len).unwrap(), Device::cpu())),
        format!("a tensor of shape [{len}] and dtype f64 has more bytes than can be addressed")
    );
    // Together with no elements at all too.
    let empty = [[[0_u8; 0]; usize::MAX]; 2];
    assert!(refusal(Tensor::new(empty, Device::cpu())).contains("more bytes than can be addressed"));
}

// With 32 bits, as many bytes as can be addressed can be had.
#[test]
#[cfg(target_pointer_width = "64")]
fn more_memory_than_the_host_has_is_an_error() {
    // More bytes than can be allocated; repeating one element takes no more memory.
    let len = isize::MAX as usize / size_of::<i64>();
    let one = Array1::<i64>::zeros(1);
    assert_eq!(
        refusal(Tensor::new(one.broadcast(len).unwrap(), Device::cpu())),
        format!("the host does not have the memory for the {} bytes of the elements", len * size_of::<i64>())
    );
    let half = one.broadcast(len / 2).unwrap();
    assert!(matches!(Tensor::new([half, half], Device::cpu()), Err(TensorError::HostMemory { .. })));
}

#[test]
fn there_may_be_very_many_dimensions() {
    let deep = ArrayD::from_elem(IxDyn(&vec![1; 10_000]), 7);
    let tensor = Tensor::new(&deep, Device::cpu()).unwrap();
    assert_eq!(tensor.shape().len(), 10_000);
    assert_eq!(tensor.item::<i32>().unwrap(), 7);
    assert!(tensor.to_ndarray::<i32>().unwrap() == deep);
    assert_eq!(tensor.to_string().trim_matches(|at| "tensor([])".contains(at)), "7");
}

#[test]
fn reading_back_as_another_type_names_both_however_it_is_read() {
    let tensor = Tensor::new(1.0_f32, Device::cpu()).unwrap();
    // Both dtypes have the same size.
    let expected = "expected a tensor of dtype i32, found dtype f32";
    assert_eq!(tensor.to_vec::<i32>().unwrap_err().to_string(), expected);
    assert_eq!(tensor.to_ndarray::<i32>().unwrap_err().to_string(), expected);
    assert_eq!(tensor.item::<i32>().unwrap_err().to_string(), expected);
}

#[test]
fn an_item_is_the_only_one() {
    let item = |shape: &[usize]| Tensor::new(ArrayD::<u8>::zeros(shape), Device::cpu()).unwrap().item::<u8>();
    assert_eq!(item(&[]).unwrap(), 0);
    assert_eq!(item(&[1, 1, 1]).unwrap(), 0);
    assert_eq!(
        item(&[2, 3]).unwrap_err().to_string(),
        "expected a tensor of one element, found 6 in shape [2, 3]"
    );
    assert!(matches!(item(&[2, 0]), Err(TensorError::NotOneElement { shape, .. }) if shape == [2, 0]));
}
