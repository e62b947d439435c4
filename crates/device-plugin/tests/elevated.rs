//! A program with more rights than its user ignores the user's variable, and trusts no files of that user.
//!
//! The test runs a copy of itself that belongs to another user and has the set-user-ID bit.
#![cfg(all(feature = "load", unix))]

mod common;

use std::env;
use std::fs;
use std::os::unix::fs::chown;
use std::process::Command;

use common::{folder, manifest, set_mode, write};
use device_plugin::Plugins;

const VARIABLE: &str = "DEVICE_PLUGIN_TEST_BACKENDS";
const OTHER_USER: u32 = 12_345;

/// What the copy does.
#[test]
#[ignore = "the other test runs it in a process of its own"]
fn install_from_the_variable_and_beside_the_program() {
    let report = Plugins::new().variable(VARIABLE).beside_program("backends").install().unwrap();
    println!("{report}");
    // SAFETY: both functions have no preconditions and cannot fail.
    let is_elevated = unsafe { libc::geteuid() != libc::getuid() };
    println!("{}", if is_elevated { "ELEVATED" } else { "ORDINARY" });
}

#[test]
fn a_set_user_id_program_ignores_the_variable_and_the_files_of_its_user() {
    let (_kept, path) = folder();
    let (program, beside, named) = (path.join("program"), path.join("backends"), path.join("named"));
    for folder in [&beside, &named] {
        fs::create_dir(folder).unwrap();
        set_mode(folder, 0o755);
        write(&folder.join("acme.plugin.json"), manifest("acme", "acme.so".as_ref(), ""));
    }
    fs::copy(env::current_exe().unwrap(), &program).unwrap();
    set_mode(&path, 0o755);
    let run = || {
        let mut command = Command::new(&program);
        command.args([
            "--exact",
            "--ignored",
            "--nocapture",
            "install_from_the_variable_and_beside_the_program",
        ]);
        let output = command.env(VARIABLE, &named).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };

    set_mode(&program, 0o755);
    let ordinary = run();
    assert!(ordinary.contains(&format!("{} (1 manifest)", named.display())), "{ordinary}");
    assert!(!ordinary.contains("skipped"), "{ordinary}");

    if chown(&program, Some(OTHER_USER), None).is_err() {
        eprintln!("skipped: only root can give a program to another user");
        return;
    }
    // The folder belongs to the user that the program runs for, and its manifest to neither.
    chown(beside.join("acme.plugin.json"), Some(OTHER_USER + 1), None).unwrap();
    set_mode(&program, 0o4755);
    let elevated = run();
    if elevated.contains("ORDINARY") {
        eprintln!("skipped: this file system ignores the set-user-ID bit");
        return;
    }
    let ignored = format!(
        "{VARIABLE} is skipped: this process has more rights than its user, whose environment must not name files"
    );
    assert!(elevated.contains(&ignored), "{elevated}");
    assert!(
        elevated.contains(&format!("{VARIABLE} (ignored), {} (1 manifest)", beside.display())),
        "{elevated}"
    );
    let owner =
        format!("belongs to the user {}; expected root or the user of this process, 12345;", OTHER_USER + 1);
    assert!(elevated.contains(&owner) && !elevated.contains("installed `acme`"), "{elevated}");

    // The user that the program belongs to is trusted.
    chown(beside.join("acme.plugin.json"), Some(OTHER_USER), None).unwrap();
    assert!(run().contains("installed `acme`"));
}
