//! A hundred manifests, one of them malformed: the others are installed, and no library is opened until its
//! name is used.
#![cfg(feature = "load")]

mod common;

use std::fs;
use std::time::Instant;

use common::{folder, manifest, write};
use device_plugin::{Manifest, Plugins};
use device_registry::registry::State;
use device_registry::{backends, device};

/// The libraries and files that are mapped into this process.
#[cfg(target_os = "linux")]
fn mapped() -> Vec<String> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let files = maps.lines().filter_map(|line| line.find('/').map(|at| line[at..].to_owned()));
    let mut files: Vec<_> = files.collect();
    files.dedup();
    files
}

#[cfg(not(target_os = "linux"))]
fn mapped() -> Vec<String> {
    Vec::new()
}

/// Any library of this process, or its program where `mapped` knows none.
fn real_library() -> std::path::PathBuf {
    let library = mapped().into_iter().find(|file| file.contains(".so")).map(Into::into);
    library.unwrap_or_else(|| std::env::current_exe().unwrap())
}

#[test]
fn a_malformed_manifest_among_a_hundred_harms_none_and_no_library_is_opened() {
    let (_kept, path) = folder();
    for number in 0..100 {
        let file = path.join(format!("{number:02}.plugin.json"));
        // Not a library that is mapped already, which would not be noticed.
        let library = path.join(format!("lib{number:02}.so"));
        fs::copy(real_library(), &library).unwrap();
        write(&file, manifest(&format!("acme_{number}"), &library, ""));
    }
    write(&path.join("50.plugin.json"), "{");
    let before = mapped();

    let start = Instant::now();
    let plugins = Plugins::new().folder(&path).beside_program("no such folder");
    let report = plugins.install().unwrap();
    println!("{:?} for the first time", start.elapsed());
    let start = Instant::now();
    let again = plugins.install().unwrap();
    println!("{:?} for the second time", start.elapsed());

    assert_eq!(mapped(), before, "a library was opened");
    let names: Vec<_> = report.installed().iter().map(Manifest::name).collect();
    let expected: Vec<_> = (0..100).filter(|&number| number != 50).map(|n| format!("acme_{n}")).collect();
    assert_eq!(names, expected);
    let reason = format!(
        "{} is skipped: it is not JSON: EOF while parsing an object at line 1 column 1",
        path.join("50.plugin.json").display()
    );
    assert_eq!(report.skipped().iter().map(ToString::to_string).collect::<Vec<_>>(), [&*reason]);
    assert_eq!(report.folders().collect::<Vec<_>>(), [&*path]);

    // A second time, nothing is new.
    assert_eq!(again.to_string(), report.to_string());
    assert_eq!(backends().len(), 100, "99 and the cpu");
    let entry = backends().get("acme_7").unwrap();
    assert!(matches!(entry.state(), State::Installed), "{entry:?}");
    assert_eq!((entry.package(), entry.file()), (Some("device-acme_7"), Some(&*path.join("lib07.so"))));

    // The reports of the group have the reasons, each once, and the error for an unknown backend has the
    // folders.
    let notes = backends().report().notes().to_vec();
    assert_eq!(notes.iter().filter(|note| **note == reason).count(), 1, "{notes:?}");
    let error = device("acme_x").unwrap_err().to_string();
    let searched = format!("\nnote: searched for backends in files: {} (100 manifests), ", path.display());
    assert!(error.contains(&searched), "{error}");
    assert!(error.contains("no such folder (does not exist)"), "{error}");
    assert!(error.contains(&reason), "{error}");
    if cfg!(target_os = "linux") {
        let error = device("acme_7").unwrap().allocate(1).unwrap_err().to_string();
        assert!(error.contains("has no backend in it"), "{error}");
        assert_eq!(mapped(), before, "a library without a backend was opened");
    }
}
