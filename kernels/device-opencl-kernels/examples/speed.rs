//! How fast a few operators are: `cargo run --release -p device-opencl-kernels --example speed`.

use std::time::Instant;

use device_kernels::{Binary, Conv2d, DType, Dims, Operand, Operator, Reduction, Unary, run};

device_registry::autoload!();

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = device_registry::device("opencl:0")?;
    let stream = device.create_stream()?;
    let measure = |name: &str, operator: Operator, inputs: &[Operand<'_>], out: Operand<'_>, work: f64| {
        let mut best = f64::INFINITY;
        for _ in 0..8 {
            let start = Instant::now();
            run(&stream, operator, inputs, &[out])?;
            stream.synchronize()?;
            best = best.min(start.elapsed().as_secs_f64());
        }
        println!("{name:24} {:9.3} ms {:8.2} G/s", best * 1e3, work / best / 1e9);
        Ok::<(), Box<dyn std::error::Error>>(())
    };
    let buffers = [64 << 20, 64 << 20, 64 << 20].map(|len| device.allocate(len));
    let [a, b, out] = buffers;
    let (a, b, out) = (a?, b?, out?);
    for size in [256, 512, 1024, 2048] {
        let operand = |buffer| Operand::new(buffer, DType::F32, [size, size]);
        let (x, y, z) = (operand(&a)?, operand(&b)?, operand(&out)?);
        let flop = 2.0 * (size as f64).powi(3);
        measure(&format!("matmul {size}"), Operator::MatMul, &[x, y], z, flop)?;
        let t = y.view(|y| y.transpose(0, 1))?;
        measure(&format!("matmul {size} transposed"), Operator::MatMul, &[x, t], z, flop)?;
    }
    let len = 1 << 24;
    let line = |buffer| Operand::new(buffer, DType::F32, [len]);
    let (x, y, z) = (line(&a)?, line(&b)?, line(&out)?);
    measure("add", Binary::Add.into(), &[x, y], z, len as f64)?;
    measure("add in place", Binary::Add.into(), &[x, y], x, len as f64)?;
    measure("exp", Unary::Exp.into(), &[x], z, len as f64)?;
    let square = |buffer| Operand::new(buffer, DType::F32, [4096, 4096]);
    let (x, z) = (square(&a)?, square(&out)?);
    measure("transpose", Operator::Copy, &[x.view(|x| x.transpose(0, 1))?], z, len as f64)?;
    let row = Operand::new(&b, DType::F32, [4096])?;
    measure("add a row", Binary::Add.into(), &[x, row], z, len as f64)?;
    let sum = |dims| Operator::Reduce { reduction: Reduction::Sum, dims };
    let columns = Operand::new(&out, DType::F32, [1, 4096])?;
    let rows = Operand::new(&out, DType::F32, [4096, 1])?;
    let one = Operand::new(&out, DType::F32, [1, 1])?;
    measure("sum of columns", sum(Dims::from([0])), &[x], columns, len as f64)?;
    measure("sum of rows", sum(Dims::from([1])), &[x], rows, len as f64)?;
    measure("sum", sum(Dims::all(2)), &[x], one, len as f64)?;
    let max = Operator::Reduce { reduction: Reduction::Max, dims: Dims::all(2) };
    measure("max", max, &[x], one, len as f64)?;
    let images = Operand::new(&a, DType::F32, [8, 64, 56, 56])?;
    let weights = Operand::new(&b, DType::F32, [64, 64, 3, 3])?;
    let maps = Operand::new(&out, DType::F32, [8, 64, 56, 56])?;
    let conv = Conv2d { padding: [1, 1], ..Conv2d::default() };
    let flop = 2.0 * (8 * 64 * 56 * 56 * 64 * 9) as f64;
    measure("conv2d", Operator::Conv2d(conv), &[images, weights], maps, flop)?;
    measure("conv2d input grad", Operator::Conv2dInputGrad(conv), &[images, weights], maps, flop)?;
    let of_weights = Operand::new(&out, DType::F32, [64, 64, 3, 3])?;
    measure(
        "conv2d weight grad",
        Operator::Conv2dWeightGrad(conv),
        &[images, Operand::new(&b, DType::F32, [8, 64, 56, 56])?],
        of_weights,
        flop,
    )?;
    measure("softmax of rows", Operator::Softmax { dim: 1 }, &[x], z, len as f64)?;
    Ok(())
}
