//! `--list`: the backends that are linked, and with `--probe` their devices.

use std::io::{self, Write, stdout};

use device_registry::{backends, device_list};

/// Prints the report on all backends. With `probe`, loads each of them and adds its devices.
pub(crate) fn print(probe: bool) -> io::Result<()> {
    // Not `println!`, which panics when the reader of a pipe has left.
    match probe {
        false => writeln!(stdout(), "{}", backends().report()),
        true => writeln!(stdout(), "{}", device_list()),
    }
}
