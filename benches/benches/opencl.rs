//! The same work through device-registry and directly on OpenCL, taking turns, so that whatever else the
//! machine does meets both. For each the median of the ratios is printed, ours to the other: below 1.03 a
//! copy has 0.97 of the direct speed.
//!
//! An empty operation is a marker: the one command that does nothing. Opening is what leads to a first marker
//! that is done: platforms, devices, context, queue. It is measured in processes of its own, as only the
//! first is what a program waits for; and once more in a process that has done it before.

use std::cell::RefCell;
use std::hint::black_box;
use std::process::Command;
use std::ptr;
use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group};
use device_opencl::sys::*;
use device_opencl::{OpenClDevice, OpenClError, OpenClFunctions, OpenClMemory};
use device_registry::{Buffer, Device, device};
use device_registry_benches::{beside, keep_on};

device_registry::autoload!();

const SIZES: [usize; 3] = [64 << 10, 1 << 20, 16 << 20];

/// OpenCL without the registry.
struct Direct {
    cl: &'static OpenClFunctions,
    context: cl_context,
    queue: cl_command_queue,
}

impl Direct {
    /// A queue beside the registry's, in the same context, so that both copy from and to the same
    /// memory.
    fn beside(device: Device) -> Self {
        let handles = |driver: &OpenClDevice| Ok((driver.functions(), driver.context(), driver.device_id()));
        let (cl, context, device) = device.with_driver(handles).expect("it is open");
        Self { cl, context, queue: queue(cl, context, device) }
    }

    fn open(cl: &'static OpenClFunctions, platform: cl_platform_id, device: cl_device_id) -> Self {
        let properties = [CL_CONTEXT_PLATFORM, platform as cl_context_properties, 0];
        // SAFETY: the device is the platform's, the properties end with a zero, and there is no callback.
        let context =
            expect(unsafe { cl.clCreateContext(properties.as_ptr(), 1, &device, None, ptr::null_mut()) });
        Self { cl, context, queue: queue(cl, context, device) }
    }

    fn do_nothing(&self) {
        let mut marker = ptr::null_mut();
        // SAFETY: no list of events is given, and `marker` is a place for an event.
        unsafe {
            expect(self.cl.clEnqueueMarkerWithWaitList(self.queue, 0, ptr::null(), &mut marker));
            expect(self.cl.clFinish(self.queue));
        }
        self.release(marker);
    }

    fn release(&self, event: cl_event) {
        // SAFETY: it belongs to a command, and is not needed here.
        expect(unsafe { self.cl.clReleaseEvent(event) });
    }
}

fn queue(cl: &OpenClFunctions, context: cl_context, device: cl_device_id) -> cl_command_queue {
    let list = [CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0];
    // SAFETY: the device is the context's, and the list ends with a zero.
    expect(unsafe { cl.clCreateCommandQueueWithProperties(context, device, list.as_ptr()) })
}

fn memory(buffer: &Buffer) -> cl_mem {
    let span = buffer.span().expect("it has bytes");
    span.memory_as::<OpenClMemory>().expect("it is of this backend").buffer()
}

fn expect<T>(result: Result<T, OpenClError>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

fn copies(criterion: &mut Criterion, device: Device, direct: &Direct) {
    for len in SIZES {
        let mut group = criterion.benchmark_group(format!("{}/{len}", device.name()));
        group.throughput(Throughput::Bytes(len as u64));
        // Write to all of it: pages that were never written to are one shared page.
        let (source, destination) = (vec![1_u8; len], RefCell::new(vec![2_u8; len]));
        let [buffer, other] = [(), ()].map(|()| device.allocate(len).expect("there is memory"));
        let [plain, plain_other] = [&buffer, &other].map(memory);
        let (cl, queue, none) = (direct.cl, direct.queue, ptr::null());
        let with_event = |enqueue: &dyn Fn(*mut cl_event) -> Result<(), OpenClError>| {
            let mut event = ptr::null_mut();
            expect(enqueue(&mut event));
            direct.release(event);
        };

        let write = || buffer.write(0, black_box(&source)).expect("it is all of it");
        let direct_write = || {
            let start = black_box(&source).as_ptr().cast();
            // SAFETY: `source` is as long, and the call waits.
            with_event(&|event| unsafe {
                cl.clEnqueueWriteBuffer(queue, plain, CL_BLOCKING, 0, len, start, 0, none, event)
            });
        };
        beside(&mut group, "write", write, direct_write);

        let read = || buffer.read(0, black_box(&mut destination.borrow_mut())).expect("it is all of it");
        let direct_read = || {
            let start = black_box(&mut destination.borrow_mut()).as_mut_ptr().cast();
            // SAFETY: `destination` is as long, and the call waits.
            with_event(&|event| unsafe {
                cl.clEnqueueReadBuffer(queue, plain, CL_BLOCKING, 0, len, start, 0, none, event)
            });
        };
        beside(&mut group, "read", read, direct_read);

        let copy = || other.copy_from(&buffer).expect("it is all of both");
        let direct_copy = || {
            // SAFETY: both are as long, and it is waited for.
            with_event(&|event| unsafe {
                cl.clEnqueueCopyBuffer(queue, plain, plain_other, 0, 0, len, 0, none, event)
            });
            // SAFETY: the queue is valid.
            expect(unsafe { cl.clFinish(queue) });
        };
        beside(&mut group, "copy", copy, direct_copy);

        // The cost of zeroing new memory. It includes a use, as many drivers allocate at the first use.
        let allocate = || drop(black_box(device.allocate(len).expect("there is memory")));
        let direct_allocate = || {
            // SAFETY: the memory is OpenCL's own, the write waits, and there is no other handle of the
            // buffer.
            unsafe {
                let (flags, no_host) = (CL_MEM_READ_WRITE, ptr::null_mut());
                let buffer = expect(cl.clCreateBuffer(direct.context, flags, len, no_host));
                let zero = [0_u8].as_ptr().cast();
                with_event(&|event| {
                    cl.clEnqueueWriteBuffer(queue, buffer, CL_BLOCKING, 0, 1, zero, 0, none, event)
                });
                expect(cl.clReleaseMemObject(buffer));
            }
        };
        beside(&mut group, "allocate and use", allocate, direct_allocate);
    }
}

fn empty_operations(criterion: &mut Criterion, device: Device, direct: &Direct) {
    let mut group = criterion.benchmark_group(device.name());
    let stream = device.create_stream().expect("it is open");
    let ours = || {
        let marker = stream.record().expect("it is submitted");
        stream.synchronize().expect("it is done");
        drop(marker);
    };
    beside(&mut group, "marker and synchronize", ours, || direct.do_nothing());
}

/// The platform whose name comes first: its first device is `opencl:0`.
fn first_platform(cl: &OpenClFunctions) -> cl_platform_id {
    let (mut platforms, mut count) = ([ptr::null_mut(); 16], 0);
    // SAFETY: `platforms` has places for 16 handles, and `count` for a number.
    expect(unsafe { cl.clGetPlatformIDs(16, platforms.as_mut_ptr(), &mut count) });
    let name = |platform: &cl_platform_id| {
        let mut name = [0_u8; 256];
        let place = name.as_mut_ptr().cast();
        // SAFETY: the platform is valid, and `name` is a place of that many bytes.
        expect(unsafe {
            cl.clGetPlatformInfo(*platform, CL_PLATFORM_NAME, name.len(), place, ptr::null_mut())
        });
        name
    };
    platforms.into_iter().take(count as usize).min_by_key(name).expect("there is one")
}

/// Opens `opencl:0` without a registry.
fn open_directly() {
    let cl = OpenClFunctions::open().unwrap_or_else(|reason| panic!("{reason}"));
    let platform = first_platform(cl);
    let mut device = ptr::null_mut();
    // SAFETY: the platform is valid, and `device` is a place for one handle.
    expect(unsafe { cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &mut device, ptr::null_mut()) });
    let direct = Direct::open(cl, platform, device);
    direct.do_nothing();
    // SAFETY: both were made above, are released once, and are not used afterwards.
    unsafe {
        expect(cl.clReleaseCommandQueue(direct.queue));
        expect(cl.clReleaseContext(direct.context));
    }
}

fn open_by_the_registry(device: Device) {
    let stream = device.create_stream().expect("it is there");
    drop(stream.record().expect("it is submitted"));
    stream.synchronize().expect("it is done");
    drop(stream);
    device.close().expect("it has nothing to do");
}

fn opening(criterion: &mut Criterion, device: Device) {
    let mut group = criterion.benchmark_group(device.name());
    beside(&mut group, "open and close again", || open_by_the_registry(device), open_directly);
}

/// Says which of the two ways a process of its own is to go.
const FIRST: &str = "OPENCL_BENCH_FIRST";

/// Goes that way, and prints how long it took.
fn open_first(way: &str) {
    let start = Instant::now();
    match way {
        "registry" => open_by_the_registry(device("opencl").expect("it is linked")),
        _ => open_directly(),
    }
    println!("{}", start.elapsed().as_nanos());
}

fn opening_first() {
    let open = |way| {
        let program = std::env::current_exe().expect("it has a file");
        let output = Command::new(program).env(FIRST, way).output().expect("it starts");
        let printed = String::from_utf8_lossy(&output.stdout);
        printed.trim().parse::<f64>().unwrap_or_else(|_| panic!("{printed}: {output:?}"))
    };
    let mut rounds: Vec<_> = (0..40)
        .map(|round| {
            let (direct, ours) = match round % 2 {
                0 => (open("direct"), open("registry")),
                _ => {
                    let ours = open("registry");
                    (open("direct"), ours)
                }
            };
            (ours / direct, ours)
        })
        .collect();
    rounds.sort_by(|left, right| left.0.total_cmp(&right.0));
    let [low, (ratio, ours), high] = [1, 2, 3].map(|quarter| rounds[rounds.len() * quarter / 4]);
    println!("opencl/open first       {:.1} ms", ours / 1e6);
    println!("                        ratio: {ratio:.3} ({:.3} to {:.3})", low.0, high.0);
}

fn beside_opencl(criterion: &mut Criterion) {
    let Some(device) = device_conformance::device_or_skip("opencl") else { return };
    let direct = Direct::beside(device);
    copies(criterion, device, &direct);
    empty_operations(criterion, device, &direct);
    opening(criterion, device);
}

criterion_group!(benches, beside_opencl);

fn main() {
    // And those that the driver starts. The work of a driver on the processor is done by another thread, and
    // what it costs to wake that one depends on where it runs: more than all that is measured here.
    keep_on(0);
    if let Ok(way) = std::env::var(FIRST) {
        return open_first(&way);
    }
    benches();
    let is_test = std::env::args().any(|argument| argument == "--test");
    if !is_test && device_conformance::device_or_skip("opencl").is_some() {
        opening_first();
    }
    Criterion::default().configure_from_args().final_summary();
}
