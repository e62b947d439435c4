//! What the first use of twenty programs takes: `cargo run --release -p device-opencl-kernels --example
//! first_use`. It prints how long it took until all were done, and how many texts were compiled.

use std::time::Instant;

use device_kernels::{Binary, DType, Dims, Operand, Operator, Reduction, Unary, run};

device_registry::autoload!();

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = device_registry::device("opencl:0")?;
    let stream = device.create_stream()?;
    let [a, b, out] = [4096; 3].map(|len| device.allocate(len));
    let (a, b, out) = (a?, b?, out?);
    let square = |buffer| Operand::new(buffer, DType::F32, [16, 16]);
    let (x, y, z) = (square(&a)?, square(&b)?, square(&out)?);
    let row = Operand::new(&out, DType::F32, [1, 16])?;
    let one = Operand::new(&out, DType::F32, [1, 1])?;
    stream.synchronize()?;
    let start = Instant::now();
    for operator in [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Max] {
        run(&stream, operator, &[x, y], &[z])?;
    }
    run(&stream, Binary::Add, &[x, 1.0.into()], &[z])?;
    run(&stream, Binary::Mul, &[x, 2.0.into()], &[z])?;
    for operator in [Unary::Exp, Unary::Log, Unary::Sqrt, Unary::Tanh, Unary::Neg, Unary::Abs, Unary::Relu] {
        run(&stream, operator, &[x], &[z])?;
    }
    run(&stream, Operator::MatMul, &[x, y], &[z])?;
    run(&stream, Operator::Copy, &[x.view(|x| x.transpose(0, 1))?], &[z])?;
    let sum = |dims| Operator::Reduce { reduction: Reduction::Sum, dims };
    run(&stream, sum(Dims::from([0])), &[x], &[row])?;
    run(&stream, sum(Dims::all(2)), &[x], &[one])?;
    run(&stream, Operator::Softmax { dim: 1 }, &[x], &[z])?;
    run(&stream, Operator::LogSoftmax { dim: 1 }, &[x], &[z])?;
    stream.synchronize()?;
    let milliseconds = start.elapsed().as_secs_f64() * 1e3;
    println!("{milliseconds:9.1} ms, {} compiled", device_opencl_kernels::compilations());
    Ok(())
}
