//! Calls by the set that is linked.

use std::error::Error;

use device_kernels::{Binary, Conv2d, DType, Dims, Operand, Operator, Reduction, run};
use device_registry::{Buffer, Device, device};

device_registry::autoload!();

fn upload(device: Device, values: &[f32]) -> Result<Buffer, Box<dyn Error>> {
    let buffer = device.allocate(values.len() * 4)?;
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    buffer.write(0, &bytes)?;
    Ok(buffer)
}

fn download(buffer: &Buffer) -> Result<Vec<f32>, Box<dyn Error>> {
    let mut bytes = vec![0; buffer.len()];
    buffer.read(0, &mut bytes)?;
    Ok(bytes.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect())
}

#[test]
fn a_product_of_a_transposed_view_and_a_sum_in_place() -> Result<(), Box<dyn Error>> {
    let device = device("openreg:1")?;
    let stream = device.create_stream()?;
    let a = upload(device, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    let product = device.allocate(16)?;
    let a = Operand::new(&a, DType::F32, [2, 3])?;
    let out = Operand::new(&product, DType::F32, [2, 2])?;
    run(&stream, Operator::MatMul, &[a, a.view(|a| a.transpose(0, 1))?], &[out])?;
    run(&stream, Binary::Add, &[out, 0.5.into()], &[out])?;
    stream.synchronize()?;
    assert_eq!(download(&product)?, [14.5, 32.5, 32.5, 77.5]);
    Ok(())
}

#[test]
fn a_sum_of_outer_and_inner_dimensions() -> Result<(), Box<dyn Error>> {
    let device = device("openreg:0")?;
    let stream = device.create_stream()?;
    let input = upload(device, &(0..24).map(|value| value as f32).collect::<Vec<_>>())?;
    let sums = device.allocate(12)?;
    let operator = Operator::Reduce { reduction: Reduction::Sum, dims: Dims::from([0, 2]) };
    let input = Operand::new(&input, DType::F32, [2, 3, 4])?;
    run(&stream, operator, &[input], &[Operand::new(&sums, DType::F32, [1, 3, 1])?])?;
    stream.synchronize()?;
    assert_eq!(download(&sums)?, [60.0, 92.0, 124.0]);
    Ok(())
}

#[test]
fn a_convolution_with_padding_and_bias() -> Result<(), Box<dyn Error>> {
    let device = device("openreg:0")?;
    let stream = device.create_stream()?;
    let image = upload(device, &[1.0, 2.0, 3.0, 4.0])?;
    let weights = upload(device, &[1.0; 9])?;
    let bias = upload(device, &[0.25])?;
    let out = device.allocate(16)?;
    let conv = Conv2d { padding: [1, 1], ..Conv2d::default() };
    let inputs = [
        Operand::new(&image, DType::F32, [1, 1, 2, 2])?,
        Operand::new(&weights, DType::F32, [1, 1, 3, 3])?,
        Operand::new(&bias, DType::F32, [1])?,
    ];
    run(&stream, Operator::Conv2d(conv), &inputs, &[Operand::new(&out, DType::F32, [1, 1, 2, 2])?])?;
    stream.synchronize()?;
    assert_eq!(download(&out)?, [10.25; 4]);
    Ok(())
}
