//! First weights that are the same on every device.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Tensor, TensorData};

use crate::numbers::Numbers;

/// The module with other parameters: burn draws them on the device, and each device has its own random
/// numbers.
pub(crate) fn with_weights<M: Module>(module: M, seed: u64) -> M {
    module.map(&mut Weights { numbers: Numbers::new(seed), path: Vec::new() })
}

struct Weights {
    numbers: Numbers,
    path: Vec<String>,
}

impl ModuleMapper for Weights {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let dims = param.lazy_shape().dims::<D>();
        let len = dims.iter().product();
        let values = match self.path.last().map(String::as_str) {
            // The state of a batch norm, which is no parameter and begins as burn says.
            Some("running_mean" | "running_var") => return param,
            Some("gamma") => vec![1.0; len],
            _ => self.numbers.many(len, limit(&dims)),
        };
        let tensor = Tensor::from_data(TensorData::new(values, dims), &param.lazy_device());
        Param::initialized(param.id, tensor.require_grad())
    }
}

/// One over the root of how many numbers make an output.
fn limit(dims: &[usize]) -> f32 {
    let inputs = match dims {
        [_] => return 0.05,
        // burn's linear layers have the inputs first, its convolutions last.
        [inputs, _] => *inputs,
        [_, inputs @ ..] => inputs.iter().product(),
        [] => 1,
    };
    1.0 / (inputs as f32).sqrt()
}
