//! Memory, and the calls that wait: copies and fills that are submitted at once.

use std::collections::VecDeque;
use std::sync::Arc;

use device_registry::backend::testing::FaultPoint;
use device_registry::backend::{BackendError, FillPattern, Span};
use wgpu::BufferDescriptor;

use crate::batch::Batch;
use crate::context::Context;
use crate::memory::{DeviceRange, USES, whole_words};
use crate::staging::{PIECE, StagedRead};
use crate::submission::Submission;

impl Context {
    /// Memory for `len` bytes.
    pub(crate) fn allocate(&self, len: usize) -> Result<wgpu::Buffer, BackendError> {
        self.before(FaultPoint::Allocate { len })?;
        let size = whole_words(len);
        let descriptor = BufferDescriptor { label: None, size, usage: USES, mapped_at_creation: false };
        // On a destroyed device `create_buffer` succeeds, and the buffer cannot be used. The poll also frees
        // memory that finished work held.
        self.poll_loss()?;
        self.create_buffer(&descriptor)
    }

    /// Writes, with the device behind the host by a piece.
    pub(crate) fn write(self: &Arc<Self>, destination: &Span, bytes: &[u8]) -> Result<(), BackendError> {
        self.before(FaultPoint::Write)?;
        let to = DeviceRange::of(destination)?;
        let mut last = Err(BackendError::invalid("expected bytes to write, found none"));
        for (number, piece) in bytes.chunks(PIECE).enumerate() {
            let to = to.part((number * PIECE) as u64, whole_words(piece.len()));
            last = Ok(self.submit_batch(|batch| batch.write(to, piece))?);
        }
        self.wait(&*last?)
    }

    /// Reads, with the device up to two pieces ahead of the host.
    pub(crate) fn read(self: &Arc<Self>, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        self.before(FaultPoint::Read)?;
        let from = DeviceRange::of(source)?;
        let mut ahead = VecDeque::new();
        for (number, piece) in destination.chunks_mut(PIECE).enumerate() {
            let from = from.part((number * PIECE) as u64, whole_words(piece.len()));
            let mut batch = Batch::new(self);
            let landings = batch.land(from, piece.len())?;
            let submission = Arc::clone(batch.submission());
            ahead.push_back((batch.submit_then(|| StagedRead::begin(landings, &submission))?, piece));
            if ahead.len() > 2
                && let Some((read, piece)) = ahead.pop_front()
            {
                self.finish_read(read, piece)?;
            }
        }
        ahead.into_iter().try_for_each(|(read, piece)| self.finish_read(read, piece))
    }

    pub(crate) fn copy(self: &Arc<Self>, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.before(FaultPoint::Copy)?;
        let from = DeviceRange::of(source)?;
        let to = DeviceRange::of(destination)?;
        self.wait(&*self.submit_batch(|batch| batch.copy(from, to))?)
    }

    pub(crate) fn fill(
        self: &Arc<Self>,
        destination: &Span,
        pattern: &FillPattern,
    ) -> Result<(), BackendError> {
        self.before(FaultPoint::Fill)?;
        let to = DeviceRange::of(destination)?;
        self.wait(&*self.submit_batch(|batch| batch.fill(to, pattern))?)
    }

    /// Submits one piece of work.
    pub(crate) fn submit_batch(
        self: &Arc<Self>,
        add: impl FnOnce(&mut Batch) -> Result<(), BackendError>,
    ) -> Result<Arc<Submission>, BackendError> {
        let mut batch = Batch::new(self);
        add(&mut batch)?;
        let submission = Arc::clone(batch.submission());
        batch.submit_then(|| submission)
    }
}
