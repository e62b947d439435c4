//! The twins: correct backends, which differ in the optional features that they offer.

use device_registry::backend::{Backend, BackendDescriptor, LoadFailure};
use device_registry::{Device, backends, device};

use crate::backend::TwinBackend;

/// What a twin offers.
#[derive(Debug)]
pub(crate) struct Twin {
    pub(crate) name: &'static str,
    pub(crate) devices: usize,
    /// Whether its devices have queues of their own, or blocking calls only.
    pub(crate) queues: Queues,
    /// Whether it has blocking calls, or leaves those to the core. It has queues then.
    pub(crate) blocking: bool,
    /// The alignment of copies and fills. Lengths of memory are multiples of it.
    pub(crate) alignment: usize,
    /// Whether it offers all optional features, or none.
    pub(crate) all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queues {
    No,
    /// Work begins when it is submitted. Events have timestamps, and streams wait for each other by
    /// themselves.
    Eager,
    /// Work begins when the queue is flushed. Streams do not wait for each other by themselves.
    Lazy,
}

/// Blocking calls, and all optional features of a driver without queues.
pub(crate) static SOUND: Twin =
    Twin { name: "sound", devices: 3, queues: Queues::No, blocking: true, alignment: 1, all: true };

/// Queues as hardware has them, and all optional features.
pub(crate) static QUEUED: Twin =
    Twin { name: "sound_queued", devices: 3, queues: Queues::Eager, blocking: true, alignment: 1, all: true };

/// Copies in words of four bytes.
pub(crate) static IN_WORDS: Twin =
    Twin { name: "sound_in_words", devices: 2, queues: Queues::No, blocking: true, alignment: 4, all: true };

/// Queues that gather work until they are flushed, copies in words, and no optional features.
pub(crate) static LAZY: Twin =
    Twin { name: "sound_lazy", devices: 2, queues: Queues::Lazy, blocking: true, alignment: 4, all: false };

/// Queues and no blocking calls, with all other optional features, and copies in words. The queues run the
/// work behind a wait for an event that fails.
pub(crate) static QUEUES_ALONE: Twin = Twin {
    name: "sound_queues_alone",
    devices: 2,
    queues: Queues::Eager,
    blocking: false,
    alignment: 4,
    all: true,
};

/// One device without optional features.
pub(crate) static MINIMAL: Twin =
    Twin { name: "sound_minimal", devices: 1, queues: Queues::No, blocking: true, alignment: 1, all: false };

pub(crate) static TWINS: [&Twin; 6] = [&SOUND, &QUEUED, &IN_WORDS, &LAZY, &QUEUES_ALONE, &MINIMAL];

static DESCRIPTORS: [BackendDescriptor; 6] = [
    BackendDescriptor::new("sound", || load(&SOUND)),
    BackendDescriptor::new("sound_queued", || load(&QUEUED)),
    BackendDescriptor::new("sound_in_words", || load(&IN_WORDS)),
    BackendDescriptor::new("sound_lazy", || load(&LAZY)),
    BackendDescriptor::new("sound_queues_alone", || load(&QUEUES_ALONE)),
    BackendDescriptor::new("sound_minimal", || load(&MINIMAL)),
];

fn load(twin: &'static Twin) -> Result<Box<dyn Backend>, LoadFailure> {
    Ok(Box::new(TwinBackend::new(twin)))
}

impl Twin {
    /// Whether its queues run the work behind a wait for an event that fails, in place of failing with it.
    pub(crate) fn runs_behind_failed_events(&self) -> bool {
        !self.blocking
    }

    /// Its first device.
    pub(crate) fn device(&self) -> Device {
        let descriptor = DESCRIPTORS.iter().find(|descriptor| descriptor.name() == self.name);
        let descriptor = descriptor.expect("every twin has a descriptor");
        backends().register(descriptor).expect("no other backend has the name");
        device(self.name).expect("the name was registered")
    }
}
