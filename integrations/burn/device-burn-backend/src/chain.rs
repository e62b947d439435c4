//! Operations that wait until one of their results is needed, so that several run together.
//!
//! A [`Chain`] has element-wise operations and reductions of one thread that are connected: each uses results
//! of others. It runs when something needs a result of it: a read, an operation that cannot wait, a move, a
//! `sync`, another thread, or the next operation if the chain is full.
//!
//! The storages of the results own the chain, which has only weak references to them. So a result that the
//! program drops before it is needed is not written, and a chain that nothing needs never runs. Views of a
//! result share its storage, and wait as it does.
//!
//! Locks are taken in this order: one chain, or several by the thread whose chains they are, and then a
//! storage. No lock is held while a chain runs.

mod record;
mod thread;

use std::any::Any;
use std::cell::Cell;
use std::mem;
use std::ptr;
use std::sync::{Arc, Weak};

use burn_backend::Shape;
use burn_flex::Layout;
use burn_ir::{OperationIr, TensorIr};
use device_kernels::{DType, Dims, Operator, Scalar};
use device_registry::backend::BackendError;
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;

pub(crate) use self::record::record;
pub(crate) use self::thread::{begin_operation, release_memory, settle_all};
use crate::client::Client;
use crate::counts::Moved;
use crate::elementwise::{Elementwise, Term};
use crate::failure::Unreported;
use crate::operation::{Operands, OperationName, copy};
use crate::queue::Refused;
use crate::storage::{Pending, Storage};
use crate::table::RegistryTensor;

/// How many operations a chain has room for at first.
const FEW: usize = 8;

/// Connected operations of one thread that wait.
pub(crate) struct Chain {
    pub(crate) client: &'static Client,
    /// The thread whose operations they are.
    pub(crate) owner: Arc<Unreported>,
    /// The value of all elements, if it is one operation that fills a tensor, and that operation. Operations
    /// that use the tensor take the value, and are not part of the chain.
    fill: Option<(Fill, Box<Called>)>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug)]
enum Fill {
    Zero,
    One,
    Scalar(Scalar),
}

enum State {
    Open(Box<Recorded>),
    /// By which thread. `None` is one that ends.
    Running(Option<Arc<Unreported>>),
    /// Its operations are part of another chain.
    Moved,
    Done,
}

/// The operations of a chain.
pub(crate) struct Recorded {
    /// The shape of all results, except those that follow from reductions.
    pub(crate) shape: Shape,
    /// The dimensions that are reduced.
    pub(crate) dims: Option<Dims>,
    /// A node for each operation, at the same place.
    pub(crate) nodes: Vec<Node>,
    pub(crate) records: Vec<Record>,
    /// The tensors that are read. No two are the same view of the same storage.
    pub(crate) slots: Vec<RegistryTensor>,
    pub(crate) scalars: SmallVec<[Scalar; 8]>,
}

/// A value that an operator computes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) operator: Operator,
    pub(crate) operands: SmallVec<[Source; 3]>,
    /// The type of its operands, but the condition of [`Operator::Where`].
    pub(crate) from: DType,
    pub(crate) to: DType,
    /// Whether it has one element in each reduced dimension.
    pub(crate) is_reduced: bool,
}

/// What an operator is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    Slot(u8),
    Scalar(u8),
    Node(u8),
    Zero,
    One,
}

/// One of burn's operations.
pub(crate) struct Record {
    pub(crate) called: Box<Called>,
    /// In the order of its inputs.
    pub(crate) inputs: SmallVec<[Input; 3]>,
    out: Weak<Storage>,
}

/// An operation as burn calls it, and its tensors.
#[derive(Clone)]
pub(crate) struct Called {
    pub(crate) operation: OperationIr,
    pub(crate) name: OperationName,
    pub(crate) operands: Operands,
}

/// An input of one of burn's operations.
pub(crate) enum Input {
    Slot(u8),
    /// The result of an operation of this chain, by its number.
    Record(u8),
    /// A tensor whose elements are all the same, which waits by itself.
    Fill(Box<RegistryTensor>),
}

/// A result that something may still need, by the number of its operation.
pub(crate) type Live = (usize, Arc<Storage>);

/// A place in a list of a chain: there are less than 256 of each.
fn number(place: usize) -> u8 {
    u8::try_from(place).unwrap_or(u8::MAX)
}

impl Recorded {
    fn new(shape: Shape) -> Box<Self> {
        Box::new(Self {
            shape,
            dims: None,
            nodes: Vec::with_capacity(FEW),
            records: Vec::with_capacity(FEW),
            slots: Vec::new(),
            scalars: SmallVec::new(),
        })
    }

    fn find(&self, storage: &Arc<Storage>) -> Option<usize> {
        self.records.iter().position(|record| ptr::eq(record.out.as_ptr(), Arc::as_ptr(storage)))
    }

    /// Whether what follows from reductions has this `shape`. Where all dimensions are reduced, burn leaves
    /// some of them out.
    fn is_reduced_shape(&self, shape: &Shape) -> bool {
        let Some(dims) = self.dims else { return false };
        let rank = self.shape.num_dims();
        if shape.num_elements() == 1 && shape.num_dims() <= rank && dims == Dims::all(rank) {
            return true;
        }
        let size = |(dim, size): (usize, &usize)| if dims.contains(dim) { 1 } else { *size };
        shape.num_dims() == rank && self.shape.iter().enumerate().map(size).eq(shape.iter().copied())
    }

    /// Whether `tensor`, whose storage is the result of the operation `record`, has all its elements in
    /// order.
    fn is_whole(&self, record: usize, tensor: &RegistryTensor) -> bool {
        let out = &self.records[record].called.operands.outputs[0];
        let layout = &tensor.layout;
        layout.start_offset() == 0 && layout.is_contiguous() && *layout.shape() == out.shape
    }

    /// How many results something has a reference to, except `inputs` alone.
    fn live(&self, inputs: &[RegistryTensor]) -> usize {
        let is_live = |record: &&Record| {
            let is_it = |input: &&RegistryTensor| ptr::eq(Arc::as_ptr(&input.storage), record.out.as_ptr());
            record.out.strong_count() > inputs.iter().filter(is_it).count()
        };
        self.records.iter().filter(is_live).count()
    }

    fn slot(&self, tensor: &RegistryTensor) -> Option<usize> {
        self.slots.iter().position(|slot| is_same(slot, tensor))
    }

    /// Adds the operations of another chain. The storages of their results are the caller's to tell.
    fn append(&mut self, other: Box<Recorded>) {
        let nodes = number(self.nodes.len());
        let scalars = number(self.scalars.len());
        let slots: SmallVec<[u8; 16]> = other.slots.into_iter().map(|slot| self.add_slot(slot)).collect();
        self.scalars.extend(other.scalars);
        self.dims = self.dims.or(other.dims);
        for mut node in other.nodes {
            for operand in &mut node.operands {
                match operand {
                    Source::Slot(slot) => *slot = slots[usize::from(*slot)],
                    Source::Scalar(scalar) => *scalar += scalars,
                    Source::Node(node) => *node += nodes,
                    Source::Zero | Source::One => {}
                }
            }
            self.nodes.push(node);
        }
        for mut record in other.records {
            for input in &mut record.inputs {
                match input {
                    Input::Slot(slot) => *slot = slots[usize::from(*slot)],
                    Input::Record(record) => *record += nodes,
                    Input::Fill(_) => {}
                }
            }
            self.records.push(record);
        }
    }

    fn add_slot(&mut self, tensor: RegistryTensor) -> u8 {
        let place = self.slot(&tensor).unwrap_or_else(|| {
            self.slots.push(tensor);
            self.slots.len() - 1
        });
        number(place)
    }

    fn add_scalar(&mut self, scalar: Scalar) -> Source {
        self.scalars.push(scalar);
        Source::Scalar(number(self.scalars.len() - 1))
    }
}

/// Whether two tensors are the same view of the same bytes.
fn is_same(a: &RegistryTensor, b: &RegistryTensor) -> bool {
    Arc::ptr_eq(&a.storage, &b.storage)
        && a.dtype == b.dtype
        && a.layout.start_offset() == b.layout.start_offset()
        && a.layout.shape() == b.layout.shape()
        && a.layout.strides() == b.layout.strides()
}

impl Fill {
    fn value(self) -> Scalar {
        match self {
            Self::Zero => Scalar::Int(0),
            Self::One => Scalar::Int(1),
            Self::Scalar(value) => value,
        }
    }

    fn of(elementwise: &Elementwise) -> Option<Self> {
        match (elementwise.operator, &elementwise.terms[..]) {
            (Operator::Copy, [Term::Literal(scalar)]) => {
                Some(if scalar.as_i64() == 0 { Self::Zero } else { Self::One })
            }
            (Operator::Copy, [Term::Scalar(scalar)]) => Some(Self::Scalar(*scalar)),
            _ => None,
        }
    }
}

impl Record {
    /// An operation, and its result.
    fn new(chain: &Arc<Chain>, called: Box<Called>, inputs: SmallVec<[Input; 3]>) -> (RegistryTensor, Self) {
        let storage = Arc::new(Storage::pending(Arc::<Chain>::clone(chain)));
        let out = Arc::downgrade(&storage);
        let TensorIr { shape, dtype, .. } = &called.operands.outputs[0];
        let layout = Layout::contiguous(copy(shape));
        let tensor = RegistryTensor { storage, layout, dtype: *dtype };
        (tensor, Self { called, inputs, out })
    }
}

/// The operation that a tensor waits for, if it fills the tensor with one value. An operation of a chain that
/// needs such a tensor does it anew: two chains that run could wait for one another.
pub(crate) fn filling(tensor: &RegistryTensor) -> Option<Called> {
    let pending: Arc<dyn Any + Send + Sync> = tensor.storage.chain().ok()??;
    let chain = pending.downcast::<Chain>().ok()?;
    chain.fill.as_ref().map(|(_, called)| Called::clone(called))
}

thread_local! {
    /// How many chains this thread is running: one may run within another.
    static RUNNING: Cell<usize> = const { Cell::new(0) };
}

impl Pending for Chain {
    fn value(&self) -> Option<Scalar> {
        self.fill.as_ref().map(|(fill, _)| fill.value())
    }

    fn settle(&self) -> Result<(), Refused> {
        if self.run() {
            return Ok(());
        }
        let this = Unreported::of_this_thread();
        let mut state = self.state.lock();
        while let State::Running(thread) = &*state {
            if thread.as_ref().zip(this.as_ref()).is_some_and(|(runs, this)| Arc::ptr_eq(runs, this)) {
                let why = "this thread is computing it, and cannot use it meanwhile";
                return Err(Refused::Unwritten(BackendError::other(why)));
            }
            self.changed.wait(&mut state);
        }
        Ok(())
    }
}

impl Chain {
    /// Runs the operations, unless another thread does or has. Returns whether it did.
    fn run(&self) -> bool {
        let recorded = {
            let mut state = self.state.lock();
            match &*state {
                State::Open(_) => {}
                State::Running(_) | State::Moved | State::Done => return false,
            }
            match mem::replace(&mut *state, State::Running(Unreported::of_this_thread())) {
                State::Open(recorded) => recorded,
                State::Running(_) | State::Moved | State::Done => return false,
            }
        };
        let depth = RUNNING.try_with(|depth| depth.replace(depth.get() + 1)).unwrap_or(1);
        let records = recorded.records.iter().enumerate();
        let live: SmallVec<[Live; 8]> =
            records.filter_map(|(number, record)| Some((number, record.out.upgrade()?))).collect();
        let mut moved = Moved::default();
        self.client.run_chain(&self.owner, recorded, live, &mut moved);
        *self.state.lock() = State::Done;
        self.changed.notify_all();
        let _ = RUNNING.try_with(|running| running.set(depth));
        // Other threads, which the device may need, wait for this chain no longer, but for the one around it.
        if depth == 0 {
            moved.wait();
        }
        true
    }
}
