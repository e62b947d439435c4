//! Random programs of burn's operations on a registered device give what burn's own CPU engine gives.

use burn::tensor::TensorData;

use crate::programs::{Tolerance, each_operation, random_programs, same};

#[path = "common/programs.rs"]
mod programs;

device_registry::autoload!();

#[test]
fn random_programs_agree_on_cpu() {
    random_programs("cpu", Tolerance::None);
}

/// Its kernels do four of the operations, also where burn's engine panics: at a sum with a flipped tensor
/// that has no elements.
#[test]
fn random_programs_agree_on_openreg() {
    random_programs("openreg:1", Tolerance::Of(0.0));
}

/// It has no line about burn anywhere.
#[test]
fn random_programs_agree_on_a_custom_backend() {
    random_programs("mycpu", Tolerance::None);
}

#[test]
fn each_operation_agrees_alone() {
    each_operation("openreg:0", Tolerance::None);
}

#[test]
fn the_comparison_sees_a_difference() {
    let (a, b) = (TensorData::from([1.0f32]), TensorData::from([2.0f32]));
    let near = TensorData::from([1.00001f32]);
    assert!(same(&[Ok(a.clone())], &[Ok(b.clone())], Tolerance::None).is_err());
    assert!(same(&[Ok(a.clone())], &[Ok(b)], Tolerance::Of(1e-4)).is_err());
    assert!(same(&[Ok(a.clone())], &[Ok(near.clone())], Tolerance::None).is_err());
    assert!(same(&[Ok(a.clone())], &[Ok(near)], Tolerance::Of(1e-4)).is_ok());
    assert!(same(&[Ok(a.clone())], &[Err(String::new())], Tolerance::None).is_err());
    assert!(same(&[Ok(a.clone())], &[Ok(a)], Tolerance::None).is_ok());
}
