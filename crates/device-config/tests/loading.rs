//! Files as a program loads them. A process loads one file, so each case is a process: this test again, as
//! [`program`].

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use device_config::Config;
use device_registry::registry::Switches;
use device_registry::{Selection, backends, device, set_default_selection};

device_registry::autoload!();

/// What [`program`] does, in words separated by spaces.
const STEPS: &str = "TEST_STEPS";

/// The program: it does the steps, and prints what they return.
#[test]
fn program() {
    let Ok(steps) = env::var(STEPS) else { return };
    let (mut config, mut backend) = (Config::new(), None);
    for step in steps.split(' ') {
        match step.split_once('=').unwrap_or((step, "")) {
            ("beside", "") => config = config.beside_program(),
            ("file", file) => config = config.file(file),
            #[cfg(feature = "plugins")]
            ("any_owner", "") => {
                config = config.plugins(device_plugin::Plugins::new().trust_any_owner());
            }
            ("use", "") => assert!(backends().get("openreg").is_some()),
            ("configure", "") => backends().configure(Switches::default()).unwrap(),
            ("default", list) => set_default_selection(Selection::parse(list).unwrap()).unwrap(),
            ("load", "") => match config.load() {
                Ok(report) => println!("<{report}>"),
                Err(error) => println!("<error: {error}>"),
            },
            #[cfg(feature = "serde")]
            ("json", "") => {
                println!("<{}>", serde_json::to_string(&config.load().unwrap()).unwrap());
            }
            ("device", text) => match device(text).and_then(device_registry::Device::properties) {
                Ok(_) => println!("<{}>", device(text).unwrap()),
                Err(error) => println!("<{error}>"),
            },
            ("count", text) => backend = Some(device_registry::device_count(text)),
            ("report", "") => println!("<{}>", backends().report()),
            _ => panic!("unknown step {step}"),
        }
        if let Some(count) = backend.take() {
            println!("<{count:?}>");
        }
    }
}

/// Writes a file that only this user can change.
fn write(file: &Path, text: &str) {
    fs::write(file, text).unwrap();
    set_mode(file, 0o644);
}

fn set_mode(file: &Path, mode: u32) {
    #[cfg(unix)]
    fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    #[cfg(not(unix))]
    let _ = (file, mode);
}

/// A folder with a file in it.
struct Case {
    folder: tempfile::TempDir,
    variables: Vec<(&'static str, String)>,
}

impl Case {
    /// A case in which `DEVICE_CONFIG` names a file with this text.
    fn new(text: &str) -> Self {
        Self::within(tempfile::tempdir().unwrap(), text)
    }

    fn within(folder: tempfile::TempDir, text: &str) -> Self {
        let case = Self { folder, variables: Vec::new() };
        set_mode(case.folder.path(), 0o755);
        write(&case.file(), text);
        let file = case.file().to_str().unwrap().to_owned();
        case.with(Config::VARIABLE, file)
    }

    fn with(mut self, variable: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((variable, value.into()));
        self
    }

    fn file(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(Config::FILE)
    }

    /// What each step prints, with `FILE` for the path of the file.
    #[track_caller]
    fn run(&self, steps: &str) -> Vec<String> {
        self.run_as(&env::current_exe().unwrap(), steps)
    }

    #[track_caller]
    fn run_as(&self, program: &Path, steps: &str) -> Vec<String> {
        let mut command = Command::new(program);
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("DEVICE_")) {
            command.env_remove(name);
        }
        command.args(["program", "--exact", "--nocapture", "--test-threads=1"]).env(STEPS, steps);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let output = command.output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
        let file = self.file().to_str().unwrap().to_owned();
        let mut found = Vec::new();
        let mut rest = &*printed;
        while let Some((_, begun)) = rest.split_once('<') {
            let (one, after) = begun.split_once(">\n").unwrap();
            found.push(one.replace(&file, "FILE"));
            rest = after;
        }
        found
    }
}

/// Checks the error of a file.
#[track_caller]
fn expect_error(text: &str, expected: &str) {
    let [error] = &Case::new(text).run("load")[..] else { panic!() };
    assert_eq!(error, &format!("error: {expected}"));
}

#[test]
fn a_file_that_is_named_has_to_be_there_and_its_path_to_be_absolute() {
    let case = Case::new("").with(Config::VARIABLE, "device.toml");
    assert_eq!(
        case.run("load"),
        ["error: DEVICE_CONFIG names the relative path `device.toml`; expected an absolute one"]
    );
    let case = Case::new("");
    fs::remove_file(case.file()).unwrap();
    let [by_variable, by_code] = &case.run(&format!("load file={} load", case.file().display()))[..] else {
        panic!()
    };
    let start = "error: `FILE`, which DEVICE_CONFIG names, cannot be read: ";
    assert!(by_variable.starts_with(start), "{by_variable}");
    assert!(by_code.starts_with("error: `FILE` cannot be read: "), "{by_code}");
    fs::create_dir(case.file()).unwrap();
    assert_eq!(case.run("load"), [format!("{start}expected a regular file")]);
}

#[test]
fn a_mistake_has_its_file_line_and_column() {
    expect_error("x", "FILE:1:2: key with no value, expected `=`");
    let error = &Case::new("[device.backend]\ndisable = []").run("load")[0];
    let start = "error: FILE:1:9: unknown group `device.backend`; did you mean `device.backends`?; the groups of this \
                 program are `device.backends`";
    assert!(error.starts_with(start), "{error}");
    expect_error(
        "[device.backends]\nautoload = 1",
        "FILE:2:12: `autoload`: expected true or false, found an integer",
    );
    let unknown = "unknown kind `gqu` of device; the kinds are `cpu`, `gpu`, `discrete_gpu`, `integrated_gpu`, \
                   `accelerator`, `simulated`, `other`, and `*` for any";
    expect_error(
        "\ndefault = \"openreg:gqu\"",
        &format!("FILE:2:11: `default`: invalid device string `openreg:gqu`: {unknown}"),
    );
    expect_error(
        "default = [\"cpu\", \"auto\"]",
        "FILE:1:11: `default`: invalid device string `cpu,auto`: `auto` stands for this list, and cannot be in it",
    );
}

#[test]
fn an_option_that_an_entry_does_not_have_is_a_mistake() {
    let [error] = &Case::new("[device.backends.options]\n\nopenreg.devises = 4").run("load")[..] else {
        panic!()
    };
    let start = "error: FILE:3:19: `openreg` of device.backends: unknown option `devises`; did you mean \
                 `devices`?\nthe options are:\n  devices ";
    assert!(error.starts_with(start), "{error}");
}

#[test]
fn a_group_that_was_used_or_configured_is_an_error() {
    let text = "\n[device.backends]\nautoload = true";
    let case = Case::new(text);
    assert_eq!(
        case.run("use load"),
        [
            "error: FILE:2:9: device.backends is already in use; load the file first in `main`, before any look-up or \
          listing"
        ]
    );
    assert_eq!(
        case.run("configure load"),
        [
            "error: FILE:2:9: the program sets the switches of device.backends in code, by `Group::configure`; leave them \
          to the file, or take the group out of it"
        ]
    );
    // Nothing of the file is set then.
    let unset = &Case::new(&format!("default = 'cpu'{text}")).run("use load device=auto")[1];
    assert!(unset.starts_with("`auto` is the list of devices in the variable DEVICE_DEFAULT"), "{unset}");
    // A group that the file does not name is the program's.
    let report = "configuration of FILE\n  line 1: default = \"cpu\"";
    assert_eq!(Case::new("default = 'cpu'").run("configure use load"), [report]);
}

#[test]
fn a_default_selection_in_code_is_an_error_unless_a_variable_goes_before_both() {
    let case = Case::new("default = \"openreg:1\"");
    assert_eq!(
        case.run("default=cpu load device=auto"),
        [
            "error: FILE:1:11: the program has set the devices of `auto` in code, by `set_default_selection`",
            "cpu"
        ]
    );
    assert_eq!(case.run("load device=auto")[1], "openreg:1");
    let case = case.with("DEVICE_DEFAULT", "openreg:0");
    let [report, auto] = &case.run("load device=auto")[..] else { panic!() };
    assert_eq!(
        report,
        "configuration of FILE\n  line 1: default = \"openreg:1\"; not in force: DEVICE_DEFAULT=openreg:0"
    );
    assert_eq!(auto, "openreg:0");
    assert_eq!(case.with("DEVICE_DEFAULT", "").run("load device=auto")[1], "openreg:1");
}

const ALL: &str = "\
default = [\"openreg:3\", \"cpu\"]

[device.backends]
disable = [\"openreg\"]
installed = false
[device.backends.options]
openreg.devices = 4
openreg.memory = \"1MiB\"
netmem.servers = \"a:1\"
";

#[test]
fn the_report_has_each_value_with_its_line_and_so_have_errors() {
    let case = Case::new(ALL);
    let [report, error, groups] = &case.run("load device=openreg report")[..] else { panic!() };
    let expected = "\
configuration of FILE
  line 1: default = \"openreg:3,cpu\"
  line 4: device.backends.disable = [\"openreg\"]
  line 5: device.backends.installed = false
  line 7: device.backends.options.openreg.devices = \"4\"
  line 8: device.backends.options.openreg.memory = \"1MiB\"
  line 9: device.backends.options.netmem.servers = \"a:1\"; without effect: no backend is called `netmem`";
    assert_eq!(report, expected);
    assert!(error.contains("is disabled by FILE:4 (disable = [\"openreg\"])"), "{error}");
    assert!(groups.contains("disabled by FILE:4 (disable = [\"openreg\"]); options: "), "{groups}");
    assert!(groups.contains("devices=4 (FILE:7)"), "{groups}");
    let note = "note: `netmem.servers` in FILE:9 has no effect: no backend is called `netmem`";
    assert!(groups.contains(note), "{groups}");
}

#[test]
fn a_variable_replaces_its_own_value_and_no_other() {
    let case = Case::new(ALL).with("DEVICE_BACKEND_DISABLE", "nosuch");
    let case =
        case.with("DEVICE_BACKEND_OPTIONS", "openreg.memory=2MiB").with("DEVICE_BACKEND_INSTALLED", "");
    let [report, auto, count, groups] = &case.run("load device=auto count=openreg report")[..] else {
        panic!()
    };
    let expected = "\
configuration of FILE
  line 1: default = \"openreg:3,cpu\"
  line 4: device.backends.disable = [\"openreg\"]; not in force: DEVICE_BACKEND_DISABLE=nosuch
  line 5: device.backends.installed = false
  line 7: device.backends.options.openreg.devices = \"4\"
  line 8: device.backends.options.openreg.memory = \"1MiB\"; not in force: DEVICE_BACKEND_OPTIONS
  line 9: device.backends.options.netmem.servers = \"a:1\"; without effect: no backend is called `netmem`";
    assert_eq!(report, expected);
    assert_eq!((&**auto, &**count), ("openreg:3", "Ok(4)"));
    assert!(groups.contains("devices=4 (FILE:7), memory=2MiB (DEVICE_BACKEND_OPTIONS)"), "{groups}");
}

#[test]
fn each_switch_names_the_line_that_turns_a_backend_off() {
    for (switch, cause) in [
        ("autoload = false", "(autoload = false)"),
        ("disable = ['open*']", "(disable = [\"open*\"])"),
        ("select = ['cpu']", "(select = [\"cpu\"]), which does not match it"),
    ] {
        let error = &Case::new(&format!("[device.backends]\n{switch}")).run("load device=openreg")[1];
        assert!(error.ends_with(&format!("is disabled by FILE:2 {cause}")), "{error}");
    }
}

#[test]
fn a_value_that_the_backend_refuses_names_the_line() {
    let case = Case::new("[device.backends]\noptions.openreg.devices = 'many'");
    let error = &case.run("load device=openreg")[1];
    assert!(error.contains("option devices=\"many\", set by FILE:2, is invalid: expected "), "{error}");
}

#[test]
fn nothing_is_set_by_a_file_with_a_mistake() {
    let case = Case::new("default = 'cpu'\n[device.backends]\ndisable = ['openreg']\nx = 1");
    let [error, count, auto] = &case.run("load count=openreg device=auto")[..] else { panic!() };
    assert!(error.starts_with("error: FILE:4:1: unknown key `x`"), "{error}");
    assert_eq!(count, "Ok(2)");
    assert!(auto.starts_with("`auto` is the list of devices in the variable DEVICE_DEFAULT"), "{auto}");
}

#[test]
fn a_second_file_is_an_error() {
    let error = &Case::new("[device.backends]\nautoload = false").run("load load")[1];
    assert!(error.starts_with("error: FILE:1:9: device.backends is already in use"), "{error}");
}

#[test]
fn the_file_beside_the_program_is_read_only_if_the_program_says_so_and_may_be_missing() {
    // On the file system of this program, so that a link to it takes the place of a copy. Another thread
    // that starts a process while a copy is written would keep the copy open.
    let folder = || tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let linked = |text: &str| {
        let case = Case::within(folder(), text);
        let program = case.file().with_file_name("program");
        fs::hard_link(env::current_exe().unwrap(), &program).unwrap();
        (case.with(Config::VARIABLE, ""), program)
    };
    let (case, program) = linked("[device.backends]\ndisable = ['openreg']");
    assert_eq!(
        case.run_as(&program, "load count=openreg"),
        ["no configuration file\n  DEVICE_CONFIG is not set", "Ok(2)"]
    );
    let report = "\
configuration of FILE
  DEVICE_CONFIG is not set
  line 2: device.backends.disable = [\"openreg\"]";
    assert_eq!(case.run_as(&program, "beside load"), [report]);
    fs::remove_file(case.file()).unwrap();
    let report = "no configuration file\n  DEVICE_CONFIG is not set\n  FILE does not exist";
    assert_eq!(case.run_as(&program, "beside load"), [report]);
    // The variable goes before it, and an argument before both.
    let (case, program) = linked("default = 'cpu'");
    let here = case.file();
    let other = Case::new("default = 'openreg'");
    let case = case.with(Config::VARIABLE, other.file().to_str().unwrap());
    let report = &case.run_as(&program, "beside load")[0];
    assert!(report.ends_with("line 1: default = \"openreg\""), "{report}");
    let report = &case.run_as(&program, &format!("beside file={} load", here.display()))[0];
    assert!(report.ends_with("line 1: default = \"cpu\""), "{report}");
}

#[cfg(not(feature = "plugins"))]
#[test]
fn a_program_without_plugins_says_so() {
    expect_error(
        "plugins = ['x']",
        "FILE:1:11: `plugins`: this program reads no plugins; it needs the feature `plugins` of the crate device-config",
    );
}

#[cfg(feature = "plugins")]
mod plugins {
    use super::*;

    const MANIFEST: &str = r#"{"manifest": 1, "group": "device.backends", "name": "acme", "package": "device-acme",
        "version": "1.2.0", "library": "acme.so", "abi": {"major": 0, "minor": 3}}"#;

    #[test]
    fn folders_are_relative_to_the_file_and_a_missing_one_is_without_effect() {
        let case = Case::new("plugins = ['backends', 'nosuch']");
        let folder = case.file().with_file_name("backends");
        fs::create_dir(&folder).unwrap();
        set_mode(&folder, 0o755);
        write(&folder.join("acme.plugin.json"), MANIFEST);
        let [report, groups] = &case.run("load report")[..] else { panic!() };
        assert!(report.ends_with("line 1: plugins = [\"backends\", \"nosuch\"]"), "{report}");
        let report = &Case::new("plugins = ['nosuch']").run("load")[0];
        let line = "line 1: plugins = [\"nosuch\"]; without effect: there is no folder nosuch";
        assert!(report.ends_with(line), "{report}");
        let searched = format!("searched for backends in files: {} (1 manifest)", folder.display());
        assert!(groups.contains(&searched), "{groups}");
    }

    #[test]
    fn a_switch_turns_off_what_is_installed() {
        let case = Case::new("plugins = ['.']\n[device.backends]\ninstalled = false");
        let folder = case.file().with_file_name("");
        write(&folder.join("acme.plugin.json"), MANIFEST);
        let groups = &case.run("load report")[1];
        assert!(groups.contains("disabled by FILE:3 (installed = false)"), "{groups}");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_can_write_to_is_refused_if_it_names_plugins() {
        let case = Case::new("\nplugins = ['backends']");
        set_mode(&case.file(), 0o664);
        assert_eq!(
            case.run("load"),
            [
                "error: FILE:2: it names folders of plugins, and is not trusted: `FILE` can be written to by its group (mode \
              664); expected a mode that lets only its owner write: `chmod go-w FILE`"
            ]
        );
        assert!(case.run("any_owner load")[0].starts_with("configuration of FILE"));
        let case = Case::new("default = 'cpu'");
        set_mode(&case.file(), 0o666);
        assert!(case.run("load")[0].starts_with("configuration of FILE"));
    }
}

#[cfg(feature = "serde")]
#[test]
fn a_report_is_data() {
    let case = Case::new(ALL).with("DEVICE_BACKEND_DISABLE", "x");
    let json: serde_json::Value = serde_json::from_str(&case.run("json")[0]).unwrap();
    assert_eq!(json["file"], "FILE");
    let replaced = serde_json::json!({
        "line": 4,
        "key": "device.backends.disable",
        "value": "[\"openreg\"]",
        "effect": { "kind": "replaced", "by": "DEVICE_BACKEND_DISABLE=x" },
    });
    assert_eq!(json["values"][1], replaced);
    assert_eq!(json["values"][0]["effect"], serde_json::json!({ "kind": "in_force" }));
}
