//! Every input of the corpus through the body of its target, with no fuzzer and on stable Rust.

use std::collections::BTreeSet;
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use fuzz_targets::{Body, TARGETS};

#[test]
fn device_list() {
    replay("device_list");
}

#[test]
fn device_string() {
    replay("device_string");
}

#[test]
fn openreg_settings() {
    replay("openreg_settings");
}

#[test]
fn program() {
    replay("program");
}

#[test]
fn switches() {
    replay("switches");
}

#[test]
fn tensor() {
    replay("tensor");
}

#[test]
fn every_target_has_a_corpus_a_program_of_libfuzzer_and_a_test() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let stem = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let programs: BTreeSet<String> = files(&fuzz("fuzz_targets")).into_iter().map(stem).collect();
    let folders: BTreeSet<String> = files(&fuzz("corpus")).into_iter().map(stem).collect();
    assert_eq!(programs, targets);
    assert_eq!(folders, targets);
    let here = include_str!("corpus.rs");
    let manifest = fs::read_to_string(fuzz("Cargo.toml")).unwrap();
    for (name, _) in TARGETS {
        let entry = format!("name = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"");
        assert!(manifest.contains(&entry), "fuzz/Cargo.toml has no {entry}");
        assert!(here.contains(&format!("fn {name}() {{\n    replay(\"{name}\");")), "{name} has no test");
    }
}

#[test]
fn a_corpus_is_small_files_and_not_many() {
    for (name, _) in TARGETS {
        let inputs = files(&fuzz("corpus").join(name));
        assert!(inputs.len() <= 120, "{name} has {} inputs", inputs.len());
        for input in inputs {
            let len = fs::metadata(&input).unwrap().len();
            assert!(len <= 512, "{} has {len} bytes", input.display());
        }
    }
}

fn replay(target: &str) {
    let (_, body): &(_, Body) = TARGETS
        .iter()
        .find(|(name, _)| *name == target)
        .unwrap_or_else(|| panic!("no target is called {target}"));
    let inputs = files(&fuzz("corpus").join(target));
    assert!(!inputs.is_empty(), "the corpus of {target} is empty");
    let mut failed = Vec::new();
    for input in &inputs {
        let bytes = fs::read(input).unwrap_or_else(|error| panic!("{}: {error}", input.display()));
        if panic::catch_unwind(AssertUnwindSafe(|| body(&bytes))).is_err() {
            failed.push(input.display().to_string());
        }
    }
    assert!(failed.is_empty(), "{} of {} fail:\n{}", failed.len(), inputs.len(), failed.join("\n"));
}

/// The entries of a folder, without hidden files.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> =
        paths.filter(|path| !path.file_name().unwrap().as_encoded_bytes().starts_with(b".")).collect();
    paths.sort();
    paths
}

/// A folder of `fuzz`.
fn fuzz(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it lies in `fuzz`").join(folder)
}
