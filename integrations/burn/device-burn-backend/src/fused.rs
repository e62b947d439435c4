//! How a chain runs: as one expression, or one operation after the other.
//!
//! An expression and its plan are kept for each sequence of operators with its types and layouts. The numbers
//! of the program are not part of it: they may be others in the next step of a training.

use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::mem::discriminant;
use std::sync::Arc;

use burn_backend::DType;
use device_kernels::{
    Argument, Call, DType as KernelDType, Expression, ExpressionBuilder, ExpressionValue, Layout, Operator,
    Planned, Scalar,
};
use device_registry::Device;
use device_registry::backend::BackendError;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::chain::{self, Called, Input, Live, Node, Recorded, Source};
use crate::client::{Client, Inputs, READ};
use crate::counts::{Moved, Way};
use crate::dtype::dtype_of;
use crate::elementwise::Elementwise;
use crate::failure::{Cause, Failure, Unreported};
use crate::fallback;
use crate::mapping::layout_of;
use crate::operation::{OperationName, Signature, Work, copy};
use crate::queue::{Refused, Target, Written};
use crate::step::{self, Memory};
use crate::storage::{Settled, Storage};
use crate::table::RegistryTensor;

/// How many plans are kept. Then all are forgotten.
const MOST_PLANS: usize = 1024;

/// How many expressions a device makes at most: they stay for the life of the program. After them, chains
/// that have no plan run one operation after the other.
const MOST_EXPRESSIONS: usize = 4096;

/// The plans of one device.
#[derive(Default)]
pub(crate) struct Plans(Mutex<Known>);

#[derive(Default)]
struct Known {
    plans: HashMap<Key, Option<Arc<Plan>>, foldhash::fast::RandomState>,
    /// They have no shapes: plans that differ in those alone have one.
    expressions: HashSet<Expression>,
}

/// An expression, and the kernels that do it.
struct Plan {
    expression: Expression,
    planned: Planned,
}

/// What a plan follows from.
#[derive(Clone, PartialEq)]
struct Key {
    shape: SmallVec<[usize; 4]>,
    nodes: Vec<Node>,
    slots: Vec<(KernelDType, Layout)>,
    outputs: SmallVec<[usize; 8]>,
}

/// Nodes have no numbers of floating point.
impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.shape.hash(state);
        self.slots.hash(state);
        self.outputs.hash(state);
        for node in &self.nodes {
            // Options are compared, and need not all be in the hash.
            discriminant(&node.operator).hash(state);
            match node.operator {
                Operator::Unary(unary) => unary.hash(state),
                Operator::Binary(binary) => binary.hash(state),
                Operator::Compare(compare) => compare.hash(state),
                Operator::Reduce { reduction, dims } => (reduction, dims).hash(state),
                _ => {}
            }
            (&node.operands, node.from, node.to).hash(state);
        }
    }
}

/// The part of a chain that results are needed of.
struct Needed {
    key: Key,
    /// The places of its slots among the chain's.
    slots: SmallVec<[usize; 8]>,
    scalars: SmallVec<[Scalar; 8]>,
    /// Its operations.
    records: SmallVec<[usize; 16]>,
}

impl Needed {
    /// `None` if a tensor has a type or layout that kernels do not have.
    fn of(recorded: &Recorded, live: &[Live]) -> Option<Self> {
        let is_needed = is_needed(recorded, live);
        let mut slots = SmallVec::<[usize; 8]>::new();
        let mut scalars = SmallVec::new();
        let mut places: SmallVec<[u8; 48]> = SmallVec::from_elem(0, recorded.nodes.len());
        let mut nodes = Vec::with_capacity(recorded.nodes.len());
        let mut records = SmallVec::new();
        for (place, node) in recorded.nodes.iter().enumerate().filter(|(place, _)| is_needed[*place]) {
            let mut node = node.clone();
            for operand in &mut node.operands {
                match operand {
                    Source::Slot(slot) => {
                        let of_chain = usize::from(*slot);
                        let found = slots.iter().position(|slot| *slot == of_chain);
                        *slot = number(found.unwrap_or_else(|| {
                            slots.push(of_chain);
                            slots.len() - 1
                        }));
                    }
                    Source::Scalar(scalar) => {
                        scalars.push(recorded.scalars[usize::from(*scalar)]);
                        *scalar = number(scalars.len() - 1);
                    }
                    Source::Node(node) => *node = places[usize::from(*node)],
                    Source::Zero | Source::One => {}
                }
            }
            places[place] = number(nodes.len());
            nodes.push(node);
            records.push(place);
        }
        let shape: SmallVec<[usize; 4]> = SmallVec::from_slice(&recorded.shape);
        let array = |slot: &usize| {
            let tensor = &recorded.slots[*slot];
            Some((dtype_of(tensor.dtype)?, layout_of(&tensor.layout)?.broadcast_to(&shape).ok()?))
        };
        let arrays = slots.iter().map(array).collect::<Option<_>>()?;
        let outputs = live.iter().map(|(record, _)| usize::from(places[*record])).collect();
        Some(Self { key: Key { shape, nodes, slots: arrays, outputs }, slots, scalars, records })
    }
}

impl Needed {
    /// For each output, the input whose memory it takes, as nothing else has that any more.
    fn in_place(
        &self,
        recorded: &Recorded,
        memories: &[Option<Written>],
        lens: &[usize],
    ) -> SmallVec<[Option<usize>; 8]> {
        let mut places = SmallVec::<[Option<usize>; 8]>::new();
        for (node, len) in self.key.outputs.iter().zip(lens) {
            let node = &self.key.nodes[*node];
            let layout = self.key.layout(node);
            let fits = |place: &usize| {
                let (dtype, of_input) = &self.key.slots[*place];
                let memory = memories[*place].as_ref();
                *dtype == node.to
                    && Some(*of_input) == layout
                    && Arc::strong_count(&recorded.slots[self.slots[*place]].storage) == 1
                    && memory.is_some_and(|(buffer, _)| buffer.len() == *len)
                    && !places.contains(&Some(*place))
            };
            let place = (0..self.slots.len()).find(fits);
            places.push(place);
        }
        places
    }
}

/// For each operation, whether a result that something may still need follows from it.
fn is_needed(recorded: &Recorded, live: &[Live]) -> SmallVec<[bool; 48]> {
    let mut is_needed = SmallVec::from_elem(false, recorded.nodes.len().max(recorded.records.len()));
    live.iter().for_each(|(record, _)| is_needed[*record] = true);
    for (place, node) in recorded.nodes.iter().enumerate().rev() {
        if is_needed[place] {
            for operand in &node.operands {
                if let Source::Node(node) = operand {
                    is_needed[usize::from(*node)] = true;
                }
            }
        }
    }
    is_needed
}

fn number(place: usize) -> u8 {
    u8::try_from(place).unwrap_or(u8::MAX)
}

impl Key {
    /// The layout of the result of a node.
    fn layout(&self, node: &Node) -> Option<Layout> {
        let dims = self.nodes.iter().find_map(|node| match node.operator {
            Operator::Reduce { dims, .. } => Some(dims),
            _ => None,
        });
        let size = |(dim, size): (usize, &usize)| match dims {
            Some(dims) if node.is_reduced && dims.contains(dim) => 1,
            _ => *size,
        };
        let shape: SmallVec<[usize; 8]> = self.shape.iter().enumerate().map(size).collect();
        Layout::contiguous(&shape[..]).ok()
    }

    /// The plan, or nothing if there is no such expression, or no set has its operators.
    fn plan(&self, device: Device, scalars: &[Scalar]) -> Option<Plan> {
        let expression = Expression::build(|e| self.build(e, scalars.len())).ok()?;
        let arrays = self.slots.iter().map(|(dtype, layout)| Argument::Array(*dtype, *layout));
        let inputs: SmallVec<[Argument; 16]> =
            arrays.chain(scalars.iter().map(|scalar| Argument::Scalar(*scalar))).collect();
        let output = |node: &usize| {
            let node = &self.nodes[*node];
            Some(Argument::Array(node.to, self.layout(node)?))
        };
        let outputs = self.outputs.iter().map(output).collect::<Option<SmallVec<[Argument; 8]>>>()?;
        let call = Call::new(expression, &inputs, &outputs).ok()?;
        // Where no array has the shape of the operations, reductions would be of other elements.
        let planned = (call.shape() == &self.shape[..]).then(|| Planned::new(device, call))?.ok()?;
        Some(Plan { expression, planned })
    }

    fn build(&self, e: &ExpressionBuilder, scalars: usize) {
        let slots: SmallVec<[ExpressionValue<'_>; 16]> =
            self.slots.iter().map(|(dtype, _)| e.input(*dtype)).collect();
        // A scalar has the type of the operand that it is.
        let mut types: SmallVec<[KernelDType; 16]> = SmallVec::from_elem(KernelDType::F32, scalars);
        for node in &self.nodes {
            for (place, operand) in node.operands.iter().enumerate() {
                if let Source::Scalar(scalar) = operand {
                    types[usize::from(*scalar)] = Elementwise::operand_type(node.operator, node.from, place);
                }
            }
        }
        let scalars: SmallVec<[ExpressionValue<'_>; 16]> =
            types.iter().map(|dtype| e.input(*dtype)).collect();
        let mut values = SmallVec::<[ExpressionValue<'_>; 48]>::new();
        for node in &self.nodes {
            let operand = |(place, operand): (usize, &Source)| {
                let dtype = Elementwise::operand_type(node.operator, node.from, place);
                match *operand {
                    Source::Slot(slot) => slots[usize::from(slot)],
                    Source::Scalar(scalar) => scalars[usize::from(scalar)],
                    Source::Node(node) => values[usize::from(node)],
                    Source::Zero => e.literal(dtype, 0),
                    Source::One => e.literal(dtype, 1),
                }
            };
            let operands: SmallVec<[ExpressionValue<'_>; 3]> =
                node.operands.iter().enumerate().map(operand).collect();
            values.push(match node.operator {
                Operator::Copy => operands[0].cast(node.to),
                operator => e.apply(operator, &operands),
            });
        }
        self.outputs.iter().for_each(|node| e.output(values[*node]));
    }
}

impl Plans {
    /// The plan for `needed`, or nothing if its operations have to run one after the other.
    fn get(&self, device: Device, needed: &Needed) -> Option<Arc<Plan>> {
        {
            let known = self.0.lock();
            if let Some(plan) = known.plans.get(&needed.key) {
                return plan.clone();
            }
            if known.expressions.len() >= MOST_EXPRESSIONS {
                return None;
            }
        }
        // Outside the lock: a kernel set may take long, or panic. Then each operation finds it out by itself.
        let plan = fallback::isolate(|| needed.key.plan(device, &needed.scalars));
        let plan = plan.ok().flatten().map(Arc::new);
        let mut known = self.0.lock();
        if known.plans.len() >= MOST_PLANS {
            known.plans.clear();
        }
        known.plans.insert(needed.key.clone(), plan.clone());
        if let Some(plan) = &plan
            && known.expressions.insert(plan.expression)
            && known.expressions.len() == MOST_EXPRESSIONS
        {
            log::warn!("{device} has made {MOST_EXPRESSIONS} expressions: no further ones run together");
        }
        plan
    }
}

impl Client {
    /// Runs the operations of a chain of the thread `owner` that the results `live` follow from, and gives
    /// each its bytes or the failure.
    pub(crate) fn run_chain(
        &self,
        owner: &Unreported,
        recorded: Box<Recorded>,
        live: SmallVec<[Live; 8]>,
        moved: &mut Moved,
    ) {
        if live.is_empty() {
            return;
        }
        let name = recorded.records[live[0].0].called.name;
        let results = fallback::isolate(|| self.results(owner, recorded, &live, moved));
        let results = results.unwrap_or_else(|panic| {
            let error = BackendError::other(format_args!("it panicked: {panic}"));
            let signature = Signature::of_fused(name.into(), Vec::new(), Vec::new());
            let failure = self.failure_of(Some(owner), signature, Cause::Device(Refused::Unwritten(error)));
            live.iter().map(|_| Err(failure.clone())).collect()
        });
        for ((_, storage), result) in live.iter().zip(results) {
            storage.settled(result);
        }
    }

    fn results(
        &self,
        owner: &Unreported,
        mut recorded: Box<Recorded>,
        live: &[Live],
        moved: &mut Moved,
    ) -> Vec<Result<Settled, Failure>> {
        if recorded.records.len() > 1
            && live.len() <= Expression::MOST_OUTPUTS
            && let Some(needed) = Needed::of(&recorded, live)
            && needed.records.len() > 1
            && let Some(plan) = self.plans.get(self.queue.device(), &needed)
        {
            return self.fused(owner, &mut recorded, &needed, &plan, live, moved);
        }
        self.one_by_one(owner, recorded, live, moved)
    }

    /// Runs the operations as one expression.
    fn fused(
        &self,
        owner: &Unreported,
        recorded: &mut Recorded,
        needed: &Needed,
        plan: &Plan,
        live: &[Live],
        moved: &mut Moved,
    ) -> Vec<Result<Settled, Failure>> {
        let called = |record: &usize| &*recorded.records[*record].called;
        let operations: Arc<[OperationName]> =
            needed.records.iter().map(|record| called(record).name).collect();
        let work = Work::Fused { expression: plan.expression.name(), operations: Arc::clone(&operations) };
        let slots: SmallVec<[&RegistryTensor; 16]> =
            needed.slots.iter().map(|slot| &recorded.slots[*slot]).collect();
        let planned = plan.planned.with_scalars(&needed.scalars);
        let arrays: SmallVec<[Memory; 16]> =
            (0..slots.len()).map(Memory::Input).chain((0..live.len()).map(Memory::Output)).collect();
        let (steps, temporaries) = step::launches(&planned, &arrays, live.len());
        let len = |(record, _): &Live| {
            let out = &called(record).operands.outputs[0];
            out.shape.num_elements() * out.dtype.size()
        };
        let lens: SmallVec<[usize; 8]> = live.iter().map(len).collect();
        let storages: SmallVec<[Option<&Storage>; 16]> =
            slots.iter().map(|slot| Some(&*slot.storage)).collect();
        let mut chain_moved = Moved::default();
        let written = self.on_device(&storages, &mut chain_moved, |memories| {
            let in_place = if planned.is_in_parts() {
                SmallVec::from_elem(None, live.len())
            } else {
                needed.in_place(recorded, memories, &lens)
            };
            let target =
                |(len, place): (&usize, Option<usize>)| place.map_or(Target::New(*len), Target::InPlace);
            let targets: SmallVec<[Target; 8]> = lens
                .iter()
                .zip(in_place)
                .map(target)
                .chain(temporaries.iter().map(|bytes| Target::New(*bytes)))
                .collect();
            self.queue.run(&work, &steps, memories, &targets)
        });
        let first = called(&needed.records[0]).name;
        self.counters.count_moved(first, &chain_moved);
        moved.waits_for(chain_moved.into_earlier());
        match written {
            Ok(written) => {
                operations.iter().for_each(|name| self.counters.count(*name, Way::Fused, &Moved::default()));
                self.counters.count_launch(plan.expression.name(), operations.len(), steps.len());
                written.into_iter().take(live.len()).map(|written| Ok(Settled::from(written))).collect()
            }
            Err(refused) => {
                operations.iter().for_each(|name| self.counters.count(*name, Way::Failed, &Moved::default()));
                let inputs = slots.iter().map(|slot| (slot.dtype, slot.shape().clone())).collect();
                let output = |(record, _): &Live| {
                    let out = &called(record).operands.outputs[0];
                    (out.dtype, out.shape.clone())
                };
                let outputs: Vec<(DType, _)> = live.iter().map(output).collect();
                let signature = Signature::of_fused(work, inputs, outputs);
                let failure = self.failure_of(Some(owner), signature, Cause::Device(refused));
                live.iter().map(|_| Err(failure.clone())).collect()
            }
        }
    }

    /// A tensor of one value that an operation of a chain needs. While it waits, this one is made anew.
    fn filled(
        &self,
        owner: &Unreported,
        tensor: RegistryTensor,
        moved: &mut Moved,
    ) -> Result<RegistryTensor, Failure> {
        let Some(Called { operation, name, mut operands }) = chain::filling(&tensor) else {
            return Ok(tensor);
        };
        // Of a view, no more than that.
        operands.outputs[0].shape = copy(tensor.layout.shape());
        let mut of_fill = Moved::default();
        let filled = self.outputs(operation, name, &operands, Inputs::new(), &mut of_fill);
        moved.waits_for(of_fill.into_earlier());
        let (outputs, _) =
            filled.map_err(|cause| self.failure_of(Some(owner), Signature::new(name, &operands), cause))?;
        Ok(outputs.into_iter().next().unwrap_or(tensor))
    }

    /// Runs each operation by itself, in their order.
    fn one_by_one(
        &self,
        owner: &Unreported,
        recorded: Box<Recorded>,
        live: &[Live],
        moved: &mut Moved,
    ) -> Vec<Result<Settled, Failure>> {
        let is_needed = is_needed(&recorded, live);
        let is_live = |record: usize| live.iter().any(|(live, _)| *live == record);
        // How often each tensor is still to be used: at its last use it is given away.
        let mut slots: Vec<(Option<RegistryTensor>, usize)> =
            recorded.slots.into_iter().map(|slot| (Some(slot), 0)).collect();
        let mut results: Vec<(Option<Result<RegistryTensor, Failure>>, usize)> =
            (0..recorded.records.len()).map(|record| (None, usize::from(is_live(record)))).collect();
        let records = || recorded.records.iter().enumerate().filter(|(record, _)| is_needed[*record]);
        for input in records().flat_map(|(_, record)| &record.inputs) {
            match input {
                Input::Slot(slot) => slots[usize::from(*slot)].1 += 1,
                Input::Record(record) => results[usize::from(*record)].1 += 1,
                Input::Fill(_) => {}
            }
        }
        let needed = is_needed.iter();
        for ((place, record), is_needed) in recorded.records.into_iter().enumerate().zip(needed) {
            // Unneeded operations are dropped.
            if !is_needed {
                continue;
            }
            let mut inputs = Inputs::new();
            let mut failed = None;
            for input in record.inputs {
                let tensor = match input {
                    Input::Slot(slot) => take(&mut slots[usize::from(slot)]).map(Ok),
                    Input::Record(record) => take(&mut results[usize::from(record)]),
                    Input::Fill(tensor) => Some(self.filled(owner, *tensor, moved)),
                };
                match tensor {
                    Some(Ok(tensor)) => inputs.push(tensor),
                    Some(Err(failure)) => failed = failed.or(Some(failure)),
                    None => {}
                }
            }
            let Called { operation, name, operands } = *record.called;
            let mut of_record = Moved::default();
            let result = failed.map_or(Ok(()), Err).and_then(|()| {
                self.outputs(operation, name, &operands, inputs, &mut of_record)
                    .map_err(|cause| self.failure_of(Some(owner), Signature::new(name, &operands), cause))
            });
            let way = result.as_ref().map_or(Way::Failed, |(_, way)| *way);
            self.counters.count(name, way, &of_record);
            moved.waits_for(of_record.into_earlier());
            results[place].0 = result.map(|(outputs, _)| outputs.into_iter().next()).transpose();
        }
        drop(slots);
        let mut settled = |(record, _): &Live| {
            let tensor = results[*record]
                .0
                .take()
                .unwrap_or_else(|| unreachable!("a result that is live is needed"))?;
            let signature = Signature::of_tensor(READ, tensor.dtype, tensor.shape().clone());
            tensor
                .into_settled(&self.queue, moved)
                .map_err(|refused| self.failure_of(Some(owner), signature, Cause::Device(refused)))
        };
        live.iter().map(&mut settled).collect()
    }
}

/// A tensor for one of its uses: the last one gets the tensor itself.
fn take<T: Clone>((tensor, uses): &mut (Option<T>, usize)) -> Option<T> {
    *uses = uses.saturating_sub(1);
    if *uses == 0 { tensor.take() } else { tensor.clone() }
}
