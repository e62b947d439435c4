//! Everything at once, from several threads: the program `stress`, for a few seconds.

use std::process::{Command, Output};

use device_registry::is_available;
use device_registry::registry::Switches;

fn stress(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stress"));
    for variable in Switches::variables("DEVICE_BACKEND") {
        command.env_remove(variable);
    }
    command.args(arguments).output().expect("the program starts")
}

/// The number before a word in the program's last line.
fn count(printed: &str, word: &str) -> u64 {
    let before = printed.split(word).next().filter(|before| before.len() < printed.len());
    let number = before.and_then(|before| before.split_whitespace().next_back());
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no `{word}` in: {printed}"))
}

#[test]
fn random_work_on_several_devices_is_done_in_order_and_each_failure_is_reported_once() {
    let mut devices = "cpu,openreg:0,openreg:1".to_owned();
    if is_available("opencl:0") {
        devices += ",opencl:0";
    }
    let output = stress(&["--seed", "1", "--seconds", "5", "--devices", &devices]);
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{printed}{errors}", output.status);
    assert!(printed.starts_with("seed 1, 4 threads, devices cpu,openreg:0"), "{printed}");
    let last = printed.lines().last().expect("it prints what it did");
    assert!(count(last, " operations") > 0, "{last}");
    assert!(count(last, " reported") > 0, "{last}");
}

#[test]
fn a_thread_without_progress_ends_the_program_and_says_what_it_was_doing() {
    // Each thread stands still for longer than no time.
    let output = stress(&["--seed", "2", "--seconds", "30", "--devices", "cpu", "--calm", "--watchdog", "0"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{errors}");
    assert!(errors.starts_with("stress: no progress for 0ns"), "{errors}");
    assert!(errors.contains("  thread 3: round "), "{errors}");
    assert!(errors.contains("replay: --seed 2 --round "), "{errors}");
}

#[test]
fn an_option_that_does_not_exist_is_an_error_with_the_options_that_do() {
    let output = stress(&["--speed", "2"]);
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.starts_with("stress: there is no option `--speed`"), "{errors}");
    assert!(errors.contains("--seed N"), "{errors}");
}
