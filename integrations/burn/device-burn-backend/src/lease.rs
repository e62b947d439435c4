//! How long the table keeps a tensor that several threads use.
//!
//! burn counts the handles of a tensor, and says at which use the last one ends. It lowers the count before
//! it registers the operation of that use. So of two threads that use the last two handles at once, one can
//! register an operation for a tensor that the other has released already.
//!
//! A [`Lease`] keeps the tensor for that time. Each handle has one: burn clones the client in a handle with
//! the handle. A thread that drops a handle keeps its lease until the thread's next operation is registered,
//! as this can be the operation that the handle was dropped for. The last lease of a tensor takes it out of
//! the table.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use burn_ir::TensorId;
use smallvec::SmallVec;

use crate::table::Table;

/// Keeps a tensor in the table of its client; nothing for a client that is not in a handle.
#[derive(Clone, Default)]
pub(crate) struct Lease(Option<Arc<Shared>>);

/// What all leases of a tensor share.
struct Shared {
    id: TensorId,
    table: Arc<Table>,
    /// Whether the tensor has left the table.
    ended: AtomicBool,
    /// The thread that dropped leases: 0 for none yet, [`SEVERAL`] for more than one.
    thread: AtomicU64,
}

const SEVERAL: u64 = u64::MAX;

/// How many leases a thread keeps: more than the inputs of an operation. A thread that only drops handles and
/// never registers an operation would otherwise keep all of them.
const MOST: usize = 1024;

thread_local! {
    /// The leases of handles that this thread has dropped since its last operation.
    static DROPPED: RefCell<SmallVec<[Arc<Shared>; 8]>> = const { RefCell::new(SmallVec::new_const()) };
    /// The place where the last lease was found among these.
    static FOUND: Cell<usize> = const { Cell::new(0) };
    /// The lease in the client that registered the last operation. burn cloned that client for the call, and
    /// drops it next: it belongs to no handle.
    static REGISTERED: Cell<*const Shared> = const { Cell::new(ptr::null()) };
    static THREAD: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

impl Lease {
    pub(crate) fn new(id: TensorId, table: &Arc<Table>) -> Self {
        let ended = AtomicBool::new(false);
        let thread = AtomicU64::new(0);
        Self(Some(Arc::new(Shared { id, table: Arc::clone(table), ended, thread })))
    }

    /// Whether the last handle of `id`, which has this lease, is dropped without an operation that uses it.
    /// If another thread has dropped a handle as well, this one may be on its way to an operation: then its
    /// lease ends later.
    pub(crate) fn ends_with_handle(&self, id: TensorId) -> bool {
        let Some(shared) = self.0.as_ref().filter(|shared| shared.id == id) else { return true };
        let thread = shared.thread.load(Ordering::Acquire);
        let here = thread == 0 || THREAD.try_with(|this| *this == thread).unwrap_or(false);
        here && shared.end(1)
    }

    /// Whether an operation of this thread, which is registered by a client with this lease, is the only use
    /// of `id` that is left. burn has said that it is the last one.
    pub(crate) fn is_last_use(&self, id: TensorId) -> bool {
        let dropped = DROPPED.try_with(|dropped| {
            let dropped = dropped.borrow();
            // burn drops the handles of an operation in the order of its inputs: the next one is often where
            // the one before was found.
            let next = FOUND.get() + 1;
            let is_it = |place: &usize| dropped.get(*place).is_some_and(|shared| shared.id == id);
            let place = Some(next).filter(is_it).or_else(|| (0..dropped.len()).rev().find(is_it))?;
            FOUND.set(place);
            Some(Arc::clone(&dropped[place]))
        });
        let Some(shared) = dropped.ok().flatten() else { return true };
        let registers = self.0.as_ref().is_some_and(|own| Arc::ptr_eq(own, &shared));
        let own = 1 + usize::from(registers);
        // The one that was found also belongs to a handle: mostly there is no other, and none is searched
        // for.
        shared.end_at(own + 1) || shared.end(own)
    }

    /// The operation that a client with this lease registers has its inputs: it keeps them from now on.
    pub(crate) fn registered(&self) {
        let dropped = DROPPED.try_with(RefCell::take);
        let own = self.0.as_ref().map_or(ptr::null(), Arc::as_ptr);
        let _ = REGISTERED.try_with(|registered| registered.set(own));
        // Done outside the thread's cell: the end of a tensor frees memory.
        drop(dropped);
    }
}

impl Shared {
    /// Ends the leases if there are none except `own` and the ones in handles that this thread has dropped.
    fn end(self: &Arc<Self>, own: usize) -> bool {
        let same = |dropped: &RefCell<SmallVec<[Arc<Self>; 8]>>| {
            dropped.borrow().iter().filter(|shared| Arc::ptr_eq(shared, self)).count()
        };
        self.end_at(own + DROPPED.try_with(same).unwrap_or(0))
    }

    /// Ends the leases if there are no more than `count`.
    fn end_at(self: &Arc<Self>, count: usize) -> bool {
        let ends = Arc::strong_count(self) <= count;
        if ends {
            self.ended.store(true, Ordering::Relaxed);
        }
        ends
    }

    fn dropped_here(&self) {
        let Ok(this) = THREAD.try_with(|this| *this) else { return };
        let thread = self.thread.load(Ordering::Relaxed);
        if thread != this && thread != SEVERAL {
            let first = self.thread.compare_exchange(0, this, Ordering::Release, Ordering::Relaxed).is_ok();
            if !first {
                self.thread.store(SEVERAL, Ordering::Release);
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(shared) = self.0.take() else { return };
        let of_call = REGISTERED.try_with(|registered| {
            ptr::eq(registered.get(), Arc::as_ptr(&shared)) && !registered.replace(ptr::null()).is_null()
        });
        if of_call.unwrap_or(false) || shared.ended.load(Ordering::Relaxed) {
            return;
        }
        shared.dropped_here();
        // If the thread ends, nothing follows that needs the tensor.
        let oldest = DROPPED.try_with(|dropped| {
            let mut dropped = dropped.borrow_mut();
            if dropped.iter().rev().take(4).any(|other| Arc::ptr_eq(other, &shared)) {
                return SmallVec::from_iter([shared]);
            }
            dropped.push(shared);
            if dropped.len() < MOST { SmallVec::<[_; 1]>::new() } else { dropped.drain(..MOST / 2).collect() }
        });
        drop(oldest);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !*self.ended.get_mut() {
            self.table.take(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use burn_backend::TensorData;
    use burn_flex::FlexTensor;

    use super::*;
    use crate::table::{Held, RegistryTensor};

    /// A tensor in a table, with two handles: their leases.
    fn tensor(id: u64) -> (TensorId, Arc<Table>, [Lease; 2]) {
        let id = TensorId::new(id);
        let table = Arc::<Table>::default();
        let tensor = RegistryTensor::on_host(&FlexTensor::from_data(TensorData::from([1.0f32])));
        table.insert(id, Held::Tensor(tensor));
        let lease = Lease::new(id, &table);
        (id, table, [lease.clone(), lease])
    }

    /// One thread drops its handle on the way to an operation; meanwhile another one uses the last handle.
    #[test]
    fn a_tensor_stays_until_the_operation_that_its_handle_was_dropped_for() {
        let (id, table, [here, there]) = tensor(1);
        drop(here);
        thread::spawn(move || {
            let client = there.clone();
            drop(there);
            assert!(!client.is_last_use(id), "it may be overwritten");
            client.registered();
        })
        .join()
        .unwrap();
        assert!(table.get(id).is_some());
        Lease::default().registered();
        assert!(table.get(id).is_none());
    }

    /// Both threads see the other's handle, and the one that drops last is on its way to an operation too.
    #[test]
    fn a_tensor_stays_when_burn_drops_it_before_both_operations() {
        let (id, table, [here, there]) = tensor(1);
        thread::spawn(move || {
            drop(there);
            Lease::default().registered();
        })
        .join()
        .unwrap();
        assert!(!here.ends_with_handle(id));
        drop(here);
        assert!(table.get(id).is_some());
        Lease::default().registered();
        assert!(table.get(id).is_none());
    }

    #[test]
    fn a_tensor_of_one_thread_ends_with_its_last_handle() {
        let (id, table, [first, second]) = tensor(1);
        let client = first.clone();
        drop(first);
        client.registered();
        drop(client);
        assert!(second.ends_with_handle(id), "nothing waits for the next operation");
        table.take(id);
        drop(second);

        let (id, _table, [first, second]) = tensor(2);
        drop(first);
        let client = second.clone();
        drop(second);
        assert!(client.is_last_use(id), "it may be overwritten");
    }

    #[test]
    fn a_thread_without_operations_keeps_a_bounded_number() {
        let tables: Vec<_> = (0..3 * MOST as u64).map(|id| tensor(id + 10).1).collect();
        let kept = tables.iter().filter(|table| table.len() > 0).count();
        assert!(kept <= MOST, "{kept}");
        Lease::default().registered();
        assert!(tables.iter().all(|table| table.len() == 0));
    }
}
