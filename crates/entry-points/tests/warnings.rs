//! A warning about the switches is logged once, through `log`, and stays in the report.

#![allow(missing_docs)]

use std::sync::Mutex;

use entry_points::{EntryPoint, Group, Switches};

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static GROUP: Group<u8> = Group::new("test.warned");
static POINT: EntryPoint<u8> = EntryPoint::new("x", || Ok(Box::new(0)));

/// A logger that looks up names while it logs: the group must not be locked then.
struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        assert_eq!(GROUP.len(), 0);
        WARNINGS.lock().unwrap().push(format!("{} {}", record.level(), record.args()));
    }

    fn flush(&self) {}
}

#[test]
fn an_idle_pattern_is_logged_once_and_stays_in_the_report() {
    log::set_logger(&Logger).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
    GROUP.configure(Switches { disable: vec!["mp*".to_owned()], ..Switches::default() }).unwrap();
    assert!(GROUP.get("x").is_none());
    let note = "the pattern `mp*` in the program (Switches::disable = [\"mp*\"]) matches nothing";
    assert_eq!(*WARNINGS.lock().unwrap(), [format!("WARN test.warned: {note}")]);

    // With an entry point in the group, the logger's assertion fails if another warning is logged.
    GROUP.register(&POINT).unwrap();
    assert!(GROUP.get("x").is_some());
    assert_eq!(WARNINGS.lock().unwrap().len(), 1);
    assert_eq!(GROUP.report().notes(), [note]);
    assert!(GROUP.report().to_string().ends_with(&format!("\nnote: {note}")));
}
