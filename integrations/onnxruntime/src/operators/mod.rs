//! ONNX's operators, by the operators of device-kernels that compute them.

mod attention;
mod control;
mod einsum;
mod elementwise;
mod images;
mod indices;
mod matrices;
mod norms;
mod quantized;
mod recurrent;
mod reductions;
mod resampling;
mod shapes;

use device_kernels::DType;

use crate::context::{Array, Context};
use crate::failure::Failure;
use crate::node::{Kind, Node};

/// An operator of ONNX.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// The versions of the operator, by the operator set that each is new in.
    pub(crate) first: i32,
    pub(crate) last: i32,
    pub(crate) attributes: &'static [(&'static str, Kind)],
    /// The inputs that the operator reads on the host, such as a shape.
    pub(crate) host: &'static [usize],
    /// Whether its output is in memory of the host, as a shape is.
    pub(crate) has_host_output: bool,
    pub(crate) output_memory: OutputMemory,
    /// Says how a node is computed, or why it is not.
    pub(crate) prepare: fn(&Node) -> Result<Plan, Failure>,
}

/// An operator that runs graphs, for which ONNX Runtime has kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    If,
    Loop,
    Scan,
}

/// What memory ONNX Runtime may give the first output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputMemory {
    Own,
    /// The first input's, as the elements are the same, even where that input is read later.
    FirstInput,
    /// One of the first inputs', so many of them, where it is of the same shape and is not read later.
    AnyInput(usize),
}

/// A later version than any.
const NEWEST: i32 = 1000;

impl Row {
    /// An operator without attributes, whose versions mean the same.
    const fn new(name: &'static str, prepare: fn(&Node) -> Result<Plan, Failure>) -> Self {
        Self {
            name,
            first: 1,
            last: NEWEST,
            attributes: &[],
            host: &[],
            has_host_output: false,
            output_memory: OutputMemory::Own,
            prepare,
        }
    }

    const fn since(self, first: i32) -> Self {
        Self { first, ..self }
    }

    const fn until(self, last: i32) -> Self {
        Self { last, ..self }
    }

    const fn attributes(self, attributes: &'static [(&'static str, Kind)]) -> Self {
        Self { attributes, ..self }
    }

    const fn with_host_output(self) -> Self {
        Self { has_host_output: true, ..self }
    }

    const fn output_in(self, output_memory: OutputMemory) -> Self {
        Self { output_memory, ..self }
    }

    const fn host(self, host: &'static [usize]) -> Self {
        Self { host, ..self }
    }
}

/// All operators, in tables of their kind.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    let tables: [&[Row]; 13] = [
        attention::ROWS,
        control::ROWS,
        einsum::ROWS,
        elementwise::ROWS,
        images::ROWS,
        indices::ROWS,
        matrices::ROWS,
        norms::ROWS,
        quantized::ROWS,
        recurrent::ROWS,
        reductions::ROWS,
        resampling::ROWS,
        shapes::ROWS,
    ];
    tables.into_iter().flatten()
}

/// The row of a node's operator.
pub(crate) fn row_of(node: &Node) -> Result<&'static Row, Failure> {
    let mut named = rows().filter(|row| row.name == node.operator).peekable();
    if named.peek().is_none() {
        return Err(Failure::new("there is no such operator here"));
    }
    named
        .find(|row| (row.first..=row.last).contains(&node.since))
        .ok_or_else(|| Failure::new(format_args!("version {} of the operator is not here", node.since)))
}

/// Computes a node.
pub(crate) type Run = Box<dyn Fn(&Context) -> Result<(), Failure> + Send + Sync>;

/// How a node is computed.
pub(crate) struct Plan {
    /// The operators of device-kernels, by name and type, that it takes.
    pub(crate) needs: Vec<(&'static str, DType)>,
    pub(crate) way: Way,
}

/// Who computes a node.
pub(crate) enum Way {
    /// A function of this library.
    Run(Run),
    /// ONNX Runtime.
    Control(Control),
}

impl Plan {
    fn new(
        needs: impl IntoIterator<Item = (&'static str, DType)>,
        run: impl Fn(&Context) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Result<Self, Failure> {
        Ok(Self { needs: needs.into_iter().collect(), way: Way::Run(Box::new(run)) })
    }

    /// An operator whose output is a copy of elements of its first input, in another order or shape.
    fn view(
        node: &Node,
        view: impl Fn(&Context, &Array) -> Result<Array, Failure> + Send + Sync + 'static,
    ) -> Result<Self, Failure> {
        Self::new([("copy", node.moved(0)?)], move |context| {
            let viewed = view(context, &context.array(0)?)?;
            let out = context.output(0, viewed.shape())?;
            if out.is(&viewed) { Ok(()) } else { context.copy(&viewed, &out) }
        })
    }
}

fn declined<T>(why: impl std::fmt::Display) -> Result<T, Failure> {
    Err(Failure::new(why))
}

/// Declines unless an attribute is absent or has this value.
fn expect_int(node: &Node, name: &str, value: i64) -> Result<(), Failure> {
    match node.int(name) {
        Some(other) if other != value => declined(format_args!("`{name}` is {other}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;

    /// The page that lists the operators.
    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/onnxruntime.md");

    /// `DEVICE_ORT_WRITE_OPERATORS=1` writes the list.
    #[test]
    fn the_page_lists_all_operators() {
        let page = fs::read_to_string(PAGE).unwrap();
        let (before, rest) = page.split_once("<!-- operators -->\n").unwrap();
        let (listed, behind) = rest.split_once("<!-- end of operators -->").unwrap();
        let names: BTreeSet<&str> = rows().map(|row| row.name).collect();
        let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
        let mut lines = String::new();
        let mut line = String::new();
        for (at, name) in names.iter().enumerate() {
            let end = if at + 1 == names.len() { "." } else { "," };
            if line.len() + name.len() + 2 > 110 {
                lines += &format!("{}\n", line.trim_end());
                line.clear();
            }
            line += &format!("{name}{end} ");
        }
        lines += &format!("{}\n", line.trim_end());
        if std::env::var_os("DEVICE_ORT_WRITE_OPERATORS").is_some() {
            fs::write(PAGE, format!("{before}<!-- operators -->\n{lines}<!-- end of operators -->{behind}"))
                .unwrap();
            return;
        }
        assert_eq!(listed, lines, "DEVICE_ORT_WRITE_OPERATORS=1 cargo test writes the list");
    }

    #[test]
    fn the_versions_of_an_operator_do_not_overlap() {
        let all: Vec<_> = rows().collect();
        for (at, row) in all.iter().enumerate() {
            assert!(row.first <= row.last, "{}", row.name);
            for other in &all[at + 1..] {
                let is_apart = row.last < other.first || other.last < row.first;
                assert!(row.name != other.name || is_apart, "{} has two rows for one version", row.name);
            }
        }
    }
}
