//! Links no backend: `program FOLDER DEVICE...` installs those in a folder, and uses each device.

use device_plugin::Plugins;
use device_registry::{DeviceError, device};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().expect("the folder is the first argument");
    let report = Plugins::new().folder(folder).variable("MORE").install().expect("the folder is absolute");
    println!("{report}");
    for name in arguments {
        match write_and_read(&name) {
            Ok((bytes, file)) => println!("{name} has {bytes:?}, by {file}"),
            Err(error) => println!("{name}: {error}"),
        }
    }
}

fn write_and_read(name: &str) -> Result<([u8; 3], String), DeviceError> {
    let device = device(name)?;
    let (buffer, mut bytes) = (device.allocate(3)?, [0; 3]);
    buffer.write(0, &[1, 2, 3])?;
    buffer.read(0, &mut bytes)?;
    let backend = device.backend();
    Ok((bytes, backend.file().map_or("no file".to_owned(), |file| file.display().to_string())))
}
