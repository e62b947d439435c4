//! What burn calls: the client of one device.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Instant;

use burn_backend::{
    DType, DTypeUsageSet, Distribution, ExecutionError, ProfileDuration, ProfileOptions, ProfileToken,
    TensorData,
};
use burn_flex::{Flex, FlexDevice, FlexTensor};
use burn_ir::{GraphBindings, GraphId, OperationIr, TensorId, TensorIr, TensorStatus};
use burn_router::{Graph, RouterClient, RouterTensor};
use burn_std::Bytes;
use burn_std::future::DynFut;
use dashmap::DashMap;
use device_kernels::{DTypes, Kernels};
use device_registry::backend::BackendError;
use device_registry::{Device, Event};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::chain::{self, Called};
use crate::counts::{Counters, Counts, Moved, Way};
use crate::describe;
use crate::device::RegistryDevice;
use crate::elementwise::{Elementwise, Types, elementwise, elementwise_operators};
use crate::engine::{self, KernelUse, Settled};
use crate::failure::{self, Cause, Failure, Unreported};
use crate::fallback::{self, Fallback};
use crate::fused::Plans;
use crate::fusion::Fusion;
use crate::lease::Lease;
use crate::on_host;
use crate::operation::{Operands, OperationName, Signature, Work, copy};
use crate::profile::Windows;
use crate::queue::{BurnQueue, Refused, Target, Written};
use crate::quick::{Quick, Taken};
use crate::random::{self, Random};
use crate::slots;
use crate::step::{Memory, Steps};
use crate::storage::Storage;
use crate::table::{Held, RegistryTensor, Table};

pub(crate) const READ: OperationName = OperationName::pseudo(0, "Tensor", "Read");
const MOVE: OperationName = OperationName::pseudo(1, "Tensor", "Move");

/// The name of the operator that several are part of.
const EXPRESSION: &str = "expression";

/// burn's access to one device. Cheap to clone; all clones of a device are one client.
///
/// An operation runs on the thread that calls it, or is enqueued in the device's stream. No lock is held
/// while burn's CPU engine computes.
#[derive(Clone)]
pub struct RegistryClient(&'static Client, Lease);

pub(crate) struct Client {
    device: RegistryDevice,
    pub(crate) queue: BurnQueue,
    pub(crate) table: Table,
    random: Random,
    pub(crate) counters: Counters,
    kernels: OnceLock<Option<&'static Kernels>>,
    /// Whether its memory is the host's own.
    is_host: OnceLock<bool>,
    pub(crate) settled: Settled,
    /// The types of expressions that the device has kernels for.
    fusible: OnceLock<Option<DTypes>>,
    pub(crate) plans: Plans,
    graphs: DashMap<GraphId, Graph>,
    windows: Windows,
    /// The operations that were warned of.
    warned: Mutex<Vec<usize>>,
}

/// The clients of the process.
static CLIENTS: LazyLock<Mutex<HashMap<Device, RegistryClient>>> = LazyLock::new(Mutex::default);

impl RegistryClient {
    /// The client of `device`. Opens nothing.
    #[must_use]
    pub fn of(device: RegistryDevice) -> Self {
        let mut clients = CLIENTS.lock();
        let client = clients.entry(device.device()).or_insert_with(|| {
            // burn keeps it forever as well.
            let client = Box::leak(Box::new(Client {
                device,
                queue: BurnQueue::new(device.device()),
                table: Table::default(),
                random: Random::default(),
                counters: Counters::default(),
                kernels: OnceLock::new(),
                is_host: OnceLock::new(),
                settled: Settled::default(),
                fusible: OnceLock::new(),
                plans: Plans::default(),
                graphs: DashMap::new(),
                windows: Windows::default(),
                warned: Mutex::new(Vec::new()),
            }));
            Self(client, Lease::default())
        });
        client.clone()
    }

    /// What happened to the operations of this device. Those that this thread has left waiting run first.
    #[must_use]
    pub fn counts(&self) -> Counts {
        chain::settle_all(self.0);
        self.0.counters.now(self.0.device.device())
    }

    /// Begins to count from zero.
    pub fn reset_counts(&self) {
        chain::settle_all(self.0);
        self.0.counters.reset();
    }

    /// How many tensors the device has.
    #[must_use]
    pub fn tensors(&self) -> usize {
        self.0.table.len()
    }

    fn begin(&self, operation: OperationIr) {
        match operation {
            OperationIr::Drop(tensor) => drop(self.0.table.take(tensor.id)),
            // burn announces a tensor whose data it has registered already.
            OperationIr::Init(_) => {}
            operation => {
                if let Quick::Other(taken) = self.0.quick(&operation, &self.1) {
                    self.run(operation, taken);
                }
            }
        }
    }

    /// Runs an operation that is not [quick](crate::quick).
    fn run(&self, operation: OperationIr, taken: Option<Taken>) {
        #[cfg(not(feature = "burn-0-23"))]
        if let OperationIr::Distributed(operation) = operation {
            return crate::collective::run(self, operation);
        }
        self.0.run(operation, taken, &self.1);
    }

    /// The operation of `out` has failed.
    #[cfg(not(feature = "burn-0-23"))]
    pub(crate) fn fail(&self, out: TensorId, signature: Signature, cause: Cause) {
        self.0.table.insert(out, Held::Failed(self.0.failure(signature, cause)));
    }

    /// Takes a tensor at its last use, or shares it.
    pub(crate) fn tensor(&self, tensor: &TensorIr) -> Held {
        let held = self.0.held(tensor, || MOVE, &self.1, self.0.is_host());
        self.1.registered();
        held
    }

    /// This client in a handle of the tensor `id`.
    pub(crate) fn leased(&self, id: TensorId) -> Self {
        Self(self.0, Lease::new(id))
    }

    /// This client, outside any handle.
    pub(crate) fn without_lease(&self) -> Self {
        Self(self.0, Lease::default())
    }

    /// Adds a tensor that came from another device.
    pub(crate) fn add(&self, held: Held) -> TensorId {
        let id = self.create_empty_handle();
        self.0.table.insert(id, held);
        id
    }

    /// A tensor of this device on `target`, through the host: the target uploads it when a kernel needs it.
    pub(crate) fn move_to(&self, held: Held, target: &Self) -> Held {
        let from = self.0;
        let to = target.0;
        let tensor = match held {
            Held::Tensor(tensor) if from.device != to.device => tensor,
            held => return held,
        };
        let mut moved = Moved::default();
        // What the host has is uploaded when the other device needs it.
        let host = tensor.storage.host(&from.queue, &mut moved);
        from.counters.count_moved(MOVE, &moved);
        match host {
            Ok(bytes) => {
                Held::Tensor(RegistryTensor { storage: Arc::new(Storage::on_host(bytes)), ..tensor })
            }
            Err(error) => {
                let signature = Signature::of_tensor(MOVE, tensor.dtype, tensor.shape().clone());
                Held::Failed(from.failure(signature, Cause::Device(error)))
            }
        }
    }
}

impl RouterClient for RegistryClient {
    type Device = RegistryDevice;

    fn register_op(&self, operation: OperationIr) {
        if let OperationIr::Drop(tensor) = operation {
            if self.1.ends_with_handle(tensor.id) {
                self.0.table.take(tensor.id);
            }
            return;
        }
        self.begin(operation);
        self.1.registered();
    }

    fn register(&self, operation: OperationIr) -> Vec<RouterTensor<Self>> {
        let tensor =
            |out: &TensorIr| RouterTensor::new(out.id, copy(&out.shape), out.dtype, self.leased(out.id));
        let outputs = match self.0.quick(&operation, &self.1) {
            Quick::Done(out) => vec![tensor(out)],
            Quick::Other(taken) => {
                let outputs = operation.outputs().map(tensor).collect();
                self.run(operation, taken);
                outputs
            }
        };
        self.1.registered();
        outputs
    }

    fn read_tensor_async(&self, tensor: TensorIr) -> DynFut<Result<TensorData, ExecutionError>> {
        let result = self.0.read(&tensor, &self.1);
        self.1.registered();
        Box::pin(async move { result })
    }

    fn sync(&self) -> Result<(), ExecutionError> {
        self.1.registered();
        chain::settle_all(self.0);
        let result = self.0.queue.synchronize();
        if let Some(failure) = failure::take_unreported(self.0.queue.device()) {
            return Err(failure.report());
        }
        result.map_err(|error| {
            ExecutionError::with_context(device_registry::ErrorChain::new(&error).to_string())
        })
    }

    fn flush(&self) {
        chain::settle_all(self.0);
    }

    fn profile_start(&self) -> Result<Option<ProfileToken>, ExecutionError> {
        self.1.registered();
        chain::settle_all(self.0);
        self.0.windows.open(&self.0.queue)
    }

    fn profile_end(
        &self,
        token: ProfileToken,
        _options: ProfileOptions,
    ) -> Result<ProfileDuration, ExecutionError> {
        self.1.registered();
        chain::settle_all(self.0);
        self.0.windows.close(token, &self.0.queue)
    }

    fn profile_abandon(&self, token: ProfileToken) {
        self.0.windows.abandon(token);
    }

    fn create_empty_handle(&self) -> TensorId {
        slots::new_id()
    }

    fn register_tensor_data(&self, data: TensorData) -> RouterTensor<Self> {
        let shape = copy(data.shape());
        let dtype = data.dtype();
        let id = self.add(Held::Host(FlexTensor::from_data(data)));
        RouterTensor::new(id, shape, dtype, self.leased(id))
    }

    fn device(&self) -> RegistryDevice {
        self.0.device
    }

    fn seed(&self, seed: u64) {
        self.0.random.seed(seed);
    }

    fn dtype_usage(&self, dtype: DType) -> DTypeUsageSet {
        <Flex as burn_backend::Backend>::dtype_usage(&FlexDevice, dtype)
    }

    fn register_and_execute_graph(&self, id: GraphId, operations: Vec<OperationIr>, bindings: GraphBindings) {
        self.0.graphs.insert(id, Graph::new(operations));
        self.execute_graph(id, bindings);
    }

    fn execute_graph(&self, id: GraphId, bindings: GraphBindings) {
        let graph = self.0.graphs.get(&id).map(|graph| graph.clone());
        let operations = graph.map(|graph| graph.bind(bindings).operations).unwrap_or_default();
        operations.into_iter().for_each(|operation| self.begin(operation));
        self.1.registered();
    }

    fn register_alias(&self, new: TensorId, source: TensorId) {
        if let Some(held) = self.0.table.get(source) {
            self.0.table.insert(new, held);
        }
    }
}

impl Client {
    /// Runs an operation, or makes it wait. Whatever happens, each of its outputs is in the table afterwards.
    fn run(&'static self, mut operation: OperationIr, taken: Option<Taken>, lease: &Lease) {
        let name = OperationName::of(&operation);
        let operands = Operands::take(&mut operation);
        let inputs = taken.map_or_else(|| self.inputs(name, &operands, lease), |taken| *taken);
        let inputs = match inputs {
            Ok(inputs) => inputs,
            Err(failure) => return self.fails(name, &operands, &failure, &Moved::default()),
        };
        match self.elementwise(&operation, &operands) {
            Ok(None) => {}
            Ok(Some((elementwise, types, owner))) => {
                let out = operands.outputs[0].id;
                let called = Box::new(Called { operation, name, operands });
                match chain::record(self, owner, &elementwise, types, called, inputs) {
                    Ok(tensor) => self.table.insert(out, Held::Tensor(tensor)),
                    Err((called, refused)) => {
                        let signature = Signature::new(name, &called.operands);
                        let failure = self.failure(signature, Cause::Device(refused));
                        self.fails(name, &called.operands, &failure, &Moved::default());
                    }
                }
                return;
            }
            Err(cause) => {
                let failure = self.failure(Signature::new(name, &operands), cause);
                return self.fails(name, &operands, &failure, &Moved::default());
            }
        }
        let mut moved = Moved::default();
        match self.outputs(operation, name, &operands, inputs, &mut moved) {
            Ok((outputs, way)) => {
                for (out, tensor) in operands.outputs.iter().zip(outputs) {
                    let held = if self.is_host() { tensor.into_held() } else { Held::Tensor(tensor) };
                    self.table.insert(out.id, held);
                }
                self.counters.count(name, way, &moved);
            }
            Err(cause) => {
                let failure = self.failure(Signature::new(name, &operands), cause);
                self.fails(name, &operands, &failure, &moved);
            }
        }
        moved.wait();
    }

    fn fails(&'static self, name: OperationName, operands: &Operands, failure: &Failure, moved: &Moved) {
        for out in &operands.outputs {
            self.table.insert(out.id, Held::Failed(failure.clone()));
        }
        self.counters.count(name, Way::Failed, moved);
    }

    /// The operation as one that can wait, and the thread whose it is. `None` if it has to run now.
    fn elementwise(
        &self,
        operation: &OperationIr,
        operands: &Operands,
    ) -> Result<Option<(Elementwise, Types, Arc<Unreported>)>, Cause> {
        let fusible = self.fusible();
        if matches!(fusible, Ok(None)) {
            return Ok(None);
        }
        let Some(elementwise) = elementwise(operation) else { return Ok(None) };
        let has = |dtypes: DTypes, types: Types| dtypes.contains(types.from) && dtypes.contains(types.to);
        Ok(match (fusible?, elementwise.types(operands), Unreported::of_this_thread()) {
            (Some(dtypes), Some(types), Some(owner)) if has(dtypes, types) => {
                Some((elementwise, types, owner))
            }
            _ => None,
        })
    }

    /// The types of operations that can wait: the device has kernels for expressions of these.
    /// `None` if fusion is off, or the kernels compute on the host.
    fn fusible(&self) -> Result<Option<DTypes>, Cause> {
        if Fusion::current().map_err(Cause::InvalidVariable)? == Fusion::Off {
            return Ok(None);
        }
        if let Some(fusible) = self.fusible.get() {
            return Ok(*fusible);
        }
        let sets = self.kernels()?.map_or(&[][..], Kernels::sets);
        let device = self.queue.device();
        let of_expressions = || {
            if sets.iter().any(|set| set.set().on_host().is_some()) {
                return None;
            }
            let rows: Vec<_> = sets.iter().flat_map(|set| set.set().coverage(device)).collect();
            let has = |name: &str, dtype: device_kernels::DType| {
                rows.iter().any(|row| row.operator() == name && row.types().contains(dtype))
            };
            // Each operator by itself, too: burn's engine, which may take work of other threads meanwhile,
            // never computes what they wait for.
            let has_all = |dtype: &device_kernels::DType| {
                has(EXPRESSION, *dtype) && elementwise_operators().all(|name| has(name, *dtype))
            };
            let types: DTypes = device_kernels::DType::ALL.into_iter().filter(has_all).collect();
            types.iter().next().is_some().then_some(types)
        };
        // A set that panics here does so where an operation runs, too.
        let fusible = fallback::isolate(of_expressions).unwrap_or_default();
        Ok(*self.fusible.get_or_init(|| fusible))
    }

    /// The inputs of an operation, or the failure of one of them.
    fn inputs(&self, name: OperationName, operands: &Operands, lease: &Lease) -> Result<Inputs, Failure> {
        let mut failed = None;
        let mut inputs = Inputs::new();
        // All of them, as those at their last use leave the table.
        for input in &operands.inputs {
            match self.held(input, || name, lease, false).into_tensor() {
                Ok(tensor) => inputs.push(tensor),
                Err(failure) => failed = failed.or(Some(failure)),
            }
        }
        failed.map_or(Ok(inputs), Err)
    }

    /// A tensor for a use by a client with `lease`: it leaves the table if this is the last use. `on_host`:
    /// the use needs no storage that the tensor's other uses have too.
    pub(crate) fn held(
        &self,
        tensor: &TensorIr,
        name: impl FnOnce() -> OperationName,
        lease: &Lease,
        on_host: bool,
    ) -> Held {
        let held = match tensor.status {
            TensorStatus::ReadWrite if lease.is_last_use(tensor.id) => self.table.take(tensor.id),
            _ if on_host => self.table.get_for_host(tensor.id),
            _ => self.table.get(tensor.id),
        };
        held.unwrap_or_else(|| {
            let signature = Signature::of_tensor(name(), tensor.dtype, tensor.shape.clone());
            Held::Failed(self.failure(signature, Cause::Released(tensor.id.value())))
        })
    }

    /// Runs an operation now.
    pub(crate) fn outputs(
        &self,
        operation: OperationIr,
        name: OperationName,
        operands: &Operands,
        inputs: Inputs,
        moved: &mut Moved,
    ) -> Result<(Outputs, Way), Cause> {
        let device = self.queue.device();
        if let Some((out, distribution)) = describe::random(&operation) {
            return self.random(name, operands, out, distribution, moved);
        }
        if let OperationIr::Custom(custom) = &operation {
            let steps = fallback::isolate(|| describe::custom(custom, operands, &inputs, device))
                .map_err(Cause::KernelSetPanicked)?
                .map_err(Cause::Custom)?;
            return Ok((self.by_kernels(name, &steps, &inputs, operands, moved)?, Way::Native));
        }
        if self.kernels()?.is_some() {
            let auto = KernelUse::current().map_err(Cause::InvalidVariable)? == KernelUse::Auto;
            // Under another policy, or an unknown one, it matters whether this very call has a kernel.
            let allow = Fallback::current() == Ok(Fallback::Allow);
            let is_settled = |first| self.settled.has(name, first);
            if auto && allow && engine::first(operands).is_some_and(is_settled) {
                return Ok((self.on_engine(operation, operands, inputs, moved)?, Way::Host));
            }
            // Tensors that only the host has are joined there: the device gets it as one, if it needs it at
            // all.
            if let Some(cat) = describe::cat(&operation)
                && inputs.iter().all(|input| input.storage.is_on_host_alone())
                && fallback::isolate(|| describe::joins(cat, device)).map_err(Cause::KernelSetPanicked)?
            {
                return Ok((self.on_engine(operation, operands, inputs, moved)?, Way::Host));
            }
            if let Some(steps) = fallback::isolate(|| describe::steps(&operation, operands, &inputs, device))
                .map_err(Cause::KernelSetPanicked)?
            {
                let computed = if !on_host::has_all(&steps) {
                    self.native(name, &steps, &inputs, operands, moved)?
                } else if !auto || engine::kernels_are_faster(&steps) {
                    self.native_on_host(name, &steps, &inputs, operands, moved)?
                } else {
                    self.settled.add(name, operands, &steps);
                    return Ok((self.on_engine(operation, operands, inputs, moved)?, Way::Host));
                };
                return Ok((computed, Way::Native));
            }
        }
        self.allow(name)?;
        let start = Instant::now();
        let outputs = self.on_engine(operation, operands, inputs, moved)?;
        Ok((outputs, Way::Fallback(start.elapsed())))
    }

    /// Runs kernels, in bytes of the host where they can.
    fn by_kernels(
        &self,
        name: OperationName,
        steps: &Steps,
        inputs: &[RegistryTensor],
        operands: &Operands,
        moved: &mut Moved,
    ) -> Result<Outputs, Cause> {
        if on_host::has_all(steps) {
            self.native_on_host(name, steps, inputs, operands, moved)
        } else {
            self.native(name, steps, inputs, operands, moved)
        }
    }

    /// Runs kernels in bytes of the host, on the calling thread.
    fn native_on_host(
        &self,
        name: OperationName,
        steps: &Steps,
        inputs: &[RegistryTensor],
        operands: &Operands,
        moved: &mut Moved,
    ) -> Result<Outputs, Cause> {
        let mut bytes = SmallVec::<[Option<Arc<Bytes>>; 4]>::new();
        for (place, input) in inputs.iter().enumerate() {
            let used = steps.iter().any(|step| step.memory.contains(&Memory::Input(place)));
            let input = used.then(|| input.storage.host(&self.queue, moved)).transpose();
            bytes.push(input.map_err(Cause::Device)?);
        }
        let computed = fallback::isolate(|| on_host::compute(steps, &bytes, &steps.written(operands)))
            .unwrap_or_else(|panic| Err(BackendError::other(format_args!("the kernel panicked: {panic}"))));
        let computed = computed.map_err(|error| {
            let error = BackendError::new(error.kind(), name).with_source(error);
            Cause::Device(Refused::Unwritten(error))
        })?;
        let tensor = |(out, bytes): (&TensorIr, Bytes)| RegistryTensor {
            storage: Arc::new(Storage::on_host(Arc::new(bytes))),
            layout: burn_flex::Layout::contiguous(out.shape.clone()),
            dtype: out.dtype,
        };
        Ok(operands.outputs.iter().zip(computed).map(tensor).collect())
    }

    /// Runs kernels of the device.
    fn native(
        &self,
        name: OperationName,
        steps: &Steps,
        inputs: &[RegistryTensor],
        operands: &Operands,
        moved: &mut Moved,
    ) -> Result<Outputs, Cause> {
        let targets: SmallVec<[Target; 2]> =
            steps.written(operands).iter().map(|out| Target::New(len_of(out))).collect();
        // Some operations need only the shape of some inputs.
        let used = |place| steps.iter().any(|step| step.memory.contains(&Memory::Input(place)));
        let storages: SmallVec<[Option<&Storage>; 4]> = (inputs.iter().enumerate())
            .map(|(place, input)| used(place).then_some(&*input.storage))
            .collect();
        let work = Work::from(name);
        let written =
            self.on_device(&storages, moved, |memories| self.queue.run(&work, steps, memories, &targets));
        let tensor = |(out, written): (&TensorIr, Written)| RegistryTensor {
            storage: Arc::new(Storage::on_device(written)),
            layout: burn_flex::Layout::contiguous(out.shape.clone()),
            dtype: out.dtype,
        };
        let written = written.map_err(Cause::Device)?;
        for planned in steps.iter().map(|step| &step.planned) {
            if let Some(name) = planned.set().and_then(|set| set.set().launch_name(planned.call())) {
                self.counters.count_launch(name, 1, 1);
            }
        }
        Ok(operands.outputs.iter().zip(written).map(tensor).collect())
    }

    /// Runs kernels with the memory of `storages` on the device.
    pub(crate) fn on_device(
        &self,
        storages: &[Option<&Storage>],
        moved: &mut Moved,
        mut run: impl FnMut(&[Option<Written>]) -> Result<(SmallVec<[Written; 2]>, Option<Event>), Refused>,
    ) -> Result<SmallVec<[Written; 2]>, Refused> {
        let mut was_reopened = false;
        let mut has_released = false;
        loop {
            let memory = |storage: &Option<&Storage>| {
                storage.map(|storage| storage.device(&self.queue, moved)).transpose()
            };
            let memories = storages.iter().map(memory).collect::<Result<SmallVec<[Option<Written>; 4]>, _>>();
            match memories.and_then(|memories| run(&memories)) {
                Ok((written, earlier)) => {
                    moved.waits_for(earlier);
                    return Ok(written);
                }
                // The device was opened again, and gets the host's bytes again.
                Err(Refused::Stale(_))
                    if !was_reopened && storages.iter().flatten().all(|storage| storage.forget_device()) =>
                {
                    was_reopened = true;
                }
                // Operations that wait keep the memory of their inputs.
                Err(refused)
                    if !has_released && refused.is_out_of_memory() && chain::release_memory(self) =>
                {
                    has_released = true;
                }
                Err(refused) => return Err(refused),
            }
        }
    }

    /// The kernels of the backend, if a set is linked.
    pub(crate) fn kernels(&self) -> Result<Option<&'static Kernels>, Cause> {
        if let Some(kernels) = self.kernels.get() {
            return Ok(*kernels);
        }
        // A set that is there but does not load is an error, not a fallback.
        let kernels = Kernels::of(self.queue.device()).map_err(Cause::Kernels)?;
        let kernels = (!kernels.sets().is_empty()).then_some(kernels);
        Ok(*self.kernels.get_or_init(|| kernels))
    }

    /// Whether no kernel needs memory of the device.
    pub(crate) fn is_host(&self) -> bool {
        if let Some(is_host) = self.is_host.get() {
            return *is_host;
        }
        let is_host = |kernels: Option<&Kernels>| {
            kernels.is_none_or(|kernels| kernels.sets().iter().all(|set| set.set().on_host().is_some()))
        };
        // A set that does not load, or panics here, does so where an operation runs, too.
        let Ok(kernels) = self.kernels() else { return false };
        *self.is_host.get_or_init(|| fallback::isolate(|| is_host(kernels)).unwrap_or(false))
    }

    fn random(
        &self,
        name: OperationName,
        operands: &Operands,
        out: &TensorIr,
        distribution: Distribution,
        moved: &mut Moved,
    ) -> Result<(Outputs, Way), Cause> {
        let device = self.queue.device();
        let numbers = self.random.take(out.shape.num_elements());
        if self.kernels()?.is_some()
            && let Some(draw) = random::draw(distribution, out.dtype)
            && let Some(steps) = fallback::isolate(|| describe::random_step(draw, numbers, operands, device))
                .map_err(Cause::KernelSetPanicked)?
        {
            return Ok((self.by_kernels(name, &steps, &[], operands, moved)?, Way::Native));
        }
        self.allow(name)?;
        let start = Instant::now();
        let data = fallback::isolate(|| numbers.draw(out, distribution)).map_err(Cause::Panicked)?;
        let data = data.ok_or_else(|| Cause::Panicked("no random numbers of this type".to_owned()))?;
        let tensor = RegistryTensor::on_host(&FlexTensor::from_data(data));
        Ok((Outputs::from_iter([tensor]), Way::Fallback(start.elapsed())))
    }

    /// Runs an operation on burn's CPU engine, with the inputs on the host.
    fn on_engine(
        &self,
        operation: OperationIr,
        operands: &Operands,
        inputs: Inputs,
        moved: &mut Moved,
    ) -> Result<Outputs, Cause> {
        fallback::check_memory(&operands.outputs).map_err(Cause::Memory)?;
        // Bytes that others also use. The engine may return another view of them.
        let mut shared = SmallVec::<[_; 4]>::new();
        let mut tensors = Tensors::new();
        for input in inputs {
            let storage = (Arc::strong_count(&input.storage) > 1).then(|| Arc::clone(&input.storage));
            let tensor = input.into_flex(&self.queue, moved).map_err(Cause::Device)?;
            if let Some(storage) = storage {
                shared.push((Arc::as_ptr(&tensor.data_arc()), storage));
            }
            tensors.push(tensor);
        }
        let outputs = match describe::int_cast(&operation) {
            Some(dtype) => fallback::cast_int(tensors.remove(0), dtype),
            None => fallback::run(operation, operands, tensors),
        };
        let outputs = outputs.map_err(Cause::Panicked)?;
        let outputs = outputs.iter().map(|tensor| {
            let bytes = Arc::as_ptr(&tensor.data_arc());
            let of_input = shared.iter().find(|(shared, _)| *shared == bytes);
            match of_input {
                Some((_, storage)) => RegistryTensor::of(tensor, Arc::clone(storage)),
                None => RegistryTensor::on_host(tensor),
            }
        });
        Ok(outputs.collect())
    }

    /// Whether the CPU may do an operation.
    pub(crate) fn allow(&self, name: OperationName) -> Result<(), Cause> {
        match Fallback::current() {
            Ok(Fallback::Allow) => Ok(()),
            Ok(Fallback::Warn) => {
                let mut warned = self.warned.lock();
                if !warned.contains(&name.index()) {
                    warned.push(name.index());
                    log::warn!(
                        "{name} runs on the CPU: no kernel of {} does it. DEVICE_BURN_FALLBACK=deny makes it an error",
                        self.device
                    );
                }
                Ok(())
            }
            Ok(Fallback::Deny) => Err(Cause::Denied),
            Err(error) => Err(Cause::InvalidVariable(error)),
        }
    }

    fn read(&self, tensor: &TensorIr, lease: &Lease) -> Result<TensorData, ExecutionError> {
        let mut moved = Moved::default();
        let flex = match self.held(tensor, || READ, lease, true) {
            Held::Host(tensor) => Ok(tensor),
            Held::Tensor(tensor) => tensor.into_flex(&self.queue, &mut moved),
            Held::Failed(failure) => return Err(failure.report()),
        };
        self.counters.count_moved(READ, &moved);
        let failed = |cause| {
            let signature = Signature::of_tensor(READ, tensor.dtype, tensor.shape.clone());
            // Reported at once: no `sync` has to return it.
            self.failure_of(None, signature, cause).report()
        };
        let flex = flex.map_err(|error| failed(Cause::Device(error)))?;
        fallback::isolate(|| fallback::data(flex)).map_err(|panic| failed(Cause::Panicked(panic)))
    }

    /// A new failure, which a `sync` of this thread returns unless a read does so before. The failure of an
    /// operation that waited stays what it is.
    pub(crate) fn failure(&self, signature: Signature, cause: Cause) -> Failure {
        let thread = Unreported::of_this_thread();
        self.failure_of(thread.as_deref(), signature, cause)
    }

    /// A new failure of the thread `owner`.
    pub(crate) fn failure_of(
        &self,
        owner: Option<&Unreported>,
        signature: Signature,
        cause: Cause,
    ) -> Failure {
        if let Cause::Device(Refused::Failed(failure)) = cause {
            return failure;
        }
        let failure = Failure::new(self.queue.device(), signature, cause);
        owner.inspect(|owner| owner.leave(&failure));
        failure
    }
}

/// The bytes of a new tensor.
fn len_of(out: &TensorIr) -> usize {
    out.shape.num_elements() * out.dtype.size()
}

type Tensors = SmallVec<[FlexTensor; 4]>;
pub(crate) type Inputs = SmallVec<[RegistryTensor; 4]>;
type Outputs = SmallVec<[RegistryTensor; 2]>;
