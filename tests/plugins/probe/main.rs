//! A program that installs backends in files and uses them, as its arguments say, one after another.
//! `openreg` is linked.
//!
//! | argument | what it does |
//! |---|---|
//! | `install=NAME:ENTRY:FILE` | installs a backend; the file is one of this package's plugins |
//! | `use=NAME` | opens a device, and moves bytes through it |
//! | `write=NAME` | writes to a device, and nothing else |
//! | `count=NAME` | counts the devices |
//! | `set=NAME:OPTION:VALUE` | sets an option |
//! | `mapped` | names the plugins that this process has opened |
//! | `report` | prints the report of the backends |
//! | `log=LEVEL` | sets a logger that prints |
//! | `bad_logger` | sets a logger that panics |
//! | `using_logger=NAME` | sets a logger that uses a device at the first record of an opened library |
//! | `hook` | sets a panic hook that prints |
//! | `fork=NAME` | uses in a child of `fork` what its parent has opened |

use std::path::{Path, PathBuf};

use device_openreg as _;
use device_plugin_tests::Manifest;
use device_registry::{DeviceError, ErrorChain, backends, device, device_count};

/// The options of `openreg` that tests set.
const OPTIONS: &[(&str, &str)] =
    &[("devices", "the number of devices, from 0 to 65536"), ("memory", "bytes")];

fn main() {
    for argument in std::env::args().skip(1) {
        let (command, rest) = argument.split_once('=').unwrap_or((&argument, ""));
        let mut words = rest.splitn(3, ':');
        let mut word = || words.next().unwrap_or_default();
        match command {
            "install" => install(word(), word(), word()),
            "use" => print(rest, used(rest)),
            "write" => print(rest, written(rest)),
            "count" => print(rest, device_count(rest)),
            "set" => backends().set_option(word(), word(), word()).expect("the option is declared"),
            "mapped" => println!("mapped: {}", mapped().join(" ")),
            "report" => println!("{}", backends().report()),
            "log" => {
                log::set_logger(&Prints).expect("the only logger");
                log::set_max_level(rest.parse().expect("a level"));
            }
            "bad_logger" => {
                log::set_logger(&Panics).expect("the only logger");
                log::set_max_level(log::LevelFilter::Trace);
            }
            "using_logger" => {
                log::set_logger(Box::leak(Box::new(Uses(rest.to_owned())))).expect("the only logger");
                log::set_max_level(log::LevelFilter::Debug);
            }
            "hook" => std::panic::set_hook(Box::new(|info| {
                println!("hook: {}", info.payload_as_str().unwrap_or("a value"));
            })),
            #[cfg(unix)]
            "fork" => fork(device(rest).expect("it is installed")),
            _ => panic!("there is no command `{command}`"),
        }
    }
}

/// The folder of this program and of the plugins.
fn built() -> PathBuf {
    let program = std::env::current_exe().expect("the program's own path");
    program.parent().map(Path::to_owned).expect("a folder")
}

fn install(name: &str, entry: &str, file: &str) {
    let file = if file.contains('/') { PathBuf::from(file) } else { built().join(format!("lib{file}.so")) };
    let package = if entry == "openreg" { "device-openreg" } else { "device-plugin-tests" };
    let manifest = Manifest { file: &file, entry, package, version: "0.1.0" };
    let options = if entry == "openreg" { OPTIONS } else { &[] };
    manifest.install_with_options(name, options);
}

fn print<T: std::fmt::Debug>(name: &str, result: Result<T, DeviceError>) {
    match result {
        Ok(value) => println!("{name}: {value:?}"),
        Err(error) => println!("{name}: error: {}", ErrorChain::new(&error)),
    }
}

fn used(name: &str) -> Result<String, DeviceError> {
    let device = device(name)?.resolve();
    let (buffer, stream) = (device.allocate(4)?, device.create_stream()?);
    buffer.write(0, b"rust")?;
    stream.write(&buffer, 0, b"y")?;
    let read = stream.read(&buffer, ..)?.wait()?;
    Ok(String::from_utf8_lossy(&read).into_owned())
}

fn written(name: &str) -> Result<(), DeviceError> {
    device(name)?.allocate(4)?.write(0, b"rust")
}

fn mapped() -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
    let files = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).map(Path::new);
    let names = files.filter_map(|file| file.file_name()?.to_str());
    let mut names: Vec<_> = names.filter(|name| name.contains("_file")).map(str::to_owned).collect();
    names.dedup();
    names
}

struct Prints;

impl log::Log for Prints {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        println!("log: {} {}: {}", record.level(), record.target(), record.args());
    }

    fn flush(&self) {}
}

struct Panics;

impl log::Log for Panics {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, _: &log::Record<'_>) {
        panic!("the pipe is closed");
    }

    fn flush(&self) {}
}

/// Uses a device when a library is opened, which is within the load of a backend.
struct Uses(String);

impl log::Log for Uses {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.args().to_string().starts_with("opened the library") {
            print(&self.0, written(&self.0));
        }
    }

    fn flush(&self) {}
}

/// Uses in a child what this process has opened, and again here.
#[cfg(unix)]
fn fork(device: device_registry::Device) {
    use std::time::{Duration, Instant};

    let (buffer, stream) = (device.allocate(4).expect("it works"), device.create_stream().expect("it works"));
    let event = stream.record().expect("it works");
    // SAFETY: this program has no other threads whose locks the child could need, except for those of
    // streams, which the code under test must not need.
    let child = unsafe { libc::fork() };
    if child == 0 {
        for (what, result) in [
            ("write", buffer.write(0, b"x")),
            ("read", buffer.read(0, &mut [0])),
            ("open", device.open()),
            ("close", device.close()),
            ("stream", stream.synchronize()),
            ("event", event.synchronize()),
        ] {
            let text = result.err().map_or("it works".to_owned(), |error| error.to_string());
            println!("child: {what}: {text}");
        }
        drop((buffer, stream, event));
        println!("child: dropped");
        // Without the handlers of the parent's exit.
        // SAFETY: it ends this process and nothing else.
        unsafe { libc::_exit(0) };
    }
    let (start, mut status) = (Instant::now(), -1);
    // SAFETY: the child is ours, and the status is a variable of this function.
    while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
        if start.elapsed() > Duration::from_secs(20) {
            // SAFETY: the child is ours, and `waitpid` has not returned it.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the child hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("child ended: {status}");
    buffer.write(0, b"rust").expect("the parent continues");
    stream.write(&buffer, 0, b"y").expect("the parent continues");
    stream.synchronize().expect("the parent continues");
    println!("parent continues");
}
