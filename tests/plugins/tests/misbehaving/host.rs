//! What a plugin logs, and its panics, reach the program's logger and its panic hook.

use crate::support::{plug_in, probe};

#[test]
fn the_programs_panic_hook_hears_of_a_panic_in_a_plug_in() {
    let file = plug_in("panicky_file");
    let printed = probe(&[], &["hook", "install=write:write:panicky_file", "write=write"]);
    let [hook, error] = printed.lines().collect::<Vec<_>>()[..] else { panic!("{printed}") };
    let expected = format!("hook: in write (in {}, at tests/plugins/plugins/panicky.rs:", file.display());
    assert!(hook.starts_with(&expected), "{hook}");
    assert_eq!(
        error,
        "write: error: `write:0` (device-plugin-tests 0.1.0): write: the backend panicked: in write"
    );
}

#[test]
fn the_hook_hears_of_a_panic_with_a_value_and_of_one_in_a_thread_of_the_plug_in() {
    let install = ["install=write_any:write_any:panicky_file", "install=thread:thread:panicky_file"];
    let printed = probe(&[], &["hook", install[0], install[1], "write=write_any", "write=thread", "use=cpu"]);
    let shown = plug_in("panicky_file");
    let shown = shown.display();
    for message in ["a value that is no text", "in a thread of the library"] {
        let expected = format!("hook: {message} (in {shown}, at tests/plugins/plugins/panicky.rs:");
        assert!(printed.lines().any(|line| line.starts_with(&expected)), "{message}: {printed}");
    }
    assert!(printed.contains("write_any: error: "), "{printed}");
    assert!(printed.contains("thread: ()\ncpu: \"yust\"\n"), "{printed}");
}

/// The lines of the logger, for a plugin whose memory panics in its drop: an error.
fn logged(level: &str) -> Vec<String> {
    let install = "install=memory_drop:memory_drop:panicky_file";
    let printed = probe(&[], &[&format!("log={level}"), "hook", install, "write=memory_drop"]);
    printed.lines().filter_map(|line| line.strip_prefix("log: ").map(str::to_owned)).collect()
}

#[test]
fn the_programs_logger_gets_what_a_plug_in_logs() {
    let freed = "ERROR device_registry::runtime::isolation: `memory_drop:0`: a panic while freeing memory: in \
                 memory_drop";
    assert_eq!(logged("error"), [freed]);
    let debug = logged("debug");
    assert!(debug.iter().any(|line| line == freed), "{debug:?}");
    assert!(debug.len() > 1, "{debug:?}");
}

#[test]
fn a_plug_in_logs_no_more_than_the_program_wants() {
    assert_eq!(logged("off"), [""; 0]);
}

#[test]
fn a_logger_that_uses_the_library_that_is_opening_gets_an_error() {
    let install = ["install=one:openreg:openreg_file", "install=two:openreg:openreg_file"];
    let printed = probe(&[], &[install[0], install[1], "using_logger=two", "write=one", "write=two"]);
    let lines: Vec<_> = printed.lines().collect();
    let [cycle, .., one, two] = lines[..] else { panic!("{printed}") };
    assert!(cycle.starts_with("two: error: ") && cycle.contains("needs itself to load"), "{printed}");
    assert_eq!([one, two], ["one: ()", "two: ()"]);
}

#[test]
fn a_logger_that_panics_harms_no_plug_in() {
    let install = "install=memory_drop:memory_drop:panicky_file";
    let printed =
        probe(&[], &["hook", "bad_logger", install, "write=memory_drop", "use=memory_drop", "use=cpu"]);
    let results: Vec<_> = printed.lines().filter(|line| !line.starts_with("hook: ")).collect();
    assert_eq!(results, ["memory_drop: ()", "memory_drop: \"yust\"", "cpu: \"yust\""]);
    assert!(printed.contains("hook: the pipe is closed\n"), "{printed}");
}
