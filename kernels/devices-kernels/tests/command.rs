//! The command on the host's kernels.

use std::process::Command;

fn command(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_devices-kernels")).args(arguments).output().expect("it starts")
}

#[test]
fn every_call_is_measured_or_has_no_kernel() {
    let output = command(&["bench", "--kernels", "cpu", "openreg:1", "--largest", "64K", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let measurements = record["measurements"].as_array().expect("a list");
    for device in ["cpu", "openreg:1"] {
        let has = |operation: &str| {
            let of = |one: &&serde_json::Value| one["device"] == device && one["operation"] == operation;
            measurements.iter().find(of).unwrap_or_else(|| panic!("{operation} on {device}: {record:#}"))
        };
        let add = has("add f32[1024] f32[1024]");
        assert!(add["bytes"] == 12_288 && add["seconds"].as_f64() > Some(0.0) && add["operations"].is_null());
        assert_eq!(has("matmul f32[64, 64] f32[64, 64]")["operations"], 2 * 64 * 64 * 64);
    }
    assert!(record["missing"].is_null() && record["errors"] == serde_json::json!([]), "{record:#}");
}

#[test]
fn a_device_without_kernels_has_none_of_them() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_devices-kernels"));
    command.args(["bench", "--kernels", "openreg", "--largest", "16K"]).env("DEVICE_KERNELS_DISABLE", "*");
    let output = command.output().expect("it starts");
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(printed.contains("`openreg:0` has no kernel for add f32[1024] f32[1024], relu"), "{printed}");
}
