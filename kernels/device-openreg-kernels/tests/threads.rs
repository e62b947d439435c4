//! Programs that use rayon themselves.

use std::error::Error;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use device_kernels::{DType, Operand, Unary, run};
use device_registry::device;

device_registry::autoload!();

/// Large enough that the kernel divides it among threads.
const LEN: usize = 1 << 20;

fn negate() -> Result<(), Box<dyn Error>> {
    let device = device("openreg:0")?;
    let (stream, buffer) = (device.create_stream()?, device.allocate(4 * LEN)?);
    let array = Operand::new(&buffer, DType::F32, [LEN])?;
    run(&stream, Unary::Neg, &[array], &[array])?;
    Ok(stream.synchronize()?)
}

#[test]
fn a_kernel_ends_that_all_of_rayons_threads_wait_for() {
    let (done, waiting) = mpsc::channel();
    thread::spawn(move || {
        rayon::broadcast(|_| negate().expect("there is memory"));
        done.send(()).expect("the test waits");
    });
    waiting.recv_timeout(Duration::from_secs(60)).expect("the kernel has threads of its own");
}
