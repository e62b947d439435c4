//! The command line.

use std::path::PathBuf;

use clap::Parser;

use crate::kernels::Shape;
use crate::work::largest_operand;

/// Multiplies two matrices and adds two vectors on a device, and compares with the cpu.
#[derive(Parser)]
#[command(version)]
pub(crate) struct Arguments {
    /// The device, such as `opencl` or `wgpu:1`, or a list such as `cuda,wgpu,opencl,cpu`, of which the first
    /// is taken that is there
    // Text, and not a `Device`, so that the registry's own message is printed.
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub(crate) device: String,
    /// The matrices: N for two of N x N, or MxKxN for one of M x K and one of K x N
    #[arg(long, value_name = "SIZE", default_value = "512", value_parser = shape)]
    pub(crate) size: Shape,
    /// The length of the vectors
    #[arg(long, value_name = "N", default_value = "4194304", value_parser = number)]
    pub(crate) length: u32,
    /// How often each is measured
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) runs: u16,
    /// Kernels to compile in place of the built-in ones, in the language of the device: functions `add` and
    /// `matmul`
    #[arg(long, value_name = "FILE")]
    pub(crate) source: Option<PathBuf>,
    /// A folder with backends in files, each with its manifest. Their names are then devices like any other
    #[arg(long, value_name = "FOLDER")]
    pub(crate) plugins: Option<PathBuf>,
    /// Lists the devices there are, and which of them have kernels
    #[arg(long, conflicts_with_all = ["device", "size", "length", "runs", "source"])]
    pub(crate) list: bool,
}

fn number(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("it is to be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(_) => Err(format!("it is to be a number from 1 to {}", u32::MAX)),
    }
}

fn shape(text: &str) -> Result<Shape, String> {
    let numbers: Vec<u32> = text.split('x').map(number).collect::<Result<_, _>>()?;
    let (rows, inner, columns) = match numbers[..] {
        [n] => (n, n, n),
        [rows, inner, columns] => (rows, inner, columns),
        _ => return Err("it is to be one number, or three such as 30x20x10".to_owned()),
    };
    let shape = Shape::new(rows, inner, columns).ok_or_else(|| {
        format!("a matrix is to have at most {} elements, for kernels count in 32 bits", u32::MAX)
    })?;
    // Now, and not when the vectors are done.
    largest_operand(inner).map_err(|error| error.to_string())?;
    Ok(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_is_a_square_and_three_are_two_matrices() {
        assert_eq!(shape("7"), Ok(Shape::new(7, 7, 7).unwrap()));
        assert_eq!(shape("2x3x5"), Ok(Shape::new(2, 3, 5).unwrap()));
        for bad in ["", "x", "2x3", "2x3x5x7", "-1", "1.5", "0", "2x0x5", "4294967296", "70000"] {
            assert!(shape(bad).is_err(), "{bad:?}");
        }
        // Kernels divide by the number of columns, and leave alone what has no bytes.
        assert!([(0, 3, 3), (3, 0, 3), (3, 3, 0)].iter().all(|&(m, k, n)| Shape::new(m, k, n).is_none()));
        // The largest matrix there can be, in either place.
        assert!(shape("65536x65535x1").is_ok() && shape("65536x1x65536").is_err());
        // The longest sum.
        assert!(shape("1x16777216x1").is_ok() && shape("1x16777217x1").is_err());
    }
}
