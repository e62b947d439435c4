//! Everything at once, for a given time: streams, events, copies between devices, calls that fail, devices
//! that are closed and lost, forks of the process; by several threads, whose work is a pure function of a
//! seed. It checks what is read, in which order calls run, and that each failure is reported once.
//!
//! A run is a row of rounds. In each, every thread does its part of the plan; then all is dropped and waited
//! for, and what was reported is compared with what failed. What can be said of a round depends on what
//! disturbs it: see [`plan::Weather`].

mod calls;
mod check;
mod failure;
#[cfg(unix)]
mod forks;
mod journal;
mod model;
mod options;
mod others;
mod plan;
mod round;
mod scene;
mod transfers;
mod waits;
mod watchdog;
mod worker;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use crate::options::{Options, USAGE};
use crate::round::Totals;

device_registry::autoload!();

fn main() -> ExitCode {
    // Failures on purpose are panics; what is wrong is found and printed at the end of its round.
    std::panic::set_hook(Box::new(|panic| {
        if failure::Identity::find(panic.payload_as_str().unwrap_or_default()).is_none() {
            eprintln!("{panic}");
        }
    }));
    failure::install_logger().expect("there is no other logger");
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => Arc::new(options),
        Err(error) => {
            eprintln!("stress: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let devices: Vec<_> = options.devices.iter().map(ToString::to_string).collect();
    println!("seed {}, {} threads, devices {}", options.seed, options.threads, devices.join(","));
    for left_out in &options.left_out {
        println!("left out: {left_out}");
    }
    let watched = Arc::clone(&options);
    std::thread::spawn(move || watchdog::watch(&watched));
    let (start, mut totals) = (Instant::now(), Totals::default());
    let mut number = options.round.unwrap_or(0);
    while start.elapsed() < options.duration {
        let wrong = round::run(&options, number, &mut totals);
        if !wrong.is_empty() {
            totals.bad_rounds += 1;
            println!("round {number} is wrong: replay it by --seed {} --round {number}", options.seed);
            wrong.iter().for_each(|wrong| println!("  {wrong}"));
        }
        if options.round.is_none() {
            number += 1;
        }
    }
    println!("{totals}");
    ExitCode::from(u8::from(totals.bad_rounds > 0))
}
