//! All-reduce: each device gives a tensor, and each gets the sum or the average of all.
//!
//! burn 0.22 asks for it by one call for each device, each on its own thread: its remote server has one
//! for each device of each client. The call waits until all devices have given theirs. The last one adds them
//! up on the first device, in the order of the devices, so that the result does not depend on which one comes
//! last. The tensors move as all others do, and the kernels of the first device add.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use burn_backend::distributed::ReduceOperation;
use burn_backend::ops::FloatTensorOps;
use burn_backend::{DeviceId, DeviceOps, Scalar, TensorMetadata};
use burn_ir::{AllReduceOpIr, DistributedOperationIr, OperationIr};
use burn_router::{RouterChannel, RouterClient, RouterTensor};
use parking_lot::{Condvar, Mutex};

use crate::channel::{Registry, RegistryChannel};
use crate::client::RegistryClient;
use crate::failure::Cause;
use crate::fallback;
use crate::operation::{Operands, OperationName, Signature};

type Tensor = RouterTensor<RegistryClient>;

/// The all-reduces that wait for a device, by their devices: the next call of one of them belongs to it.
static WAITING: LazyLock<Mutex<Waiting>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Waiting {
    rounds: HashMap<Vec<DeviceId>, Arc<Round>>,
    /// How often [`abandon_collectives`] was called.
    abandoned: u64,
}

/// One all-reduce.
struct Round {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The tensors that the devices have given, in their order, and after the end the results. Each device
    /// takes its own, so that its memory is released on its own thread and under no lock.
    tensors: Vec<Option<Tensor>>,
    /// How it has ended.
    end: Option<Result<(), String>>,
}

const ABANDONED: &str = "the programs that it was for have ended";

/// Ends the collective operations that wait for a device. For a server, when its last client has left: an
/// operation that one client has begun must not get the next one's tensors.
pub fn abandon_collectives() {
    let mut waiting = WAITING.lock();
    waiting.abandoned += 1;
    for round in waiting.rounds.drain().map(|(_, round)| round) {
        round.abandon();
    }
}

/// Runs a collective operation on the device of `client`. Blocks until all its devices take part.
pub(crate) fn run(client: &RegistryClient, operation: DistributedOperationIr) {
    let DistributedOperationIr::AllReduce(reduce) = operation else {
        // Each call has waited for its own result: there is nothing to wait for.
        return;
    };
    let input = &reduce.tensor;
    let out = reduce.out.id;
    let handle = RegistryChannel::get_tensor_handle(input, client);
    let tensor = RegistryChannel::register_tensor(client, handle, input.shape.clone(), input.dtype);
    match all_reduce(client, tensor, &reduce) {
        Ok(reduced) => client.register_alias(out, reduced.id()),
        Err(why) => {
            let mut operation = OperationIr::Distributed(DistributedOperationIr::AllReduce(reduce));
            let name = OperationName::of(&operation);
            let signature = Signature::new(name, &Operands::take(&mut operation));
            client.fail(out, signature, Cause::Collective(why));
        }
    }
}

fn all_reduce(client: &RegistryClient, tensor: Tensor, reduce: &AllReduceOpIr) -> Result<Tensor, String> {
    let ids: Vec<DeviceId> = reduce.device_ids.iter().map(|id| (*id).into()).collect();
    let mine = client.device().id();
    if !ids.contains(&mine) {
        return Err("the device is not one of those that take part".to_owned());
    }
    let (round, place, all) = {
        let mut waiting = WAITING.lock();
        enter(waiting.abandoned)?;
        let round = waiting.rounds.entry(ids.clone()).or_insert_with(|| Arc::new(Round::new(ids.len())));
        let round = Arc::clone(round);
        let (place, all) = round.give(&ids, mine, tensor)?;
        if all.is_some() {
            waiting.rounds.remove(&ids);
        }
        (round, place, all)
    };
    if let Some(given) = all {
        // No lock is held: devices compute.
        let reduced = fallback::isolate(|| reduce_on_the_first(&given, reduce.op));
        round.end(reduced.unwrap_or_else(Err));
    }
    round.result(place)
}

/// Whether this thread's client is still there: its first collective operation was after the last
/// [`abandon_collectives`].
fn enter(abandoned: u64) -> Result<(), String> {
    thread_local! {
        static FIRST: std::cell::OnceCell<u64> = const { std::cell::OnceCell::new() };
    }
    let first = FIRST.with(|first| *first.get_or_init(|| abandoned));
    if first == abandoned { Ok(()) } else { Err(ABANDONED.to_owned()) }
}

impl Round {
    fn new(devices: usize) -> Self {
        let tensors = (0..devices).map(|_| None).collect();
        Self { state: Mutex::new(State { tensors, end: None }), changed: Condvar::new() }
    }

    /// Gives the tensor of the device `mine`. Returns its place, and all tensors if it is the last.
    fn give(
        &self,
        ids: &[DeviceId],
        mine: DeviceId,
        tensor: Tensor,
    ) -> Result<(usize, Option<Vec<Tensor>>), String> {
        let tensors = &mut self.state.lock().tensors;
        // A device may take part more than once.
        let place = ids.iter().zip(&*tensors).position(|(id, given)| *id == mine && given.is_none());
        let place = place.ok_or("the device takes part already: two programs use these devices")?;
        tensors[place] = Some(tensor);
        let all = tensors.iter().all(Option::is_some);
        Ok((place, all.then(|| tensors.iter_mut().filter_map(Option::take).collect())))
    }

    fn end(&self, reduced: Result<Vec<Tensor>, String>) {
        let mut state = self.state.lock();
        state.end = Some(reduced.map(|tensors| state.tensors = tensors.into_iter().map(Some).collect()));
        self.changed.notify_all();
    }

    fn abandon(&self) {
        self.state.lock().end = Some(Err(ABANDONED.to_owned()));
        self.changed.notify_all();
    }

    /// Waits for what the device at `place` gets.
    fn result(&self, place: usize) -> Result<Tensor, String> {
        let (tensor, end) = {
            let mut state = self.state.lock();
            self.changed.wait_while(&mut state, |state| state.end.is_none());
            (state.tensors[place].take(), state.end.clone())
        };
        end.expect("it has ended")?;
        Ok(tensor.expect("each device takes its own"))
    }
}

fn reduce_on_the_first(given: &[Tensor], operation: ReduceOperation) -> Result<Vec<Tensor>, String> {
    let [first, others @ ..] = given else { return Err("no device takes part".to_owned()) };
    let kind = |tensor: &Tensor| (tensor.dtype(), tensor.shape());
    if let Some(other) = others.iter().find(|other| kind(other) != kind(first)) {
        let text = |tensor: &Tensor| {
            format!("{} {:?} on {}", tensor.dtype().name(), &tensor.shape()[..], tensor.device())
        };
        return Err(format!("the tensors differ: {}, and {}", text(first), text(other)));
    }
    let device = first.device();
    let sum = others.iter().fold(first.clone(), |sum, other| {
        Registry::float_add(sum, Registry::float_to_device(other.clone(), &device))
    });
    let reduced = match operation {
        ReduceOperation::Sum => sum,
        ReduceOperation::Mean => Registry::float_div_scalar(sum, Scalar::from(given.len() as u64)),
    };
    Ok(given.iter().map(|tensor| Registry::float_to_device(reduced.clone(), &tensor.device())).collect())
}
