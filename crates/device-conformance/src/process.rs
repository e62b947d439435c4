//! For a backend's own tests: what needs a process of its own, such as other variables or a crash, and what a process has
//! opened.

use std::env;
use std::process::{Command, Output};

const CHILD: &str = "DEVICE_CONFORMANCE_CHILD";

/// Whether this process is one that [`again`] or [`program`] has started.
#[must_use]
pub fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// This program, to be started once more: [`is_child`] is true there.
///
/// Without `DEVICE_CONFORMANCE_REQUIRE`, as what is required here may be hidden from a child on purpose.
///
/// # Panics
///
/// If the program's own file is not known.
#[must_use]
pub fn program() -> Command {
    let mut command = Command::new(env::current_exe().expect("a test has a file"));
    command.env(CHILD, "1").env("RUST_BACKTRACE", "0").env_remove(crate::environment::REQUIRE);
    command
}

/// Runs one test of this program once more, in a process of its own, and returns how that ended. `prepare` changes how it
/// starts.
///
/// ```no_run
/// use device_conformance::process;
///
/// #[test]
/// fn without_a_driver_it_says_what_to_install() {
///     if !process::is_child() {
///         let test = "without_a_driver_it_says_what_to_install";
///         return process::passes(test, |child| child.env("ACME_DRIVERS", "/nonexistent"));
///     }
///     let error = device_registry::device("acme").and_then(|device| device.open()).unwrap_err();
///     assert!(error.to_string().contains("install"), "{error}");
/// }
/// ```
///
/// # Panics
///
/// If this program has no test of this name, or cannot be started.
#[track_caller]
pub fn again(test: &str, prepare: impl FnOnce(&mut Command) -> &mut Command) -> Output {
    let mut command = program();
    let output =
        prepare(&mut command).args([test, "--exact", "--nocapture"]).output().expect("the program starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("running 1 test"), "there is no test `{test}`: {printed}");
    output
}

/// The same, for a test that has to pass.
///
/// # Panics
///
/// If it fails, with what it printed; and as [`again`] does.
#[track_caller]
pub fn passes(test: &str, prepare: impl FnOnce(&mut Command) -> &mut Command) {
    let output = again(test, prepare);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{test} ends with {}: {printed}", output.status);
}

/// The libraries that this process has opened by now, sorted: their files.
///
/// # Panics
///
/// If the system does not say.
#[cfg(target_os = "linux")]
#[must_use]
pub fn libraries() -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux has it");
    let files = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let mut libraries: Vec<_> = files.filter(|file| file.contains(".so")).map(str::to_owned).collect();
    libraries.sort();
    libraries.dedup();
    libraries
}

/// The names of the threads of this process, sorted. A thread that was just started may not have its name yet, and one
/// that was joined may be listed for a moment.
///
/// # Panics
///
/// If the system does not say.
#[cfg(target_os = "linux")]
#[must_use]
pub fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux has it");
    // A thread may end meanwhile.
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    let mut names: Vec<_> = names.map(|name| name.trim().to_owned()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn a_test_is_run_again_as_it_was_prepared() {
        let test = "process::tests::a_test_is_run_again_as_it_was_prepared";
        if !is_child() {
            passes(test, |child| child.env("PROCESS_TEST", "passes"));
            assert!(!again(test, |child| child.env("PROCESS_TEST", "fails")).status.success());
            assert!(catch_unwind(|| passes(test, |child| child.env("PROCESS_TEST", "fails"))).is_err());
            assert!(catch_unwind(|| again("no_such_test", |child| child)).is_err());
            return;
        }
        assert_eq!(env::var("PROCESS_TEST").unwrap(), "passes");
        assert_eq!(env::var_os(crate::environment::REQUIRE), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_a_process_has_is_listed() {
        assert!(libraries().iter().any(|file| file.contains("libc.so")), "{:?}", libraries());
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("listed".to_owned()).spawn(move || {
            tell.send(threads()).unwrap();
        });
        assert!(told.recv().unwrap().contains(&"listed".to_owned()));
        thread.unwrap().join().unwrap();
    }
}
