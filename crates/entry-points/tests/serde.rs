//! Reports as JSON: the fields are documented with `Report`.

#![cfg(feature = "serde")]

use std::io;

use entry_points::{EntryPoint, Group, Installed, LoadFailure, OptionSpec, Options, Switches};
use serde_json::{Value, json};

/// The group's report, without what differs from build to build.
fn json_of(group: &'static Group<u8>) -> Value {
    let mut json = serde_json::to_value(group.report()).unwrap();
    for entry in json["entries"].as_array_mut().unwrap() {
        let entry = entry.as_object_mut().unwrap();
        let place = entry.remove("declared_at").unwrap();
        assert!(place.as_str().unwrap().contains("serde.rs:"), "{place}");
        let value = entry.remove("value").unwrap();
        assert!(value.is_null() || value.is_string(), "{value}");
    }
    json
}

#[test]
fn a_report_has_the_fields_of_its_rows_with_files_and_options() {
    static GROUP: Group<u8> = Group::new("test.rows").switches("ROWS_PLUGIN");
    static PARTS: EntryPoint<u8> =
        EntryPoint::with_options("parts", parts, &[OptionSpec::new("n", "a number")])
            .in_package("numbers", "0.3.0");
    fn parts(options: &Options) -> Result<Box<u8>, LoadFailure> {
        Ok(Box::new(options.parse("n")?.unwrap_or(0)))
    }
    GROUP.configure(Switches { disable: vec!["of*".into()], ..Switches::default() }).unwrap();
    GROUP.register(&PARTS).unwrap();
    GROUP
        .install(Installed::new("in_file", "/opt/in file.so", |_| Ok(Box::new(1))).package("filed", "1.2.0"))
        .unwrap();
    GROUP
        .install(Installed::new("off", "/opt/off.so", |_| Ok(Box::new(1))).package("filed", "1.2.0"))
        .unwrap();
    GROUP.set_option("parts", "n", "4").unwrap();
    GROUP.add_note("a \"note\"");

    let entry = |name: &str, package: &str, version: &str, file: Value, state: Value, options: Value| {
        json!({
            "name": name, "package": package, "version": version, "file": file, "built_in": false,
            "state": state, "options": options,
        })
    };
    let installed = json!({"kind": "installed"});
    let disabled = json!({"kind": "disabled", "by": "the program (Switches::disable = [\"of*\"])"});
    let options = json!([{"name": "n", "value": "4", "set_by": null}]);
    let expected = json!({
        "group": "test.rows",
        "interface": "u8",
        "entries": [
            entry("in_file", "filed", "1.2.0", json!("/opt/in file.so"), installed, json!([])),
            entry("off", "filed", "1.2.0", json!("/opt/off.so"), disabled, json!([])),
            entry("parts", "numbers", "0.3.0", json!(null), json!({"kind": "linked"}), options),
        ],
        "notes": ["a \"note\""],
        "advice": null,
    });
    assert_eq!(json_of(&GROUP), expected);
}

/// Runs again in its own process, which has the variable.
#[cfg(not(any(miri, target_family = "wasm")))]
#[test]
fn an_option_names_the_variable_that_set_it() {
    static GROUP: Group<u8> = Group::new("test.variable").switches("SERDE_PLUGIN");
    static ONE: EntryPoint<u8> =
        EntryPoint::with_options("one", |_| Ok(Box::new(1)), &[OptionSpec::new("n", "a number")]);
    if std::env::var_os("SERDE_PLUGIN_OPTIONS").is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child
            .args(["an_option_names_the_variable_that_set_it", "--exact"])
            .env("SERDE_PLUGIN_OPTIONS", "one.n=5");
        let output = child.output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && printed.contains("1 passed"), "{output:?}");
        return;
    }
    GROUP.register(&ONE).unwrap();
    let expected = json!([{"name": "n", "value": "5", "set_by": "SERDE_PLUGIN_OPTIONS"}]);
    assert_eq!(json_of(&GROUP)["entries"][0]["options"], expected);
}

#[test]
fn a_state_has_its_kind_and_what_belongs_to_it() {
    static GROUP: Group<u8> = Group::new("test.states").noun("number");
    static GOOD: EntryPoint<u8> = EntryPoint::new("good", || Ok(Box::new(1))).in_package("a", "0.1.0");
    static MISSING: EntryPoint<u8> =
        EntryPoint::new("missing", || Err(LoadFailure::unavailable("no driver"))).in_package("b", "0.2.0");
    static WRONG: EntryPoint<u8> = EntryPoint::new("wrong", || {
        Err(LoadFailure::new("no table").with_source(io::Error::other("disk on fire")))
    })
    .in_package("b", "0.2.0");
    static PANICS: EntryPoint<u8> =
        EntryPoint::new("panics", || panic!("on purpose")).in_package("b", "0.2.0");
    static NOW: EntryPoint<u8> = EntryPoint::new("now", || {
        let now = &json_of(&GROUP)["entries"][3];
        assert_eq!((&now["name"], &now["state"]["kind"]), (&json!("now"), &json!("loading")));
        assert!(now["state"]["elapsed"].as_f64().unwrap() > 0.0, "{now}");
        Ok(Box::new(1))
    });
    for entry in [&GOOD, &MISSING, &NOW, &WRONG, &PANICS] {
        GROUP.register(entry).unwrap();
    }
    GROUP.install(Installed::new("good", "/opt/good.so", |_| Ok(Box::new(2)))).unwrap();
    for name in ["missing", "now", "wrong", "panics"] {
        let _ = GROUP.load(name);
    }
    let mut json = json_of(&GROUP);
    let took = json["entries"][3]["state"].as_object_mut().unwrap().remove("took").unwrap();
    assert!(took.as_f64().unwrap() > 0.0, "{took}");
    let states: Vec<_> =
        json["entries"].as_array().unwrap().iter().map(|entry| entry["state"].clone()).collect();
    let errors = |kind: &str, errors: &[&str]| json!({"kind": kind, "errors": errors});
    let expected = [
        json!({"kind": "linked"}),
        json!({"kind": "duplicate", "of": ["a 0.1.0"]}),
        errors("unavailable", &["number `missing` (b 0.2.0) is unavailable: no driver"]),
        json!({"kind": "loaded"}),
        errors("failed", &["number `panics` (b 0.2.0) panicked while loading: on purpose"]),
        errors("failed", &["number `wrong` (b 0.2.0) failed to load: no table", "disk on fire"]),
    ];
    assert_eq!(states, expected);
}
