//! A child of `fork` gets errors from devices in files that its parent uses, as from linked ones.

use crate::support::probe;

#[test]
fn a_child_gets_errors_and_the_parent_continues() {
    for (install, name) in [
        ("install=reg:openreg:openreg_file", "reg"),
        ("install=stream_drop:stream_drop:panicky_file", "stream_drop"),
    ] {
        let printed = probe(&[], &[install, &format!("fork={name}")]);
        let forked = "was in use when this process was forked, and devices do not survive a fork; start processes with \
                      `std::process::Command`, or use devices in the child alone";
        let mut expected = String::new();
        for (what, device) in [
            ("write", format!("{name}:0")),
            ("read", format!("{name}:0")),
            ("open", name.to_owned()),
            ("close", name.to_owned()),
            ("stream", format!("{name}:0")),
            ("event", format!("{name}:0")),
        ] {
            expected += &format!("child: {what}: `{device}` {forked}\n");
        }
        expected += "child: dropped\nchild ended: 0\nparent continues\n";
        assert_eq!(printed, expected);
    }
}

#[test]
fn a_child_may_open_a_library_that_its_parent_has_not_used() {
    let printed = probe(&[], &["install=reg:openreg:openreg_file", "fork=cpu", "use=reg"]);
    assert!(printed.ends_with("parent continues\nreg: \"yust\"\n"), "{printed}");
}
