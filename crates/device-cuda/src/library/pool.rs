//! A pool of memory that is given and taken back in the order of streams, without a wait for the device.

use std::ffi::{c_int, c_void};
use std::ptr;

use cudarc::driver::sys::CUmemoryPool;

use super::Device;
use super::context::log_failure;
use super::functions::PoolProperties;
use crate::error::CudaError;

/// A pool of a device, of this process alone. Dropping it lets work finish that uses its memory.
pub(super) struct Pool {
    device: Device,
    handle: CUmemoryPool,
}

// SAFETY: the handle of a pool is an address without data of a thread.
unsafe impl Send for Pool {}
// SAFETY: the reference allows calls on one pool from several threads at once.
unsafe impl Sync for Pool {}

/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`: how many idle bytes the pool keeps, a number of 64 bits.
const RELEASE_THRESHOLD: c_int = 4;

/// More than the intermediate results of most calls, and little beside a device's memory.
const IDLE: u64 = 256 << 20;

impl Pool {
    pub(super) fn create(device: Device) -> Result<Self, CudaError> {
        let properties = PoolProperties {
            allocation_type: 1,
            handle_types: 0,
            location_type: 1,
            location: device.device,
            security_attributes: ptr::null_mut(),
            largest: 0,
            usage: 0,
            reserved: [0; 54],
        };
        let mut handle = ptr::null_mut();
        let cuda = device.library.0;
        // SAFETY: the properties say pinned memory on this device, with zeros in all others as the reference
        // asks, and `handle` is a place for one pointer.
        unsafe { cuda.cuMemPoolCreate(&mut handle, &properties) }?;
        let pool = Self { device, handle };
        let mut idle = IDLE;
        // SAFETY: the attribute is a number of 64 bits.
        unsafe {
            cuda.cuMemPoolSetAttribute(handle, RELEASE_THRESHOLD, ptr::from_mut(&mut idle).cast::<c_void>())
        }?;
        Ok(pool)
    }

    pub(super) fn handle(&self) -> CUmemoryPool {
        self.handle
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: `create` made it once for this value.
        log_failure(unsafe { self.device.library.0.cuMemPoolDestroy(self.handle) });
    }
}
