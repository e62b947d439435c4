//! An open device: its calls are requests to the server.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use device_registry::backend::testing::{FaultCounter, FaultPoint};
use device_registry::backend::{
    AllocateOptions, Backend, BackendError, DeviceDriver, FaultInjector, FillPattern, LossReporter, Memory,
    MemoryInfo, OpenedDevice, Span,
};
use netmem_protocol::{Info, MAX_BYTES, Place, Request};
use parking_lot::Mutex;

use crate::connection::Connection;
use crate::watch::watch;

/// How long the server of an open device may take for a reply, before the device is lost.
const PATIENCE: Duration = Duration::from_secs(5);

/// The connections of an open device.
pub(crate) struct Link {
    /// For the calls.
    used: Connection,
    /// For the thread that notices the end of the server, also while a call waits for its reply.
    pub(crate) watched: Connection,
}

impl Link {
    /// Ends both connections: calls that wait fail, and the thread ends.
    pub(crate) fn end(&self) {
        self.used.end();
        self.watched.end();
    }
}

pub(crate) fn open(backend: &dyn Backend, address: SocketAddr) -> Result<OpenedDevice, BackendError> {
    let connect = || Connection::open(address, PATIENCE).map(|(connection, _)| connection);
    let link = Arc::new(Link { used: connect()?, watched: connect()? });
    let reporter = LossReporter::new();
    // An injected loss ends the real connections, and the driver notices it as it notices any loss.
    let broken: Weak<Link> = Arc::downgrade(&link);
    let end = move || broken.upgrade().iter().for_each(|link| link.end());
    let faults = Arc::new(FaultCounter::new().on_loss(end).with_loss_reporter(reporter.clone()));

    let (watched, stalled, reports) = (Arc::clone(&link), Arc::clone(&faults), reporter.clone());
    thread::Builder::new()
        .name(format!("netmem {address}"))
        .spawn(move || watch(watched, &stalled, &reports))
        .map_err(|error| BackendError::other("the watching thread does not start").with_source(error))?;
    Ok(OpenedDevice::new(backend, NetDevice { link: Mutex::new(Some(link)), faults })
        .with_loss_reporter(reporter))
}

struct NetDevice {
    /// `None` after a reset or a close. A driver is never dropped, so it gives its sockets back itself.
    link: Mutex<Option<Arc<Link>>>,
    faults: Arc<FaultCounter>,
}

impl NetDevice {
    fn link(&self) -> Result<Arc<Link>, BackendError> {
        self.link.lock().clone().ok_or_else(|| BackendError::lost("the device was reset"))
    }

    fn release(&self) {
        if let Some(link) = self.link.lock().take() {
            link.end();
        }
    }
}

impl DeviceDriver for NetDevice {
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        let Info { total, free, .. } = self.link()?.used.info()?;
        Ok(MemoryInfo::unknown().with_total(total).with_free(free))
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        self.faults.before(FaultPoint::Allocate { len: options.len })?;
        let link = self.link()?;
        let reply = link.used.call(&Request::Allocate { len: options.len as u64 })?;
        let number = reply.try_into().map_err(|_| BackendError::other("the server names no memory"))?;
        Ok(Arc::new(NetMemory { number: u64::from_le_bytes(number), link }))
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        self.faults.before(FaultPoint::Write)?;
        let memory = destination.memory_as::<NetMemory>()?;
        for (bytes, offset) in source.chunks(MAX_BYTES).zip((destination.offset()..).step_by(MAX_BYTES)) {
            memory.link.used.call(&Request::Write { to: memory.place(offset), bytes })?;
        }
        Ok(())
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        self.faults.before(FaultPoint::Read)?;
        let memory = source.memory_as::<NetMemory>()?;
        for (bytes, offset) in destination.chunks_mut(MAX_BYTES).zip((source.offset()..).step_by(MAX_BYTES)) {
            let request = Request::Read { from: memory.place(offset), len: bytes.len() as u64 };
            let reply = memory.link.used.call(&request)?;
            if reply.len() != bytes.len() {
                return Err(BackendError::other("the server sends bytes of another length"));
            }
            bytes.copy_from_slice(&reply);
        }
        Ok(())
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.faults.before(FaultPoint::Copy)?;
        let (from, to) = (source.memory_as::<NetMemory>()?, destination.memory_as::<NetMemory>()?);
        let (from, to) = (from.place(source.offset()), to.place(destination.offset()));
        self.link()?.used.call(&Request::Copy { from, to, len: source.len() as u64 }).map(drop)
    }

    // The core could fill by writes and copies. This takes one request.
    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        self.faults.before(FaultPoint::Fill)?;
        let memory = destination.memory_as::<NetMemory>()?;
        let (to, len) = (memory.place(destination.offset()), destination.len() as u64);
        memory.link.used.call(&Request::Fill { to, len, pattern: pattern.as_bytes() }).map(drop)
    }

    // The next `open` makes new connections, if the server is there again.
    fn reset(&self) -> Result<(), BackendError> {
        self.faults.lose("the device was reset");
        self.release();
        Ok(())
    }

    fn close(&self) -> Result<(), BackendError> {
        self.faults.close();
        self.release();
        Ok(())
    }

    fn faults(&self) -> Option<&dyn FaultInjector> {
        Some(&*self.faults)
    }
}

/// Memory on the server, by the number that it has on the connection.
struct NetMemory {
    number: u64,
    /// The connection at its time: the connection of a device that was opened again would take the number for
    /// another memory.
    link: Arc<Link>,
}

impl Memory for NetMemory {}

impl NetMemory {
    fn place(&self, offset: usize) -> Place {
        Place { memory: self.number, offset: offset as u64 }
    }
}

impl Drop for NetMemory {
    fn drop(&mut self) {
        self.link.used.free(self.number);
    }
}
