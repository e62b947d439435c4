//! `--list`: the backends that are linked, and with `--probe` their devices.

use std::io::{self, Write, stdout};

use device_registry::{backends, devices};

/// Prints the report on all backends. With `probe`, loads each of them and adds its devices.
pub(crate) fn print(probe: bool) -> io::Result<()> {
    // Not `println!`, which panics when the reader of a pipe has left.
    let mut out = stdout();
    if !probe {
        return writeln!(out, "{}", backends().report());
    }
    let found: Vec<_> = devices().collect();
    // Afterwards, so that it shows what became of each.
    writeln!(out, "{}", backends().report())?;
    for (backend, devices) in found {
        match devices {
            Ok(devices) if devices.is_empty() => writeln!(out, "\n{}: no devices", backend.name())?,
            Ok(devices) => {
                writeln!(out, "\n{}:", backend.name())?;
                for device in devices {
                    // Opens none.
                    match device.properties() {
                        Ok(properties) => writeln!(out, "  {device:<12}  {properties}")?,
                        Err(error) => writeln!(out, "  {device:<12}  {error}")?,
                    }
                }
            }
            Err(error) => writeln!(out, "\n{}: {error}", backend.name())?,
        }
    }
    Ok(())
}
