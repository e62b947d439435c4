//! Kernel sets of libraries that keep the rules and that do not, each with its whole message. The kernels of
//! others still work after each.

#![cfg(target_os = "linux")]

use std::error::Error;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use device_kernels::{Argument, Binary, Call, DType, Kernels, Layout, Operand, Unary, kernel_sets, run};
use device_plugin::{LoadedDevice, Plugins};
use device_registry::{Device, device};

mod common;

device_registry::autoload!();

/// The names of the library's kernel sets, each of which is wrong in its way.
const SETS: [&str; 15] = [
    "refuses",
    "later",
    "without_table",
    "without_launch",
    "without_rows",
    "null_row",
    "fails",
    "four",
    "next",
    "endless",
    "long_name",
    "no_utf8",
    "small_row",
    "invents",
    "shouts",
];

/// Installs the library's backend once for each of its kernel sets, under the name of the set. Its devices
/// can be open under one name at a time.
fn installed() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    static INSTALLED: std::sync::Once = std::sync::Once::new();
    INSTALLED.call_once(|| {
        let folder = tempfile::tempdir().expect("there is room").keep();
        let library = common::compile("broken", &folder);
        for set in SETS {
            common::manifest(&folder, "device.backends", set, "myc", "device-myc", &library);
            common::manifest(
                &folder,
                "device.kernels",
                set,
                &format!("myc__{set}"),
                "device-broken",
                &library,
            );
        }
        common::manifest(&folder, "device.kernels", "absent", "no_such_entry", "device-broken", &library);
        common::manifest(&folder, "device.kernels", "cpu__foreign", "myc__four", "device-broken", &library);
        common::manifest(&folder, "device.backends", "misled", "other", "device-myc", &library);
        common::manifest(&folder, "device.kernels", "misled", "myc__four", "device-broken", &library);
        // The kernels of `openreg` are linked, and take precedence.
        common::manifest(&folder, "device.kernels", "openreg", "myc__four", "device-broken", &library);
        let report = Plugins::new().folder(&folder).install().expect("the folder is absolute");
        assert_eq!((report.installed().len(), report.skipped().len()), (2 * SETS.len() + 5, 0), "{report}");
        let report = report.to_string();
        let unused = report.lines().find(|line| line.contains("`openreg` of `device.kernels`"));
        assert!(unused.is_some_and(|line| line.contains(", which is not used: ")), "{report}");
        assert!(report.contains("installed `four` of `device.kernels` (device-broken 0.1.0 in "), "{report}");
    });
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The message of an error, with its causes.
fn chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Adds two arrays of `n` elements.
fn add(device: Device, n: usize) -> Result<Vec<f32>, String> {
    let stream = device.create_stream().map_err(|error| chain(&error))?;
    let buffer = |of: f32| {
        let buffer = device.allocate(4 * n).unwrap();
        buffer.write(0, &of.to_ne_bytes().repeat(n)).unwrap();
        buffer
    };
    let (a, b, out) = (buffer(1.0), buffer(2.5), buffer(0.0));
    let operand = |buffer| Operand::new(buffer, DType::F32, [n]).unwrap();
    let outcome = run(&stream, Binary::Add, &[operand(&a), operand(&b)], &[operand(&out)]);
    outcome.map_err(|error| chain(&error))?;
    stream.synchronize().map_err(|error| chain(&error))?;
    let mut bytes = vec![0; 4 * n];
    out.read(0, &mut bytes).unwrap();
    Ok(bytes.chunks(4).map(|four| f32::from_ne_bytes(four.try_into().unwrap())).collect())
}

#[test]
fn a_set_that_does_not_load_is_an_error_that_says_why() {
    let _turn = installed();
    for (set, expected) in [
        ("refuses", "there is no compiler"),
        ("later", "expected version 0.1 of the interface of kernels, found 7.1"),
        ("without_table", "the table `dk_set_api` of the plugin is null"),
        ("without_launch", "the plugin does not have the function `dk_set_api.launch`, which is required"),
        ("without_rows", "`dk_set_api.kernels` is NULL, and `kernel_count` is 3"),
        ("null_row", "the table `dk_kernel` of the plugin is null"),
        ("endless", "`dk_set_api.kernels` has 18446744073709551615 rows; expected at most 4096"),
        ("long_name", "the name of a kernel: the plugin passed a text of 18446744073709551615 bytes"),
        (
            "small_row",
            "the table `dk_kernel` of the plugin has a `struct_size` of 8, which no table can have",
        ),
        (
            "next",
            "requires version 0.99 of the interface; this program has 0.3, so it has to be built with a \
                  later `device-plugin`",
        ),
    ] {
        let error = chain(&Kernels::of(device(set).unwrap()).unwrap_err());
        assert!(error.contains(expected), "{set}: {error}");
        assert!(error.contains(&format!("kernel set `{set}` (device-broken 0.1.0 in ")), "{error}");
    }
    let error = chain(&kernel_sets().load("absent").err().expect("there is no such entry"));
    assert!(error.contains("offers `myc__refuses`, `myc__later`"), "{error}");
}

#[test]
fn only_calls_that_are_supported_are_launched() {
    let _turn = installed();
    let four = device("four:1").unwrap();
    assert_eq!(add(four, 4), Ok(vec![3.5; 4]));
    let error = add(four, 5).unwrap_err();
    assert!(error.contains("no kernel"), "{error}");
    // The rows do not have it, whatever the function says.
    let stream = four.create_stream().unwrap();
    let buffer = four.allocate(16).unwrap();
    let operand = Operand::new(&buffer, DType::F32, [4]).unwrap();
    let error = run(&stream, Unary::Exp, &[operand], &[operand]).unwrap_err().to_string();
    assert!(error.contains("no kernel"), "{error}");
    four.close().unwrap();
}

#[test]
fn a_kernel_that_fails_is_named_with_its_library_and_the_stream_continues() {
    let _turn = installed();
    let fails = device("fails:0").unwrap();
    for _ in 0..2 {
        let error = add(fails, 3).unwrap_err();
        for part in [
            "the kernel set fails (device-broken 0.1.0) failed at add(f32 [3], f32 [3]) -> f32 [3]",
            "the kernel is not in the mood",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
    let loaded = |device: &LoadedDevice| Ok(!device.object().is_null());
    assert!(fails.with_driver(loaded).unwrap());
    fails.close().unwrap();
}

#[test]
fn a_status_a_report_or_a_name_that_is_none_is_an_error_and_no_more() {
    let _turn = installed();
    for (set, expected) in [
        ("invents", "the plugin reported status 77, which the interface does not have, without a message"),
        ("shouts", "the plugin passed a text of 18446744073709551615 bytes; expected at most 65536"),
        ("no_utf8", "no kernel"),
    ] {
        let device = device(set).unwrap();
        let error = add(device, 3).unwrap_err();
        assert!(error.contains(expected), "{set}: {error}");
        device.close().unwrap();
    }
}

#[test]
fn kernels_of_a_library_are_for_its_own_backend_alone() {
    let _turn = installed();
    let set = kernel_sets().get("cpu__foreign").expect("it is installed");
    assert!(set.file().is_some_and(Path::is_absolute));
    let array = Argument::Array(DType::F32, Layout::contiguous([4]).unwrap());
    let call = Call::new(Binary::Add, &[array, array], &[array]).unwrap();
    let (foreign, own) = (set.load().unwrap(), kernel_sets().load("four").unwrap());
    assert!(foreign.coverage(Device::cpu()).iter().any(|coverage| coverage.covers(&call)));
    assert!(!foreign.supports(Device::cpu(), &call) && own.supports(device("four:0").unwrap(), &call));
    // The set of `cpu` does it, which is asked after that one.
    assert_eq!(add(Device::cpu(), 4), Ok(vec![3.5; 4]));
}

#[test]
fn kernels_for_another_backend_of_their_library_are_an_error() {
    let _turn = installed();
    let misled = device("misled:0").unwrap();
    let error = add(misled, 4).unwrap_err();
    let parts = [
        "the kernels `myc__four` of the library ",
        "libbroken.so are for its backend `myc`, and `misled:0` is a device of its backend `other`: set `name` in \
         the manifest of the kernels to the name",
    ];
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    misled.close().unwrap();
}

#[test]
fn the_report_names_each_set_with_its_file() {
    let _turn = installed();
    let report = kernel_sets().report().to_string();
    for set in SETS {
        let mut lines = report.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = lines.find(|words| words.first() == Some(&set) && words.get(1) == Some(&"device-broken"));
        assert!(line.is_some_and(|words| words.join(" ").ends_with("libbroken.so")), "{set}: {report}");
    }
}
