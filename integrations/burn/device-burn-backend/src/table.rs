//! The tensors of a client, by the identifiers that burn gives them.

use std::collections::HashMap;
use std::ptr;
use std::sync::Arc;

use burn_backend::{DType, Shape};
use burn_flex::{FlexTensor, Layout};
use burn_ir::TensorId;
use parking_lot::Mutex;

use crate::counts::Moved;
use crate::failure::Failure;
use crate::operation::copy;
use crate::queue::{BurnQueue, Refused};
use crate::slots::{self, Entry};
use crate::storage::{Settled, Storage};

/// A tensor: a storage, and how it is read.
pub(crate) struct RegistryTensor {
    pub(crate) storage: Arc<Storage>,
    pub(crate) layout: Layout,
    pub(crate) dtype: DType,
}

impl Clone for RegistryTensor {
    fn clone(&self) -> Self {
        self.view(copied(&self.layout))
    }
}

fn copied(layout: &Layout) -> Layout {
    Layout::new(copy(layout.shape()), layout.strides().to_vec(), layout.start_offset())
}

impl RegistryTensor {
    /// A tensor whose bytes are on the host.
    pub(crate) fn on_host(tensor: &FlexTensor) -> Self {
        Self::of(tensor, Arc::new(Storage::on_host(tensor.data_arc())))
    }

    /// A tensor with the bytes of `storage`.
    pub(crate) fn of(tensor: &FlexTensor, storage: Arc<Storage>) -> Self {
        Self { storage, layout: copied(tensor.layout()), dtype: tensor.dtype() }
    }

    /// The tensor as burn's CPU engine has it, if no device has had it, and no other tensor has its storage.
    pub(crate) fn into_held(mut self) -> Held {
        match Arc::get_mut(&mut self.storage).and_then(Storage::take_from_host) {
            Some(bytes) => Held::Host(FlexTensor::from_arc(bytes, self.layout, self.dtype)),
            None => Held::Tensor(self),
        }
    }

    /// Another view of the same bytes.
    pub(crate) fn view(&self, layout: Layout) -> Self {
        Self { storage: Arc::clone(&self.storage), layout, dtype: self.dtype }
    }

    /// The tensor on the host. If no other tensor has its bytes, burn's CPU engine may overwrite them.
    pub(crate) fn into_flex(self, queue: &BurnQueue, moved: &mut Moved) -> Result<FlexTensor, Refused> {
        // The operations that it waits for have references to the storage.
        self.storage.settle()?;
        let bytes = match Arc::try_unwrap(self.storage) {
            Ok(storage) => storage.into_host(queue, moved)?,
            Err(storage) => storage.host(queue, moved)?,
        };
        Ok(FlexTensor::from_arc(bytes, self.layout, self.dtype))
    }

    /// The bytes, as a tensor without gaps has them.
    pub(crate) fn into_settled(self, queue: &BurnQueue, moved: &mut Moved) -> Result<Settled, Refused> {
        let is_in_order = self.layout.start_offset() == 0 && self.layout.is_contiguous();
        if is_in_order {
            return match Arc::try_unwrap(self.storage) {
                Ok(storage) => Ok(storage.into_settled()),
                // Two storages have no memory of the device in common: an expression may write to it.
                Err(storage) => Ok(storage.host(queue, moved)?.into()),
            };
        }
        Ok(self.into_flex(queue, moved)?.to_contiguous().data_arc().into())
    }

    pub(crate) fn shape(&self) -> &Shape {
        self.layout.shape()
    }
}

/// What is known of an identifier.
pub(crate) enum Held {
    /// A tensor that no device has had, and whose bytes no [`Storage`] shares: what burn's CPU engine takes
    /// and gives.
    Host(FlexTensor),
    Tensor(RegistryTensor),
    /// Its operation failed, or one before it.
    Failed(Failure),
}

impl Held {
    /// The tensor, or why there is none.
    pub(crate) fn into_tensor(self) -> Result<RegistryTensor, Failure> {
        match self {
            Self::Host(tensor) => Ok(RegistryTensor::on_host(&tensor)),
            Self::Tensor(tensor) => Ok(tensor),
            Self::Failed(failure) => Err(failure),
        }
    }

    /// The same tensor once more, with bytes in common.
    fn share(&self) -> Self {
        match self {
            Self::Host(tensor) => {
                let layout = copied(tensor.layout());
                Self::Host(FlexTensor::from_arc(tensor.data_arc(), layout, tensor.dtype()))
            }
            Self::Tensor(tensor) => Self::Tensor(tensor.clone()),
            Self::Failed(failure) => Self::Failed(failure.clone()),
        }
    }
}

/// The tensors of a client. Threads that use different tensors do not wait for each other.
#[derive(Default)]
pub(crate) struct Table {
    /// Tensors whose identifiers are not of [`slots`]: burn's own, within a graph.
    others: Mutex<HashMap<TensorId, Held>>,
}

impl Table {
    pub(crate) fn insert(&'static self, id: TensorId, held: Held) {
        let old = match slots::find(id).map(|slot| (slot, slot.entry.lock())) {
            Some((slot, mut entry)) if slot.id() == id => {
                entry.replace(Entry { held, table: self }).map(|Entry { held, .. }| held)
            }
            // All handles of it have ended already.
            Some(_) => Some(held),
            None if slots::is_place(id) => Some(held),
            None => self.others.lock().insert(id, held),
        };
        // Outside the lock: the end of a tensor frees memory.
        drop(old);
    }

    /// A tensor for one of several uses. All of them have one storage, so that a device gets it once.
    pub(crate) fn get(&self, id: TensorId) -> Option<Held> {
        self.with(id, |held| {
            if let Held::Host(tensor) = held {
                *held = Held::Tensor(RegistryTensor::on_host(tensor));
            }
            held.share()
        })
    }

    /// A tensor for a use on the host alone.
    pub(crate) fn get_for_host(&self, id: TensorId) -> Option<Held> {
        self.with(id, |held| held.share())
    }

    fn with<T>(&self, id: TensorId, call: impl FnOnce(&mut Held) -> T) -> Option<T> {
        let Some(slot) = slots::find(id) else { return self.others.lock().get_mut(&id).map(call) };
        let mut entry = slot.entry.lock();
        let entry = entry.as_mut().filter(|entry| ptr::eq(entry.table, self))?;
        // Another tensor may have come into the place before the lock.
        (slot.id() == id).then(|| call(&mut entry.held))
    }

    /// Takes a tensor at its last use.
    pub(crate) fn take(&self, id: TensorId) -> Option<Held> {
        match slots::find(id) {
            Some(slot) => slot.take(id, |entry| ptr::eq(entry.table, self)),
            None => self.others.lock().remove(&id),
        }
    }

    /// Counts the tensors, which takes a while.
    pub(crate) fn len(&self) -> usize {
        let is_mine = |entry: &Option<Entry>| entry.as_ref().is_some_and(|entry| ptr::eq(entry.table, self));
        self.others.lock().len() + slots::all().filter(|slot| is_mine(&slot.entry.lock())).count()
    }
}
