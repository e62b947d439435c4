//! The command as a user runs it: what it prints, and its exit codes.

use std::env;
use std::fs;
use std::process::{Command, Output};
#[cfg(unix)]
use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::Value;

/// The command with its arguments, without the variables of the user that runs the tests.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_devices"));
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("DEVICE_")) {
        command.env_remove(name);
    }
    // The same on every machine.
    command.env("DEVICE_BACKEND_DISABLE", "cuda,opencl,wgpu").env("NO_COLOR", "1").args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8 is printed")
}

/// What a run prints that succeeds.
#[track_caller]
fn printed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Checks the exit code of a run that fails, and a part of its message.
#[track_caller]
fn expect_refusal(arguments: &[&str], code: i32, part: &str) {
    let output = run(arguments);
    let message = text(&output.stderr);
    assert!(message.contains(part), "{arguments:?}: {part:?} in {message}");
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
}

#[test]
fn the_table_has_every_device_and_the_reason_for_what_is_not_there() {
    let list = printed(&[]);
    assert_eq!(list, printed(&["list"]));
    let row = |name: &str| list.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    assert!(row("cpu ").contains("  present  device-registry 0.1.0"), "{list}");
    assert!(row("openreg:1 ").contains("  simulated   1 GiB  device-openreg 0.1.0  present"), "{list}");
    assert!(row("  cuda: ").contains("disabled by DEVICE_BACKEND_DISABLE=cuda,opencl,wgpu"), "{list}");
    assert!(!list.contains('\x1b'), "no styles where there is no terminal: {list}");
}

#[test]
fn every_command_prints_json_that_has_what_the_text_has() {
    let json =
        |arguments: &[&str]| -> Value { serde_json::from_str(&printed(arguments)).expect("it is JSON") };
    let names = |list: &Value| -> Vec<String> {
        let backends = list["backends"].as_array().expect("a list").iter();
        backends.map(|backend| backend["name"].as_str().expect("a name").to_owned()).collect()
    };
    let list = json(&["--json"]);
    assert_eq!(names(&list), ["cpu", "cuda", "opencl", "openreg", "wgpu"]);
    assert_eq!(list["backends"][3]["devices"][1]["device"], "openreg:1");
    let doctor = json(&["doctor", "--json"]);
    assert_eq!(names(&doctor["devices"]), names(&list));
    assert_eq!(doctor["variables"][0][0], "DEVICE_BACKEND_DISABLE");
    assert_eq!(doctor["problems"], Value::Array(Vec::new()));
    let groups = doctor["groups"].as_array().expect("a list").iter();
    assert!(groups.clone().any(|group| group["group"] == "device.backends"), "{doctor:#}");
    let info = json(&["info", "openreg:1", "--json"]);
    assert_eq!(
        (&info["device"], &info["properties"]["total_memory"]),
        (&"openreg:1".into(), &(1_u64 << 30).into())
    );
    assert_eq!(info["statistics"]["allocated"], 0, "it is open: {info}");
}

#[test]
fn info_takes_a_device_a_list_and_auto() {
    for text in ["openreg:1", "nosuch,openreg:1", "*:simulated,!openreg:0"] {
        let info = printed(&["info", text]);
        assert!(info.starts_with("device                  openreg:1\n"), "{text}: {info}");
        assert!(info.contains("\nfree memory             1 GiB\n"), "{info}");
    }
    let output = command(&["info", "auto"]).env("DEVICE_DEFAULT", "openreg:gpu,cpu").output().unwrap();
    assert!(text(&output.stdout).starts_with("device                  cpu\n"));
}

#[test]
fn wrong_arguments_say_what_is_wrong_and_exit_with_2() {
    for (arguments, part) in [
        (&["nosuch"][..], "unrecognized subcommand 'nosuch'"),
        (&["info", "Openreg"], "did you mean `openreg`?"),
        (&["info", "openreg:gqu"], "unknown kind `gqu` of device; the kinds are `cpu`, `gpu`"),
        (&["bench", "cpu", "--largest", "1T"], "expected a whole number of bytes, perhaps with K, M or G"),
        (&["bench", "cpu", "--largest", "1"], "expected at least 4096 bytes"),
        (
            &["bench", "--kernels", "cpu"],
            "this program links no benchmark of kernels: the crate `devices-kernels`",
        ),
        (&["bench", "--compare", "one.json"], "2 values required"),
        (&["bench", "--fail-above", "2"], "--compare"),
        (&["bench", "cpu", "--fail-above", "2"], "needs `--compare BEFORE AFTER`"),
        (&["bench", "cpu", "--csv", "x.svg", "--chart", "x.svg"], "name one file"),
        (&["test", "openreg,cpu"], "`test` takes one device"),
        (&["bench", "--compare", "a", "b", "--fail-above", "0"], "expected a number above 0"),
        (&["bench", "--compare", "/nonexistent/a", "/nonexistent/b"], "/nonexistent/a: "),
        (&["bench", "cpu", "--largest", "4K", "--csv", "/nonexistent/a"], "cannot write /nonexistent/a: "),
        (&["--json", "trace", "x"], "only the list, `info`, `doctor`, `test` and `bench` print JSON"),
        (&["test", "cpu", "--junit", "/nonexistent/a"], "cannot write /nonexistent/a: "),
        (&["completions", "cmd"], "[possible values: bash, elvish, fish, powershell, zsh]"),
        (&["bench", "cpu", "--chart", "x.png"], "a chart is SVG: expected a name that ends in .svg"),
        (&["--plugins", "/nonexistent", "plugin", "manifest"], "<FILE>"),
    ] {
        expect_refusal(arguments, 2, part);
    }
}

#[test]
fn a_device_that_cannot_be_used_is_the_registrys_own_error_and_exits_with_1() {
    for (arguments, part) in [
        (&["info", "openreg:9"][..], "unknown device index 9: `openreg` has 2 devices"),
        (&["info", "cuda"], "disabled by DEVICE_BACKEND_DISABLE"),
        (&["info", "auto"], "the variable DEVICE_DEFAULT, which is not set"),
        (&["test", "nosuch"], "no backend called `nosuch` is linked"),
        (&["info", "nosuch"], "hint: this command has the backends of the features that it was built with"),
        (&["info", "gpu"], "did you mean `*:gpu`?"),
        (&["test", "cpu", "--", "nosuch"], "is selected; `--list` lists them"),
        (&["bench", "cuda"], "error: "),
        (&["test", "openreg:9"], "`openreg:9` is not a device here: there are openreg:0, openreg:1"),
        (&["test", "cuda"], "is disabled by DEVICE_BACKEND_DISABLE"),
        (&["bench", "openrag"], "did you mean `openreg`?"),
    ] {
        expect_refusal(arguments, 1, part);
    }
}

#[test]
fn the_doctor_finds_a_default_selection_that_is_wrong() {
    let output = command(&["doctor"]).env("DEVICE_DEFAULT", "cpu,auto").output().unwrap();
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    let (_, problems) = printed.split_once("\nProblems\n").expect("there are some");
    assert!(problems.starts_with("  * DEVICE_DEFAULT: invalid device string `cpu,auto`"), "{problems}");
    assert!(printed.contains("\n  DEVICE_DEFAULT=cpu,auto\n"), "{printed}");
}

/// A folder with a configuration file, and its path.
fn configuration(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().canonicalize().unwrap().join("any.toml");
    fs::write(&file, text).unwrap();
    (folder, file.to_str().expect("it is UTF-8").to_owned())
}

#[test]
fn a_configuration_file_holds_below_the_variables_and_the_doctor_shows_its_lines() {
    let (_folder, file) = configuration(
        "default = 'openreg:2'\n[device.backends]\ndisable = ['cpu']\noptions.openreg.devices = 3\n",
    );
    for (by_argument, other) in [(true, "/nonexistent/other.toml"), (false, &*file)] {
        let run = |arguments: &[&str]| {
            let config = ["--config", &*file];
            let mut command = command(&[arguments, if by_argument { &config } else { &[] }].concat());
            text(&command.env("DEVICE_CONFIG", other).output().unwrap().stdout)
        };
        assert!(run(&["info", "auto"]).starts_with("device                  openreg:2\n"));
        let printed = run(&["doctor"]);
        let lines = format!(
            "\nConfiguration\n  configuration of {file}\n    line 1: default = \"openreg:2\"\n    line 3: \
             device.backends.disable = [\"cpu\"]; not in force: DEVICE_BACKEND_DISABLE=cuda,opencl,wgpu\n    line 4: \
             device.backends.options.openreg.devices = \"3\"\n\nWhat `auto` means\n  openreg:2\n"
        );
        assert!(printed.contains(&lines), "{printed}");
        let json: Value = serde_json::from_str(&run(&["doctor", "--json"])).unwrap();
        assert_eq!(json["configuration"]["file"], *file);
        assert_eq!(json["configuration"]["values"][1]["effect"]["kind"], "replaced");
        let set_by = format!("\"set_by\":\"{file}:4\"");
        assert!(json["groups"].to_string().contains(&set_by), "{json:#}");
    }
    let printed = printed(&["doctor"]);
    assert!(printed.contains("\n  no configuration file\n    DEVICE_CONFIG is not set\n"), "{printed}");
}

#[test]
fn a_wrong_configuration_file_ends_each_command_and_is_a_problem_for_the_doctor() {
    let (_folder, file) = configuration("[device.backends]\ndisabel = []\n");
    let message = format!(
        "{file}:2:1: unknown key `disabel` of the group `device.backends`; did you mean `disable`?; the keys are"
    );
    expect_refusal(&["--config", &file], 2, &message);
    expect_refusal(&["--config", "/nonexistent/a.toml"], 2, "`/nonexistent/a.toml` cannot be read: ");
    let output = run(&["doctor", "--config", &file]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("\n  the file is wrong: see the problems\n"), "{printed}");
    assert!(printed.contains(&format!("\nProblems\n  * {message}")), "{printed}");
}

#[test]
fn the_processes_of_the_suite_read_the_configuration_file_too() {
    let (_folder, file) = configuration("[device.backends]\noptions.openreg.devices = 3\n");
    let one = printed(&["--config", &file, "test", "openreg:2", "--", "memory::round_trip"]);
    assert!(one.contains("1 passed; 0 failed"), "{one}");
}

#[test]
fn the_suite_runs_on_one_device_and_a_filter_chooses_checks() {
    // Checks that run in processes of their own.
    for check in ["closing::a_close_leaves_nothing_behind", "enumeration::it_is_present_after_it_was_used"] {
        let printed = printed(&["test", "openreg:1", "--", check]);
        assert!(printed.contains("1 passed; 0 failed"), "{printed}");
    }
    let one = printed(&["test", "openreg:1", "--", "memory::round_trip"]);
    assert!(
        one.contains("test openreg:1::memory::round_trip") && one.contains("1 passed; 0 failed"),
        "{one}"
    );
    assert!(!one.contains("openreg:0"), "{one}");
    printed(&["test", "openreg", "--", "nosuch", "--list"]);
    let all = printed(&["test", "openreg", "--", "--list"]);
    assert!(
        all.contains("openreg:0::memory::round_trip") && all.contains("openreg:1::memory::round_trip"),
        "{all}"
    );
}

#[test]
fn the_verdicts_of_a_test_are_json_and_a_file_for_ci() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.xml");
    let filter = ["--", "memory::round_trip"];
    let report = |arguments: &[&str], exits: i32| -> Value {
        let output = command(&[&["test"], arguments, &["--json"], &filter].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(exits), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let document = report(&["openreg", "--junit", file.to_str().unwrap()], 0);
    let tests = document["tests"].as_array().unwrap();
    assert_eq!(tests.len(), 2, "{document:#}");
    assert!(tests.iter().all(|test| test["verdict"] == "passed" && test["seconds"].as_f64().unwrap() > 0.0));
    let xml = fs::read_to_string(&file).unwrap();
    assert!(xml.contains("<testsuite name=\"devices test openreg\" tests=\"2\" failures=\"0\""), "{xml}");
    assert!(xml.contains("<testcase classname=\"openreg:1::memory\" name=\"round_trip\" time="), "{xml}");
    // A failure, and the file of the run before is replaced.
    let failing = ["test", "openreg:0", "--junit", file.to_str().unwrap(), filter[0], filter[1]];
    let output = command(&failing).env("OPENREG_FAIL_COPY", "1").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("openreg:0::memory::round_trip"), "the lines are printed as well");
    let xml = fs::read_to_string(&file).unwrap();
    assert!(xml.contains("failures=\"1\"") && xml.contains("<failure message=\""), "{xml}");
    // Where no test ran, the report says so.
    let arguments = ["test", "cpu", "--json", "--junit", file.to_str().unwrap(), "--", "nosuch"];
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(1));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["tests"].as_array().map(Vec::len), Some(0));
    assert_eq!(document["success"], false);
    assert!(fs::read_to_string(&file).unwrap().contains("<error message=\"the run failed"));
    expect_refusal(&["test", "cpu", "--json", "--", "--list"], 2, "`--list` of the harness cannot be used");
}

#[cfg(unix)]
#[test]
fn a_reader_that_closes_the_pipe_ends_a_test_as_a_failure_without_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.xml");
    let arguments = ["test", "cpu", "--junit", file.to_str().unwrap(), "--", "memory::round_trip"];
    let mut child = command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*text(&output.stderr)), (Some(1), ""));
    assert!(fs::read_to_string(&file).unwrap().contains("<error message=\"the run failed"));
}

#[test]
fn completions_and_the_manual_name_each_command() {
    let bash = printed(&["completions", "bash"]);
    assert!(bash.contains("_devices()") && bash.contains("devices__subcmd__doctor"), "{bash}");
    assert!(printed(&["completions", "fish"]).contains("-l fail-above"));
    let manual = printed(&["man"]);
    for command in ["devices\\-doctor", "devices\\-bench", "devices\\-plugin", "\\-\\-junit"] {
        assert!(manual.contains(command), "{command} in {manual}");
    }
}

#[cfg(unix)]
#[test]
fn a_benchmark_that_is_interrupted_prints_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("a.csv");
    let arguments =
        ["bench", "cpu", "openreg:0", "--largest", "256M", "--json", "--csv", csv.to_str().unwrap()];
    let child = command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    // It measures each operation for 0.15 seconds, and all of them for some seconds.
    while !csv.exists() || begun.elapsed() < Duration::from_secs(1) {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not begin");
        std::thread::sleep(Duration::from_millis(50));
    }
    // Not the program `kill`, which a small system lacks.
    Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["interrupted"], true);
    let rows = document["measurements"].as_array().unwrap().len();
    assert!(rows > 0, "{document:#}");
    assert_eq!(fs::read_to_string(&csv).unwrap().lines().count(), 1 + rows);
}

#[test]
fn every_device_is_described_without_a_name() {
    let all = printed(&["info"]);
    let of = |device: &str| printed(&["info", device]);
    let sections: Vec<&str> = all.split("\n\n").collect();
    assert_eq!(sections.len(), 3, "{all}");
    assert!(sections[0].starts_with("device                  cpu\n"), "{all}");
    assert!(of("openreg:1").lines().next().is_some_and(|line| sections[2].starts_with(line)), "{all}");
    let json: Value = serde_json::from_str(&printed(&["info", "--json"])).unwrap();
    assert_eq!(json.as_array().map(Vec::len), Some(3), "{json:#}");
}

#[test]
fn a_benchmark_has_each_operation_at_each_size_and_its_files_agree() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().expect("it is UTF-8").to_owned();
    let (csv, chart, record, other) = (path("a.csv"), path("a.svg"), path("a.json"), path("b.json"));
    let files = ["--csv", &csv, "--chart", &chart];
    // A device that is named twice is measured once.
    let document =
        printed(&[&["bench", "cpu", "openreg:0", "cpu", "--largest", "64K", "--json"][..], &files].concat());
    fs::write(&record, &document).unwrap();
    let document: Value = serde_json::from_str(&document).unwrap();
    let measurements = document["measurements"].as_array().unwrap();
    // Two devices, each with three latencies, and six rows at two sizes.
    assert_eq!(measurements.len(), 2 * (3 + 2 * 6), "{document:#}");
    assert!(measurements.iter().all(|row| row["seconds"].as_f64().unwrap() > 0.0));
    let copies =
        |row: &&Value| row["operation"] == "copy" && row["to"] == "cpu" && row["device"] == "openreg:0";
    assert_eq!(measurements.iter().filter(copies).count(), 2);
    assert_eq!(fs::read_to_string(&csv).unwrap().lines().count(), 1 + measurements.len());
    let svg = fs::read_to_string(&chart).unwrap();
    for part in ["openreg:0: copy to cpu", "GB/s", "openreg:0: OpenReg", document["date"].as_str().unwrap()] {
        assert!(svg.starts_with("<svg ") && svg.contains(part), "{part} in {svg}");
    }

    let compared = printed(&["bench", "--compare", &record, &record]);
    let ones = compared.lines().filter(|line| line.ends_with(" 1.00")).count();
    assert_eq!(ones, measurements.len(), "{compared}");
    let slower = document.to_string().replace("\"seconds\":", "\"seconds\":1");
    fs::write(&other, slower).unwrap();
    let compare = |most: &str| run(&["bench", "--compare", &record, &other, "--fail-above", most]);
    let output = compare("1.3");
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("{0} of {0} take more than 1.3 times as long:", measurements.len());
    assert!(text(&output.stdout).contains(&expected), "{}", text(&output.stdout));
    assert_eq!(compare("1e300").status.code(), Some(0));
    printed(&["bench", "--compare", &record, &record, "--fail-above", "1"]);
    fs::write(&other, document.to_string().replace("\"openreg:0\"", "\"x\"").replace("\"cpu\"", "\"y\""))
        .unwrap();
    expect_refusal(&["bench", "--compare", &record, &other], 2, "have no measurement in common");
    fs::write(&other, document.to_string().replace("\"format\":1", "\"format\":2")).unwrap();
    expect_refusal(
        &["bench", "--compare", &record, &other],
        2,
        "format 2 is of another version of this command",
    );
}

#[test]
fn a_device_that_fails_keeps_what_was_measured_and_the_others() {
    let arguments = ["bench", "openreg:0", "cpu", "--largest", "64K", "--json"];
    let output = command(&arguments).env("OPENREG_FAIL_COPY", "3").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["errors"][0]["device"], "openreg:0", "{document:#}");
    let of = |device: &str| {
        document["measurements"].as_array().unwrap().iter().filter(|row| row["device"] == device).count()
    };
    assert!(of("openreg:0") > 0 && of("cpu") > of("openreg:0"), "{document:#}");
}

#[test]
fn a_small_device_is_measured_up_to_what_it_holds() {
    // The other one is larger.
    let arguments = ["bench", "cpu", "openreg:0", "--largest", "256K", "--json"];
    let output = command(&arguments).env("DEVICE_BACKEND_OPTIONS", "openreg.memory=256KiB").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = || document["measurements"].as_array().unwrap().iter();
    let largest = |wanted: &dyn Fn(&Value) -> bool| {
        rows().filter(|row| wanted(row)).filter_map(|row| row["bytes"].as_u64()).max()
    };
    assert_eq!(largest(&|row| row["device"] == "openreg:0"), Some(64 << 10), "{document:#}");
    assert_eq!(largest(&|row| row["device"] == "cpu" && row["to"] == "openreg:0"), Some(64 << 10));
    assert_eq!(largest(&|row| row["device"] == "cpu"), Some(256 << 10));

    let mut command = command(&["bench", "openreg:0", "--largest", "256K"]);
    let output = command.env("DEVICE_BACKEND_OPTIONS", "openreg.memory=256KiB").output().unwrap();
    let expected = "`openreg:0` has no room for copies of 256 KiB: measured up to 64 KiB";
    assert!(text(&output.stdout).contains(expected), "{}", text(&output.stdout));
}

#[test]
fn the_doctor_counts_what_has_no_effect_and_what_was_skipped() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("x.plugin.json"), "{bad").unwrap();
    let folder = folder.path().to_str().unwrap();
    for (arguments, variable, part) in [
        (&["doctor"][..], Some(("DEVICE_BACKEND_SELECTT", "x")), "DEVICE_BACKEND_SELECTT has no effect"),
        (&["doctor", "--plugins", folder], None, "x.plugin.json is skipped: it is not JSON"),
    ] {
        let output = command(arguments).envs(variable).output().unwrap();
        let printed = text(&output.stdout);
        let (_, problems) = printed.split_once("\nProblems\n").expect("there are some");
        assert!(problems.contains(part), "{problems}");
        assert_eq!(output.status.code(), Some(1), "{printed}");
    }
}

/// A folder of OpenCL's or Vulkan's loader, with these files.
#[cfg(target_os = "linux")]
fn folder_of_drivers(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        fs::write(folder.path().join(name), content.replace("HERE", folder.path().to_str().unwrap()))
            .unwrap();
    }
    folder
}

/// What the doctor says, with a backend of OpenCL or Vulkan on and without the machine's own drivers: the
/// text, and the problems of the JSON.
#[cfg(target_os = "linux")]
fn diagnosed(disabled: &str, variables: &[(&str, &str)]) -> (String, Vec<String>) {
    const OF_LOADERS: [&str; 8] = [
        "OCL_ICD_VENDORS",
        "OPENCL_VENDOR_PATH",
        "OCL_ICD_FILENAMES",
        "VK_DRIVER_FILES",
        "VK_ICD_FILENAMES",
        "VK_ADD_DRIVER_FILES",
        "RUSTICL_ENABLE",
        "LD_LIBRARY_PATH",
    ];
    let run = |arguments: &[&str]| {
        let mut command = command(arguments);
        for name in OF_LOADERS {
            command.env_remove(name);
        }
        command.env("DEVICE_BACKEND_DISABLE", disabled).envs(variables.iter().copied());
        text(&command.output().expect("the command starts").stdout)
    };
    let json: Value = serde_json::from_str(&run(&["doctor", "--json"])).expect("it is JSON");
    let problems = json["problems"].as_array().expect("a list").iter();
    let problems = problems.map(|problem| problem.as_str().expect("a text").to_owned());
    // Cards of this machine may be among them.
    (run(&["doctor"]), problems.filter(|problem| problem.contains("loaders skip it")).collect())
}

#[cfg(target_os = "linux")]
#[test]
fn the_doctor_finds_the_opencl_driver_that_does_not_load() {
    let folder = folder_of_drivers(&[
        ("a-gone.icd", "/nonexistent/libgone.so\n"),
        ("b-text.icd", "HERE/libtext.so\n"),
        ("c-empty.icd", "\n"),
        ("d-no-driver.icd", "libc.so.6\n"),
        (
            "libtext.so",
            "this is text, and longer than the header of a library of 64 bits is: more than 64 bytes",
        ),
        ("ignored.txt", "/nonexistent/libignored.so\n"),
    ]);
    let here = folder.path().to_str().unwrap();
    let expected = [
        format!(
            "the OpenCL driver `/nonexistent/libgone.so`, which {here}/a-gone.icd names, does not open, and loaders skip \
             it: /nonexistent/libgone.so: cannot open shared object file: No such file or directory; remove the file, if \
             it is left of a package that was removed, or correct the path"
        ),
        format!(
            "`{here}/libtext.so`, which {here}/b-text.icd names, does not open, and loaders skip it: {here}/libtext.so"
        ),
        format!("{here}/c-empty.icd names no OpenCL driver, and loaders skip it: it names no library"),
        "it is no driver: it has neither of the functions `clGetExtensionFunctionAddress`".to_owned(),
    ];
    let (printed, problems) = diagnosed("cuda,wgpu", &[("OCL_ICD_VENDORS", here)]);
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for (problem, expected) in problems.iter().zip(&expected) {
        assert!(problem.contains(expected), "{expected} in {problem}");
        assert!(printed.contains(problem), "{problem} in {printed}");
    }
    let row =
        format!("\n  OpenCL, {here}/a-gone.icd: /nonexistent/libgone.so does not open: see the problems\n");
    assert!(printed.contains(&row), "{printed}");
    // The bare file, as ocl-icd takes it, and the library itself.
    let file = format!("{here}/a-gone.icd");
    let (_, problems) = diagnosed("cuda,wgpu", &[("OCL_ICD_VENDORS", &file)]);
    assert!(
        problems.len() == 1 && problems[0].contains("Khronos' loader takes folders only"),
        "{problems:#?}"
    );
    let variables = [("OCL_ICD_VENDORS", "/nonexistent/a"), ("OCL_ICD_FILENAMES", "/nonexistent/b:")];
    let (_, problems) = diagnosed("cuda,wgpu", &variables);
    assert!(problems[0].contains("`/nonexistent/b`, which OCL_ICD_FILENAMES names"), "{problems:#?}");
    assert!(problems[1].contains("`/nonexistent/a`, which OCL_ICD_VENDORS names"), "{problems:#?}");
    // A driver of a backend that is off is none of this program's.
    assert_eq!(diagnosed("cuda,opencl,wgpu", &[("OCL_ICD_VENDORS", here)]).1, Vec::<String>::new());
}

#[cfg(target_os = "linux")]
#[test]
fn the_doctor_says_what_a_driver_lacks() {
    let folder = folder_of_drivers(&[
        ("rusticl.icd", "HERE/libdriver.so\n"),
        ("intel.icd", "HERE/libneeds.so\n"),
        ("driver.c", "void *clGetExtensionFunctionAddress(const char *name) { (void)name; return 0; }"),
        ("svml.c", "int svml;"),
    ]);
    let here = folder.path();
    let build = |source: &str, library: &str, more: &[&str]| {
        let mut compiler = Command::new("cc");
        compiler.current_dir(here).args(["-shared", "-fPIC", source, "-o", library]).args(more);
        assert!(compiler.status().expect("cc is what Rust links with").success(), "{library}");
    };
    build("driver.c", "libdriver.so", &[]);
    build("svml.c", "libsvml.so", &[]);
    build("driver.c", "libneeds.so", &["-Wl,--no-as-needed", "-L.", "-lsvml"]);
    let here = here.to_str().unwrap();
    let variables = [("OCL_ICD_VENDORS", here), ("LD_LIBRARY_PATH", here)];
    let (printed, problems) = diagnosed("cuda,wgpu", &variables);
    assert_eq!(problems, Vec::<String>::new(), "all of it is there");
    let hint = "RUSTICL_ENABLE is not set, and without it Rusticl has no device";
    assert!(printed.contains(&format!("rusticl.icd: {here}/libdriver.so; {hint}")), "{printed}");
    assert!(
        printed.contains(&format!("\n  OpenCL, {here}/intel.icd: {here}/libneeds.so opens\n")),
        "{printed}"
    );
    let (printed, _) = diagnosed("cuda,wgpu", &[variables[0], variables[1], ("RUSTICL_ENABLE", "llvmpipe")]);
    assert!(!printed.contains("is not set, and without it"), "{printed}");
    assert!(printed.contains("\n  RUSTICL_ENABLE=llvmpipe\n"), "it is among the variables: {printed}");

    let (_, problems) = diagnosed("cuda,wgpu", &variables[..1]);
    let lacks = "libsvml.so: cannot open shared object file: No such file or directory; the Python package \
                 intel-cmplr-lib-rt has it";
    assert!(problems.len() == 1 && problems[0].contains(lacks), "{problems:#?}");
}

#[cfg(target_os = "linux")]
#[test]
fn the_doctor_names_the_driver_that_ends_its_process() {
    let folder = folder_of_drivers(&[
        ("crash.c", "#include <stdlib.h>\n__attribute__((constructor)) static void crash(void) { abort(); }"),
        ("crash.icd", "HERE/libcrash.so"),
    ]);
    let arguments = ["-shared", "-fPIC", "crash.c", "-o", "libcrash.so"];
    assert!(Command::new("cc").current_dir(folder.path()).args(arguments).status().unwrap().success());
    // The loader opens it in the process of the doctor afterwards, where there is a loader.
    let mut doctor = command(&["doctor"]);
    doctor.env("DEVICE_BACKEND_DISABLE", "cuda,wgpu").env("OCL_ICD_VENDORS", folder.path());
    let errors = text(&doctor.output().unwrap().stderr);
    let warning = "/libcrash.so: the process that opened it ended with signal: 6";
    assert!(errors.starts_with("warning: ") && errors.contains(warning), "{errors}");
}

#[cfg(target_os = "linux")]
#[test]
fn the_doctor_waits_for_no_pipe_and_prints_no_long_name() {
    let folder = folder_of_drivers(&[
        ("b-long.icd", &"x".repeat(5000)),
        ("c-nul.icd", "lib\0.so\n"),
        ("d-long.json", &format!(r#"{{"ICD": {{"library_path": "./{}"}}}}"#, "x".repeat(5000))),
    ]);
    let here = folder.path().to_str().unwrap();
    let pipe = folder.path().join("a-pipe.icd");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", folder.path().join("e-endless.icd")).unwrap();
    // Otherwise a doctor that waits for the pipe would wait forever.
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_secs(30));
        while fs::OpenOptions::new().write(true).open(&pipe).is_ok() {}
    });
    // The loader would wait for the pipe.
    let variables = [("OCL_ICD_VENDORS", here), ("OPENCL_DYLIB_PATH", "/nonexistent/libOpenCL.so")];
    let (printed, problems) = diagnosed("cuda,wgpu", &variables);
    let expected = [
        "a-pipe.icd names no OpenCL driver, and loaders skip it: it is not a regular file",
        "b-long.icd names no OpenCL driver, and loaders skip it: the name of its library has more than 4096 bytes",
        "c-nul.icd names no OpenCL driver, and loaders skip it: the name of its library has a NUL",
        "e-endless.icd names no OpenCL driver, and loaders skip it: it is not a regular file",
    ];
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for (problem, expected) in problems.iter().zip(expected) {
        assert!(problem.contains(expected) && printed.contains(expected), "{expected} in {problem}");
    }
    let (_, problems) = diagnosed("cuda,opencl", &[("VK_DRIVER_FILES", here)]);
    assert!(
        problems.len() == 1 && problems[0].contains("the name of its library has more than"),
        "{problems:#?}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn what_a_driver_prints_closes_or_starts_is_no_end_of_its_process() {
    const ENTRY: &str = "void *clGetExtensionFunctionAddress(const char *name) { (void)name; return 0; }\n\
                         __attribute__((constructor)) static void begin(void)";
    let folder = folder_of_drivers(&[
        (
            "a.c",
            &format!(
                "#include <stdio.h>\n{ENTRY} {{ for (int i = 0; i < 9999; i++) printf(\"%999d\\n\", i); }}"
            ),
        ),
        ("b.c", &format!("#include <unistd.h>\n{ENTRY} {{ close(1); close(2); }}")),
        ("c.c", &format!("#include <stdio.h>\n{ENTRY} {{ puts(\"devices: refused it\"); fflush(stdout); }}")),
        // The process that it starts has the pipe, and ends later than the time limit.
        (
            "d.c",
            &format!(
                "#include <stdlib.h>\n#include <unistd.h>\n{ENTRY} {{ if (!fork()) {{ sleep(25); _exit(0); }} abort(); }}"
            ),
        ),
    ]);
    for name in ["a", "b", "c", "d"] {
        let (source, library) = (format!("{name}.c"), format!("lib{name}.so"));
        let arguments = ["-shared", "-fPIC", "-w", &source, "-o", &library];
        assert!(Command::new("cc").current_dir(folder.path()).args(arguments).status().unwrap().success());
        let icd = folder.path().join(format!("{name}.icd"));
        fs::write(icd, folder.path().join(library).to_str().unwrap()).unwrap();
    }
    let here = folder.path().to_str().unwrap();
    // Not in the process of the doctor.
    let variables = [("OCL_ICD_VENDORS", here), ("OPENCL_DYLIB_PATH", "/nonexistent/libOpenCL.so")];
    let (printed, problems) = diagnosed("cuda,wgpu", &variables);
    for name in ["a", "b", "c"] {
        assert!(printed.contains(&format!("{here}/lib{name}.so opens\n")), "{printed}");
    }
    let ended = "libd.so`, which";
    assert!(problems.len() == 1 && problems[0].contains(ended), "{problems:#?}");
    assert!(problems[0].contains("the process that opened it ended with signal: 6"), "{problems:#?}");
}

#[cfg(target_os = "linux")]
#[test]
fn the_doctor_opens_drivers_also_when_its_file_was_replaced() {
    let folder = folder_of_drivers(&[
        ("a.icd", "HERE/liba.so"),
        ("a.c", "void *clGetExtensionFunctionAddress(const char *name) { (void)name; return 0; }"),
    ]);
    let arguments = ["-shared", "-fPIC", "a.c", "-o", "liba.so"];
    assert!(Command::new("cc").current_dir(folder.path()).args(arguments).status().unwrap().success());
    fs::copy(env!("CARGO_BIN_EXE_devices"), folder.path().join("devices")).unwrap();
    let mut doctor = Command::new("sh");
    doctor.current_dir(folder.path()).args(["-c", "exec 9<devices; rm devices; exec /proc/self/fd/9 doctor"]);
    doctor.env("DEVICE_BACKEND_DISABLE", "cuda,wgpu").env("OPENCL_DYLIB_PATH", "/nonexistent/libOpenCL.so");
    let printed = text(&doctor.env("OCL_ICD_VENDORS", folder.path()).output().unwrap().stdout);
    assert!(printed.contains("/liba.so opens\n"), "{printed}");
}

#[cfg(target_os = "linux")]
#[test]
fn the_doctor_finds_the_vulkan_driver_that_does_not_load() {
    let folder = folder_of_drivers(&[
        ("a.json", r#"{"file_format_version": "1.0.0", "ICD": {"library_path": "./libtext.so"}}"#),
        (
            "libtext.so",
            "this is text, and longer than the header of a library of 64 bits is: more than 64 bytes",
        ),
        ("b.json", r#"{"ICD": {"library_path": "libgone.so.7"}}"#),
        ("c.json", r#"{"ICD": {}}"#),
        ("d.json", "this is text"),
    ]);
    let here = folder.path().to_str().unwrap();
    let expected = [
        "/./libtext.so: invalid ELF header",
        "`libgone.so.7`, which",
        "c.json names no Vulkan driver, and loaders skip it: it has no `library_path` in `ICD`",
        "d.json names no Vulkan driver, and loaders skip it: it is not JSON",
    ];
    for variable in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"] {
        let (_, problems) = diagnosed("cuda,opencl", &[(variable, here)]);
        assert_eq!(problems.len(), expected.len(), "{problems:#?}");
        for (problem, expected) in problems.iter().zip(expected) {
            assert!(problem.contains(expected), "{expected} in {problem}");
        }
    }
    // Where nothing is named, the usual folders are searched.
    let data = tempfile::tempdir().unwrap();
    fs::create_dir_all(data.path().join("vulkan/icd.d")).unwrap();
    fs::copy(folder.path().join("c.json"), data.path().join("vulkan/icd.d/c.json")).unwrap();
    let text = data.path().to_str().unwrap();
    let variables =
        [("XDG_DATA_HOME", text), ("XDG_DATA_DIRS", text), ("VK_ADD_DRIVER_FILES", "/nonexistent.json")];
    let (_, problems) = diagnosed("cuda,opencl", &variables);
    assert!(problems[0].contains("/nonexistent.json names no Vulkan driver"), "{problems:#?}");
    assert_eq!(
        problems.iter().filter(|problem| problem.contains("icd.d/c.json")).count(),
        1,
        "{problems:#?}"
    );
}

#[test]
fn a_program_has_the_command_with_its_own_backend() {
    let deps = env::current_exe().unwrap();
    let program = deps.parent().and_then(|deps| deps.parent()).unwrap().join("examples");
    let program = program.join(format!("own_backend{}", env::consts::EXE_SUFFIX));
    let run = |arguments: &[&str]| {
        let output =
            Command::new(&program).env("DEVICE_BACKEND_DISABLE", "cuda,opencl,wgpu").args(arguments).output();
        let output = output.expect("cargo builds examples for tests");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    assert!(run(&["list"]).contains("\nmycpu:0    memory of the host"), "{}", run(&["list"]));
    assert!(run(&["info", "mycpu"]).starts_with("device                  mycpu:0\n"));
    assert!(run(&["test", "mycpu", "--", "memory::round_trip"]).contains("1 passed; 0 failed"));
    assert!(run(&["bench", "mycpu", "--largest", "4K"]).contains("copy within"));
}

#[test]
fn the_tool_for_plugins_says_how_to_use_it_and_what_it_found() {
    let run = |arguments: &[&str]| {
        let output = command(arguments).output().unwrap();
        (output.status.code(), text(&output.stdout).to_owned(), text(&output.stderr).to_owned())
    };
    let (code, printed, errors) = run(&["plugin", "print"]);
    assert_eq!((code, &*printed), (Some(2), ""));
    assert!(errors.starts_with("error: unrecognized subcommand 'print'"), "{errors}");
    let (code, printed, errors) = run(&["plugin"]);
    assert!(
        code == Some(2) && printed.is_empty() && errors.contains("  manifest  Prints the manifest"),
        "{errors}"
    );
    let (code, printed, errors) = run(&["plugin", "manifest", "--help"]);
    assert!(
        code == Some(0) && printed.contains("Usage: devices plugin manifest") && errors.is_empty(),
        "{printed}"
    );
    for (arguments, part) in [
        (&["check"][..], "<FILE>"),
        (&["manifest"], "<FILE>"),
        (&["manifest", "a", "b"], "unexpected argument 'b'"),
        (&["check", "--name", "x", "a"], "unexpected argument '--name'"),
        (&["manifest", "a", "--name", "A"], "expected 1 to 32 bytes of a-z, 0-9 and _"),
        (&["check", "a", "--time-limit", "0"], "expected seconds, such as 30"),
    ] {
        expect_refusal(&[&["plugin"], arguments].concat(), 2, part);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("none/libacme.so");
    let file = file.to_str().unwrap();
    let (code, printed, errors) = run(&["plugin", "check", file]);
    assert!(code == Some(1) && printed.ends_with("\n1 problem\n") && errors.is_empty(), "{printed}{errors}");
    let (code, printed, errors) = run(&["plugin", "manifest", file]);
    assert!(code == Some(1) && errors.starts_with("error: cannot open `"), "{printed}{errors}");
}

#[test]
fn a_trace_becomes_a_summary_and_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, page) = (path("trace.json.gz"), path("trace.html"));
    // The command itself is a program that uses devices.
    let output = command(&["info", "openreg:1"]).env("DEVICE_TRACE", &file).output().unwrap();
    assert!(output.status.success());
    assert!(printed(&["trace", &file]).starts_with("trace of devices: "));
    assert_eq!(printed(&["trace", &file, "--html", &page]), format!("wrote {page}\n"));
    expect_refusal(&["trace", &file, "--html", &file], 2, "is the trace itself");
    assert!(fs::read_to_string(&page).unwrap().contains("open openreg:1"));
    assert_eq!(printed(&["memory", &file]), "nothing was allocated\n");
    expect_refusal(&["memory", &path("none")], 2, "cannot read `");
    expect_refusal(&["trace", &path("none")], 2, "cannot read `");
    expect_refusal(&["trace", &page], 2, "expected a trace that `device-trace` has written");
    expect_refusal(&["trace", "--json", &file], 2, "unexpected argument '--json'");
}

#[test]
fn a_trace_that_cannot_be_written_and_a_default_without_a_device_are_reported() {
    let trace = |arguments: &[&str]| {
        let mut command = command(arguments);
        command.env("DEVICE_TRACE", "/nonexistent/t.json").env("DEVICE_DEFAULT", "nosuch").output().unwrap()
    };
    let output = trace(&["info", "cpu"]);
    let warning =
        "warning: observer `trace` (device-trace 0.1.0) failed to load: DEVICE_TRACE: cannot create";
    assert!(output.status.success() && text(&output.stderr).starts_with(warning), "{}", text(&output.stderr));
    let output = trace(&["doctor", "--json"]);
    assert_eq!((output.status.code(), &*text(&output.stderr)), (Some(1), ""));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let problems = document["problems"].to_string();
    assert!(problems.contains("cannot create `/nonexistent/t.json`"), "{problems}");
    assert!(problems.contains("`auto` has no device: nosuch: no backend called `nosuch`"), "{problems}");
}

#[test]
fn the_help_of_each_command_offers_only_what_it_does() {
    for command in ["list", "info", "doctor", "test", "bench"] {
        assert!(printed(&[command, "--help"]).contains("--json"), "{command}");
    }
    for command in ["trace", "memory", "completions", "man"] {
        assert!(!printed(&[command, "--help"]).contains("--json"), "{command}");
    }
    let (before, behind) = (printed(&["--json", "info", "cpu"]), printed(&["info", "cpu", "--json"]));
    assert!(before.starts_with('{') && before == behind, "{before}{behind}");
}
