//! A burn program that computes on the devices of a `burn-serve`. It uses burn only, and no crate of this
//! repository.
//!
//! ```text
//! cargo run -p burn-serve --example client -- ws://127.0.0.1:3000 TOKEN_FILE [SECONDS]
//! ```
//!
//! With a number of seconds, it repeats the work for so long.

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use burn::remote::RemoteHost;
use burn::tensor::{Device, Tensor};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match &arguments[..] {
        [url, token_file] => run(url, token_file, Duration::ZERO),
        [url, token_file, seconds] => match seconds.parse() {
            Ok(seconds) => run(url, token_file, Duration::from_secs(seconds)),
            Err(_) => Err(format!("expected a number of seconds, found `{seconds}`").into()),
        },
        _ => Err("usage: client URL TOKEN_FILE [SECONDS]".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Connects, computes on each device, and moves results between devices.
pub(crate) fn run(url: &str, token_file: &str, time: Duration) -> Result<(), Box<dyn Error>> {
    let token = std::fs::read_to_string(token_file)?;
    let host = RemoteHost::websocket(url).with_credential(token.trim_end_matches(['\r', '\n']));
    // Connects device 0, so a wrong address or token is an error here. The other devices connect on first
    // use.
    let devices = host.devices()?;
    println!("connected, devices: {}", devices.len());

    for (index, device) in devices.iter().enumerate() {
        let (sum, product) = compute(device);
        println!("device {index}: sum {:?}, product {:?}", values(sum)?, values(product.clone())?);
        let next = (index + 1) % devices.len();
        let moved = product.to_device(&devices[next]);
        println!("device {next}: moved from {index}, doubled {:?}", values(moved * 2)?);
    }

    let start = Instant::now();
    while start.elapsed() < time {
        for device in devices.iter() {
            values(compute(device).1)?;
        }
    }
    println!("finished");
    Ok(())
}

/// A sum and a matrix product. Nothing here depends on where the device is.
fn compute(device: &Device) -> (Tensor<2>, Tensor<2>) {
    let a = Tensor::<2>::from_data([[1.0, 2.0], [3.0, 4.0]], device);
    let b = Tensor::<2>::from_data([[10.0, 20.0], [30.0, 40.0]], device);
    (a.clone() + b.clone(), a.matmul(b))
}

/// The elements of a tensor. `try_into_data` returns an error if the server is gone, where `into_data`
/// panics.
fn values(tensor: Tensor<2>) -> Result<Vec<f32>, Box<dyn Error>> {
    Ok(tensor.try_into_data()?.try_to_vec()?)
}
