//! What a backend costs a program that links it and does not use it: nothing before `main`, no thread, no opened
//! library, and little room. docs/performance.md has the figures.

#![cfg(target_os = "linux")]

use std::fs;

use device_registry_tests::{Project, artifacts, run};
use object::{Object, ObjectSection, ObjectSegment};

/// A release build of a program, and what it printed.
struct Program {
    binary: Vec<u8>,
    printed: String,
}

/// The rest of `main.rs`: uses the cpu, if there is a registry, and prints the number of threads and what is
/// mapped into the process.
const FACTS: &str = r#"
fn facts() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!("{}", status.lines().find(|line| line.starts_with("Threads:")).unwrap());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libraries = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).filter(|file| file.contains(".so"));
    println!("{:?}", libraries.collect::<std::collections::BTreeSet<_>>());
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
const BACKEND: &str = "device-openreg = { path = \"@crates/device-openreg\" }\n";

fn program(name: &'static str, manifest: &str, main: &str) -> Program {
    let project = Project::new(name, manifest, &[("src/main.rs", &format!("{main}{FACTS}"))]);
    let printed = run(&mut project.cargo(["run", "--quiet", "--release"])).success().stdout;
    let file = artifacts().join("release").join(name);
    Program { binary: fs::read(file).expect("it has been built"), printed }
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

    fn object(&self) -> object::File<'_> {
        object::File::parse(&*self.binary).expect("it is an object file")
    }
}

#[test]
fn an_unused_backend_costs_next_to_nothing() {
    let plain = program("costs-plain", "", WITHOUT_A_REGISTRY);
    let registry = program("costs-registry", REGISTRY, WITH_A_REGISTRY);
    let backend = program("costs-backend", &format!("{REGISTRY}{BACKEND}"), WITH_A_REGISTRY);
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
    assert!(backend - registry <= 100_000, "the backend adds {} bytes", backend - registry);
}
