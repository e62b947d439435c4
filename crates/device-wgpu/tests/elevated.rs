//! A process with more rights than its user opens no driver that a variable names.
#![cfg(target_os = "linux")]

mod child;

use device_conformance::process;
use device_registry::{backends, device_count};

use crate::child::CHILD;

device_registry::autoload!();

/// Prints what the backend logs.
struct Printer;

impl log::Log for Printer {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target().starts_with("device_wgpu")
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            println!("{}", record.args());
        }
    }

    fn flush(&self) {}
}

#[test]
fn an_elevated_process_ignores_the_users_drivers_and_says_so() {
    if process::is_child() {
        if process::is_elevated() {
            log::set_logger(&Printer).unwrap();
            log::set_max_level(log::LevelFilter::Warn);
            let devices = backends().load("wgpu").map(|_| device_count("wgpu"));
            println!("devices: {devices:?}");
        }
        return;
    }
    let test = "an_elevated_process_ignores_the_users_drivers_and_says_so";
    let printed = |variables: &[(&str, &str)]| {
        let output =
            process::again_elevated(test, |child| CHILD.apply(child).envs(variables.iter().copied()))?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let Some(without) = printed(&[]) else { return };
    // With these variables, an ordinary process finds no driver.
    for name in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"] {
        let with = printed(&[(name, "/nonexistent/icd.json")]).expect("the first one ran");
        let ignored = format!(
            "{name} is ignored: this process has more rights than its user, whose environment must not name files"
        );
        assert!(with.contains(&ignored), "{with}");
        let devices =
            |printed: &str| printed.lines().find(|line| line.starts_with("devices: Ok")).map(str::to_owned);
        assert_eq!(devices(&with), devices(&without), "{with}");
    }
}
