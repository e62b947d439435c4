//! Operators that other crates declare, and the group that they register in.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::RangeInclusive;

use entry_points::{Entry, EntryPoint, LoadError};
use smallvec::SmallVec;

use crate::argument::Argument;
use crate::check::arguments::{Array, Class, count};
use crate::dtype::DType;
use crate::layout::Layout;
use crate::problem::Problem;
use crate::scalar::Scalar;

/// Defines an operator that a crate declares: what its calls look like, and what they compute.
///
/// Kernels for it are in kernel sets, as for all operators: in the same crate, a vendor's or any other.
/// `device-kernels-conformance` compares each with [`reference`](Self::reference).
pub trait OperatorDefinition: Send + Sync {
    /// The names of its options, in their order, at most [`CustomOperator::MOST_OPTIONS`]. By default there
    /// are none.
    fn options(&self) -> &'static [&'static str] {
        &[]
    }

    /// Checks the options and arguments of a call. A kernel may be launched for every call that it accepts.
    ///
    /// Outputs that have an element twice were already refused. When a call runs, an output shares no bytes
    /// with an input.
    ///
    /// # Errors
    ///
    /// What is wrong.
    fn check(&self, signature: &Signature<'_>) -> Result<(), Problem>;

    /// Whether the work for an element is a few operations, so that a call with few elements is
    /// [short](crate::Call::is_short). By default it is not.
    fn is_light(&self) -> bool {
        false
    }

    /// Calls that test a kernel, each with different elements and layouts every time.
    fn examples(&self) -> Vec<Example>;

    /// The expected outputs, in plain Rust: their elements in the order of their indices, the last dimension
    /// first.
    fn reference(&self, call: &Evaluation<'_>) -> Vec<Vec<f64>>;

    /// How far a result may be from the reference, in units in the last place of `dtype`. 4 by default, and
    /// 0 for integers and `bool`.
    fn units(&self, dtype: DType) -> f64 {
        if dtype.is_float() { 4.0 } else { 0.0 }
    }
}

/// An operator as constant data: its name, the package that it comes from, and how to load it.
///
/// A name begins with the author's, and two underscores, so that two authors have none in common:
///
/// ```
/// use device_kernels::{
///     Evaluation, Example, OPERATORS, OperatorDefinition, OperatorDescriptor, Problem, Signature,
/// };
/// use device_registry::backend::LoadFailure;
///
/// device_kernels::entry_points! {
///     #[distributed_slice(OPERATORS)]
///     pub static MULTIPLY_ADD: OperatorDescriptor = OperatorDescriptor::new("acme__multiply_add", load);
/// }
///
/// fn load() -> Result<Box<dyn OperatorDefinition>, LoadFailure> {
///     Ok(Box::new(MultiplyAdd))
/// }
///
/// struct MultiplyAdd;
///
/// impl OperatorDefinition for MultiplyAdd {
///     fn check(&self, signature: &Signature<'_>) -> Result<(), Problem> {
///         let ([a, b, c], [out]) = signature.arrays()?;
///         a.expect_float("the first input")?;
///         b.expect_like("the second input", a)?;
///         c.expect_like("the third input", a)?;
///         out.expect_like("the output", a)
///     }
///
///     fn examples(&self) -> Vec<Example> {
///         let (dtype, shape) = (device_kernels::DType::F32, [3, 5]);
///         let example = Example::new().input(dtype, shape, -9.0..=9.0).input(dtype, shape, -9.0..=9.0);
///         vec![example.input(dtype, shape, -9.0..=9.0).output(dtype, shape)]
///     }
///
///     fn reference(&self, call: &Evaluation<'_>) -> Vec<Vec<f64>> {
///         let [a, b, c] = call.inputs else { return Vec::new() };
///         let all = a.elements.iter().zip(&b.elements).zip(&c.elements);
///         vec![all.map(|((a, b), c)| a * b + c).collect()]
///     }
/// }
///
/// let operator = device_kernels::operator("acme__multiply_add")?;
/// assert_eq!(operator.to_string(), "acme__multiply_add");
/// # Ok::<(), entry_points::LoadError>(())
/// ```
pub type OperatorDescriptor = EntryPoint<dyn OperatorDefinition>;

entry_points::group! {
    /// The distributed slice that operators register in.
    pub static OPERATORS: [OperatorDescriptor];

    /// The group `device.operators`: every operator that a linked crate declares. Variables with the prefix
    /// `DEVICE_OPERATORS` switch its entries on and off.
    pub fn operators() -> Group<dyn OperatorDefinition> {
        entry_points::Group::new("device.operators")
            .noun("operator")
            .switches("DEVICE_OPERATORS")
            .autoload_line("device_registry::autoload!();")
    }
}

/// The operator that a linked crate declares with this name, without options.
///
/// # Errors
///
/// If no linked crate has it, it is switched off or does not load, or two packages have it. The error lists
/// what there is.
pub fn operator(name: &str) -> Result<CustomOperator, LoadError> {
    let entry = operators().usable(name)?;
    Ok(CustomOperator { entry, definition: entry.load()?, options: Options::default() })
}

/// An operator that a crate declares, with the options of a call.
#[derive(Clone, Copy)]
pub struct CustomOperator {
    entry: Entry<dyn OperatorDefinition>,
    definition: &'static dyn OperatorDefinition,
    options: Options,
}

/// The options of a call, as bits with their kinds: an operator is copied on each call. Options beyond the
/// maximum are only counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Options {
    bits: [u64; CustomOperator::MOST_OPTIONS],
    kinds: [Kind; CustomOperator::MOST_OPTIONS],
    len: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Kind {
    #[default]
    Float,
    Int,
    Bool,
}

impl Options {
    fn add(&mut self, option: Scalar) {
        let (kind, bits) = match option {
            Scalar::Float(value) => (Kind::Float, value.to_bits()),
            Scalar::Int(value) => (Kind::Int, value as u64),
            Scalar::Bool(value) => (Kind::Bool, value.into()),
        };
        let place = usize::from(self.len);
        if place < CustomOperator::MOST_OPTIONS {
            (self.kinds[place], self.bits[place]) = (kind, bits);
        }
        self.len = self.len.saturating_add(1);
    }

    fn iter(&self) -> impl Iterator<Item = Scalar> {
        let all = self.kinds.into_iter().zip(self.bits).take(self.len.into());
        all.map(|(kind, bits)| match kind {
            Kind::Float => Scalar::Float(f64::from_bits(bits)),
            Kind::Int => Scalar::Int(bits as i64),
            Kind::Bool => Scalar::Bool(bits != 0),
        })
    }
}

impl CustomOperator {
    /// The largest number of options that an operator can have.
    pub const MOST_OPTIONS: usize = 4;

    /// The operator with these options in place of those that it has. A call checks them.
    #[must_use]
    pub fn with_options<S: Into<Scalar>>(self, options: impl IntoIterator<Item = S>) -> Self {
        let mut given = Options::default();
        options.into_iter().for_each(|option| given.add(option.into()));
        Self { options: given, ..self }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.entry.name()
    }

    /// The options, in the order of their names.
    pub fn options(&self) -> impl Iterator<Item = Scalar> {
        self.options.iter()
    }

    /// The option at a place, in the order of the names.
    #[must_use]
    pub fn option(&self, place: usize) -> Option<Scalar> {
        self.options().nth(place)
    }

    /// What it is.
    #[must_use]
    pub fn definition(&self) -> &'static dyn OperatorDefinition {
        self.definition
    }

    /// Checks a call whose outputs have no element twice.
    pub(crate) fn check(&self, inputs: &[Argument], outputs: &[(DType, Layout)]) -> Result<(), Problem> {
        let expected = self.definition.options().len();
        let found = self.options.len.into();
        if expected != found {
            return Err(Problem::Count { of: "options", expected: count(expected), found });
        }
        let options: SmallVec<[Scalar; Self::MOST_OPTIONS]> = self.options().collect();
        self.definition.check(&Signature { options: &options, inputs, outputs })
    }
}

/// Options are compared by their bits: numbers that are equal may differ, as 1 / 0.0 and 1 / -0.0 do.
impl PartialEq for CustomOperator {
    fn eq(&self, other: &Self) -> bool {
        self.entry == other.entry && self.options == other.options
    }
}

impl Eq for CustomOperator {}

impl Hash for CustomOperator {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
        self.options.hash(state);
    }
}

/// The name, with the options: `acme__swiglu<limit 7>`.
impl fmt::Display for CustomOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if self.options.len == 0 {
            return Ok(());
        }
        let mut names = self.definition.options().iter();
        for (place, option) in self.options().enumerate() {
            let separator = if place == 0 { "<" } else { ", " };
            match names.next() {
                Some(name) => write!(f, "{separator}{name} {option}")?,
                None => write!(f, "{separator}{option}")?,
            }
        }
        f.write_str(if usize::from(self.options.len) > Self::MOST_OPTIONS { ", …>" } else { ">" })
    }
}

impl fmt::Debug for CustomOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CustomOperator({self})")
    }
}

/// The options and arguments of a call that is checked.
#[derive(Clone, Copy, Debug)]
pub struct Signature<'a> {
    options: &'a [Scalar],
    inputs: &'a [Argument],
    outputs: &'a [(DType, Layout)],
}

impl<'a> Signature<'a> {
    /// The options, one for each that the operator has.
    #[must_use]
    pub fn options(&self) -> &'a [Scalar] {
        self.options
    }

    /// The inputs: arrays and values.
    #[must_use]
    pub fn inputs(&self) -> &'a [Argument] {
        self.inputs
    }

    /// The outputs.
    #[must_use]
    pub fn outputs(&self) -> &'a [(DType, Layout)] {
        self.outputs
    }

    /// The inputs and outputs of an operator with this many, all of them arrays.
    ///
    /// # Errors
    ///
    /// If there are more or fewer, or an input is a value.
    pub fn arrays<const I: usize, const O: usize>(
        &self,
    ) -> Result<([ArrayType<'a>; I], [ArrayType<'a>; O]), Problem> {
        let of = |of, expected, found| Problem::Count { of, expected: count(expected), found };
        let array = |input: &'a Argument| match input {
            Argument::Array(dtype, layout) => Ok(ArrayType(Array { dtype: *dtype, layout })),
            Argument::Scalar(_) => Err(Problem::Scalar { argument: "an input" }),
        };
        let inputs = self.inputs.iter().map(array).collect::<Result<Vec<_>, _>>()?;
        let output = |(dtype, layout): &'a (DType, Layout)| ArrayType(Array { dtype: *dtype, layout });
        let outputs: Vec<_> = self.outputs.iter().map(output).collect();
        Ok((
            inputs.try_into().map_err(|found: Vec<_>| of("inputs", I, found.len()))?,
            outputs.try_into().map_err(|found: Vec<_>| of("outputs", O, found.len()))?,
        ))
    }
}

/// The type and layout of an argument. Its checks get the name of the argument for the error.
#[derive(Clone, Copy)]
pub struct ArrayType<'a>(Array<'a>);

impl<'a> ArrayType<'a> {
    /// The type of its elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// The size of each dimension.
    #[must_use]
    pub fn shape(&self) -> &'a [usize] {
        self.0.layout.shape()
    }

    /// Where its elements are.
    #[must_use]
    pub fn layout(&self) -> &'a Layout {
        self.0.layout
    }

    /// # Errors
    ///
    /// If its elements are no floating-point numbers.
    pub fn expect_float(&self, argument: &'static str) -> Result<(), Problem> {
        Class::Float.check(argument, self.0.dtype)
    }

    /// # Errors
    ///
    /// If its elements are of another type.
    pub fn expect_dtype(&self, argument: &'static str, dtype: DType) -> Result<(), Problem> {
        self.0.same_dtype(argument, dtype)
    }

    /// # Errors
    ///
    /// If it has another shape.
    pub fn expect_shape(&self, argument: &'static str, shape: &[usize]) -> Result<(), Problem> {
        self.0.expect(argument, shape)
    }

    /// # Errors
    ///
    /// If its type or shape differs from the other array's.
    pub fn expect_like(&self, argument: &'static str, other: ArrayType<'_>) -> Result<(), Problem> {
        self.0.same(argument, other.dtype(), other.shape())
    }
}

/// A call that tests a kernel: options, and the types and shapes of arrays. The elements of an input are
/// drawn from a range.
#[derive(Clone, Debug, Default)]
pub struct Example {
    options: Vec<Scalar>,
    inputs: Vec<ExampleInput>,
    outputs: Vec<(DType, Vec<usize>)>,
}

/// An input of an [`Example`].
#[derive(Clone, Debug)]
pub struct ExampleInput {
    /// The type of its elements.
    pub dtype: DType,
    /// The size of each dimension.
    pub shape: Vec<usize>,
    /// What its elements are drawn from: integers for an integer type.
    pub range: RangeInclusive<f64>,
}

impl Example {
    /// Without options and arguments.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an option.
    #[must_use]
    pub fn option(mut self, value: impl Into<Scalar>) -> Self {
        self.options.push(value.into());
        self
    }

    /// Adds an input.
    #[must_use]
    pub fn input(mut self, dtype: DType, shape: impl Into<Vec<usize>>, range: RangeInclusive<f64>) -> Self {
        self.inputs.push(ExampleInput { dtype, shape: shape.into(), range });
        self
    }

    /// Adds an output.
    #[must_use]
    pub fn output(mut self, dtype: DType, shape: impl Into<Vec<usize>>) -> Self {
        self.outputs.push((dtype, shape.into()));
        self
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> &[Scalar] {
        &self.options
    }

    /// The inputs.
    #[must_use]
    pub fn inputs(&self) -> &[ExampleInput] {
        &self.inputs
    }

    /// The types and shapes of the outputs.
    #[must_use]
    pub fn outputs(&self) -> &[(DType, Vec<usize>)] {
        &self.outputs
    }
}

/// A call with its elements, for [`OperatorDefinition::reference`].
#[derive(Clone, Copy, Debug)]
pub struct Evaluation<'a> {
    /// The options.
    pub options: &'a [Scalar],
    /// The inputs. A value has no dimensions and one element.
    pub inputs: &'a [Elements],
    /// The types and shapes of the outputs.
    pub outputs: &'a [(DType, Vec<usize>)],
}

/// An array with its elements.
#[derive(Clone, Debug)]
pub struct Elements {
    /// Their type.
    pub dtype: DType,
    /// The size of each dimension.
    pub shape: Vec<usize>,
    /// The elements, in the order of their indices, the last dimension first. `bool` is 0 or 1.
    pub elements: Vec<f64>,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use device_registry::backend::LoadFailure;

    use super::*;
    use crate::Call;

    struct Scale;

    impl OperatorDefinition for Scale {
        fn options(&self) -> &'static [&'static str] {
            &["by", "twice"]
        }

        fn check(&self, signature: &Signature<'_>) -> Result<(), Problem> {
            let ([input], [out]) = signature.arrays()?;
            input.expect_float("the input")?;
            out.expect_like("the output", input)?;
            let rule = |_: &Scalar| Problem::Rule("expected a scale other than 0".to_owned());
            signature.options().iter().find(|by| by.as_f64() == 0.0).map_or(Ok(()), |by| Err(rule(by)))
        }

        fn examples(&self) -> Vec<Example> {
            Vec::new()
        }

        fn reference(&self, _call: &Evaluation<'_>) -> Vec<Vec<f64>> {
            Vec::new()
        }
    }

    fn scale() -> CustomOperator {
        static SCALE: OperatorDescriptor = OperatorDescriptor::new("test__scale", load);

        fn load() -> Result<Box<dyn OperatorDefinition>, LoadFailure> {
            Ok(Box::new(Scale))
        }

        let _ = operators().register(&SCALE);
        operator("test__scale").unwrap()
    }

    fn array(shape: &[usize]) -> Argument {
        Argument::Array(DType::F32, Layout::contiguous(shape).unwrap())
    }

    #[test]
    fn its_own_rules_are_checked_and_the_number_of_its_options() {
        let scale = scale();
        let call = |scale: CustomOperator, inputs: &[Argument]| {
            Call::new(scale, inputs, &[array(&[2, 3])])
                .map(|call| call.to_string())
                .map_err(|e| e.to_string())
        };
        let good = "test__scale<by 2, twice true>(f32 [2, 3]) -> f32 [2, 3]".to_owned();
        let right = scale.with_options([Scalar::Int(2), Scalar::Bool(true)]);
        assert_eq!(call(right, &[array(&[2, 3])]), Ok(good));
        for (scale, inputs, expected) in [
            (
                scale,
                vec![array(&[2, 3])],
                "test__scale(f32 [2, 3]) -> f32 [2, 3]: expected 2 as the number of options, found 0",
            ),
            (
                scale.with_options([1; 9]),
                vec![array(&[2, 3])],
                "test__scale<by 1, twice 1, 1, 1, …>(f32 [2, 3]) -> f32 [2, 3]: expected 2 as the number of options, found 9",
            ),
            (
                scale.with_options([1, 0]),
                vec![array(&[2, 3])],
                "test__scale<by 1, twice 0>(f32 [2, 3]) -> f32 [2, 3]: expected a scale other than 0",
            ),
            (
                right,
                vec![],
                "test__scale<by 2, twice true>() -> f32 [2, 3]: expected 1 as the number of inputs, found 0",
            ),
            (
                right,
                vec![array(&[3])],
                "test__scale<by 2, twice true>(f32 [3]) -> f32 [2, 3]: expected [3] as the shape of the output, found [2, 3]",
            ),
            (
                right,
                vec![Argument::from(1.0)],
                "test__scale<by 2, twice true>(1.0) -> f32 [2, 3]: expected an array as an input, found a scalar",
            ),
        ] {
            assert_eq!(call(scale, &inputs), Err(expected.to_owned()));
        }
    }

    #[test]
    fn options_are_told_apart_by_their_bits() {
        let operators = [
            scale().with_options([0.0, 1.0]),
            scale().with_options([-0.0, 1.0]),
            scale().with_options([f64::NAN, 1.0]),
            scale().with_options([Scalar::Int(0), Scalar::Float(1.0)]),
            scale().with_options([0.0]),
            scale(),
        ];
        for (place, one) in operators.iter().enumerate() {
            assert!(operators.iter().enumerate().all(|(other, two)| (one == two) == (other == place)));
        }
        assert_eq!(HashSet::from(operators).len(), operators.len());
        assert_eq!(operators[2], scale().with_options([f64::NAN, 1.0]));
    }

    #[test]
    fn an_unknown_operator_is_an_error_that_lists_what_there_is() {
        scale();
        let error = operator("test__scle").unwrap_err().to_string();
        assert!(error.contains("test__scle") && error.contains("test__scale"), "{error}");
    }
}
