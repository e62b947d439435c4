//! Kernels, through the native handles.

mod child;

use std::ptr;
use std::sync::{Arc, Mutex};

use device_conformance::process;
use device_opencl::sys::*;
use device_opencl::{
    OpenClDevice, OpenClError, OpenClFunctions, OpenClMemory, OpenClProgram, OpenClStream, handles,
};
use device_registry::DeviceError;
use device_registry::backend::{BackendError, BackendErrorKind, Launch, Span};

use crate::child::CHILD;

device_registry::autoload!();

const SCALE: &str = "
    kernel void scale(global int *values, ulong offset, int by) {
        values[offset + get_global_id(0)] *= by;
    }
";

/// A kernel of a program, and the number of its next argument.
struct Kernel {
    cl: &'static OpenClFunctions,
    kernel: cl_kernel,
    next: cl_uint,
}

impl Kernel {
    fn of(device: &OpenClDevice, program: &OpenClProgram) -> Result<Self, OpenClError> {
        let cl = device.functions();
        let name = program.info(CL_PROGRAM_KERNEL_NAMES)?;
        // SAFETY: the program is valid. It has one kernel, whose name ends with a zero.
        let kernel = unsafe { cl.clCreateKernel(program.program(), name.as_ptr().cast()) }?;
        Ok(Self { cl, kernel, next: 0 })
    }

    fn with<T>(mut self, value: &T) -> Result<Self, OpenClError> {
        // SAFETY: the kernels here have an argument of this type at this place, and it is copied by the call.
        unsafe {
            self.cl.clSetKernelArg(self.kernel, self.next, size_of::<T>(), ptr::from_ref(value).cast())?;
        }
        self.next += 1;
        Ok(self)
    }

    fn enqueue(self, launch: &Launch<'_>, items: usize) -> Result<(), BackendError> {
        self.enqueue_to(launch.stream_as::<OpenClStream>()?.command_queue(), items)
    }

    fn enqueue_to(self, queue: cl_command_queue, items: usize) -> Result<(), BackendError> {
        let (none, no_event) = (ptr::null(), ptr::null_mut());
        // SAFETY: the arguments are set, and the kernels here touch the first items of a span only, which the
        // core keeps.
        unsafe {
            self.cl.clEnqueueNDRangeKernel(
                queue,
                self.kernel,
                1,
                none,
                &items,
                none,
                0,
                ptr::null(),
                no_event,
            )
        }?;
        Ok(())
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: it was made by `of`, and is released once; enqueued work keeps it alive.
        unsafe { self.cl.clReleaseKernel(self.kernel) }.unwrap();
    }
}

/// Multiplies the integers of a span.
fn scale(launch: &Launch<'_>, span: &Span, by: cl_int) -> Result<(), BackendError> {
    let device = launch.driver_as::<OpenClDevice>()?;
    let program = device.build(SCALE, "")?;
    let buffer = span.memory_as::<OpenClMemory>()?.buffer();
    let first = span.offset() as u64 / 4;
    Kernel::of(device, &program)?.with(&buffer)?.with(&first)?.with(&by)?.enqueue(launch, span.len() / 4)
}

fn ints(values: impl IntoIterator<Item = i32>) -> Vec<u8> {
    values.into_iter().flat_map(i32::to_ne_bytes).collect()
}

#[test]
fn a_kernel_works_on_its_span_in_the_streams_order() {
    let Some(device) = device_conformance::device_or_skip("opencl") else { return };
    let stream = device.create_stream().unwrap();
    let buffer = device.allocate(4 * 1000).unwrap();
    stream.write(&buffer, 0, ints(0..1000)).unwrap();
    let part = buffer.slice(4 * 10..4 * 990).unwrap();
    for by in [3, -1] {
        let launched = stream.launch(&[&part], move |launch| match launch.spans() {
            [Some(span)] => scale(launch, span, by),
            _ => Ok(()),
        });
        launched.unwrap();
    }
    let read = stream.read(&buffer, ..).unwrap().wait().unwrap();
    let expected = (0..1000).map(|value| if (10..990).contains(&value) { -3 * value } else { value });
    assert!(*read == ints(expected), "{read:?}");
}

#[test]
fn a_stream_is_not_done_before_what_a_kernel_has_enqueued() {
    const SPIN: &str = "
        kernel void spin(global uint *value, ulong rounds) {
            uint x = *value;
            for (ulong i = 0; i < rounds; i++) x = x * 1664525u + 1013904223u + (x >> 7);
            *value = x;
        }
    ";
    let Some(device) = device_conformance::device_or_skip("opencl") else { return };
    let stream = device.create_stream().unwrap();
    let buffer = device.allocate(4).unwrap();
    // Compiled and idle.
    let spin = move |launch: &Launch<'_>, rounds: u64| {
        let device = launch.driver_as::<OpenClDevice>()?;
        let program = device.build(SPIN, "")?;
        let memory = launch.spans()[0].as_ref().unwrap().memory_as::<OpenClMemory>()?.buffer();
        Kernel::of(device, &program)?.with(&memory)?.with(&rounds)?.enqueue(launch, 1)
    };
    stream.launch(&[&buffer], move |launch| spin(launch, 1)).unwrap();
    stream.synchronize().unwrap();
    assert!(stream.query().unwrap(), "it was waited for");
    stream.launch(&[&buffer], move |launch| spin(launch, 300_000_000)).unwrap();
    let done = stream.query().unwrap();
    let start = std::time::Instant::now();
    stream.synchronize().unwrap();
    let left = start.elapsed();
    assert!(!done || left.as_millis() < 1, "it was said to be done {left:?} before it was");
    assert!(stream.query().unwrap());
}

/// Sets an integer to one, with a program that may be of another context.
fn set_one(launch: &Launch<'_>, program: &OpenClProgram) -> Result<(), BackendError> {
    let buffer = launch.spans()[0].as_ref().unwrap().memory_as::<OpenClMemory>()?.buffer();
    Kernel::of(launch.driver_as()?, program)?.with(&buffer)?.enqueue(launch, 1)
}

#[test]
fn a_program_of_an_earlier_opening_is_a_mistake_of_its_user_and_no_loss() {
    const SOURCE: &str = "kernel void set_one(global int *value) { *value = 1; }";
    const NAME: &str = "a_program_of_an_earlier_opening_is_a_mistake_of_its_user_and_no_loss";
    // In its own process, as it closes the device.
    if !process::is_child() {
        return CHILD.passes(NAME, &[]);
    }
    let Some(device) = device_conformance::device_or_skip("opencl") else { return };
    let kept = Arc::new(Mutex::new(None));
    {
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
        let kept = Arc::clone(&kept);
        let built = stream.launch(&[&buffer], move |launch| {
            let program = launch.driver_as::<OpenClDevice>()?.build(SOURCE, "")?;
            set_one(launch, &program)?;
            *kept.lock().unwrap() = Some(program);
            Ok(())
        });
        built.unwrap();
        assert_eq!(*stream.read(&buffer, ..).unwrap().wait().unwrap(), ints([1]));
    }
    device.close().unwrap();

    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    let other = device.allocate(4).unwrap();
    let program = kept.lock().unwrap().take().unwrap();
    let error = stream.launch(&[&buffer], move |launch| set_one(launch, &program)).unwrap_err();
    assert_eq!(error.kind(), Some(BackendErrorKind::Invalid), "{error}");
    other.write(0, &ints([2])).unwrap();
    assert_eq!(*stream.read(&other, ..).unwrap().wait().unwrap(), ints([2]));
}

#[test]
fn each_kind_is_the_handle_of_its_type() {
    let Some(device) = device_conformance::device_or_skip("opencl") else { return };
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4096).unwrap());
    let part = buffer.slice(1024..2048).unwrap();
    let launched = stream.launch(&[&part], |launch| {
        let (span, native) = (launch.spans()[0].as_ref().unwrap(), launch.native_device());
        assert_eq!(handles::buffer(span)?, span.memory_as::<OpenClMemory>()?.buffer());
        let queue = launch.stream_as::<OpenClStream>()?.command_queue();
        assert_eq!(handles::command_queue(launch)?, queue);
        let typed = launch.driver_as::<OpenClDevice>()?;
        assert_eq!(handles::context(native)?, typed.context());
        assert_eq!(handles::device_id(native)?, typed.device_id());

        assert_eq!(span.native_handle("opencl.cl_mem")?, handles::buffer(span)?.addr() as u64);
        let missing = [
            span.native_handle("opencl.cl_context"),
            launch.native_stream("opencl.cl_mem"),
            native.handle("opencl.cl_mem"),
            native.handle("cl_context"),
        ];
        for missing in missing {
            let error = missing.unwrap_err();
            assert_eq!(error.kind(), BackendErrorKind::Unsupported, "{error}");
        }
        Ok(())
    });
    launched.unwrap();
    let context = device.with_driver(|device: &OpenClDevice| Ok(device.context().addr())).unwrap();
    assert_eq!(device.native_handle("opencl.cl_context").unwrap(), context as u64);
    assert!(device_registry::Device::cpu().with_native(|native| handles::context(native).map(drop)).is_err());
}

#[test]
fn a_kernel_on_native_handles_runs_and_keeps_its_context_after_a_close() {
    const NAME: &str = "a_kernel_on_native_handles_runs_and_keeps_its_context_after_a_close";
    // In its own process, as it closes the device.
    if !process::is_child() {
        return CHILD.passes(NAME, &[]);
    }
    let Some(device) = device_conformance::device_or_skip("opencl") else { return };
    let opened = device.with_native(|native| {
        let opened = OpenClDevice::from_native(native)?;
        assert_eq!(
            (opened.context(), opened.device_id()),
            (handles::context(native)?, handles::device_id(native)?)
        );
        Ok((opened.build(SCALE, "")?, opened))
    });
    let (program, opened) = opened.unwrap();
    {
        let opened = Arc::new(opened);
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(8).unwrap());
        stream.write(&buffer, 0, ints([5, 7])).unwrap();
        let of = Arc::clone(&opened);
        let launched = stream.launch(&[&buffer], move |launch| {
            let (buffer, queue) =
                (handles::buffer(launch.spans()[0].as_ref().unwrap())?, handles::command_queue(launch)?);
            let kernel = Kernel::of(&of, &program)?.with(&buffer)?.with(&0_u64)?.with(&3_i32)?;
            kernel.enqueue_to(queue, 2)
        });
        launched.unwrap();
        assert_eq!(*stream.read(&buffer, ..).unwrap().wait().unwrap(), ints([15, 21]));
        device.close().unwrap();
        device.open().unwrap();
        // The old context is still there, so that the new one has another address.
        opened.build(SCALE, "").unwrap();
        assert_ne!(device.native_handle("opencl.cl_context").unwrap(), opened.context().addr() as u64);
    }
    device.close().unwrap();
}

#[test]
fn a_malformed_kernel_is_an_error_with_the_compilers_log() {
    let Some(device) = device_conformance::device_or_skip("opencl") else { return };
    let stream = device.create_stream().unwrap();
    let refused = stream.launch(&[], |launch| {
        let driver = launch.driver_as::<OpenClDevice>()?;
        driver.build("kernel void broken(global int *x) { *x = no_such_name; }", "").map(drop)
    });
    let error = refused.unwrap_err();
    assert!(matches!(&error, DeviceError::Call { error, .. } if error.kind() == BackendErrorKind::Invalid));
    assert!(error.to_string().contains("no_such_name"), "{error}");

    // Nothing is left of it.
    let built = stream.launch(&[], |launch| launch.driver_as::<OpenClDevice>()?.build(SCALE, "").map(drop));
    built.unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn a_program_ends_while_its_device_works() {
    const NAME: &str = "a_program_ends_while_its_device_works";
    if !process::is_child() {
        return CHILD.passes(NAME, &[]);
    }
    let Some(device) = device_conformance::device_or_skip("opencl") else { return };
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(16 << 20).unwrap());
    for _ in 0..50 {
        stream.write(&buffer, 0, vec![1; 16 << 20]).unwrap();
    }
    let read = stream.read(&buffer, ..).unwrap();
    // Nothing is dropped or waited for, and the harness' other thread ends the process.
    std::mem::forget((stream, buffer, read));
}

#[test]
fn an_empty_program_has_no_kernels() {
    let Some(device) = device_conformance::device_or_skip("opencl") else { return };
    let stream = device.create_stream().unwrap();
    let launched = stream.launch(&[], |launch| {
        let device = launch.driver_as::<OpenClDevice>()?;
        let program = device.build("", "")?;
        // SAFETY: the program is valid, and the name ends with a zero.
        unsafe { device.functions().clCreateKernel(program.program(), c"scale".as_ptr()) }?;
        Ok(())
    });
    let error = launched.unwrap_err();
    assert_eq!(error.kind(), Some(BackendErrorKind::Invalid), "{error}");
    assert!(error.to_string().contains("clCreateKernel: CL_INVALID_"), "{error}");
}

#[test]
fn functions_without_a_method_are_looked_up_by_their_names() {
    type GetContextInfo =
        unsafe extern "system" fn(cl_context, cl_uint, usize, *mut std::ffi::c_void, *mut usize) -> cl_int;
    const CL_CONTEXT_NUM_DEVICES: cl_uint = 0x1083;
    let Some(device) = device_conformance::device_or_skip("opencl") else { return };
    let asked = device.with_driver(|device: &OpenClDevice| {
        let mut devices: cl_uint = 0;
        // SAFETY: the specification gives the function this type.
        let query = unsafe { device.functions().other::<GetContextInfo>("clGetContextInfo") }?;
        let (size, place) = (size_of_val(&devices), (&raw mut devices).cast());
        // SAFETY: the context is valid, and `devices` is a place for the number that this query writes.
        let status = unsafe { query(device.context(), CL_CONTEXT_NUM_DEVICES, size, place, ptr::null_mut()) };
        assert_eq!((status, devices), (CL_SUCCESS, 1));
        // SAFETY: it is not called.
        unsafe { device.functions().other::<GetContextInfo>("clNoSuchFunction") }?;
        Ok(())
    });
    let error = asked.unwrap_err();
    assert_eq!(error.kind(), Some(BackendErrorKind::Unsupported), "{error}");
    assert!(error.to_string().contains("clNoSuchFunction: the OpenCL loader does not have"), "{error}");
}

#[test]
fn what_a_device_says_of_itself_has_its_own_size() {
    let Some(device) = device_conformance::device_or_skip("opencl") else { return };
    let asked = device.with_driver(|device: &OpenClDevice| {
        assert_eq!(device.info(CL_DEVICE_MAX_COMPUTE_UNITS)?.len(), size_of::<cl_uint>());
        assert_eq!(device.info(CL_DEVICE_GLOBAL_MEM_SIZE)?.len(), size_of::<cl_ulong>());
        let name = device.info(CL_DEVICE_NAME)?;
        Ok((name, device.info(0xffff).unwrap_err()))
    });
    let (name, error) = asked.unwrap();
    let name = String::from_utf8_lossy(&name).trim_matches(['\0', ' ']).to_owned();
    assert_eq!(name, device.properties().unwrap().name);
    assert_eq!(error, OpenClError::new("clGetDeviceInfo", CL_INVALID_VALUE));
}

#[test]
fn a_program_gives_its_binary_and_refuses_queries_that_write_through_addresses() {
    const CL_PROGRAM_DEBUG_INFO_INTEL: cl_program_info = 0x4100;
    let Some(device) = device_conformance::device_or_skip("opencl") else { return };
    let asked = device.with_driver(|device: &OpenClDevice| {
        let program = device.build(SCALE, "")?;
        for what in [CL_PROGRAM_BINARIES, CL_PROGRAM_DEBUG_INFO_INTEL] {
            let error = program.info(what).unwrap_err();
            assert_eq!(error, OpenClError::new("clGetProgramInfo", CL_INVALID_VALUE));
        }
        Ok((program.info(CL_PROGRAM_BINARY_SIZES)?, program.binary()?))
    });
    let (size, binary) = asked.unwrap();
    let binary = binary.expect("PoCL and the drivers of GPUs have binaries");
    assert_eq!(size, binary.len().to_ne_bytes());
    assert!(binary.iter().any(|&byte| byte != 0));
}
