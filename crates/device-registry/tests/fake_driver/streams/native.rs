//! Native code outside of any stream: it gets the driver's handle, and its error is the error of that call.

use device_registry::backend::{BackendError, BackendErrorKind, Launch, open_windows};
use device_registry::{Device, DeviceError};

use crate::fake::{Handle, plain, queued};
use crate::{ends, error_text, filled, on_both};

#[test]
fn native_code_gets_the_backends_handle_and_its_value_comes_back() {
    on_both(|device, control| {
        let same = device.with_driver(|handle: &Handle| Ok(std::ptr::eq(handle.0, control)));
        assert!(same.unwrap());
    });
}

#[test]
fn an_error_in_native_code_is_the_error_of_that_call() {
    on_both(|device, _| {
        type Native = fn(&Handle) -> Result<(), BackendError>;
        let refuses: Native = |_| Err(BackendError::invalid("line 3: no such type"));
        let panics: Native = |_| panic!("on purpose");
        for (native, message) in [(refuses, "line 3: no such type"), (panics, "on purpose")] {
            let error = error_text(device.with_driver(native));
            assert!(error.contains(message) && error.contains(&device.to_string()), "{error}");
            device.allocate(16).unwrap();
        }
    });
}

#[test]
fn a_handle_of_another_type_is_unsupported() {
    let error = Device::cpu().with_driver(|_: &Handle| -> Result<(), _> { unreachable!() }).unwrap_err();
    assert!(error.to_string().contains("the device has no handle of type `"), "{error}");
    assert!(
        matches!(&error, DeviceError::Call { error, .. } if error.kind() == BackendErrorKind::Unsupported)
    );
}

#[test]
fn a_launch_computes_in_memory_of_the_host_whatever_its_type() {
    ends(|| {
        let (device, _) = plain();
        let (from, to) = (filled(device, b"0123456789"), filled(device, b".........."));
        let (part, place) = (from.slice(2..6).unwrap(), to.slice(4..8).unwrap());
        let stream = device.create_stream().unwrap();
        let reverse = |launch: &Launch<'_>| {
            let [Some(from), Some(to)] = launch.spans() else { unreachable!("both have bytes") };
            let ([from], [mut to]) = open_windows([from.on_host()?], [to.on_host()?])?;
            to.iter_mut().zip(from.iter().rev()).for_each(|(to, from)| *to = *from);
            Ok(())
        };
        stream.launch(&[&part, &place], reverse).unwrap();
        stream.synchronize().unwrap();
        let mut bytes = [0; 10];
        to.read(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"....5432..");
    });
}

#[test]
fn a_loss_in_native_code_is_a_loss_of_the_device() {
    ends(|| {
        let (device, _) = queued();
        let buffer = device.allocate(16).unwrap();
        let lost = device.with_driver(|_: &Handle| Err::<(), _>(BackendError::lost("the cable is out")));
        assert!(error_text(lost).contains("the cable is out"));
        assert!(error_text(buffer.write(0, b"x")).contains("the cable is out"));
    });
}

#[test]
fn a_host_call_may_not_run_native_code() {
    on_both(|device, _| {
        let stream = device.create_stream().unwrap();
        let (send, sent) = std::sync::mpsc::channel();
        stream
            .host_call(move || send.send(error_text(device.with_driver(|_: &Handle| Ok(())))).unwrap())
            .unwrap();
        assert!(sent.recv().unwrap().contains("host call"));
        stream.synchronize().unwrap();
    });
}

#[test]
fn native_code_may_not_use_devices_nor_close_its_own() {
    on_both(|device, _| {
        let buffer = device.allocate(16).unwrap();
        let refused = device.with_driver(|_: &Handle| Ok([device.close(), buffer.write(0, b"x")])).unwrap();
        for result in refused {
            assert!(matches!(result, Err(DeviceError::InHostCall { .. })), "{result:?}");
        }
        buffer.write(0, b"x").unwrap();
    });
}
