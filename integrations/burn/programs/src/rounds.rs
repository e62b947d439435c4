//! Runs a case on several devices in turns, in one process: other load on the machine affects all of them.

use std::time::{Duration, Instant};

use burn::tensor::{Device, ExecutionError, Tensor, TensorReadError};
use device_burn::Counts;

use crate::cases::{Case, Size};

/// How far a result may be from Flex's: this part of it.
pub const TOLERANCE: f32 = 1e-4;

/// The name of burn's CPU engine, which is not a device of the registry. What others are compared with.
pub const FLEX: &str = "flex";

/// Why a case has no times.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such device.
    #[error("cannot use the device `{name}`")]
    Device {
        /// Its name on the command line.
        name: String,
        /// The reason.
        source: Box<device_burn::Error>,
    },
    /// The device does not finish its work.
    #[error("`{case}` failed on {device}")]
    Failed {
        /// The case.
        case: &'static str,
        /// The device.
        device: String,
        /// The reason.
        source: ExecutionError,
    },
    /// The results cannot be read.
    #[error("cannot read the results of `{case}` on {device}")]
    Read {
        /// The case.
        case: &'static str,
        /// The device.
        device: String,
        /// The reason.
        source: Box<TensorReadError>,
    },
    /// The device computes something else than Flex.
    #[error("`{case}` on {device} differs from Flex: {difference}")]
    Differs {
        /// The case.
        case: &'static str,
        /// The device.
        device: String,
        /// Where.
        difference: Difference,
    },
}

/// The first result that is too far from Flex's.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Difference {
    /// Another number of results.
    #[error("{results} results in the place of {expected}")]
    Count {
        /// How many there are.
        results: usize,
        /// How many Flex has.
        expected: usize,
    },
    /// Another value of a result.
    #[error("result {number} is {result}, and {expected} on Flex")]
    Value {
        /// Which, from 0.
        number: usize,
        /// What it is.
        result: f32,
        /// What it is on Flex.
        expected: f32,
    },
}

/// Compares results with Flex's.
///
/// # Errors
///
/// The first [`Difference`].
pub fn agree(results: &[f32], expected: &[f32]) -> Result<(), Difference> {
    if results.len() != expected.len() {
        return Err(Difference::Count { results: results.len(), expected: expected.len() });
    }
    for (number, (&result, &expected)) in results.iter().zip(expected).enumerate() {
        // Not so for numbers that are none either.
        let near = (result - expected).abs() <= TOLERANCE * expected.abs();
        if !near {
            return Err(Difference::Value { number, result, expected });
        }
    }
    Ok(())
}

/// A device that takes its turn.
#[derive(Clone, Debug)]
pub struct Place {
    /// [`FLEX`] or a device string.
    pub name: String,
    device: Device,
}

impl Place {
    /// Opens a device.
    ///
    /// # Errors
    ///
    /// [`Error::Device`].
    pub fn open(name: &str) -> Result<Self, Error> {
        let device = match name {
            FLEX => Device::flex(),
            _ => device_burn::device(name)
                .map_err(|source| Error::Device { name: name.to_owned(), source: Box::new(source) })?,
        };
        Ok(Self { name: name.to_owned(), device })
    }

    fn is_flex(&self) -> bool {
        self.name == FLEX
    }

    /// Runs a case once.
    ///
    /// # Errors
    ///
    /// The device's errors.
    pub fn run(&self, case: &'static Case, size: Size) -> Result<Run, Error> {
        let failed = |source| Error::Failed { case: case.name, device: self.name.clone(), source };
        let epoch = case.prepare(size, &self.device);
        self.device.sync().map_err(failed)?;
        let start = Instant::now();
        let results = (epoch.run)();
        self.device.sync().map_err(failed)?;
        let time = start.elapsed() / u32::try_from(epoch.operations).unwrap_or(u32::MAX);
        Ok(Run { time, results: self.read(case, results)? })
    }

    fn read(&self, case: &'static Case, results: Vec<Tensor<1>>) -> Result<Vec<f32>, Error> {
        let read =
            |error| Error::Read { case: case.name, device: self.name.clone(), source: Box::new(error) };
        let results: Result<Vec<_>, _> = results.into_iter().map(Tensor::try_into_vec_as::<f32>).collect();
        Ok(results.map_err(read)?.concat())
    }

    /// Runs a case once more, and returns what its operations were. Nothing is counted on Flex.
    fn count(&self, case: &'static Case, size: Size) -> Result<Option<Counts>, Error> {
        if self.is_flex() {
            return Ok(None);
        }
        let error = |source| Error::Device { name: self.name.clone(), source: Box::new(source) };
        let epoch = case.prepare(size, &self.device);
        device_burn::reset_counts(&self.name).map_err(error)?;
        // What is dropped before it is needed may never run.
        let results = (epoch.run)();
        let counts = device_burn::counts(&self.name).map(Some).map_err(error);
        drop(results);
        counts
    }
}

/// One run of a case.
#[derive(Clone, Debug)]
pub struct Run {
    /// How long it took, for one of its unit.
    pub time: Duration,
    /// The losses of a program.
    pub results: Vec<f32>,
}

/// What is known of a case on a device.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The median of the rounds.
    pub time: Duration,
    /// The median of the rounds' ratios to the first device.
    pub ratio: f64,
    /// What its operations were. `None` on Flex.
    pub counts: Option<Counts>,
}

/// Runs a case on devices in turns, `rounds` times each after a run that does not count. In each round
/// another device begins.
///
/// # Errors
///
/// The devices' errors, and [`Error::Differs`] if any run has other results than Flex.
pub fn measure(
    case: &'static Case,
    size: Size,
    places: &[Place],
    rounds: usize,
) -> Result<Vec<Measured>, Error> {
    let expected = Place::open(FLEX)?.run(case, size)?.results;
    let checked = |place: &Place| {
        let run = place.run(case, size)?;
        agree(&run.results, &expected).map_err(|difference| Error::Differs {
            case: case.name,
            device: place.name.clone(),
            difference,
        })?;
        Ok(run.time)
    };
    let mut counts = Vec::with_capacity(places.len());
    for place in places {
        checked(place)?;
        counts.push(place.count(case, size)?);
    }
    let mut times = vec![Vec::with_capacity(rounds); places.len()];
    for round in 0..rounds {
        for turn in 0..places.len() {
            let place = (round + turn) % places.len();
            times[place].push(checked(&places[place])?);
        }
    }
    let measured = |(ours, counts): (&Vec<Duration>, _)| {
        let seconds = |times: &[Duration]| times.iter().map(Duration::as_secs_f64).collect::<Vec<_>>();
        let ours = seconds(ours);
        let first = seconds(&times[0]);
        let ratios = ours.iter().zip(first).map(|(ours, first)| ours / first).collect();
        Measured { time: Duration::from_secs_f64(median(ours)), ratio: median(ratios), counts }
    };
    Ok(times.iter().zip(counts).map(measured).collect())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
