//! Calls that cannot be: each is an error that names the operator, and nothing is enqueued.

use std::error::Error;

use device_kernels::{Binary, DType, Dims, Extremum, Operand, Operator, Reduction, RunError, run};
use device_registry::{Buffer, Device, ErrorChain, device};

device_registry::autoload!();

fn zeros(device: Device, len: usize) -> Buffer {
    let buffer = device.allocate(len).expect("there is memory");
    buffer.fill(.., &[0]).expect("it is all of it");
    buffer
}

fn add(device: Device, inputs: [Operand<'_>; 2], out: Operand<'_>) -> Result<String, Box<dyn Error>> {
    let stream = device.create_stream()?;
    let error = run(&stream, Binary::Add, &inputs, &[out]).expect_err("it cannot be");
    stream.synchronize()?;
    Ok(error.to_string())
}

#[test]
fn operands_of_two_devices() -> Result<(), Box<dyn Error>> {
    let (first, second) = (device("openreg:0")?, device("openreg:1")?);
    let (a, b) = (zeros(first, 8), zeros(second, 8));
    let [a, b] = [&a, &b].map(|buffer| Operand::new(buffer, DType::F32, [2]).expect("two elements"));
    let message = add(first, [a, b], a)?;
    assert_eq!(
        message,
        "add(f32 [2], f32 [2]) -> f32 [2]: expected each buffer on `openreg:0`, found one on `openreg:1`"
    );
    Ok(())
}

#[test]
fn a_buffer_that_ends_before_its_array() -> Result<(), Box<dyn Error>> {
    let device = device("openreg:0")?;
    let buffer = zeros(device, 11);
    let array = Operand::new(&buffer, DType::F32, [3])?;
    let message = add(device, [array, 1.0.into()], array)?;
    assert_eq!(
        message,
        "add(f32 [3], 1.0) -> f32 [3]: the first input needs 12 bytes, and its buffer has 11"
    );
    Ok(())
}

/// Whatever a set could do with it: not every device reads an element across two.
#[test]
fn a_buffer_that_begins_between_two_elements() -> Result<(), Box<dyn Error>> {
    let device = device("openreg:0")?;
    let (memory, out) = (zeros(device, 32), zeros(device, 8));
    let add_at = |offset: usize, dtype| {
        let part = memory.slice(offset..offset + 16)?;
        let [part, out] =
            [(&part, [2]), (&out, [2])].map(|(buffer, shape)| Operand::new(buffer, dtype, shape));
        let (part, out) = (part?, out?);
        let stream = device.create_stream()?;
        let results = [([part, out], out), ([out, out], part)].map(|(inputs, out)| {
            run(&stream, Binary::Add, &inputs, &[out]).map_err(|error| error.to_string())
        });
        stream.synchronize()?;
        Ok::<_, Box<dyn Error>>(results)
    };
    for offset in [1, 2, 3, 6] {
        let expected = |place| {
            let wrong =
                format!("array {place} begins at byte {offset} of its memory, expected a multiple of 4");
            Err(format!("add(f32 [2], f32 [2]) -> f32 [2]: {wrong}"))
        };
        assert_eq!(add_at(offset, DType::F32)?, [expected(0), expected(2)]);
    }
    assert_eq!(add_at(4, DType::F32)?, [Ok(()), Ok(())]);
    assert_eq!(add_at(2, DType::F16)?, [Ok(()), Ok(())]);
    assert_eq!(add_at(3, DType::U8)?, [Ok(()), Ok(())]);
    Ok(())
}

#[test]
fn an_output_that_overlaps_an_input_elsewhere() -> Result<(), Box<dyn Error>> {
    let device = device("openreg:0")?;
    let buffer = zeros(device, 16);
    let whole = Operand::new(&buffer, DType::F32, [4])?;
    let first = whole.view(|layout| layout.slice(0, 0, 3, 1))?;
    let last = whole.view(|layout| layout.slice(0, 1, 3, 1))?;
    let message = add(device, [first, 1.0.into()], last)?;
    assert!(message.contains("an output may overlap another array"), "{message}");
    // The same elements are no overlap for an operator that goes by them, and are one for a product.
    let stream = device.create_stream()?;
    run(&stream, Binary::Add, &[whole, 1.0.into()], &[whole])?;
    let square = Operand::new(&buffer, DType::F32, [2, 2])?;
    let error = run(&stream, Operator::MatMul, &[square, square], &[square]).unwrap_err();
    assert!(matches!(error, RunError::Buffers { .. }), "{error}");
    Ok(stream.synchronize()?)
}

#[test]
fn a_device_whose_backend_has_no_kernels_linked() -> Result<(), Box<dyn Error>> {
    let device = Device::cpu();
    let buffer = zeros(device, 8);
    let array = Operand::new(&buffer, DType::F32, [2])?;
    let message = add(device, [array, 1.0.into()], array)?;
    assert!(
        message.starts_with("add(f32 [2], 1.0) -> f32 [2]: no kernel for `cpu`: no kernel set"),
        "{message}"
    );
    assert!(message.contains("Cargo.toml"), "{message}");
    Ok(())
}

#[test]
fn an_index_out_of_range_is_an_error_of_the_stream() -> Result<(), Box<dyn Error>> {
    let device = device("openreg:1")?;
    let stream = device.create_stream()?;
    let (values, out) = (zeros(device, 8), zeros(device, 4));
    let index = zeros(device, 4);
    index.write(0, &7_i32.to_ne_bytes())?;
    let inputs = [Operand::new(&values, DType::F32, [2])?, Operand::new(&index, DType::I32, [1])?];
    let out = Operand::new(&out, DType::F32, [1])?;
    run(&stream, Operator::IndexSelect { dim: 0 }, &inputs, &[out])?;
    let error = stream.synchronize().unwrap_err();
    let message = device_registry::ErrorChain::new(&error).to_string();
    assert!(message.contains("index_select<dim 0>"), "{message}");
    assert!(message.contains("index 7 is out of range for 2 elements"), "{message}");
    Ok(())
}

#[test]
fn a_broadcast_that_no_memory_holds_is_an_error_with_its_bytes() -> Result<(), Box<dyn Error>> {
    const LEN: usize = 1 << 50;
    let device = device("openreg:0")?;
    let (one, index, out) = (zeros(device, 4), zeros(device, 4), zeros(device, 4));
    let element = Operand::new(&one, DType::I32, [1])?.view(|layout| layout.broadcast_to([LEN]))?;
    let index = Operand::new(&index, DType::I32, [1])?;
    let out = Operand::new(&out, DType::I32, [1])?;
    let sum = Operator::Reduce { reduction: Reduction::Sum, dims: Dims::from([0]) };
    let arg_max = Operator::ArgReduce { extremum: Extremum::Max, dim: 0 };
    let calls: [(Operator, &[Operand<'_>]); 4] = [
        (sum, &[element]),
        (arg_max, &[element]),
        (Operator::Gather { dim: 0 }, &[element, index]),
        (Operator::IndexSelect { dim: 0 }, &[element, index]),
    ];
    for (operator, inputs) in calls {
        let stream = device.create_stream()?;
        run(&stream, operator, inputs, &[out])?;
        let error = stream.synchronize().expect_err("no machine has the memory");
        let text = ErrorChain::new(&error).to_string();
        assert!(text.ends_with("out of memory: 4 PiB asked for"), "{operator}: {text}");
    }
    Ok(())
}
