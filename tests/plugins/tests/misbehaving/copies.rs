//! Copies of one backend in a process, which share nothing.

use std::path::Path;
use std::process::Command;

use device_plugin_tests::Manifest;

use crate::support::{built, folder, others_work, plug_in, probe, works};

#[test]
fn a_linked_backend_and_its_file_work_beside_each_other() {
    let printed = probe(&[], &["install=reg:openreg:openreg_file", "use=openreg", "use=reg", "use=openreg"]);
    assert_eq!(printed, "openreg: \"yust\"\nreg: \"yust\"\nopenreg: \"yust\"\n");
}

#[test]
fn two_files_of_a_backend_have_options_of_their_own() {
    let copy = folder().join("libcopy.so");
    std::fs::copy(plug_in("openreg_file"), &copy).unwrap();
    let second = format!("install=two:openreg:{}", copy.display());
    let variables = [("OPTIONS", "one.devices=3;two.devices=4")];
    let printed = probe(
        &variables,
        &["install=one:openreg:openreg_file", &second, "count=one", "count=two", "use=one", "use=two"],
    );
    assert_eq!(printed, "one: 3\ntwo: 4\none: \"yust\"\ntwo: \"yust\"\n");
}

#[test]
fn memory_of_one_copy_is_refused_by_the_other() {
    let file = plug_in("openreg_file");
    let copy = folder().join("libsecond.so");
    std::fs::copy(&file, &copy).unwrap();
    let [one, two] = [(&file, "copy_one"), (&copy, "copy_two")].map(|(file, name)| {
        Manifest { file, entry: "openreg", package: "device-openreg", version: "0.1.0" }.install(name)
    });
    works(one);
    works(two);
    // Of two backends: through the host.
    let (source, destination) = (one.allocate(4).unwrap(), two.allocate(4).unwrap());
    source.write(0, b"rust").unwrap();
    destination.copy_from(&source).unwrap();
    let mut read = [0; 4];
    destination.read(0, &mut read).unwrap();
    assert_eq!(read, *b"rust");
    others_work();
}

#[test]
fn a_plug_in_exports_its_function_and_nothing_that_binds_elsewhere() {
    for name in ["openreg_file", "panicky_file"] {
        let data = std::fs::read(plug_in(name)).unwrap();
        let exported = exported(&data);
        let names: Vec<_> = exported.iter().map(|(name, _)| &**name).collect();
        assert!(names.contains(&"device_plugin_v0"), "{names:?}");
        for (name, is_protected) in &exported {
            assert!(
                name == "device_plugin_v0" || *is_protected,
                "`{name}` could bind to a symbol of the program"
            );
        }
    }
}

/// The symbols that a library or a program defines for others, and whether each is protected from theirs.
pub(crate) fn exported(file: &[u8]) -> Vec<(String, bool)> {
    use object::read::elf::ElfFile64;
    use object::{Object, ObjectSymbol, elf};

    let file: ElfFile64<'_> = ElfFile64::parse(file).unwrap();
    let symbols = file.dynamic_symbols().filter(|symbol| !symbol.is_undefined());
    symbols
        .map(|symbol| {
            let is_protected = symbol.elf_symbol().st_visibility() == elf::STV_PROTECTED;
            (symbol.name().unwrap().to_owned(), is_protected)
        })
        .collect()
}

#[test]
#[cfg(target_env = "gnu")]
fn no_symbol_of_a_plug_in_binds_to_the_program() {
    let program = built().join("examples/plugin_probe");
    assert_eq!(foreign_bindings(&program, &plug_in("openreg_file")), [""; 0]);
}

/// What the dynamic linker binds between a program and a plugin that it uses: lines of its log, which should
/// be none.
#[cfg(target_env = "gnu")]
pub(crate) fn foreign_bindings(program: &Path, plug_in: &Path) -> Vec<String> {
    let install = format!("install=reg:openreg:{}", plug_in.display());
    let output = Command::new(program)
        .args([&install, "use=openreg", "use=reg"])
        .env("LD_DEBUG", "bindings")
        .output()
        .expect("it starts");
    assert!(output.status.success());
    // Lines are: binding file FROM [0] to TO [0]: normal symbol `NAME'
    let log = String::from_utf8_lossy(&output.stderr);
    let bindings = log.lines().filter_map(|line| {
        let (from, to) = line.split_once("binding file ")?.1.split_once(" [0] to ")?;
        Some((line, Path::new(from), Path::new(to.split_once(" [0]")?.0)))
    });
    let (mut own, mut foreign) = (0, Vec::new());
    for (line, from, to) in bindings {
        own += usize::from(from == plug_in && to != program);
        if from == plug_in && to == program || from == program && to == plug_in {
            foreign.push(line.to_owned());
        }
    }
    assert!(own > 0, "the log has the plugin: {log}");
    foreign
}
