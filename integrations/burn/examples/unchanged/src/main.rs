//! Programs of burn that name no backend.
fn main() {}
