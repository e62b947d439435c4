//! The suite, on devices that offer fault injection. The suite over all backends runs without it.
//!
//! With `WGPU_VALIDATION=1 WGPU_DEBUG=1`, a check also fails if Vulkan's validation layer has said anything,
//! with its validation of synchronisation. The first variable loads the layer, the second passes its messages
//! on.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, mem};

use log::{Level, LevelFilter, Log, Metadata, Record};

device_registry::autoload!();

fn main() -> std::process::ExitCode {
    if let Err(error) = device_registry::backends().set_option("wgpu", "faults", "1") {
        eprintln!("{error}");
        return std::process::ExitCode::FAILURE;
    }
    let suite = device_conformance::Suite::new().backend("wgpu");
    if !env::var("WGPU_VALIDATION").is_ok_and(|value| value == "1") {
        return suite.run();
    }
    log::set_logger(&Messages).expect("the only logger");
    // At this level wgpu also says whether it found the layer and whether it gets messages.
    log::set_max_level(LevelFilter::Debug);
    // On the layer of Debian 12, each device that wgpu opens and destroys takes some 50 KiB for as long as
    // the process lives, without any work on it. Without the layer it takes nothing.
    let suite =
        suite.unsupported("closing::*", "the validation layer keeps memory of each device that was open");
    suite.after_each(check).run()
}

/// Keeps the messages of `wgpu-hal`, which passes on the layer's.
struct Messages;

static MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Whether messages of the layer arrive here. Without, all checks would pass.
static ARRIVE: AtomicBool = AtomicBool::new(false);
static IS_MISSING: AtomicBool = AtomicBool::new(false);

impl Log for Messages {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("wgpu_hal")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let message = record.args().to_string();
        if record.level() <= Level::Warn {
            MESSAGES.lock().expect("nothing panics under it").push(message);
        } else if message.starts_with("Enabling debug utils") {
            ARRIVE.store(true, Ordering::Relaxed);
        } else if message.contains("unable to find layer") {
            IS_MISSING.store(true, Ordering::Relaxed);
        }
    }

    fn flush(&self) {}
}

fn check() -> Result<(), String> {
    if IS_MISSING.load(Ordering::Relaxed) {
        return Err("the validation layer is not installed".to_owned());
    }
    if !ARRIVE.load(Ordering::Relaxed) {
        return Err(
            "the messages of the validation layer do not arrive: WGPU_DEBUG=1 passes them on".to_owned()
        );
    }
    match &mem::take(&mut *MESSAGES.lock().expect("nothing panics under it"))[..] {
        [] => Ok(()),
        messages => Err(messages.join("\n")),
    }
}
