//! `kernels/OPERATORS.md` lists the operators with their options, and what each kernel set says that it has.
//!
//! With the variable `DEVICE_KERNELS_WRITE_OPERATORS` set, the test writes the page.

#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::path::Path;
use std::{env, fs};

use device_kernels::{Coverage, DType, DTypes, Kernels, Operator};
use device_plugin::Plugins;
use device_registry::device;

mod common;

device_registry::autoload!();

const BEGIN: &str = "# Operators

What a kernel set can have a kernel for, by the names of [device-kernels](device-kernels): `Operator::name`
and `Operator::options` in Rust, and `dk_call` in [C](device-kernels-plugin/include/device_kernels.h). The
docs of `device_kernels::Operator` say what each computes. The other columns are what the sets of this
repository say that they have, as data: `KernelSet::coverage`. *All* are all types that the operator takes. A
test writes this page.

The C column is `kernels.h` of the [templates](../examples/custom-backend/c). OpenCL has `f64` where the
device has it. CUDA has the same kernels, always with `f64`.

";

/// What a column says of an operator.
fn cell(coverage: &[Coverage], operator: &str) -> String {
    let Some(one) = coverage.iter().find(|one| one.operator() == operator) else { return String::new() };
    // Which devices there are is a matter of the machine.
    let is_all = [DTypes::ALL, DTypes::ALL.without(DType::F64)].contains(&one.types());
    if is_all { "all".to_owned() } else { one.types().to_string() }
}

fn page() -> String {
    let folder = tempfile::tempdir().expect("there is room");
    common::build_templates(folder.path());
    Plugins::new().folder(folder.path()).install().expect("the folder is absolute");
    let columns = ["cpu", "openreg", "opencl", "myc"].map(|name| {
        let device = device(name).expect("it is linked or installed");
        let sets = Kernels::of(device).expect("they load").sets().to_vec();
        sets.iter().flat_map(|linked| linked.set().coverage(device)).collect::<Vec<_>>()
    });
    // One call of each operator has the names of its options.
    let calls = device_kernels_conformance::calls();
    let options: BTreeMap<&str, String> = calls
        .iter()
        .map(|call| {
            let options = call.operator().options();
            let names: Vec<String> = options.iter().map(|option| format!("`{}`", option.name)).collect();
            let names = match call.operator() {
                Operator::Expression(_) => "its steps: see `Expression::steps`".to_owned(),
                _ => names.join(", "),
            };
            (call.operator().name(), names)
        })
        .collect();
    let mut page = BEGIN.to_owned();
    page += "| operator | options | cpu | openreg | OpenCL | C |\n|---|---|---|---|---|---|\n";
    for name in Operator::names() {
        let cells: Vec<String> = columns.iter().map(|coverage| cell(coverage, name)).collect();
        page += &format!("| `{name}` | {} | {} |\n", options[name], cells.join(" | "));
    }
    page.replace("|  |", "| |").replace("|  |", "| |")
}

#[test]
fn the_page_of_operators_says_what_the_sets_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../OPERATORS.md");
    let page = page();
    if env::var_os("DEVICE_KERNELS_WRITE_OPERATORS").is_some() {
        fs::write(&path, &page).expect("there is room");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == page,
        "kernels/OPERATORS.md is not what the sets say: run this test with DEVICE_KERNELS_WRITE_OPERATORS=1"
    );
}
