//! What options become in the driver.

use std::sync::mpsc;

use device_conformance::{device_or_skip, process};
use device_cuda::cudarc::driver::sys::{cuCtxGetStreamPriorityRange, cuStreamGetPriority};
use device_cuda::{CudaDevice, CudaStream, check};
use device_registry::{Device, EventOptions, Priority, StreamOptions, device};

mod child;

device_registry::autoload!();

/// The priority of a stream, and the least and the greatest that there are, as the driver has them.
fn priorities(device: Device, priority: Priority) -> [i32; 3] {
    let stream = device.create_stream_with(&StreamOptions::new().with_priority(priority)).unwrap();
    let (tell, told) = mpsc::channel();
    let launched = stream.launch(&[], move |launch| {
        launch.driver_as::<CudaDevice>()?.make_current()?;
        let stream = launch.stream_as::<CudaStream>()?.stream();
        let [mut priority, mut least, mut greatest] = [0; 3];
        // SAFETY: the stream and the places are there, and the context is current.
        let results = unsafe {
            [
                cuStreamGetPriority(stream, &mut priority),
                cuCtxGetStreamPriorityRange(&mut least, &mut greatest),
            ]
        };
        results.into_iter().try_for_each(|result| check("a question about priorities", result))?;
        tell.send([priority, least, greatest]).unwrap();
        Ok(())
    });
    launched.unwrap();
    told.recv().unwrap()
}

#[test]
fn priorities_are_the_drivers() {
    const TEST: &str = "priorities_are_the_drivers";
    if let Some(device) = device_or_skip("cuda") {
        let [low, least, _] = priorities(device, Priority::Low);
        let [high, _, greatest] = priorities(device, Priority::High);
        assert_eq!([low, high], [least, greatest]);
        assert_eq!(priorities(device, Priority::Normal)[0], 0);
    }
    if cfg!(target_os = "linux") && !process::is_child() {
        child::passes(TEST, Some(&child::simulated()), &[("DEVICE_CONFORMANCE_REQUIRE", "cuda")]);
    }
}

/// Events that take the time cost more, and are used only on request.
#[cfg(target_os = "linux")]
#[test]
fn an_event_takes_the_time_only_if_it_is_timed() {
    const TEST: &str = "an_event_takes_the_time_only_if_it_is_timed";
    if !process::is_child() {
        let variables = [("SIMULATED_CUDA_UNTIMED", "1")];
        child::passes(TEST, Some(&child::simulated()), &variables);
        let timed = child::again(TEST, Some(&child::simulated()), &[variables[0], ("TIMED", "1")]);
        let printed = String::from_utf8_lossy(&timed.stderr);
        assert!(printed.contains("misuse in `cuEventCreate`: an event that takes the time"), "{printed}");
        return;
    }
    let stream = device("cuda:0").unwrap().create_stream().unwrap();
    stream.record().unwrap().synchronize().unwrap();
    stream.synchronize().unwrap();
    if std::env::var_os("TIMED").is_some() {
        stream.record_with(&EventOptions::new().timed()).unwrap();
    }
}
