//! The same small program on other targets and with other linkers.
//!
//! Without its tools a test is skipped: `tests/src/platform.rs` says more. `docs/platforms.md` has the
//! results.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use device_registry_tests::platform::{Needed, Toolchain, Windows, compile_c, is_there, needed};
use device_registry_tests::{LIST, Project, artifacts, run};

const BLOCK: [&str; 3] = ["alpha", "alpha_deep", "cpu"];
const BLOCK_AND_BARE: [&str; 6] = ["alpha", "alpha_deep", "bare", "bare_inner", "bare_outer", "cpu"];

const ALPHA: &str = r#"
[dependencies]
device-registry = { path = "@crates/device-registry" }
device-alpha = { path = "@fixtures/device-alpha" }
"#;

const ALPHA_AND_BARE: &str = r#"
[dependencies]
device-registry = { path = "@crates/device-registry" }
device-alpha = { path = "@fixtures/device-alpha" }
device-bare = { path = "@fixtures/device-bare" }
"#;

fn main_rs() -> String {
    format!("device_registry::autoload!();\n{LIST}")
}

/// A program that shows its report as well, on stderr.
fn reporting_main_rs() -> String {
    let report = "fn main() {\n    eprintln!(\"{}\", device_registry::backends().report());";
    main_rs().replace("fn main() {", report)
}

// ---- other linkers

/// Links the program with this linker, in debug and release; it has to find everything, to report no mistake,
/// and to carry the mark that the linker leaves. GNU ld leaves none. Without the line, the report says so.
#[track_caller]
fn links_with(name: &'static str, linker: &str, mark: Option<&str>) {
    let project = Project::new(name, ALPHA_AND_BARE, &[("src/main.rs", &reporting_main_rs())]);
    let link = |profile| {
        // Without the first flag, rustc uses its own LLD.
        let linker = format!("-Clink-arg=-fuse-ld={linker}");
        let arguments = ["rustc", "--profile", profile, "--", "-Clinker-features=-lld", &linker];
        let _ = run(&mut project.cargo(arguments)).success();
        let folder = if profile == "dev" { "debug" } else { profile };
        let program = artifacts().join(folder).join(name);
        (run(&mut project.command(&program)).success(), program)
    };
    for profile in ["release", "dev"] {
        let (outcome, program) = link(profile);
        assert_eq!(outcome.lines(), BLOCK_AND_BARE, "{profile}");
        outcome.shows("note: `autoload!` in module `");
        assert_eq!(outcome.stderr.matches("note:").count(), 1, "{profile}: {}", outcome.stderr);

        let bytes = std::fs::read(&program).expect("the program can be read");
        let has = |mark: &&str| bytes.windows(mark.len()).any(|window| window == mark.as_bytes());
        let found: Vec<&str> = MARKS.into_iter().filter(has).collect();
        assert_eq!(found.len(), usize::from(mark.is_some()), "{linker} left {found:?}");
        assert!(found.iter().all(|found| mark.is_some_and(|mark| found.starts_with(mark))), "{found:?}");
    }
    let without = reporting_main_rs().replace("device_registry::autoload!();", "use device_bare as _;");
    project.write("src/main.rs", &without);
    let (outcome, _) = link("dev");
    assert_eq!(outcome.lines(), ["bare", "bare_inner", "bare_outer", "cpu"]);
    outcome.shows("note: no `autoload!` line is found");
    assert_eq!(outcome.stderr.matches("note:").count(), 1, "{}", outcome.stderr);
}

/// What linkers write into the programs that they link, down to the digits: words alone stand in our messages
/// too.
const MARKS: [&str; 5] = ["LLD 1", "LLD 2", "gold 1.", "mold 1.", "mold 2."];

#[test]
#[ignore = "needs a tool: mold"]
fn a_program_linked_by_mold_has_its_backends() {
    if needed("mold", is_there("mold", "mold")).is_some() {
        links_with("platform-mold", "mold", Some("mold"));
    }
}

#[test]
#[ignore = "needs a tool: GNU ld"]
fn a_program_linked_by_gnu_ld_has_its_backends() {
    if needed("bfd", is_there("ld.bfd", "binutils")).is_some() {
        links_with("platform-bfd", "bfd", None);
    }
}

#[test]
#[ignore = "needs a tool: gold"]
fn a_program_linked_by_gold_has_its_backends() {
    if needed("gold", is_there("ld.gold", "binutils")).is_some() {
        links_with("platform-gold", "gold", Some("gold"));
    }
}

#[test]
#[ignore = "needs a tool: LLD 14"]
fn a_program_linked_by_lld_14_has_its_backends() {
    let lld_14 = is_there("ld.lld-14", "lld").and_then(|()| is_there("ld.lld", "lld"));
    if needed("lld14", lld_14).is_some() {
        links_with("platform-lld14", "lld", Some("LLD 1"));
    }
}

#[test]
#[ignore = "needs a tool: mold"]
fn a_linker_that_drops_every_element_is_reported_and_inventory_helps() {
    if needed("mold", is_there("mold", "mold")).is_none() {
        return;
    }
    let flags = "-Crelocation-model=static -Clinker-features=-lld -Clink-arg=-fuse-ld=mold";
    let with_mold = |project: &Project| {
        // A target of its own keeps the flags away from build scripts and macros.
        let arguments = ["run", "--quiet", "--target", "x86_64-unknown-linux-gnu"];
        run(project.cargo(arguments).env("RUSTFLAGS", flags)).success()
    };
    let project = Project::new("platform-blind", ALPHA_AND_BARE, &[("src/main.rs", &reporting_main_rs())]);
    let outcome = with_mold(&project);
    if outcome.lines() == BLOCK_AND_BARE {
        // Since mold 2.4.1 nothing is dropped, and there is nothing to report.
        assert!(!outcome.stderr.contains("note:"), "{}", outcome.stderr);
        return;
    }
    assert_eq!(outcome.lines(), ["cpu"]);
    outcome.shows("no collector works in this binary");
    outcome.shows("turn on the feature `inventory`");

    let inventory = "device-registry\", features = [\"inventory\"] }";
    project.write_manifest(&ALPHA_AND_BARE.replace("device-registry\" }", inventory));
    let outcome = with_mold(&project);
    assert_eq!(outcome.lines(), BLOCK);
    outcome.shows("those with only the attribute `#[distributed_slice]` are lost");
}

// ---- other targets

#[test]
#[ignore = "slow, and needs a target: x86_64-unknown-linux-musl"]
fn a_static_program_with_musl_has_its_backends() {
    let target = "x86_64-unknown-linux-musl";
    let tools = Toolchain::with(target).and_then(|toolchain| match toolchain {
        Toolchain::Rustup => Ok(toolchain),
        Toolchain::Debian => is_there("musl-gcc", "musl-tools").map(|()| toolchain),
    });
    let Some(toolchain) = needed("musl", tools) else {
        return;
    };
    let project = Project::new(
        "platform-musl",
        ALPHA_AND_BARE,
        &[("src/main.rs", &main_rs()), ("unwind.c", include_str!("../../platforms/unwind_musl.c"))],
    );
    let mut command = toolchain.cargo(&project, "run", target);
    if let Toolchain::Debian = toolchain {
        // rustup's target brings its C library and unwinder; for Debian's, GCC's unwinder has to do.
        compile_c("musl-gcc", &project, &["-O2", "-fPIC", "-c", "unwind.c"]);
        let unwinder = run(project.command("gcc").arg("-print-file-name=libgcc_eh.a")).success();
        std::fs::copy(unwinder.stdout.trim(), project.folder().join("libunwind.a"))
            .expect("GCC has an unwinder");
        compile_c("ar", &project, &["r", "libunwind.a", "unwind.o"]);
        let folder = project.folder().display();
        command.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER", "musl-gcc").env(
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS",
            format!("-Clink-self-contained=no -Crelocation-model=static -Lnative={folder}"),
        );
    }
    assert_eq!(run(&mut command).success().lines(), BLOCK_AND_BARE);
}

#[test]
#[ignore = "slow, and needs a target: x86_64-pc-windows-gnu, and Wine"]
fn a_windows_program_by_mingw_has_what_blocks_registered() {
    let Some(windows) = needed("windows-gnu", Windows::find()) else {
        return;
    };
    let beta_there = format!(
        "{ALPHA_AND_BARE}\n[target.'cfg(windows)'.dependencies]\n\
         device-beta = {{ path = \"@fixtures/device-beta\" }}\n"
    );
    let project = Project::new("platform-windows-gnu", &beta_there, &[("src/main.rs", &reporting_main_rs())]);
    windows.build(&project);
    let outcome = run(&mut windows.command(&project, "platform-windows-gnu.exe")).success();
    assert_eq!(outcome.lines(), ["alpha", "alpha_deep", "beta", "cpu"]);
    // linkme sees nothing there (dtolnay/linkme#25), and that is said.
    outcome.shows("linkme sees nothing in this binary");
}

/// The linker of wasm for Debian's compiler, which brings none.
const DEBIAN_WASM_LINKER: &str = "wasm-ld-14";

fn wasm_toolchain(target: &str) -> Needed<Toolchain> {
    is_there("node", "nodejs")?;
    let toolchain = Toolchain::with(target)?;
    if let Toolchain::Debian = toolchain {
        is_there(DEBIAN_WASM_LINKER, "lld")?;
    }
    Ok(toolchain)
}

#[test]
#[ignore = "slow, and needs a target: wasm32-unknown-unknown, and node"]
fn a_wasm_module_has_what_blocks_registered() {
    let target = "wasm32-unknown-unknown";
    let Some(toolchain) = needed("wasm32", wasm_toolchain(target)) else {
        return;
    };
    let library = r#"
        use std::sync::LazyLock;

        device_registry::autoload!();

        static TEXT: LazyLock<String> = LazyLock::new(|| {
            let loaded = device_registry::backends().load_all().into_iter();
            let lines = loaded.map(|(entry, loaded)| match loaded {
                Ok(_) => format!("{}\n", entry.name()),
                Err(error) => format!("{}: {error}\n", entry.name()),
            });
            lines.collect()
        });

        #[unsafe(no_mangle)]
        pub extern "C" fn text() -> *const u8 {
            TEXT.as_ptr()
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn text_len() -> usize {
            TEXT.len()
        }
    "#;
    // One more backend behind a library with a line of its own, to which no function of this one refers.
    let bundled = "@name-bundle = { path = \"bundle\" }\n";
    let manifest = format!("[lib]\ncrate-type = [\"cdylib\"]\n{ALPHA}{bundled}");
    let bundle = "[package]\nname = \"@name-bundle\"\nedition = \"2024\"\n\n[dependencies]\n\
                  device-registry = { path = \"@crates/device-registry\" }\n\
                  device-beta = { path = \"@fixtures/device-beta\" }\n";
    let project = Project::new(
        "platform-wasm32",
        &manifest,
        &[
            ("bundle/Cargo.toml", bundle),
            ("bundle/src/lib.rs", "device_registry::autoload!();\n"),
            ("src/lib.rs", library),
            ("run.mjs", include_str!("../../platforms/run_wasm.mjs")),
        ],
    );
    for profile in ["dev", "release"] {
        let mut command = toolchain.cargo(&project, "build", target);
        command.args(["--profile", profile]);
        if let Toolchain::Debian = toolchain {
            command.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", DEBIAN_WASM_LINKER);
        }
        let _ = run(&mut command).success();
        let folder = if profile == "dev" { "debug" } else { profile };
        let module = toolchain.artifacts().join(target).join(folder).join("platform_wasm32.wasm");
        let outcome = run(project.command("node").arg("run.mjs").arg(module)).success();
        assert_eq!(outcome.lines(), ["alpha", "alpha_deep", "beta", "cpu"], "{profile}");
    }
}

const WASI_LIBC: &str = "/usr/lib/wasm32-wasi";

#[test]
#[ignore = "slow, and needs a target: wasm32-wasip1, and node"]
fn a_wasi_program_has_what_blocks_registered() {
    let target = "wasm32-wasip1";
    let tools = wasm_toolchain(target).and_then(|toolchain| match toolchain {
        Toolchain::Debian if !Path::new(WASI_LIBC).exists() => {
            Err(format!("{WASI_LIBC} is not installed: install wasi-libc, or run tests/install-platforms.sh"))
        }
        _ => Ok(toolchain),
    });
    let Some(toolchain) = needed("wasi", tools) else {
        return;
    };
    let project = Project::new(
        "platform-wasi",
        ALPHA,
        &[("src/main.rs", &main_rs()), ("run.mjs", include_str!("../../platforms/run_wasi.mjs"))],
    );
    let mut runner = OsString::from("node --no-warnings ");
    runner.push(project.folder().join("run.mjs"));
    let mut command = toolchain.cargo(&project, "run", target);
    command.env("CARGO_TARGET_WASM32_WASIP1_RUNNER", runner);
    if let Toolchain::Debian = toolchain {
        command.env("CARGO_TARGET_WASM32_WASIP1_LINKER", DEBIAN_WASM_LINKER).env(
            "CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS",
            format!("-Clink-self-contained=no -Lnative={WASI_LIBC} -Clink-arg={WASI_LIBC}/crt1-command.o"),
        );
    }
    assert_eq!(run(&mut command).success().lines(), BLOCK);
}

/// `cargo miri`, if it is there.
fn miri() -> Option<Vec<&'static str>> {
    let command = ["run", "nightly", "cargo", "miri"];
    let there =
        match Command::new("rustup").args(command).arg("--version").output() {
            Ok(output) if output.status.success() => Ok(()),
            _ => Err("Miri is not installed: `rustup toolchain install nightly --component miri,rust-src`"
                .to_owned()),
        };
    needed("miri", there).map(|()| command.to_vec())
}

/// The registry measures loading, and Miri has no clock by default.
const WITH_A_CLOCK: (&str, &str) = ("MIRIFLAGS", "-Zmiri-disable-isolation");

#[test]
#[ignore = "slow, and needs a tool: Miri"]
fn miri_finds_what_blocks_registered() {
    let Some(miri) = miri() else { return };
    let project = Project::new("platform-miri", ALPHA, &[("src/main.rs", &main_rs())]);
    let mut command = project.command("rustup");
    command.args(miri).args(["run", "--quiet"]).env(WITH_A_CLOCK.0, WITH_A_CLOCK.1);
    assert_eq!(run(&mut command).success().lines(), BLOCK);
}

#[test]
#[ignore = "slow, and needs a tool: Miri"]
fn miri_sees_no_undefined_behaviour_in_windows_and_where_streams_race_for_a_buffer() {
    let Some(miri) = miri() else { return };
    let project = Project::in_source_tree("platform-miri-races", "crates/device-registry");
    let mut command = project.command("rustup");
    let tests = ["--lib", "--test", "races", "--", "host_memory", "block", "race", "kernels"];
    command.args(miri).arg("test").args(tests).env(WITH_A_CLOCK.0, WITH_A_CLOCK.1);
    let output = run(&mut command).success();
    let passed: Vec<_> =
        output.lines().into_iter().filter(|line| line.starts_with("test result: ok")).collect();
    assert!(
        matches!(passed[..], [unit, races] if unit != races && races.contains("ok. 2 passed")),
        "{output:?}"
    );
}
