//! How much memory a server has, and how much of it is free.

use std::sync::Arc;

use netmem_protocol::Refusal;
use parking_lot::Mutex;

/// The memory that all connections share.
pub(crate) struct Budget {
    pub(crate) total: u64,
    free: Mutex<u64>,
}

/// One allocation. Its drop returns the bytes to the budget.
pub(crate) struct Block {
    pub(crate) bytes: Vec<u8>,
    budget: Arc<Budget>,
}

impl Budget {
    pub(crate) fn new(total: u64) -> Self {
        Self { total, free: Mutex::new(total) }
    }

    pub(crate) fn free(&self) -> u64 {
        *self.free.lock()
    }
}

impl Block {
    /// Zeroed memory, so that it reveals nothing of another client.
    pub(crate) fn new(budget: &Arc<Budget>, len: u64) -> Result<Self, Refusal> {
        let mut free = budget.free.lock();
        let refused = || Refusal::OutOfMemory { free: *free };
        let left = free.checked_sub(len).ok_or_else(refused)?;
        let mut bytes = Vec::new();
        // The host may have less memory than the budget. `vec![0; len]` would then end the process.
        bytes.try_reserve_exact(usize::try_from(len).map_err(|_| refused())?).map_err(|_| refused())?;
        *free = left;
        drop(free);
        bytes.resize(len as usize, 0);
        Ok(Self { bytes, budget: Arc::clone(budget) })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        *self.budget.free.lock() += self.bytes.len() as u64;
    }
}
