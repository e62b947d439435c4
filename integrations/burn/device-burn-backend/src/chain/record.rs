//! How an operation becomes part of a chain.

use std::any::Any;
use std::mem;
use std::ptr;
use std::sync::Arc;

use burn_backend::Shape;
use device_kernels::{Expression, Operator};
use parking_lot::{Condvar, Mutex, MutexGuard};
use smallvec::SmallVec;

use super::{Called, Chain, Fill, Input, Node, Record, Recorded, Source, State, is_same, number, thread};
use crate::client::{Client, Inputs};
use crate::elementwise::{Elementwise, Term, Types};
use crate::failure::Unreported;
use crate::operation::{Operands, copy};
use crate::queue::Refused;
use crate::storage::Storage;
use crate::table::RegistryTensor;

/// How many operators a chain has at most: an expression also has its inputs and literals as nodes.
const MOST_OPERATORS: usize = 48;

/// Makes an operation of the thread `owner` wait, alone or as part of the chains of its inputs. Returns its
/// result.
///
/// # Errors
///
/// If something that it needs fails now.
pub(crate) fn record(
    client: &'static Client,
    owner: Arc<Unreported>,
    elementwise: &Elementwise,
    types: Types,
    called: Box<Called>,
    inputs: Inputs,
) -> Result<RegistryTensor, (Box<Called>, Refused)> {
    let recorder = Recorder { client, owner, elementwise, types };
    if let Some(fill) = Fill::of(elementwise) {
        let chain = recorder.new_chain(Some((fill, called.clone())));
        let mut recorded = Recorded::new(copy(&called.operands.outputs[0].shape));
        let (tensor, record) = Record::new(&chain, called, SmallVec::new());
        recorded.records.push(record);
        *chain.state.lock() = State::Open(recorded);
        return Ok(tensor);
    }
    loop {
        let (chains, found) = match recorder.find(&inputs) {
            Ok(found) => found,
            Err(refused) => return Err((called, refused)),
        };
        let guards: Guards<'_> = chains.iter().map(|chain| chain.state.lock()).collect();
        match recorder.places(&guards, &found, &inputs, &called.operands) {
            Ok(places) => {
                let (tensor, released) = recorder.join(&chains, guards, &places, called, inputs);
                // Outside the locks: the end of a tensor frees memory.
                drop(released);
                return Ok(tensor);
            }
            Err(place) => {
                drop(guards);
                if let Err(refused) = inputs[place].storage.settle() {
                    return Err((called, refused));
                }
            }
        }
    }
}

/// An operation that is about to wait.
struct Recorder<'a> {
    client: &'static Client,
    owner: Arc<Unreported>,
    elementwise: &'a Elementwise,
    types: Types,
}

type Guards<'a> = SmallVec<[MutexGuard<'a, State>; 3]>;
type Chains = SmallVec<[Arc<Chain>; 3]>;

/// What an input is.
#[derive(Clone, Copy)]
enum Found {
    Memory,
    Fill(Fill),
    /// A result of the chain with this number.
    Chain(usize),
}

/// Where the inputs are, and whether the result has one element in each reduced dimension.
struct Places {
    inputs: SmallVec<[Place; 3]>,
    is_reduced: bool,
}

#[derive(Clone, Copy)]
enum Place {
    Memory,
    Fill(Fill),
    /// The result of an operation of a chain, both by their numbers.
    Result(usize, usize),
}

impl Recorder<'_> {
    /// A chain that has no operations yet.
    fn new_chain(&self, fill: Option<(Fill, Box<Called>)>) -> Arc<Chain> {
        let is_fill = fill.is_some();
        let chain = Arc::new(Chain {
            client: self.client,
            owner: Arc::clone(&self.owner),
            fill,
            state: Mutex::new(State::Moved),
            changed: Condvar::new(),
        });
        // A fill needs no memory while it waits.
        if !is_fill {
            thread::begins(&chain);
        }
        chain
    }

    /// What the inputs are. Chains of other threads run first.
    fn find(&self, inputs: &[RegistryTensor]) -> Result<(Chains, SmallVec<[Found; 3]>), Refused> {
        let reduces = matches!(self.elementwise.operator, Operator::Reduce { .. });
        let mut chains = Chains::new();
        let mut found = SmallVec::new();
        for input in inputs {
            let Some(pending) = input.storage.chain()? else {
                found.push(Found::Memory);
                continue;
            };
            let pending: Arc<dyn Any + Send + Sync> = pending;
            let Ok(chain) = pending.downcast::<Chain>() else {
                input.storage.settle()?;
                found.push(Found::Memory);
                continue;
            };
            found.push(match &chain.fill {
                Some((fill, _)) if !reduces => Found::Fill(*fill),
                None if self.is_mine(&chain) => {
                    let place = chains.iter().position(|other| Arc::ptr_eq(other, &chain));
                    Found::Chain(place.unwrap_or_else(|| {
                        chains.push(chain);
                        chains.len() - 1
                    }))
                }
                _ => {
                    input.storage.settle()?;
                    Found::Memory
                }
            });
        }
        Ok((chains, found))
    }

    fn is_mine(&self, chain: &Chain) -> bool {
        Arc::ptr_eq(&chain.owner, &self.owner) && ptr::eq(chain.client, self.client)
    }

    /// Where the inputs are in the chains that the operation joins.
    ///
    /// # Errors
    ///
    /// The place of an input whose chain has to run first.
    fn places(
        &self,
        guards: &[MutexGuard<'_, State>],
        found: &[Found],
        inputs: &[RegistryTensor],
        operands: &Operands,
    ) -> Result<Places, usize> {
        // An input of the chain with this number.
        let input_of = |chain: usize| {
            found.iter().position(|found| matches!(found, Found::Chain(of) if *of == chain)).unwrap_or(0)
        };
        let mut open = SmallVec::<[&Recorded; 3]>::new();
        for (chain, guard) in guards.iter().enumerate() {
            match &**guard {
                State::Open(recorded) => open.push(recorded),
                // Another thread runs it.
                State::Running(_) | State::Moved | State::Done => return Err(input_of(chain)),
            }
        }
        let mut places = SmallVec::<[Place; 3]>::new();
        for (place, found) in found.iter().enumerate() {
            places.push(match *found {
                Found::Memory => Place::Memory,
                Found::Fill(fill) => Place::Fill(fill),
                Found::Chain(chain) => {
                    Place::Result(chain, open[chain].find(&inputs[place].storage).ok_or(place)?)
                }
            });
        }
        let out = &operands.outputs[0].shape;
        // Whether the operation can use the input, as one with a result of all elements, and as one with one
        // of reduced dimensions. `None` if it waits for nothing.
        let fits = |place: usize| {
            let Place::Result(chain, record) = places[place] else { return None };
            let recorded = open[chain];
            let input = &inputs[place];
            let is_reduced = recorded.nodes[record].is_reduced;
            if !recorded.is_whole(record, input) {
                return Some([false; 2]);
            }
            if let Operator::Reduce { dims, .. } = self.elementwise.operator {
                return Some([false, !is_reduced && recorded.dims.is_none_or(|other| other == dims)]);
            }
            let is_broadcast = !is_reduced || recorded.is_reduced_shape(input.layout.shape());
            let is_of_reduced = is_reduced && recorded.is_reduced_shape(out);
            Some([is_broadcast && recorded.shape == *out, is_broadcast && is_of_reduced])
        };
        let all: SmallVec<[Option<[bool; 2]>; 3]> = (0..inputs.len()).map(fits).collect();
        let is_reduced = match self.elementwise.operator {
            Operator::Reduce { .. } => true,
            _ => !open.is_empty() && !all.iter().flatten().any(|[of_all, _]| *of_all),
        };
        let is_refused = |fits: &Option<[bool; 2]>| fits.is_some_and(|fits| !fits[usize::from(is_reduced)]);
        if let Some(place) = all.iter().position(is_refused) {
            return Err(place);
        }
        if let [first, others @ ..] = &open[..] {
            let mut dims = first.dims;
            for (chain, other) in others.iter().enumerate() {
                if other.shape != first.shape || dims.zip(other.dims).is_some_and(|(a, b)| a != b) {
                    return Err(input_of(chain + 1));
                }
                dims = dims.or(other.dims);
            }
        }
        if !self.has_room(&open, &places, inputs) {
            let largest = (0..open.len()).max_by_key(|chain| open[*chain].nodes.len());
            return Err(largest.map_or(0, input_of));
        }
        Ok(Places { inputs: places, is_reduced })
    }

    /// Whether an expression has room for the operation and its chains. It has for the operation alone.
    fn has_room(&self, open: &[&Recorded], places: &[Place], inputs: &[RegistryTensor]) -> bool {
        if open.is_empty() {
            return true;
        }
        let sum = |of: fn(&Recorded) -> usize| open.iter().map(|recorded| of(recorded)).sum::<usize>();
        let is_scalar = |term: &&Term| match **term {
            Term::Input(place) => matches!(places[place], Place::Fill(Fill::Scalar(_))),
            Term::Scalar(_) => true,
            Term::Literal(_) => false,
        };
        let scalars =
            sum(|chain| chain.scalars.len()) + self.elementwise.terms.iter().filter(is_scalar).count();
        let of_memory = places.iter().zip(inputs).filter(|(place, _)| matches!(place, Place::Memory));
        let mut slots = SmallVec::<[&RegistryTensor; 16]>::new();
        for tensor in open.iter().flat_map(|chain| &chain.slots).chain(of_memory.map(|(_, input)| input)) {
            if !slots.iter().any(|slot| is_same(slot, tensor)) {
                slots.push(tensor);
            }
        }
        let records = sum(|chain| chain.records.len());
        let live = || open.iter().map(|chain| chain.live(inputs)).sum::<usize>();
        records < MOST_OPERATORS
            && slots.len() + scalars <= Expression::MOST_INPUTS
            && (records < Expression::MOST_OUTPUTS || live() < Expression::MOST_OUTPUTS)
    }

    /// Adds the operation to its chains, which become one. Returns its result, and what the caller drops
    /// without locks.
    fn join(
        &self,
        chains: &[Arc<Chain>],
        mut guards: Guards<'_>,
        places: &Places,
        called: Box<Called>,
        inputs: Inputs,
    ) -> (RegistryTensor, (Vec<RegistryTensor>, Vec<Arc<Storage>>)) {
        let take = |guard: &mut MutexGuard<'_, State>| match mem::replace(&mut **guard, State::Moved) {
            State::Open(recorded) => recorded,
            State::Running(_) | State::Moved | State::Done => {
                unreachable!("the caller has seen that it is open")
            }
        };
        let parts: SmallVec<[Box<Recorded>; 3]> = guards.iter_mut().map(take).collect();
        let base = (0..parts.len()).max_by_key(|part| parts[*part].nodes.len());
        let mut firsts: SmallVec<[usize; 3]> = SmallVec::from_elem(0, parts.len());
        let mut moved = Vec::new();
        let chain = base.map_or_else(|| self.new_chain(None), |base| Arc::clone(&chains[base]));
        let mut whole = None;
        let mut others = SmallVec::<[(usize, Box<Recorded>); 2]>::new();
        for (number, part) in parts.into_iter().enumerate() {
            if Some(number) == base { whole = Some(part) } else { others.push((number, part)) }
        }
        let mut recorded = whole.unwrap_or_else(|| Recorded::new(self.shape(&called)));
        for (number, part) in others {
            firsts[number] = recorded.records.len();
            for storage in part.records.iter().filter_map(|record| record.out.upgrade()) {
                storage.moves_to(Arc::<Chain>::clone(&chain));
                moved.push(storage);
            }
            recorded.append(part);
        }
        if let Operator::Reduce { dims, .. } = self.elementwise.operator {
            recorded.dims = Some(dims);
        }

        let mut sources = SmallVec::<[Source; 3]>::new();
        let mut of_record = SmallVec::new();
        let mut released = Vec::new();
        for (place, tensor) in places.inputs.iter().zip(inputs) {
            let (source, input) = match *place {
                Place::Memory => {
                    let slot = recorded.add_slot(tensor);
                    (Source::Slot(slot), Input::Slot(slot))
                }
                Place::Fill(fill) => {
                    let source = match fill {
                        Fill::Zero => Source::Zero,
                        Fill::One => Source::One,
                        Fill::Scalar(scalar) => recorded.add_scalar(scalar),
                    };
                    (source, Input::Fill(Box::new(tensor)))
                }
                Place::Result(chain, record) => {
                    released.push(tensor);
                    let record = number(firsts[chain] + record);
                    (Source::Node(record), Input::Record(record))
                }
            };
            sources.push(source);
            of_record.push(input);
        }
        let source = |term: &Term| match *term {
            Term::Input(place) => sources[place],
            Term::Scalar(scalar) | Term::Literal(scalar) => recorded.add_scalar(scalar),
        };
        let node = Node {
            operator: self.elementwise.operator,
            operands: self.elementwise.terms.iter().map(source).collect(),
            from: self.types.from,
            to: self.types.to,
            is_reduced: places.is_reduced,
        };
        recorded.nodes.push(node);
        let (tensor, record) = Record::new(&chain, called, of_record);
        recorded.records.push(record);
        match base {
            Some(base) => *guards[base] = State::Open(recorded),
            None => *chain.state.lock() = State::Open(recorded),
        }
        (tensor, (released, moved))
    }

    /// The shape of a new chain.
    fn shape(&self, called: &Called) -> Shape {
        let tensors = match self.elementwise.operator {
            Operator::Reduce { .. } => &called.operands.inputs[..],
            _ => &called.operands.outputs[..],
        };
        copy(&tensors[0].shape)
    }
}
