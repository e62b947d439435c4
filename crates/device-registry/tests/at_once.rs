//! Short work of an idle stream runs on the thread that enqueues it; everything else stays as it was.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, ThreadId};

use device_registry::backend::{BackendError, HostMemory, Launch};
use device_registry::{Buffer, DeviceError, EventOptions, LaunchOptions, Stream, device};

fn cpu() -> (Stream, Buffer) {
    let device = device("cpu").unwrap();
    (device.create_stream().unwrap(), device.allocate(64).unwrap())
}

fn short() -> LaunchOptions {
    LaunchOptions::new().short()
}

/// The threads on which kernels have run, in order.
#[derive(Clone, Default)]
struct Threads(Arc<Mutex<Vec<ThreadId>>>);

impl Threads {
    fn kernel(&self) -> impl FnOnce(&Launch<'_>) -> Result<(), BackendError> + Send + 'static {
        let threads = self.clone();
        move |_| {
            threads.0.lock().unwrap().push(thread::current().id());
            Ok(())
        }
    }

    fn seen(&self) -> Vec<ThreadId> {
        self.0.lock().unwrap().clone()
    }
}

#[test]
fn a_short_launch_of_an_idle_stream_runs_on_the_calling_thread() {
    let ((stream, buffer), threads) = (cpu(), Threads::default());
    stream.launch_with(&short(), &[&buffer], threads.kernel()).unwrap();
    assert_eq!(threads.seen(), [thread::current().id()], "it has run when the call returns");
    assert!(stream.query().unwrap());
}

#[test]
fn another_launch_and_one_behind_unfinished_work_run_on_the_streams_thread_in_order() {
    let ((stream, buffer), threads) = (cpu(), Threads::default());
    let (release, released) = mpsc::channel::<()>();
    stream.host_call(move || released.recv().unwrap_or(())).unwrap();
    stream.launch_with(&short(), &[&buffer], threads.kernel()).unwrap();
    stream.launch(&[&buffer], threads.kernel()).unwrap();
    assert_eq!(threads.seen(), [], "the work before them is not done");
    drop(release);
    stream.synchronize().unwrap();
    stream.launch(&[&buffer], threads.kernel()).unwrap();
    stream.synchronize().unwrap();
    let seen = threads.seen();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|&id| id == seen[0] && id != thread::current().id()), "{seen:?}");
}

#[test]
fn a_failure_and_a_panic_are_the_streams() {
    let (stream, buffer) = cpu();
    let fail = |_: &Launch<'_>| Err(BackendError::other("on purpose"));
    stream.launch_with(&short(), &[&buffer], fail).expect("the stream reports it");
    let skipped = Threads::default();
    stream.launch_with(&short(), &[&buffer], skipped.kernel()).unwrap();
    assert!(stream.synchronize().unwrap_err().to_string().ends_with("launch: on purpose"));
    assert_eq!(skipped.seen(), [], "it was enqueued before the report");

    stream.launch_with(&short(), &[&buffer], |_| panic!("on purpose")).unwrap();
    let error = stream.query().unwrap_err().to_string();
    assert!(error.contains("the kernel panicked: on purpose"), "{error}");
    let after = Threads::default();
    stream.launch_with(&short(), &[&buffer], after.kernel()).unwrap();
    assert_eq!(after.seen(), [thread::current().id()]);
}

#[test]
fn a_kernel_uses_no_device_and_the_calling_thread_does_afterwards() {
    let (stream, buffer) = cpu();
    let (in_kernel, of_kernel) = mpsc::channel();
    let other = buffer.clone();
    stream
        .launch_with(&short(), &[&buffer], move |_| {
            in_kernel.send(other.write(0, &[1]).unwrap_err()).unwrap();
            Ok(())
        })
        .unwrap();
    let error = of_kernel.recv().unwrap();
    assert!(matches!(error, DeviceError::InHostCall { .. }), "{error}");
    buffer.write(0, &[1]).unwrap();
}

#[test]
fn copies_of_host_memory_events_and_reads_are_done_when_the_call_returns() {
    let (stream, buffer) = cpu();
    let start = stream.record_with(&EventOptions::new().timed()).unwrap();
    stream.write(&buffer, 0, vec![7; 64]).unwrap();
    stream.fill(&buffer, 32.., &[9]).unwrap();
    stream.copy(&buffer.slice(..8).unwrap(), &buffer.slice(56..64).unwrap()).unwrap();
    let read = stream.read(&buffer, ..).unwrap();
    let end = stream.record_with(&EventOptions::new().timed()).unwrap();
    assert!(read.is_ready() && start.query().unwrap() && end.query().unwrap() && stream.query().unwrap());
    let expected = [&[7; 32][..], &[9; 24], &[7; 8]].concat();
    assert_eq!(*read.wait().unwrap(), *expected);
    assert!(end.elapsed_since(&start).is_ok());
}

/// A thread that has windows open may not wait for others, as the stream's thread may.
#[test]
fn work_that_a_thread_with_an_open_window_enqueues_waits_for_it_on_the_streams_thread() {
    let ((stream, buffer), threads) = (cpu(), Threads::default());
    buffer.fill(.., &[0]).unwrap();
    let span = buffer.span().unwrap();
    let (memory, range) = span.on_host().unwrap();
    let window = memory.read(range).unwrap();
    let note = threads.kernel();
    let kernel = move |launch: &Launch<'_>| {
        let span = launch.spans()[0].as_ref().unwrap();
        span.memory_as::<HostMemory>()?.write(span.range())?[8..16].fill(2);
        note(launch)
    };
    stream.launch_with(&short(), &[&buffer], kernel).unwrap();
    stream.write(&buffer, 0, vec![1; 8]).unwrap();
    stream.fill(&buffer, 16..24, &[3]).unwrap();
    stream.copy(&buffer.slice(..8).unwrap(), &buffer.slice(24..32).unwrap()).unwrap();
    let read = stream.read(&buffer, ..32).unwrap();
    assert!(!stream.query().unwrap() && window.iter().all(|&byte| byte == 0));
    drop(window);
    stream.synchronize().unwrap();
    assert_eq!(*read.wait().unwrap(), *[[1; 8], [2; 8], [3; 8], [1; 8]].concat());
    assert_ne!(threads.seen(), [thread::current().id()]);
    // A window is open no more.
    stream.launch_with(&short(), &[&buffer], threads.kernel()).unwrap();
    assert_eq!(threads.seen()[1], thread::current().id());
}

/// Each kind of short work by itself, as work behind other work goes to the stream's thread anyway.
#[test]
fn each_kind_of_short_work_waits_for_the_windows_of_the_thread_that_enqueues_it() {
    let enqueue: [fn(&Stream, &Buffer); 4] = [
        |stream, buffer| stream.write(buffer, 0, vec![1; 8]).unwrap(),
        |stream, buffer| stream.fill(buffer, .., &[3]).unwrap(),
        |stream, buffer| stream.copy(&buffer.slice(..8).unwrap(), &buffer.slice(24..32).unwrap()).unwrap(),
        |stream, buffer| {
            let kernel = |launch: &Launch<'_>| {
                let span = launch.spans()[0].as_ref().unwrap();
                span.memory_as::<HostMemory>()?.write(span.range())?.fill(2);
                Ok(())
            };
            stream.launch_with(&short(), &[buffer], kernel).unwrap();
        },
    ];
    for enqueue in enqueue {
        let (stream, buffer) = cpu();
        let span = buffer.span().unwrap();
        let (memory, range) = span.on_host().unwrap();
        let window = memory.read(range).unwrap();
        enqueue(&stream, &buffer);
        drop(window);
        stream.synchronize().unwrap();
    }
}

/// Whether a stream of many threads, some of whose work is short, keeps the order of each thread.
#[test]
fn threads_that_share_a_stream_keep_their_order() {
    const EACH: usize = 500;

    let (stream, buffer) = cpu();
    buffer.fill(.., &[0]).unwrap();
    let running = Arc::new(AtomicUsize::new(0));
    let orders: Vec<_> = (0..3).map(|_| Arc::new(Mutex::new(Vec::new()))).collect();
    thread::scope(|scope| {
        for order in &orders {
            let (stream, buffer, running) = (&stream, &buffer, &running);
            scope.spawn(move || {
                for number in 0..EACH {
                    let (order, running) = (Arc::clone(order), Arc::clone(running));
                    let kernel = move |launch: &Launch<'_>| {
                        assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                        let span = launch.spans()[0].as_ref().unwrap();
                        let mut bytes = span.memory_as::<HostMemory>()?.write(span.range())?;
                        let count = u64::from_le_bytes(bytes[..8].try_into().unwrap()) + 1;
                        bytes[..8].copy_from_slice(&count.to_le_bytes());
                        order.lock().unwrap().push(number);
                        running.fetch_sub(1, Ordering::SeqCst);
                        Ok(())
                    };
                    let options = if number % 3 == 0 { LaunchOptions::new() } else { short() };
                    stream.launch_with(&options, &[buffer], kernel).unwrap();
                    if number % 64 == 0 {
                        stream.synchronize().unwrap();
                    }
                }
            });
        }
    });
    stream.synchronize().unwrap();
    for order in &orders {
        assert!(order.lock().unwrap().iter().copied().eq(0..EACH));
    }
    let mut count = [0; 8];
    buffer.read(0, &mut count).unwrap();
    assert_eq!(u64::from_le_bytes(count), 3 * EACH as u64);
}

/// A stream whose last handle is dropped while its thread waits for work that another thread does at once.
#[test]
fn work_behind_a_kernel_that_runs_at_once_is_done_by_the_streams_thread() {
    let (stream, buffer) = cpu();
    let threads = Threads::default();
    let (entered, has_entered) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let done = thread::scope(|scope| {
        let (stream, buffer) = (&stream, &buffer);
        scope.spawn(move || {
            // It is not really short, so that the test can enqueue behind it.
            let kernel = move |_: &Launch<'_>| {
                entered.send(()).unwrap();
                released.recv().unwrap_or(());
                Ok(())
            };
            stream.launch_with(&short(), &[buffer], kernel).unwrap();
        });
        has_entered.recv().unwrap();
        stream.launch_with(&short(), &[buffer], threads.kernel()).unwrap();
        let event = stream.record().unwrap();
        assert!(!stream.query().unwrap() && !event.query().unwrap());
        assert_eq!(threads.seen(), []);
        drop(release);
        event
    });
    done.synchronize().unwrap();
    let seen = threads.seen();
    assert!(seen.len() == 1 && seen[0] != thread::current().id(), "{seen:?}");
}

/// Runs a test of this file in its own process, in which no other test has threads and memory. `None` in
/// the parent.
fn alone(test: &str) -> Option<()> {
    const ALONE: &str = "DEVICE_REGISTRY_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return Some(());
    }
    let mut program = Command::new(std::env::current_exe().unwrap());
    let output = program.args(["--exact", test]).env(ALONE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    None
}

#[test]
fn the_variable_turns_it_off_and_extends_it_to_all_launches() {
    const TEST: &str = "the_variable_turns_it_off_and_extends_it_to_all_launches";
    const VARIABLE: &str = "DEVICE_LAUNCH_AT_ONCE";

    if std::env::var_os(VARIABLE).is_none() {
        let run = |value| {
            let mut test = Command::new(std::env::current_exe().unwrap());
            test.args(["--exact", TEST, "--nocapture"]).env(VARIABLE, value).env("RUST_BACKTRACE", "0");
            let output = test.output().unwrap();
            (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        for (value, passes) in [("0", true), ("1", true), ("always", false)] {
            let (passed, printed) = run(value);
            assert_eq!(passed, passes, "{printed}");
            assert!(
                passed || printed.contains("invalid DEVICE_LAUNCH_AT_ONCE: expected 1, true"),
                "{printed}"
            );
        }
        return;
    }
    let ((stream, buffer), threads) = (cpu(), Threads::default());
    stream.launch_with(&short(), &[&buffer], threads.kernel()).unwrap();
    stream.synchronize().unwrap();
    stream.launch(&[&buffer], threads.kernel()).unwrap();
    stream.synchronize().unwrap();
    let at_once = std::env::var(VARIABLE).unwrap() == "1";
    assert_eq!(
        threads.seen().iter().filter(|&&id| id == thread::current().id()).count(),
        2 * usize::from(at_once)
    );
}

#[test]
fn what_a_kernel_drops_is_freed_when_the_call_returns() {
    let Some(()) = alone("what_a_kernel_drops_is_freed_when_the_call_returns") else { return };
    let (stream, buffer) = cpu();
    let live = || buffer.device().memory_statistics().unwrap().live;
    let before = live();
    let [temporary, kept] = [0, 1].map(|_| buffer.device().allocate(1 << 10).unwrap());
    assert_eq!(live(), before + 2);
    let kernel = move |launch: &Launch<'_>| {
        launch.keep(kept);
        drop(temporary);
        Ok(())
    };
    stream.launch_with(&short(), &[&buffer], kernel).unwrap();
    assert_eq!(live(), before);
}

#[cfg(target_os = "linux")]
#[test]
fn a_stream_of_short_work_starts_no_thread() {
    let Some(()) = alone("a_stream_of_short_work_starts_no_thread") else { return };
    let ((stream, buffer), threads) = (cpu(), Threads::default());
    let name = format!("{} stream", buffer.device());
    let threads_of_streams = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
        names.filter(|comm| comm.trim_end() == name).count()
    };
    stream.write(&buffer, 0, vec![1; 8]).unwrap();
    stream.launch_with(&short(), &[&buffer], threads.kernel()).unwrap();
    stream.record().unwrap().synchronize().unwrap();
    assert_eq!(threads_of_streams(), 0);
    stream.launch(&[&buffer], threads.kernel()).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(threads_of_streams(), 1, "{name}");
}
