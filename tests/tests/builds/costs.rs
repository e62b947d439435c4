//! The cost of a backend that a program links and does not use: no code before `main`, no thread, no opened
//! library, and little room. docs/performance.md has the figures.

#![cfg(target_os = "linux")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use device_registry_tests::{Project, artifacts, run};
use object::{Object, ObjectSection, ObjectSegment};

/// A release build of a program, and what it printed.
struct Program {
    file: PathBuf,
    binary: Vec<u8>,
    /// How many threads there are, and which libraries are open.
    printed: String,
    /// How many bytes of memory are its own because it has written to them, or the loader has: not those of
    /// its file.
    touched: u64,
}

/// The rest of `main.rs`: prints the number of threads, what is mapped into the process, and what it has
/// written to.
const FACTS: &str = r#"
fn facts() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!("{}", status.lines().find(|line| line.starts_with("Threads:")).unwrap());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    // A part of the C library, which a program gets when it computes a sine.
    let is_libm = |file: &&str| file.contains("libm.so");
    let files = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let libraries = files.filter(|file| file.contains(".so")).filter(|file| !is_libm(file));
    println!("{:?}", libraries.collect::<std::collections::BTreeSet<_>>());
    let touched = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    println!("{}", touched.lines().find(|line| line.starts_with("Anonymous:")).unwrap());
}
"#;

const WITHOUT_A_REGISTRY: &str = "fn main() { facts(); }";

const WITH_A_REGISTRY: &str = r#"
device_registry::autoload!();

fn main() {
    let buffer = device_registry::device("cpu").and_then(|cpu| cpu.allocate(64)).unwrap();
    buffer.write(0, &[1; 64]).unwrap();
    facts();
}
"#;

const REGISTRY: &str = "[dependencies]\ndevice-registry = { path = \"@crates/device-registry\" }\n";

/// The manifest of a program with a registry and one backend.
fn with_backend(name: &str) -> String {
    format!("{REGISTRY}device-{name} = {{ path = \"@crates/device-{name}\" }}\n")
}

fn program(name: &'static str, manifest: &str, main: &str) -> Program {
    let project = Project::new(name, manifest, &[("src/main.rs", &format!("{main}{FACTS}"))]);
    let printed = run(&mut project.cargo(["run", "--quiet", "--release"])).success().stdout;
    let file = artifacts().join("release").join(name);
    let (printed, touched) = printed.split_once("Anonymous:").expect("it is printed last");
    let touched: u64 = touched.trim().trim_end_matches(" kB").parse().expect("it is a number");
    let binary = fs::read(&file).expect("it has been built");
    Program { file, binary, printed: printed.to_owned(), touched: touched * 1024 }
}

impl Program {
    /// How many functions run before `main`.
    fn constructors(&self) -> u64 {
        let object = self.object();
        let constructors = object.section_by_name(".init_array").expect("the standard library has one");
        constructors.size() / size_of::<usize>() as u64
    }

    /// How many bytes of it are mapped when it starts: all but symbols and debug information.
    fn loaded_bytes(&self) -> u64 {
        self.object().segments().map(|segment| segment.size()).sum()
    }

    /// How long it takes from its start to its end.
    fn run(&self) -> Duration {
        let start = Instant::now();
        let _ = run(&mut Command::new(&self.file)).success();
        start.elapsed()
    }

    fn object(&self) -> object::File<'_> {
        object::File::parse(&*self.binary).expect("it is an object file")
    }
}

#[test]
#[ignore = "builds release programs"]
fn an_unused_backend_costs_next_to_nothing() {
    let plain = program("costs-plain", "", WITHOUT_A_REGISTRY);
    let registry = program("costs-registry", REGISTRY, WITH_A_REGISTRY);
    let backend = program("costs-backend", &with_backend("openreg"), WITH_A_REGISTRY);
    // Else nothing is compared.
    let name = |program: &Program| program.binary.windows(8).any(|bytes| bytes == b"OPENREG_");
    assert_eq!([name(&registry), name(&backend)], [false, true]);

    assert!(plain.printed.starts_with("Threads:\t1\n"), "{}", plain.printed);
    assert_eq!(registry.printed, plain.printed, "the registry has started threads or opened libraries");
    assert_eq!(backend.printed, plain.printed, "the backend has started threads or opened libraries");

    assert_eq!(registry.constructors(), plain.constructors(), "code of the registry's runs before `main`");
    assert_eq!(backend.constructors(), plain.constructors(), "code of the backend's runs before `main`");

    let [plain, registry, backend] = [plain, registry, backend].map(|program| program.loaded_bytes());
    println!("loaded bytes: the registry adds {}, the backend {}", registry - plain, backend - registry);
    // 22 kB more than it adds today: the segments end at a page, so that a longer path of the sources may add
    // some pages.
    assert!(backend - registry <= 125_000, "the backend adds {} bytes", backend - registry);
}

#[test]
#[ignore = "builds release programs, one of them with wgpu"]
fn an_unused_backend_for_hardware_costs_next_to_nothing() {
    let without = program("costs-none", REGISTRY, WITH_A_REGISTRY);
    // wgpu's shader compiler has tables of pointers, to which the loader writes where the program lies.
    for (name, project, limit) in
        [("cuda", "costs-cuda", 20_000), ("opencl", "costs-opencl", 20_000), ("wgpu", "costs-wgpu", 250_000)]
    {
        let with = program(project, &with_backend(name), WITH_A_REGISTRY);
        // Else nothing is compared.
        let symbol = name.to_uppercase();
        assert!(with.binary.windows(symbol.len()).any(|bytes| bytes == symbol.as_bytes()));
        assert_eq!(with.printed, without.printed, "{name} has started threads or opened libraries");
        assert_eq!(with.constructors(), without.constructors(), "code of {name} runs before `main`");
        let touched = with.touched.saturating_sub(without.touched);
        // By turns, and in pairs: whatever else the machine does meets both.
        let mut longer: Vec<_> =
            (0..200).map(|_| with.run().as_secs_f64() - without.run().as_secs_f64()).collect();
        longer.sort_by(f64::total_cmp);
        let loaded = with.loaded_bytes() - without.loaded_bytes();
        let microseconds = longer[longer.len() / 2] * 1e6;
        println!(
            "{name} adds {loaded} loaded bytes, {touched} touched ones, and {microseconds:.0} µs to a start"
        );
        assert!(touched <= limit, "{name} adds {touched} bytes of touched memory");
    }
}
