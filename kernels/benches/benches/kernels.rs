//! Kernels: element-wise operators beside a copy of the same bytes on the same device, products of matrices
//! beside `gemm`, and the products of OpenCL beside those that the host computes.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use device_kernels::{Binary, DType, Dims, Operand, Operator, Reduction, Unary, run};
use device_registry::{Buffer, Device, Stream, device};
use device_registry_benches::beside;

device_registry::autoload!();

/// The elements of large arrays.
const LARGE: usize = 1 << 24;

/// The rows and columns of large matrices.
const SIZE: usize = 1024;

/// OpenCL's first device, if there is a driver.
fn opencl() -> Option<Device> {
    device("opencl").inspect_err(|error| eprintln!("OpenCL is left out: {error}")).ok()
}

/// Memory of `len` elements of `f32`, each of them the same.
fn ones(device: Device, len: usize) -> Buffer {
    let buffer = device.allocate(len * 4).expect("there is memory");
    buffer.fill(.., &1.0_f32.to_ne_bytes()).expect("it is all of it");
    buffer
}

/// Enqueues an operator, and waits for it.
fn call(stream: &Stream, operator: impl Into<Operator>, inputs: &[Operand<'_>], out: Operand<'_>) {
    run(stream, operator, inputs, &[out]).expect("a kernel has it");
    stream.synchronize().expect("it runs");
}

fn elementwise(criterion: &mut Criterion) {
    let always = ["cpu", "openreg"].map(|name| device(name).expect("it is linked"));
    for device in always.into_iter().chain(opencl()) {
        let stream = device.create_stream().expect("it has streams");
        let mut group = criterion.benchmark_group(format!("kernels/{device}"));
        group.sample_size(20);
        let [a, b, out] = [(); 3].map(|()| ones(device, LARGE));
        let array = |buffer| Operand::new(buffer, DType::F32, [LARGE]).expect("it has the elements");
        // A copy reads and writes as many bytes as an operator of one input. One of two inputs moves half as
        // many more.
        let copy = || {
            stream.copy(black_box(&a), &out).expect("they are of one length");
            stream.synchronize().expect("it runs");
        };
        beside(
            &mut group,
            "neg, beside a copy",
            || call(&stream, Unary::Neg, &[array(&a)], array(&out)),
            copy,
        );
        for unary in [Unary::Exp, Unary::Tanh, Unary::Erf, Unary::Sin] {
            let name = format!("{unary}, beside a copy");
            beside(&mut group, &name, || call(&stream, unary, &[array(&a)], array(&out)), copy);
        }
        let rows =
            |buffer| Operand::new(buffer, DType::F32, [LARGE / 1024, 1024]).expect("it has the elements");
        let softmax = || call(&stream, Operator::Softmax { dim: 1 }, &[rows(&a)], rows(&out));
        beside(&mut group, "softmax of rows of 1,024, beside a copy", softmax, copy);
        let add = || call(&stream, Binary::Add, &[array(&a), array(&b)], array(&out));
        beside(&mut group, "add, beside a copy", add, copy);
        let sum = ones(device, 1);
        let one = Operand::new(&sum, DType::F32, [1]).expect("it has the element");
        let operator = Operator::Reduce { reduction: Reduction::Sum, dims: Dims::from([0]) };
        beside(&mut group, "sum, beside a copy", || call(&stream, operator, &[array(&a)], one), copy);
        let add = || {
            for _ in 0..1000 {
                run(&stream, Binary::Add, &[one, one], &[one]).expect("a kernel has it");
            }
            stream.synchronize().expect("it runs");
        };
        let nothing = || {
            for _ in 0..1000 {
                stream.host_call(|| ()).expect("it is enqueued");
            }
            stream.synchronize().expect("it runs");
        };
        beside(&mut group, "1,000 adds of one element, beside as many empty host calls", add, nothing);
    }
}

/// The product of two square matrices.
fn product(device: Device, size: usize) -> impl FnMut() {
    let stream = device.create_stream().expect("it has streams");
    let [a, b, out] = [(); 3].map(|()| ones(device, size * size));
    move || {
        let matrix = |buffer| Operand::new(buffer, DType::F32, [size, size]).expect("it has the elements");
        call(&stream, Operator::MatMul, &[matrix(&a), matrix(&b)], matrix(&out));
    }
}

/// The same product by `gemm`, which the kernels of the host call.
fn direct(size: usize) -> impl FnMut() {
    let (left, right) = (vec![1.0_f32; size * size], vec![1.0_f32; size * size]);
    let mut product = vec![0.0_f32; size * size];
    move || {
        let (columns, rows) = (1, size as isize);
        // SAFETY: three matrices of `size` rows and columns, by rows, and the third is borrowed for writing.
        unsafe {
            gemm::gemm(
                size,
                size,
                size,
                black_box(&mut product).as_mut_ptr(),
                columns,
                rows,
                false,
                black_box(&left).as_ptr(),
                columns,
                rows,
                black_box(&right).as_ptr(),
                columns,
                rows,
                0.0,
                1.0,
                false,
                false,
                false,
                gemm::Parallelism::Rayon(0),
            );
        }
    }
}

fn products(criterion: &mut Criterion) {
    let cpu = device("cpu").expect("it is always there");
    let mut group = criterion.benchmark_group("kernels/products");
    group.sample_size(20);
    for size in [64, 256, SIZE] {
        beside(&mut group, format!("{size}, cpu beside gemm"), product(cpu, size), direct(size));
        if let Some(opencl) = opencl() {
            let name = format!("{size}, {opencl} beside cpu");
            beside(&mut group, name, product(opencl, size), product(cpu, size));
        }
    }
}

criterion_group! {
    name = benches;
    config = device_registry_benches::criterion();
    targets = elementwise, products
}
criterion_main!(benches);
