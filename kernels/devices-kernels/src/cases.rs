//! The calls that are measured.

use device_kernels::{
    Binary, Compare, Conv2d, DType, Dims, Distribution, Extremum, Operator, Pool2d, Reduction, Sorted, Unary,
    Update, operators,
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

/// The operator with the types and shapes of its arrays: `add f32[1024] f32[1024]`.
impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.operator)?;
        for (dtype, shape) in &self.inputs {
            write!(f, " {dtype}{shape:?}")?;
        }
        if self.inputs.is_empty() {
            write!(f, " {}{:?}", self.outputs[0].0, self.outputs[0].1)?;
        }
        Ok(())
    }
}

/// All calls: each operator once at least.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for len in [1 << 10, 1 << 16, 1 << 22] {
        let one = &[len][..];
        cases.push(Case::new(Binary::Add, [one, one], one, 0));
        cases.push(Case::new(Unary::Relu, [one], one, 0));
        cases.push(Case::new(Unary::Exp, [one], one, 0));
        cases.push(Case::new(sum([0]), [one], &[1], 0));
    }
    for size in [64, 256, 1024] {
        let square = &[size, size][..];
        cases.push(Case::new(Operator::MatMul, [square, square], square, 2 * size * size * size));
    }
    cases.extend(of_networks());
    cases.extend(custom());
    cases
}

fn sum(dims: impl Into<Dims>) -> Operator {
    Operator::Reduce { reduction: Reduction::Sum, dims: dims.into() }
}

/// The other operators, on arrays as networks have them.
fn of_networks() -> Vec<Case> {
    let (rows, columns) = (1024, 1024);
    let (all, reduced) = (&[rows, columns][..], &[rows, 1][..]);
    let dim = 1;
    let mut cases = vec![
        Case::new(Unary::Gelu, [all], all, 0),
        Case::new(Binary::Mul, [all, &[1, columns]], all, 0),
        Case::new(Compare::Lt, [all, all], all, 0).with_types(&[], DType::Bool),
        Case::new(Operator::Where, [all, all, all], all, 0).with_types(&[DType::Bool], DType::F32),
        Case::new(Operator::Clamp, [all, &[1, 1], &[1, 1]], all, 0),
        Case::new(Operator::Copy, [all], all, 0).with_types(&[DType::F16], DType::F32),
        Case::new(sum([0]), [all], &[1, columns], 0),
        Case::new(sum([1]), [all], reduced, 0),
        Case::new(Operator::ArgReduce { extremum: Extremum::Max, dim }, [all], reduced, 0)
            .with_types(&[], DType::I64),
        Case::new(Operator::Sort { dim, descending: false, sorted: Sorted::Values }, [all], all, 0),
        Case::new(Operator::Softmax { dim }, [all], all, 0),
        Case::new(Operator::LogSoftmax { dim }, [all], all, 0),
    ];
    let indices = |case: Case| case.with_types(&[DType::F32, DType::I64], DType::F32);
    let (dim, update) = (0, Update::Add);
    cases.extend([
        indices(Case::new(Operator::Gather { dim }, [all, all], all, 0)),
        indices(Case::new(Operator::Scatter { dim, update }, [all, all, all], all, 0)),
        indices(Case::new(Operator::IndexSelect { dim }, [all, &[rows]], all, 0)),
        indices(Case::new(Operator::IndexAssign { dim, update }, [all, &[rows], all], all, 0)),
    ]);
    let distribution = Distribution::Uniform { low: 0.0, high: 1.0 };
    cases.push(Case::new(Operator::Random { distribution, seed: 1, offset: 0 }, [], all, 0));
    cases.extend(of_images());
    cases
}

/// Convolutions and pooling.
fn of_images() -> Vec<Case> {
    let (images, weights) = (&[8, 16, 64, 64][..], &[32, 16, 3, 3][..]);
    let (features, pooled) = (&[8, 32, 64, 64][..], &[8, 32, 32, 32][..]);
    let conv = Conv2d { padding: [1, 1], ..Conv2d::default() };
    let products = 2 * features.iter().product::<usize>() * 16 * 3 * 3;
    let pool = Pool2d::new([2, 2]);
    vec![
        Case::new(Operator::Conv2d(conv), [images, weights], features, products),
        Case::new(Operator::Conv2dInputGrad(conv), [features, weights], images, products),
        Case::new(Operator::Conv2dWeightGrad(conv), [images, features], weights, products),
        Case::new(Operator::MaxPool2d(pool), [features], pooled, 0),
        Case::new(Operator::AvgPool2d { pool, count_padding: true }, [features], pooled, 0),
        Case::new(Operator::AdaptiveAvgPool2d, [features], &[8, 32, 1, 1], 0),
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
