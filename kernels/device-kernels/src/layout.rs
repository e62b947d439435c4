//! Where the elements of an array are in its buffer.

use std::fmt;
use std::ops::Range;

/// The most bytes of an element, as the places of bytes have to fit too.
const LARGEST_ELEMENT: isize = 8;

/// The most dimensions that an array has.
pub const MAX_RANK: usize = 8;

/// A shape, and where each element is: a stride for each dimension and an offset, all counted in elements.
///
/// A stride of zero repeats elements, and a negative one goes backwards. A view of an array is another layout
/// over the same buffer; it moves nothing. A dimension of one element, or of none, has the stride zero,
/// whatever the caller gives.
///
/// ```
/// use device_kernels::Layout;
///
/// let matrix = Layout::contiguous([2, 3])?;
/// let transposed = matrix.transpose(0, 1)?;
/// assert_eq!((transposed.shape(), transposed.strides()), (&[3, 2][..], &[1, 3][..]));
///
/// let row = matrix.slice(0, 1, 1, 1)?;
/// assert_eq!((row.shape(), row.strides(), row.offset()), (&[1, 3][..], &[0, 1][..], 3));
/// # Ok::<(), device_kernels::LayoutError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    rank: usize,
    /// Entries from `rank` on are zero.
    shape: [usize; MAX_RANK],
    /// Zero where no step is made, so that each stride is a distance between two elements: arithmetic with
    /// strides and indices stays within the array, and arrays whose elements are at the same places have
    /// equal strides.
    strides: [isize; MAX_RANK],
    offset: usize,
}

/// A shape, strides or arguments that are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// There are more dimensions than [`MAX_RANK`].
    #[error("{rank} dimensions are too many: an array has at most {MAX_RANK}")]
    Rank {
        /// The number of dimensions.
        rank: usize,
    },
    /// The number of elements, or where they are, does not fit.
    #[error("{what} of shape {shape:?} overflow, or begin before the buffer")]
    Overflow {
        /// The elements or the strides.
        what: &'static str,
        /// The shape.
        shape: Vec<usize>,
    },
    /// A dimension that the array does not have.
    #[error("dimension {dim} is out of range for the shape {shape:?}")]
    Dimension {
        /// The dimension.
        dim: usize,
        /// The shape.
        shape: Vec<usize>,
    },
    /// A shape in which the array cannot be viewed.
    #[error("the shape {from:?} cannot be {verb} {to:?}")]
    Shape {
        /// The shape of the array.
        from: Vec<usize>,
        /// What was requested: `broadcast to`, for example.
        verb: &'static str,
        /// The requested shape, or the arguments.
        to: Vec<usize>,
    },
}

impl Layout {
    /// The layout of an array whose elements lie one after the other, the last dimension first.
    ///
    /// # Errors
    ///
    /// If there are too many dimensions, or the number of elements overflows.
    #[inline]
    pub fn contiguous(shape: impl AsRef<[usize]>) -> Result<Self, LayoutError> {
        let shape = shape.as_ref();
        let overflow = || LayoutError::Overflow { what: "the elements", shape: shape.to_vec() };
        check_rank(shape.len())?;
        let mut layout = Self { rank: shape.len(), shape: [0; MAX_RANK], strides: [0; MAX_RANK], offset: 0 };
        let mut len = 1_isize;
        for (dim, &size) in shape.iter().enumerate().rev() {
            layout.shape[dim] = size;
            // A dimension of one element, or of none, needs no stride. One of zero makes the array empty, and
            // the other strides stay as for one element.
            if size > 1 {
                layout.strides[dim] = len;
                len =
                    isize::try_from(size).ok().and_then(|size| len.checked_mul(size)).ok_or_else(overflow)?;
            }
        }
        len.checked_mul(LARGEST_ELEMENT).ok_or_else(overflow)?;
        Ok(layout)
    }

    /// A layout with any strides and offset.
    ///
    /// # Errors
    ///
    /// If there are too many dimensions or not one stride for each, if the number of elements or a place
    /// overflows, or if an element would be before the start of the buffer.
    pub fn strided(
        shape: impl AsRef<[usize]>,
        strides: impl AsRef<[isize]>,
        offset: usize,
    ) -> Result<Self, LayoutError> {
        let shape = shape.as_ref();
        let strides = strides.as_ref();
        Self::contiguous(shape)?;
        if strides.len() != shape.len() {
            return Err(LayoutError::Shape {
                from: shape.to_vec(),
                verb: "given as many strides as",
                to: vec![strides.len()],
            });
        }
        let layout = Self::new(shape, strides, offset);
        let overflow = || LayoutError::Overflow { what: "the strides", shape: shape.to_vec() };
        layout.checked_range().ok_or_else(overflow)?;
        Ok(layout)
    }

    /// The caller has checked that there are strides for the shape, and that all places fit.
    fn new(shape: &[usize], strides: &[isize], offset: usize) -> Self {
        let mut layout = Self { rank: shape.len(), shape: [0; MAX_RANK], strides: [0; MAX_RANK], offset };
        layout.shape[..shape.len()].copy_from_slice(shape);
        layout.strides[..shape.len()].copy_from_slice(strides);
        layout.without_unused_strides()
    }

    /// To be called after a dimension has become smaller.
    fn without_unused_strides(mut self) -> Self {
        for (size, stride) in self.shape.iter().zip(&mut self.strides) {
            if *size <= 1 {
                *stride = 0;
            }
        }
        self
    }

    /// The number of dimensions.
    #[must_use]
    #[inline]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The size of each dimension.
    #[must_use]
    #[inline]
    pub fn shape(&self) -> &[usize] {
        &self.shape[..self.rank]
    }

    /// The distance between neighbours in each dimension, in elements. Zero where there is no neighbour.
    #[must_use]
    #[inline]
    pub fn strides(&self) -> &[isize] {
        &self.strides[..self.rank]
    }

    /// Where the element with all indices zero is, in elements.
    #[must_use]
    #[inline]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The number of elements.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "`len() == 0` reads as well")]
    #[inline]
    pub fn len(&self) -> usize {
        self.shape().iter().product()
    }

    /// Whether the elements lie one after the other, in the order of their indices. The offset may be any.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        let mut next = 1;
        let dims = self.shape().iter().zip(self.strides()).rev();
        self.len() == 0
            || dims.filter(|(size, _)| **size != 1).all(|(&size, &stride)| {
                let fits = stride == next;
                next *= size as isize;
                fits
            })
    }

    /// The smallest range of the buffer that has all elements, counted in elements.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.checked_range().expect("the constructors have checked it")
    }

    fn checked_range(&self) -> Option<Range<usize>> {
        if self.len() == 0 {
            return Some(0..0);
        }
        let offset = isize::try_from(self.offset).ok()?;
        let mut first = offset;
        let mut last = offset;
        for (&size, &stride) in self.shape().iter().zip(self.strides()) {
            let reach = isize::try_from(size - 1).ok()?.checked_mul(stride)?;
            let end = if reach < 0 { &mut first } else { &mut last };
            *end = end.checked_add(reach)?;
        }
        last.checked_add(1)?.checked_mul(LARGEST_ELEMENT)?;
        Some(usize::try_from(first).ok()?..usize::try_from(last).ok()? + 1)
    }

    /// Whether two indices are known to be of one element: a stride is zero, or smaller than what it steps
    /// over.
    ///
    /// It is also true for some layouts whose elements are all different, such as ones with interleaved
    /// dimensions.
    #[must_use]
    pub fn may_repeat(&self) -> bool {
        if self.len() <= 1 || self.is_contiguous() {
            return false;
        }
        let mut dims: Vec<(usize, usize)> = (self.shape().iter().zip(self.strides()))
            .filter(|(size, _)| **size > 1)
            .map(|(&size, &stride)| (stride.unsigned_abs(), size))
            .collect();
        dims.sort_unstable();
        let mut reach = 0;
        dims.iter().any(|&(stride, size)| {
            let repeats = stride <= reach;
            reach += stride * (size - 1);
            repeats
        })
    }

    /// The same array with the dimensions `a` and `b` exchanged.
    ///
    /// # Errors
    ///
    /// If there is no such dimension.
    pub fn transpose(mut self, a: usize, b: usize) -> Result<Self, LayoutError> {
        self.check_dim(a)?;
        self.check_dim(b)?;
        self.shape.swap(a, b);
        self.strides.swap(a, b);
        Ok(self)
    }

    /// The same array with its dimensions in another order: dimension `i` of the view is `dims[i]` of this
    /// array.
    ///
    /// # Errors
    ///
    /// If `dims` does not have each dimension once.
    pub fn permute(&self, dims: impl AsRef<[usize]>) -> Result<Self, LayoutError> {
        let dims = dims.as_ref();
        let mut sorted = dims.to_vec();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..self.rank) {
            let from = self.shape().to_vec();
            let to = dims.to_vec();
            return Err(LayoutError::Shape { from, verb: "permuted by", to });
        }
        let mut view = *self;
        for (place, &dim) in dims.iter().enumerate() {
            (view.shape[place], view.strides[place]) = (self.shape[dim], self.strides[dim]);
        }
        Ok(view)
    }

    /// `len` elements of the dimension `dim`, from `start` on, each `step` after the one before.
    ///
    /// # Errors
    ///
    /// If there is no such dimension, if an element would be outside it, or if `step` is zero.
    pub fn slice(mut self, dim: usize, start: usize, len: usize, step: usize) -> Result<Self, LayoutError> {
        self.check_dim(dim)?;
        let size = self.shape[dim];
        let last =
            len.checked_sub(1).map_or(Some(start), |steps| steps.checked_mul(step)?.checked_add(start));
        let fits = step > 0 && last.is_some_and(|last| if len == 0 { last <= size } else { last < size });
        if !fits {
            let from = self.shape().to_vec();
            let to = vec![start, len, step];
            return Err(LayoutError::Shape { from, verb: "sliced by start, length and step", to });
        }
        self.shape[dim] = len;
        if self.len() > 0 {
            self.offset = self.offset.wrapping_add_signed(start as isize * self.strides[dim]);
            // With one element, no step is made, and the product may not fit.
            self.strides[dim] = if len > 1 { self.strides[dim] * step as isize } else { 0 };
        }
        Ok(self.without_unused_strides())
    }

    /// The same array with the dimension `dim` in the opposite order.
    ///
    /// # Errors
    ///
    /// If there is no such dimension.
    pub fn flip(mut self, dim: usize) -> Result<Self, LayoutError> {
        self.check_dim(dim)?;
        if self.len() > 0 {
            let reach = (self.shape[dim] - 1) as isize * self.strides[dim];
            self.offset = self.offset.wrapping_add_signed(reach);
            self.strides[dim] = -self.strides[dim];
        }
        Ok(self)
    }

    /// The array as one of `shape`, by the rules of NumPy: dimensions of one element are repeated, and
    /// missing ones are put in front.
    ///
    /// # Errors
    ///
    /// If the shape cannot be broadcast to that.
    pub fn broadcast_to(&self, shape: impl AsRef<[usize]>) -> Result<Self, LayoutError> {
        let shape = shape.as_ref();
        if shape == self.shape() {
            return Ok(*self);
        }
        Self::contiguous(shape)?;
        let refused =
            || LayoutError::Shape { from: self.shape().to_vec(), verb: "broadcast to", to: shape.to_vec() };
        let new = shape.len().checked_sub(self.rank).ok_or_else(refused)?;
        let mut strides = [0; MAX_RANK];
        for dim in 0..self.rank {
            strides[new + dim] = match (self.shape[dim], shape[new + dim]) {
                (from, to) if from == to => self.strides[dim],
                (1, _) => 0,
                _ => return Err(refused()),
            };
        }
        Ok(Self::new(shape, &strides[..shape.len()], self.offset))
    }

    /// The same elements in the same order as an array of `shape`, if strides can express it.
    ///
    /// # Errors
    ///
    /// If the number of elements differs, or if they would have to be moved.
    pub fn reshape(&self, shape: impl AsRef<[usize]>) -> Result<Self, LayoutError> {
        let shape = shape.as_ref();
        let contiguous = Self::contiguous(shape)?;
        let refused = || LayoutError::Shape {
            from: self.shape().to_vec(),
            verb: "seen, without moving elements, as",
            to: shape.to_vec(),
        };
        if contiguous.len() != self.len() {
            return Err(refused());
        }
        if self.len() == 0 {
            return Ok(contiguous);
        }
        // Runs of old and new dimensions that have the same number of elements, from the outside in.
        let old: Vec<(usize, isize)> = (self.shape().iter().copied().zip(self.strides().iter().copied()))
            .filter(|&(size, _)| size != 1)
            .collect();
        let mut strides = [0; MAX_RANK];
        let mut old = &old[..];
        let mut dim = 0;
        while let Some(&(size, _)) = old.first() {
            let mut of_old = size;
            let mut of_new = shape[dim];
            let mut run = 1;
            let mut end = dim + 1;
            while of_old != of_new {
                if of_new < of_old {
                    of_new *= shape[end];
                    end += 1;
                } else {
                    of_old *= old[run].0;
                    run += 1;
                }
            }
            let (joined, rest) = old.split_at(run);
            if joined.windows(2).any(|pair| pair[0].1 != pair[1].0 as isize * pair[1].1) {
                return Err(refused());
            }
            let mut stride = joined[run - 1].1;
            for new in (dim..end).rev() {
                strides[new] = stride;
                stride *= shape[new] as isize;
            }
            (old, dim) = (rest, end);
        }
        Ok(Self::new(shape, &strides[..shape.len()], self.offset))
    }

    fn check_dim(&self, dim: usize) -> Result<(), LayoutError> {
        if dim < self.rank {
            Ok(())
        } else {
            Err(LayoutError::Dimension { dim, shape: self.shape().to_vec() })
        }
    }
}

fn check_rank(rank: usize) -> Result<(), LayoutError> {
    if rank <= MAX_RANK { Ok(()) } else { Err(LayoutError::Rank { rank }) }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layout")
            .field("shape", &self.shape())
            .field("strides", &self.strides())
            .field("offset", &self.offset)
            .finish()
    }
}
