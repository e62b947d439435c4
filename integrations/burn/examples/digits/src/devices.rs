//! The devices to train on: registered ones by their device strings, and devices of a `burn-serve`.

use std::error::Error;
use std::path::Path;

use burn::tensor::Device;

use crate::training::{Strategy, TrainError};

/// Whether a name is the address of a burn-serve.
#[must_use]
pub fn is_remote(name: &str) -> bool {
    name.starts_with("ws://")
}

/// burn's devices for these names, each with its name, for a training by this strategy. A burn-serve stands
/// for all its devices, in its order; its token is in `token_file`.
///
/// # Errors
///
/// What [`device_burn::device`] returns, a failure to connect or to read the token, and devices that the
/// strategy does not have.
pub fn open<'a>(
    names: &'a [String],
    strategy: Strategy,
    token_file: Option<&Path>,
) -> Result<Vec<(&'a str, Device)>, Box<dyn Error + Send + Sync>> {
    if strategy == Strategy::Ddp && names.len() > 1 && names.iter().any(|name| is_remote(name)) {
        return Err(
            "with `ddp`, all devices are of one server: name one burn-serve, or devices of this machine"
                .into(),
        );
    }
    let mut devices = Vec::new();
    for name in names {
        match is_remote(name) {
            true => devices.extend(served(name, token_file)?.into_iter().map(|device| (&**name, device))),
            false => devices.push((&**name, registered(name, strategy)?)),
        }
    }
    for (index, (name, device)) in devices.iter().enumerate() {
        if strategy == Strategy::Ddp && devices[..index].iter().any(|(_, earlier)| earlier == device) {
            return Err(format!("`{name}` is there twice: with `ddp`, burn waits for each device").into());
        }
    }
    Ok(devices)
}

/// A training that ended because devices were lost.
#[derive(Debug, thiserror::Error)]
#[error("lost {lost}")]
pub struct Lost {
    lost: String,
    source: TrainError,
}

/// Adds to an error the devices that do not answer any more, and what they say instead. burn's error may name
/// none: its client has no message for a server that has ended, and a thread that fails may be the one that
/// waited.
#[must_use]
pub fn name_the_lost(error: TrainError, devices: &[(&str, Device)]) -> Box<dyn Error + Send + Sync> {
    let mut lost: Vec<(&str, String)> =
        devices.iter().filter_map(|(name, device)| Some((*name, device.sync().err()?.to_string()))).collect();
    // A server has several devices.
    lost.dedup_by_key(|(name, _)| *name);
    if lost.is_empty() {
        return error.into();
    }
    let lost = lost.iter().map(|(name, error)| format!("{name}: {error}")).collect::<Vec<_>>().join("; ");
    Lost { lost, source: error }.into()
}

/// The token in a file, without the newline at its end.
///
/// # Errors
///
/// If no file is given or it cannot be read.
pub fn token(file: Option<&Path>) -> Result<String, Box<dyn Error + Send + Sync>> {
    let path = file.ok_or("a burn-serve wants its token: name the file with `--token-file`")?;
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read the token file `{}`: {error}", path.display()))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(not(feature = "burn-0-23"))]
fn registered(name: &str, strategy: Strategy) -> Result<Device, device_burn::Error> {
    match strategy {
        Strategy::Main | Strategy::Sharded => device_burn::device(name),
        // burn has this strategy for its GPU backends and its remote devices, and the loop-back makes a
        // remote device of any.
        Strategy::Ddp => device_burn::loopback::device(name),
    }
}

#[cfg(not(feature = "burn-0-23"))]
fn served(address: &str, token_file: Option<&Path>) -> Result<Vec<Device>, Box<dyn Error + Send + Sync>> {
    use burn::remote::RemoteHost;

    let host = RemoteHost::websocket(address).with_credential(token(token_file)?);
    let devices =
        host.devices().map_err(|error| format!("cannot use the devices of `{address}`: {error}"))?;
    Ok(devices.into_iter().collect())
}

#[cfg(feature = "burn-0-23")]
fn registered(name: &str, strategy: Strategy) -> Result<Device, Box<dyn Error + Send + Sync>> {
    match strategy {
        Strategy::Main | Strategy::Sharded => Ok(device_burn::device(name)?),
        Strategy::Ddp => Err(format!("burn 0.23 has no `ddp` for `{name}`: use `main` or `sharded`").into()),
    }
}

#[cfg(feature = "burn-0-23")]
fn served(address: &str, _: Option<&Path>) -> Result<Vec<Device>, Box<dyn Error + Send + Sync>> {
    Err(format!("cannot use `{address}`: a burn-serve has the protocol of burn 0.22, and this is 0.23")
        .into())
}
