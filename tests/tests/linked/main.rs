//! Every linked backend, as a user meets it: device strings, switches, printed tensors, drivers that are
//! there and drivers that are not.

device_registry::autoload!();

mod device_strings;
mod environment;
mod hardware;
mod printing;
mod stress;
