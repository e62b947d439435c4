//! Finds the memory that an address belongs to.

use std::sync::{Arc, OnceLock, Weak};

use device_registry::backend::BackendError;
use parking_lot::{Mutex, MutexGuard};

use crate::mapping::Process;
use crate::pool::Pool;

/// Where an address lies; see [`locate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Location {
    /// The ordinal of the device: 1 for `openreg:1`.
    pub ordinal: usize,
    /// How far the address is into its allocation, in bytes.
    pub offset: usize,
    /// The length of the allocation, in bytes.
    pub len: usize,
}

/// Where `address` lies in the memory of the devices of `openreg`.
///
/// It is `None` for all other addresses: the host's memory, freed memory, and the byte after the last. In a
/// child of `fork`, where the memory is not mapped, it is `None` for every address.
///
/// ```
/// use device_openreg::{Location, OpenRegMemory, locate};
///
/// device_registry::autoload!();
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let buffer = device_registry::device("openreg:1")?.allocate(100)?;
/// let span = buffer.span().expect("it is not empty");
/// let address = span.memory_as::<OpenRegMemory>()?.address();
///
/// let found = locate(address.wrapping_add(30)).expect("it is inside");
/// assert_eq!((found.ordinal, found.offset, found.len), (1, 30, 100));
/// assert_eq!(locate([0_u8].as_ptr()), None);
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn locate(address: *const u8) -> Option<Location> {
    // A child of `fork` must not take the locks: a thread of its parent may have held them.
    let pools = POOLS.get().filter(|pools| pools.process.is_current())?;
    // Copied, so that no pool is dropped under the lock.
    let pools: Vec<(usize, Arc<Pool>)> =
        pools.lock().iter().filter_map(|(ordinal, pool)| Some((*ordinal, pool.upgrade()?))).collect();
    pools.iter().find_map(|(ordinal, pool)| {
        let (start, len) = pool.find(address.addr())?;
        Some(Location { ordinal: *ordinal, offset: address.addr() - start, len })
    })
}

/// Makes [`locate`] find addresses in `pool`, of the device `ordinal`, until the pool is dropped.
pub(crate) fn register(ordinal: usize, pool: &Arc<Pool>) -> Result<(), BackendError> {
    let process = Process::current()?;
    let mut pools = POOLS.get_or_init(|| Pools { process, pools: Mutex::default() }).lock();
    pools.retain(|(_, pool)| pool.strong_count() > 0);
    pools.push((ordinal, Arc::downgrade(pool)));
    Ok(())
}

static POOLS: OnceLock<Pools> = OnceLock::new();

/// The pools of all devices, with the devices' ordinals.
struct Pools {
    /// The process that made them.
    process: Process,
    pools: Mutex<Vec<(usize, Weak<Pool>)>>,
}

impl Pools {
    fn lock(&self) -> MutexGuard<'_, Vec<(usize, Weak<Pool>)>> {
        self.pools.lock()
    }
}
