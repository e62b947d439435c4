//! Copies and fills, submitted to the queue.

use std::collections::VecDeque;
use std::sync::Arc;

use device_registry::backend::testing::FaultPoint;
use device_registry::backend::{BackendError, FillPattern, Span};
use wgpu::{BufferDescriptor, BufferUsages, CommandEncoder, MapMode};

use crate::context::Context;
use crate::error;
use crate::mapping::Mapping;
use crate::memory::{DeviceRange, USES, whole_words};
use crate::staging::PIECE;
use crate::submission::Submission;

/// The length of the buffer that copies within one buffer go through, and that fills repeat.
const BETWEEN: u64 = 16 << 20;

/// How many bytes of a fill come from the host. The device repeats them.
const FROM_HOST: usize = 64 << 10;

/// Bytes that are read in pieces, each into a buffer of its own.
pub(crate) struct StagedRead {
    pieces: Vec<(wgpu::Buffer, Arc<Mapping>)>,
    submission: Arc<Submission>,
}

impl StagedRead {
    pub(crate) fn submission(&self) -> &Arc<Submission> {
        &self.submission
    }
}

impl Context {
    /// Creates a buffer.
    pub(crate) fn create_buffer(
        &self,
        descriptor: &BufferDescriptor<'_>,
    ) -> Result<wgpu::Buffer, BackendError> {
        let created = self.checked(|device| device.create_buffer(descriptor));
        created.map_err(|error| error::for_len(error, descriptor.size))
    }

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

    /// Writes bytes. It copies them before it returns.
    pub(crate) fn write(&self, destination: &Span, bytes: &[u8]) -> Result<Arc<Submission>, BackendError> {
        self.before(FaultPoint::Write)?;
        let to = DeviceRange::of(destination)?;
        let mut last = Err(BackendError::invalid("expected bytes to write, found none"));
        for (number, piece) in bytes.chunks(PIECE).enumerate() {
            let staged = self.stage(piece)?;
            let to = to.part((number * PIECE) as u64, whole_words(piece.len()));
            let (submission, ()) = self.encode_then(
                |encoder| encoder.copy_buffer_to_buffer(&staged, 0, to.buffer, to.offset, to.len),
                || self.staging.keep_up(&staged),
            )?;
            last = Ok(submission);
        }
        last
    }

    /// Begins to read the first `len` bytes of `source`.
    fn begin_read(&self, source: DeviceRange<'_>, len: usize) -> Result<StagedRead, BackendError> {
        let lens = (0..len).step_by(PIECE).map(|start| PIECE.min(len - start));
        let landings: Vec<_> = lens
            .map(|len| Ok((self.landing(len)?, whole_words(len))))
            .collect::<Result<_, BackendError>>()?;
        let (submission, pieces) = self.encode_then(
            |encoder| {
                for (number, (landing, len)) in landings.iter().enumerate() {
                    let from = source.part((number * PIECE) as u64, *len);
                    encoder.copy_buffer_to_buffer(from.buffer, from.offset, landing, 0, *len);
                }
            },
            || {
                let map = |(landing, len): &(wgpu::Buffer, u64)| {
                    (landing.clone(), Mapping::begin(landing, MapMode::Read, *len))
                };
                landings.iter().map(map).collect()
            },
        )?;
        Ok(StagedRead { pieces, submission })
    }

    /// Begins to read all of `source`.
    pub(crate) fn begin_read_of(&self, source: &Span) -> Result<StagedRead, BackendError> {
        self.before(FaultPoint::Read)?;
        self.begin_read(DeviceRange::of(source)?, source.len())
    }

    /// Waits for the bytes, and copies them to the host.
    pub(crate) fn finish_read(&self, read: StagedRead, destination: &mut [u8]) -> Result<(), BackendError> {
        for ((landing, mapping), piece) in read.pieces.into_iter().zip(destination.chunks_mut(PIECE)) {
            self.wait_mapped(&read.submission, &mapping)?;
            self.unload(landing, piece)?;
        }
        Ok(())
    }

    /// Reads, with the device up to two pieces ahead of the host.
    pub(crate) fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        self.before(FaultPoint::Read)?;
        let from = DeviceRange::of(source)?;
        let mut ahead = VecDeque::new();
        for (number, piece) in destination.chunks_mut(PIECE).enumerate() {
            let from = from.part((number * PIECE) as u64, whole_words(piece.len()));
            ahead.push_back((self.begin_read(from, piece.len())?, piece));
            if ahead.len() > 2
                && let Some((read, piece)) = ahead.pop_front()
            {
                self.finish_read(read, piece)?;
            }
        }
        ahead.into_iter().try_for_each(|(read, piece)| self.finish_read(read, piece))
    }

    pub(crate) fn copy(&self, source: &Span, destination: &Span) -> Result<Arc<Submission>, BackendError> {
        self.before(FaultPoint::Copy)?;
        let (from, to) = (DeviceRange::of(source)?, DeviceRange::of(destination)?);
        if from.buffer != to.buffer {
            return self.encode(|encoder| copy(encoder, from, to));
        }
        // wgpu refuses to copy within one buffer.
        let between = self.between(from.len)?;
        self.encode(|encoder| {
            for start in (0..from.len).step_by(BETWEEN as usize) {
                let len = BETWEEN.min(from.len - start);
                let between = DeviceRange { buffer: &between, offset: 0, len };
                copy(encoder, from.part(start, len), between);
                copy(encoder, between, to.part(start, len));
            }
        })
    }

    pub(crate) fn fill(
        &self,
        destination: &Span,
        pattern: &FillPattern,
    ) -> Result<Arc<Submission>, BackendError> {
        self.before(FaultPoint::Fill)?;
        let to = DeviceRange::of(destination)?;
        if pattern.as_bytes() == [0] {
            return self.encode(|encoder| encoder.clear_buffer(to.buffer, to.offset, Some(to.len)));
        }
        // In whole words. The last one may reach beyond the span, into the padding of its memory.
        let mut first = vec![0; to.len.min(FROM_HOST as u64) as usize];
        pattern.fill(&mut first);
        let staged = self.stage(&first)?;
        let between = if to.len > first.len() as u64 { Some(self.between(to.len)?) } else { None };
        let encode = |encoder: &mut CommandEncoder| {
            let mut done = first.len() as u64;
            encoder.copy_buffer_to_buffer(&staged, 0, to.buffer, to.offset, done);
            let Some(between) = &between else { return };
            // Each step doubles the filled part, through a buffer that holds as much of it as fits.
            let mut held = 0;
            while done < to.len {
                if held < done.min(BETWEEN) {
                    held = done.min(BETWEEN);
                    copy(encoder, to.part(0, held), DeviceRange { buffer: between, offset: 0, len: held });
                }
                let len = held.min(to.len - done);
                copy(encoder, DeviceRange { buffer: between, offset: 0, len }, to.part(done, len));
                done += len;
            }
        };
        let (submission, ()) = self.encode_then(encode, || self.staging.keep_up(&staged))?;
        Ok(submission)
    }

    /// The buffer that copies within one buffer go through, of at least `len` bytes or [`BETWEEN`].
    fn between(&self, len: u64) -> Result<wgpu::Buffer, BackendError> {
        let size = len.min(BETWEEN).next_power_of_two();
        let mut kept = self.between.lock();
        match &*kept {
            Some(buffer) if buffer.size() >= size => Ok(buffer.clone()),
            _ => {
                let usage = BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
                let descriptor =
                    BufferDescriptor { label: Some("between"), size, usage, mapped_at_creation: false };
                let buffer = self.create_buffer(&descriptor)?;
                *kept = Some(buffer.clone());
                Ok(buffer)
            }
        }
    }
}

fn copy(encoder: &mut CommandEncoder, from: DeviceRange<'_>, to: DeviceRange<'_>) {
    encoder.copy_buffer_to_buffer(from.buffer, from.offset, to.buffer, to.offset, from.len);
}
