//! The tests of the operators again, with the kernels for devices whose groups run side by side.

#[path = "../operators/elementwise.rs"]
mod elementwise;
#[path = "../operators/expressions.rs"]
mod expressions;
#[path = "../operators/images.rs"]
mod images;
#[path = "../operators/indexing.rs"]
mod indexing;
#[path = "../operators/matmul.rs"]
mod matmul;
#[path = "../operators/random.rs"]
mod random;
#[path = "../operators/reduce.rs"]
mod reduce;
#[path = "../operators/rows.rs"]
mod rows;
#[path = "../operators/sort.rs"]
mod sort;
#[path = "../operators/support.rs"]
mod support;

device_registry::autoload!();

/// Generates the programs for a GPU, on any device.
const GROUPS: Option<bool> = Some(true);
