//! What the set does besides computing, on the simulated driver and compiler.
#![cfg(target_os = "linux")]

use std::env;
use std::error::Error;
use std::process::Output;

use device_conformance::process;
use device_cuda_kernels::{CustomKernel, Value, compilations};
use device_kernels::{Argument, Call, DType, Expression, Layout, Operand, Operator, Unary, run};
use device_registry::{Buffer, Device, DeviceError, HostBuffer, Stream, device};

mod child;

device_registry::autoload!();

/// Runs the test of this name once more, on the simulated driver, with these additional variables.
fn again(test: &str, variables: &[(&str, &str)]) -> Output {
    process::again(test, |program| child::prepare(program).envs(variables.iter().copied()))
}

/// The same, and fails if the test does.
fn passes(test: &str, variables: &[(&str, &str)]) {
    process::passes(test, |program| child::prepare(program).envs(variables.iter().copied()));
}

/// Whether this is the process that has the simulated driver; otherwise it runs the test in one, which
/// passes.
fn is_child(test: &str) -> bool {
    if process::is_child() {
        return true;
    }
    passes(test, &[]);
    false
}

fn cuda() -> Device {
    device("cuda:0").expect("the simulated driver is there")
}

fn floats(len: usize) -> Vec<u8> {
    (0..len).flat_map(|i| (i as f32).to_ne_bytes()).collect()
}

fn array(device: Device, bytes: &[u8]) -> Buffer {
    let buffer = device.allocate(bytes.len()).unwrap();
    buffer.write(0, bytes).unwrap();
    buffer
}

fn chain(error: &dyn Error) -> String {
    let source = error.source().map_or_else(String::new, |source| format!(": {}", chain(source)));
    format!("{error}{source}")
}

/// Enqueues a kernel of so many items, from one array of `f32` to another.
fn launch(stream: &Stream, text: &str, from: &Buffer, to: &Buffer, items: usize) -> Result<(), DeviceError> {
    let layout = Layout::contiguous([from.len() / 4]).unwrap();
    let arguments = [Argument::Array(DType::F32, layout)];
    let call = Call::new(Operator::Unary(Unary::Neg), &arguments, &arguments).unwrap();
    let kernel = CustomKernel::new(text, items).value(Value::Float(0.5)).index(items as i64);
    stream.launch(&[from, to], move |launch| {
        // SAFETY: the kernel has these parameters. What it accesses is what the test is about.
        unsafe { device_cuda_kernels::launch(&kernel, &call, launch) }
    })
}

/// The parameters of each kernel below.
const PARAMETERS: &str = "__kernel void run(__global const float *from, index_t from_at, __global float *to, \
     index_t to_at, float add, index_t len)";

#[test]
fn a_kernel_of_a_programs_own_computes() {
    if !is_child("a_kernel_of_a_programs_own_computes") {
        return;
    }
    let text = format!(
        "{PARAMETERS} {{
    const index_t i = get_global_id(0);
    if (i < len) to[to_at + i] = exp(0 * from[from_at + i]) * from[from_at + i] + add;
}}"
    );
    let (from, to) = (array(cuda(), &floats(1000)), array(cuda(), &floats(1000)));
    let stream = cuda().create_stream().unwrap();
    launch(&stream, &text, &from, &to, 1000).unwrap();
    launch(&stream, &text, &to, &from, 1000).unwrap();
    let expected: Vec<u8> = (0..1000).flat_map(|i| (i as f32 + 1.0).to_ne_bytes()).collect();
    assert!(*stream.read(&from, ..).unwrap().wait().unwrap() == expected[..]);
    assert_eq!(compilations(), 1, "equal texts are compiled once");
}

#[test]
fn a_text_that_is_rejected_is_an_error_and_the_device_continues() {
    if !is_child("a_text_that_is_rejected_is_an_error_and_the_device_continues") {
        return;
    }
    let (from, to) = (array(cuda(), &floats(8)), array(cuda(), &floats(8)));
    let stream = cuda().create_stream().unwrap();
    let text = format!("{PARAMETERS} {{ to[0] = no_such_name; }}");
    let error = launch(&stream, &text, &from, &to, 8).map(|()| stream.synchronize()).unwrap_err();
    let message = chain(&error);
    assert!(message.contains("rejects the text") && message.contains("no_such_name"), "{message}");
    let text = format!("{PARAMETERS} {{ to[0] = add; }}");
    launch(&stream, &text, &from, &to, 1).unwrap();
    stream.synchronize().unwrap();
}

/// A body, and what ends the process.
const WRONG: [(&str, &str); 5] = [
    ("to[to_at + len] = add;", "written behind memory"),
    ("to[to_at - 1] = add;", "written before memory"),
    (
        "__local float shared[64]; const index_t i = get_local_id(0); shared[i + (i == 63)] = add; \
         barrier(CLK_LOCAL_MEM_FENCE); to[to_at] = shared[0];",
        "an index outside of an array",
    ),
    ("if (get_local_id(0) < 32) barrier(CLK_LOCAL_MEM_FENCE); to[to_at] = add;", "not all items of a group"),
    ("to[to_at] = *(__global const double *)(from + from_at + 1);", "not aligned"),
];

#[test]
fn wrong_kernels_end_the_process_with_a_message() {
    const TEST: &str = "wrong_kernels_end_the_process_with_a_message";
    if process::is_child() {
        let place: usize = env::var("WRONG").unwrap().parse().unwrap();
        let (from, to) = (array(cuda(), &floats(64)), array(cuda(), &floats(64)));
        let stream = cuda().create_stream().unwrap();
        let text = format!("{PARAMETERS} {{ {} }}", WRONG[place].0);
        launch(&stream, &text, &from, &to, 64).unwrap();
        stream.synchronize().unwrap();
        return;
    }
    for (place, (body, message)) in WRONG.iter().enumerate() {
        let output = again(TEST, &[("WRONG", &place.to_string()), ("DEVICE_MEMORY_REUSE", "0")]);
        let error = String::from_utf8_lossy(&output.stderr);
        let status = output.status;
        assert!(!status.success() && error.contains(message), "{body}: {status}: {error}");
    }
}

#[test]
fn more_groups_than_an_axis_has_are_on_one() {
    const COUNT: usize = 70_000;
    if !is_child("more_groups_than_an_axis_has_are_on_one") {
        return;
    }
    let shape = [COUNT, 2, 2];
    let numbers: Vec<f32> = (0..COUNT * 4).map(|i| (i % 1000) as f32).collect();
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    let (a, out) = (array(cuda(), &bytes), cuda().allocate(bytes.len()).unwrap());
    let stream = cuda().create_stream().unwrap();
    let operand = |buffer| Operand::new(buffer, DType::F32, shape).unwrap();
    run(&stream, Operator::MatMul, &[operand(&a), operand(&a)], &[operand(&out)]).unwrap();
    let found: HostBuffer = stream.read(&out, ..).unwrap().wait().unwrap();
    for (found, of) in found.chunks_exact(16).zip(numbers.chunks_exact(4)) {
        let [a, b, c, d] = *of else { unreachable!() };
        let expected = [a * a + b * c, a * b + b * d, c * a + d * c, c * b + d * d];
        assert_eq!(*found, *expected.map(f32::to_ne_bytes).concat());
    }
}

/// How many functions of the driver were called.
fn calls() -> u64 {
    // SAFETY: the driver is open already, and the function has this type.
    unsafe {
        let driver = libloading::Library::new(child::simulated().join("libcuda.so")).unwrap();
        driver.get::<extern "C" fn() -> u64>(b"simulatedCalls").unwrap()()
    }
}

#[test]
fn an_event_is_three_calls_of_the_driver() {
    const COUNT: u64 = 100;
    if !is_child("an_event_is_three_calls_of_the_driver") {
        return;
    }
    let stream = cuda().create_stream().unwrap();
    drop(stream.record().unwrap());
    let before = calls();
    (0..COUNT).for_each(|_| drop(stream.record().unwrap()));
    // The context is made current, the event of the one before is recorded, the former context is restored.
    assert_eq!(calls() - before, 3 * COUNT);
}

#[test]
fn a_launch_is_three_calls_of_the_driver() {
    const COUNT: u64 = 1000;
    if !is_child("a_launch_is_three_calls_of_the_driver") {
        return;
    }
    let (a, out) = (array(cuda(), &floats(4)), cuda().allocate(16).unwrap());
    let stream = cuda().create_stream().unwrap();
    let operand = |buffer| Operand::new(buffer, DType::F32, [4]).unwrap();
    let launch = || run(&stream, Unary::Sqrt, &[operand(&a)], &[operand(&out)]).unwrap();
    launch();
    let before = calls();
    (0..COUNT).for_each(|_| launch());
    let made = calls() - before;
    // The context is made current, the kernel is launched, the former context is restored. Every now and then
    // an event says how far the stream is.
    assert!((3 * COUNT..4 * COUNT).contains(&made), "{made} calls for {COUNT} launches");
}

#[test]
fn programs_are_kept_for_the_next_process() {
    const TEST: &str = "programs_are_kept_for_the_next_process";
    if process::is_child() {
        let (a, out) = (array(cuda(), &floats(4)), cuda().allocate(16).unwrap());
        let stream = cuda().create_stream().unwrap();
        let operand = |buffer| Operand::new(buffer, DType::F32, [4]).unwrap();
        run(&stream, Unary::Sqrt, &[operand(&a)], &[operand(&out)]).unwrap();
        stream.synchronize().unwrap();
        println!("{} compiled", compilations());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    for expected in ["1 compiled", "0 compiled"] {
        let output = again(TEST, &[("DEVICE_PROGRAM_CACHE", folder)]);
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(printed.contains(expected), "expected {expected}: {printed}");
    }
}

/// A sum of each row, which is subtracted from it, of so many rows that a GPU with 64 multiprocessors has the
/// kernel and one with 132 does it in parts.
#[test]
fn an_expression_is_in_parts_where_the_device_has_more_units_than_rows_keep_busy() {
    const TEST: &str = "an_expression_is_in_parts_where_the_device_has_more_units_than_rows_keep_busy";
    const SHAPE: [usize; 2] = [400, 9000];
    if !process::is_child() {
        for (multiprocessors, launches) in [("64", "1 launch"), ("132", "several launches")] {
            let output = again(TEST, &[("SIMULATED_CUDA_MULTIPROCESSORS", multiprocessors)]);
            let (printed, error) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(printed.contains(launches), "{multiprocessors}: {printed}{error}");
        }
        return;
    }
    let expression = Expression::build(|e| {
        let x = e.input(DType::F32);
        e.output(x - x.sum([1]));
    })
    .unwrap();
    let len = SHAPE.iter().product::<usize>();
    let ones: Vec<u8> = [1.0_f32; 9000].iter().flat_map(|one| one.to_ne_bytes()).collect();
    let (a, out) = (array(cuda(), &ones.repeat(SHAPE[0])), cuda().allocate(len * 4).unwrap());
    let stream = cuda().create_stream().unwrap();
    let operand = |buffer| Operand::new(buffer, DType::F32, SHAPE).unwrap();
    run(&stream, expression, &[operand(&a)], &[operand(&out)]).unwrap();
    let found = stream.read(&out, ..).unwrap().wait().unwrap();
    assert!(found.chunks_exact(4).all(|one| *one == (1.0_f32 - 9000.0).to_ne_bytes()));
    println!("{}", if compilations() == 1 { "1 launch" } else { "several launches" });
}

#[test]
fn a_compiler_that_is_newer_than_the_driver_is_not_used() {
    const TEST: &str = "a_compiler_that_is_newer_than_the_driver_is_not_used";
    if !process::is_child() {
        return passes(TEST, &[("SIMULATED_NVRTC_MAJOR", "13")]);
    }
    let (a, out) = (array(cuda(), &floats(4)), cuda().allocate(16).unwrap());
    let stream = cuda().create_stream().unwrap();
    let operand = |buffer| Operand::new(buffer, DType::F32, [4]).unwrap();
    let error = run(&stream, Unary::Sqrt, &[operand(&a)], &[operand(&out)]).unwrap_err();
    let message = chain(&error);
    assert!(
        message.contains(", NVRTC 13.99, and the driver is for CUDA 11.4: install NVRTC 11"),
        "{message}"
    );
}

#[test]
fn without_a_compiler_the_error_says_what_to_install() {
    const TEST: &str = "without_a_compiler_the_error_says_what_to_install";
    if process::is_child() {
        let buffer = array(cuda(), &floats(4));
        let stream = cuda().create_stream().unwrap();
        let operand = |buffer| Operand::new(buffer, DType::F32, [4]).unwrap();
        let out = cuda().allocate(16).unwrap();
        let error = run(&stream, Unary::Sqrt, &[operand(&buffer)], &[operand(&out)]).unwrap_err();
        let message = chain(&error);
        assert!(message.contains("DEVICE_CUDA_NVRTC names a library that does not open"), "{message}");
        return;
    }
    passes(TEST, &[("DEVICE_CUDA_NVRTC", "/no/such/library")]);
}
