//! For a backend's own tests: tests in their own process, and the libraries and threads of this process.
//!
//! A test needs its own process if it changes environment variables, crashes, or counts libraries or
//! threads.

use std::env;
use std::process::{Command, Output};
#[cfg(target_os = "linux")]
use std::thread;
#[cfg(target_os = "linux")]
use std::time::{Duration, Instant};

use crate::environment::{REQUIRE, WORKER};

const CHILD: &str = "DEVICE_CONFORMANCE_CHILD";

const NOT_ELEVATED: &str = "this process is not elevated";

/// Whether [`again`] or [`program`] started this process.
#[must_use]
pub fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// A command that starts this program once more. [`is_child`] returns `true` there.
///
/// It removes `DEVICE_CONFORMANCE_REQUIRE`, because a test may hide a required backend from its child.
///
/// # Panics
///
/// If the path of this program is unknown.
#[must_use]
pub fn program() -> Command {
    let mut command = Command::new(env::current_exe().expect("a test has a file"));
    command.env(CHILD, "1").env("RUST_BACKTRACE", "0").env_remove(REQUIRE).env_remove(WORKER);
    command
}

/// Runs one test of this program once more, in its own process, and returns its output. `prepare` may
/// change the command.
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
/// If this program has no test of this name, or does not start.
#[track_caller]
pub fn again(test: &str, prepare: impl FnOnce(&mut Command) -> &mut Command) -> Output {
    let mut command = program();
    let output =
        prepare(&mut command).args([test, "--exact", "--nocapture"]).output().expect("the program starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("running 1 test"), "this program has no test `{test}`: {printed}");
    output
}

/// Runs one test as [`again`] does, and expects it to pass.
///
/// # Panics
///
/// If the test fails, with its standard error. Also whenever [`again`] panics.
#[track_caller]
pub fn passes(test: &str, prepare: impl FnOnce(&mut Command) -> &mut Command) {
    let output = again(test, prepare);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{test} ended with {}: {printed}", output.status);
}

/// Runs one test as [`again`] does, in a process that is [elevated](device_registry::backend::is_elevated): a
/// copy of this program with the set-user-ID bit of root, started by the user 65534. `None` where that is
/// impossible, after a line that says why.
///
/// # Panics
///
/// Whenever [`again`] panics, and if the copy cannot be written.
#[cfg(unix)]
#[track_caller]
pub fn again_elevated(test: &str, prepare: impl FnOnce(&mut Command) -> &mut Command) -> Option<Output> {
    use std::fs::{self, DirBuilder, Permissions};
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
    use std::os::unix::process::CommandExt;
    use std::path::PathBuf;

    /// A program with such a bit stays no longer than it is needed, and not after a panic.
    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            if let Err(error) = fs::remove_dir_all(&self.0) {
                eprintln!("remove {}, which has a program that is elevated: {error}", self.0.display());
            }
        }
    }

    /// The user, and the group, that starts it.
    const UNPRIVILEGED: u32 = 65534;

    let folder = env::temp_dir().join(format!("device-conformance-{}-{test}", std::process::id()));
    DirBuilder::new().mode(0o700).create(&folder).expect("it is not there yet");
    let folder = Folder(folder);
    if fs::metadata(&folder.0).expect("it is there").uid() != 0 {
        println!("skipped: {test}: only root can make a program that is elevated for another user");
        return None;
    }
    let copy = folder.0.join("elevated");
    fs::copy(env::current_exe().expect("a test has a file"), &copy).expect("there is room");
    // Only this group may start it: a test program writes any file that its arguments name.
    for (path, mode) in [(&copy, 0o4750), (&folder.0, 0o710)] {
        // First, because it removes the bit.
        if let Err(error) = chown(path, None, Some(UNPRIVILEGED)) {
            println!("skipped: {test}: this process cannot give a file to the group {UNPRIVILEGED}: {error}");
            return None;
        }
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is root's");
    }
    let mut command = Command::new(&copy);
    command.env(CHILD, "1").env("RUST_BACKTRACE", "0").env_remove(REQUIRE).env_remove(WORKER);
    prepare(&mut command)
        .args([test, "--exact", "--nocapture"])
        .uid(UNPRIVILEGED)
        .gid(UNPRIVILEGED)
        .current_dir("/");
    let output = command.output();
    drop(folder);
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            println!(
                "skipped: {test}: this process cannot start a program as the user {UNPRIVILEGED}: {error}"
            );
            return None;
        }
    };
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("running 1 test"), "this program has no test `{test}`: {printed}");
    if printed.contains(NOT_ELEVATED) {
        println!("skipped: {test}: the folder of temporary files ignores the set-user-ID bit");
        return None;
    }
    Some(output)
}

/// For the test that [`again_elevated`] runs: whether this process is elevated. Prints a line if it is not.
#[must_use]
pub fn is_elevated() -> bool {
    let elevated = device_registry::backend::is_elevated();
    if !elevated {
        println!("{NOT_ELEVATED}");
    }
    elevated
}

/// The environment of a child: this process's, without the variables that choose drivers on this machine.
///
/// A backend defines one for its tests:
///
/// ```no_run
/// use device_conformance::process::{self, Environment};
///
/// const CHILD: Environment = Environment::without(&["ACME_DRIVERS", "ACME_DEBUG_*"]);
///
/// #[test]
/// fn a_missing_driver_is_reported() {
///     if !process::is_child() {
///         return CHILD.passes("a_missing_driver_is_reported", &[("ACME_DRIVERS", "/nonexistent")]);
///     }
///     assert!(!device_registry::is_available("acme"));
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Environment {
    removed: &'static [&'static str],
    set: &'static [(&'static str, &'static str)],
}

impl Environment {
    /// Removes these variables. A `*` at the end of a name stands for any text.
    #[must_use]
    pub const fn without(variables: &'static [&'static str]) -> Self {
        Self { removed: variables, set: &[] }
    }

    /// Sets these variables as well.
    #[must_use]
    pub const fn with(self, variables: &'static [(&'static str, &'static str)]) -> Self {
        Self { set: variables, ..self }
    }

    /// Gives a command this environment.
    pub fn apply(self, command: &mut Command) -> &mut Command {
        for removed in self.removed {
            let Some(prefix) = removed.strip_suffix('*') else {
                command.env_remove(removed);
                continue;
            };
            for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with(prefix)) {
                command.env_remove(name);
            }
        }
        command.envs(self.set.iter().copied())
    }

    /// Runs one test as [`again`] does, in this environment and with these variables.
    ///
    /// # Panics
    ///
    /// Whenever [`again`] panics.
    #[track_caller]
    pub fn again(self, test: &str, variables: &[(&str, &str)]) -> Output {
        again(test, |child| self.apply(child).envs(variables.iter().copied()))
    }

    /// Runs one test as [`passes`] does, in this environment and with these variables.
    ///
    /// # Panics
    ///
    /// Whenever [`passes`] panics.
    #[track_caller]
    pub fn passes(self, test: &str, variables: &[(&str, &str)]) {
        passes(test, |child| self.apply(child).envs(variables.iter().copied()));
    }
}

/// The paths of the libraries that this process has open, sorted.
///
/// # Panics
///
/// If `/proc/self/maps` cannot be read.
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

/// The names of the threads of this process, sorted.
///
/// A new thread may not have its name yet, and a joined thread may still be listed for a moment: see
/// [`wait_for_threads`].
///
/// # Panics
///
/// If `/proc/self/task` cannot be read.
#[cfg(target_os = "linux")]
#[must_use]
pub fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux has it");
    // A thread may end between the two reads.
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    let mut names: Vec<_> = names.map(|name| name.trim().to_owned()).collect();
    names.sort();
    names
}

/// Waits until the [threads] of this process satisfy a condition.
///
/// # Panics
///
/// If they do not within 10 seconds.
#[cfg(target_os = "linux")]
#[track_caller]
pub fn wait_for_threads(condition: impl Fn(&[String]) -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let threads = threads();
        if condition(&threads) {
            return;
        }
        assert!(Instant::now() < end, "unexpected threads: {threads:?}");
        thread::sleep(Duration::from_millis(1));
    }
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

    #[test]
    fn an_environment_removes_sets_and_keeps_variables() {
        const TEST: &str = "process::tests::an_environment_removes_sets_and_keeps_variables";
        const OUTER: Environment = Environment::without(&[]);
        const INNER: Environment =
            Environment::without(&["PROCESS_TEST_A", "PROCESS_TEST_B*"]).with(&[("PROCESS_TEST_C", "set")]);
        const VARIABLES: [(&str, &str); 4] = [
            ("PROCESS_TEST_A", "1"),
            ("PROCESS_TEST_B1", "1"),
            ("PROCESS_TEST_B2", "1"),
            ("PROCESS_TEST_K", "1"),
        ];
        if !is_child() {
            return OUTER.passes(TEST, &VARIABLES);
        }
        let set: Vec<_> = env::vars().filter(|(name, _)| name.starts_with("PROCESS_TEST_")).collect();
        if env::var_os("PROCESS_TEST_L").is_none() {
            assert_eq!(set.len(), VARIABLES.len(), "{set:?}");
            return INNER.passes(TEST, &[("PROCESS_TEST_L", "given")]);
        }
        let expected = [("PROCESS_TEST_C", "set"), ("PROCESS_TEST_K", "1"), ("PROCESS_TEST_L", "given")];
        let mut set: Vec<_> = set.iter().map(|(name, value)| (&**name, &**value)).collect();
        set.sort_unstable();
        assert_eq!(set, expected);
    }

    #[cfg(unix)]
    #[test]
    fn an_elevated_copy_is_for_one_group_and_does_not_outlive_a_panic() {
        use std::os::unix::fs::MetadataExt;
        use std::panic::AssertUnwindSafe;
        use std::path::{Path, PathBuf};

        let mut copy = None;
        let started = || {
            again_elevated("a_copy", |child| {
                let of = |path: &Path| {
                    let data = path.metadata().unwrap();
                    (data.uid(), data.gid(), data.mode() & 0o7777)
                };
                let copy = copy.insert(PathBuf::from(child.get_program()));
                assert_eq!(of(copy), (0, 65534, 0o4750));
                assert_eq!(of(copy.parent().unwrap()), (0, 65534, 0o710));
                assert!(child.get_envs().any(|variable| variable == (WORKER.as_ref(), None)));
                panic!("on purpose")
            })
        };
        let panic = catch_unwind(AssertUnwindSafe(started));
        let Some(copy) = copy else { return assert!(panic.is_ok_and(|output| output.is_none())) };
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"on purpose"));
        assert!(!copy.exists() && !copy.parent().unwrap().exists());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn libraries_and_threads_of_this_process_are_listed() {
        assert!(libraries().iter().any(|file| file.contains("libc.so")), "{:?}", libraries());
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = thread::Builder::new().name("listed".to_owned()).spawn(move || ended.recv());
        // Linux may leave out a thread while others end.
        wait_for_threads(|threads| threads.contains(&"listed".to_owned()));
        drop(end);
        assert!(thread.unwrap().join().unwrap().is_err());
        wait_for_threads(|threads| !threads.contains(&"listed".to_owned()));
    }
}
