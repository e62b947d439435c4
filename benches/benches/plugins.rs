//! Installing backends from 0, 2 and 100 manifests, beside reading the same files and doing nothing with
//! them.
//!
//! All but the first call find the backends installed already, which costs a look-up in place of an
//! insertion.

use std::fs;
use std::path::Path;

use criterion::Criterion;
use device_plugin::Plugins;
use device_registry_benches::criterion;
use tempfile::TempDir;

fn listing(criterion: &mut Criterion) {
    for count in [0, 2, 100] {
        let folder = folder(count);
        let path = folder.path().canonicalize().expect("it exists");
        let plugins = Plugins::new().folder(&path);
        let report = plugins.install().expect("the folder is absolute");
        assert_eq!((report.installed().len(), report.skipped().len()), (count, 0), "{report}");
        let mut group = criterion.benchmark_group(format!("plugins/{count}"));
        group.bench_function("install", |bench| {
            bench.iter(|| plugins.install().expect("the folder is absolute"));
        });
        group.bench_function("read", |bench| bench.iter(|| read_all(&path)));
    }
}

/// A folder with manifests, whose libraries do not exist.
fn folder(count: usize) -> TempDir {
    let folder = tempfile::tempdir().expect("there is room for it");
    for number in 0..count {
        let manifest = format!(
            r#"{{"manifest": 1, "group": "device.backends", "name": "acme_{number}", "package": "device-acme",
                "version": "1.2.0", "library": "libacme_{number}.so", "abi": {{"major": 0, "minor": 3}},
                "options": [{{"name": "queues", "description": "how many queues a device has"}}]}}"#
        );
        let file = folder.path().join(format!("{number}.plugin.json"));
        fs::write(&file, manifest).expect("there is room for it");
        // Whatever the mask of the process: a manifest that its group can change is skipped.
        #[cfg(unix)]
        fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("it is ours");
    }
    folder
}

fn read_all(folder: &Path) -> usize {
    let files = fs::read_dir(folder).expect("it exists").map(|entry| entry.expect("it is readable").path());
    files.map(|file| fs::read(file).expect("it is readable").len()).sum()
}

criterion::criterion_group! {
    name = benches;
    config = criterion();
    targets = listing
}
criterion::criterion_main!(benches);
