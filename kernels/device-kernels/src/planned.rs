//! Calls with the kernel sets that have them, and the calls that this thread has planned before.

mod split;

use std::cell::RefCell;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::mem::discriminant;
use std::sync::Arc;

use device_registry::backend::{BackendError, Launch};
use device_registry::{Buffer, Device, LaunchOptions, Stream};
use smallvec::SmallVec;

pub use self::split::{Part, PartPlace, Parts};
use crate::argument::Argument;
use crate::buffers::check_buffers;
use crate::call::{Call, CallError, signature};
use crate::dtype::DType;
use crate::error::{RunError, Sets};
use crate::layout::Layout;
use crate::operator::Operator;
use crate::problem::Problem;
use crate::scalar::Scalar;
use crate::set::{Kernels, LinkedSet};

/// What an operator is called with, by reference: the type and layout of an array, or a value.
#[derive(Clone, Copy, Debug)]
pub enum ArgumentRef<'a> {
    /// An array.
    Array {
        /// The type of its elements.
        dtype: DType,
        /// The size of each dimension.
        shape: &'a [usize],
        /// The stride of each dimension, in elements. `None` if the elements lie one after the other.
        strides: Option<&'a [isize]>,
        /// Where the element with all indices zero is, in elements.
        offset: usize,
    },
    /// A value for each element.
    Scalar(Scalar),
}

/// A call that was checked, with the kernel set that has it on a device: all that is known before there are
/// buffers.
///
/// [`of`](Self::of) keeps what it makes, on this thread: a program that repeats its operations checks each
/// once.
///
/// ```
/// use device_kernels::{ArgumentRef, Binary, DType, Planned, RunError};
/// # use device_registry::{Buffer, Stream};
/// # fn example(stream: &Stream, buffers: &[&Buffer; 3]) -> Result<(), RunError> {
/// let array = ArgumentRef::Array { dtype: DType::F32, shape: &[2, 3], strides: None, offset: 0 };
/// let planned = Planned::of(stream.device(), Binary::Add, &[array, array], &[array])?;
/// if let Some(prepared) = planned.with_buffers(buffers)? {
///     let options = prepared.launch_options();
///     let launched = stream.launch_with(&options, buffers, move |launch| prepared.launch(launch));
///     launched.expect("the device is there");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Planned {
    device: Device,
    call: Call,
    /// `None` if no set has a kernel: the call writes nothing, or is done in parts.
    set: Option<LinkedSet>,
    parts: Option<Arc<Parts>>,
    short: bool,
}

impl Planned {
    /// Checks the arguments of an operator, and looks for a kernel, unless this thread has done so before for
    /// the same device, operator, types, shapes, strides, offsets and values.
    ///
    /// # Errors
    ///
    /// If the arguments do not fit the operator, or no linked set has a kernel. Errors are not kept.
    pub fn of(
        device: Device,
        operator: impl Into<Operator>,
        inputs: &[ArgumentRef<'_>],
        outputs: &[ArgumentRef<'_>],
    ) -> Result<Self, RunError> {
        let inputs = inputs.iter().copied();
        let outputs = outputs.iter().copied();
        Description { device: device.resolve(), operator: operator.into(), inputs, outputs }.planned()
    }

    /// Looks for a kernel, or for the kernels of an expression's parts. Keeps nothing.
    ///
    /// # Errors
    ///
    /// If a linked set does not load, or if none has a kernel, unless the call [writes
    /// nothing](Call::is_empty).
    pub fn new(device: Device, call: Call) -> Result<Self, RunError> {
        let device = device.resolve();
        let kernels = Kernels::of(device)?;
        let set = kernels.find(device, &call);
        let mut parts = None;
        if set.is_none() && !call.is_empty() {
            let Operator::Expression(expression) = call.operator() else {
                return Err(RunError::Unsupported { call, device, sets: Sets(kernels.sets().to_vec()) });
            };
            parts = Some(Arc::new(Parts::new(device, &call, expression)?));
        }
        let short = set.is_some_and(|set| set.set().is_short(&call));
        Ok(Self { device, call, set, parts, short })
    }

    /// The call.
    #[must_use]
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// The set that has a kernel. `None` if none has: the call [writes nothing](Call::is_empty), or it is an
    /// expression that is done [in parts](Self::is_in_parts).
    #[must_use]
    pub fn set(&self) -> Option<LinkedSet> {
        self.set
    }

    /// Whether no set has the expression of the call as a whole, so that [`enqueue`](Self::enqueue) does it
    /// by several kernels and temporary memory: of parts that a set has, such as the reductions and
    /// what is between them, or of single operators.
    #[must_use]
    pub fn is_in_parts(&self) -> bool {
        self.parts.is_some()
    }

    /// The parts of a call that is done [in parts](Self::is_in_parts), for a framework that launches each by
    /// itself.
    #[must_use]
    pub fn parts(&self) -> Option<&Parts> {
        self.parts.as_deref()
    }

    /// The same plan of an expression with other values: one for each scalar among the
    /// [inputs](Call::inputs), in their order. Neither a check nor a set depends on these values, so that
    /// nothing is checked again: a framework that keeps plans by itself keeps one for all values. For other
    /// operators, a set may look at values, so that their plans are made anew.
    ///
    /// Scalars that `scalars` has no value for keep theirs.
    #[must_use]
    pub fn with_scalars(&self, scalars: &[Scalar]) -> Self {
        let call = self.call.with_scalars(scalars);
        let parts = self.parts.as_ref().map(|parts| Arc::new(parts.with_scalars_of(&call)));
        Self { call, parts, ..*self }
    }

    /// Checks `buffers`, which are in the order of [`Call::arrays`]. `None` if the call [writes
    /// nothing](Call::is_empty).
    ///
    /// # Errors
    ///
    /// If there are not as many buffers as arrays, a buffer is on another device, is too short or begins
    /// between two elements of its memory, or an output overlaps another array. If the call is done [in
    /// parts](Self::is_in_parts), which no single launch does.
    pub fn with_buffers(&self, buffers: &[&Buffer]) -> Result<Option<Prepared>, RunError> {
        match check_buffers(self.device, &self.call, buffers) {
            Ok(()) if self.parts.is_some() => Err(RunError::Parts { call: self.call.clone() }),
            Ok(()) => Ok(self.prepared()),
            Err(problem) => Err(RunError::Buffers { call: self.call.clone(), problem }),
        }
    }

    /// Enqueues the call in a stream of the device, with buffers in the order of [`Call::arrays`]. Does
    /// nothing if the call [writes nothing](Call::is_empty).
    ///
    /// # Errors
    ///
    /// The errors of [`with_buffers`](Self::with_buffers), but the one for a call in parts, and those from
    /// [`Stream::launch`].
    pub fn enqueue(&self, stream: &Stream, buffers: &[&Buffer]) -> Result<(), RunError> {
        if let Some(parts) = &self.parts {
            return match check_buffers(self.device, &self.call, buffers) {
                Ok(()) => parts.enqueue(stream, &self.call, buffers),
                Err(problem) => Err(RunError::Buffers { call: self.call.clone(), problem }),
            };
        }
        let Some(prepared) = self.with_buffers(buffers)? else { return Ok(()) };
        let options = prepared.launch_options();
        let enqueued = stream.launch_with(&options, buffers, move |launch| prepared.launch(launch));
        enqueued.map_err(|error| RunError::Device { call: self.call.clone(), error })
    }

    /// Whether [`compute_on_host`](Self::compute_on_host) computes the call.
    #[must_use]
    pub fn is_on_host(&self) -> bool {
        self.set.is_some_and(|set| set.set().on_host().is_some())
    }

    /// Computes the call on the calling thread, with arrays in bytes of the host. `None` if the kernels need
    /// buffers: see [`KernelSet::on_host`](crate::KernelSet::on_host).
    ///
    /// There are as many inputs as [`Call::inputs`], `None` for a scalar, and as many outputs as the call
    /// has. The bytes of an array are its [range](Call::byte_ranges). Does nothing if the call [writes
    /// nothing](Call::is_empty).
    ///
    /// # Errors
    ///
    /// The kernel's error, with the call and the set; also if the slices do not fit the call.
    pub fn compute_on_host(
        &self,
        inputs: &[Option<&[u8]>],
        outputs: &mut [&mut [u8]],
    ) -> Option<Result<(), BackendError>> {
        let set = self.set?;
        let compute = set.set().on_host()?;
        if self.call.is_empty() {
            return Some(Ok(()));
        }
        Some(compute(&self.call, inputs, outputs).map_err(|error| set.failed(&self.call, error)))
    }

    /// With buffers that were checked.
    fn prepared(&self) -> Option<Prepared> {
        let set = self.set.filter(|_| !self.call.is_empty())?;
        Some(Prepared { call: self.call.clone(), set, short: self.short })
    }
}

/// A call that a kernel set has a kernel for, with buffers that have its elements.
///
/// [`run`](crate::run()) makes and launches it. A framework that has to do more within the launch does it by
/// itself:
///
/// ```
/// # use device_kernels::{Call, Prepared, RunError};
/// # use device_registry::{Buffer, Stream};
/// # fn example(stream: &Stream, call: Call, buffers: &[&Buffer]) -> Result<(), Box<dyn std::error::Error>> {
/// if let Some(prepared) = Prepared::new(stream.device(), call, buffers)? {
///     stream.launch_with(&prepared.launch_options(), buffers, move |launch| prepared.launch(launch))?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Prepared {
    call: Call,
    set: LinkedSet,
    short: bool,
}

impl Prepared {
    /// Checks `buffers`, which are in the order of [`Call::arrays`], and looks for a kernel. `None` if the
    /// call [writes nothing](Call::is_empty).
    ///
    /// # Errors
    ///
    /// If there are not as many buffers as arrays, a buffer is on another device, is too short or begins
    /// between two elements of its memory, an output overlaps another array, or no linked set has a kernel.
    /// Also if it is an expression that only [`Planned::enqueue`] does, in parts.
    pub fn new(device: Device, call: Call, buffers: &[&Buffer]) -> Result<Option<Self>, RunError> {
        if let Err(problem) = check_buffers(device.resolve(), &call, buffers) {
            return Err(RunError::Buffers { call, problem });
        }
        let planned = Planned::new(device, call)?;
        match planned.parts {
            Some(_) => Err(RunError::Parts { call: planned.call }),
            None => Ok(planned.prepared()),
        }
    }

    /// The call.
    #[must_use]
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// The set whose kernel is used.
    #[must_use]
    pub fn set(&self) -> LinkedSet {
        self.set
    }

    /// The options for [`Stream::launch_with`](device_registry::Stream::launch_with): the
    /// [name](Call::name) of the call, unless its set has [another](crate::KernelSet::launch_name), and
    /// whether the kernel is [short](LaunchOptions::short), as its [set says](crate::KernelSet::is_short).
    #[must_use]
    pub fn launch_options(&self) -> LaunchOptions {
        let name = self.set.set().launch_name(&self.call).unwrap_or_else(|| self.call.name());
        let options = LaunchOptions::new().named(name);
        if self.short { options.short() } else { options }
    }

    /// Runs or submits the kernel: the argument of
    /// [`Stream::launch_with`](device_registry::Stream::launch_with), with the buffers of [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// The kernel's error, with the call and the set.
    pub fn launch(&self, launch: &Launch<'_>) -> Result<(), BackendError> {
        self.set.set().launch(&self.call, launch).map_err(|error| self.set.failed(&self.call, error))
    }
}

impl<'a> ArgumentRef<'a> {
    fn to_argument(self) -> Result<Argument, Problem> {
        Ok(match self {
            Self::Array { dtype, shape, strides: None, offset: 0 } => {
                Argument::Array(dtype, Layout::contiguous(shape)?)
            }
            Self::Array { dtype, shape, strides, offset } => {
                let contiguous = Layout::contiguous(shape)?;
                let strides = strides.unwrap_or(contiguous.strides());
                Argument::Array(dtype, Layout::strided(shape, strides, offset)?)
            }
            Self::Scalar(scalar) => Argument::Scalar(scalar),
        })
    }

    /// Calls `each` with the argument as numbers. The first says which follow, so that no other argument has
    /// the same.
    #[inline(always)]
    fn numbers(self, with_values: bool, each: &mut impl FnMut(u64)) {
        match self {
            Self::Array { dtype, shape, strides, offset } => {
                // A list that is longer than a rank can be is an error, which is not kept.
                let len = |len: usize| len.min(0xff) as u64;
                let steps = strides.map_or(0, |strides| 1 + len(strides.len()));
                each(ARRAY | (dtype as u64) << 8 | len(shape.len()) << 16 | steps << 32);
                shape.iter().for_each(|&size| each(size as u64));
                strides.unwrap_or_default().iter().for_each(|&stride| each(stride as u64));
                each(offset as u64);
            }
            Self::Scalar(_) if !with_values => each(VALUE),
            // By their bits: numbers that are equal may differ, as 1 / 0.0 and 1 / -0.0 do.
            Self::Scalar(Scalar::Float(value)) => [FLOAT, value.to_bits()].into_iter().for_each(each),
            Self::Scalar(Scalar::Int(value)) => [INT, value as u64].into_iter().for_each(each),
            Self::Scalar(Scalar::Bool(value)) => [BOOL, value.into()].into_iter().for_each(each),
        }
    }
}

const ARRAY: u64 = 1;
const FLOAT: u64 = 2;
const INT: u64 = 3;
const BOOL: u64 = 4;
/// Between inputs and outputs.
const OUTPUTS: u64 = 5;
/// Any value.
const VALUE: u64 = 6;

impl<'a> From<&'a Argument> for ArgumentRef<'a> {
    #[inline]
    fn from(argument: &'a Argument) -> Self {
        match argument {
            Argument::Array(dtype, layout) => Self::Array {
                dtype: *dtype,
                shape: layout.shape(),
                strides: Some(layout.strides()),
                offset: layout.offset(),
            },
            Argument::Scalar(scalar) => Self::Scalar(*scalar),
        }
    }
}

impl fmt::Display for ArgumentRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Array { dtype, shape, .. } => write!(f, "{dtype} {shape:?}"),
            Self::Scalar(scalar) => scalar.fmt(f),
        }
    }
}

/// All that a plan follows from. Memory is not in it.
#[derive(Clone, Copy)]
pub(crate) struct Description<I, O> {
    /// With an index.
    pub(crate) device: Device,
    pub(crate) operator: Operator,
    pub(crate) inputs: I,
    pub(crate) outputs: O,
}

impl<'a, I, O> Description<I, O>
where
    I: Iterator<Item = ArgumentRef<'a>> + Clone,
    O: Iterator<Item = ArgumentRef<'a>> + Clone,
{
    /// The plan that this thread has, or a new one.
    pub(crate) fn planned(self) -> Result<Planned, RunError> {
        // Each call of it has other numbers.
        if matches!(self.operator, Operator::Random { .. }) {
            return self.plan();
        }
        let hash = self.hash();
        // While a thread ends, its plans may be gone.
        let find = |plans: &RefCell<Plans>| plans.borrow_mut().find(hash, &self);
        if let Ok(Some(planned)) = PLANS.try_with(find) {
            let Operator::Expression(_) = self.operator else { return Ok(planned) };
            // Its values are not in the numbers: an optimizer's change at each step.
            let scalars = self.inputs.filter_map(|input| match input {
                ArgumentRef::Scalar(scalar) => Some(scalar),
                ArgumentRef::Array { .. } => None,
            });
            let scalars: SmallVec<[Scalar; 8]> = scalars.collect();
            let has_them = planned.call.has_scalars(&scalars);
            return Ok(if has_them { planned } else { planned.with_scalars(&scalars) });
        }
        // A kernel set may run operators of its own meanwhile.
        let planned = self.clone().plan()?;
        if planned.set.is_some() || planned.parts.is_some() {
            let _ = PLANS.try_with(|plans| plans.borrow_mut().keep(hash, &self, &planned));
        }
        Ok(planned)
    }

    fn plan(self) -> Result<Planned, RunError> {
        let refused = |problem| {
            let inputs: Vec<_> = self.inputs.clone().collect();
            let outputs: Vec<_> = self.outputs.clone().collect();
            CallError::new(signature(self.operator, &inputs, &outputs), problem)
        };
        let arguments = self.inputs.clone().map(ArgumentRef::to_argument);
        let inputs = arguments.collect::<Result<SmallVec<[Argument; 3]>, _>>().map_err(refused)?;
        let arguments = self.outputs.clone().map(ArgumentRef::to_argument);
        let outputs = arguments.collect::<Result<SmallVec<[Argument; 2]>, _>>().map_err(refused)?;
        Planned::new(self.device, Call::new(self.operator, &inputs, &outputs)?)
    }

    /// Whether the values of scalars are part of the description: not of an expression, whose values may
    /// change at each step.
    #[inline]
    fn with_values(&self) -> bool {
        !matches!(self.operator, Operator::Expression(_))
    }

    /// Calls `each` with the arguments as numbers.
    #[inline]
    fn numbers(&self, mut each: impl FnMut(u64)) {
        let with_values = self.with_values();
        self.inputs.clone().for_each(|input| input.numbers(with_values, &mut each));
        each(OUTPUTS);
        self.outputs.clone().for_each(|output| output.numbers(with_values, &mut each));
    }

    /// At a collision, a plan is made again. What seldom differs alone is compared and not in the hash:
    /// strides, and options of operators.
    #[inline]
    fn hash(&self) -> u64 {
        let mut hash = Mixed(0);
        let with_values = self.with_values();
        let mut add = |argument: ArgumentRef<'a>| match argument {
            ArgumentRef::Array { dtype, shape, offset, .. } => {
                hash.write_u64(dtype as u64 | (shape.len() as u64) << 8 | (offset as u64) << 16);
                shape.iter().for_each(|&size| hash.write_u64(size as u64));
            }
            ArgumentRef::Scalar(_) => argument.numbers(with_values, &mut |number| hash.write_u64(number)),
        };
        self.inputs.clone().for_each(&mut add);
        self.outputs.clone().for_each(&mut add);
        self.device.index().hash(&mut hash);
        discriminant(&self.operator).hash(&mut hash);
        match &self.operator {
            Operator::Unary(unary) => unary.hash(&mut hash),
            Operator::Binary(binary) => binary.hash(&mut hash),
            Operator::Compare(compare) => compare.hash(&mut hash),
            Operator::Reduce { reduction, dims } => (reduction, dims).hash(&mut hash),
            Operator::Expression(expression) => expression.hash(&mut hash),
            Operator::Custom(custom) => custom.hash(&mut hash),
            _ => {}
        }
        hash.0
    }
}

/// A hash of numbers.
struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn write_u16(&mut self, number: u16) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

thread_local! {
    static PLANS: RefCell<Plans> = const { RefCell::new(Plans(Vec::new())) };
}

/// How many plans there are for each value of the first bits of a hash.
const WAYS: usize = 4;
/// The number of those bits.
const BITS: u32 = 7;

/// The plans of a thread, at most 512: operations of a step of a training come again in the next.
struct Plans(Vec<Option<Plan>>);

struct Plan {
    hash: u64,
    /// What the arguments are.
    numbers: Box<[u64]>,
    operator: Operator,
    planned: Planned,
    /// Since another plan looked for a place.
    used: bool,
}

impl Plans {
    #[inline]
    fn places(&mut self, hash: u64) -> &mut [Option<Plan>] {
        let first = (hash >> (u64::BITS - BITS)) as usize * WAYS;
        self.0.get_mut(first..first + WAYS).unwrap_or_default()
    }

    #[inline]
    fn find<'a, I, O>(&mut self, hash: u64, of: &Description<I, O>) -> Option<Planned>
    where
        I: Iterator<Item = ArgumentRef<'a>> + Clone,
        O: Iterator<Item = ArgumentRef<'a>> + Clone,
    {
        let plan = self.places(hash).iter_mut().flatten().find(|plan| plan.hash == hash && plan.is(of))?;
        plan.used = true;
        Some(plan.planned.clone())
    }

    fn keep<'a, I, O>(&mut self, hash: u64, of: &Description<I, O>, planned: &Planned)
    where
        I: Iterator<Item = ArgumentRef<'a>> + Clone,
        O: Iterator<Item = ArgumentRef<'a>> + Clone,
    {
        if self.0.is_empty() {
            self.0.resize_with(WAYS << BITS, || None);
        }
        let places = self.places(hash);
        let free = places.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            // One that was used stays once more.
            let unused = places.iter().flatten().position(|plan| !plan.used);
            places[..unused.unwrap_or(WAYS)].iter_mut().flatten().for_each(|plan| plan.used = false);
            unused.unwrap_or(0)
        });
        let mut numbers = Vec::new();
        of.numbers(|number| numbers.push(number));
        let numbers = numbers.into();
        places[place] =
            Some(Plan { hash, numbers, operator: of.operator, planned: planned.clone(), used: false });
    }
}

impl Plan {
    #[inline]
    fn is<'a, I, O>(&self, of: &Description<I, O>) -> bool
    where
        I: Iterator<Item = ArgumentRef<'a>> + Clone,
        O: Iterator<Item = ArgumentRef<'a>> + Clone,
    {
        let mut own = self.numbers.iter();
        let mut is_equal = self.planned.device == of.device && self.operator == of.operator;
        of.numbers(|number| is_equal &= own.next() == Some(&number));
        is_equal && own.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::operator::Binary;

    fn array<'a>(shape: &'a [usize], strides: Option<&'a [isize]>, offset: usize) -> ArgumentRef<'a> {
        ArgumentRef::Array { dtype: DType::F32, shape, strides, offset }
    }

    type Arguments<'a> = std::iter::Copied<std::slice::Iter<'a, ArgumentRef<'a>>>;

    fn description<'a>(
        operator: impl Into<Operator>,
        inputs: &'a [ArgumentRef<'a>],
        outputs: &'a [ArgumentRef<'a>],
    ) -> Description<Arguments<'a>, Arguments<'a>> {
        let inputs = inputs.iter().copied();
        let outputs = outputs.iter().copied();
        Description { device: Device::cpu(), operator: operator.into(), inputs, outputs }
    }

    fn numbers(of: &Description<Arguments<'_>, Arguments<'_>>) -> Vec<u64> {
        let mut numbers = Vec::new();
        of.numbers(|number| numbers.push(number));
        numbers
    }

    /// A plan for `size` elements.
    fn plan(size: usize) -> Planned {
        let array = Argument::Array(DType::F32, Layout::contiguous([size]).unwrap());
        Planned {
            device: Device::cpu(),
            call: Call::new(Binary::Add, &[array; 2], &[array]).unwrap(),
            set: None,
            parts: None,
            short: true,
        }
    }

    #[test]
    fn arguments_that_differ_have_other_numbers() {
        let matrix = array(&[2, 3], None, 0);
        let scalar = |value: Scalar| ArgumentRef::Scalar(value);
        let descriptions: [(&[ArgumentRef<'_>], &[ArgumentRef<'_>]); 14] = [
            (&[matrix], &[matrix]),
            (&[matrix, matrix], &[]),
            (&[], &[matrix, matrix]),
            (&[array(&[3, 2], None, 0)], &[matrix]),
            (&[array(&[2, 3], None, 1)], &[matrix]),
            (&[array(&[2, 3], Some(&[3, 1]), 0)], &[matrix]),
            (&[array(&[2, 3], Some(&[1, 3]), 0)], &[matrix]),
            (&[array(&[2, 3], Some(&[1, 2]), 3)], &[matrix]),
            (
                &[ArgumentRef::Array { dtype: DType::I32, shape: &[2, 3], strides: None, offset: 0 }],
                &[matrix],
            ),
            (&[scalar(0.0.into())], &[matrix]),
            (&[scalar((-0.0).into())], &[matrix]),
            (&[scalar(0.into())], &[matrix]),
            (&[scalar(1.into())], &[matrix]),
            (&[scalar(false.into())], &[matrix]),
        ];
        let calls = descriptions.map(|(inputs, outputs)| description(Operator::Copy, inputs, outputs));
        for (place, one) in calls.iter().enumerate() {
            for other in &calls[..place] {
                assert_ne!(numbers(one), numbers(other), "{:?}", descriptions[place]);
            }
        }
        // What a program may have many of is also apart in the hash: sizes, offsets, types and values.
        let hashes: BTreeSet<u64> = calls.iter().map(Description::hash).collect();
        let of_other_strides = 2;
        let of_other_ends_of_inputs = 2;
        assert_eq!(hashes.len(), calls.len() - of_other_strides - of_other_ends_of_inputs);
        let [add, sub] =
            [Binary::Add, Binary::Sub].map(|binary| description(binary, &[matrix; 2], &[matrix]).hash());
        assert_ne!(add, sub);
    }

    #[test]
    fn calls_of_one_hash_are_told_apart() {
        let mut plans = Plans(Vec::new());
        let sizes = [[1], [2], [3], [4]];
        let arrays = sizes.each_ref().map(|size| [array(size, None, 0)]);
        let of = |place: usize| description(Binary::Add, &arrays[place], &[]);
        (0..3).for_each(|place| plans.keep(7, &of(place), &plan(place)));
        for place in 0..3 {
            let found = plans.find(7, &of(place)).expect("it is kept");
            assert_eq!(found.call, plan(place).call);
        }
        assert!(plans.find(7, &of(3)).is_none(), "other arguments");
        assert!(plans.find(7, &description(Binary::Add, &arrays[0], &arrays[1])).is_none(), "more arguments");
        assert!(plans.find(7, &description(Binary::Add, &[], &[])).is_none(), "fewer arguments");
        assert!(plans.find(7, &description(Binary::Sub, &arrays[0], &[])).is_none(), "another operator");
    }

    #[test]
    fn as_many_plans_are_kept_as_there_is_room_for_and_one_in_use_stays() {
        let mut plans = Plans(Vec::new());
        let first = [array(&[0], None, 0)];
        let first = description(Binary::Add, &first, &[]);
        plans.keep(0, &first, &plan(1));
        let other = plan(2);
        for number in 1..=10_000 {
            assert!(plans.find(0, &first).is_some(), "it is used each time, after {number}");
            // Each second one competes for the same place.
            let size = [number];
            let new = [array(&size, None, 0)];
            let new = description(Binary::Add, &new, &[]);
            let hash = if number % 2 == 0 { 0 } else { new.hash() };
            plans.keep(hash, &new, &other);
            assert!(plans.places(hash).iter().flatten().any(|plan| plan.is(&new)), "a new one is kept");
        }
        let kept = plans.0.iter().flatten().count();
        assert!((WAYS..=512).contains(&kept), "{kept}");
        assert_eq!(plans.0.len(), 512);
    }
}
