//! A backend crate in Cargo.toml is enough, wherever in Cargo.toml it stands and whatever is built from it.
//!
//! Each test is a real project: it is built, run, and says which backends it found. Not to be confused with
//! unit tests of `autoload!`, which cannot show what Cargo, rustc and the linker make of it.

use device_registry_tests::{LIST, Outcome, Project, run};

/// `main.rs` of most projects.
fn main_rs() -> String {
    format!("device_registry::autoload!();\n{LIST}")
}

#[track_caller]
fn cargo_run(project: &Project, arguments: &[&str]) -> Outcome {
    run(&mut project.cargo([&["run", "--quiet"], arguments].concat())).success()
}

/// Runs `cargo test` with these arguments; the test called `name` has to be among those that pass.
#[track_caller]
fn cargo_test(project: &Project, arguments: &[&str], name: &str) {
    let outcome = run(&mut project.cargo([&["test"], arguments].concat())).success();
    // A run without any test succeeds as well.
    assert!(
        outcome
            .stdout
            .lines()
            .any(|line| line.starts_with("test ") && line.contains(name) && line.ends_with("ok")),
        "{}",
        outcome.stdout
    );
}

/// A test, in a project's own source, that finds exactly `names`.
fn finds(names: &str) -> String {
    format!(
        "
#[test]
fn finds_its_backends() {{
    let names: Vec<_> = device_registry::backends().names().collect();
    assert_eq!(names.join(\" \"), {names:?});
}}
"
    )
}

const ALPHA: &str = r#"
[dependencies]
device-registry = { path = "@crates/device-registry" }
device-alpha = { path = "@fixtures/device-alpha" }
"#;

#[test]
fn a_backend_among_the_dependencies_is_linked() {
    let project = Project::new("link-dependency", ALPHA, &[("src/main.rs", &main_rs())]);
    assert_eq!(cargo_run(&project, &[]).lines(), ["alpha", "alpha_deep", "cpu"]);

    // And no other line makes it so.
    project.write_manifest(&ALPHA.replace("device-alpha", "# device-alpha"));
    assert_eq!(cargo_run(&project, &[]).lines(), ["cpu"]);
}

#[test]
fn the_error_in_a_program_without_autoload_says_which_line_to_write() {
    let main = r#"
        fn main() {
            match device_registry::device("alpha") {
                Ok(device) => println!("{device}"),
                Err(error) => println!("{error}"),
            }
        }
    "#;
    let project = Project::new("link-no-autoload", ALPHA, &[("src/main.rs", main)]);
    let outcome = cargo_run(&project, &[]);
    outcome.shows("write `device_registry::autoload!();` once, in main.rs or lib.rs");

    project.write("src/main.rs", &format!("device_registry::autoload!();\n{main}"));
    assert_eq!(cargo_run(&project, &[]).lines(), ["alpha"]);
}

#[test]
fn a_backend_among_the_dev_dependencies_is_linked_into_tests_and_examples_only() {
    let manifest = r#"
[dependencies]
device-registry = { path = "@crates/device-registry" }
device-alpha = { path = "@fixtures/device-alpha" }

[dev-dependencies]
device-beta = { path = "@fixtures/device-beta" }
"#;
    let unit_test = format!("{}\n{}", main_rs(), finds("alpha alpha_deep beta cpu"));
    let integration_test = format!("device_registry::autoload!();\n{}", finds("alpha alpha_deep beta cpu"));
    let project = Project::new(
        "link-dev-dependency",
        manifest,
        &[
            ("src/main.rs", &unit_test),
            ("tests/integration.rs", &integration_test),
            ("examples/link-dev-dependency-example.rs", &main_rs()),
        ],
    );
    let example = ["--example", "link-dev-dependency-example"];
    assert_eq!(cargo_run(&project, &example).lines(), ["alpha", "alpha_deep", "beta", "cpu"]);
    assert_eq!(
        cargo_run(&project, &["--bin", "link-dev-dependency"]).lines(),
        ["alpha", "alpha_deep", "cpu"]
    );
    cargo_test(&project, &["--bins"], "finds_its_backends");
    cargo_test(&project, &["--test", "integration"], "finds_its_backends");
}

#[test]
fn an_optional_backend_comes_and_goes_with_its_feature() {
    let manifest = r#"
[features]
fast = ["dep:device-alpha"]

[dependencies]
device-registry = { path = "@crates/device-registry" }
device-alpha = { path = "@fixtures/device-alpha", optional = true }
"#;
    let project = Project::new("link-optional", manifest, &[("src/main.rs", &main_rs())]);
    assert_eq!(cargo_run(&project, &[]).lines(), ["cpu"]);
    assert_eq!(cargo_run(&project, &["--features", "fast"]).lines(), ["alpha", "alpha_deep", "cpu"]);
    assert_eq!(cargo_run(&project, &[]).lines(), ["cpu"]);
}

#[test]
fn a_renamed_backend_is_linked() {
    let manifest = r#"
[dependencies]
registry = { package = "device-registry", path = "@crates/device-registry" }
fast_one = { package = "device-alpha", path = "@fixtures/device-alpha" }
"#;
    let main = main_rs().replace("device_registry::", "registry::");
    let project = Project::new("link-renamed", manifest, &[("src/main.rs", &main)]);
    assert_eq!(cargo_run(&project, &[]).lines(), ["alpha", "alpha_deep", "cpu"]);
}

#[test]
fn a_backend_of_another_target_is_not_linked() {
    let manifest = r#"
[dependencies]
device-registry = { path = "@crates/device-registry" }

[target.'cfg(unix)'.dependencies]
device-alpha = { path = "@fixtures/device-alpha" }

[target.'cfg(windows)'.dependencies]
device-beta = { path = "@fixtures/device-beta" }
"#;
    let project = Project::new("link-target-table", manifest, &[("src/main.rs", &main_rs())]);
    let expected: &[&str] = if cfg!(windows) { &["beta", "cpu"] } else { &["alpha", "alpha_deep", "cpu"] };
    assert_eq!(cargo_run(&project, &[]).lines(), expected);
}

#[test]
fn a_library_with_an_autoload_of_its_own_brings_its_backends_along() {
    let manifest = r#"
[dependencies]
device-registry = { path = "@crates/device-registry" }
link-bundle = { path = "bundle" }
"#;
    let bundle = r#"
[package]
name = "link-bundle"
edition = "2024"

[dependencies]
device-registry = { path = "@crates/device-registry" }
device-alpha = { path = "@fixtures/device-alpha" }
"#;
    let project = Project::new(
        "link-behind-library",
        manifest,
        &[
            ("bundle/Cargo.toml", bundle),
            ("bundle/src/lib.rs", "device_registry::autoload!();\n"),
            ("src/main.rs", &main_rs()),
        ],
    );
    assert_eq!(cargo_run(&project, &[]).lines(), ["alpha", "alpha_deep", "cpu"]);

    // A program that only uses the library needs no line of its own.
    project.write("src/main.rs", &format!("use link_bundle as _;\n{LIST}"));
    assert_eq!(cargo_run(&project, &[]).lines(), ["alpha", "alpha_deep", "cpu"]);

    // A library without the line links none of its own backends: Cargo's list names direct dependencies only.
    project.write("bundle/src/lib.rs", "");
    project.write("src/main.rs", &main_rs());
    assert_eq!(cargo_run(&project, &[]).lines(), ["cpu"]);
}

#[test]
fn two_programs_of_one_package_each_link_the_backends_that_they_name() {
    let project = Project::new(
        "link-two-programs",
        ALPHA,
        &[("src/bin/link-two-programs-with.rs", &main_rs()), ("src/bin/link-two-programs-without.rs", LIST)],
    );
    let with = cargo_run(&project, &["--bin", "link-two-programs-with"]);
    assert_eq!(with.lines(), ["alpha", "alpha_deep", "cpu"]);
    let without = cargo_run(&project, &["--bin", "link-two-programs-without"]);
    assert_eq!(without.lines(), ["cpu"]);

    // A list that is short says why.
    project.write(
        "src/bin/link-two-programs-without.rs",
        "fn main() { println!(\"{}\", device_registry::backends().report()) }\n",
    );
    let report = cargo_run(&project, &["--bin", "link-two-programs-without"]);
    report.shows("note: no `autoload!` line is found");
    report.shows("write `device_registry::autoload!();` once, in main.rs or lib.rs");
}

#[test]
fn a_program_may_have_several_lines_in_one_module() {
    // As it has if it follows the READMEs of two frameworks.
    let main = format!("device_registry::autoload!();\n{}", main_rs());
    let project = Project::new("link-two-lines", ALPHA, &[("src/main.rs", &main)]);
    assert_eq!(cargo_run(&project, &[]).lines(), ["alpha", "alpha_deep", "cpu"]);
    // Cargo says of no test that it is a program.
    project.write(
        "tests/two.rs",
        "device_registry::autoload!();\ndevice_registry::autoload!();\n#[test] fn two() {}\n",
    );
    cargo_test(&project, &["--test", "two"], "two");
}

#[test]
fn a_look_up_does_not_panic_if_linkme_cannot_read_the_lines() {
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    // linkme refuses to read two slices of one name, as two builds of entry-points would have them.
    let slice = format!("pub static ENTRY_POINTS_{major}_{minor}_AUTOLOADS: [u8];");
    let report = "fn main() { eprintln!(\"{}\", device_registry::backends().report());";
    let main = main_rs().replace("fn main() {", report);
    let main = format!("#[linkme::distributed_slice]\n{slice}\n{main}");
    let manifest = format!("{ALPHA}linkme = \"0.3\"\n");
    let project = Project::new("link-two-slices", &manifest, &[("src/main.rs", &main)]);
    let outcome = cargo_run(&project, &[]);
    assert_eq!(outcome.lines(), ["alpha", "alpha_deep", "cpu"]);
    outcome.shows("the `autoload!` lines cannot be read (");
    outcome.shows("duplicate #[distributed_slice]");
    assert!(!outcome.stderr.contains("no collector works"), "{}", outcome.stderr);
}

#[test]
fn a_procedural_macro_crate_may_have_a_line() {
    let manifest = "[lib]\nproc-macro = true\n\n[dependencies]\ndevice-registry = { path = \"@crates/device-registry\" }\n\
                    device-alpha = { path = \"@fixtures/device-alpha\" }\n";
    let project = Project::new(
        "link-proc-macro",
        manifest,
        &[
            (
                "src/lib.rs",
                "device_registry::autoload!();\n
                /// The names, as a literal.
                #[proc_macro]
                pub fn names(_: proc_macro::TokenStream) -> proc_macro::TokenStream {
                    let names: Vec<_> = device_registry::backends().names().collect();
                    format!(\"{:?}\", names.join(\" \")).parse().unwrap()
                }\n",
            ),
            (
                "examples/link-proc-macro-names.rs",
                "fn main() { println!(\"{}\", link_proc_macro::names!()) }\n",
            ),
        ],
    );
    assert_eq!(
        cargo_run(&project, &["--example", "link-proc-macro-names"]).lines(),
        ["alpha alpha_deep cpu"]
    );
}

#[test]
fn a_unit_test_of_a_framework_says_why_it_does_not_see_a_plugin_and_sees_its_own() {
    let manifest = "[dependencies]\nentry-points = { path = \"@crates/entry-points\" }\n\n\
                    [dev-dependencies]\n@name-plugin = { path = \"plugin\" }\n";
    let library = r#"
pub use entry_points::{EntryPoint, Group, autoload, entry_points};

entry_points::group! {
    pub static FILTERS: [EntryPoint<u8>];
    pub fn filters() -> Group<u8> { Group::new("filters") }
}

entry_points! {
    #[distributed_slice(FILTERS)]
    static INVERT: EntryPoint<u8> = EntryPoint::new("invert", || Ok(Box::new(0)));
}

#[cfg(test)]
mod tests {
    entry_points::autoload!();

    #[test]
    fn sees_its_own() {
        println!("{}", super::filters().report());
        assert!(super::filters().load("invert").is_ok());
        assert!(super::filters().load("blur").is_err());
    }
}
"#;
    let plugin = r#"
link_unit_test::entry_points! {
    #[distributed_slice(link_unit_test::FILTERS)]
    static BLUR: link_unit_test::EntryPoint<u8> = link_unit_test::EntryPoint::new("blur", || Ok(Box::new(0)));
}
"#;
    let test = "link_unit_test::autoload!();\n\n#[test]\nfn sees_the_plugin() {
        assert!(link_unit_test::filters().load(\"blur\").is_ok());\n}\n";
    let project = Project::new(
        "link-unit-test",
        manifest,
        &[
            (
                "plugin/Cargo.toml",
                "[package]\nname = \"@name-plugin\"\nedition = \"2024\"\n\n[dependencies]\nlink-unit-test = { path = \"..\" }\n",
            ),
            ("plugin/src/lib.rs", plugin),
            ("src/lib.rs", library),
            ("tests/integration.rs", test),
        ],
    );
    let outcome = run(&mut project.cargo(["test", "--lib", "--", "--nocapture"])).success();
    outcome.shows("test tests::sees_its_own ... ok");
    outcome.shows(
        "the entry points of link_unit_test_plugin were declared for another build of `link_unit_test`",
    );
    outcome.shows("this is a unit test of `link_unit_test`, and plugins depend on its ordinary build; put tests that need plugins into `tests/`");
    assert!(!outcome.stderr.contains("panicked"), "linkme's slices were not read: {}", outcome.stderr);
    cargo_test(&project, &["--test", "integration"], "sees_the_plugin");
}

#[test]
fn a_doctest_links_backends() {
    let library = r#"
//! ```
//! device_registry::autoload!();
//!
//! fn main() {
//!     let names: Vec<_> = device_registry::backends().names().collect();
//!     assert_eq!(names, ["alpha", "alpha_deep", "cpu"]);
//! }
//! ```
"#;
    let project = Project::new("link-doctest", ALPHA, &[("src/lib.rs", library)]);
    cargo_test(&project, &["--doc"], "src/lib.rs");
}

const BARE: &str = r#"
[dependencies]
device-registry = { path = "@crates/device-registry" }
device-bare = { path = "@fixtures/device-bare" }
"#;

#[test]
fn a_backend_with_the_bare_attribute_of_linkme_is_linked() {
    let project = Project::new("link-bare", BARE, &[("src/main.rs", &main_rs())]);
    assert_eq!(cargo_run(&project, &[]).lines(), ["bare", "bare_inner", "bare_outer", "cpu"]);
}

#[test]
fn extern_crate_lines_by_hand_do_what_autoload_does() {
    let manifest = r#"
[dependencies]
device-registry = { path = "@crates/device-registry" }
device-alpha = { path = "@fixtures/device-alpha" }
device-bare = { path = "@fixtures/device-bare" }
"#;
    let by_hand = format!("extern crate device_alpha as _;\nextern crate device_bare as _;\n{LIST}");
    let project = Project::new("link-by-hand", manifest, &[("src/main.rs", &by_hand)]);
    assert_eq!(
        cargo_run(&project, &[]).lines(),
        ["alpha", "alpha_deep", "bare", "bare_inner", "bare_outer", "cpu"]
    );

    project.write("src/main.rs", &by_hand.replace("extern crate device_alpha as _;", ""));
    assert_eq!(cargo_run(&project, &[]).lines(), ["bare", "bare_inner", "bare_outer", "cpu"]);
}

#[test]
fn autoload_links_only_the_named_crates_or_all_except_them() {
    let manifest = r#"
[dependencies]
device-registry = { path = "@crates/device-registry" }
device-alpha = { path = "@fixtures/device-alpha" }
device-beta = { path = "@fixtures/device-beta" }
"#;
    let main = |choice: &str| format!("device_registry::autoload!({choice});\n{LIST}");
    let project = Project::new("link-choice", manifest, &[("src/main.rs", &main("only device_alpha"))]);
    assert_eq!(cargo_run(&project, &[]).lines(), ["alpha", "alpha_deep", "cpu"]);

    project.write("src/main.rs", &main("except device_alpha"));
    assert_eq!(cargo_run(&project, &[]).lines(), ["beta", "cpu"]);
}

#[test]
fn a_crate_that_cannot_be_linked_can_be_left_out() {
    let manifest = r#"
[dependencies]
device-registry = { path = "@crates/device-registry" }
device-alpha = { path = "@fixtures/device-alpha" }
link-panic-handler = { path = "panic-handler" }
"#;
    let panic_handler = r#"
        #![no_std]
        #[panic_handler]
        fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
            loop {}
        }
    "#;
    let project = Project::new(
        "link-except",
        manifest,
        &[
            ("panic-handler/Cargo.toml", "[package]\nname = \"link-panic-handler\"\nedition = \"2024\"\n"),
            ("panic-handler/src/lib.rs", panic_handler),
            ("src/main.rs", &format!("device_registry::autoload!(except link_panic_handler);\n{LIST}")),
        ],
    );
    assert_eq!(cargo_run(&project, &[]).lines(), ["alpha", "alpha_deep", "cpu"]);

    project.write("src/main.rs", &main_rs());
    run(&mut project.cargo(["build"])).failure().shows("panic_impl");
}

#[test]
fn the_feature_inventory_finds_what_linkme_cannot() {
    let without = r#"
[dependencies]
device-registry = { path = "@crates/device-registry" }
device-alpha = { path = "@fixtures/device-alpha" }
linkme = "0.3"
"#;
    let with = without.replace("device-registry\" }", "device-registry\", features = [\"inventory\"] }");
    // linkme refuses to read two slices of one name, which blinds it in a program that any linker links.
    let namesake = "#[linkme::distributed_slice]\npub static ENTRY_POINTS_device_registry_BACKENDS: [u8];\n";
    let by_hand = format!("extern crate device_alpha as _;\n{namesake}{LIST}");
    let project = Project::new("link-inventory", without, &[("src/main.rs", &by_hand)]);
    assert_eq!(cargo_run(&project, &[]).lines(), ["cpu"]);
    project.write_manifest(&with);
    assert_eq!(cargo_run(&project, &[]).lines(), ["alpha", "alpha_deep", "cpu"]);

    // Where linkme works as well, each backend comes by three ways, and is one all the same.
    project.write("src/main.rs", &main_rs());
    assert_eq!(cargo_run(&project, &[]).lines(), ["alpha", "alpha_deep", "cpu"]);
}
