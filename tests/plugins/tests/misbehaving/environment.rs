//! The switches and options of the program count for backends in files. A plugin's own copy of the registry
//! has none.

use crate::support::{plug_in, probe};

const INSTALL: &str = "install=reg:openreg:openreg_file";

#[test]
fn a_library_is_opened_at_the_first_use() {
    let printed = probe(&[], &[INSTALL, "report", "mapped", "use=reg", "mapped"]);
    let report = printed.lines().find(|line| line.starts_with("  reg ")).expect("it is listed");
    assert!(report.ends_with(&format!("installed; file: {}", plug_in("openreg_file").display())), "{report}");
    assert!(printed.ends_with("mapped: \nreg: \"yust\"\nmapped: libopenreg_file.so\n"), "{printed}");
}

#[test]
fn a_library_that_a_switch_turns_off_is_never_opened() {
    for (variable, value, shown) in [
        ("AUTOLOAD", "0", "DEVICE_BACKEND_AUTOLOAD=0"),
        ("INSTALLED", "0", "DEVICE_BACKEND_INSTALLED=0"),
        ("DISABLE", "reg", "DEVICE_BACKEND_DISABLE=reg"),
        ("DISABLE", "device-openreg/reg", "DEVICE_BACKEND_DISABLE=device-openreg/reg"),
        ("SELECT", "cuda", "DEVICE_BACKEND_SELECT=cuda, which does not match it"),
    ] {
        let printed = probe(&[(variable, value)], &[INSTALL, "use=reg", "mapped", "use=cpu"]);
        assert_eq!(
            printed,
            format!(
                "reg: error: backend `reg` (device-openreg 0.1.0 in {}) is disabled by {shown}\nmapped: \n\
                 cpu: \"yust\"\n",
                plug_in("openreg_file").display()
            )
        );
    }
}

#[test]
fn switches_have_no_effect_inside_of_a_plug_in() {
    // The library calls its backend `openreg`, and its copy of the registry would refuse that.
    for (variable, value) in
        [("DISABLE", "openreg"), ("DISABLE", "device-openreg/openreg"), ("SELECT", "reg")]
    {
        let printed = probe(&[(variable, value)], &[INSTALL, "use=reg"]);
        assert_eq!(printed, "reg: \"yust\"\n", "{variable}={value}");
    }
    let printed = probe(&[("DISABLE", "openreg")], &[INSTALL, "use=openreg"]);
    assert!(printed.ends_with("is disabled by DEVICE_BACKEND_DISABLE=openreg\n"), "{printed}");
}

#[test]
fn a_backend_that_is_linked_and_installed_is_the_linked_one() {
    let printed = probe(&[], &["install=openreg:openreg:openreg_file", "use=openreg", "mapped"]);
    assert_eq!(printed, "openreg: \"yust\"\nmapped: \n");
}

#[test]
fn options_reach_a_plug_in() {
    let count = |variables: &[(&str, &str)], set: &[&str]| {
        probe(variables, &[&[INSTALL], set, &["count=reg", "count=openreg"]].concat())
    };
    assert_eq!(count(&[], &[]), "reg: 2\nopenreg: 2\n");
    assert_eq!(count(&[], &["set=reg:devices:5"]), "reg: 5\nopenreg: 2\n");
    assert_eq!(count(&[("OPTIONS", "reg.devices=3")], &[]), "reg: 3\nopenreg: 2\n");
    // The program takes precedence.
    assert_eq!(count(&[("OPTIONS", "reg.devices=3")], &["set=reg:devices:5"]), "reg: 5\nopenreg: 2\n");
    // The name inside of the library is not the program's.
    assert_eq!(count(&[("OPTIONS", "openreg.devices=3")], &[]), "reg: 2\nopenreg: 3\n");
}

#[test]
fn an_invalid_option_has_the_message_of_a_linked_backend() {
    let place = format!("device-openreg 0.1.0 in {}", plug_in("openreg_file").display());
    for (variables, set) in
        [(&[][..], true), (&[("OPTIONS", "reg.devices=many;openreg.devices=many")][..], false)]
    {
        let set: &[&str] = if set { &["set=reg:devices:many", "set=openreg:devices:many"] } else { &[] };
        let printed = probe(variables, &[&[INSTALL], set, &["use=openreg", "use=reg"]].concat());
        let (linked, loaded) = printed.split_once("\nreg: ").expect("both are used");
        let (_, linked) = linked.split_once("openreg: ").expect("it is used");
        assert!(
            linked.starts_with("error: backend `openreg` (device-openreg 0.1.0) failed to load: option "),
            "{linked}"
        );
        let expected = linked.replace("`openreg` (device-openreg 0.1.0)", &format!("`reg` ({place})"));
        let expected = expected.replace("_DISABLE=openreg ", "_DISABLE=reg ");
        assert_eq!(loaded.trim_end(), expected);
    }
}
