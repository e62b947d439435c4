//! The same small program on other processors, which QEMU emulates.
//!
//! `tests/processors.sh` runs more there. Without its tools a test is skipped: `tests/src/platform.rs` says
//! more.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use device_registry_tests::platform::{Toolchain, is_there, needed};
use device_registry_tests::{LIST, Project, run};

const MANIFEST: &str = r#"
[dependencies]
device-registry = { path = "@crates/device-registry" }
device-alpha = { path = "@fixtures/device-alpha" }
device-bare = { path = "@fixtures/device-bare" }
"#;

/// Builds the program with the linker of GCC's `gnu`, and runs it in the emulator, or without one: it has to
/// find everything.
#[track_caller]
fn finds_its_backends(processor: &'static str, target: &str, gnu: &str, emulator: Option<&str>) {
    let linker = format!("{gnu}-gcc");
    let tools = Toolchain::with(target).and_then(|toolchain| {
        is_there(&linker, &format!("gcc-{gnu}"))?;
        emulator.map_or(Ok(()), |emulator| is_there(emulator, "qemu-user"))?;
        Ok(toolchain)
    });
    let Some(toolchain) = needed(processor, tools) else {
        return;
    };
    let main = format!("device_registry::autoload!();\n{LIST}");
    let project = Project::new(processor, MANIFEST, &[("src/main.rs", &main)]);
    let variable = |name| format!("CARGO_TARGET_{}_{name}", target.to_uppercase().replace('-', "_"));
    let mut command = toolchain.cargo(&project, "run", target);
    command.env(variable("LINKER"), &linker);
    match emulator {
        Some(emulator) => command.env(variable("RUNNER"), format!("{emulator} -L /usr/{gnu}")),
        None => command.env(
            variable("RUSTFLAGS"),
            format!(
                "-Clink-arg=-Wl,--dynamic-linker=/usr/{gnu}/lib/ld-linux.so.2 -Clink-arg=-Wl,-rpath,/usr/{gnu}/lib"
            ),
        ),
    };
    let found = ["alpha", "alpha_deep", "bare", "bare_inner", "bare_outer", "cpu"];
    assert_eq!(run(&mut command).success().lines(), found);
}

#[test]
#[ignore = "slow, and needs a target: s390x-unknown-linux-gnu, and QEMU"]
fn a_program_for_a_big_endian_processor_has_its_backends() {
    finds_its_backends("s390x", "s390x-unknown-linux-gnu", "s390x-linux-gnu", Some("qemu-s390x"));
}

#[test]
#[ignore = "slow, and needs a target: aarch64-unknown-linux-gnu, and QEMU"]
fn a_program_for_aarch64_has_its_backends() {
    finds_its_backends("aarch64", "aarch64-unknown-linux-gnu", "aarch64-linux-gnu", Some("qemu-aarch64"));
}

#[test]
#[ignore = "slow, and needs a target: riscv64gc-unknown-linux-gnu, and QEMU"]
fn a_program_for_riscv64_has_its_backends() {
    finds_its_backends("riscv64", "riscv64gc-unknown-linux-gnu", "riscv64-linux-gnu", Some("qemu-riscv64"));
}

#[test]
#[ignore = "slow, and needs a target: i686-unknown-linux-gnu"]
fn a_program_of_32_bits_has_its_backends() {
    finds_its_backends("i686", "i686-unknown-linux-gnu", "i686-linux-gnu", None);
}
