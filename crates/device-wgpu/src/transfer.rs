//! Copies and fills, submitted to the queue.

use std::collections::VecDeque;
use std::sync::Arc;

use device_registry::backend::{BackendError, FillPattern, Span};
use wgpu::{BufferDescriptor, BufferUsages, CommandEncoder, MapMode};

use crate::context::Context;
use crate::error;
use crate::mapping::Mapping;
use crate::memory::{Place, USES, whole_words};
use crate::staging::PIECE;
use crate::submission::Submission;

/// What copies within one buffer go through at a time, and what a fill repeats.
const BETWEEN: u64 = 16 << 20;

/// So much of a pattern comes from the host. The device repeats it.
const FROM_HOST: usize = 64 << 10;

/// Bytes that are read in pieces, each into a buffer of its own.
pub(crate) struct Reading {
    pieces: Vec<(wgpu::Buffer, Arc<Mapping>)>,
    submission: Arc<Submission>,
}

impl Reading {
    pub(crate) fn submission(&self) -> &Arc<Submission> {
        &self.submission
    }
}

impl Context {
    /// A buffer, with its first error.
    pub(crate) fn create_buffer(
        &self,
        descriptor: &BufferDescriptor<'_>,
    ) -> Result<wgpu::Buffer, BackendError> {
        let created = self.checked(|device| device.create_buffer(descriptor));
        created.map_err(|error| error::for_len(error, descriptor.size))
    }

    /// Memory for `len` bytes.
    pub(crate) fn allocate(&self, len: usize) -> Result<wgpu::Buffer, BackendError> {
        let size = whole_words(len);
        let descriptor = BufferDescriptor { label: None, size, usage: USES, mapped_at_creation: false };
        // On a device that was destroyed the call goes through, and the buffer is none. Besides, what finished work held
        // is free then.
        self.look()?;
        self.create_buffer(&descriptor)
    }

    /// Writes bytes, which are the caller's again when it returns.
    pub(crate) fn write(&self, destination: &Span, bytes: &[u8]) -> Result<Arc<Submission>, BackendError> {
        let to = Place::of(destination)?;
        let mut last = Err(BackendError::invalid("there are no bytes to write"));
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

    /// Begins to read `len` bytes from the start of `source` on.
    fn begin_read(&self, source: Place<'_>, len: usize) -> Result<Reading, BackendError> {
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
        Ok(Reading { pieces, submission })
    }

    /// Begins to read all of `source`.
    pub(crate) fn begin_read_of(&self, source: &Span) -> Result<Reading, BackendError> {
        self.begin_read(Place::of(source)?, source.len())
    }

    /// Waits for the bytes, and copies them.
    pub(crate) fn finish_read(&self, reading: Reading, destination: &mut [u8]) -> Result<(), BackendError> {
        for ((landing, mapping), piece) in reading.pieces.into_iter().zip(destination.chunks_mut(PIECE)) {
            self.wait_mapped(&reading.submission, &mapping)?;
            self.unload(landing, piece)?;
        }
        Ok(())
    }

    /// Reads, with a piece or two ahead of the host.
    pub(crate) fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        let from = Place::of(source)?;
        let mut ahead = VecDeque::new();
        for (number, piece) in destination.chunks_mut(PIECE).enumerate() {
            let from = from.part((number * PIECE) as u64, whole_words(piece.len()));
            ahead.push_back((self.begin_read(from, piece.len())?, piece));
            if ahead.len() > 2
                && let Some((reading, piece)) = ahead.pop_front()
            {
                self.finish_read(reading, piece)?;
            }
        }
        ahead.into_iter().try_for_each(|(reading, piece)| self.finish_read(reading, piece))
    }

    pub(crate) fn copy(&self, source: &Span, destination: &Span) -> Result<Arc<Submission>, BackendError> {
        let (from, to) = (Place::of(source)?, Place::of(destination)?);
        if from.buffer != to.buffer {
            return self.encode(|encoder| copy(encoder, from, to));
        }
        // wgpu refuses to copy within one buffer.
        let between = self.between(from.len)?;
        self.encode(|encoder| {
            for start in (0..from.len).step_by(BETWEEN as usize) {
                let len = BETWEEN.min(from.len - start);
                let between = Place { buffer: &between, offset: 0, len };
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
        let to = Place::of(destination)?;
        if pattern.as_bytes() == [0] {
            return self.encode(|encoder| encoder.clear_buffer(to.buffer, to.offset, Some(to.len)));
        }
        // In whole words, of which the last may reach beyond the span: no memory of anybody's.
        let mut first = vec![0; to.len.min(FROM_HOST as u64) as usize];
        pattern.fill(&mut first);
        let staged = self.stage(&first)?;
        let between = match to.len > first.len() as u64 {
            true => Some(self.between(to.len)?),
            false => None,
        };
        let encode = |encoder: &mut CommandEncoder| {
            let mut done = first.len() as u64;
            encoder.copy_buffer_to_buffer(&staged, 0, to.buffer, to.offset, done);
            let Some(between) = &between else { return };
            // The whole doubles in each step, by way of a buffer that holds as much of it as fits.
            let mut held = 0;
            while done < to.len {
                if held < done.min(BETWEEN) {
                    held = done.min(BETWEEN);
                    copy(encoder, to.part(0, held), Place { buffer: between, offset: 0, len: held });
                }
                let len = held.min(to.len - done);
                copy(encoder, Place { buffer: between, offset: 0, len }, to.part(done, len));
                done += len;
            }
        };
        let (submission, ()) = self.encode_then(encode, || self.staging.keep_up(&staged))?;
        Ok(submission)
    }

    /// A buffer of the device's for something that goes through it, of `len` bytes or of [`BETWEEN`].
    fn between(&self, len: u64) -> Result<wgpu::Buffer, BackendError> {
        let size = len.min(BETWEEN).next_power_of_two();
        let mut kept = self.between.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
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

fn copy(encoder: &mut CommandEncoder, from: Place<'_>, to: Place<'_>) {
    encoder.copy_buffer_to_buffer(from.buffer, from.offset, to.buffer, to.offset, from.len);
}
