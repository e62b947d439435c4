//! The objects that the threads of a round share.

use std::fmt;

use device_registry::{Buffer, Device, DeviceError, Event, Pending, Stream};
use parking_lot::Mutex;

use crate::failure::is_gone;
use crate::journal::StreamKey;
use crate::model::{Expected, Mark};
use crate::plan::Weather;

pub(crate) struct Scene {
    pub(crate) round: u64,
    pub(crate) weather: Weather,
    pub(crate) devices: Vec<Device>,
    pub(crate) no_query: bool,
    /// Streams that all threads use, and what is dropped on another thread than its own.
    pub(crate) racers: Mutex<Vec<Racer>>,
    pub(crate) racing_events: Mutex<Vec<Event>>,
    pub(crate) marks: Mutex<Vec<Mark>>,
    pub(crate) bin: Mutex<Vec<Discarded>>,
}

/// A stream that all threads enqueue work in, and buffers with any contents.
#[derive(Clone)]
pub(crate) struct Racer {
    pub(crate) key: StreamKey,
    pub(crate) device: usize,
    pub(crate) stream: Stream,
    pub(crate) buffers: [Buffer; 2],
    /// Not that of a default stream, for which every blocking call waits.
    pub(crate) may_fail: bool,
}

/// Objects that another thread drops or finishes.
#[expect(dead_code, reason = "most of it is only dropped")]
pub(crate) enum Discarded {
    Stream(Stream),
    Buffer(Buffer),
    Mark(Mark),
    Read(Pending, Expected),
}

static FINDINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Remembers what is wrong. It may be called anywhere, also in a host call.
pub(crate) fn found(wrong: impl fmt::Display) {
    const MOST: usize = 20;
    let mut findings = FINDINGS.lock();
    match findings.len() {
        MOST => {}
        _ => findings.push(wrong.to_string()),
    }
}

/// The findings since the last call.
pub(crate) fn findings() -> Vec<String> {
    std::mem::take(&mut FINDINGS.lock())
}

impl Scene {
    pub(crate) fn new(round: u64, weather: Weather, devices: &[Device], no_query: bool) -> Self {
        Self {
            round,
            weather,
            devices: devices.to_vec(),
            no_query,
            racers: Mutex::default(),
            racing_events: Mutex::default(),
            marks: Mutex::default(),
            bin: Mutex::default(),
        }
    }

    /// Whether this round has to expect an error, as it closes and loses devices.
    pub(crate) fn expects(&self, error: &DeviceError) -> bool {
        self.weather.takes_devices() && is_gone(error)
    }

    /// Drops what is shared. Returns what is to be finished.
    pub(crate) fn into_discarded(self) -> Vec<Discarded> {
        self.bin.into_inner()
    }
}
