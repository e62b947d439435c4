//! Commands that are submitted together, and the staging memory that they need.

use std::sync::Arc;

use device_registry::backend::{BackendError, Completion, FillPattern, HostBuffer, ReadThread};
use wgpu::{BufferDescriptor, BufferUsages, CommandBuffer, CommandEncoder};

use crate::context::Context;
use crate::memory::DeviceRange;
use crate::staging::{Landings, PIECE, Staged, StagedRead, StagingBuffer};
use crate::submission::Submission;

/// The length of the buffer that copies within one buffer go through, and that fills repeat.
const BETWEEN: u64 = 16 << 20;

/// How many bytes of a fill come from the host. The device repeats them.
const FROM_HOST: usize = 64 << 10;

/// With this many pieces of work, or bytes to move, a batch is worth a submission: the device begins.
const FULL_PIECES: usize = 64;
const FULL_BYTES: u64 = 1 << 20;

/// Commands that are submitted together, in their order.
pub(crate) struct Batch {
    context: Arc<Context>,
    submission: Arc<Submission>,
    commands: Vec<Commands>,
    /// What the host has written for the device; the last buffer may have room for more.
    staged: Vec<wgpu::Buffer>,
    open: Option<StagingBuffer>,
    reads: Vec<GatheredRead>,
    pieces: usize,
    bytes: u64,
}

enum Commands {
    /// More can be encoded while they are the last.
    Own(CommandEncoder),
    Other(CommandBuffer),
}

/// A read whose bytes the commands copy to where the host can map them.
struct GatheredRead {
    landings: Landings,
    destination: HostBuffer,
    completion: Completion,
}

/// Reads that are submitted, for the thread that finishes them. Their owner hands them over without a
/// lock, as the thread may have ended: then their wakers run here, which are the program's code.
#[must_use]
#[derive(Default)]
pub(crate) struct BegunReads(Vec<(Completion, Box<Finish>)>);

type Finish = dyn FnOnce() -> Result<HostBuffer, BackendError> + Send;

impl BegunReads {
    pub(crate) fn hand_to(self, thread: &ReadThread) {
        self.0.into_iter().for_each(|(completion, read)| thread.finish(completion, read));
    }
}

impl Batch {
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        Self {
            context: Arc::clone(context),
            submission: Arc::default(),
            commands: Vec::new(),
            staged: Vec::new(),
            open: None,
            reads: Vec::new(),
            pieces: 0,
            bytes: 0,
        }
    }

    /// The submission that it will become.
    pub(crate) fn submission(&self) -> &Arc<Submission> {
        &self.submission
    }

    /// Whether there is nothing to submit.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces == 0
    }

    /// Whether it is worth a submission by itself.
    pub(crate) fn is_full(&self) -> bool {
        self.pieces >= FULL_PIECES || self.bytes >= FULL_BYTES
    }

    /// Adds commands of one piece of work, that move this many bytes. Errors in them show when the batch is
    /// submitted.
    pub(crate) fn encode(
        &mut self,
        bytes: u64,
        encode: impl FnOnce(&mut CommandEncoder),
    ) -> Result<(), BackendError> {
        if !matches!(self.commands.last(), Some(Commands::Own(_))) {
            let new = |device: &wgpu::Device| device.create_command_encoder(&Default::default());
            self.commands.push(Commands::Own(self.context.checked(new)?));
        }
        if let Some(Commands::Own(encoder)) = self.commands.last_mut() {
            encode(encoder);
        }
        self.pieces += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        Ok(())
    }

    /// Adds commands that other code has encoded.
    pub(crate) fn add(&mut self, commands: Vec<CommandBuffer>) {
        self.commands.extend(commands.into_iter().map(Commands::Other));
        self.pieces += 1;
    }

    /// Writes bytes, at most a [`PIECE`]. It copies them before it returns.
    pub(crate) fn write(&mut self, to: DeviceRange<'_>, bytes: &[u8]) -> Result<(), BackendError> {
        let Staged { buffer, offset } = self.stage(bytes)?;
        self.encode(to.len, |encoder| {
            encoder.copy_buffer_to_buffer(&buffer, offset, to.buffer, to.offset, to.len);
        })
    }

    /// Host bytes where the device can read them. They are padded with zeros to whole words.
    fn stage(&mut self, bytes: &[u8]) -> Result<Staged, BackendError> {
        if let Some(open) = &mut self.open
            && let Some(staged) = open.append(&self.context.loss, bytes)
        {
            return staged;
        }
        let mut next = self.context.staging_buffer(bytes.len())?;
        let Some(staged) = next.append(&self.context.loss, bytes) else {
            return Err(BackendError::other("a new staging buffer is too short"));
        };
        if let Some(open) = self.open.replace(next) {
            self.staged.push(open.unmap());
        }
        staged
    }

    /// Copies all bytes of a range to the host, later.
    pub(crate) fn read(
        &mut self,
        from: DeviceRange<'_>,
        destination: HostBuffer,
        completion: Completion,
    ) -> Result<(), BackendError> {
        let landings = self.land(from, destination.len())?;
        self.reads.push(GatheredRead { landings, destination, completion });
        Ok(())
    }

    /// Copies the first `len` bytes of a range to where the host can map them after the submission.
    pub(crate) fn land(&mut self, from: DeviceRange<'_>, len: usize) -> Result<Landings, BackendError> {
        let landings = self.context.landings(len)?;
        self.encode(from.len, |encoder| {
            for (number, (landing, len)) in landings.iter().enumerate() {
                let from = from.part((number * PIECE) as u64, *len);
                encoder.copy_buffer_to_buffer(from.buffer, from.offset, landing, 0, *len);
            }
        })?;
        Ok(landings)
    }

    pub(crate) fn copy(&mut self, from: DeviceRange<'_>, to: DeviceRange<'_>) -> Result<(), BackendError> {
        if from.buffer != to.buffer {
            return self.encode(from.len, |encoder| copy(encoder, from, to));
        }
        // wgpu refuses to copy within one buffer.
        let between = self.context.between(from.len)?;
        self.encode(from.len, |encoder| {
            for start in (0..from.len).step_by(BETWEEN as usize) {
                let len = BETWEEN.min(from.len - start);
                let between = DeviceRange { buffer: &between, offset: 0, len };
                copy(encoder, from.part(start, len), between);
                copy(encoder, between, to.part(start, len));
            }
        })
    }

    pub(crate) fn fill(&mut self, to: DeviceRange<'_>, pattern: &FillPattern) -> Result<(), BackendError> {
        if pattern.as_bytes() == [0] {
            return self.encode(to.len, |encoder| encoder.clear_buffer(to.buffer, to.offset, Some(to.len)));
        }
        // In whole words. The last one may reach beyond the span, into the padding of its memory.
        let mut first = vec![0; to.len.min(FROM_HOST as u64) as usize];
        pattern.fill(&mut first);
        let Staged { buffer: staged, offset } = self.stage(&first)?;
        let is_longer = to.len > first.len() as u64;
        let between = if is_longer { Some(self.context.between(to.len)?) } else { None };
        self.encode(to.len, |encoder| {
            let mut done = first.len() as u64;
            encoder.copy_buffer_to_buffer(&staged, offset, to.buffer, to.offset, done);
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
        })
    }

    /// Submits the commands. Returns also the reads, which begin with that.
    pub(crate) fn submit(mut self) -> (Result<(), BackendError>, BegunReads) {
        let context = Arc::clone(&self.context);
        let submission = Arc::clone(&self.submission);
        let reads = std::mem::take(&mut self.reads).into_iter();
        let (landings, reads): (Vec<_>, Vec<_>) =
            reads.map(|read| (read.landings, (read.destination, read.completion))).unzip();
        let begin = |landings| StagedRead::begin(landings, &submission);
        let mut begun = BegunReads::default();
        match self.submit_then(|| landings.into_iter().map(begin).collect::<Vec<_>>()) {
            Ok(staged) => {
                for (staged, (mut destination, completion)) in staged.into_iter().zip(reads) {
                    let context = Arc::clone(&context);
                    // Only this closure writes to the destination, so it can be dropped after a failure.
                    let read = move || {
                        context.finish_read(staged, &mut destination)?;
                        Ok(destination)
                    };
                    begun.0.push((completion, Box::new(read)));
                }
                (Ok(()), begun)
            }
            Err(error) => {
                for (_, completion) in reads {
                    let error = error.clone();
                    begun.0.push((completion, Box::new(|| Err(error))));
                }
                (Err(error), begun)
            }
        }
    }

    /// Submits the commands, then calls `then` in the same error scopes, which are costly.
    pub(crate) fn submit_then<T>(mut self, then: impl FnOnce() -> T) -> Result<T, BackendError> {
        self.staged.extend(self.open.take().map(StagingBuffer::unmap));
        let Self { context, submission, commands, staged, pieces, .. } = self;
        log::trace!("device-wgpu submits {pieces} pieces of work");
        let submitted = context.checked(|_| {
            let finish = |commands| match commands {
                Commands::Own(encoder) => encoder.finish(),
                Commands::Other(commands) => commands,
            };
            submission.set_index(context.queue.submit(commands.into_iter().map(finish)), &context.queue);
            staged.iter().for_each(|buffer| context.staging.keep_up(buffer));
            then()
        });
        submitted.inspect_err(|error| submission.fail(error))
    }
}

impl Context {
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
