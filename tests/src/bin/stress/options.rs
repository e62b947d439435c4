//! The options of the command line.

use std::time::Duration;

use device_registry::{Device, device, devices};

pub(crate) const USAGE: &str = "\
usage: stress [--seed N] [--round N] [--seconds N] [--threads N] [--devices cpu,openreg:0,…] [--calm] [--no-query]
              [--strict] [--watchdog SECONDS]

  --seed N      replays the plan of that seed; without it, one is drawn and printed
  --round N     runs that round of the plan alone, again and again
  --devices …   the devices to use; without it, all that are available
  --calm        no device is closed or lost, and the process is not forked
  --no-query    `Stream::synchronize` stands in for `Stream::query`
  --strict      `Device::synchronize` has to report each error of a dropped stream; a log is not enough";

pub(crate) struct Options {
    pub(crate) seed: u64,
    pub(crate) round: Option<u64>,
    pub(crate) duration: Duration,
    pub(crate) threads: usize,
    pub(crate) devices: Vec<Device>,
    /// Devices that the program could have used, with the reason why it does not.
    pub(crate) left_out: Vec<String>,
    pub(crate) calm: bool,
    pub(crate) no_query: bool,
    pub(crate) strict: bool,
    /// How long a thread may stand still.
    pub(crate) patience: Duration,
}

impl Options {
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            seed: fastrand::u64(..),
            round: None,
            duration: Duration::from_secs(20),
            threads: 4,
            devices: Vec::new(),
            left_out: Vec::new(),
            calm: false,
            no_query: false,
            strict: false,
            patience: Duration::from_secs(60),
        };
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("`{name}` needs a value"));
            match name.as_str() {
                "--seed" => options.seed = number(&name, &value()?)?,
                "--round" => options.round = Some(number(&name, &value()?)?),
                "--seconds" => options.duration = Duration::from_secs(number(&name, &value()?)?),
                "--threads" => options.threads = number::<usize>(&name, &value()?)?.clamp(1, 64),
                "--watchdog" => options.patience = Duration::from_secs(number(&name, &value()?)?),
                "--devices" => options.devices = value()?.split(',').map(open).collect::<Result<_, _>>()?,
                "--calm" => options.calm = true,
                "--no-query" => options.no_query = true,
                "--strict" => options.strict = true,
                other => return Err(format!("there is no option `{other}`")),
            }
        }
        if options.devices.is_empty() {
            (options.devices, options.left_out) = available();
        }
        Ok(options)
    }
}

fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{name}` needs a number, found `{text}`"))
}

fn open(text: &str) -> Result<Device, String> {
    let device = device(text).map_err(|error| error.to_string())?.resolve();
    device.open().map_err(|error| error.to_string())?;
    Ok(device)
}

fn available() -> (Vec<Device>, Vec<String>) {
    let (mut found, mut left_out) = (Vec::new(), Vec::new());
    for (backend, all) in devices() {
        match all {
            Ok(all) => {
                for device in all {
                    match device.open() {
                        Ok(()) => found.push(device),
                        Err(error) => left_out.push(format!("{device}: {error}")),
                    }
                }
            }
            Err(error) => left_out.push(format!("{}: {error}", backend.name())),
        }
    }
    (found, left_out)
}
