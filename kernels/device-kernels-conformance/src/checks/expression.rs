//! The group `expressions`: many operators in one call.

use device_kernels::{
    Argument, Binary, Call, Compare, DType, Dims, Expression, ExpressionBuilder, ExpressionValue, Layout,
    Operator, Reduction, Scalar, Unary,
};

use super::{FLOATS, NUMBERS, drawn, elementwise, for_each, reduce};
use crate::case::{Case, Kind, Operand, View};
use crate::check::{Check, Drawn};
use crate::draw::{Draw, TAILS};
use crate::reference::reduce::reduced;
use crate::values::Domain;

/// What random expressions are made of.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Family {
    /// Operators whose results are rounded to the nearest number, or are not rounded.
    Exact,
    /// These and functions with an error.
    Functions,
    /// Exact ones and conversions.
    Casts,
}

/// How a random call of an expression is drawn.
#[derive(Clone, Copy, Debug)]
struct Recipe {
    family: Family,
    /// The type of the first input.
    dtype: DType,
    /// Whether there are reductions.
    reduces: bool,
    keeps_precision: bool,
    kind: Kind,
    /// How many inputs there are at most, and how many outputs.
    most: [usize; 2],
}

impl Recipe {
    fn new(family: Family, dtype: DType) -> Self {
        Self { family, dtype, reduces: false, keeps_precision: false, kind: Kind::Any, most: [3, 3] }
    }
}

pub(super) fn checks() -> Vec<Check> {
    let random = |recipe: Recipe| drawn(move |case, draw| random(case, draw, recipe));
    let of = |family: Family, dtypes: &[DType]| -> Vec<Drawn> {
        dtypes.iter().map(|&dtype| random(Recipe::new(family, dtype))).collect()
    };
    let mut checks = vec![
        Check::random(
            "expressions::elementwise",
            "operators without an error give, in one call, each bit that they give one after the other",
            of(Family::Exact, &DType::ALL),
        ),
        Check::random(
            "expressions::functions",
            "functions of the results of functions have the errors that their own allow",
            of(Family::Functions, &FLOATS),
        ),
        Check::random(
            "expressions::casts",
            "conversions between other operators are as `copy` converts",
            of(Family::Casts, &DType::ALL),
        ),
        Check::random(
            "expressions::special_numbers",
            "expressions compute with numbers of all magnitudes, NaN and infinities as single operators do",
            for_each(&NUMBERS, |dtype, case, draw| {
                draw_call(case, draw, Recipe::new(Family::Exact, dtype), Domain::All);
            }),
        ),
        Check::random(
            "expressions::keep_precision",
            "an expression that keeps precision differs by no more than the rounding of its operators",
            for_each(&FLOATS, |dtype, case, draw| {
                let reduces = draw.one_in(2);
                let recipe = Recipe { reduces, keeps_precision: true, ..Recipe::new(Family::Exact, dtype) };
                self::random(case, draw, recipe);
            }),
        ),
        Check::random(
            "expressions::reductions",
            "reductions of any dimensions use earlier results, and later operators use the results of reductions",
            reductions(),
        ),
    ];
    let mut fixed = |name: &str, proves: &str, cases: fn() -> Vec<Case>| {
        checks.push(Check::fixed(format!("expressions::{name}"), proves, cases));
    };
    fixed("rounding", "each result is rounded to its type, also between a product and a sum", rounding);
    fixed(
        "literals",
        "literals and scalars are converted to their types, and a literal is its own expression's",
        literals,
    );
    fixed("many_nodes", "an expression has up to 128 nodes, in a chain and side by side", many_nodes);
    fixed("long", "rows of every length are complete, both few long ones and many short ones", long);
    fixed(
        "repeated_elements",
        "elements that are repeated along reduced dimensions count each time",
        repeated_elements,
    );
    checks.push(Check::random(
        "expressions::many_arrays",
        "an expression has up to 16 inputs and 8 outputs",
        for_each(&[DType::F32, DType::F16, DType::I32], |dtype, case, draw| {
            let reduces = draw.one_in(3);
            let recipe = Recipe { reduces, most: [16, 8], ..Recipe::new(Family::Exact, dtype) };
            draw_of_shape(case, draw, recipe, Domain::Integers, 2);
        }),
    ));
    checks.push(Check::random(
        "expressions::layouts",
        "the arrays of an expression may have any strides, and repeat elements by the rules of NumPy",
        layouts(),
    ));
    checks.push(Check::random(
        "expressions::in_place",
        "an output may be the elements of an input that other nodes read as well",
        for_each(&[DType::F32, DType::F16, DType::I32, DType::U8], in_place),
    ));
    checks.push(Check::random(
        "expressions::in_parts",
        "the linked sets do an expression that none has as a whole in parts",
        in_parts(),
    ));
    checks
}

/// An expression, for the checks of other groups.
pub(super) fn probe() -> Drawn {
    drawn(|case, draw| {
        let reduces = draw.one_in(2);
        random(case, draw, Recipe { reduces, ..Recipe::new(Family::Exact, DType::F32) });
    })
}

fn reductions() -> Vec<Drawn> {
    let random = |family: Family| {
        move |dtype: DType, case: &mut Case, draw: &mut Draw<'_>| {
            random(case, draw, Recipe { reduces: true, ..Recipe::new(family, dtype) });
        }
    };
    let mut drawn_cases = for_each(&DType::ALL, random(Family::Exact));
    drawn_cases.extend(for_each(&FLOATS, random(Family::Functions)));
    for form in [softmax, layer_norm, loss] {
        drawn_cases.extend(for_each(&FLOATS, move |dtype, case, draw| {
            let shape = draw.shape_of(1, 4);
            let dims = reduce::dims(draw, shape.len());
            let expression = Expression::build(|e| form(e, dtype, dims)).expect("its types fit");
            call(case, draw, expression, &shape, Kind::Any, Domain::Small);
        }));
    }
    drawn_cases
}

fn softmax(e: &ExpressionBuilder, dtype: DType, dims: Dims) {
    let x = e.input(dtype);
    let powers = (x - x.max(dims)).exp();
    e.output(powers / powers.sum(dims));
}

fn layer_norm(e: &ExpressionBuilder, dtype: DType, dims: Dims) {
    let x = e.input(dtype);
    let scale = e.input(dtype);
    let centered = x - x.mean(dims);
    let deviation = ((centered * centered).mean(dims) + 1.0).sqrt();
    e.output(centered / deviation * scale);
    e.output(deviation);
}

fn loss(e: &ExpressionBuilder, dtype: DType, dims: Dims) {
    let difference = e.input(dtype) - e.input(dtype);
    let squares = difference * difference;
    e.output(squares.mean(dims));
    e.output(squares);
}

fn layouts() -> Vec<Drawn> {
    let mut drawn_cases = Vec::new();
    for (dtype, reduces) in [(DType::F32, false), (DType::F16, true), (DType::I64, true), (DType::U8, false)]
    {
        for kind in [Kind::Offset, Kind::Transposed, Kind::Negative, Kind::Gaps, Kind::Any] {
            let recipe = Recipe { reduces, kind, ..Recipe::new(Family::Exact, dtype) };
            drawn_cases.push(drawn(move |case: &mut Case, draw: &mut Draw<'_>| {
                case.one_memory = kind == Kind::Any;
                draw_of_shape(case, draw, recipe, Domain::Integers, 6);
            }));
        }
    }
    drawn_cases
}

/// Outputs in place of inputs that nodes behind the output read.
fn in_place(dtype: DType, case: &mut Case, draw: &mut Draw<'_>) {
    let reduces = draw.one_in(2);
    let shape = draw.shape_of(1, 3);
    let dims = reduce::dims(draw, shape.len());
    let swaps = draw.one_in(2);
    let expression = Expression::build(|e| {
        let a = e.input(dtype);
        let b = e.input(dtype);
        let first = if reduces { a.max(dims) + b } else { a + b };
        let second = if reduces { first - b.sum(dims) } else { first * b };
        e.output(first);
        e.output(second - a);
        e.output(second + b * 2);
    });
    let expression = expression.expect("its types fit");
    let a = case.array(draw, dtype, &shape, Kind::Any, Domain::Integers);
    let b = case.array(draw, dtype, &shape, Kind::Any, Domain::Integers);
    let third = case.output(draw, dtype, &shape, Kind::Any);
    let outputs = if swaps { [b.clone(), a.clone(), third] } else { [a.clone(), b.clone(), third] };
    case.step(expression, [a.into(), b.into()], outputs);
}

fn in_parts() -> Vec<Drawn> {
    let mut drawn_cases = Vec::new();
    for (family, dtype) in [
        (Family::Exact, DType::F32),
        (Family::Exact, DType::I32),
        (Family::Functions, DType::F32),
        (Family::Casts, DType::F16),
        (Family::Casts, DType::U8),
    ] {
        for reduces in [false, true] {
            let recipe = Recipe { reduces, ..Recipe::new(family, dtype) };
            drawn_cases.push(drawn(move |case: &mut Case, draw: &mut Draw<'_>| {
                case.in_parts = true;
                random(case, draw, recipe);
            }));
        }
    }
    drawn_cases.extend(for_each(&[DType::F32, DType::I32], |dtype, case, draw| {
        case.in_parts = true;
        in_place(dtype, case, draw);
    }));
    drawn_cases
}

fn random(case: &mut Case, draw: &mut Draw<'_>, recipe: Recipe) {
    let domain = draw.one_of(&[Domain::Small, Domain::Integers, Domain::Few]);
    draw_call(case, draw, recipe, domain);
}

fn draw_call(case: &mut Case, draw: &mut Draw<'_>, recipe: Recipe, domain: Domain) {
    case.one_memory |= draw.one_in(5);
    draw_of_shape(case, draw, recipe, domain, 4);
}

/// A call of a random expression, with at most so many dimensions.
fn draw_of_shape(case: &mut Case, draw: &mut Draw<'_>, recipe: Recipe, domain: Domain, rank: usize) {
    let shape = if recipe.reduces { draw.shape_of(1, rank) } else { draw.shape(rank) };
    let dims = recipe.reduces.then(|| reduce::dims(draw, shape.len()));
    let expression = expression(draw, recipe, dims);
    call(case, draw, expression, &shape, recipe.kind, domain);
}

/// A random expression. The last operator is an output.
fn expression(draw: &mut Draw<'_>, recipe: Recipe, dims: Option<Dims>) -> Expression {
    let Recipe { family, dtype, most: [most_inputs, most_outputs], .. } = recipe;
    let many = most_inputs > 3;
    let inputs = if many { most_inputs - draw.below(3) } else { draw.within(1, most_inputs) };
    let outputs = if many { most_outputs - draw.below(3) } else { draw.within(1, most_outputs) };
    let types: Vec<DType> = (0..inputs)
        .map(|place| match family {
            _ if place == 0 || many => dtype,
            Family::Casts => draw.one_of(&DType::ALL),
            _ => draw.one_of(&[dtype, dtype, DType::Bool]),
        })
        .collect();
    let built = Expression::build(|e| {
        if recipe.keeps_precision {
            e.keep_precision();
        }
        let mut values: Vec<ExpressionValue<'_>> = types.iter().map(|&dtype| e.input(dtype)).collect();
        let operators = draw.within(2, 6).max(if many { inputs } else { 0 });
        for number in 0..operators {
            // Each of many inputs is an operand.
            let a = if many && number < inputs { values[number] } else { recent(draw, &values) };
            values.push(match dims {
                Some(dims) if number == 1 || draw.one_in(4) => reduction(draw, a, dims),
                _ => result(draw, e, &values, a, family),
            });
        }
        e.output(values[values.len() - 1]);
        (1..outputs).for_each(|_| e.output(recent(draw, &values)));
    });
    built.expect("its types fit")
}

/// One of the last values, the last of which is the simplest.
fn recent<'e>(draw: &mut Draw<'_>, values: &[ExpressionValue<'e>]) -> ExpressionValue<'e> {
    values[values.len() - 1 - draw.below(values.len().min(8))]
}

fn reduction<'e>(draw: &mut Draw<'_>, a: ExpressionValue<'e>, dims: Dims) -> ExpressionValue<'e> {
    use Reduction::{All, Any, Max, Mean, Min, Prod, Sum};
    let reduction = match a.dtype() {
        DType::Bool => draw.one_of(&[Any, All]),
        dtype if dtype.is_float() => draw.one_of(&[Sum, Max, Mean, Min, Prod]),
        _ => draw.one_of(&[Sum, Max, Min, Prod]),
    };
    a.reduce(reduction, dims)
}

/// The result of a random operator, of `a` and other values.
fn result<'e>(
    draw: &mut Draw<'_>,
    e: &'e ExpressionBuilder,
    values: &[ExpressionValue<'e>],
    a: ExpressionValue<'e>,
    family: Family,
) -> ExpressionValue<'e> {
    let dtype = a.dtype();
    if family == Family::Casts && draw.one_in(2) {
        return a.cast(draw.one_of(&DType::ALL));
    }
    let operator = draw.one_of(&operators(family, dtype));
    let alike: Vec<_> = values.iter().copied().filter(|value| value.dtype() == dtype).collect();
    let number = |draw: &mut Draw<'_>| match dtype {
        DType::Bool => e.literal(dtype, true),
        dtype if dtype.is_float() => e.literal(dtype, draw.one_of(&[1.0, 0.5, -2.0, 3.0, 0.375])),
        _ => e.literal(dtype, draw.one_of(&[1, 2, 3, 5])),
    };
    let other = |draw: &mut Draw<'_>| if draw.one_in(3) { number(draw) } else { recent(draw, &alike) };
    match operator {
        Operator::Unary(_) => e.apply(operator, &[a]),
        // What a division by zero gives is not said.
        Operator::Binary(Binary::Div | Binary::Rem | Binary::Pow) if !dtype.is_float() => {
            e.apply(operator, &[a, number(draw)])
        }
        Operator::Clamp => e.apply(operator, &[a, other(draw), other(draw)]),
        Operator::Where => {
            let bools: Vec<_> = values.iter().copied().filter(|value| value.dtype() == DType::Bool).collect();
            let b = other(draw);
            let condition = if bools.is_empty() { a.compare(Compare::Ne, b) } else { recent(draw, &bools) };
            e.apply(operator, &[condition, a, b])
        }
        _ => e.apply(operator, &[a, other(draw)]),
    }
}

fn operators(family: Family, dtype: DType) -> Vec<Operator> {
    let mut operators: Vec<Operator> = vec![Operator::Where, Compare::Eq.into()];
    if dtype == DType::Bool {
        operators.extend([Binary::And, Binary::Or, Binary::Xor].map(Operator::from));
        operators.push(Unary::Not.into());
        return operators;
    }
    // Twice: their rounding is what most depends on.
    let sums = [Binary::Add, Binary::Mul, Binary::Sub];
    operators.splice(0..0, sums.into_iter().chain(sums).map(Operator::from));
    operators.extend([Binary::Max, Binary::Min].map(Operator::from));
    operators.extend([Compare::Lt, Compare::Ge].map(Operator::from));
    operators.extend([Unary::Neg, Unary::Abs, Unary::Sign].map(Operator::from));
    operators.push(Operator::Clamp);
    if dtype.is_float() {
        let unary = [Unary::Relu, Unary::Floor, Unary::Ceil, Unary::Round, Unary::Trunc, Unary::IsNan];
        operators.extend(unary.map(Operator::from));
        operators.push(Binary::ReluGrad.into());
    } else {
        let binary = [Binary::And, Binary::Or, Binary::Xor, Binary::Shl, Binary::Shr];
        operators.extend(binary.map(Operator::from));
        operators.extend([Binary::Div, Binary::Rem, Binary::Pow].map(Operator::from));
        operators.push(Unary::Not.into());
    }
    if family == Family::Functions {
        let unary = [
            Unary::Exp,
            Unary::Tanh,
            Unary::Sigmoid,
            Unary::Gelu,
            Unary::Erf,
            Unary::Sqrt,
            Unary::Recip,
            Unary::Log,
            Unary::Log1p,
            Unary::LogSigmoid,
            Unary::Sin,
            Unary::Cos,
            Unary::Atan,
            Unary::Asinh,
        ];
        // In place of most sums and products, two of which follow.
        operators.splice(0..6, unary.map(Operator::from));
        operators.extend([Binary::Div, Binary::Div, Binary::Pow, Binary::Atan2].map(Operator::from));
        operators.extend([Binary::Add, Binary::Mul, Binary::SigmoidGrad].map(Operator::from));
    }
    operators
}

/// A call of an expression: with inputs of all kinds and outputs in place, if the kind is any.
fn call(
    case: &mut Case,
    draw: &mut Draw<'_>,
    expression: Expression,
    shape: &[usize],
    kind: Kind,
    domain: Domain,
) {
    let mut inputs: Vec<Operand> = Vec::new();
    // Inputs that an output may be in place of.
    let mut whole: Vec<View> = Vec::new();
    for &dtype in expression.inputs() {
        let way = if kind == Kind::Any { draw.below(9) } else { 0 };
        inputs.push(match (way, expression.dims()) {
            (4, _) => domain.scalar(dtype, draw).into(),
            (5 | 6, _) => elementwise::broadcast(case, draw, dtype, shape, domain).into(),
            (7 | 8, Some(dims)) => case.array(draw, dtype, &reduced(shape, dims), kind, domain).into(),
            _ => {
                let view = case.array(draw, dtype, shape, kind, domain);
                whole.push(view.clone());
                view.into()
            }
        });
    }
    let reduced_outputs = reduced_outputs(expression, &inputs, shape);
    let mut outputs = Vec::new();
    for (&node, is_reduced) in expression.outputs().iter().zip(reduced_outputs) {
        let dtype = expression.nodes()[node].dtype;
        let in_place = whole.iter().position(|view| view.dtype.size() == dtype.size());
        let way = if kind == Kind::Any { draw.below(4) } else { draw.below(2) };
        outputs.push(match (way, in_place, expression.dims()) {
            (1 | 2, _, Some(dims)) if is_reduced => case.output(draw, dtype, &reduced(shape, dims), kind),
            (3, Some(input), _) => View { dtype, ..whole.swap_remove(input) },
            _ => case.output(draw, dtype, shape, kind),
        });
    }
    case.step(expression, inputs, outputs);
}

/// Which outputs may have one element in each reduced dimension.
fn reduced_outputs(expression: Expression, inputs: &[Operand], shape: &[usize]) -> Vec<bool> {
    let inputs: Vec<Argument> = inputs.iter().map(Operand::argument).collect();
    let layout = Layout::contiguous(shape).expect("its elements can be counted");
    let output = |&node: &usize| Argument::Array(expression.nodes()[node].dtype, layout);
    let outputs: Vec<Argument> = expression.outputs().iter().map(output).collect();
    let call = Call::new(expression, &inputs, &outputs).expect("the suite makes valid calls");
    let reduced = expression.reduced_nodes(&call);
    expression.outputs().iter().map(|&node| reduced[node]).collect()
}

/// A call of arrays with given values, all of one shape, and of outputs with the shapes that are said.
fn fixed(
    build: impl FnOnce(&ExpressionBuilder),
    shape: &[usize],
    inputs: &[&[f64]],
    outputs: &[impl AsRef<[usize]>],
) -> Case {
    let mut case = Case::default();
    add_fixed(&mut case, build, shape, inputs, outputs);
    case
}

fn add_fixed(
    case: &mut Case,
    build: impl FnOnce(&ExpressionBuilder),
    shape: &[usize],
    inputs: &[&[f64]],
    outputs: &[impl AsRef<[usize]>],
) {
    let expression = Expression::build(build).expect("its types fit");
    let types = expression.inputs().iter().zip(inputs);
    let inputs: Vec<Operand> =
        types.map(|(&dtype, values)| case.values(dtype, shape, values).into()).collect();
    let output = |(&node, shape): (&usize, _)| {
        let shape: &[usize] = AsRef::as_ref(shape);
        case.output(&mut Draw::new(&[]), expression.nodes()[node].dtype, shape, Kind::Plain)
    };
    let outputs: Vec<View> = expression.outputs().iter().zip(outputs).map(output).collect();
    case.step(expression, inputs, outputs);
}

fn rounding() -> Vec<Case> {
    let mut cases = Vec::new();
    // A sum that is half a unit of its type, which is lost, and a product whose last bits are.
    for (dtype, large, bits) in [
        (DType::F16, 2048.0, 10),
        (DType::BF16, 256.0, 7),
        (DType::F32, 16_777_216.0, 23),
        (DType::F64, 9_007_199_254_740_992.0, 52),
    ] {
        let more = 1.0 + 2_f64.powi(-(bits + 1) / 2 - 1);
        let rounded = crate::element::round(dtype, more * more);
        let values: [&[f64]; 3] = [&[large, 1.0, 3.0], &[1.0, 0.5, 5.0], &[-large, -1.0, -2.0]];
        cases.push(fixed(
            |e| e.output(e.input(dtype) + e.input(dtype) + e.input(dtype)),
            &[3],
            &values,
            &[&[3]],
        ));
        let values: [&[f64]; 3] = [&[more, -more, 3.0], &[more, more, 7.0], &[-rounded, rounded, -21.0]];
        cases.push(fixed(
            |e| e.output(e.input(dtype) * e.input(dtype) + e.input(dtype)),
            &[3],
            &values,
            &[&[3]],
        ));
        cases.push(fixed(
            |e| e.output(-(e.input(dtype) * e.input(dtype)) - e.input(dtype)),
            &[3],
            &values,
            &[&[3]],
        ));
        // A sum of ones, which are one more than the type can count.
        let count = if matches!(dtype, DType::F16 | DType::BF16) { large as usize + 1 } else { 9 };
        let counted = |e: &ExpressionBuilder| {
            let x = e.input(dtype);
            e.output(x.sum([1]) - large + x);
        };
        cases.push(fixed(counted, &[2, count], &[&[1.0]], &[&[2, count]]));
    }
    for dtype in [DType::F16, DType::BF16] {
        let there_and_back = |e: &ExpressionBuilder| {
            let x = e.input(DType::F32);
            e.output(x - x.cast(dtype).cast(DType::F32));
        };
        cases.push(fixed(there_and_back, &[4], &[&[0.1, 1.001, 300.7, -2.0]], &[&[4]]));
    }
    // Integers wrap where they would not if they had more bits.
    for (dtype, values) in [(DType::U8, [200.0, 100.0]), (DType::I32, [2e9, 1e9]), (DType::U32, [4e9, 3e9])] {
        let half = |e: &ExpressionBuilder| e.output((e.input(dtype) + e.input(dtype)) / 2);
        cases.push(fixed(half, &[2], &[&values, &values], &[&[2]]));
    }
    cases
}

fn literals() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::I32, DType::U8] {
        // One right after the other.
        let mut case = Case::default();
        for literal in [1.0, 2.0, 3.0, 2.0] {
            let build = |e: &ExpressionBuilder| e.output(e.input(dtype) * literal + 1.0);
            add_fixed(&mut case, build, &[5], &[&[1.0, 2.0, 3.0, 4.0, 0.0]], &[&[5]]);
        }
        cases.push(case);
    }
    for dtype in DType::ALL {
        for scalar in [
            Scalar::Float(2.75),
            Scalar::Float(-1.5),
            Scalar::Float(0.1),
            Scalar::Int(259),
            Scalar::Int(-2),
            Scalar::Bool(true),
        ] {
            cases.push(fixed(
                |e| {
                    let x = e.input(dtype);
                    let literal = e.literal(dtype, scalar);
                    e.output(e.input(DType::Bool).select(x, literal));
                    // Also where a conversion is all that it is an operand of.
                    e.output(literal.cast(DType::F32));
                },
                &[3],
                &[&[1.0, 2.0, 3.0], &[0.0, 1.0]],
                &[[3]; 2],
            ));
            let of_scalar = Expression::build(|e| {
                let x = e.input(dtype);
                let scalar = e.input(dtype);
                e.output(e.input(DType::Bool).select(x, scalar));
                e.output(scalar.cast(DType::F32));
            });
            let mut case = Case::default();
            let x = case.values(dtype, &[3], &[1.0, 2.0, 3.0]);
            let condition = case.values(DType::Bool, &[3], &[0.0, 1.0]);
            let outputs =
                [dtype, DType::F32].map(|dtype| case.output(&mut Draw::new(&[]), dtype, &[3], Kind::Plain));
            case.step(
                of_scalar.expect("its types fit"),
                [x.into(), scalar.into(), condition.into()],
                outputs,
            );
            cases.push(case);
        }
    }
    // An output that is a literal, one that is an input, and one that is another output again.
    let moved = |e: &ExpressionBuilder| {
        let x = e.input(DType::F32);
        let sum = x + 1.0;
        e.output(e.literal(DType::F32, 7.5));
        e.output(x);
        e.output(sum);
        e.output(sum);
    };
    cases.push(fixed(moved, &[2, 3], &[&[1.0, 2.0, 3.0]], &[&[2, 3]; 4]));
    cases
}

fn many_nodes() -> Vec<Case> {
    let chain = |e: &ExpressionBuilder| {
        let x = e.input(DType::F32);
        // Two nodes in each step, and the input.
        let steps = (Expression::MOST_NODES - 1) / 2;
        let last = (0..steps).fold(x, |sum, step| if step % 2 == 0 { sum + step as f64 } else { sum * 1.25 });
        e.output(last);
    };
    let side_by_side = |e: &ExpressionBuilder| {
        let x = e.input(DType::I32);
        let mut values = vec![x];
        (0..7).for_each(|shift| values.push(x * (2 * shift + 3)));
        // All are used until the end.
        while values.len() < 60 {
            values.push(values[values.len() - 8] - values[values.len() - 1]);
        }
        let sum = values.iter().skip(1).fold(x, |sum, &value| sum + value);
        e.output(sum);
        e.output(values[30]);
    };
    let values = [1.0, -2.0, 3.0, 0.0, 5.0];
    vec![
        fixed(chain, &[3, 5], &[&values], &[&[3, 5]]),
        fixed(side_by_side, &[3, 5], &[&values], &[&[3, 5]; 2]),
    ]
}

/// Values whose largest is at the end of the first row.
fn with_largest(len: usize) -> Vec<f64> {
    let mut values: Vec<f64> = (0..len).map(|at| [1.0, 2.0, 3.0, 1.0, 5.0][at % 5]).collect();
    values[len - 1] = 100.0;
    values
}

fn long() -> Vec<Case> {
    let centered = |dtype: DType, dim: usize| {
        move |e: &ExpressionBuilder| {
            let x = e.input(dtype);
            let largest = x.max([dim]);
            e.output(x - largest);
            e.output((x + largest).sum([dim]));
        }
    };
    let normal = |e: &ExpressionBuilder| softmax(e, DType::F32, Dims::from([1]));
    let mut cases = Vec::new();
    for size in TAILS {
        let values = with_largest(size);
        cases.push(fixed(centered(DType::F32, 1), &[2, size], &[&values], &[&[2, size], &[2, 1]]));
        cases.push(fixed(centered(DType::I32, 0), &[size, 3], &[&values], &[&[size, 3], &[1, 3]]));
        cases.push(fixed(normal, &[2, size], &[&values], &[&[2, size]]));
        let plain = |e: &ExpressionBuilder| e.output(e.input(DType::F16) * 2.0 - e.input(DType::F16));
        cases.push(fixed(plain, &[size], &[&values, &[1.0, 0.5]], &[&[size]]));
    }
    for shape in [[1, 100_000], [3, 20_011], [4000, 7]] {
        let values = with_largest(shape[1]);
        cases.push(fixed(centered(DType::F32, 1), &shape, &[&values], &[&shape, &[shape[0], 1]]));
    }
    let values = with_largest(30_011);
    cases.push(fixed(centered(DType::I32, 0), &[30_011, 2], &[&values], &[&[30_011, 2], &[1, 2]]));
    cases
}

fn repeated_elements() -> Vec<Case> {
    let mut cases = Vec::new();
    for (dtype, size) in [(DType::F32, 5), (DType::I32, 70), (DType::F16, 9)] {
        let of_repeated = Expression::build(|e| {
            let x = e.input(dtype);
            let repeated = e.input(dtype);
            let scalar = e.input(dtype);
            e.output(x + repeated.sum([1]));
            e.output((repeated * scalar).sum([1]));
            e.output(e.literal(dtype, 2).sum([1]));
            e.output(repeated.sum([1]) + scalar.reduce(Reduction::Prod, [1]));
        })
        .expect("its types fit");
        for repeats in [[2, 1], [1, 1], [1, size]] {
            let mut case = Case::default();
            let x = case.values(dtype, &[2, size], &[1.0, 2.0, 0.0]);
            let repeated = case.values(dtype, &repeats, &[3.0, 1.0]);
            let mut output = |shape: &[usize]| case.output(&mut Draw::new(&[]), dtype, shape, Kind::Plain);
            // Where they differ along the reduced dimension, the last one does as well.
            let last = if repeats[1] == 1 { [2, 1] } else { [2, size] };
            let outputs = [output(&[2, size]), output(&[2, 1]), output(&[2, 1]), output(&last)];
            case.step(of_repeated, [x.into(), repeated.into(), Scalar::Int(1).into()], outputs);
            cases.push(case);
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{NUMBERS, Stream};
    use crate::expect::Expect;
    use crate::reference::{self, Input};

    /// How many elements of random outputs have to be one value, are in a range, and are unknown.
    fn known(drawn_cases: &[Drawn]) -> (usize, usize, usize) {
        let mut stream = Stream::of(3);
        let mut counts = (0, 0, 0);
        for kind in drawn_cases.iter().cycle().take(400) {
            let numbers: Vec<u32> = (0..NUMBERS).map(|_| stream.next() as u32).collect();
            let mut case = Case::default();
            kind(&mut case, &mut Draw::new(&numbers));
            let step = &case.steps[0];
            let inputs: Vec<Input> = step.inputs.iter().map(|input| input.read(&case.memories)).collect();
            let outputs: Vec<_> = step.outputs.iter().map(|view| view.read(&case.memories)).collect();
            for expect in reference::expected(step.operator, &inputs, &outputs).into_iter().flatten() {
                match expect {
                    Expect::Anything => counts.2 += 1,
                    Expect::Exactly(_) => counts.0 += 1,
                    Expect::Near(_, 0.0) => counts.0 += 1,
                    _ => counts.1 += 1,
                }
            }
        }
        counts
    }

    #[test]
    fn most_elements_of_random_expressions_are_known() {
        let of = |family: Family, reduces: bool, dtypes: &[DType]| {
            let recipe = |&dtype| Recipe { reduces, ..Recipe::new(family, dtype) };
            let recipes = dtypes.iter().map(recipe);
            let drawn_cases: Vec<Drawn> =
                recipes.map(|recipe| drawn(move |case, draw| random(case, draw, recipe))).collect();
            known(&drawn_cases)
        };
        let (exact, near, unknown) = of(Family::Exact, false, &DType::ALL);
        assert!(100 * near + 20 * unknown < exact, "{exact} exact, {near} near, {unknown} unknown");
        let (exact, near, unknown) = of(Family::Casts, false, &DType::ALL);
        assert!(10 * near + 20 * unknown < exact, "{exact} exact, {near} near, {unknown} unknown");
        for (family, reduces) in
            [(Family::Functions, false), (Family::Functions, true), (Family::Exact, true)]
        {
            let (exact, near, unknown) = of(family, reduces, &FLOATS);
            assert!(4 * unknown < exact + near, "{exact} exact, {near} near, {unknown} unknown");
        }
    }
}
