//! Expressions, beside the same operators one after the other.

use criterion::{Criterion, criterion_group, criterion_main};
use device_kernels::{Binary, DType, Expression, Operand, Operator, Reduction, Unary, run};
use device_registry::{Buffer, Device, Stream, device};
use device_registry_benches::beside;

device_registry::autoload!();

const ROWS: usize = 4096;
const COLUMNS: usize = 1024;

/// Arrays on a device, which all calls share.
struct Arrays {
    stream: Stream,
    inputs: [Buffer; 2],
    /// The results between single operators.
    between: Buffer,
    of_rows: Buffer,
    out: Buffer,
}

impl Arrays {
    fn new(device: Device) -> Self {
        let numbers = |step: usize| {
            let number = |place: usize| (place * step % 1001) as f32 / 250.0 - 2.0;
            let bytes: Vec<u8> = (0..ROWS * COLUMNS).flat_map(|place| number(place).to_ne_bytes()).collect();
            let buffer = device.allocate(bytes.len()).expect("there is memory");
            buffer.write(0, &bytes).expect("it is all of it");
            buffer
        };
        let empty = |len: usize| device.allocate(4 * len).expect("there is memory");
        Self {
            stream: device.create_stream().expect("it has streams"),
            inputs: [numbers(37), numbers(91)],
            between: empty(ROWS * COLUMNS),
            of_rows: empty(ROWS),
            out: empty(ROWS * COLUMNS),
        }
    }

    /// Enqueues an operator of arrays and scalars.
    fn call(&self, operator: impl Into<Operator>, inputs: &[Operand<'_>], out: Operand<'_>) {
        run(&self.stream, operator, inputs, &[out]).expect("a kernel has it");
    }

    fn wait(&self) {
        self.stream.synchronize().expect("it runs");
    }
}

fn array(buffer: &Buffer) -> Operand<'_> {
    Operand::new(buffer, DType::F32, [ROWS, COLUMNS]).expect("it has the elements")
}

/// One number for each row.
fn rows(buffer: &Buffer) -> Operand<'_> {
    Operand::new(buffer, DType::F32, [ROWS, 1]).expect("it has the elements")
}

/// What is compared: the expression, how many of the inputs it has, and the single operators.
struct Case {
    name: &'static str,
    expression: Expression,
    inputs: usize,
    single: fn(&Arrays),
}

/// Gelu by `tanh`, a residual and a scale: twelve operators.
fn chain() -> Case {
    let expression = Expression::build(|e| {
        let x = e.input(DType::F32);
        let residual = e.input(DType::F32);
        let inner = (x * x * x * 0.044715 + x) * 0.7978845608;
        let gelu = (inner.tanh() + 1.0) * x * 0.5;
        e.output((gelu + residual) * 1.25 - 0.5);
    });
    let single = |arrays: &Arrays| {
        let [x, residual] = arrays.inputs.each_ref().map(array);
        let out = array(&arrays.out);
        arrays.call(Binary::Mul, &[x, x], out);
        arrays.call(Binary::Mul, &[out, x], out);
        arrays.call(Binary::Mul, &[out, 0.044715.into()], out);
        arrays.call(Binary::Add, &[out, x], out);
        arrays.call(Binary::Mul, &[out, 0.7978845608.into()], out);
        arrays.call(Unary::Tanh, &[out], out);
        arrays.call(Binary::Add, &[out, 1.0.into()], out);
        arrays.call(Binary::Mul, &[out, x], out);
        arrays.call(Binary::Mul, &[out, 0.5.into()], out);
        arrays.call(Binary::Add, &[out, residual], out);
        arrays.call(Binary::Mul, &[out, 1.25.into()], out);
        arrays.call(Binary::Sub, &[out, 0.5.into()], out);
    };
    Case { name: "chain of 12", expression: expression.expect("it is valid"), inputs: 2, single }
}

/// Operators that move bytes and compute little.
fn sums() -> Case {
    let expression = Expression::build(|e| {
        let x = e.input(DType::F32);
        let y = e.input(DType::F32);
        e.output((0..5).fold(x, |sum, _| sum + y) * 0.5);
    });
    let single = |arrays: &Arrays| {
        let [x, y] = arrays.inputs.each_ref().map(array);
        let out = array(&arrays.out);
        arrays.call(Binary::Add, &[x, y], out);
        (1..5).for_each(|_| arrays.call(Binary::Add, &[out, y], out));
        arrays.call(Binary::Mul, &[out, 0.5.into()], out);
    };
    Case { name: "5 sums and a product", expression: expression.expect("it is valid"), inputs: 2, single }
}

fn gelu() -> Case {
    let expression = Expression::build(|e| {
        let x = e.input(DType::F32);
        let y = e.input(DType::F32);
        e.output(x.gelu() * y + 1.0);
    });
    let single = |arrays: &Arrays| {
        let [x, y] = arrays.inputs.each_ref().map(array);
        let out = array(&arrays.out);
        arrays.call(Unary::Gelu, &[x], out);
        arrays.call(Binary::Mul, &[out, y], out);
        arrays.call(Binary::Add, &[out, 1.0.into()], out);
    };
    Case {
        name: "gelu, a product and a sum",
        expression: expression.expect("it is valid"),
        inputs: 2,
        single,
    }
}

fn reduce(reduction: Reduction) -> Operator {
    Operator::Reduce { reduction, dims: [1].into() }
}

fn softmax() -> Case {
    let expression = Expression::build(|e| {
        let x = e.input(DType::F32);
        let power = (x - x.max([1])).exp();
        e.output(power / power.sum([1]));
    });
    let single = |arrays: &Arrays| {
        let x = array(&arrays.inputs[0]);
        let (of_rows, out) = (rows(&arrays.of_rows), array(&arrays.out));
        arrays.call(reduce(Reduction::Max), &[x], of_rows);
        arrays.call(Binary::Sub, &[x, of_rows], out);
        arrays.call(Unary::Exp, &[out], out);
        arrays.call(reduce(Reduction::Sum), &[out], of_rows);
        arrays.call(Binary::Div, &[out, of_rows], out);
    };
    Case { name: "softmax", expression: expression.expect("it is valid"), inputs: 1, single }
}

fn layer_norm() -> Case {
    let expression = Expression::build(|e| {
        let x = e.input(DType::F32);
        let centred = x - x.mean([1]);
        let variance = (centred * centred).mean([1]);
        e.output(centred / (variance + 1e-5).sqrt());
    });
    let single = |arrays: &Arrays| {
        let x = array(&arrays.inputs[0]);
        let (of_rows, between, out) = (rows(&arrays.of_rows), array(&arrays.between), array(&arrays.out));
        arrays.call(reduce(Reduction::Mean), &[x], of_rows);
        arrays.call(Binary::Sub, &[x, of_rows], out);
        arrays.call(Binary::Mul, &[out, out], between);
        arrays.call(reduce(Reduction::Mean), &[between], of_rows);
        arrays.call(Binary::Add, &[of_rows, 1e-5.into()], of_rows);
        arrays.call(Unary::Sqrt, &[of_rows], of_rows);
        arrays.call(Binary::Div, &[out, of_rows], out);
    };
    Case { name: "layer norm", expression: expression.expect("it is valid"), inputs: 1, single }
}

fn expressions(criterion: &mut Criterion) {
    let opencl = device("opencl").inspect_err(|error| eprintln!("OpenCL is left out: {error}")).ok();
    let always = ["cpu", "openreg"].map(|name| device(name).expect("it is linked"));
    for device in always.into_iter().chain(opencl) {
        let arrays = Arrays::new(device);
        let mut group = criterion.benchmark_group(format!("expressions/{device}"));
        group.sample_size(20);
        for Case { name, expression, inputs, single } in [chain(), sums(), gelu(), softmax(), layer_norm()] {
            let inputs: Vec<_> = arrays.inputs[..inputs].iter().map(array).collect();
            let fused = || {
                arrays.call(expression, &inputs, array(&arrays.out));
                arrays.wait();
            };
            let one_by_one = || {
                single(&arrays);
                arrays.wait();
            };
            beside(&mut group, format!("{name}, beside single operators"), fused, one_by_one);
        }
        let x = array(&arrays.inputs[0]);
        let of_sets = || {
            arrays.call(Operator::Softmax { dim: 1 }, &[x], array(&arrays.out));
            arrays.wait();
        };
        let case = softmax();
        let fused = || {
            arrays.call(case.expression, &[x], array(&arrays.out));
            arrays.wait();
        };
        beside(&mut group, "softmax, beside the operator of this name", fused, of_sets);
    }
}

criterion_group! {
    name = benches;
    config = device_registry_benches::criterion();
    targets = expressions
}
criterion_main!(benches);
