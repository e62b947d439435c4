//! What was measured, as data.

use device_registry::Device;
use serde::{Deserialize, Serialize};

use crate::kernels::Times;

/// The form of the document. A change that a reader would notice changes it.
pub(crate) const FORMAT: u32 = 1;

/// The measurements of a run.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Record {
    pub(crate) format: u32,
    /// The version of this crate.
    pub(crate) version: String,
    /// When it began, in UTC, as RFC 3339 has it.
    #[serde(default)]
    pub(crate) date: String,
    /// The operating system and the processor's architecture.
    pub(crate) system: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) load: Option<Load>,
    /// Whether the user ended it with Ctrl-C.
    #[serde(default)]
    pub(crate) interrupted: bool,
    pub(crate) devices: Vec<Measured>,
    pub(crate) measurements: Vec<Measurement>,
    /// Calls that a device has no kernel for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing: Vec<Missing>,
    /// Why a device has no more of them.
    pub(crate) errors: Vec<Failed>,
}

/// How busy the machine was when the run began.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Load {
    /// How many threads ran or waited for a processor in the minute before, on average.
    pub(crate) average: f64,
    pub(crate) processors: usize,
}

impl Load {
    /// Whether other programs take so much that times vary.
    pub(crate) fn is_busy(&self) -> bool {
        self.average > self.processors as f64 / 2.0
    }
}

/// A device that could not be measured to the end.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Failed {
    pub(crate) device: String,
    pub(crate) error: String,
}

/// A call that a device has no kernel for.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Missing {
    pub(crate) device: String,
    pub(crate) operation: String,
}

/// A device that was measured.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Measured {
    pub(crate) device: String,
    pub(crate) name: String,
    pub(crate) driver: Option<String>,
    /// The bandwidth of its memory in bytes per second, if the driver says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) memory_bandwidth: Option<u64>,
}

/// The median time of one operation.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Measurement {
    pub(crate) device: String,
    pub(crate) operation: String,
    /// The device that a copy ends on, if it is another one.
    pub(crate) to: Option<String>,
    /// `None` for a latency.
    pub(crate) bytes: Option<u64>,
    /// The arithmetic operations of a kernel, if they are what limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) operations: Option<u64>,
    pub(crate) seconds: f64,
    /// Between these two are the middle half of the runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) quartiles: Option<[f64; 2]>,
}

impl Measurement {
    /// A latency.
    pub(crate) fn new(device: Device, operation: &str, times: Times) -> Self {
        Self {
            device: device.to_string(),
            operation: operation.to_owned(),
            to: None,
            bytes: None,
            operations: None,
            seconds: times.median,
            quartiles: Some(times.quartiles),
        }
    }

    /// Half of the range of the middle half of the runs, as a part of the median.
    pub(crate) fn spread(&self) -> Option<f64> {
        self.quartiles.map(|[lower, upper]| (upper - lower) / 2.0 / self.seconds)
    }

    /// The operation in words.
    pub(crate) fn what(&self) -> String {
        match &self.to {
            Some(to) => format!("{} to {to}", self.operation),
            None => self.operation.clone(),
        }
    }

    /// Arithmetic operations per second, of a kernel.
    pub(crate) fn arithmetic(&self) -> Option<f64> {
        self.operations.map(|count| count as f64 / self.seconds)
    }

    /// Bytes per second, of a copy, a fill or a kernel.
    pub(crate) fn bandwidth(&self) -> Option<f64> {
        let moves = self.operation != ALLOCATE;
        self.bytes.filter(|_| moves).map(|bytes| bytes as f64 / self.seconds)
    }
}

/// An operation that has a size and moves nothing.
pub(crate) const ALLOCATE: &str = "allocate and free";

impl Record {
    /// Rows with commas, under a row of titles.
    pub(crate) fn csv(&self) -> String {
        let mut text =
            "device,operation,to,bytes,seconds,bytes_per_second,operations_per_second,spread\n".to_owned();
        for measurement in &self.measurements {
            let Measurement { device, operation, to, bytes, seconds, .. } = measurement;
            let spread = measurement.spread().map(|spread| format!("{spread:.3}")).unwrap_or_default();
            let to = to.as_deref().unwrap_or_default();
            let bytes = bytes.map(|bytes| bytes.to_string());
            let rate = measurement.bandwidth().map(|rate| format!("{rate:.0}")).unwrap_or_default();
            let arithmetic = measurement.arithmetic().map(|rate| format!("{rate:.0}")).unwrap_or_default();
            // The shapes of a call have commas.
            let operation =
                if operation.contains(',') { format!("\"{operation}\"") } else { operation.clone() };
            let bytes = bytes.unwrap_or_default();
            text += &format!("{device},{operation},{to},{bytes},{seconds:e},{rate},{arithmetic},{spread}\n");
        }
        text
    }
}
