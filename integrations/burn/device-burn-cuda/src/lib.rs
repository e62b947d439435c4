#![doc = include_str!("../README.md")]

mod engine;

use device_burn::engines::{ENGINES, Engine, EngineDescriptor};
use device_registry::backend::LoadFailure;

device_burn::engines::entry_points! {
    /// burn's engine for the backend `cuda`, for programs that register it by hand.
    #[distributed_slice(ENGINES)]
    pub static CUDA: EngineDescriptor = EngineDescriptor::new("cuda", load);
}

fn load() -> Result<Box<dyn Engine>, LoadFailure> {
    Ok(Box::new(engine::Cuda))
}
