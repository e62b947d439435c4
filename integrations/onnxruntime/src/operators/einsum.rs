//! Einstein's summation, by products of matrices.

use std::collections::BTreeSet;

use device_kernels::{Layout, MAX_RANK, Operator, Reduction};

use super::{Plan, Row, declined};
use crate::context::{Array, Context, Shape};
use crate::failure::Failure;
use crate::node::Kind::Text;
use crate::node::Node;

pub(super) const ROWS: &[Row] = &[Row::new("Einsum", einsum).attributes(&[("equation", Text)])];

/// A subscript. The dimensions of an ellipsis are numbered from the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Hidden(usize),
    Letter(char),
}

/// The subscripts of one operand.
#[derive(Clone, Debug, PartialEq)]
struct Term {
    before: Vec<char>,
    /// Whether there is an ellipsis, and what is behind it.
    behind: Option<Vec<char>>,
}

impl Term {
    fn parse(text: &str) -> Result<Self, Failure> {
        let letters = |text: &str| match text.chars().find(|letter| !letter.is_ascii_alphabetic()) {
            Some(other) => declined(format_args!("`{other}` in its equation")),
            None => Ok(text.chars().collect::<Vec<char>>()),
        };
        match text.split_once("...") {
            Some((before, behind)) => Ok(Self { before: letters(before)?, behind: Some(letters(behind)?) }),
            None => Ok(Self { before: letters(text)?, behind: None }),
        }
    }

    /// The labels of an array's dimensions, of which the ellipsis has `hidden`.
    fn labels(&self, hidden: usize) -> Vec<Label> {
        let letters =
            |letters: &[char]| letters.iter().map(|&letter| Label::Letter(letter)).collect::<Vec<_>>();
        let mut labels = letters(&self.before);
        if let Some(behind) = &self.behind {
            labels.extend((0..hidden).rev().map(Label::Hidden));
            labels.extend(letters(behind));
        }
        labels
    }

    fn letters(&self) -> impl Iterator<Item = char> {
        self.before.iter().chain(self.behind.iter().flatten()).copied()
    }

    fn named(&self) -> usize {
        self.letters().count()
    }
}

/// An equation: the operands, and the result if it is given.
#[derive(Clone, Debug, PartialEq)]
struct Equation {
    terms: Vec<Term>,
    result: Option<Term>,
}

impl Equation {
    fn parse(text: &str) -> Result<Self, Failure> {
        let text: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
        let (terms, result) = match text.split_once("->") {
            Some((terms, result)) => (terms, Some(Term::parse(result)?)),
            None => (text.as_str(), None),
        };
        Ok(Self { terms: terms.split(',').map(Term::parse).collect::<Result<_, _>>()?, result })
    }

    /// The labels of the result. Without a result, those that are once in the terms, by the alphabet.
    fn result(&self, terms: &[Vec<Label>], hidden: usize) -> Vec<Label> {
        if let Some(result) = &self.result {
            return result.labels(hidden);
        }
        let mut labels: Vec<Label> = (0..hidden).rev().map(Label::Hidden).collect();
        let all: Vec<Label> = terms.iter().flatten().copied().collect();
        let once: BTreeSet<Label> = all.iter().copied().collect();
        labels.extend(once.into_iter().filter(|label| {
            matches!(label, Label::Letter(_)) && all.iter().filter(|other| *other == label).count() == 1
        }));
        labels
    }
}

fn einsum(node: &Node) -> Result<Plan, Failure> {
    let equation = Equation::parse(node.text("equation").unwrap_or_default())?;
    if equation.terms.len() != node.inputs.len() {
        return declined("its equation has another number of terms");
    }
    let hides = |term: &Term| term.behind.is_some();
    if equation.terms.iter().any(hides) && equation.result.as_ref().is_some_and(|result| !hides(result)) {
        return declined("its result has no ellipsis");
    }
    // A product may have all of them.
    let letters: BTreeSet<char> = equation.terms.iter().flat_map(Term::letters).collect();
    let mut hidden = 0;
    for (at, term) in equation.terms.iter().enumerate().filter(|(_, term)| hides(term)) {
        hidden = hidden.max(node.rank(at)?.saturating_sub(term.named()));
    }
    if letters.len() + hidden > MAX_RANK {
        return declined(format_args!("{} labels", letters.len() + hidden));
    }
    let dtype = node.input(0)?;
    let names = ["matmul", "reduce_sum", "copy"];
    Plan::new(names.map(|name| (name, dtype)), move |context| run(context, &equation))
}

/// An array whose dimensions have labels, each of them one.
struct Labelled {
    labels: Vec<Label>,
    array: Array,
}

fn run(context: &Context, equation: &Equation) -> Result<(), Failure> {
    let arrays = (0..equation.terms.len()).map(|at| context.array(at)).collect::<Result<Vec<_>, _>>()?;
    let mut hidden = 0;
    for (term, array) in equation.terms.iter().zip(&arrays) {
        let Some(more) = array.rank().checked_sub(term.named()) else {
            return declined(format_args!("{} dimensions, and {} labels", array.rank(), term.named()));
        };
        if more > 0 && term.behind.is_none() {
            return declined(format_args!("{} dimensions, and {} labels", array.rank(), term.named()));
        }
        hidden = hidden.max(more);
    }
    let terms: Vec<Vec<Label>> = (equation.terms.iter().zip(&arrays))
        .map(|(term, array)| term.labels(array.rank() - term.named()))
        .collect();
    let result = equation.result(&terms, hidden);
    let mut operands = Vec::new();
    for (labels, array) in terms.iter().zip(arrays) {
        operands.push(diagonal(labels, array)?);
    }
    let mut operands = operands.into_iter();
    let Some(mut left) = operands.next() else { return declined("no term") };
    while let Some(right) = operands.next() {
        let later: BTreeSet<Label> =
            operands.as_slice().iter().flat_map(|other| other.labels.clone()).collect();
        let is_kept = |label: &Label| result.contains(label) || later.contains(label);
        left = product(context, &left, &right, is_kept)?;
    }
    let left = summed(context, left, |label| result.contains(label))?;
    let shape: Shape = result.iter().map(|label| size_of(&left, *label)).collect();
    let out = context.output(0, &shape)?;
    context.copy(&ordered(&left, &result)?, &out)
}

/// Sees each label once: a label that is twice is the diagonal.
fn diagonal(labels: &[Label], array: Array) -> Result<Labelled, Failure> {
    let mut kept: Vec<Label> = Vec::new();
    let mut shape = Shape::new();
    let mut strides: Vec<isize> = Vec::new();
    for ((&label, &size), &stride) in labels.iter().zip(array.shape()).zip(array.layout.strides()) {
        match kept.iter().position(|other| *other == label) {
            Some(at) if shape[at] == size => strides[at] += stride,
            Some(at) => return declined(format_args!("one label for the sizes {} and {size}", shape[at])),
            None => {
                kept.push(label);
                shape.push(size);
                strides.push(stride);
            }
        }
    }
    let layout = Layout::strided(&shape, &strides, array.layout.offset())?;
    Ok(Labelled { labels: kept, array: array.with_layout(layout) })
}

fn size_of(of: &Labelled, label: Label) -> usize {
    of.labels.iter().position(|other| *other == label).map_or(1, |at| of.array.shape()[at])
}

/// The array with dimensions in the order of the labels, of which those that it lacks have one element.
fn ordered(of: &Labelled, labels: &[Label]) -> Result<Array, Failure> {
    let there: Vec<usize> =
        labels.iter().filter_map(|label| of.labels.iter().position(|other| other == label)).collect();
    let array = of.array.with_layout(of.array.layout.permute(there)?);
    array.reshaped(labels.iter().map(|label| size_of(of, *label)).collect::<Shape>())
}

/// Sums over the labels that are not kept.
fn summed(context: &Context, of: Labelled, is_kept: impl Fn(&Label) -> bool) -> Result<Labelled, Failure> {
    let dims: Vec<usize> = (0..of.labels.len()).filter(|&at| !is_kept(&of.labels[at])).collect();
    if dims.is_empty() {
        return Ok(of);
    }
    let mut shape = Shape::from_slice(of.array.shape());
    dims.iter().for_each(|&dim| shape[dim] = 1);
    let out = context.scratch(of.array.dtype, &shape)?;
    let reduce = Operator::Reduce { reduction: Reduction::Sum, dims: dims.iter().copied().collect() };
    context.run(reduce, &[(&of.array).into()], &[&out])?;
    let labels: Vec<Label> = of.labels.iter().copied().filter(&is_kept).collect();
    let kept: Shape = (0..shape.len()).filter(|at| !dims.contains(at)).map(|at| shape[at]).collect();
    Ok(Labelled { labels, array: out.reshaped(kept)? })
}

/// The product of two, summed over the labels that both have and that are not kept.
fn product(
    context: &Context,
    left: &Labelled,
    right: &Labelled,
    is_kept: impl Fn(&Label) -> bool,
) -> Result<Labelled, Failure> {
    let both = |label: &Label| left.labels.contains(label) && right.labels.contains(label);
    let sum = |of: &Labelled| {
        let of = Labelled { labels: of.labels.clone(), array: of.array.clone() };
        summed(context, of, |label| both(label) || is_kept(label))
    };
    let left = &sum(left)?;
    let right = &sum(right)?;
    let [mut batch, mut of_left, mut of_right, mut inner] = [const { Vec::new() }; 4];
    for &label in &left.labels {
        match (right.labels.contains(&label), is_kept(&label)) {
            (true, true) => batch.push(label),
            (true, false) => inner.push(label),
            (false, _) => of_left.push(label),
        }
    }
    of_right.extend(right.labels.iter().copied().filter(|label| !left.labels.contains(label)));
    // A dimension of one element is repeated.
    let size = |label: &Label| match size_of(left, *label) {
        1 => size_of(right, *label),
        size => size,
    };
    let sizes = |labels: &[Label]| labels.iter().map(size).collect::<Shape>();
    let len = |labels: &[Label]| sizes(labels).iter().product::<usize>();
    let matrix = |of: &Labelled, labels: [&[Label]; 3]| {
        let order = labels.concat();
        let array = ordered(of, &order)?.broadcast_to(sizes(&order))?;
        let shape = labels.map(len);
        match array.reshaped(shape) {
            Ok(matrix) => Ok(matrix),
            Err(_) => {
                let copy = context.scratch(array.dtype, array.shape())?;
                context.copy(&array, &copy)?;
                copy.reshaped(shape)
            }
        }
    };
    let a = matrix(left, [&batch, &of_left, &inner])?;
    let b = matrix(right, [&batch, &inner, &of_right])?;
    let out = context.scratch(a.dtype, &[len(&batch), len(&of_left), len(&of_right)])?;
    context.run(Operator::MatMul, &[a.into(), b.into()], &[&out])?;
    let labels = [batch, of_left, of_right].concat();
    let array = out.reshaped(sizes(&labels))?;
    Ok(Labelled { labels, array })
}
