//! Which products of matrices cuBLASLt computes, on the simulated driver and a simulated library.
#![cfg(target_os = "linux")]

use std::error::Error;

use device_conformance::process;
use device_kernels::{Argument, Call, DType, Layout, Operand, Operator, Planned, Prepared, RunError, run};
use device_registry::{Buffer, Device, device};

mod child;

device_registry::autoload!();

/// Runs the test of this name once more, on the simulated driver, with these additional variables. Whether
/// this is that process.
fn is_child(test: &str, variables: &[(&str, &str)]) -> bool {
    if !process::is_child() {
        process::passes(test, |program| child::prepare(program).envs(variables.iter().copied()));
    }
    process::is_child()
}

fn cuda() -> Device {
    device("cuda:0").expect("the simulated driver is there")
}

/// A number of the library's.
fn number(name: &str) -> u64 {
    // SAFETY: the library is there, and the functions have this type.
    unsafe {
        let library = libloading::Library::new(child::simulated().join("libcublasLt.so")).unwrap();
        library.get::<extern "C" fn() -> u64>(name.as_bytes()).unwrap()()
    }
}

/// How many products the library has enqueued.
fn products() -> u64 {
    number("simulatedProducts")
}

fn array(numbers: &[f32]) -> Buffer {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    let buffer = cuda().allocate(bytes.len()).unwrap();
    buffer.write(0, &bytes).unwrap();
    buffer
}

fn numbers(buffer: &Buffer) -> Vec<f32> {
    let mut bytes = vec![0; buffer.len()];
    buffer.read(0, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap())).collect()
}

fn argument(dtype: DType, shape: &[usize], strides: &[isize]) -> Argument {
    Argument::Array(dtype, Layout::strided(shape, strides, 0).unwrap())
}

fn contiguous(shape: &[usize]) -> Argument {
    Argument::Array(DType::F32, Layout::contiguous(shape).unwrap())
}

fn call(inputs: &[Argument], out: Argument) -> Call {
    Call::new(Operator::MatMul, inputs, &[out]).unwrap()
}

/// The set that computes a call, by its name.
fn set_of(call: Call) -> String {
    let planned = Planned::new(cuda(), call).unwrap();
    let set = planned.set().unwrap().to_string();
    set.split(' ').next().unwrap().to_owned()
}

/// `[1, 2; 3, 4] * [1, 2; 3, 4]`, computed.
fn product() -> Result<Vec<f32>, RunError> {
    let (a, out) = (array(&[1.0, 2.0, 3.0, 4.0]), array(&[0.0; 4]));
    let stream = cuda().create_stream().unwrap();
    let operand = |buffer| Operand::new(buffer, DType::F32, [2, 2]).unwrap();
    run(&stream, Operator::MatMul, &[operand(&a), operand(&a)], &[operand(&out)])?;
    stream.synchronize().unwrap();
    Ok(numbers(&out))
}

fn chain(error: &dyn Error) -> String {
    let source = error.source().map_or_else(String::new, |source| format!(": {}", chain(source)));
    format!("{error}{source}")
}

const PRODUCT: [f32; 4] = [7.0, 10.0, 15.0, 22.0];

#[test]
fn the_library_computes_products_and_their_launches_say_so() {
    if !is_child("the_library_computes_products_and_their_launches_say_so", &[]) {
        return;
    }
    assert_eq!(product().unwrap(), PRODUCT);
    assert_eq!(products(), 1);
    let (a, out) = (array(&[1.0; 4]), array(&[0.0; 4]));
    let two = || contiguous(&[2, 2]);
    let prepared = Prepared::new(cuda(), call(&[two(), two()], two()), &[&a, &a, &out]).unwrap().unwrap();
    assert!(prepared.set().to_string().starts_with("cuda__cublaslt (device-cuda-kernels "));
    let options = format!("{:?}", prepared.launch_options());
    assert!(options.contains("matmul by cuBLASLt"), "{options}");
}

#[test]
fn a_device_that_was_closed_computes_again() {
    if !is_child("a_device_that_was_closed_computes_again", &[]) {
        return;
    }
    for _ in 0..3 {
        assert_eq!(product().unwrap(), PRODUCT);
        cuda().close().unwrap();
        assert_eq!(number("simulatedAlive"), 0, "handles and descriptors");
    }
    assert_eq!(products(), 3);
}

#[test]
fn layouts_that_the_library_has_no_words_for_are_computed_by_the_generated_kernels() {
    let test = "layouts_that_the_library_has_no_words_for_are_computed_by_the_generated_kernels";
    if !is_child(test, &[]) {
        return;
    }
    let of = |dtype, strides: [isize; 2]| argument(dtype, &[4, 4], &strides);
    let rows = |dtype| of(dtype, [4, 1]);
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        assert_eq!(set_of(call(&[rows(dtype), rows(dtype)], rows(dtype))), "cuda__cublaslt", "{dtype}");
        assert_eq!(set_of(call(&[of(dtype, [1, 9]), rows(dtype)], rows(dtype))), "cuda__cublaslt");
        assert_eq!(set_of(call(&[rows(dtype), of(dtype, [1, 4])], of(dtype, [1, 7]))), "cuda__cublaslt");
        // Neither rows nor columns are neighbours, or a row is there several times.
        assert_eq!(set_of(call(&[of(dtype, [8, 2]), rows(dtype)], rows(dtype))), "cuda");
        assert_eq!(set_of(call(&[rows(dtype), of(dtype, [0, 1])], rows(dtype))), "cuda");
        assert_eq!(set_of(call(&[rows(dtype), rows(dtype)], of(dtype, [8, 2]))), "cuda");
        // A bias for each column, of all products, and of each element.
        let bias = |strides| call(&[rows(dtype), rows(dtype), of(dtype, strides)], rows(dtype));
        // The simulated library refuses it for doubles, which the set finds out.
        let expected = if dtype == DType::F64 { "cuda" } else { "cuda__cublaslt" };
        assert_eq!(set_of(bias([0, 1])), expected, "{dtype}");
        assert_eq!(set_of(bias([4, 1])), "cuda__cublaslt", "{dtype}");
        assert_eq!(set_of(bias([1, 0])), "cuda", "{dtype}");
        assert_eq!(set_of(bias([1, 4])), "cuda", "{dtype}");
    }
    assert_eq!(set_of(call(&[rows(DType::I32), rows(DType::I32)], rows(DType::I32))), "cuda");
    // Of no elements in the sum, and batches: of one dimension, and of two that are not one.
    assert_eq!(set_of(call(&[contiguous(&[2, 0]), contiguous(&[0, 3])], contiguous(&[2, 3]))), "cuda");
    let of = |strides: [isize; 4]| argument(DType::F32, &[3, 5, 4, 4], &strides);
    let plain = || of([80, 16, 4, 1]);
    assert_eq!(set_of(call(&[plain(), plain()], plain())), "cuda__cublaslt");
    assert_eq!(set_of(call(&[plain(), of([16, 0, 4, 1])], plain())), "cuda__cublaslt", "one of more rows");
    assert_eq!(set_of(call(&[plain(), of([0, 16, 4, 1])], plain())), "cuda");
}

#[test]
fn arrays_that_begin_anywhere_are_multiplied() {
    if !is_child("arrays_that_begin_anywhere_are_multiplied", &[]) {
        return;
    }
    let ramp: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let all = array(&ramp);
    let stream = cuda().create_stream().unwrap();
    for [of_a, of_b, of_out] in (0..27).map(|i| [i % 3, i / 3 % 3, i / 9]) {
        let out = array(&[0.0; 16]);
        let at = |buffer, offset| {
            Operand::with_layout(buffer, DType::F32, Layout::strided([2, 2], [2, 1], offset).unwrap())
        };
        let (a, b, to) = (at(&all, of_a), at(&all, of_b), at(&out, of_out));
        run(&stream, Operator::MatMul, &[a, b], &[to]).unwrap();
        stream.synchronize().unwrap();
        let (a, b) = (&ramp[of_a..], &ramp[of_b..]);
        let expected = [
            a[0] * b[0] + a[1] * b[2],
            a[0] * b[1] + a[1] * b[3],
            a[2] * b[0] + a[3] * b[2],
            a[2] * b[1] + a[3] * b[3],
        ];
        assert_eq!(numbers(&out)[of_out..of_out + 4], expected, "from {of_a}, {of_b} to {of_out}");
    }
    assert_eq!(products(), 27);
    for begin in 0..3 {
        let out = array(&[0.0; 4]);
        let at = |strides: [isize; 2], offset| {
            Operand::with_layout(&all, DType::F32, Layout::strided([2, 2], strides, offset).unwrap())
        };
        let (a, bias) = (at([2, 1], 0), at([0, 1], begin));
        let to = Operand::new(&out, DType::F32, [2, 2]).unwrap();
        run(&stream, Operator::MatMul, &[a, a, bias], &[to]).unwrap();
        stream.synchronize().unwrap();
        let [first, second] = [begin as f32, begin as f32 + 1.0];
        assert_eq!(numbers(&out), [2.0 + first, 3.0 + second, 6.0 + first, 11.0 + second], "from {begin}");
    }
    assert_eq!(products(), 30);
}

#[test]
fn a_product_that_cannot_have_more_memory_has_none() {
    const TEST: &str = "a_product_that_cannot_have_more_memory_has_none";
    if is_child(TEST, &[("SIMULATED_CUDA_REFUSE", "cuMemAllocFromPoolAsync:2@1-9")]) {
        assert_eq!(product().unwrap(), PRODUCT);
        assert_eq!(products(), 1);
    }
}

#[test]
fn a_failure_of_the_library_is_an_error_that_says_what_goes_around_it() {
    const TEST: &str = "a_failure_of_the_library_is_an_error_that_says_what_goes_around_it";
    if is_child(TEST, &[("SIMULATED_CUBLASLT_FAIL", "1")]) {
        let message = chain(&product().map(|_| cuda().synchronize()).unwrap_err());
        assert!(message.contains("`cublasLtCreate` returned 1"), "{message}");
        assert!(message.contains("DEVICE_CUDA_LIBRARIES=0 has the generated kernels compute"), "{message}");
    }
}

#[test]
fn a_variable_has_the_generated_kernels_compute() {
    if !is_child("a_variable_has_the_generated_kernels_compute", &[("DEVICE_CUDA_LIBRARIES", "0")]) {
        return;
    }
    assert_eq!(product().unwrap(), PRODUCT);
    assert_eq!(products(), 0);
}

/// `(1 + 2^-12)^2`, whose factor TensorFloat-32 rounds to 1.
fn with_a_long_fraction() -> f32 {
    let number = 1.0 + 2.0_f32.powi(-12);
    let (a, out) = (array(&[number]), array(&[0.0]));
    let stream = cuda().create_stream().unwrap();
    let operand = |buffer| Operand::new(buffer, DType::F32, [1, 1]).unwrap();
    run(&stream, Operator::MatMul, &[operand(&a), operand(&a)], &[operand(&out)]).unwrap();
    stream.synchronize().unwrap();
    numbers(&out)[0]
}

#[test]
fn numbers_of_f32_are_rounded_to_tensor_float_32_where_it_is_allowed() {
    let test = "numbers_of_f32_are_rounded_to_tensor_float_32_where_it_is_allowed";
    if is_child(test, &[("DEVICE_CUDA_LIBRARIES", "tf32")]) {
        assert_eq!(with_a_long_fraction(), 1.0);
        assert_eq!(products(), 1);
    }
}

#[test]
fn numbers_of_f32_are_whole_unless_it_is_allowed() {
    if is_child("numbers_of_f32_are_whole_unless_it_is_allowed", &[("DEVICE_CUDA_LIBRARIES", "1")]) {
        assert_eq!(with_a_long_fraction(), (1.0 + 2.0_f32.powi(-12)).powi(2));
        assert_eq!(products(), 1);
    }
}

#[test]
fn an_unknown_value_of_the_variable_is_an_error_that_says_what_there_is() {
    let test = "an_unknown_value_of_the_variable_is_an_error_that_says_what_there_is";
    if is_child(test, &[("DEVICE_CUDA_LIBRARIES", "no")]) {
        let message = chain(&product().unwrap_err());
        assert!(message.contains("DEVICE_CUDA_LIBRARIES=no is not known: 0 has"), "{message}");
    }
}

#[test]
fn a_named_library_that_does_not_open_is_an_error() {
    let test = "a_named_library_that_does_not_open_is_an_error";
    if is_child(test, &[("DEVICE_CUDA_CUBLASLT", "/no/such/library")]) {
        let message = chain(&product().map(|_| cuda().synchronize()).unwrap_err());
        assert!(message.contains("DEVICE_CUDA_CUBLASLT names a library that does not open"), "{message}");
    }
}

#[test]
fn without_the_library_the_generated_kernels_compute() {
    const TEST: &str = "without_the_library_the_generated_kernels_compute";
    if process::is_child() {
        assert_eq!(product().unwrap(), PRODUCT);
        return;
    }
    // A folder with the driver alone.
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(child::simulated().join("libcuda.so"), folder.path().join("libcuda.so"))
        .unwrap();
    process::passes(TEST, |program| {
        child::prepare(program).env("LD_LIBRARY_PATH", folder.path()).env_remove("DEVICE_CUDA_CUBLASLT")
    });
}
