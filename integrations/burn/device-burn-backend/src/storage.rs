//! Where the bytes of tensors are: on the device, on the host, or on both.
//!
//! A storage is written once, so that both copies stay valid. It moves when the other side needs it, and not
//! before. Views of a tensor share its storage: they move nothing.

use std::sync::Arc;

use burn_std::Bytes;
use device_registry::Buffer;
use parking_lot::Mutex;

use crate::counts::Moved;
use crate::queue::{BurnQueue, Refused, Ticket};

/// The bytes of one or more tensors.
pub(crate) struct Storage(Mutex<Copies>);

struct Copies {
    host: Option<Arc<Bytes>>,
    device: Option<(Buffer, Ticket)>,
}

impl Storage {
    pub(crate) fn on_host(bytes: Arc<Bytes>) -> Self {
        Self(Mutex::new(Copies { host: Some(bytes), device: None }))
    }

    pub(crate) fn on_device(buffer: Buffer, written: Ticket) -> Self {
        Self(Mutex::new(Copies { host: None, device: Some((buffer, written)) }))
    }

    /// Whether the device has no copy.
    pub(crate) fn is_on_host_alone(&self) -> bool {
        self.0.lock().device.is_none()
    }

    /// The copy on the host. Blocks for a download if there is none.
    pub(crate) fn host(&self, queue: &BurnQueue, moved: &mut Moved) -> Result<Arc<Bytes>, Refused> {
        self.0.lock().host(queue, moved)
    }

    /// The only copy on the host, which may be overwritten.
    pub(crate) fn into_host(self, queue: &BurnQueue, moved: &mut Moved) -> Result<Arc<Bytes>, Refused> {
        let mut copies = self.0.into_inner();
        let host = copies.host(queue, moved);
        drop(copies);
        host
    }

    /// The copy on the device. Blocks for an upload if there is none, or if the device was reset or closed
    /// since.
    pub(crate) fn device(&self, queue: &BurnQueue, moved: &mut Moved) -> Result<(Buffer, Ticket), Refused> {
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
        let (buffer, written) = self.device.as_ref().expect("one of the two copies is always there");
        let bytes = queue.download(buffer, *written)?;
        moved.downloaded(bytes.len());
        let host = Arc::new(Bytes::from_bytes_vec(bytes.into_vec()));
        self.host = Some(Arc::clone(&host));
        Ok(host)
    }
}
