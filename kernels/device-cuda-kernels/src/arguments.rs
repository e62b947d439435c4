//! The arguments of a kernel, as the driver takes them: the addresses of values.

use std::ffi::c_void;
use std::ptr;

use device_generated_kernels::Value;
use device_registry::backend::BackendError;
use smallvec::SmallVec;

/// Values of at most eight bytes, in their order.
#[derive(Default)]
pub(crate) struct Arguments(SmallVec<[[u8; 8]; 36]>);

impl Arguments {
    pub(crate) fn bytes<const N: usize>(&mut self, bytes: [u8; N]) {
        let mut value = [0; 8];
        value[..N].copy_from_slice(&bytes);
        self.0.push(value);
    }

    pub(crate) fn value(&mut self, value: Value) {
        match value {
            Value::Float(value) => self.bytes(value.to_ne_bytes()),
            Value::Double(value) => self.bytes(value.to_ne_bytes()),
            Value::Int(value) => self.bytes(value.to_ne_bytes()),
            Value::Long(value) => self.bytes(value.to_ne_bytes()),
            Value::Uint(value) => self.bytes(value.to_ne_bytes()),
            Value::Ulong(value) => self.bytes(value.to_ne_bytes()),
        }
    }

    /// An index, of 64 bits if it is wide.
    ///
    /// # Errors
    ///
    /// If it does not fit.
    pub(crate) fn index(&mut self, index: i64, wide: bool) -> Result<(), BackendError> {
        if wide {
            self.bytes(index.to_ne_bytes());
            return Ok(());
        }
        let narrow = i32::try_from(index).map_err(|_| {
            BackendError::other(format_args!("the index {index} does not fit 32 bits, as it was planned to"))
        })?;
        self.bytes(narrow.to_ne_bytes());
        Ok(())
    }

    /// Where each value is. They are not written through these.
    pub(crate) fn addresses(&mut self) -> SmallVec<[*mut c_void; 36]> {
        self.0.iter_mut().map(|value| ptr::from_mut(value).cast()).collect()
    }
}
