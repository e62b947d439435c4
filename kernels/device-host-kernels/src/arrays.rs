//! Arrays in bytes: their elements in the order of their indices, whatever the layout.

use std::borrow::Cow;

use bytemuck::{PodCastError, Zeroable};
use device_kernels::{Layout, MAX_RANK, Scalar};
use device_registry::backend::BackendError;
use rayon::prelude::*;

use crate::element::{Compute, Element};
use crate::threads::on_all;

/// The number of elements that are computed at a time: even as many of each of four arrays fit into the
/// fastest cache.
pub(crate) const BLOCK: usize = 1024;

/// From this many elements on, several threads work.
pub(crate) const PARALLEL: usize = 1 << 15;

/// The elements that one thread works on before it looks for more.
pub(crate) const CHUNK: usize = 1 << 14;

/// The places of an array's elements, as few loops as they need.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    rank: usize,
    sizes: [usize; MAX_RANK],
    strides: [isize; MAX_RANK],
    offset: usize,
}

impl Places {
    /// The places in a slice that begins with the first element of the layout's range.
    pub(crate) fn new(layout: &Layout) -> Self {
        let mut places = Self {
            rank: 0,
            sizes: [1; MAX_RANK],
            strides: [0; MAX_RANK],
            offset: layout.offset() - layout.range().start,
        };
        // From the inside out, so that a dimension joins the one that it continues.
        for (&size, &stride) in
            layout.shape().iter().zip(layout.strides()).rev().filter(|(size, _)| **size != 1)
        {
            let joins = places.rank > 0 && {
                let last = places.rank - 1;
                stride == places.strides[last] * places.sizes[last] as isize
            };
            if joins {
                places.sizes[places.rank - 1] *= size;
            } else {
                (places.sizes[places.rank], places.strides[places.rank]) = (size, stride);
                places.rank += 1;
            }
        }
        places
    }

    /// Calls `run` for `len` elements from the one with the number `start` on: with the number of elements,
    /// the place of the first, and the stride, for each run of elements with one stride.
    #[inline]
    fn runs(&self, start: usize, len: usize, mut run: impl FnMut(usize, usize, isize)) {
        let mut indices = [0; MAX_RANK];
        let mut rest = start;
        let mut place = self.offset as isize;
        for (dim, index) in indices.iter_mut().enumerate().take(self.rank) {
            (*index, rest) = (rest % self.sizes[dim], rest / self.sizes[dim]);
            place += *index as isize * self.strides[dim];
        }
        let mut left = len;
        while left > 0 {
            let count = left.min(self.sizes[0] - indices[0]);
            run(count, place as usize, self.strides[0]);
            left -= count;
            indices[0] += count;
            place += count as isize * self.strides[0];
            let mut dim = 0;
            while indices[dim] == self.sizes[dim] && dim + 1 < self.rank {
                place -= self.sizes[dim] as isize * self.strides[dim];
                indices[dim] = 0;
                dim += 1;
                indices[dim] += 1;
                place += self.strides[dim];
            }
        }
    }
}

/// An array to read.
pub(crate) struct Array<'a, E: Element> {
    elements: Cow<'a, [E]>,
    len: usize,
    /// `None` if the elements lie one after the other. It is large, and an array is moved.
    places: Option<Box<Places>>,
    /// How many elements are before the first of a block with the number 0.
    start: usize,
}

impl<'a, E: Element> Array<'a, E> {
    pub(crate) fn new(bytes: &'a [u8], layout: &Layout) -> Self {
        let places = (!layout.is_contiguous()).then(|| Box::new(Places::new(layout)));
        Self { elements: elements(bytes), len: layout.len(), places, start: 0 }
    }

    /// The elements from a number on, in blocks.
    pub(crate) fn from(self, start: usize) -> Self {
        Self { start, ..self }
    }

    /// All elements, one after the other.
    ///
    /// # Errors
    ///
    /// If there is no memory for a copy. An array that repeats its elements may have more of them than any
    /// memory.
    pub(crate) fn to_contiguous(&self) -> Result<Cow<'_, [E::Compute]>, BackendError> {
        if let (None, Some(elements)) = (&self.places, E::as_compute(&self.elements)) {
            return Ok(Cow::Borrowed(elements));
        }
        let mut all = zeros::<E::Compute>(self.len)?;
        let fill = |(place, out): (usize, &mut [E::Compute])| self.read(place * CHUNK, out);
        if all.len() < PARALLEL {
            self.read(0, &mut all);
        } else {
            on_all(|| all.par_chunks_mut(CHUNK).enumerate().for_each(fill));
        }
        Ok(Cow::Owned(all))
    }

    /// The elements in place, and where they are, if they need no conversion.
    pub(crate) fn as_compute(&self) -> Option<(&[E::Compute], isize)> {
        let offset = self.places.as_ref().map_or(0, |places| places.offset as isize);
        E::as_compute(&self.elements).map(|elements| (elements, offset))
    }

    /// The elements of a block in memory, if they lie there as they are computed in.
    pub(crate) fn block_in_place(&self, start: usize, len: usize) -> Option<&[E::Compute]> {
        let elements = E::as_compute(&self.elements).filter(|_| self.places.is_none())?;
        let start = self.start + start;
        Some(&elements[start..start + len])
    }

    /// Copies the elements of a block.
    pub(crate) fn read_block(&self, start: usize, out: &mut [E::Compute]) {
        self.read(self.start + start, out);
    }

    fn read(&self, start: usize, out: &mut [E::Compute]) {
        let Some(places) = &self.places else {
            let elements = &self.elements[start..start + out.len()];
            match E::as_compute(elements) {
                Some(elements) => out.copy_from_slice(elements),
                None => out.iter_mut().zip(elements).for_each(|(out, element)| *out = element.load()),
            }
            return;
        };
        let mut done = 0;
        places.runs(start, out.len(), |count, place, stride| {
            let out = &mut out[done..done + count];
            done += count;
            match (stride, E::as_compute(&self.elements)) {
                (1, Some(elements)) => out.copy_from_slice(&elements[place..place + count]),
                (1, None) => {
                    let elements = &self.elements[place..place + count];
                    out.iter_mut().zip(elements).for_each(|(out, element)| *out = element.load());
                }
                (0, _) => out.fill(self.elements[place].load()),
                _ => {
                    let mut place = place as isize;
                    for out in out {
                        *out = self.elements[place as usize].load();
                        place += stride;
                    }
                }
            }
        });
    }
}

/// The elements of an input, in blocks.
pub(crate) enum Input<'a, E: Element> {
    Array(Array<'a, E>),
    /// A value for each element.
    Repeated(E::Compute),
}

impl<E: Element> Input<'_, E> {
    /// The scalar as an element of the type `E`, which may round it.
    pub(crate) fn repeated(scalar: Scalar) -> Self {
        Self::Repeated(E::store(E::Compute::from_scalar(scalar)).load())
    }

    /// The elements from the number `start` on, in place or in `temporary`.
    pub(crate) fn block<'a>(
        &'a self,
        start: usize,
        len: usize,
        temporary: &'a mut Vec<E::Compute>,
    ) -> &'a [E::Compute] {
        match self {
            Self::Array(array) => array.block(start, len, temporary),
            Self::Repeated(value) => {
                if temporary.len() < len {
                    temporary.clear();
                    temporary.resize(len, *value);
                }
                &temporary[..len]
            }
        }
    }
}

impl<E: Element> Array<'_, E> {
    fn block<'a>(&'a self, start: usize, len: usize, temporary: &'a mut Vec<E::Compute>) -> &'a [E::Compute] {
        if let Some(elements) = self.block_in_place(start, len) {
            return elements;
        }
        temporary.resize(len, E::Compute::default());
        self.read(self.start + start, temporary);
        temporary
    }
}

/// `len` zeros, or an error that says how many bytes they take: a failed allocation of `vec!` would end the
/// process.
pub(crate) fn zeros<C: Zeroable>(len: usize) -> Result<Vec<C>, BackendError> {
    let bytes = (len as u64).saturating_mul(size_of::<C>() as u64);
    bytemuck::allocation::try_zeroed_vec(len).map_err(|()| BackendError::out_of_memory(bytes, None))
}

/// The elements of `bytes`: in place if they are aligned.
fn elements<E: Element>(bytes: &[u8]) -> Cow<'_, [E]> {
    match bytemuck::try_cast_slice(bytes) {
        Ok(elements) => Cow::Borrowed(elements),
        Err(PodCastError::TargetAlignmentGreaterAndInputNotAligned) => {
            Cow::Owned(bytemuck::allocation::pod_collect_to_vec(bytes))
        }
        Err(error) => unreachable!("the bytes are those of whole elements: {error}"),
    }
}

/// Writes an array of all elements of `bytes`, by a worker for each thread. A worker computes a block: it
/// gets the number of the first element, and the elements to write.
pub(crate) fn write_blocks<E: Element, W: FnMut(usize, &mut [E::Compute])>(
    bytes: &mut [u8],
    layout: &Layout,
    worker: impl Fn() -> W + Sync,
) {
    write_aligned::<E>(bytes, |elements| {
        let len = layout.len();
        if layout.is_contiguous() {
            let chunk = |(number, out): (usize, &mut [E])| write_chunk(number * CHUNK, out, &mut worker());
            if len < PARALLEL {
                chunk((0, elements));
            } else {
                on_all(|| elements.par_chunks_mut(CHUNK).enumerate().for_each(chunk));
            }
            return;
        }
        let places = Places::new(layout);
        let mut compute = worker();
        let mut block = vec![E::Compute::default(); len.min(BLOCK)];
        for start in (0..len).step_by(BLOCK) {
            let block = &mut block[..BLOCK.min(len - start)];
            compute(start, block);
            scatter(&places, start, block, elements);
        }
    });
}

fn write_chunk<E: Element>(start: usize, out: &mut [E], compute: &mut impl FnMut(usize, &mut [E::Compute])) {
    if let Some(out) = E::as_compute_mut(out) {
        for (block, out) in out.chunks_mut(BLOCK).enumerate() {
            compute(start + block * BLOCK, out);
        }
        return;
    }
    let mut computed = vec![E::Compute::default(); out.len().min(BLOCK)];
    for (block, out) in out.chunks_mut(BLOCK).enumerate() {
        let computed = &mut computed[..out.len()];
        compute(start + block * BLOCK, computed);
        out.iter_mut().zip(computed).for_each(|(out, value)| *out = E::store(*value));
    }
}

/// Writes an array of all elements of `bytes`: `compute` gets all elements, one after the other, to write
/// each.
pub(crate) fn write_all<E: Element>(
    bytes: &mut [u8],
    layout: &Layout,
    compute: impl FnOnce(&mut [E::Compute]),
) {
    write_aligned::<E>(bytes, |elements| {
        if let (true, Some(out)) = (layout.is_contiguous(), E::as_compute_mut(elements)) {
            return compute(out);
        }
        let mut all = vec![E::Compute::default(); layout.len()];
        compute(&mut all);
        scatter(&Places::new(layout), 0, &all, elements);
    });
}

/// Writes the elements that `changed` marks, and leaves the bytes of the others as they are.
pub(crate) fn write_some<E: Element>(
    bytes: &mut [u8],
    layout: &Layout,
    all: &[E::Compute],
    changed: &[bool],
) {
    write_aligned::<E>(bytes, |elements| {
        let mut done = 0;
        Places::new(layout).runs(0, all.len(), |count, place, stride| {
            let mut place = place as isize;
            for (value, changed) in all[done..done + count].iter().zip(&changed[done..done + count]) {
                if *changed {
                    elements[place as usize] = E::store(*value);
                }
                place += stride;
            }
            done += count;
        });
    });
}

/// Writes the elements from the number `start` on.
pub(crate) fn write_part<E: Element>(bytes: &mut [u8], layout: &Layout, start: usize, values: &[E::Compute]) {
    write_aligned::<E>(bytes, |elements| {
        if !layout.is_contiguous() {
            return scatter(&Places::new(layout), start, values, elements);
        }
        let out = &mut elements[start..start + values.len()];
        match E::as_compute_mut(out) {
            Some(out) => out.copy_from_slice(values),
            None => out.iter_mut().zip(values).for_each(|(out, value)| *out = E::store(*value)),
        }
    });
}

/// Calls `write` with the elements of `bytes`, which it may write: in place if they are aligned.
fn write_aligned<E: Element>(bytes: &mut [u8], write: impl FnOnce(&mut [E])) {
    match bytemuck::try_cast_slice_mut(bytes) {
        Ok(elements) => write(elements),
        Err(_) => {
            let mut elements: Vec<E> = bytemuck::allocation::pod_collect_to_vec(bytes);
            write(&mut elements);
            bytes.copy_from_slice(bytemuck::cast_slice(&elements));
        }
    }
}

fn scatter<E: Element>(places: &Places, start: usize, block: &[E::Compute], elements: &mut [E]) {
    let mut done = 0;
    places.runs(start, block.len(), |count, place, stride| {
        let mut place = place as isize;
        for value in &block[done..done + count] {
            elements[place as usize] = E::store(*value);
            place += stride;
        }
        done += count;
    });
}
