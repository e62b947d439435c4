//! What a thread remembers of a call, and what it looks at each time: by a kernel set that counts what it is
//! asked.

use std::error::Error;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};

use device_host_kernels::HostKernels;
use device_kernels::{
    Argument, ArgumentRef, Binary, BufferProblem, Call, Coverage, DType, Expression, KERNEL_SETS, KernelSet,
    KernelSetDescriptor, Layout, Operand, Operator, Planned, Prepared, RunError, Unary, kernel_sets, run,
};
use device_openreg::OpenRegMemory;
use device_registry::backend::{BackendError, Launch, LoadFailure};
use device_registry::registry::Switches;
use device_registry::{Buffer, Device, device};
use parking_lot::Mutex;

device_kernels::entry_points! {
    /// The only set of this program.
    #[distributed_slice(KERNEL_SETS)]
    pub static COUNTING: KernelSetDescriptor = KernelSetDescriptor::new("openreg", load);
}

fn load() -> Result<Box<dyn KernelSet>, LoadFailure> {
    Ok(Box::new(Counting(HostKernels::new(|span| span.memory_as::<OpenRegMemory>()?.bytes()))))
}

struct Counting(HostKernels);

/// What the set was asked: each test has shapes of its own.
static ASKED: Mutex<Vec<(Device, Vec<usize>)>> = Mutex::new(Vec::new());

/// Whether the set has kernels for arrays of [`MAYBE`] elements.
static HAS_MAYBE: AtomicBool = AtomicBool::new(false);
const MAYBE: usize = 11;
/// The set never has kernels for arrays of this shape.
const NEVER: [usize; 2] = [0, 11];

/// The threads that ran kernels, with the shapes of their outputs.
static LAUNCHED: Mutex<Vec<(Vec<usize>, ThreadId)>> = Mutex::new(Vec::new());

/// The set says that kernels for so many elements are not short.
const LONG: usize = 12;

impl KernelSet for Counting {
    fn coverage(&self, device: Device) -> Vec<Coverage> {
        self.0.coverage(device)
    }

    fn supports(&self, device: Device, call: &Call) -> bool {
        let shape = call.outputs()[0].1.shape().to_vec();
        let (maybe, never) = (shape == [MAYBE], shape == NEVER);
        ASKED.lock().push((device, shape));
        !never && (!maybe || HAS_MAYBE.load(Ordering::Relaxed))
    }

    fn is_short(&self, call: &Call) -> bool {
        call.outputs()[0].1.shape() != [LONG] && call.is_short()
    }

    fn launch(&self, call: &Call, launch: &Launch<'_>) -> Result<(), BackendError> {
        LAUNCHED.lock().push((call.outputs()[0].1.shape().to_vec(), thread::current().id()));
        self.0.launch(call, launch)
    }
}

/// How often the set was asked for an output of this shape on `device`.
fn asked(device: Device, shape: &[usize]) -> usize {
    ASKED.lock().iter().filter(|(of, asked)| *of == device && asked == shape).count()
}

fn upload(device: Device, values: &[f32]) -> Result<Buffer, Box<dyn Error>> {
    let buffer = device.allocate(values.len() * 4)?;
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    buffer.write(0, &bytes)?;
    Ok(buffer)
}

/// What an operator makes of operands, in an output of this shape.
fn compute(
    device: Device,
    operator: impl Into<Operator>,
    inputs: &[Operand<'_>],
    shape: &[usize],
) -> Result<Vec<f32>, Box<dyn Error>> {
    let stream = device.create_stream()?;
    let out = device.allocate(shape.iter().product::<usize>() * 4)?;
    run(&stream, operator, inputs, &[Operand::new(&out, DType::F32, shape)?])?;
    stream.synchronize()?;
    let mut bytes = vec![0; out.len()];
    out.read(0, &mut bytes)?;
    Ok(bytes.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect())
}

#[test]
fn a_set_is_asked_once_for_equal_calls_and_once_on_each_device() -> Result<(), Box<dyn Error>> {
    let (first, second) = (device("openreg:0")?, device("openreg:1")?);
    for (device, value) in [(first, 1.0), (second, 2.0), (first, 3.0), (second, 4.0), (first, 5.0)] {
        let a = upload(device, &[value, 1.0])?;
        let a = Operand::new(&a, DType::F32, [1, 2])?;
        assert_eq!(compute(device, Binary::Add, &[a, a], &[1, 2])?, [value * 2.0, 2.0]);
    }
    assert_eq!([first, second].map(|device| asked(device, &[1, 2])), [1, 1]);
    // Another thread has plans of its own.
    let other = thread::spawn(move || {
        let a = upload(first, &[1.0, 1.0]).expect("there is memory");
        let a = Operand::new(&a, DType::F32, [1, 2]).expect("it is small");
        compute(first, Binary::Add, &[a, a], &[1, 2]).expect("it is computed")
    });
    assert_eq!(other.join().unwrap(), [2.0, 2.0]);
    assert_eq!(asked(first, &[1, 2]), 2);
    Ok(())
}

#[test]
fn an_expression_is_planned_once_for_all_values_and_computes_with_each() -> Result<(), Box<dyn Error>> {
    let device = device("openreg:0")?;
    let plus = Expression::build(|e| {
        let a = e.input(DType::F32);
        let b = e.input(DType::F32);
        e.output(a * 2.0 + b);
    })?;
    let a = upload(device, &[1.0, 2.0, 3.0])?;
    let a = Operand::new(&a, DType::F32, [3, 1, 1])?;
    for value in [0.5, -0.5, 4.0] {
        let found = compute(device, plus, &[a, value.into()], &[3, 1, 1])?;
        assert_eq!(found, [2.0, 4.0, 6.0].map(|twice: f32| twice + value as f32));
    }
    assert_eq!(asked(device, &[3, 1, 1]), 1);
    Ok(())
}

#[test]
fn buffers_are_checked_at_each_call() -> Result<(), Box<dyn Error>> {
    let (device, other) = (device("openreg:0")?, device("openreg:1")?);
    let stream = device.create_stream()?;
    let memory = upload(device, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    let negate = |from: &Buffer, to: &Buffer| -> Result<(), RunError> {
        let array = |buffer| Operand::new(buffer, DType::F32, [1, 3]).expect("it is small");
        run(&stream, Unary::Neg, &[array(from)], &[array(to)])
    };
    let part = |elements: std::ops::Range<usize>| memory.slice(elements.start * 4..elements.end * 4);
    negate(&part(0..3)?, &part(3..6)?)?;
    let problem = |result: Result<(), RunError>| match result {
        Err(RunError::Buffers { problem, .. }) => problem,
        other => panic!("{other:?}"),
    };
    let found = problem(negate(&part(0..3)?, &part(1..4)?));
    assert!(matches!(found, BufferProblem::Overlap { .. }), "{found}");
    let found = problem(negate(&part(0..3)?, &part(4..6)?));
    assert!(matches!(found, BufferProblem::Short { needed: 12, found: 8, .. }), "{found}");
    let found = problem(negate(&part(0..3)?, &other.allocate(12)?));
    assert!(matches!(found, BufferProblem::Device { .. }), "{found}");
    // In place, the elements are the same ones.
    negate(&part(0..3)?, &part(0..3)?)?;
    stream.synchronize()?;
    assert_eq!(asked(device, &[1, 3]), 1, "all of these are one call");
    Ok(())
}

#[test]
fn views_and_values_that_differ_are_other_calls() -> Result<(), Box<dyn Error>> {
    let device = device("openreg:0")?;
    let a = upload(device, &[1.0, 2.0, 3.0, 4.0, 5.0])?;
    let a = Operand::new(&a, DType::F32, [2, 2])?;
    for _ in 0..2 {
        assert_eq!(compute(device, Operator::Copy, &[a], &[2, 2])?, [1.0, 2.0, 3.0, 4.0]);
        let transposed = a.view(|layout| layout.transpose(0, 1))?;
        assert_eq!(compute(device, Operator::Copy, &[transposed], &[2, 2])?, [1.0, 3.0, 2.0, 4.0]);
        let later = a.view(|_| Layout::strided([2, 2], [2, 1], 1))?;
        assert_eq!(compute(device, Operator::Copy, &[later], &[2, 2])?, [2.0, 3.0, 4.0, 5.0]);
        assert_eq!(compute(device, Binary::Div, &[a, 0.0.into()], &[2, 2])?, [f32::INFINITY; 4]);
        assert_eq!(compute(device, Binary::Div, &[a, (-0.0).into()], &[2, 2])?, [f32::NEG_INFINITY; 4]);
        assert_eq!(compute(device, Binary::Sub, &[a, 1.0.into()], &[2, 2])?, [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(compute(device, Binary::Sub, &[a, 2.0.into()], &[2, 2])?, [-1.0, 0.0, 1.0, 2.0]);
    }
    assert_eq!(asked(device, &[2, 2]), 7);
    Ok(())
}

#[test]
fn more_calls_than_a_thread_remembers_are_computed() -> Result<(), Box<dyn Error>> {
    let device = device("openreg:0")?;
    let ones = upload(device, &[1.0; 1500])?;
    for _ in 0..2 {
        for len in (600..1500).rev() {
            let a = Operand::new(&ones, DType::F32, [len])?;
            assert_eq!(compute(device, Binary::Add, &[a, 1.0.into()], &[len])?, vec![2.0; len]);
        }
    }
    assert!((600..1500).map(|len| asked(device, &[len])).sum::<usize>() > 900, "some were forgotten");
    Ok(())
}

#[test]
fn a_yes_is_remembered_and_a_no_is_not() -> Result<(), Box<dyn Error>> {
    let device = device("openreg:0")?;
    let shape = [MAYBE];
    let array = ArgumentRef::Array { dtype: DType::F32, shape: &shape, strides: None, offset: 0 };
    let plan = || Planned::of(device, Unary::Neg, &[array], &[array]);
    assert!(matches!(plan(), Err(RunError::Unsupported { .. })));
    HAS_MAYBE.store(true, Ordering::Relaxed);
    assert!(plan()?.set().is_some());
    HAS_MAYBE.store(false, Ordering::Relaxed);
    assert!(plan()?.set().is_some());
    // What is not found by its description is asked for each time.
    let array = Argument::Array(DType::F32, Layout::contiguous(shape)?);
    let call = Call::new(Unary::Neg, &[array], &[array])?;
    let buffer = device.allocate(MAYBE * 4)?;
    let error = Prepared::new(device, call, &[&buffer; 2]).unwrap_err();
    assert!(matches!(error, RunError::Unsupported { .. }), "{error}");
    Ok(())
}

#[test]
fn short_calls_run_on_the_thread_that_enqueues_them() -> Result<(), Box<dyn Error>> {
    let device = device("openreg:0")?;
    for (len, at_once) in [(13, true), (8 << 10, true), (LONG, false), ((8 << 10) + 1, false)] {
        let ones = upload(device, &vec![1.0; len])?;
        let a = Operand::new(&ones, DType::F32, [len])?;
        assert_eq!(compute(device, Binary::Add, &[a, a], &[len])?, vec![2.0; len]);
        let launched = LAUNCHED.lock();
        let (_, thread) = launched.iter().find(|(shape, _)| *shape == [len]).expect("it ran");
        assert_eq!(*thread == thread::current().id(), at_once, "{len}");
    }
    Ok(())
}

/// A framework that falls back asks whether a set has a kernel, though there is nothing to launch.
#[test]
fn a_call_that_writes_nothing_has_a_set_only_if_one_has_a_kernel() -> Result<(), Box<dyn Error>> {
    let device = device("openreg:0")?;
    for (shape, has_kernel) in [([0, 3], true), (NEVER, false)] {
        let array = ArgumentRef::Array { dtype: DType::F32, shape: &shape, strides: None, offset: 0 };
        let planned = Planned::of(device, Unary::Neg, &[array], &[array])?;
        assert_eq!(planned.set().is_some(), has_kernel, "{shape:?}");
        let buffer = device.allocate(0)?;
        assert!(planned.with_buffers(&[&buffer; 2])?.is_none());
    }
    Ok(())
}

#[test]
fn sets_are_switched_off_before_the_first_call_only() -> Result<(), Box<dyn Error>> {
    let device = device("openreg:0")?;
    let a = upload(device, &[1.0])?;
    let a = Operand::new(&a, DType::F32, [1, 1, 1])?;
    if std::env::var_os("DEVICE_KERNELS_DISABLE").is_some() {
        for _ in 0..2 {
            let error = compute(device, Unary::Neg, &[a], &[1, 1, 1]).unwrap_err();
            assert!(error.to_string().contains("or it is switched off"), "{error}");
        }
        return Ok(());
    }
    assert_eq!(compute(device, Unary::Neg, &[a], &[1, 1, 1])?, [-1.0]);
    let switches = Switches { disable: vec!["openreg".into()], ..Switches::default() };
    kernel_sets().configure(switches).expect_err("the group is in use");
    assert_eq!(compute(device, Unary::Neg, &[a], &[1, 1, 1])?, [-1.0]);

    let this = "sets_are_switched_off_before_the_first_call_only";
    let mut other = Command::new(std::env::current_exe()?);
    let status = other.args(["--exact", this]).env("DEVICE_KERNELS_DISABLE", "openreg").status()?;
    assert!(status.success(), "{status}");
    Ok(())
}
