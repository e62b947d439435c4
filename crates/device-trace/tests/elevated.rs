//! A program with more rights than its user writes no file that the user names.
//!
//! The test runs a copy of itself that belongs to another user and has the set-user-ID bit.
#![cfg(unix)]

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use device_registry::backend::is_elevated;
use device_registry::{Device, activity};
use device_trace as _;

const OTHER_USER: u32 = 12_345;

/// What the copy does.
#[test]
#[ignore = "the other test runs it in a process of its own"]
fn use_a_device_with_a_trace() {
    drop(Device::cpu().allocate(64).unwrap());
    println!("{}", if is_elevated() { "ELEVATED" } else { "ORDINARY" });
    println!("{}", activity::observers().report());
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_set_user_id_program_writes_no_trace_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    let program = path.join("program");
    let files = [path.join("kept.txt"), path.join("kept.txt.before")];
    // By another process, so that no thread of this one can keep the copy open for writing.
    let copied = Command::new("cp").arg(env::current_exe().unwrap()).arg(&program).status().unwrap();
    assert!(copied.success());
    set_mode(&path, 0o755);
    set_mode(&program, 0o755);
    let run = || {
        files.iter().for_each(|file| fs::write(file, "of the other user").unwrap());
        let mut command = Command::new(&program);
        command.args(["--exact", "--ignored", "--nocapture", "use_a_device_with_a_trace"]);
        let output = command.env("DEVICE_TRACE", &files[0]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let ordinary = run();
    assert!(ordinary.contains("ORDINARY"), "{ordinary}");
    assert!(fs::read_to_string(&files[0]).unwrap().starts_with("[{") && !files[1].exists());

    if [&path, &program, &files[0]].into_iter().any(|path| chown(path, Some(OTHER_USER), None).is_err()) {
        eprintln!("skipped: only root can give a program to another user");
        return;
    }
    set_mode(&program, 0o4755);
    let elevated = run();
    if elevated.contains("ORDINARY") {
        eprintln!("skipped: this file system ignores the set-user-ID bit");
        return;
    }
    let ignored = "DEVICE_TRACE is ignored: this process has more rights than its user, whose environment must \
                   not name files";
    assert!(elevated.contains(ignored), "{elevated}");
    for file in &files {
        assert_eq!(fs::read_to_string(file).unwrap(), "of the other user", "{}", file.display());
    }
}
