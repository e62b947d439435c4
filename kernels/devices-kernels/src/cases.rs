//! The calls that are measured.

use device_kernels::{
    Binary, Compare, Conv2d, DType, Dims, Distribution, Expression, Extremum, Operator, Pool2d, Reduction,
    Sorted, Unary, Update, operators,
};

/// An array: its type and shape.
pub(crate) type Array = (DType, Vec<usize>);

/// A call without its buffers.
pub(crate) struct Case {
    pub(crate) operator: Operator,
    pub(crate) inputs: Vec<Array>,
    pub(crate) outputs: Vec<Array>,
    /// Additions and multiplications, or 0 where bytes limit the call.
    pub(crate) operations: u64,
}

impl Case {
    fn new<const I: usize>(
        operator: impl Into<Operator>,
        inputs: [&[usize]; I],
        output: &[usize],
        operations: usize,
    ) -> Self {
        Self {
            operator: operator.into(),
            inputs: inputs.map(|shape| (DType::F32, shape.to_vec())).into(),
            outputs: vec![(DType::F32, output.to_vec())],
            operations: operations as u64,
        }
    }

    /// With other types of the inputs, from the first on, and of the output.
    fn with_types(mut self, inputs: &[DType], output: DType) -> Self {
        for (input, dtype) in self.inputs.iter_mut().zip(inputs) {
            input.0 = *dtype;
        }
        self.outputs[0].0 = output;
        self
    }

    /// The bytes of all arrays.
    pub(crate) fn bytes(&self) -> usize {
        let arrays = self.inputs.iter().chain(&self.outputs);
        arrays.map(|(dtype, shape)| dtype.size() * shape.iter().product::<usize>()).sum()
    }
}

/// The operator with the types and shapes of its arrays: `add f32[1024] f32[1024]`. The result is there too
/// if it has another shape than the first input.
impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.operator {
            Operator::Expression(expression) => f.write_str(expression.name())?,
            operator => f.write_str(operator.name())?,
        }
        for (dtype, shape) in &self.inputs {
            write!(f, " {dtype}{shape:?}")?;
        }
        let (dtype, shape) = &self.outputs[0];
        match self.inputs.first() {
            Some((_, first)) if first == shape => Ok(()),
            _ => write!(f, " -> {dtype}{shape:?}"),
        }
    }
}

/// All calls: each operator once at least.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for len in [1 << 10, 1 << 16, 1 << 22] {
        let one = &[len][..];
        cases.push(Case::new(Binary::Add, [one, one], one, 0));
        cases.push(Case::new(Unary::Relu, [one], one, 0));
        cases.push(Case::new(reduce(Reduction::Sum, 0), [one], &[1], 0));
    }
    for size in [64, 256, 1024] {
        let square = &[size, size][..];
        cases.push(Case::new(Operator::MatMul, [square, square], square, 2 * size * size * size));
    }
    cases.extend(elementwise());
    cases.extend(rows());
    cases.extend(expressions());
    cases.extend(indexed());
    cases.extend(random());
    cases.extend(images());
    cases.extend(custom());
    cases
}

fn reduce(reduction: Reduction, dim: usize) -> Operator {
    Operator::Reduce { reduction, dims: Dims::from([dim]) }
}

/// A million elements.
const ALL: &[usize] = &[1024, 1024];

/// The operators that compute each element by itself.
fn elementwise() -> Vec<Case> {
    let unary = Unary::ALL.iter().map(|unary| {
        let case = Case::new(*unary, [ALL], ALL, 0);
        match unary {
            Unary::Not => case.with_types(&[DType::Bool], DType::Bool),
            Unary::IsNan | Unary::IsInf => case.with_types(&[], DType::Bool),
            _ => case,
        }
    });
    let binary = Binary::ALL.iter().map(|binary| {
        let case = Case::new(*binary, [ALL, ALL], ALL, 0);
        match binary {
            Binary::And | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr => {
                case.with_types(&[DType::I32; 2], DType::I32)
            }
            _ => case,
        }
    });
    let compare = Compare::ALL.iter();
    let compare = compare.map(|compare| Case::new(*compare, [ALL, ALL], ALL, 0).with_types(&[], DType::Bool));
    let others = [
        Case::new(Binary::Mul, [ALL, &[1, 1024]], ALL, 0),
        Case::new(Operator::Where, [ALL, ALL, ALL], ALL, 0).with_types(&[DType::Bool], DType::F32),
        Case::new(Operator::Clamp, [ALL, &[1, 1], &[1, 1]], ALL, 0),
        Case::new(Operator::Copy, [ALL], ALL, 0).with_types(&[DType::F16], DType::F32),
    ];
    unary.chain(binary).chain(compare).chain(others).collect()
}

/// The operators that compute of each row or column.
fn rows() -> Vec<Case> {
    let dim = 1;
    let rows = &[1024, 1][..];
    let columns = &[1, 1024][..];
    let mut cases = Vec::new();
    for reduction in Reduction::ALL {
        let of = |dim, out| {
            let case = Case::new(reduce(*reduction, dim), [ALL], out, 0);
            match reduction {
                Reduction::Any | Reduction::All => case.with_types(&[DType::Bool], DType::Bool),
                _ => case,
            }
        };
        cases.extend([of(0, columns), of(1, rows)]);
    }
    for extremum in Extremum::ALL {
        let operator = Operator::ArgReduce { extremum: *extremum, dim };
        cases.push(Case::new(operator, [ALL], rows, 0).with_types(&[], DType::I64));
    }
    for sorted in Sorted::ALL {
        let mut case = Case::new(Operator::Sort { dim, descending: false, sorted: *sorted }, [ALL], ALL, 0);
        match sorted {
            Sorted::Values => {}
            Sorted::Indices => case.outputs[0].0 = DType::I64,
            _ => case.outputs.push((DType::I64, ALL.to_vec())),
        }
        cases.push(case);
    }
    cases.push(Case::new(Operator::Softmax { dim }, [ALL], ALL, 0));
    cases.push(Case::new(Operator::LogSoftmax { dim }, [ALL], ALL, 0));
    cases
}

/// Several operators as one: element-wise ones, and ones of a row.
fn expressions() -> Vec<Case> {
    let gelu = Expression::build(|e| {
        let x = e.input(DType::F32);
        let residual = e.input(DType::F32);
        let inner = (x * x * x * 0.044715 + x) * 0.797_884_560_8;
        e.output(((inner.tanh() + 1.0) * x * 0.5 + residual) * 1.25 - 0.5);
    });
    let norm = Expression::build(|e| {
        let x = e.input(DType::F32);
        let scale = e.input(DType::F32);
        let centred = x - x.mean([1]);
        let variance = (centred * centred).mean([1]);
        e.output(centred / (variance + 1e-5).sqrt() * scale);
    });
    let gelu = gelu.map(|gelu| Case::new(gelu, [ALL, ALL], ALL, 0));
    let norm = norm.map(|norm| Case::new(norm, [ALL, &[1, 1024]], ALL, 0));
    [gelu, norm].into_iter().flatten().collect()
}

/// The operators with indices. All of them are 0.
fn indexed() -> Vec<Case> {
    let dim = 0;
    let update = Update::Add;
    let some = &[1024][..];
    let of = |case: Case| case.with_types(&[DType::F32, DType::I64], DType::F32);
    // The output is updated, and is no input.
    let into = |case: Case| case.with_types(&[DType::I64], DType::F32);
    vec![
        of(Case::new(Operator::Gather { dim }, [ALL, ALL], ALL, 0)),
        of(Case::new(Operator::IndexSelect { dim }, [ALL, some], ALL, 0)),
        into(Case::new(Operator::Scatter { dim, update }, [ALL, ALL], ALL, 0)),
        into(Case::new(Operator::IndexAssign { dim, update }, [some, ALL], ALL, 0)),
    ]
}

/// Random numbers.
fn random() -> impl Iterator<Item = Case> {
    let distributions = [
        (Distribution::Uniform { low: 0.0, high: 1.0 }, DType::F32),
        (Distribution::Normal { mean: 0.0, deviation: 1.0 }, DType::F32),
        (Distribution::Bernoulli { probability: 0.5 }, DType::F32),
        (Distribution::Integers { low: 0, high: 100 }, DType::I32),
    ];
    distributions.into_iter().map(|(distribution, dtype)| {
        let operator = Operator::Random { distribution, seed: 1, offset: 0 };
        Case::new(operator, [], ALL, 0).with_types(&[], dtype)
    })
}

/// Convolutions and pooling.
fn images() -> Vec<Case> {
    let images = &[8, 16, 64, 64][..];
    let weights = &[32, 16, 3, 3][..];
    let features = &[8, 32, 64, 64][..];
    let pooled = &[8, 32, 32, 32][..];
    let mean = &[8, 32, 1, 1][..];
    let conv = Conv2d { padding: [1, 1], ..Conv2d::default() };
    let products = 2 * features.iter().product::<usize>() * 16 * 3 * 3;
    let pool = Pool2d::new([2, 2]);
    let count_padding = true;
    vec![
        Case::new(Operator::Conv2d(conv), [images, weights], features, products),
        Case::new(Operator::Conv2dInputGrad(conv), [features, weights], images, products),
        Case::new(Operator::Conv2dWeightGrad(conv), [images, features], weights, products),
        Case::new(Operator::MaxPool2d(pool), [features], pooled, 0),
        Case::new(Operator::MaxPool2dGrad(pool), [pooled, pooled], features, 0)
            .with_types(&[DType::F32, DType::I64], DType::F32),
        Case::new(Operator::AvgPool2d { pool, count_padding }, [features], pooled, 0),
        Case::new(Operator::AvgPool2dGrad { pool, count_padding }, [pooled], features, 0),
        Case::new(Operator::AdaptiveAvgPool2d, [features], mean, 0),
        Case::new(Operator::AdaptiveAvgPool2dGrad, [mean], features, 0),
    ]
}

/// The examples of operators that other crates declare. One that does not load has no cases.
fn custom() -> impl Iterator<Item = Case> {
    let loaded = operators().load_all().into_iter();
    let named = loaded.filter_map(|(entry, loaded)| Some((entry.name(), loaded.ok()?)));
    named.flat_map(|(name, definition)| {
        let operator = device_kernels::operator(name).ok();
        definition.examples().into_iter().filter_map(move |example| {
            let inputs = example.inputs().iter().map(|input| (input.dtype, input.shape.clone())).collect();
            let operator = operator?.with_options(example.options().iter().copied()).into();
            Some(Case { operator, inputs, outputs: example.outputs().to_vec(), operations: 0 })
        })
    })
}

#[cfg(test)]
mod tests {
    use device_kernels::{Argument, Call, Layout};

    use super::*;

    #[test]
    fn every_case_is_a_call() {
        let arguments = |arrays: &[Array]| -> Vec<Argument> {
            let layout = |shape: &[usize]| Layout::contiguous(shape).expect("it is small");
            arrays.iter().map(|(dtype, shape)| Argument::Array(*dtype, layout(shape))).collect()
        };
        for case in all() {
            let call = Call::new(case.operator, &arguments(&case.inputs), &arguments(&case.outputs));
            assert!(call.is_ok(), "{case}: {call:?}");
        }
    }

    #[test]
    fn each_case_has_a_name_of_its_own() {
        let mut names: Vec<_> = all().iter().map(Case::to_string).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count, "{names:#?}");
    }

    #[test]
    fn no_operator_is_forgotten() {
        let cases = all();
        let measured = |name: &str| cases.iter().any(|case| case.operator.name() == name);
        let forgotten: Vec<_> = Operator::names().filter(|name| !measured(name)).collect();
        assert_eq!(forgotten, [""; 0]);
    }
}
