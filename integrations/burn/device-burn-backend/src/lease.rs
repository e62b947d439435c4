//! How long the table keeps a tensor that several threads use.
//!
//! burn counts the handles of a tensor, and says at which use the last one ends. It lowers the count before
//! it registers the operation of that use. So of two threads that use the last two handles at once, one can
//! register an operation for a tensor that the other has released already.
//!
//! A [`Lease`] keeps the tensor for that time. Each handle has one: burn clones the client in a handle with
//! the handle. A thread that drops a handle keeps its lease until the thread's next operation is registered,
//! as this can be the operation that the handle was dropped for. The last lease of a tensor takes it out of
//! the table, and frees its place.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use burn_ir::TensorId;
use smallvec::SmallVec;

use crate::slots::{self, Slot};

/// Keeps a tensor in the table of its client; nothing for a client that is not in a handle.
#[derive(Default)]
pub(crate) struct Lease(Option<&'static Slot>);

/// In [`Slot::thread`]: more than one.
const SEVERAL: u64 = u64::MAX;

/// How many leases a thread keeps of tensors that others have too: more than the inputs of an operation. A
/// thread that only drops handles and never registers an operation would otherwise keep all of them.
const MOST: usize = 1024;

/// A lease whose handle is dropped.
struct Dropped(&'static Slot);

thread_local! {
    /// The leases of handles that this thread has dropped since its last operation.
    static DROPPED: RefCell<SmallVec<[Dropped; 8]>> = const { RefCell::new(SmallVec::new_const()) };
    /// How many of them there may be before some are released.
    static ROOM: Cell<usize> = const { Cell::new(MOST) };
    /// The place where the last lease was found among these.
    static FOUND: Cell<usize> = const { Cell::new(0) };
    /// The lease in the client that registered the last operation. burn cloned that client for the call, and
    /// drops it next: it belongs to no handle.
    static REGISTERED: Cell<Option<TensorId>> = const { Cell::new(None) };
    static THREAD: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

impl Lease {
    pub(crate) fn new(id: TensorId) -> Self {
        let slot = slots::find(id);
        slot.inspect(|slot| slot.lease());
        Self(slot)
    }

    /// Whether the last handle of `id`, which has this lease, is dropped without an operation that uses it.
    /// If another thread has dropped a handle as well, this one may be on its way to an operation: then its
    /// lease ends later.
    pub(crate) fn ends_with_handle(&self, id: TensorId) -> bool {
        let Some(slot) = self.0.filter(|slot| slot.id() == id) else { return true };
        let thread = slot.thread.load(Ordering::Acquire);
        let here = thread == 0 || THREAD.try_with(|this| *this == thread).unwrap_or(false);
        let ends = here && end(slot, 1);
        if !ends {
            slot.released.store(true, Ordering::Relaxed);
        }
        ends
    }

    /// Whether an operation of this thread, which is registered by a client with this lease, is the only use
    /// of `id` that is left. burn has said that it is the last one.
    pub(crate) fn is_last_use(&self, id: TensorId) -> bool {
        let dropped = DROPPED.try_with(|dropped| {
            let dropped = dropped.borrow();
            // burn drops the handles of an operation in the order of its inputs: the next one is often where
            // the one before was found.
            let next = FOUND.get() + 1;
            let is_it = |place: &usize| dropped.get(*place).is_some_and(|dropped| dropped.0.id() == id);
            let place = Some(next).filter(is_it).or_else(|| (0..dropped.len()).rev().find(is_it))?;
            FOUND.set(place);
            Some(dropped[place].0)
        });
        let Some(slot) = dropped.ok().flatten() else { return true };
        let own = u32::from(self.0.is_some_and(|own| ptr::eq(own, slot)));
        // The one that was found also belongs to a handle: mostly there is no other, and none is searched
        // for.
        let is_last = end_at(slot, own + 1) || end(slot, own);
        if !is_last {
            slot.released.store(true, Ordering::Relaxed);
        }
        is_last
    }

    /// The operation that a client with this lease registers has its inputs: it keeps them from now on.
    pub(crate) fn registered(&self) {
        let dropped = DROPPED.try_with(RefCell::take);
        let own = self.0.map(Slot::id);
        let _ = REGISTERED.try_with(|registered| registered.set(own));
        ROOM.set(MOST);
        // Done outside the thread's cell: the end of a tensor frees memory.
        drop(dropped);
    }
}

/// Ends the leases if there are none except `own` and the ones in handles that this thread has dropped.
fn end(slot: &Slot, own: u32) -> bool {
    let same = |dropped: &RefCell<SmallVec<[Dropped; 8]>>| {
        dropped.borrow().iter().map(|dropped| u32::from(ptr::eq(dropped.0, slot))).sum::<u32>()
    };
    end_at(slot, own + DROPPED.try_with(same).unwrap_or(0))
}

/// Ends the leases if there are no more than `count`.
fn end_at(slot: &Slot, count: u32) -> bool {
    let ends = slot.leases() <= count;
    if ends {
        slot.ended.store(true, Ordering::Relaxed);
    }
    ends
}

fn dropped_here(slot: &Slot) {
    let Ok(this) = THREAD.try_with(|this| *this) else { return };
    let thread = slot.thread.load(Ordering::Relaxed);
    if thread != this && thread != SEVERAL {
        let first = slot.thread.compare_exchange(0, this, Ordering::Release, Ordering::Relaxed).is_ok();
        if !first {
            slot.thread.store(SEVERAL, Ordering::Release);
        }
    }
}

/// Takes out leases that keep tensors which burn has released, or others have too. A tensor that this thread
/// alone has is on its way to an operation, which may have thousands of inputs.
fn release_some(dropped: &mut SmallVec<[Dropped; 8]>) -> SmallVec<[Dropped; 1]> {
    let mut released = SmallVec::new();
    let mut kept = SmallVec::new();
    let newest = dropped.len() - MOST / 2;
    for (place, lease) in dropped.drain(..).enumerate() {
        let has_left = lease.0.released.load(Ordering::Relaxed) || lease.0.ended.load(Ordering::Relaxed);
        let is_needed = lease.0.leases() == 1 && !has_left;
        if place >= newest || is_needed { kept.push(lease) } else { released.push(lease) }
    }
    ROOM.set(MOST.max(2 * kept.len()));
    *dropped = kept;
    released
}

impl Clone for Lease {
    fn clone(&self) -> Self {
        self.0.inspect(|slot| slot.lease());
        Self(self.0)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(slot) = self.0.take() else { return };
        let lease = Dropped(slot);
        let of_call = REGISTERED
            .try_with(|registered| registered.get() == Some(slot.id()) && registered.take().is_some());
        if of_call.unwrap_or(false) || slot.ended.load(Ordering::Relaxed) {
            return;
        }
        dropped_here(slot);
        // If the thread ends, nothing follows that needs the tensor.
        let released = DROPPED.try_with(|dropped| {
            let mut dropped = dropped.borrow_mut();
            if dropped.iter().rev().take(4).any(|other| ptr::eq(other.0, slot)) {
                return SmallVec::from_buf([lease]);
            }
            dropped.push(lease);
            if dropped.len() < ROOM.get() { SmallVec::new() } else { release_some(&mut dropped) }
        });
        drop(released);
    }
}

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.end_lease();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use burn_backend::TensorData;
    use burn_flex::FlexTensor;

    use super::*;
    use crate::table::{Held, Table};

    /// A tensor in a table, with two handles: their leases.
    fn tensor() -> (TensorId, &'static Table, [Lease; 2]) {
        let id = slots::new_id();
        let table: &'static Table = Box::leak(Box::default());
        table.insert(id, Held::Host(FlexTensor::from_data(TensorData::from([1.0f32]))));
        let lease = Lease::new(id);
        (id, table, [lease.clone(), lease])
    }

    /// One thread drops its handle on the way to an operation; meanwhile another one uses the last handle.
    #[test]
    fn a_tensor_stays_until_the_operation_that_its_handle_was_dropped_for() {
        let (id, table, [here, there]) = tensor();
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
        let (id, table, [here, there]) = tensor();
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
        let (id, table, [first, second]) = tensor();
        let client = first.clone();
        drop(first);
        client.registered();
        drop(client);
        assert!(second.ends_with_handle(id), "nothing waits for the next operation");
        table.take(id);
        drop(second);

        let (id, _table, [first, second]) = tensor();
        drop(first);
        let client = second.clone();
        drop(second);
        assert!(client.is_last_use(id), "it may be overwritten");
    }

    #[test]
    fn a_thread_without_operations_keeps_a_bounded_number() {
        let tensors: Vec<_> = (0..3 * MOST).map(|_| tensor()).collect();
        let tables: Vec<_> = tensors.iter().map(|(_, table, _)| *table).collect();
        let drop_one = |(id, _, [here, there]): (TensorId, &Table, [Lease; 2])| {
            drop(here);
            (id, there)
        };
        let others: Vec<_> = tensors.into_iter().map(drop_one).collect();
        let drop_other = |(id, lease): (TensorId, Lease)| {
            assert!(!lease.ends_with_handle(id), "the other thread may be on its way to an operation");
            drop(lease);
            Lease::default().registered();
        };
        thread::spawn(move || others.into_iter().for_each(drop_other)).join().unwrap();
        let kept = tables.iter().filter(|table| table.len() > 0).count();
        assert!(kept <= MOST, "{kept}");
        Lease::default().registered();
        assert!(tables.iter().all(|table| table.len() == 0));
    }

    /// `Tensor::cat` of thousands.
    /// A thread that clones and drops what others have made.
    #[test]
    fn a_thread_keeps_few_leases_of_tensors_that_have_ended() {
        for _ in 0..3 * MOST {
            let (id, table, [first, second]) = tensor();
            drop(first);
            assert!(second.ends_with_handle(id));
            table.take(id);
            drop(second);
        }
        assert!(DROPPED.with_borrow(SmallVec::len) <= MOST);
        Lease::default().registered();
    }

    #[test]
    fn an_operation_finds_all_its_inputs_however_many_there_are() {
        let tensors: Vec<_> = (0..5 * MOST).map(|_| tensor()).collect();
        let ids: Vec<_> = tensors.iter().map(|(id, table, _)| (*id, *table)).collect();
        let client = tensors[0].2[0].clone();
        for (_, _, [first, last]) in tensors {
            // Another clone of the program's, before.
            drop(first);
            drop(last);
        }
        for (id, table) in &ids {
            assert!(client.is_last_use(*id));
            assert!(table.take(*id).is_some());
        }
        client.registered();
    }
}
