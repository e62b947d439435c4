//! Operations that need no more than a call: views, and the most frequent ones of burn's CPU engine on
//! tensors of the host.
//!
//! They have no [`Operands`], as all other operations do: a small operation would spend most of its time on
//! copies of shapes. Where anything is out of the ordinary, the operation runs as all others.

use std::slice;
use std::time::Instant;

use burn_flex::Layout;
use burn_ir::{CatOpIr, OperationIr, TensorIr};

use crate::chain;
use crate::client::{Client, Inputs};
use crate::counts::{Moved, Way};
use crate::describe::{self, View};
use crate::direct::Direct;
use crate::dtype::is_quantized;
use crate::engine::KernelUse;
use crate::failure::{Cause, Failure};
use crate::fallback::{self, Fallback};
use crate::fusion::Fusion;
use crate::lease::Lease;
use crate::operation::{Operands, OperationName, Signature};
use crate::table::{Held, RegistryTensor};

/// What became of an operation.
pub(crate) enum Quick<'a> {
    /// It has run, and this output is in the table.
    Done(&'a TensorIr),
    /// It is to run as all others. With its inputs, if they have left the table.
    Other(Option<Taken>),
}

/// The inputs of an operation, or why there are none.
pub(crate) type Taken = Box<Result<Inputs, Failure>>;

/// Another operation, with its only input if that has left the table.
fn other<'a>(input: Option<Held>) -> Quick<'a> {
    let taken = |held: Held| Box::new(held.into_tensor().map(|tensor| Inputs::from_iter([tensor])));
    Quick::Other(input.map(taken))
}

impl Client {
    /// Begins an operation, and runs it if it is one of these.
    pub(crate) fn quick<'a>(&'static self, operation: &'a OperationIr, lease: &Lease) -> Quick<'a> {
        chain::begin_operation();
        if let Some((input, out, view)) = describe::view(operation)
            && !is_quantized(input.dtype)
        {
            return self.view(operation, [input, out], &view, lease).unwrap_or_else(|held| {
                // Elements have to move.
                match Direct::of(operation) {
                    Some(direct) if self.is_host() => self.direct(operation, &direct, Some(held), lease),
                    _ => other(Some(held)),
                }
            });
        }
        let is_host = self.is_host();
        if !is_host && describe::cat(operation).is_none() {
            return other(None);
        }
        match Direct::of(operation).filter(|direct| !direct.is_quantized()) {
            Some(direct) if is_host => self.direct(operation, &direct, None, lease),
            Some(direct) => self.join(operation, &direct, lease),
            None => other(None),
        }
    }

    /// Another view of the same bytes. If there is none, the tensor.
    fn view<'a>(
        &'static self,
        operation: &OperationIr,
        [input, out]: [&'a TensorIr; 2],
        view: &View<'_>,
        lease: &Lease,
    ) -> Result<Quick<'a>, Held> {
        let layout = |layout: &Layout| fallback::isolate(|| view.layout(layout, &out.shape));
        let viewed = match self.held(input, || OperationName::of(operation), lease, self.is_host()) {
            Held::Host(tensor) => match layout(tensor.layout()) {
                Ok(Some(layout)) => Ok(Held::Host(tensor.with_layout(layout))),
                Ok(None) => return Err(Held::Host(tensor)),
                Err(panic) => Err(self.failed(operation, Cause::Panicked(panic))),
            },
            Held::Tensor(tensor) => match layout(&tensor.layout) {
                Ok(Some(layout)) => Ok(Held::Tensor(RegistryTensor { layout, ..tensor })),
                Ok(None) => return Err(Held::Tensor(tensor)),
                Err(panic) => Err(self.failed(operation, Cause::Panicked(panic))),
            },
            Held::Failed(failure) => Err(failure),
        };
        Ok(self.done(OperationName::of(operation), out, viewed, Way::View, &Moved::default()))
    }

    /// An operation of burn's CPU engine, on a device whose memory is the host's own.
    /// `given` is the first input, if it has left the table.
    fn direct<'a>(
        &'static self,
        operation: &OperationIr,
        direct: &Direct<'a>,
        mut given: Option<Held>,
        lease: &Lease,
    ) -> Quick<'a> {
        let name = OperationName::of(operation);
        let start = match (self.kernels(), direct.joins()) {
            (Ok(None), _) if self.allow(name).is_ok() => Some(Instant::now()),
            (Ok(Some(_)), Some(cat)) if self.joins(cat) => None,
            (Ok(Some(_)), None) if self.is_settled(name, direct.first()) => None,
            _ => return other(given),
        };
        // Where the variable is invalid, the operations that it is for fail.
        if Fusion::current().is_err() || fallback::check_memory(slice::from_ref(direct.out)).is_err() {
            return other(given);
        }
        let mut moved = Moved::default();
        let mut failed = None;
        let take = |input: &TensorIr| {
            let held = given.take().unwrap_or_else(|| self.held(input, || name, lease, true));
            let tensor = match held {
                Held::Host(tensor) => Ok(tensor),
                Held::Tensor(tensor) => tensor
                    .into_flex(&self.queue, &mut moved)
                    .map_err(|refused| self.failed(operation, Cause::Device(refused))),
                Held::Failed(failure) => Err(failure),
            };
            tensor.map_err(|failure| failed = failed.take().or(Some(failure))).ok()
        };
        let computed = match fallback::isolate(|| direct.run(take)) {
            Ok(computed) => computed.map(Held::Host).ok_or(failed),
            Err(panic) => Err(Some(self.failed(operation, Cause::Panicked(panic)))),
        };
        let computed = computed.map_err(|failed| failed.expect("an input has failed"));
        let way = start.map_or(Way::Host, |start| Way::Fallback(start.elapsed()));
        let done = self.done(name, direct.out, computed, way, &moved);
        moved.wait();
        done
    }

    /// Joins tensors that only the host has, on a device with memory of its own: it gets them as one, if it
    /// needs them at all.
    fn join<'a>(&'static self, operation: &OperationIr, direct: &Direct<'a>, lease: &Lease) -> Quick<'a> {
        let Some(cat) = direct.joins() else { return other(None) };
        // The engine gives a single tensor back as it is, with a storage that others may have too.
        if cat.tensors.len() < 2
            || !self.joins(cat)
            || fallback::check_memory(slice::from_ref(direct.out)).is_err()
        {
            return other(None);
        }
        let name = OperationName::of(operation);
        let held: Vec<Held> =
            cat.tensors.iter().map(|input| self.held(input, || name, lease, false)).collect();
        let is_on_host = |held: &Held| match held {
            Held::Host(_) => true,
            Held::Tensor(tensor) => tensor.storage.is_on_host_alone(),
            Held::Failed(_) => false,
        };
        if !held.iter().all(is_on_host) {
            return Quick::Other(Some(Box::new(held.into_iter().map(Held::into_tensor).collect())));
        }
        let mut moved = Moved::default();
        let mut held = held.into_iter();
        let take = |_: &TensorIr| match held.next()? {
            Held::Host(tensor) => Some(tensor),
            Held::Tensor(tensor) => tensor.into_flex(&self.queue, &mut moved).ok(),
            Held::Failed(_) => None,
        };
        let computed = fallback::isolate(|| direct.run(take).expect("the host has the tensors"));
        let computed = computed.map(Held::Host);
        let computed = computed.map_err(|panic| self.failed(operation, Cause::Panicked(panic)));
        self.done(name, direct.out, computed, Way::Host, &moved)
    }

    /// Whether burn's CPU engine joins the tensors, if only the host has them.
    fn joins(&self, cat: &CatOpIr) -> bool {
        let device = self.queue.device();
        matches!(self.kernels(), Ok(Some(_)))
            && KernelUse::current().is_ok()
            && fallback::isolate(|| describe::joins(cat, device)).unwrap_or(false)
    }

    fn is_settled(&self, name: OperationName, first: &TensorIr) -> bool {
        // Under another policy, or an unknown one, it matters whether this very call has a kernel.
        KernelUse::current() == Ok(KernelUse::Auto)
            && Fallback::current() == Ok(Fallback::Allow)
            && self.settled.has(name, first)
    }

    /// Adds the output of an operation to the table.
    fn done<'a>(
        &'static self,
        name: OperationName,
        out: &'a TensorIr,
        result: Result<Held, Failure>,
        way: Way,
        moved: &Moved,
    ) -> Quick<'a> {
        let way = if result.is_ok() { way } else { Way::Failed };
        self.table.insert(out.id, result.unwrap_or_else(Held::Failed));
        self.counters.count(name, way, moved);
        Quick::Done(out)
    }

    /// A new failure of an operation that is as burn has made it.
    fn failed(&self, operation: &OperationIr, cause: Cause) -> Failure {
        let operands = Operands::take(&mut operation.clone());
        self.failure(Signature::new(OperationName::of(operation), &operands), cause)
    }
}
