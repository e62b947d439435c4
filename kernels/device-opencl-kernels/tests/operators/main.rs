//! Each operator on `opencl:0`, against a plain computation in `f64`.

device_registry::autoload!();

/// The forms for a processor or a GPU, as the device is.
const GROUPS: Option<bool> = None;

// Tests whose names begin with `operators::`, which CI runs beside all others.
#[path = "."]
mod operators {
    mod elementwise;
    mod expressions;
    mod images;
    mod indexing;
    mod matmul;
    mod random;
    mod reduce;
    mod rows;
    mod sort;
    mod support;
}
