//! Programs are compiled once for a device. The counts are of the process, so that this is one test.

use std::sync::Arc;
use std::time::Duration;

use device_conformance::process;
use device_kernels::{Binary, DType, Expression, Kernels, Operand, Unary, run};
use device_opencl_kernels::compilations;
use device_registry::activity::{self, Activity, Batch, Observer};
use parking_lot::Mutex;

device_registry::autoload!();

/// An observer that keeps the names of spans.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<String>>>);

impl Observer for Spans {
    fn observe(&self, batch: &Batch) {
        let names = batch.records.iter().filter_map(|record| match record.activity {
            Activity::Entered { name, .. } => Some(name.to_string()),
            _ => None,
        });
        self.0.lock().extend(names);
    }
}

#[test]
fn a_program_is_compiled_once_also_if_the_device_is_opened_again_or_threads_race() {
    let Some(device) = device_conformance::device_or_skip("opencl") else { return };
    if !process::is_child() {
        // Another process may have kept the programs.
        let test = "a_program_is_compiled_once_also_if_the_device_is_opened_again_or_threads_race";
        return process::passes(test, |child| child.env("DEVICE_PROGRAM_CACHE", "0"));
    }
    let sets = Kernels::of(device).unwrap().sets();
    assert_eq!(sets.len(), 1, "the set is linked by its line in Cargo.toml: {sets:?}");
    assert!(sets[0].to_string().starts_with("opencl (device-opencl-kernels "), "{}", sets[0]);

    let add = |len: usize, by: f64| {
        let stream = device.create_stream().unwrap();
        let buffer = device.allocate(4 * len).unwrap();
        buffer.write(0, &vec![0; 4 * len]).unwrap();
        let line = Operand::new(&buffer, DType::F32, [len]).unwrap();
        run(&stream, Binary::Add, &[line, by.into()], &[line]).unwrap();
        let bytes = stream.read(&buffer, ..).unwrap().wait().unwrap();
        assert!(bytes.chunks_exact(4).all(|x| x == (by as f32).to_ne_bytes()), "{len} {by}");
    };
    let spans = Spans::default();
    let _observation = activity::observe("spans", spans.clone()).unwrap();
    assert_eq!(compilations(), 0);
    add(10, 1.0);
    assert_eq!(compilations(), 1);
    // Sizes and values are arguments.
    add(100_000, 2.0);
    assert_eq!(compilations(), 1);

    // The new context makes the program from the binary of the old one.
    for by in [3.0, 4.0] {
        device.close().unwrap();
        add(10, by);
        add(1000, by);
        assert_eq!(compilations(), 1, "after a close");
    }

    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let stream = device.create_stream().unwrap();
                let buffer = device.allocate(400).unwrap();
                let line = Operand::new(&buffer, DType::BF16, [200]).unwrap();
                run(&stream, Unary::Sinh, &[line], &[line]).unwrap();
                stream.synchronize().unwrap();
            });
        }
    });
    assert_eq!(compilations(), 2, "threads that need one program");

    // Sizes, and inputs that are scalars, are arguments of an expression's program too.
    let softmax = Expression::build(|e| {
        let scaled = e.input(DType::F32) * e.input(DType::F32);
        let powers = (scaled - scaled.max([1])).exp();
        e.output(powers / powers.sum([1]));
    });
    let stream = device.create_stream().unwrap();
    for (rows, len, scale) in [(10, 200, 1.0), (30, 100, 2.0)] {
        let buffer = device.allocate(4 * rows * len).unwrap();
        buffer.write(0, &vec![0; 4 * rows * len]).unwrap();
        let array = Operand::new(&buffer, DType::F32, [rows, len]).unwrap();
        run(&stream, softmax.clone().unwrap(), &[array, scale.into()], &[array]).unwrap();
        let bytes = stream.read(&buffer, ..).unwrap().wait().unwrap();
        let expected = (len as f32).recip().to_ne_bytes();
        assert!(bytes.chunks_exact(4).all(|x| x == expected), "{rows} {len}");
    }
    assert_eq!(compilations(), 3, "an expression of two sizes");

    // A trace has each compilation beside the kernels.
    assert!(activity::flush(Duration::from_secs(60)));
    let spans = spans.0.lock();
    let compiled: Vec<_> = spans.iter().filter(|name| name.starts_with("compile ")).collect();
    assert_eq!(compiled.len(), 3, "{spans:?}");
    assert!(compiled[0] == "compile add" && compiled[1] == "compile sinh", "{spans:?}");
    assert_eq!(spans[1], "first run of add", "{spans:?}");
}
