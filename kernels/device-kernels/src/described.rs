//! Operators as data: a name, and options by name. Kernel sets declare this, and it crosses the border of a
//! library.

use std::fmt;

use entry_points::LoadError;
use smallvec::{SmallVec, smallvec};

use crate::custom::{CustomOperator, operator};
use crate::operator::{
    Binary, Compare, Conv2d, Dims, Distribution, Expression, ExpressionError, Extremum, Operator, Pool2d,
    Reduction, Sorted, Unary, Update,
};
use crate::scalar::Scalar;

/// An option of an operator, such as `stride`: its name, and its values.
#[derive(Clone, Debug, PartialEq)]
pub struct OperatorOption {
    /// Its name.
    pub name: &'static str,
    /// Its values: one, or several of an option that is a list.
    pub values: OptionValues,
}

/// The values of an option. There are seldom more than two.
pub type OptionValues = SmallVec<[Scalar; 2]>;

/// The options of an operator.
pub type OperatorOptions = SmallVec<[OperatorOption; 5]>;

/// Why there is no operator with a name and options.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptionError {
    /// No operator of this crate has the name, and no linked crate declares one.
    #[error(transparent)]
    Unknown(#[from] LoadError),
    /// The options are no steps of an expression.
    #[error(transparent)]
    Expression(#[from] ExpressionError),
    /// An option is missing, or has other values.
    #[error("the operator `{operator}` has no valid option `{option}`: expected {expected}")]
    Option {
        /// The name of the operator.
        operator: String,
        /// The name of the option.
        option: &'static str,
        /// What is expected.
        expected: &'static str,
    },
}

/// The names of the operators of this crate that have no names of their own in an enum. A variant that is
/// missing here does not compile.
macro_rules! variants {
    ($($pattern:pat => $name:literal,)*) => {
        const VARIANTS: &[&str] = &[$($name),*];

        fn variant(operator: &Operator) -> &'static str {
            match operator {
                Operator::Unary(unary) => unary.name(),
                Operator::Binary(binary) => binary.name(),
                Operator::Compare(compare) => compare.name(),
                Operator::Custom(custom) => custom.name(),
                $($pattern => $name,)*
            }
        }
    };
}

variants! {
    Operator::Where => "where",
    Operator::Clamp => "clamp",
    Operator::Copy => "copy",
    Operator::Reduce { reduction: Reduction::Sum, .. } => "reduce_sum",
    Operator::Reduce { reduction: Reduction::Prod, .. } => "reduce_prod",
    Operator::Reduce { reduction: Reduction::Mean, .. } => "reduce_mean",
    Operator::Reduce { reduction: Reduction::Max, .. } => "reduce_max",
    Operator::Reduce { reduction: Reduction::Min, .. } => "reduce_min",
    Operator::Reduce { reduction: Reduction::Any, .. } => "reduce_any",
    Operator::Reduce { reduction: Reduction::All, .. } => "reduce_all",
    Operator::ArgReduce { extremum: Extremum::Max, .. } => "arg_max",
    Operator::ArgReduce { extremum: Extremum::Min, .. } => "arg_min",
    Operator::Sort { sorted: Sorted::Values, .. } => "sort_values",
    Operator::Sort { sorted: Sorted::Indices, .. } => "sort_indices",
    Operator::Sort { sorted: Sorted::Both, .. } => "sort_both",
    Operator::Softmax { .. } => "softmax",
    Operator::LogSoftmax { .. } => "log_softmax",
    Operator::MatMul => "matmul",
    Operator::Gather { .. } => "gather",
    Operator::Scatter { .. } => "scatter",
    Operator::IndexSelect { .. } => "index_select",
    Operator::IndexAssign { .. } => "index_assign",
    Operator::Conv2d(_) => "conv2d",
    Operator::Conv2dInputGrad(_) => "conv2d_input_grad",
    Operator::Conv2dWeightGrad(_) => "conv2d_weight_grad",
    Operator::MaxPool2d(_) => "max_pool2d",
    Operator::MaxPool2dGrad(_) => "max_pool2d_grad",
    Operator::AvgPool2d { .. } => "avg_pool2d",
    Operator::AvgPool2dGrad { .. } => "avg_pool2d_grad",
    Operator::AdaptiveAvgPool2d => "adaptive_avg_pool2d",
    Operator::AdaptiveAvgPool2dGrad => "adaptive_avg_pool2d_grad",
    Operator::Random { distribution: Distribution::Uniform { .. }, .. } => "random_uniform",
    Operator::Random { distribution: Distribution::Normal { .. }, .. } => "random_normal",
    Operator::Random { distribution: Distribution::Bernoulli { .. }, .. } => "random_bernoulli",
    Operator::Random { distribution: Distribution::Integers { .. }, .. } => "random_integers",
    Operator::Expression(_) => "expression",
}

impl Operator {
    /// Its name, without the options of a call. No other operator has it: `neg`, `reduce_sum`, `arg_max`,
    /// `random_normal`, `acme__swiglu`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        variant(self)
    }

    /// The names of all operators of this crate.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let unary = Unary::ALL.iter().map(|unary| unary.name());
        let binary = Binary::ALL.iter().map(|binary| binary.name());
        let compare = Compare::ALL.iter().map(|compare| compare.name());
        unary.chain(binary).chain(compare).chain(VARIANTS.iter().copied())
    }

    /// Its options by name, from which [`from_description`](Self::from_description) makes it again.
    ///
    /// - `dim` and `dims`: dimensions. `stride`, `padding`, `dilation`, `kernel`: two numbers, the vertical
    ///   one first. `groups`: a number.
    /// - `descending`, of an order. `add`, of an update: whether the values are added. `count_padding`.
    /// - `low`, `high`, `mean`, `deviation`, `probability`: of random numbers. `seed` and `offset` are the
    ///   bits of an unsigned number.
    /// - Of an expression: its [steps](Expression::steps).
    /// - Of an operator that another crate declares: its options, a value each.
    #[must_use]
    pub fn options(&self) -> OperatorOptions {
        let add = |update: Update| one("add", update == Update::Add);
        match *self {
            Self::Reduce { dims, .. } => smallvec![list("dims", dims.iter())],
            Self::ArgReduce { dim, .. }
            | Self::Softmax { dim }
            | Self::LogSoftmax { dim }
            | Self::Gather { dim }
            | Self::IndexSelect { dim } => smallvec![list("dim", [dim])],
            Self::Sort { dim, descending, .. } => {
                smallvec![list("dim", [dim]), one("descending", descending)]
            }
            Self::Scatter { dim, update } | Self::IndexAssign { dim, update } => {
                smallvec![list("dim", [dim]), add(update)]
            }
            Self::Conv2d(conv) | Self::Conv2dInputGrad(conv) | Self::Conv2dWeightGrad(conv) => smallvec![
                list("stride", conv.stride),
                list("padding", conv.padding),
                list("dilation", conv.dilation),
                list("groups", [conv.groups]),
            ],
            Self::MaxPool2d(pool) | Self::MaxPool2dGrad(pool) => windows(pool),
            Self::AvgPool2d { pool, count_padding } | Self::AvgPool2dGrad { pool, count_padding } => {
                let mut options = windows(pool);
                options.push(one("count_padding", count_padding));
                options
            }
            Self::Random { distribution, seed, offset } => {
                let mut options: OperatorOptions = match distribution {
                    Distribution::Uniform { low, high } => smallvec![one("low", low), one("high", high)],
                    Distribution::Normal { mean, deviation } => {
                        smallvec![one("mean", mean), one("deviation", deviation)]
                    }
                    Distribution::Bernoulli { probability } => smallvec![one("probability", probability)],
                    Distribution::Integers { low, high } => smallvec![one("low", low), one("high", high)],
                };
                options.extend([one("seed", seed as i64), one("offset", offset as i64)]);
                options
            }
            Self::Expression(expression) => expression.steps().into(),
            Self::Custom(custom) => {
                let names = custom.definition().options().iter();
                names.zip(custom.options()).map(|(name, value)| one(name, value)).collect()
            }
            Self::Unary(_)
            | Self::Binary(_)
            | Self::Compare(_)
            | Self::Where
            | Self::Clamp
            | Self::Copy
            | Self::MatMul
            | Self::AdaptiveAvgPool2d
            | Self::AdaptiveAvgPool2dGrad => OperatorOptions::new(),
        }
    }

    /// The operator with a name and these options. Options that it does not have are ignored.
    ///
    /// ```
    /// use device_kernels::{Operator, Scalar};
    ///
    /// let operator = Operator::from_description("softmax", &[("dim", &[Scalar::Int(1)])])?;
    /// assert_eq!(operator, Operator::Softmax { dim: 1 });
    /// assert_eq!(operator.options()[0].name, "dim");
    /// # Ok::<(), device_kernels::DescriptionError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If no crate declares an operator of this name, or an option is missing or has other values.
    pub fn from_description(name: &str, options: &[(&str, &[Scalar])]) -> Result<Self, DescriptionError> {
        let given = Given { operator: name, options };
        let unary = Unary::ALL.iter().find(|unary| unary.name() == name).map(|unary| Self::Unary(*unary));
        let binary = || Binary::ALL.iter().find(|binary| binary.name() == name).map(|b| Self::Binary(*b));
        let compare =
            || Compare::ALL.iter().find(|compare| compare.name() == name).map(|c| Self::Compare(*c));
        if let Some(elementwise) = unary.or_else(binary).or_else(compare) {
            return Ok(elementwise);
        }
        let reduce = |reduction| Ok(Self::Reduce { reduction, dims: given.dims()? });
        let arg = |extremum| Ok(Self::ArgReduce { extremum, dim: given.place("dim")? });
        let sort = |sorted| {
            let dim = given.place("dim")?;
            let descending = given.bool("descending")?;
            Ok(Self::Sort { dim, descending, sorted })
        };
        let random = |distribution| {
            let seed = given.int("seed")? as u64;
            let offset = given.int("offset")? as u64;
            Ok(Self::Random { distribution, seed, offset })
        };
        match name {
            "where" => Ok(Self::Where),
            "clamp" => Ok(Self::Clamp),
            "copy" => Ok(Self::Copy),
            "reduce_sum" => reduce(Reduction::Sum),
            "reduce_prod" => reduce(Reduction::Prod),
            "reduce_mean" => reduce(Reduction::Mean),
            "reduce_max" => reduce(Reduction::Max),
            "reduce_min" => reduce(Reduction::Min),
            "reduce_any" => reduce(Reduction::Any),
            "reduce_all" => reduce(Reduction::All),
            "arg_max" => arg(Extremum::Max),
            "arg_min" => arg(Extremum::Min),
            "sort_values" => sort(Sorted::Values),
            "sort_indices" => sort(Sorted::Indices),
            "sort_both" => sort(Sorted::Both),
            "softmax" => Ok(Self::Softmax { dim: given.place("dim")? }),
            "log_softmax" => Ok(Self::LogSoftmax { dim: given.place("dim")? }),
            "matmul" => Ok(Self::MatMul),
            "gather" => Ok(Self::Gather { dim: given.place("dim")? }),
            "scatter" => Ok(Self::Scatter { dim: given.place("dim")?, update: given.update()? }),
            "index_select" => Ok(Self::IndexSelect { dim: given.place("dim")? }),
            "index_assign" => Ok(Self::IndexAssign { dim: given.place("dim")?, update: given.update()? }),
            "conv2d" => Ok(Self::Conv2d(given.conv()?)),
            "conv2d_input_grad" => Ok(Self::Conv2dInputGrad(given.conv()?)),
            "conv2d_weight_grad" => Ok(Self::Conv2dWeightGrad(given.conv()?)),
            "max_pool2d" => Ok(Self::MaxPool2d(given.pool()?)),
            "max_pool2d_grad" => Ok(Self::MaxPool2dGrad(given.pool()?)),
            "avg_pool2d" => {
                Ok(Self::AvgPool2d { pool: given.pool()?, count_padding: given.bool("count_padding")? })
            }
            "avg_pool2d_grad" => {
                Ok(Self::AvgPool2dGrad { pool: given.pool()?, count_padding: given.bool("count_padding")? })
            }
            "adaptive_avg_pool2d" => Ok(Self::AdaptiveAvgPool2d),
            "adaptive_avg_pool2d_grad" => Ok(Self::AdaptiveAvgPool2dGrad),
            "random_uniform" => {
                random(Distribution::Uniform { low: given.float("low")?, high: given.float("high")? })
            }
            "random_normal" => random(Distribution::Normal {
                mean: given.float("mean")?,
                deviation: given.float("deviation")?,
            }),
            "random_bernoulli" => {
                random(Distribution::Bernoulli { probability: given.float("probability")? })
            }
            "random_integers" => {
                random(Distribution::Integers { low: given.int("low")?, high: given.int("high")? })
            }
            "expression" => Ok(Expression::from_steps(options.iter().copied())?.into()),
            _ => given.custom(operator(name)?),
        }
    }
}

fn one(name: &'static str, value: impl Into<Scalar>) -> OperatorOption {
    OperatorOption { name, values: smallvec![value.into()] }
}

/// Places and sizes. Signed numbers can express all that arrays have.
fn list(name: &'static str, values: impl IntoIterator<Item = usize>) -> OperatorOption {
    let number = |value| Scalar::Int(i64::try_from(value).unwrap_or(i64::MAX));
    OperatorOption { name, values: values.into_iter().map(number).collect() }
}

fn windows(pool: Pool2d) -> OperatorOptions {
    smallvec![
        list("kernel", pool.kernel),
        list("stride", pool.stride),
        list("padding", pool.padding),
        list("dilation", pool.dilation),
    ]
}

/// A place or a size, if the value is one.
fn place(value: &Scalar) -> Option<usize> {
    match value {
        Scalar::Int(value) => usize::try_from(*value).ok(),
        _ => None,
    }
}

/// The options that a description has.
struct Given<'a> {
    operator: &'a str,
    options: &'a [(&'a str, &'a [Scalar])],
}

impl Given<'_> {
    fn wrong(&self, option: &'static str, expected: &'static str) -> DescriptionError {
        DescriptionError::Option { operator: self.operator.to_owned(), option, expected }
    }

    fn values(&self, option: &'static str) -> Option<&[Scalar]> {
        self.options.iter().find(|(name, _)| *name == option).map(|(_, values)| *values)
    }

    fn one(&self, option: &'static str, expected: &'static str) -> Result<Scalar, DescriptionError> {
        match self.values(option) {
            Some(&[value]) => Ok(value),
            _ => Err(self.wrong(option, expected)),
        }
    }

    fn int(&self, option: &'static str) -> Result<i64, DescriptionError> {
        match self.one(option, "an integer")? {
            Scalar::Int(value) => Ok(value),
            _ => Err(self.wrong(option, "an integer")),
        }
    }

    fn float(&self, option: &'static str) -> Result<f64, DescriptionError> {
        match self.one(option, "a number")? {
            Scalar::Bool(_) => Err(self.wrong(option, "a number")),
            number => Ok(number.as_f64()),
        }
    }

    fn bool(&self, option: &'static str) -> Result<bool, DescriptionError> {
        match self.one(option, "a boolean")? {
            Scalar::Bool(value) => Ok(value),
            _ => Err(self.wrong(option, "a boolean")),
        }
    }

    /// Places or sizes, as many as the caller expects.
    fn places<const N: usize>(&self, option: &'static str) -> Result<[usize; N], DescriptionError> {
        let wrong = || self.wrong(option, "integers that are not negative, as many as the operator has");
        let values = self.values(option).unwrap_or_default().iter();
        let places: Option<Vec<usize>> = values.map(place).collect();
        places.and_then(|places| places.try_into().ok()).ok_or_else(wrong)
    }

    fn place(&self, option: &'static str) -> Result<usize, DescriptionError> {
        Ok(self.places::<1>(option)?[0])
    }

    fn dims(&self) -> Result<Dims, DescriptionError> {
        let wrong = || self.wrong("dims", "dimensions");
        let values = self.values("dims").ok_or_else(wrong)?.iter();
        values.map(|value| place(value).ok_or_else(wrong)).collect()
    }

    fn update(&self) -> Result<Update, DescriptionError> {
        Ok(if self.bool("add")? { Update::Add } else { Update::Replace })
    }

    fn conv(&self) -> Result<Conv2d, DescriptionError> {
        Ok(Conv2d {
            stride: self.places("stride")?,
            padding: self.places("padding")?,
            dilation: self.places("dilation")?,
            groups: self.place("groups")?,
        })
    }

    fn pool(&self) -> Result<Pool2d, DescriptionError> {
        Ok(Pool2d {
            kernel: self.places("kernel")?,
            stride: self.places("stride")?,
            padding: self.places("padding")?,
            dilation: self.places("dilation")?,
        })
    }

    fn custom(&self, custom: CustomOperator) -> Result<Operator, DescriptionError> {
        let names = custom.definition().options().iter();
        let options = names.map(|name| self.one(name, "a value")).collect::<Result<Vec<_>, _>>()?;
        Ok(custom.with_options(options).into())
    }
}

impl fmt::Display for OperatorOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        self.values.iter().try_for_each(|value| write!(f, " {value}"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// One operator of each name.
    fn all() -> Vec<Operator> {
        let dim = 3;
        let dims = Dims::from([0, 2]);
        let conv = Conv2d { stride: [1, 2], padding: [3, 4], dilation: [5, 6], groups: 7 };
        let pool = Pool2d { kernel: [8, 9], stride: [1, 2], padding: [3, 4], dilation: [5, 6] };
        let random = |distribution| Operator::Random { distribution, seed: u64::MAX, offset: 5 };
        let mut all: Vec<Operator> = Unary::ALL.iter().copied().map(Operator::from).collect();
        all.extend(Binary::ALL.iter().copied().map(Operator::from));
        all.extend(Compare::ALL.iter().copied().map(Operator::from));
        all.extend(Reduction::ALL.iter().map(|&reduction| Operator::Reduce { reduction, dims }));
        all.extend(Sorted::ALL.iter().map(|&sorted| Operator::Sort { dim, descending: true, sorted }));
        all.extend(Extremum::ALL.iter().map(|&extremum| Operator::ArgReduce { extremum, dim }));
        all.extend([
            Operator::Where,
            Operator::Clamp,
            Operator::Copy,
            Operator::Expression("input f32, exp 0, reduce_sum 1 0 2, output 2".parse().unwrap()),
            Operator::Softmax { dim },
            Operator::LogSoftmax { dim },
            Operator::MatMul,
            Operator::Gather { dim },
            Operator::Scatter { dim, update: Update::Replace },
            Operator::IndexSelect { dim },
            Operator::IndexAssign { dim, update: Update::Add },
            Operator::Conv2d(conv),
            Operator::Conv2dInputGrad(conv),
            Operator::Conv2dWeightGrad(conv),
            Operator::MaxPool2d(pool),
            Operator::MaxPool2dGrad(pool),
            Operator::AvgPool2d { pool, count_padding: true },
            Operator::AvgPool2dGrad { pool, count_padding: false },
            Operator::AdaptiveAvgPool2d,
            Operator::AdaptiveAvgPool2dGrad,
            random(Distribution::Uniform { low: -0.5, high: 1.5 }),
            random(Distribution::Normal { mean: 2.0, deviation: 0.25 }),
            random(Distribution::Bernoulli { probability: 0.1 }),
            random(Distribution::Integers { low: i64::MIN, high: 7 }),
        ]);
        all
    }

    fn again(operator: &Operator, leave_out: &str) -> Result<Operator, DescriptionError> {
        let options = operator.options();
        let options: Vec<_> = options.iter().map(|option| (option.name, &option.values[..])).collect();
        let kept: Vec<_> = options.into_iter().filter(|(name, _)| *name != leave_out).collect();
        Operator::from_description(operator.name(), &kept)
    }

    #[test]
    fn each_operator_is_made_again_from_its_name_and_options() {
        let names: Vec<&str> = Operator::names().collect();
        let different: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(different.len(), names.len());
        assert_eq!(different, all().iter().map(Operator::name).collect());
        for operator in all() {
            assert_eq!(again(&operator, "").unwrap(), operator, "{operator}");
        }
    }

    #[test]
    fn an_operator_without_one_of_its_options_is_an_error_that_names_it() {
        // The options of an expression are its steps, of which a shorter list may be another one.
        for operator in all().into_iter().filter(|operator| !matches!(operator, Operator::Expression(_))) {
            for option in operator.options() {
                let error = again(&operator, option.name).unwrap_err().to_string();
                let expected =
                    format!("the operator `{}` has no valid option `{}`", operator.name(), option.name);
                assert!(error.starts_with(&expected), "{error}");
            }
        }
    }

    #[test]
    fn wrong_values_and_unknown_names_are_errors() {
        let softmax = |values: &[Scalar]| Operator::from_description("softmax", &[("dim", values)]);
        assert!(softmax(&[]).is_err());
        assert!(softmax(&[Scalar::Int(-1)]).is_err());
        assert!(softmax(&[Scalar::Int(0), Scalar::Int(1)]).is_err());
        assert!(softmax(&[Scalar::Float(1.0)]).is_err() && softmax(&[Scalar::Bool(true)]).is_err());
        let sort = |dim, descending| {
            Operator::from_description("sort_values", &[("dim", &[dim]), ("descending", &[descending])])
        };
        assert!(sort(Scalar::Int(0), Scalar::Bool(true)).is_ok());
        assert!(sort(Scalar::Int(0), Scalar::Int(1)).is_err());
        let sum = |dim| Operator::from_description("reduce_sum", &[("dims", &[dim])]);
        assert!(sum(Scalar::Int(0)).is_ok() && sum(Scalar::Float(f64::NAN)).is_err());
        let error = Operator::from_description("softmx", &[]).unwrap_err().to_string();
        assert!(error.contains("softmx"), "{error}");
    }
}
