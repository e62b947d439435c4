//! The command `devices` of a program with its own backend: `mycpu` of `examples/custom-backend`, which
//! the package's Cargo.toml names. Run `cargo run -p devices --example own_backend`.

device_registry::autoload!();

fn main() -> std::process::ExitCode {
    devices::run(std::env::args_os())
}
