//! Whether burn's CPU engine may do an operation, and what is counted. The policy is the process's, so that
//! each one has its own process; the device of a count is used by one test at a time.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use burn::tensor::{Device, Distribution, Tensor};
use device_burn::{Counts, Fallback};

#[path = "common/child.rs"]
mod child;

device_registry::autoload!();

const DEVICE: &str = "openreg:0";

/// One test at a time counts.
static ONE: Mutex<()> = Mutex::new(());

fn matrix(device: &Device) -> Tensor<2> {
    Tensor::from_floats([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device)
}

fn error<const D: usize>(tensor: Tensor<D>) -> String {
    tensor.try_into_data().unwrap_err().to_string()
}

/// Native, views, fallback, failed, downloads, bytes to the host, uploads, bytes to the device.
type Row = [u64; 8];

fn rows(counts: &Counts) -> BTreeMap<&str, Row> {
    let row = |count: &device_burn::OperationCount| {
        let moved = count.moved;
        let calls = [count.native, count.views, count.fallback, count.failed];
        let moves = [moved.downloads, moved.bytes_to_host, moved.uploads, moved.bytes_to_device];
        [calls, moves].concat().try_into().unwrap()
    };
    counts.operations.iter().map(|count| (count.operation.as_str(), row(count))).collect()
}

/// Two native operations, a view, four on the CPU, and one that fails.
fn little_program(device: &Device) {
    let (a, b) = (matrix(device), matrix(device));
    let sum = a.clone() + b;
    let product = sum.clone() * a;
    let exp = product.swap_dims(0, 1).exp();
    let more = (exp + 1.0) + 2.0;
    more.try_into_data().unwrap();
    sum.try_into_data().unwrap();
    std::panic::set_hook(Box::new(|_| {}));
    error(Tensor::<2>::zeros([0, 3], device).max());
    let _ = std::panic::take_hook();
}

#[test]
fn kernels_with_a_name_of_their_own_are_counted_by_it() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let device = device_burn::device(DEVICE).unwrap();
    device_burn::reset_counts(DEVICE).unwrap();
    let quotient = matrix(&device) / (matrix(&device) * matrix(&device));
    (quotient / matrix(&device)).into_data();
    let counts = device_burn::counts(DEVICE).unwrap();
    let [launch] = &counts.launches[..] else { panic!("{counts}") };
    assert_eq!((launch.operators.as_str(), launch.times), ("div of a few", 2));
    assert!(counts.to_string().contains("div of a few"), "{counts}");
}

#[test]
fn the_counts_of_a_program_are_what_it_did() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let device = device_burn::device(DEVICE).unwrap();
    device_burn::reset_counts(DEVICE).unwrap();
    let start = Instant::now();
    little_program(&device);
    let elapsed = start.elapsed();

    let counts = device_burn::counts("openreg").unwrap();
    assert_eq!(counts.device, DEVICE);
    let expected = BTreeMap::from([
        // Both operands have 24 bytes.
        ("NumericFloat.Add", [1, 0, 0, 0, 0, 0, 2, 48]),
        ("NumericFloat.Mul", [1, 0, 0, 0, 0, 0, 0, 0]),
        ("BaseFloat.SwapDims", [0, 1, 0, 0, 0, 0, 0, 0]),
        ("Float.Exp", [0, 0, 1, 0, 1, 24, 0, 0]),
        ("NumericFloat.AddScalar", [0, 0, 2, 0, 0, 0, 0, 0]),
        ("Tensor.Read", [0, 0, 0, 0, 1, 24, 0, 0]),
        ("BaseFloat.Zeros", [0, 0, 1, 0, 0, 0, 0, 0]),
        ("NumericFloat.Max", [0, 0, 0, 1, 0, 0, 0, 0]),
    ]);
    assert_eq!(rows(&counts), expected, "{counts}");
    assert_eq!((counts.native(), counts.fallbacks()), (2, 4));
    let moved = counts.moved();
    assert_eq!((moved.downloads, moved.bytes_to_host, moved.uploads, moved.bytes_to_device), (2, 48, 2, 48));

    for count in &counts.operations {
        assert_eq!(count.time.is_zero(), count.fallback == 0, "only the CPU's time counts: {count:?}");
    }
    assert!(counts.operations.is_sorted_by(|a, b| a.time >= b.time));
    assert!(counts.operations.iter().map(|count| count.time).sum::<std::time::Duration>() <= elapsed);
}

#[test]
fn the_counts_begin_again_after_a_reset() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let device = device_burn::device(DEVICE).unwrap();
    let of_other = || rows(&device_burn::counts("openreg:1").unwrap()).get("Float.Exp").copied();
    let before = of_other();
    matrix(&device).exp().try_into_data().unwrap();
    device_burn::reset_counts(DEVICE).unwrap();
    let counts = device_burn::counts(DEVICE).unwrap();
    assert!(counts.operations.is_empty(), "{counts}");
    assert_eq!(counts.to_string(), "no operations on openreg:0");
    matrix(&device).exp().try_into_data().unwrap();
    assert_eq!(rows(&device_burn::counts(DEVICE).unwrap())["Float.Exp"][2], 1);
    assert_eq!(of_other(), before, "each device counts its own");
}

#[test]
fn the_table_has_a_line_for_each_operation_and_a_total() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let device = device_burn::device(DEVICE).unwrap();
    device_burn::reset_counts(DEVICE).unwrap();
    little_program(&device);
    let counts = device_burn::counts(DEVICE).unwrap();
    let table = counts.to_string();
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0].join(" "), "operations on openreg:0");
    let head = "operation native fused host views fallback failed time to host to device";
    assert_eq!(lines[1].join(" "), head, "{table}");
    let widths: Vec<_> = table.lines().skip(1).map(str::len).collect();
    assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "the columns are aligned:\n{table}");

    let (total, operations) = lines[2..].split_last().unwrap();
    assert_eq!(operations.len(), counts.operations.len());
    for (line, count) in operations.iter().zip(&counts.operations) {
        let numbers = [count.native, count.fused, count.host, count.views, count.fallback, count.failed]
            .map(|number| number.to_string());
        assert_eq!(line[0], count.operation);
        assert_eq!(line[1..7], numbers, "{table}");
        assert_eq!(line[8], "ms");
        assert_eq!(
            line[9..].join(" "),
            format!("{} B {} B", count.moved.bytes_to_host, count.moved.bytes_to_device)
        );
    }
    assert_eq!(total[..7], ["total", "2", "0", "0", "1", "4", "1"], "{table}");
    assert_eq!(total[9..].join(" "), "48 B 48 B", "{table}");
}

#[test]
fn the_json_has_the_same_numbers() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let device = device_burn::device(DEVICE).unwrap();
    device_burn::reset_counts(DEVICE).unwrap();
    little_program(&device);
    let counts = device_burn::counts(DEVICE).unwrap();
    let json: serde_json::Value = serde_json::from_str(&counts.to_json()).unwrap();
    assert_eq!(json["device"], DEVICE);
    let operations = json["operations"].as_array().unwrap();
    assert_eq!(operations.len(), counts.operations.len());
    for (json, count) in operations.iter().zip(&counts.operations) {
        let expected = serde_json::json!({
            "operation": count.operation,
            "native": count.native,
            "fused": count.fused,
            "views": count.views,
            "host": count.host,
            "fallback": count.fallback,
            "failed": count.failed,
            "time": { "secs": count.time.as_secs(), "nanos": count.time.subsec_nanos() },
            "moved": {
                "downloads": count.moved.downloads,
                "bytes_to_host": count.moved.bytes_to_host,
                "uploads": count.moved.uploads,
                "bytes_to_device": count.moved.bytes_to_device,
            },
        });
        assert_eq!(*json, expected);
    }
}

#[test]
fn deny_by_the_variable_is_an_error_of_each_operation_without_a_kernel() {
    child::run("child_that_denies", &[("DEVICE_BURN_FALLBACK", " Deny ")]);
}

#[test]
fn deny_by_code_goes_before_the_variable() {
    let variables = [("DEVICE_BURN_FALLBACK", "allow"), ("SET_BY_CODE", "1")];
    child::run("child_that_denies", &variables);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_that_denies() {
    if std::env::var_os("SET_BY_CODE").is_some() {
        assert_eq!(Fallback::current(), Ok(Fallback::Allow));
        Fallback::Deny.set();
    }
    assert_eq!(Fallback::current(), Ok(Fallback::Deny));
    let device = device_burn::device(DEVICE).unwrap();
    let a = matrix(&device);

    let message = error(a.clone().exp());
    let begin = "Float.Exp(f32 [2, 3]) -> f32 [2, 3] on openreg:0 failed: no kernel of the device does it";
    assert!(message.contains(begin), "{message}");
    assert!(message.contains("DEVICE_BURN_FALLBACK=allow"), "it says what to do: {message}");
    // The kernels have neither a broadcast, nor a view whose elements lie apart, nor another type.
    assert!(
        error(a.clone() + a.clone().narrow(0, 0, 1)).contains("NumericFloat.Add(f32 [2, 3], f32 [1, 3])")
    );
    assert!(error(a.clone().transpose() + a.clone().transpose()).contains("no kernel of the device does it"));
    let random = error(Tensor::<2>::random([2, 3], Distribution::Default, &device));
    assert!(random.contains("Random() -> f32 [2, 3] on openreg:0 failed"), "{random}");
    drop(Tensor::<1>::zeros([3], &device));
    assert!(device.sync().unwrap_err().to_string().contains("Zeros"), "sync has those that nothing read");
    let failed: u64 = device_burn::counts(DEVICE).unwrap().operations.iter().map(|count| count.failed).sum();
    assert_eq!((failed, device_burn::counts(DEVICE).unwrap().fallbacks()), (5, 0));

    let twice = ((a.clone() + a.clone()) * a.clone() - a.clone()) / a.clone();
    let data = twice.transpose().try_into_data().unwrap();
    assert_eq!(data.try_to_vec::<f32>().unwrap(), [1.0, 7.0, 3.0, 9.0, 5.0, 11.0]);
    assert_eq!(device_burn::counts(DEVICE).unwrap().native(), 4);

    Fallback::Allow.set();
    a.exp().try_into_data().unwrap();
}

/// The warnings of the backend.
struct Warnings(Mutex<Vec<String>>);

static WARNINGS: Warnings = Warnings(Mutex::new(Vec::new()));

impl log::Log for Warnings {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.level() == log::Level::Warn && record.target().starts_with("device_burn") {
            self.0.lock().unwrap().push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

#[test]
fn warn_logs_each_operation_of_a_device_once() {
    child::run("child_that_warns", &[("DEVICE_BURN_FALLBACK", "warn")]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_that_warns() {
    log::set_logger(&WARNINGS).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let take = || std::mem::take(&mut *WARNINGS.0.lock().unwrap());
    let device = device_burn::device(DEVICE).unwrap();
    let a = matrix(&device);
    (a.clone() + a.clone()).swap_dims(0, 1).try_into_data().unwrap();
    assert_eq!(take(), [""; 0], "kernels and views are no fallback");

    for _ in 0..3 {
        ((a.clone() + 1.0).exp() + 1.0).try_into_data().unwrap();
    }
    let warnings = take();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("NumericFloat.AddScalar") && warnings[0].contains(DEVICE), "{warnings:?}");
    assert!(warnings[1].contains("Float.Exp") && warnings[1].contains(DEVICE), "{warnings:?}");

    let other = device_burn::device("openreg:1").unwrap();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let other = other.clone();
            std::thread::spawn(move || matrix(&other).exp().try_into_data().unwrap())
        })
        .collect();
    threads.into_iter().for_each(|thread| drop(thread.join().unwrap()));
    let warnings = take();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("openreg:1"), "{warnings:?}");
}
