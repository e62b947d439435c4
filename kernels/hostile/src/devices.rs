//! A backend that returns devices of others as its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use device_registry::backend::{Backend, BackendDescriptor, BackendError, DeviceProperties};
use device_registry::{Device, backends, device};

use crate::{Test, hostile_backend, refused, victims, works};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        ("devices_of_others_are_not_opened_as_its_own", not_opened),
        ("others_may_be_opened_and_dropped_by_anyone", opened_and_dropped),
        ("a_device_in_a_file_is_open_once_and_closed_if_it_is_not_used", open_once),
        ("a_loss_of_its_own_device_is_that_of_no_other", lost),
    ]
}

static MIXED: BackendDescriptor = BackendDescriptor::new("mixed", || Ok(Box::new(Mixed)));

/// The devices of other backends that it returns, in the order of its own.
static VICTIMS: LazyLock<Vec<Device>> = LazyLock::new(victims);

struct Mixed;

fn other(ordinal: usize) -> &'static dyn Backend {
    backends().load(VICTIMS[ordinal].name()).expect("it is loaded")
}

hostile_backend!(
    Mixed,
    VICTIMS.len(),
    // Not its own alignments either.
    |ordinal| Ok(other(ordinal).properties(0)?.with_copy_alignment(1)),
    |_this, ordinal| other(ordinal).open(0)
);

fn not_opened() {
    backends().register(&MIXED).unwrap();
    let mixed: Vec<Device> = (0..VICTIMS.len()).map(|at| device(&format!("mixed:{at}")).unwrap()).collect();
    for device in &mixed {
        // A backend may refuse a second device of its own, which is as good.
        let opened = device.open();
        assert!(opened.is_err(), "{device} is open");
        if device.index() == Some(0) {
            refused(opened, "the backend returned a device that another backend has opened");
        }
        refused(device.allocate(8), "open: ");
        refused(device.create_stream(), "open: ");
    }
}

/// The rules of the interface promise it to a library, and code beside the core cannot break it.
fn open_once() {
    for name in ["myc", "mycqueue"] {
        let Ok(backend) = backends().load(name) else { continue };
        // The others open the first one only.
        let opened = backend.open(1).unwrap();
        refused(backend.open(1), "the device 1 is open already");
        let device = device(&format!("{name}:1")).unwrap();
        refused(device.open(), "the device 1 is open already");
        drop(opened);
        works(device);
        refused(backend.open(1), "the device 1 is open already");
        device.close().unwrap();
        drop(backend.open(1).unwrap());
    }
}

fn opened_and_dropped() {
    for victim in victims() {
        let backend = backends().load(victim.name()).unwrap();
        for _ in 0..20 {
            // Some refuse a second one.
            drop(backend.open(0));
            // The core never passes such an ordinal, so a backend may panic here, in its caller.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(backend.open(usize::MAX >> 1))));
        }
    }
}

static LOSES: BackendDescriptor = BackendDescriptor::new("loses", || Ok(Box::new(Loses)));

struct Loses;

hostile_backend!(Loses, 1, |_ordinal| Ok(DeviceProperties::new("loses")), |_this, _ordinal| Err(
    BackendError::lost("it says so of a device that is not open")
));

fn lost() {
    backends().register(&LOSES).unwrap();
    refused(device("loses").unwrap().allocate(1), "it says so of a device that is not open");
}
