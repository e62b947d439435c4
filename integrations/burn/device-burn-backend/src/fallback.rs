//! burn's CPU engine, for operations that no kernel of the device does: whether it may run them, and how.

use std::any::Any;
use std::cell::Cell;
use std::env;
use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};

use burn_backend::ops::{IntTensorOps, QTensorOps};
use burn_backend::{DType, Shape, TensorData};
use burn_flex::{Flex, FlexDevice, FlexTensor};
use burn_ir::{HandleKind, OperationIr, TensorIr, TensorStatus};
use burn_router::TensorInterpreter;
use burn_std::Bytes;
use device_registry::backend::BackendError;
use smallvec::SmallVec;

use crate::direct::Direct;
use crate::dtype::is_quantized;
use crate::operation::Operands;
use crate::policy::{self, InvalidVariable};

const VARIABLE: &str = "DEVICE_BURN_FALLBACK";

/// What happens to an operation that no kernel of the device does.
///
/// The policy holds for all devices of the process. The variable `DEVICE_BURN_FALLBACK` sets it with the
/// values `allow`, `warn` and `deny`; [`set`](Self::set) in code takes precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Fallback {
    /// burn's CPU engine does it, and it is counted.
    #[default]
    Allow = 1,
    /// The same, and the first time for each operation of a device is a warning through the crate `log`.
    Warn = 2,
    /// It fails, with an error that names the operation, the types, the shapes and the device.
    Deny = 3,
}

/// The policy, or 0 before it is set or read from the variable.
static POLICY: AtomicU8 = AtomicU8::new(0);

impl Fallback {
    /// Sets the policy for all devices.
    pub fn set(self) {
        POLICY.store(self as u8, Ordering::Relaxed);
    }

    /// The policy in force.
    ///
    /// # Errors
    ///
    /// If the variable has another value than the three. Until [`set`](Self::set) is called, every operation
    /// that no kernel does is then an error.
    pub fn current() -> Result<Self, InvalidVariable> {
        match POLICY.load(Ordering::Relaxed) {
            1 => Ok(Self::Allow),
            2 => Ok(Self::Warn),
            3 => Ok(Self::Deny),
            _ => {
                let policy = Self::from_variable(env::var_os(VARIABLE))?;
                policy.set();
                Ok(policy)
            }
        }
    }

    fn from_variable(value: Option<OsString>) -> Result<Self, InvalidVariable> {
        let words = [("allow", Self::Allow), ("warn", Self::Warn), ("deny", Self::Deny)];
        policy::parse(VARIABLE, value, &words).map(Option::unwrap_or_default)
    }
}

/// Runs `operation` on burn's CPU engine, and returns its outputs in their order.
///
/// The tensors of `operation` have local identifiers, from [`Operands`].
///
/// # Errors
///
/// The message of a panic. The panic harms nothing else: the engine's state belongs only to this call.
pub(crate) fn run(
    operation: OperationIr,
    operands: &Operands,
    inputs: SmallVec<[FlexTensor; 4]>,
) -> Result<SmallVec<[FlexTensor; 2]>, String> {
    if let Some(direct) = Direct::of(&operation)
        && !direct.is_quantized()
        && direct.takes_in_order(inputs.len())
    {
        let mut inputs = inputs.into_iter();
        return isolate(|| SmallVec::from_iter(direct.run(|_| inputs.next())));
    }
    // Taken out, so that a call within the call, on a thread that steals work, gets its own.
    let mut engine =
        ENGINE.try_with(Cell::take).ok().flatten().unwrap_or_else(|| TensorInterpreter::new(FlexDevice));
    let result = catch_unwind(AssertUnwindSafe(|| {
        for (place, tensor) in inputs.into_iter().enumerate() {
            let tensor = kind(operands.inputs[place].dtype, tensor);
            engine.register_tensor_to_device(Operands::input_id(place), tensor);
        }
        engine.register_op(operation);
        let out = |(place, out): (usize, &TensorIr)| {
            let shape = Shape::from(Vec::<usize>::new());
            let id = Operands::output_id(place);
            match engine.get_tensor(&TensorIr {
                id,
                shape,
                status: TensorStatus::ReadWrite,
                dtype: out.dtype,
            }) {
                HandleKind::Float(tensor) | HandleKind::Int(tensor) | HandleKind::Bool(tensor) => tensor,
                HandleKind::Quantized(tensor) => {
                    let packed = burn_backend::read_sync(Flex::q_into_data(tensor));
                    FlexTensor::from_data(packed.expect("the engine has its tensors in memory"))
                }
            }
        };
        operands.outputs.iter().enumerate().map(out).collect()
    }));
    match result {
        Ok(outputs) => {
            let _ = ENGINE.try_with(|cell| cell.set(Some(engine)));
            Ok(outputs)
        }
        Err(panic) => Err(message(panic)),
    }
}

/// Smaller results are not checked first.
const LARGE: usize = 64 << 20;

/// Whether there is memory for the results of an operation. burn's CPU engine ends the process where there is
/// none.
///
/// # Errors
///
/// If the host does not give it.
pub(crate) fn check_memory(outputs: &[TensorIr]) -> Result<(), BackendError> {
    let bytes =
        |out: &TensorIr| out.shape.iter().try_fold(out.dtype.size(), |bytes, size| bytes.checked_mul(*size));
    let total = outputs.iter().try_fold(0_usize, |total, out| total.checked_add(bytes(out)?));
    let total = total.unwrap_or(usize::MAX);
    if total < LARGE {
        return Ok(());
    }
    let mut memory = Vec::<u8>::new();
    let reserved = memory.try_reserve_exact(total);
    // Otherwise the compiler may remove it.
    std::hint::black_box(&memory);
    reserved.map_err(|_| BackendError::out_of_memory(total as u64, None))
}

/// Casts integers on burn's CPU engine. Its interpreter has no arm for it.
///
/// # Errors
///
/// The message of a panic.
pub(crate) fn cast_int(tensor: FlexTensor, dtype: DType) -> Result<SmallVec<[FlexTensor; 2]>, String> {
    isolate(|| SmallVec::from_iter([Flex::int_cast(tensor, dtype.into())]))
}

thread_local! {
    /// The engine of this thread. It holds no tensors between two calls.
    static ENGINE: Cell<Option<TensorInterpreter<Flex>>> = const { Cell::new(None) };
}

/// The data of a tensor.
///
/// # Panics
///
/// Where the engine does.
pub(crate) fn data(tensor: FlexTensor) -> TensorData {
    if !is_quantized(tensor.dtype()) {
        return tensor.into_data();
    }
    let shape = tensor.layout().shape().clone();
    let dtype = tensor.dtype();
    TensorData::from_bytes(Bytes::clone(&tensor.data_arc()), shape, dtype)
}

fn kind(dtype: DType, tensor: FlexTensor) -> HandleKind<Flex> {
    if is_quantized(dtype) {
        HandleKind::Quantized(Flex::q_from_data(data(tensor), &FlexDevice))
    } else if dtype.is_bool() {
        HandleKind::Bool(tensor)
    } else if dtype.is_int() || dtype.is_uint() {
        HandleKind::Int(tensor)
    } else {
        HandleKind::Float(tensor)
    }
}

/// The text of a panic.
pub(crate) fn message(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => {
            panic.downcast_ref::<&str>().map_or("without a message".to_owned(), ToString::to_string)
        }
    }
}

/// Calls `call`, and returns the message of a panic.
pub(crate) fn isolate<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(message)
}
