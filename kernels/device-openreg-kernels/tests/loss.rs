//! A device that is lost between the choice of a kernel and its launch.

use std::error::Error;

use device_kernels::{Binary, Call, DType, Layout, Operand, Prepared, RunError, run};
use device_registry::backend::Fault;
use device_registry::{ErrorChain, device};

device_registry::autoload!();

#[test]
fn a_kernel_that_was_found_before_the_loss_is_not_launched_and_works_after_a_reset()
-> Result<(), Box<dyn Error>> {
    let device = device("openreg:0")?;
    let (stream, buffer) = (device.create_stream()?, device.allocate(8)?);
    let array = (DType::F32, Layout::contiguous([2])?);
    let call = Call::new(Binary::Add, &[array.into(), 1.0.into()], &[array.into()])?;
    let prepared = Prepared::new(device, call, &[&buffer, &buffer])?.expect("it writes");

    device.faults()?.inject(Fault::LoseDevice { nth: 1 })?;
    buffer.fill(.., &[0]).expect_err("it loses the device");
    let late = prepared.clone();
    let error = stream.launch(&[&buffer, &buffer], move |launch| late.launch(launch)).unwrap_err();
    assert!(error.to_string().contains("openreg:0"), "{error}");
    // Through `run`, the error also names the operator with its operands.
    let operand = Operand::new(&buffer, DType::F32, [2])?;
    let error = run(&stream, Binary::Add, &[operand, 1.0.into()], &[operand]).unwrap_err();
    assert!(matches!(error, RunError::Device { .. }), "{error:?}");
    let message = ErrorChain::new(&error).to_string();
    assert!(message.starts_with("add(f32 [2], 1.0) -> f32 [2]: not enqueued"), "{message}");
    assert!(message.contains("lost"), "{message}");

    device.reset()?;
    let (stream, buffer) = (device.create_stream()?, device.allocate(8)?);
    buffer.fill(.., &1.0_f32.to_ne_bytes())?;
    stream.launch(&[&buffer, &buffer], move |launch| prepared.launch(launch))?;
    stream.synchronize()?;
    let mut sum = [0; 8];
    buffer.read(0, &mut sum)?;
    assert_eq!(sum, [2.0_f32.to_ne_bytes(); 2].concat()[..]);
    // What this thread has planned for `run` holds for the device as it is now.
    let operand = Operand::new(&buffer, DType::F32, [2])?;
    run(&stream, Binary::Add, &[operand, 1.0.into()], &[operand])?;
    stream.synchronize()?;
    buffer.read(0, &mut sum)?;
    assert_eq!(sum, [3.0_f32.to_ne_bytes(); 2].concat()[..]);
    Ok(())
}
