//! One open device.

use std::sync::Arc;

use device_registry::{AllocateOptions, BackendError, DeviceDriver, Memory, MemoryInfo, Span, open_windows};

use crate::memory::{OpenRegMemory, Pool};

pub(crate) struct OpenRegDevice {
    pool: Arc<Pool>,
}

impl OpenRegDevice {
    /// A device with `capacity` bytes of memory.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { pool: Arc::new(Pool::new(capacity)) }
    }
}

impl DeviceDriver for OpenRegDevice {
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        let (total, free) = (self.pool.capacity(), self.pool.free());
        Ok(MemoryInfo::unknown().with_total(total as u64).with_free(free as u64))
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        Ok(Arc::new(OpenRegMemory::allocate(&self.pool, options.len)?))
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        let memory = destination.memory_as::<OpenRegMemory>()?;
        memory.bytes.write(destination.range())?.copy_from_slice(source);
        Ok(())
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        let memory = source.memory_as::<OpenRegMemory>()?;
        destination.copy_from_slice(&memory.bytes.read(source.range())?);
        Ok(())
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let from = &source.memory_as::<OpenRegMemory>()?.bytes;
        let to = &destination.memory_as::<OpenRegMemory>()?.bytes;
        let ([from], [mut to]) = open_windows([(from, source.range())], [(to, destination.range())])?;
        to.copy_from_slice(&from);
        Ok(())
    }

    fn copy_from_peer(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        // Both devices lie in one address space, and the memory is of one type.
        self.copy(source, destination)
    }
}

#[cfg(test)]
mod tests {
    use device_registry::{BackendErrorKind, DeviceError, device};

    use crate::OPENREG;

    #[test]
    fn what_is_written_is_read_back() {
        device_registry::backends().register(&OPENREG).unwrap();
        for name in ["openreg:0", "openreg:1"] {
            let buffer = device(name).unwrap().allocate(6).unwrap();
            buffer.write(0, b"abcdef").unwrap();
            buffer.copy_from(4, &buffer, 0..2).unwrap();
            let mut bytes = [0; 4];
            buffer.read(2, &mut bytes).unwrap();
            assert_eq!(&bytes, b"cdab", "{name}");
        }
    }

    #[test]
    fn bytes_go_from_one_device_to_the_other() {
        device_registry::backends().register(&OPENREG).unwrap();
        let [from, to] = ["openreg:0", "openreg:1"].map(|name| device(name).unwrap().allocate(3).unwrap());
        from.write(0, b"abc").unwrap();
        to.copy_from(0, &from, 0..3).unwrap();
        let mut bytes = [0; 3];
        to.read(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"abc");
    }

    #[test]
    fn more_than_the_device_has_is_out_of_memory() {
        device_registry::backends().register(&OPENREG).unwrap();
        let error = device("openreg").unwrap().allocate((1 << 30) + 1).unwrap_err();
        let DeviceError::Call { error, .. } = &error else { panic!("{error}") };
        assert!(matches!(error.kind(), BackendErrorKind::OutOfMemory { asked: 0x4000_0001, .. }), "{error}");
    }
}
