//! The backend `mycpu` in a shared library.

device_plugin::export!(device_mycpu::MYCPU);
