//! Operators that run graphs. The nodes of these graphs are taken one by one.

use super::{Control, Plan, Row, Way, declined};
use crate::failure::Failure;
use crate::node::Node;

pub(super) const ROWS: &[Row] = &[
    Row::new("If", |node| prepare(node, Control::If)).host(&[0]),
    Row::new("Loop", |node| prepare(node, Control::Loop)).host(&[0, 1]),
    Row::new("Scan", |node| prepare(node, Control::Scan)).since(9),
];

fn prepare(node: &Node, control: Control) -> Result<Plan, Failure> {
    let values = || node.inputs.iter().chain(&node.outputs).flatten();
    if values().any(|value| value.dtype.is_none()) {
        return declined("no kernel has the type of one of its values");
    }
    let copied = values().filter(|_| control == Control::Scan);
    let needs = copied.filter_map(|value| value.dtype).map(|dtype| ("copy", dtype)).collect();
    Ok(Plan { needs, way: Way::Control(control) })
}
