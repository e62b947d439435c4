//! A program with more rights than its user reads no file that the user could have chosen.
//!
//! The test runs a copy of itself that belongs to another user and has the set-user-ID bit.
#![cfg(unix)]

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use device_config::Config;
use device_registry::backend::is_elevated;

const OTHER_USER: u32 = 12_345;

/// What the copy does.
#[test]
#[ignore = "the other test runs it in a process of its own"]
fn load_by_the_variable_and_beside_the_program() {
    println!("{}", if is_elevated() { "ELEVATED" } else { "ORDINARY" });
    println!("{}", Config::new().beside_program().load().unwrap());
    if let Ok(file) = env::var("TEST_NAMED_BY_CODE") {
        println!("{}", Config::new().file(file).load().unwrap());
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_set_user_id_program_reads_only_a_file_that_code_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    let (program, beside, named) = (path.join("program"), path.join(Config::FILE), path.join("named.toml"));
    for file in [&beside, &named] {
        fs::write(file, "default = 'cpu'\n").unwrap();
    }
    // By another process, so that no thread of this one can keep the copy open for writing.
    let copied = Command::new("cp").arg(env::current_exe().unwrap()).arg(&program).status().unwrap();
    assert!(copied.success());
    set_mode(&path, 0o755);
    set_mode(&program, 0o755);
    let run = |variable: &str| {
        let mut command = Command::new(&program);
        command.args(["--exact", "--ignored", "--nocapture", "load_by_the_variable_and_beside_the_program"]);
        let output = command.env(variable, &named).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let ordinary = run(Config::VARIABLE);
    assert!(ordinary.contains(&format!("\nconfiguration of {}\n", named.display())), "{ordinary}");

    if chown(&program, Some(OTHER_USER), None).is_err() {
        eprintln!("skipped: only root can give a program to another user");
        return;
    }
    set_mode(&program, 0o4755);
    let elevated = run(Config::VARIABLE);
    if elevated.contains("ORDINARY") {
        eprintln!("skipped: this file system ignores the set-user-ID bit");
        return;
    }
    let rights = "this process has more rights than its user";
    let report = format!(
        "\nno configuration file\n  DEVICE_CONFIG is ignored: {rights}, whose environment must not name files\n  \
         device.toml beside the program is ignored: {rights}, who may link to the program from any folder\n"
    );
    assert!(elevated.contains(&report), "{elevated}");
    let by_code = run("TEST_NAMED_BY_CODE");
    assert!(by_code.contains(&format!("\nconfiguration of {}\n  line 1: ", named.display())), "{by_code}");
}
