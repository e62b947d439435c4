//! The tensors of a client, by the identifiers that burn gives them.

use std::sync::Arc;

use burn_backend::{DType, Shape};
use burn_flex::{FlexTensor, Layout};
use burn_ir::TensorId;
use dashmap::DashMap;

use crate::counts::Moved;
use crate::failure::Failure;
use crate::operation::copy;
use crate::queue::{BurnQueue, Refused};
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
#[derive(Clone)]
pub(crate) enum Held {
    Tensor(RegistryTensor),
    /// Its operation failed, or one before it.
    Failed(Failure),
}

/// The tensors of a client. Threads that use different tensors do not wait for each other.
#[derive(Default)]
pub(crate) struct Table(DashMap<TensorId, Held, foldhash::fast::RandomState>);

impl Table {
    pub(crate) fn insert(&self, id: TensorId, held: Held) {
        self.0.insert(id, held);
    }

    pub(crate) fn get(&self, id: TensorId) -> Option<Held> {
        self.0.get(&id).map(|held| held.clone())
    }

    /// Takes a tensor at its last use.
    pub(crate) fn take(&self, id: TensorId) -> Option<Held> {
        self.0.remove(&id).map(|(_, held)| held)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
