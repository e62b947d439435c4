//! Expressions that no set has as a whole, and plans with other values.

use std::cell::Cell;

use device_kernels::{
    Argument, ArgumentRef, Call, Coverage, DType, Expression, KERNEL_SETS, KernelSet, KernelSetDescriptor,
    Layout, PartPlace, Planned, Scalar,
};
use device_registry::Device;
use device_registry::backend::{BackendError, Launch, LoadFailure};

device_kernels::entry_points! {
    /// All operators but expressions.
    #[distributed_slice(KERNEL_SETS)]
    pub static SINGLE_OPERATORS: KernelSetDescriptor = KernelSetDescriptor::new("cpu", load);
}

fn load() -> Result<Box<dyn KernelSet>, LoadFailure> {
    Ok(Box::new(SingleOperators))
}

struct SingleOperators;

impl KernelSet for SingleOperators {
    fn coverage(&self, _device: Device) -> Vec<Coverage> {
        Coverage::of_all().into_iter().filter(|coverage| coverage.operator() != "expression").collect()
    }

    fn launch(&self, _call: &Call, _launch: &Launch<'_>) -> Result<(), BackendError> {
        LAUNCHES.set(LAUNCHES.get() + 1);
        Ok(())
    }
}

thread_local! {
    /// Of this thread, which does short work at once.
    static LAUNCHES: Cell<usize> = const { Cell::new(0) };
}

/// `2 * (x * scale + bias)`, where `scale` and `bias` are scalars.
fn planned(scale: f64, bias: f64) -> Planned {
    let expression = Expression::build(|e| {
        let x = e.input(DType::F32);
        let scale = e.input(DType::F32);
        let bias = e.input(DType::F32);
        e.output((x * scale + bias) * 2.0);
    })
    .unwrap();
    let array = Argument::Array(DType::F32, Layout::contiguous([2, 3]).unwrap());
    let call = Call::new(expression, &[array, scale.into(), bias.into()], &[array]).unwrap();
    Planned::new(Device::cpu(), call).unwrap()
}

fn calls(planned: &Planned) -> Vec<String> {
    planned.parts().unwrap().parts().iter().map(|part| part.planned().call().to_string()).collect()
}

#[test]
fn the_parts_of_an_expression_and_their_memory_are_there_for_frameworks() {
    let planned = planned(3.0, 4.0);
    assert!(planned.is_in_parts());
    let parts = planned.parts().unwrap();
    assert_eq!(
        calls(&planned),
        [
            "mul(f32 [2, 3], 3.0) -> f32 [2, 3]",
            "add(f32 [2, 3], 4.0) -> f32 [2, 3]",
            "mul(f32 [2, 3], 2.0) -> f32 [2, 3]"
        ]
    );
    let places: Vec<&[PartPlace]> = parts.parts().iter().map(|part| part.places()).collect();
    let [first, second] = [0, 1].map(PartPlace::Temporary);
    assert_eq!(places, [[PartPlace::Array(0), first], [first, second], [second, PartPlace::Array(1)]]);
    assert_eq!(parts.temporaries(), [24, 24]);
}

#[test]
fn a_plan_is_used_again_with_other_values_also_in_its_parts() {
    let again = planned(3.0, 4.0).with_scalars(&[Scalar::Float(-1.0), Scalar::Float(0.5)]);
    let fresh = planned(-1.0, 0.5);
    assert_eq!(again.call(), fresh.call());
    assert_eq!(calls(&again), calls(&fresh));
    let scalars = again.call().inputs()[1..].iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(scalars, ["-1.0", "0.5"]);
    let first_alone = planned(3.0, 4.0).with_scalars(&[Scalar::Float(-1.0)]);
    assert_eq!(first_alone.call(), planned(-1.0, 4.0).call());
}

fn array(shape: &[usize]) -> Argument {
    Argument::Array(DType::F32, Layout::contiguous(shape).unwrap())
}

fn parts_of(expression: Expression, inputs: &[Argument], outputs: &[Argument]) -> Planned {
    Planned::new(Device::cpu(), Call::new(expression, inputs, outputs).unwrap()).unwrap()
}

#[test]
fn no_part_is_in_parts_itself() {
    let softmax =
        "input f32, reduce_max 0 1, sub 0 1, exp 2, reduce_sum 3 1, div 3 4, output 5".parse().unwrap();
    let planned = parts_of(softmax, &[array(&[4, 8])], &[array(&[4, 8])]);
    let parts = planned.parts().unwrap().parts();
    assert!(parts.len() > 4 && parts.iter().all(|part| !part.planned().is_in_parts()));
}

#[test]
fn temporary_memory_is_used_again() {
    let mut text = "input f32".to_owned();
    (0..60).for_each(|node| text += &format!(", exp {node}"));
    let chain = (text + ", output 60").parse().unwrap();
    let planned = parts_of(chain, &[array(&[256])], &[array(&[256])]);
    assert_eq!(planned.parts().unwrap().temporaries(), [1024, 1024]);
}

#[test]
fn more_values_than_an_expression_has_inputs_and_outputs_are_parts_too() {
    // Behind the reduction there are 17 inputs; and before, nine results that are reduced.
    let many_inputs = Expression::build(|e| {
        let inputs: Vec<_> = (0..16).map(|_| e.input(DType::F32)).collect();
        let sum = inputs[0].sum([0]);
        e.output(inputs.iter().fold(sum, |total, input| total + *input));
    });
    parts_of(many_inputs.unwrap(), &[array(&[4, 8]); 16], &[array(&[4, 8])]);
    let many_sums = Expression::build(|e| {
        let x = e.input(DType::F32);
        let sums: Vec<_> = (1..10).map(|factor| (x * f64::from(factor)).sum([0])).collect();
        e.output(sums.iter().fold(sums[0], |total, sum| total + *sum));
    });
    let planned = parts_of(many_sums.unwrap(), &[array(&[4, 8])], &[array(&[1, 8])]);
    assert!(planned.parts().unwrap().parts().iter().all(|part| !part.planned().is_in_parts()));
}

#[test]
fn a_call_with_the_most_arrays_is_planned_once() {
    let inputs = vec![array(&[2; 8]); 16];
    let sum = Expression::build(|e| {
        let inputs: Vec<_> = (0..16).map(|_| e.input(DType::F32)).collect();
        (0..8).for_each(|output| e.output(inputs[output] + inputs[output + 8]));
    });
    let arguments: Vec<ArgumentRef<'_>> = inputs.iter().map(ArgumentRef::from).collect();
    let planned = |scalars| {
        let planned = Planned::of(Device::cpu(), scalars, &arguments, &arguments[..8]).unwrap();
        std::ptr::from_ref(planned.parts().unwrap())
    };
    let sum = sum.unwrap();
    assert_eq!(planned(sum), planned(sum));
}

/// An output that a part may write before another reads an input is copied there at the end.
#[test]
fn an_output_is_copied_only_where_it_has_bytes_of_an_input() {
    let planned = planned(2.0, 1.0);
    let parts = planned.parts().unwrap().parts().len();
    let stream = Device::cpu().create_stream().unwrap();
    let memory = Device::cpu().allocate(48).unwrap();
    let launches = |input, output| {
        let before = LAUNCHES.get();
        planned.enqueue(&stream, &[input, output]).unwrap();
        LAUNCHES.get() - before
    };
    let [first, second] = [memory.slice(..24).unwrap(), memory.slice(24..).unwrap()];
    assert_eq!(launches(&first, &second), parts);
    assert_eq!(launches(&first, &first), parts + 1);
}
