//! Additions of one element on a device, such as `cpu`, `opencl:0` or one of a file:
//! `one_add DEVICE ADDITIONS [FOLDER]`, to count instructions.

use std::error::Error;

use device_kernels::{Binary, DType, Operand, run};
use device_plugin::Plugins;

device_registry::autoload!();

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "openreg:1".to_owned());
    let additions: usize = arguments.next().as_deref().unwrap_or("1000").parse()?;
    if let Some(folder) = arguments.next() {
        Plugins::new().folder(folder).install()?;
    }
    let device = device_registry::device(&name)?;
    let stream = device.create_stream()?;
    let [a, b, out] = [device.allocate(4)?, device.allocate(4)?, device.allocate(4)?];
    a.write(0, &1.0_f32.to_ne_bytes())?;
    b.write(0, &2.0_f32.to_ne_bytes())?;
    for _ in 0..additions {
        // The operands are described anew for each operation, as a framework does.
        let array = |buffer| Operand::new(buffer, DType::F32, [1]);
        run(&stream, Binary::Add, &[array(&a)?, array(&b)?], &[array(&out)?])?;
    }
    stream.synchronize()?;
    let mut sum = [0; 4];
    out.read(0, &mut sum)?;
    println!("{additions} additions on {device}: {}", f32::from_ne_bytes(sum));
    Ok(())
}
