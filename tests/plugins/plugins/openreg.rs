//! The backend `openreg` in a file.

device_plugin::export!(device_openreg::OPENREG);
