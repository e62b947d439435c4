//! Where the bytes of tensors are: on the device, on the host, or on both.
//!
//! A storage is written once, so that both copies stay valid. It moves when the other side needs it, and not
//! before. Views of a tensor share its storage: they move nothing. Before it is written, it may be the result
//! of operations that wait: see [`Pending`].

use std::any::Any;
use std::sync::Arc;

use burn_std::Bytes;
use device_kernels::Scalar;
use device_registry::backend::BackendError;
use parking_lot::Mutex;

use crate::counts::Moved;
use crate::failure::Failure;
use crate::queue::{BurnQueue, Refused, Written};

/// Operations that are to write the bytes of storages, and wait until something needs them.
pub(crate) trait Pending: Any + Send + Sync {
    /// Runs the operations, or waits until another thread has run them. No lock may be held.
    ///
    /// # Errors
    ///
    /// If this very thread is running them: an operation of a chain, on burn's CPU engine, may take work of
    /// other threads meanwhile.
    fn settle(&self) -> Result<(), Refused>;

    /// The value that all elements are to have, if there is one.
    fn value(&self) -> Option<Scalar>;
}

/// The bytes of one or more tensors.
pub(crate) struct Storage(Mutex<Copies>);

/// One of the four is always there, except that both copies may be.
#[derive(Default)]
struct Copies {
    host: Option<Arc<Bytes>>,
    device: Option<Written>,
    /// The operations that are to write the bytes, and wait until something needs them.
    pending: Option<Arc<dyn Pending>>,
    /// Why the operations that were to write the bytes did not.
    failed: Option<Failure>,
}

/// What became of a storage whose operations waited.
pub(crate) struct Settled {
    host: Option<Arc<Bytes>>,
    device: Option<Written>,
}

impl From<Written> for Settled {
    fn from(written: Written) -> Self {
        Self { host: None, device: Some(written) }
    }
}

impl From<Arc<Bytes>> for Settled {
    fn from(host: Arc<Bytes>) -> Self {
        Self { host: Some(host), device: None }
    }
}

impl Storage {
    pub(crate) fn on_host(bytes: Arc<Bytes>) -> Self {
        Self(Mutex::new(Copies { host: Some(bytes), ..Copies::default() }))
    }

    pub(crate) fn on_device(written: Written) -> Self {
        Self(Mutex::new(Copies { device: Some(written), ..Copies::default() }))
    }

    /// Bytes that `chain` is to write.
    pub(crate) fn pending(chain: Arc<dyn Pending>) -> Self {
        Self(Mutex::new(Copies { pending: Some(chain), ..Copies::default() }))
    }

    /// The operations that are to write the bytes, if they have not run yet.
    ///
    /// # Errors
    ///
    /// If they failed.
    pub(crate) fn chain(&self) -> Result<Option<Arc<dyn Pending>>, Refused> {
        let copies = self.0.lock();
        match &copies.failed {
            Some(failure) => Err(Refused::Failed(failure.clone())),
            None => Ok(copies.pending.clone()),
        }
    }

    /// The value that all elements are to have, if they wait for nothing else.
    pub(crate) fn value(&self) -> Option<Scalar> {
        self.0.lock().pending.as_ref().and_then(|pending| pending.value())
    }

    /// Another chain is to write the bytes: the old one has become part of it.
    pub(crate) fn moves_to(&self, chain: Arc<dyn Pending>) {
        let old = self.0.lock().pending.replace(chain);
        // Outside the lock: the end of a chain frees memory.
        drop(old);
    }

    /// The operations have run.
    pub(crate) fn settled(&self, result: Result<Settled, Failure>) {
        let mut copies = self.0.lock();
        let chain = copies.pending.take();
        match result {
            Ok(Settled { host, device }) => (copies.host, copies.device) = (host, device),
            Err(failure) => copies.failed = Some(failure),
        }
        drop(copies);
        drop(chain);
    }

    /// Runs the operations that are to write the bytes, if they have not run yet, or waits until another
    /// thread has run them. No lock may be held.
    ///
    /// # Errors
    ///
    /// If they fail, or if this very thread is running them.
    pub(crate) fn settle(&self) -> Result<(), Refused> {
        while let Some(chain) = self.chain()? {
            chain.settle()?;
        }
        Ok(())
    }

    /// Whether the host has a copy, and the device none.
    pub(crate) fn is_on_host_alone(&self) -> bool {
        let copies = self.0.lock();
        copies.device.is_none() && copies.host.is_some()
    }

    /// The copy on the host, if it is the only one. Then nothing is left.
    pub(crate) fn take_from_host(&mut self) -> Option<Arc<Bytes>> {
        let copies = self.0.get_mut();
        if copies.device.is_none() { copies.host.take() } else { None }
    }

    /// The copy on the host. Blocks for a download if there is none.
    pub(crate) fn host(&self, queue: &BurnQueue, moved: &mut Moved) -> Result<Arc<Bytes>, Refused> {
        self.settle()?;
        self.0.lock().host(queue, moved)
    }

    /// The only copy on the host, which may be overwritten. The storage has settled.
    pub(crate) fn into_host(self, queue: &BurnQueue, moved: &mut Moved) -> Result<Arc<Bytes>, Refused> {
        let mut copies = self.0.into_inner();
        let host = copies.host(queue, moved);
        drop(copies);
        host
    }

    /// What both sides have, as the contents of another storage. The storage has settled.
    pub(crate) fn into_settled(self) -> Settled {
        let Copies { host, device, .. } = self.0.into_inner();
        Settled { host, device }
    }

    /// The copy on the device. Blocks for an upload if there is none, or if the device was reset or closed
    /// since.
    pub(crate) fn device(&self, queue: &BurnQueue, moved: &mut Moved) -> Result<Written, Refused> {
        self.settle()?;
        let mut copies = self.0.lock();
        if let Some(copy) = &copies.device {
            return Ok(copy.clone());
        }
        let host = copies.host(queue, moved)?;
        let copy = queue.upload(&host)?;
        moved.uploaded(host.len());
        copies.device = Some(copy.clone());
        Ok(copy)
    }

    /// Forgets the copy on the device, which the device refused as being from before a reset. Returns whether
    /// the host has a copy.
    pub(crate) fn forget_device(&self) -> bool {
        let mut copies = self.0.lock();
        let on_host = copies.host.is_some();
        if on_host {
            copies.device = None;
        }
        on_host
    }
}

impl Copies {
    fn host(&mut self, queue: &BurnQueue, moved: &mut Moved) -> Result<Arc<Bytes>, Refused> {
        if let Some(host) = &self.host {
            return Ok(Arc::clone(host));
        }
        let Some((buffer, written)) = &self.device else {
            return Err(match &self.failed {
                Some(failure) => Refused::Failed(failure.clone()),
                None => Refused::Unwritten(BackendError::other("the operation has not run")),
            });
        };
        let bytes = queue.download(buffer, *written)?;
        moved.downloaded(bytes.len());
        let host = Arc::new(Bytes::from_bytes_vec(bytes.into_vec()));
        self.host = Some(Arc::clone(&host));
        Ok(host)
    }
}
