//! Kernels work alike on a linked backend and on the same backend from a file: by native handles.

use std::ptr;

use device_opencl::{OpenClDevice, handles};
use device_plugin::{LoadedDevice, Plugins};
use device_plugin_tests::{PLUGINS, install_copy};
use device_registry::backend::{BackendError, HostMemory, Launch};
use device_registry::{Device, device};

const SCALE: &str = "
    kernel void scale(global int *values, ulong offset, int by) {
        values[offset + get_global_id(0)] *= by;
    }
";

/// Installs all backends under names of their own, once.
fn installed(name: &str) -> Device {
    static INSTALLED: std::sync::Once = std::sync::Once::new();
    INSTALLED.call_once(|| {
        let folder = tempfile::tempdir().expect("there is room").keep();
        PLUGINS.iter().for_each(|&plugin| install_copy(&folder, plugin, &format!("{}_file", plugin.name)));
        let report = Plugins::new().folder(folder).install().expect("the folder is absolute");
        assert_eq!(report.installed().len(), PLUGINS.len(), "{report}");
    });
    device(&format!("{name}_file")).expect("it is installed")
}

/// Multiplies the integers of the first span by a number. The source is what a kernel for a linked backend
/// has.
fn scale(program: &device_opencl::OpenClProgram, launch: &Launch<'_>, by: i32) -> Result<(), BackendError> {
    let span = launch.spans()[0].as_ref().expect("the buffer is not empty");
    let (buffer, queue) = (handles::buffer(span)?, handles::command_queue(launch)?);
    let device = OpenClDevice::from_native(launch.native_device())?;
    let cl = device.functions();
    let (offset, items) = ((span.offset() / 4) as u64, span.len() / 4);
    let (none, no_event) = (ptr::null(), ptr::null_mut());
    // SAFETY: the arguments are those of `scale`, and the kernel writes to the integers of the span only,
    // which the core keeps.
    unsafe {
        let kernel = cl.clCreateKernel(program.program(), c"scale".as_ptr())?;
        cl.clSetKernelArg(kernel, 0, size_of_val(&buffer), ptr::from_ref(&buffer).cast())?;
        cl.clSetKernelArg(kernel, 1, 8, ptr::from_ref(&offset).cast())?;
        cl.clSetKernelArg(kernel, 2, 4, ptr::from_ref(&by).cast())?;
        cl.clEnqueueNDRangeKernel(queue, kernel, 1, none, &items, none, 0, ptr::null(), no_event)?;
        cl.clReleaseKernel(kernel)?;
    }
    Ok(())
}

#[test]
fn a_kernel_of_opencl_runs_on_the_backend_from_a_file() {
    let opencl = installed("opencl");
    if let Err(error) = opencl.open() {
        let required = std::env::var("DEVICE_CONFORMANCE_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|name| name == "opencl"), "{error}");
        return eprintln!("skipped: {error}");
    }
    let program = opencl
        .with_native(|native| OpenClDevice::from_native(native)?.build(SCALE, ""))
        .expect("it compiles");
    let stream = opencl.create_stream().expect("it has streams");
    let buffer = opencl.allocate(64).expect("there is room");
    let numbers: Vec<u8> = (0..16_i32).flat_map(i32::to_ne_bytes).collect();
    stream.write(&buffer, 0, numbers).expect("it fits");
    stream.launch(&[&buffer], move |launch| scale(&program, launch, 3)).expect("it runs");
    let bytes = stream.read(&buffer, 0..64).expect("it fits").wait().expect("it is read");
    let found: Vec<i32> = bytes.chunks(4).map(|four| i32::from_ne_bytes(four.try_into().unwrap())).collect();
    assert_eq!(found, (0..16).map(|number| number * 3).collect::<Vec<_>>());
}

#[test]
fn a_type_of_the_backend_is_an_error_that_names_the_handles() {
    let openreg = installed("openreg");
    let buffer = openreg.allocate(8).unwrap();
    let outcome = openreg.current_stream().unwrap().launch(&[&buffer], |launch| {
        let span = launch.spans()[0].as_ref().expect("the buffer is not empty");
        let address = span.native_handle("openreg.address")?;
        assert_ne!(address, 0);
        span.memory_as::<device_openreg::OpenRegMemory>().map(drop)
    });
    let message = outcome.and_then(|()| openreg.synchronize()).unwrap_err().to_string();
    let expected = "`openreg_file` is installed from";
    assert!(message.contains(expected) && message.contains("Span::native_handle"), "{message}");
    let error = openreg.with_driver(|_: &HostMemory| Ok(())).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_handle_or_an_extension_that_a_backend_does_not_have_is_not_found() {
    let openreg = installed("openreg");
    let error = openreg.native_handle("openreg.nothing").unwrap_err().to_string();
    assert!(error.contains("does not have a native handle of the kind `openreg.nothing`"), "{error}");
    let extension = openreg.with_driver(|device: &LoadedDevice| Ok(device.extension("nothing"))).unwrap();
    assert!(extension.is_none());
}
