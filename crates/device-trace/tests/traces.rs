//! Traces of programs, read again.

#![cfg(feature = "read")]

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use device_registry::backend::BackendError;
use device_registry::{Device, LaunchOptions, activity};
use device_trace::{ReadError, Trace, last_records, memory_snapshot, watch_memory, write_to};

/// Runs the test of this name in its own process, in which the variable `CHILD` is set.
fn child(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env("CHILD", "1");
    command
}

fn is_child() -> bool {
    std::env::var_os("CHILD").is_some()
}

/// Some work of each kind.
fn work() {
    let cpu = Device::cpu();
    let _epoch = activity::span("epoch \"1\"");
    let (stream, buffer) = (cpu.create_stream().unwrap(), cpu.allocate(1 << 20).unwrap());
    stream.set_label("uploads");
    stream.write(&buffer, 0, vec![1; 1 << 20]).unwrap();
    stream.launch_with(&LaunchOptions::new().named("double"), &[&buffer], |_| Ok(())).unwrap();
    stream.synchronize().unwrap();
    stream.launch(&[], |_| Err(BackendError::other("on purpose"))).unwrap();
    stream.host_call(|| ()).unwrap();
    stream.synchronize().unwrap_err();
    let mut bytes = vec![0; 1 << 20];
    buffer.read(0, &mut bytes).unwrap();
}

#[test]
fn a_trace_has_what_the_program_did() {
    const TEST: &str = "a_trace_has_what_the_program_did";

    if is_child() {
        return work();
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ["trace.json", "trace.json.gz"] {
        let file = folder.path().join(name);
        let status = child(TEST).env("DEVICE_TRACE", &file).stdout(Stdio::null()).status().unwrap();
        assert!(status.success());
        let summary = Trace::read(&file).unwrap().to_string();
        for expected in [
            "write, the host to cpu",
            "double, cpu",
            "launch, cpu, 1 failed or skipped",
            "host call, cpu, 1 failed or skipped",
            "read, cpu to the host",
            "cpu, uploads",
            "  span\n",
            "  epoch \"1\"\n",
            "synchronize a stream, cpu, on `a_trace_has_what_the_program_did`",
            "memory of cpu: at most 1.0 MiB allocated",
            "1.0 MiB in 1 allocations then, epoch \"1\"",
        ] {
            assert!(summary.contains(expected), "{name}: no {expected:?} in\n{summary}");
        }
        assert!(!summary.contains("ends early"), "{summary}");
    }
    // The format of other tools.
    let text = fs::read_to_string(folder.path().join("trace.json")).unwrap();
    let events: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = events.as_array().unwrap();
    let arrows = |phase| events.iter().filter(|event| event["ph"] == phase).count();
    assert!(arrows("s") >= 4 && arrows("f") >= 3, "{text}");
    assert_eq!(arrows("B"), arrows("E"), "{text}");
    let mut depth = 0;
    for event in events.iter().filter(|event| event["pid"] == 1) {
        depth += i32::from(event["ph"] == "B") - i32::from(event["ph"] == "E");
        assert!(depth >= 0, "{text}");
    }
}

#[test]
fn the_peak_of_memory_is_that_of_the_statistics() {
    const TEST: &str = "the_peak_of_memory_is_that_of_the_statistics";

    if is_child() {
        let mut buffers: Vec<_> =
            (1..50).map(|number| Device::cpu().allocate(number * 1000).unwrap()).collect();
        std::mem::forget(buffers.remove(1));
        drop(buffers);
        Device::cpu().allocate(77).unwrap();
        println!("peak {}", Device::cpu().memory_statistics().unwrap().peak);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    let output = child(TEST).env("DEVICE_TRACE", &file).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("peak 1225000\n"), "{output:?}");
    let trace = Trace::read(&file).unwrap();
    let summary = trace.to_string();
    assert!(summary.contains("memory of cpu: at most 1.2 MiB allocated"), "{summary}");
    let memory = trace.memory().to_string();
    assert!(memory.contains("): 1.2 MiB in 49 allocations\n"), "{memory}");
    let (_, at_the_end) = memory.split_once("cpu, at the end (").expect("it has both moments");
    let lines: Vec<&str> = at_the_end.lines().map(str::trim).collect();
    assert!(lines[0].ends_with("): 2.0 KiB in 1 allocations") && lines.len() == 3, "{memory}");
    assert!(
        lines[2].starts_with("2.0 KiB         1") && lines[2].ends_with("outside of any span"),
        "{memory}"
    );
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("\"allocated\":1225000,"), "{text}");
}

#[test]
fn a_process_that_is_killed_leaves_a_trace_that_can_be_read() {
    const TEST: &str = "a_process_that_is_killed_leaves_a_trace_that_can_be_read";

    if is_child() {
        loop {
            work();
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json.gz");
    let mut process = child(TEST).env("DEVICE_TRACE", &file).stdout(Stdio::null()).spawn().unwrap();
    let begin = Instant::now();
    let has_records = |file: &Path| Trace::read(file).is_ok_and(|trace| trace.to_string().contains("double"));
    while !has_records(&file) {
        assert!(begin.elapsed() < Duration::from_secs(60), "nothing is written");
        std::thread::sleep(Duration::from_millis(50));
    }
    process.kill().unwrap();
    process.wait().unwrap();
    let trace = Trace::read(&file).unwrap();
    assert!(trace.to_string().contains("double, cpu"), "{trace}");
}

#[test]
fn a_trace_in_code_ends_where_it_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace-%p.json");
    let trace = write_to(&file).unwrap();
    drop(activity::span("inside"));
    drop(trace);
    drop(activity::span("outside"));
    let file = folder.path().join(format!("trace-{}.json", std::process::id()));
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains("inside") && !text.contains("outside"), "{text}");
}

#[test]
fn a_trace_is_one_json_document_after_each_flush() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["trace.json", "trace.json.gz"] {
        let file = folder.path().join(name);
        let names = || -> Vec<String> {
            let mut text = Vec::new();
            let bytes = fs::read(&file).unwrap();
            if name.ends_with(".gz") {
                flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_end(&mut text).unwrap();
            } else {
                text = bytes;
            }
            let events: Vec<serde_json::Value> = serde_json::from_slice(&text).unwrap();
            events.iter().filter_map(|event| event["name"].as_str().map(str::to_owned)).collect()
        };
        let trace = write_to(&file).unwrap();
        for _ in 0..2 {
            assert!(activity::flush(Duration::from_secs(60)));
            assert!(names().contains(&"process_name".to_owned()));
        }
        // Longer than what was written may wait, without and with a record.
        std::thread::sleep(Duration::from_millis(150));
        drop(activity::span("first"));
        std::thread::sleep(Duration::from_millis(150));
        drop(activity::span("between"));
        assert!(activity::flush(Duration::from_secs(60)));
        assert!(names().contains(&"first".to_owned()));
        assert!(names().contains(&"between".to_owned()));
        drop(activity::span("last"));
        drop(trace);
        let names = names();
        assert!(["between", "last"].iter().all(|span| names.iter().any(|name| name == span)), "{names:?}");
        assert!(Trace::read(&file).is_ok());
    }
}

#[test]
fn a_limit_keeps_the_last_part_of_a_trace() {
    const TEST: &str = "a_limit_keeps_the_last_part_of_a_trace";
    const ROUNDS: usize = 12;

    if is_child() {
        let buffer = Device::cpu().allocate(8).unwrap();
        for round in 0..ROUNDS {
            let _round = activity::span(&format!("round {round}"));
            (0..2_000).for_each(|_| buffer.write(0, &[1; 8]).unwrap());
            // Longer than what was written may wait.
            std::thread::sleep(Duration::from_millis(110));
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (file, before) = (folder.path().join("trace.json"), folder.path().join("trace.json.before"));
    fs::write(&before, "of an older trace").unwrap();
    let run = |limit: &str| {
        let mut child = child(TEST);
        child.env("DEVICE_TRACE", &file).env("DEVICE_TRACE_MEGABYTES", limit).stdout(Stdio::null());
        assert!(child.status().unwrap().success());
        fs::metadata(&file).unwrap().len()
    };
    let whole = run("");
    assert!(!before.exists());
    let kept = run("1") + fs::metadata(&before).unwrap().len();
    assert!(kept < whole / 2, "{kept} bytes of {whole}");
    let page = Trace::read(&file).unwrap().to_html();
    assert!(page.contains(&format!("round {}", ROUNDS - 1)), "the end is lost");
    assert!(!page.contains("round 0\""), "the beginning was kept");
}

#[test]
fn a_limit_that_is_no_number_is_an_error_that_says_so() {
    const TEST: &str = "a_limit_that_is_no_number_is_an_error_that_says_so";

    if is_child() {
        work();
        println!("{}", activity::observers().report());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = child(TEST);
    child.env("DEVICE_TRACE", folder.path().join("trace.json")).env("DEVICE_TRACE_MEGABYTES", "many");
    let printed = String::from_utf8(child.output().unwrap().stdout).unwrap();
    let expected = "invalid DEVICE_TRACE_MEGABYTES: expected a number of megabytes, found \"many\"";
    assert!(printed.contains(expected), "{printed}");
}

#[test]
fn a_file_that_cannot_be_created_is_an_error_that_names_it_and_the_program_runs() {
    const TEST: &str = "a_file_that_cannot_be_created_is_an_error_that_names_it_and_the_program_runs";

    if is_child() {
        work();
        println!("{}", activity::observers().report());
        return;
    }
    let output = child(TEST).env("DEVICE_TRACE", "/no/such/folder/trace.json").output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("DEVICE_TRACE: cannot create `/no/such/folder/trace.json`"), "{printed}");
    assert!(printed.contains("DEVICE_FLIGHT_RECORDER is not set"), "{printed}");
}

#[test]
fn a_program_that_starts_itself_keeps_its_trace_and_the_other_names_the_way_out() {
    const TEST: &str = "a_program_that_starts_itself_keeps_its_trace_and_the_other_names_the_way_out";

    if is_child() {
        work();
        if std::env::var_os("GRANDCHILD").is_none() {
            assert!(activity::flush(Duration::from_secs(10)));
            assert!(child(TEST).env("GRANDCHILD", "1").status().unwrap().success());
            drop(activity::span("after the other"));
        }
        println!("{}", activity::observers().report());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ["trace.json", "trace.json.gz", "trace-%p.json"] {
        let file = folder.path().join(name);
        let mut parent = child(TEST).env("DEVICE_TRACE", &file).stdout(Stdio::piped()).spawn().unwrap();
        let own = folder.path().join(name.replace("%p", &parent.id().to_string()));
        let mut printed = String::new();
        parent.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        assert!(parent.wait().unwrap().success());
        let trace = Trace::read(&own).unwrap();
        let (summary, page) = (trace.to_string(), trace.to_html());
        assert!(!summary.contains("ends early") && page.contains("after the other"), "{name}: {summary}");
        let refused = printed.contains("another process has it open, perhaps for its own trace; `%p` in the");
        assert_eq!(refused, !name.contains("%p"), "{name}: {printed}");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 4, "each of the last two has a file");
}

#[cfg(unix)]
#[test]
fn a_pipe_without_a_reader_is_an_error_and_one_with_a_reader_gets_the_trace() {
    const TEST: &str = "a_pipe_without_a_reader_is_an_error_and_one_with_a_reader_gets_the_trace";

    if is_child() {
        work();
        println!("{}", activity::observers().report());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let run = || {
        let output = child(TEST).env("DEVICE_TRACE", &pipe).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let printed = run();
    assert!(printed.contains("it is a pipe, and no process reads it"), "{printed}");
    // This open waits for the writer, and with it the read.
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read_to_string(pipe).unwrap()
    });
    let begin = Instant::now();
    while run().contains("no process reads it") {
        assert!(begin.elapsed() < Duration::from_secs(60), "there is no reader");
    }
    let text = reader.join().unwrap();
    assert!(text.contains("double"), "{text}");
}

#[test]
fn a_page_has_the_data_and_nothing_that_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    let trace = write_to(&file).unwrap();
    drop(activity::span("</script><script>alert(1)"));
    work();
    drop(trace);
    let page = Trace::read(&file).unwrap().to_html();
    assert!(page.contains("\\u003c/script>\\u003cscript>alert(1)") && !page.contains("<script>alert"));
    assert!(page.contains("\"tracks\":[") && !page.contains("/*TRACE*/null\n"));
    assert!(
        page.contains("\"median\", \"longest\""),
        "a mean is of everything, also of what is compiled first"
    );
}

#[test]
fn what_is_no_trace_is_an_error_that_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("other");
    let read = |text: &str| {
        fs::write(&file, text).unwrap();
        Trace::read(&file).unwrap_err()
    };
    assert!(matches!(read(""), ReadError::Empty));
    assert!(matches!(read("{\"traceEvents\": []}\n"), ReadError::Line(1, _)));
    let begin = r#"[{"ph":"M","name":"process_name","pid":1,"args":{"name":"a"}}"#;
    let error = read(&format!("{begin}\n,{{\"ph\":\"Q\",\"name\":\"x\"}}\n")).to_string();
    assert!(error.contains("found in line 2: {\"ph\":\"Q\""), "{error}");
    fs::write(&file, format!("{begin}\n,{{\"ph\":\"B\",\"na")).unwrap();
    assert!(Trace::read(&file).unwrap().to_string().contains("the file ends early"));
    assert!(matches!(Trace::read(folder.path().join("none")), Err(ReadError::Io(_))));
}

/// A file from somebody else: the numbers in it are any.
#[test]
fn a_trace_with_wild_numbers_is_an_error_or_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let begin = r#"[{"ph":"M","name":"process_name","pid":1,"args":{"name":"a"}}
,{"ph":"M","name":"process_name","pid":2,"args":{"name":"cpu"}}"#;
    let event = |phase: &str, pid: u64, ts: &str, number: u64| {
        format!(
            r#",{{"ph":"{phase}","name":"x","pid":{pid},"tid":1,"ts":{ts},"id":"{pid}","cat":"wait","dur":{ts},"args":{{"bytes":{number},"count":{number},"allocated":{number},"reserved":{number},"work":1,"failed":1}}}}"#
        )
    };
    // Each in its own file: to replace one, some file systems wait for the disk.
    let mut files = (0..).map(|number| folder.path().join(format!("{number}.json")));
    let mut show = |events: &[String]| {
        let file = files.next().unwrap();
        fs::write(&file, format!("{begin}\n{}\n", events.join("\n"))).unwrap();
        let trace = Trace::read(file)?;
        let _ = (trace.to_string(), trace.memory().to_string());
        Ok::<Trace, ReadError>(trace)
    };
    let times = ["0", "-1e300", "1.5", "4611686018427387.9", "9e15", "1e300", "18446744073709551615"];
    let numbers = [0, 1, 1 << 62, (1 << 62) + 1, 1 << 63, u64::MAX];
    let mut all = Vec::new();
    for (phase, pid) in ["B", "X", "E", "i", "C", "N", "D"]
        .into_iter()
        .flat_map(|phase| [0, 1, 2, 3, u64::MAX].map(|pid| (phase, pid)))
    {
        for (ts, number) in times.iter().flat_map(|ts| numbers.map(|number| (ts, number))) {
            let event = event(phase, pid, ts, number);
            if show(&vec![event.clone(); 3]).is_ok() {
                all.push(event);
            }
        }
    }
    assert!((300..500).contains(&all.len()), "{} are read", all.len());
    assert!(show(&all).unwrap().to_html().contains("\"tracks\""));
}

#[test]
fn a_line_without_end_is_an_error_before_it_is_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("long.json.gz");
    let mut long =
        flate2::write::GzEncoder::new(fs::File::create(&file).unwrap(), flate2::Compression::fast());
    std::io::copy(&mut std::io::repeat(b' ').take(3 << 20), &mut long).unwrap();
    long.finish().unwrap();
    let ReadError::Line(1, found) = Trace::read(&file).unwrap_err() else { panic!("it was read") };
    assert_eq!(found, "more than 1048576 bytes");
}

#[test]
fn a_panic_prints_the_last_records() {
    const TEST: &str = "a_panic_prints_the_last_records";

    if is_child() {
        drop(Device::cpu().allocate(123).unwrap());
        panic!("on purpose");
    }
    let output = child(TEST).env("DEVICE_FLIGHT_RECORDER", "on").output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("The last records of devices:"), "{printed}");
    assert!(printed.contains("[a_panic_prints_the_last_records] cpu allocated 123 bytes"), "{printed}");
    let without = child(TEST).env("DEVICE_FLIGHT_RECORDER", "0").output().unwrap();
    assert!(!String::from_utf8_lossy(&without.stderr).contains("last records"));
    assert_eq!(last_records(10), "");
}

#[test]
fn an_allocation_that_fails_prints_what_lives_in_memory() {
    const TEST: &str = "an_allocation_that_fails_prints_what_lives_in_memory";

    if is_child() {
        let _span = activity::span("weights");
        let _buffer = Device::cpu().allocate(4096).unwrap();
        Device::cpu().allocate(1 << 60).unwrap_err();
        return;
    }
    let output = child(TEST).env("DEVICE_TRACE_ON_OOM", "1").output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("`cpu`: no memory for 1152921504606846976 bytes."), "{printed}");
    assert!(printed.contains("4096 bytes in 1 allocations, weights"), "{printed}");
}

#[test]
fn a_snapshot_lacks_what_was_freed() {
    let watch = watch_memory().unwrap();
    let kept = Device::cpu().allocate(54_321).unwrap();
    drop(Device::cpu().allocate(12_345).unwrap());
    let snapshot = memory_snapshot().to_string();
    assert!(snapshot.contains("54321 bytes for ") && !snapshot.contains("12345 bytes for"), "{snapshot}");
    drop(watch);
    drop(kept);
    // Freed while nothing watched.
    let watch = watch_memory().unwrap();
    assert!(!memory_snapshot().to_string().contains("54321 bytes"));
    drop(watch);
}
