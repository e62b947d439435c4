//! The example `codec` as its readers use it: the program's own source, with and without the lines that bring
//! the backend and the decoder along.

use std::process::Command;

use device_registry_tests::{Outcome, Project, artifacts, run};

const MAIN: &str = include_str!("../../../examples/codec/decode/src/main.rs");
const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/codec/sample.png");

/// The dependencies of the example, but for its backend and its decoder.
const DEPENDENCIES: &str = "
[dependencies]
clap = { version = \"4.6\", default-features = false, features = [\"derive\", \"error-context\", \"help\", \"std\", \"usage\"] }
codec = { path = \"@examples/codec/codec\" }
device-registry = { path = \"@crates/device-registry\" }
";

const BACKEND: &str = "device-openreg = { path = \"@crates/device-openreg\" }\n";
const DECODER: &str = "codec-openreg = { path = \"@examples/codec/codec-openreg\" }\n";

fn decode_on_openreg(project: &Project, lines: &[&str]) -> Outcome {
    project.write_manifest(&format!("{DEPENDENCIES}{}", lines.concat()));
    let _ = run(&mut project.cargo(["build", "--quiet"])).success();
    let mut command: Command = project.command(artifacts().join("debug").join(project.name()));
    run(command.args([SAMPLE, "--device", "openreg"]))
}

#[test]
fn a_line_in_the_manifest_brings_the_decoder_along_and_another_the_device() {
    let project = Project::new("codec-lines", DEPENDENCIES, &[("src/main.rs", MAIN)]);

    let both = decode_on_openreg(&project, &[BACKEND, DECODER]).success();
    assert_eq!(both.lines()[0], "shape [3, 4, 6] on openreg:0");

    let no_decoder = decode_on_openreg(&project, &[BACKEND]).failure();
    assert_eq!((no_decoder.status.code(), &no_decoder.stdout[..]), (Some(1), ""));
    no_decoder.shows(
        "error: there is no decoder for `openreg:0`; decode on `cpu`, and move the tensor with `.to(device)`",
    );
    no_decoder.shows("cpu   codec    0.1.0    built in");

    let no_device = decode_on_openreg(&project, &[DECODER]).failure();
    assert_eq!((no_device.status.code(), &no_device.stdout[..]), (Some(1), ""));
    no_device.shows("no backend called `openreg` is linked into this program");
}
