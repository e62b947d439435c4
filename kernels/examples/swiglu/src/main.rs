//! `cargo run -p swiglu -- cpu`: the operator on a device, beside the same in plain Rust.

use std::error::Error;

use device_kernels::{DType, Operand, run};
use device_registry::device;

device_registry::autoload!();

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "cpu".to_owned());
    let stream = device(&name)?.create_stream()?;
    let buffer = |numbers: &[f32]| {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let buffer = device(&name)?.allocate(bytes.len())?;
        buffer.write(0, &bytes).map(|()| buffer)
    };
    let (gate, value, out) =
        (buffer(&[-1.0, 0.5, 2.0, 9.0])?, buffer(&[1.0, -2.0, 3.0, -9.0])?, buffer(&[0.0; 4])?);
    let [gate, value, result] = [&gate, &value, &out].map(|buffer| Operand::new(buffer, DType::F32, [4]));
    run(&stream, swiglu::swiglu(7.0)?, &[gate?, value?], &[result?])?;
    let bytes = stream.read(&out, ..)?.wait()?;
    let numbers: Vec<f32> = bytes
        .chunks_exact(4)
        .map(|bytes| f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        .collect();
    println!("{numbers:.4?} on {name}");
    Ok(())
}
