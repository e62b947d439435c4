//! What is wrong with a library is the error of its own backend, and of no other.
#![cfg(feature = "load")]

mod common;

use std::fs;
use std::path::Path;

use common::{folder, manifest, set_mode, write};
use device_plugin::Plugins;
use device_registry::registry::Switches;
use device_registry::{DeviceError, backends, device};

/// The tests of this file share one process, and the first install reads the switches.
fn turn_off_one() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        backends().configure(Switches { disable: vec!["off".into()], ..Switches::default() }).unwrap();
    });
}

#[test]
fn the_report_says_which_backends_are_not_used() {
    turn_off_one();
    let (_kept, path) = folder();
    let file = |name: &str| path.join(name).display().to_string();
    for (at, name) in ["off", "twice", "twice"].into_iter().enumerate() {
        let library = format!("{at}.so");
        write(&path.join(format!("{at}.plugin.json")), manifest(name, Path::new(&library), ""));
    }
    let report = Plugins::new().folder(&path).install().unwrap();
    let expected = format!(
        "searched for backends in files: {} (3 manifests)
installed `off` (device-off 1.2.0 in {}), which is not used: disabled by the program (Switches::disable = [\"off\"])
installed `twice` (device-twice 1.2.0 in {})
installed `twice` (device-twice 1.2.0 in {second}), which is not used: duplicate of device-twice 1.2.0 in {first}",
        path.display(),
        file("0.so"),
        file("1.so"),
        first = file("1.so"),
        second = file("2.so"),
    );
    assert_eq!(report.to_string(), expected);
}

#[test]
fn a_library_that_is_not_opened_is_the_failure_of_its_backend() {
    turn_off_one();
    let (_kept, path) = folder();
    let add = |name: &str, library: &str, more: &str| {
        write(&path.join(format!("{name}.plugin.json")), manifest(name, Path::new(library), more));
    };
    write(&path.join("text.so"), "INPUT(-lacme)\n");
    write(&path.join("open.so"), "");
    set_mode(&path.join("open.so"), 0o666);
    fs::create_dir(path.join("folder.so")).unwrap();
    add("absent", "absent.so", "");
    add("text", "text.so", "");
    add("open", "open.so", "");
    add("folder", "folder.so", "");
    let zeroes = format!(r#", "sha256": "{}""#, "0".repeat(64));
    add("changed", "text.so", &zeroes);
    add("cpu", "absent.so", "");
    let copy = manifest("absent", Path::new("other.so"), "");
    write(&path.join("zz.plugin.json"), copy);
    let report = Plugins::new().folder(&path).install().unwrap();

    // The name of a built-in backend is refused at once.
    let [cpu] = report.skipped() else { panic!("{report}") };
    assert!(cpu.what().ends_with("cpu.plugin.json"), "{cpu}");
    assert!(cpu.reason().contains("`cpu` is a built-in or reserved name"), "{cpu}");
    device("cpu").unwrap().allocate(1).unwrap();

    let failure = |name: &str| {
        let error = device(name).unwrap().allocate(1).unwrap_err();
        assert!(matches!(error, DeviceError::Backend(_)), "{error}");
        let text = error.to_string();
        // Neither the message nor the chain of causes says anything twice.
        assert_eq!(format!("{error:?}"), text);
        text
    };
    let file = |name: &str| path.join(name).display().to_string();
    let (absent, json) = (file("absent.so"), file("absent.plugin.json"));
    let start =
        format!("backend `absent` (device-absent 1.2.0 in {absent}) failed to load: cannot open `{absent}`");
    let error = failure("absent");
    assert!(error.starts_with(&format!("{start}, which the manifest `{json}` names: ")), "{error}");
    let error = failure("text");
    let text = file("text.so");
    assert!(
        error.contains(&format!(
            "failed to load: `{text}` is a text that begins with `INPUT(-lacme)`; expected"
        )),
        "{error}"
    );
    assert!(failure("folder").contains("expected a regular file, found a folder"));
    assert!(failure("changed").contains("is not the file that its manifest describes: its SHA-256 is "));
    if cfg!(unix) {
        assert!(failure("open").contains("can be written to by others (mode 666)"));
    }

    let table = backends().report().to_string();
    let row = table.lines().find(|line| line.starts_with("  text ")).unwrap();
    assert!(row.contains(&format!("1.2.0    failed: `{text}` is a text that begins with")), "{table}");
    assert!(table.contains("duplicate of device-absent 1.2.0 in "), "{table}");
    // A failure stays until it is tried again.
    write(&path.join("absent.so"), "a text");
    assert_eq!(device("absent").unwrap().allocate(1).unwrap_err().to_string().matches(&start).count(), 1);
    let error = backends().retry("absent").map(drop).unwrap_err().to_string();
    assert!(error.contains("is a text that begins with `a text`"), "{error}");
}
