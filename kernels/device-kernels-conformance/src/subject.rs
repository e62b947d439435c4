//! What is tested: kernel sets, on a device.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use device_kernels::{Call, KernelSet, Kernels, Operator, Planned, RunError};
use device_registry::{Buffer, Device, Stream};

use crate::case::{Case, Operand, View};
use crate::element::{self, Value};
use crate::expect::Expect;
use crate::failure::Failure;
use crate::reference::{self, Input};

/// What is tested: kernel sets, on a device.
#[derive(Clone)]
pub struct Subject {
    device: Device,
    sets: Vec<&'static dyn KernelSet>,
    /// Whether the sets are those that are linked for the device.
    linked: bool,
    /// Whether the linked sets may do each expression in parts.
    in_parts: bool,
    calls: Arc<Calls>,
}

/// What runs a call.
enum Runner {
    Set(&'static dyn KernelSet),
    /// All linked sets, which may do it in parts.
    Linked(Planned),
}

impl Runner {
    fn enqueue(self, call: &Call, stream: &Stream, buffers: &[&Buffer]) -> Result<(), String> {
        match self {
            Self::Set(set) => {
                let call = call.clone();
                let launched = stream.launch(buffers, move |launch| set.launch(&call, launch));
                launched.map_err(|error| format!("{error:?}"))
            }
            Self::Linked(planned) => planned.enqueue(stream, buffers).map_err(|error| format!("{error:?}")),
        }
    }
}

/// How many calls the checks have made.
#[derive(Debug, Default)]
struct Calls {
    claimed: AtomicUsize,
    unclaimed: AtomicUsize,
}

/// A launch whose elements are to be compared.
struct Written {
    step: usize,
    call: String,
    output: usize,
    view: View,
    expected: Vec<Expect>,
}

impl Subject {
    /// The kernel sets of the device's backend that are linked, in the order in which they are asked.
    ///
    /// # Errors
    ///
    /// If a set is linked and does not load.
    pub fn linked(device: Device) -> Result<Self, String> {
        let kernels = Kernels::of(device).map_err(|error| format!("{error:?}"))?;
        let sets = kernels.sets().iter().map(|linked| linked.set()).collect();
        Ok(Self { device, sets, linked: true, in_parts: false, calls: Arc::default() })
    }

    /// One set, which need not be registered.
    #[must_use]
    pub fn new(device: Device, set: &'static dyn KernelSet) -> Self {
        Self { device, sets: vec![set], linked: false, in_parts: false, calls: Arc::default() }
    }

    /// Lets the linked sets do expressions in parts, in all checks.
    #[doc(hidden)]
    #[must_use]
    pub fn in_parts(self) -> Self {
        Self { in_parts: true, ..self }
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// The sets.
    pub(crate) fn sets(&self) -> &[&'static dyn KernelSet] {
        &self.sets
    }

    /// How many calls the sets have claimed in all checks so far, and how many not.
    #[must_use]
    pub fn call_counts(&self) -> (usize, usize) {
        (self.calls.claimed.load(Ordering::Relaxed), self.calls.unclaimed.load(Ordering::Relaxed))
    }

    /// The first set that claims a call.
    pub(crate) fn find(&self, call: &Call) -> Option<&'static dyn KernelSet> {
        self.sets.iter().find(|set| set.supports(self.device, call)).copied()
    }

    /// What runs a call of a case. `None` if the sets do not claim it. A set that is not linked has no others
    /// to do the parts of an expression with.
    fn runner(&self, case: &Case, call: &Call) -> Result<Option<Runner>, Failure> {
        if !self.linked || !(case.in_parts || self.in_parts) {
            return Ok(self.find(call).map(Runner::Set));
        }
        match Planned::new(self.device, call.clone()) {
            Ok(planned) => Ok(Some(Runner::Linked(planned))),
            Err(RunError::Unsupported { .. }) => Ok(None),
            Err(error) => Err(Failure::Failed(format!("{call}: {error:?}"))),
        }
    }

    /// A stream of the device.
    pub(crate) fn stream(&self) -> Result<Stream, Failure> {
        self.device.create_stream().map_err(|error| Failure::Failed(format!("{error:?}")))
    }

    /// Runs a case, and compares all memories with what they have to be. Steps that no set claims are left
    /// out.
    pub(crate) fn run(&self, case: &Case, streams: &[Stream]) -> Result<(), Failure> {
        let failed = |message: String| Failure::Failed(message);
        let failed_device = |error: device_registry::DeviceError| Failure::Failed(format!("{error:?}"));
        let mut buffers = Vec::new();
        for bytes in &case.memories {
            let buffer = self.device.allocate(bytes.len()).map_err(failed_device)?;
            buffer.write(0, bytes).map_err(failed_device)?;
            buffers.push(buffer);
        }
        let mut model = case.memories.clone();
        let mut written = Vec::new();
        let mut unsupported = None;
        let mut ran = 0;
        let mut launched = Ok(());
        for (number, step) in case.steps.iter().enumerate() {
            let call =
                step.call().map_err(|error| failed(format!("the suite made an invalid call: {error}")))?;
            let views = step.arrays(&call);
            // A set is not asked for a call that writes nothing.
            let runner = if call.is_empty() { None } else { self.runner(case, &call)? };
            if runner.is_none() {
                let is_asked = usize::from(!call.is_empty());
                self.calls.unclaimed.fetch_add(is_asked, Ordering::Relaxed);
                unsupported.get_or_insert_with(|| call.to_string());
            }
            if let Some(runner) = runner {
                ran += 1;
                self.calls.claimed.fetch_add(1, Ordering::Relaxed);
                let parts: Vec<_> = views
                    .iter()
                    .map(|view| buffers[view.memory].slice(view.bytes.clone()))
                    .collect::<Result<_, _>>()
                    .map_err(failed_device)?;
                let parts: Vec<_> = parts.iter().collect();
                let stream = &streams[step.stream % streams.len()];
                launched = runner
                    .enqueue(&call, stream, &parts)
                    .map_err(|error| format!("{}: {error}", step.describe()));
                if launched.is_err() {
                    break;
                }
            } else {
                continue;
            }
            let inputs: Vec<Input> = step.inputs.iter().map(|input| input.read(&model)).collect();
            let before: Vec<_> = step.outputs.iter().map(|view| view.read(&model)).collect();
            let outputs = reference::expected(step.operator, &inputs, &before);
            for (output, (view, expected)) in step.outputs.iter().zip(outputs).enumerate() {
                let mut each = expected.iter();
                let memory = &mut model[view.memory];
                reference::for_each_index(view.layout.shape(), |index| {
                    let expect = each.next().expect("one for each element");
                    if let Some(value) = expect.likely() {
                        element::write(view.dtype, value, &mut memory[view.place(index)..]);
                    }
                });
                let call = call.to_string();
                let view = view.clone();
                written.push(Written { step: number, call, output, view, expected });
            }
        }
        let synchronized = streams.iter().map(|stream| {
            let error = |error| format!("the stream failed: {error:?}");
            stream.synchronize().map_err(error)
        });
        // Each stream has to report its error, or a later case gets it.
        let outcomes: Vec<_> = std::iter::once(launched).chain(synchronized.collect::<Vec<_>>()).collect();
        let error = outcomes.into_iter().find_map(Result::err);
        if let Some(error) = error.as_ref().filter(|_| !case.may_fail) {
            let steps: Vec<_> = case.steps.iter().map(ToString::to_string).collect();
            return Err(failed(format!("{error}\nin\n{}", steps.join("\n"))));
        }
        let mut found = Vec::new();
        for (buffer, bytes) in buffers.iter().zip(&case.memories) {
            let mut read = vec![0; bytes.len()];
            buffer.read(0, &mut read).map_err(failed_device)?;
            found.push(read);
        }
        compare(case, &model, &written, &found, error.is_some()).map_err(failed)?;
        match unsupported {
            Some(call) if ran == 0 => Err(Failure::Unsupported(call)),
            _ => Ok(()),
        }
    }
}

/// Compares what was found with the model. Bytes that belong to no element of an output must equal the
/// model's.
fn compare(
    case: &Case,
    model: &[Vec<u8>],
    written: &[Written],
    found: &[Vec<u8>],
    failed: bool,
) -> Result<(), String> {
    // Which launch was the last to write a byte.
    let mut owners: Vec<Vec<usize>> = model.iter().map(|memory| vec![usize::MAX; memory.len()]).collect();
    for (number, written) in written.iter().enumerate() {
        let view = &written.view;
        let mut expected = written.expected.iter();
        reference::for_each_index(view.layout.shape(), |index| {
            let place = view.place(index);
            if expected.next() == Some(&Expect::Kept) {
                return;
            }
            owners[view.memory][place..place + view.dtype.size()].fill(number);
        });
    }
    for (number, written) in written.iter().enumerate().filter(|_| !failed) {
        let view = &written.view;
        let mut element = 0;
        let mut wrong: Option<(Vec<usize>, usize)> = None;
        let mut count = 0;
        reference::for_each_index(view.layout.shape(), |index| {
            let place = view.place(index);
            let expect = &written.expected[element];
            element += 1;
            if owners[view.memory][place] == number && !expect.fits(view.dtype, &found[view.memory][place..])
            {
                count += 1;
                wrong.get_or_insert_with(|| (index.to_vec(), element - 1));
            }
        });
        if let Some((index, at)) = wrong {
            let place = view.place(&index);
            let bytes = &found[view.memory][place..place + view.dtype.size()];
            let shown = Shown(view.dtype, bytes);
            let of = match written.output {
                0 => String::new(),
                output => format!(" of output {output}"),
            };
            let others = if count > 1 { format!(" ({} more differ)", count - 1) } else { String::new() };
            return Err(format!(
                "{}\nelement {index:?}{of}: expected {}, found {shown}{others}{}\n{}",
                written.call,
                written.expected[at],
                operands_at(case, written.step, &index),
                described(case, written.step),
            ));
        }
    }
    for (memory, bytes) in found.iter().enumerate() {
        let differs = |&at: &usize| owners[memory][at] == usize::MAX && bytes[at] != model[memory][at];
        if let Some(at) = (0..bytes.len()).find(differs) {
            let count = (at..bytes.len()).filter(differs).count();
            let others = if count > 1 { format!(" ({} more differ)", count - 1) } else { String::new() };
            let steps: Vec<_> = (0..case.steps.len()).map(|step| described(case, step)).collect();
            let calls: Vec<_> = written.iter().map(|written| written.call.clone()).collect();
            return Err(format!(
                "{}\nbyte {at} of memory {memory} belongs to no output: expected {:#04x}, found {:#04x}{others}\n{}",
                calls.join("; "),
                model[memory][at],
                bytes[at],
                steps.join("\n"),
            ));
        }
    }
    Ok(())
}

/// The elements of the inputs that an element of an element-wise operator is computed from.
fn operands_at(case: &Case, step: usize, index: &[usize]) -> String {
    let step = &case.steps[step];
    let is_elementwise = match step.operator {
        Operator::Expression(expression) => expression.dims().is_none(),
        operator => operator.is_elementwise(),
    };
    if !is_elementwise {
        return String::new();
    }
    let values: Vec<String> = step
        .inputs
        .iter()
        .map(|input| match input {
            Operand::Scalar(scalar) => scalar.to_string(),
            Operand::Array(view) => {
                let new = index.len() - view.layout.rank();
                let sizes = index[new..].iter().zip(view.layout.shape());
                let index: Vec<usize> =
                    sizes.map(|(&index, &size)| if size == 1 { 0 } else { index }).collect();
                let place = view.place(&index);
                let bytes = &case.memories[view.memory][place..place + view.dtype.size()];
                Shown(view.dtype, bytes).to_string()
            }
        })
        .collect();
    format!("; of {}", values.join(", "))
}

fn described(case: &Case, step: usize) -> String {
    let of =
        if case.steps.len() == 1 { String::new() } else { format!("step {step} of {}: ", case.steps.len()) };
    format!("{of}{}", case.steps[step])
}

/// An element, with its bytes where the value does not say all.
struct Shown<'a>(device_kernels::DType, &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(dtype, bytes) = *self;
        match element::read(dtype, bytes) {
            _ if dtype == device_kernels::DType::Bool => write!(f, "the byte {}", bytes[0]),
            Value::Float(value) => write!(f, "{value:?}"),
            Value::Int(value) => write!(f, "{value}"),
        }
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sets = self.sets.len();
        f.debug_struct("Subject").field("device", &self.device).field("sets", &sets).finish()
    }
}
