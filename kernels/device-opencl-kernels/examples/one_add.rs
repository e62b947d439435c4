//! Additions of one element on the device, as many as the argument says: to count instructions.

use std::error::Error;

use device_kernels::{Binary, DType, Operand, run};

device_registry::autoload!();

fn main() -> Result<(), Box<dyn Error>> {
    let additions: usize = std::env::args().nth(1).as_deref().unwrap_or("1000").parse()?;
    let device = device_registry::device("opencl:0")?;
    let stream = device.create_stream()?;
    let [a, b, out] = [device.allocate(4)?, device.allocate(4)?, device.allocate(4)?];
    a.write(0, &1.0_f32.to_ne_bytes())?;
    b.write(0, &2.0_f32.to_ne_bytes())?;
    for _ in 0..additions {
        // As a framework does it: the operands are described anew for each operation.
        let array = |buffer| Operand::new(buffer, DType::F32, [1]);
        run(&stream, Binary::Add, &[array(&a)?, array(&b)?], &[array(&out)?])?;
    }
    stream.synchronize()?;
    let mut sum = [0; 4];
    out.read(0, &mut sum)?;
    println!("{additions} additions: {}", f32::from_ne_bytes(sum));
    Ok(())
}
