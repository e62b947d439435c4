//! Reductions, of any dimensions.

use std::ops::Range;

use device_kernels::{Dims, Extremum, Layout, Reduction};
use device_registry::backend::BackendError;
use rayon::prelude::*;

use crate::arrays::{Array, BLOCK, PARALLEL, write_all};
use crate::element::{Compute, Element};
use crate::functions::{Number, vectorized};
use crate::threads::on_all;

/// What is computed in while elements are reduced: `f64` for floating-point numbers, so that long sums stay
/// exact enough.
pub(crate) trait Wide: Compute {
    type Wide: Copy + Send + Sync + 'static;

    fn fold(reduction: Reduction) -> Option<Fold<Self, Self::Wide>>;
}

/// How a reduction takes in one element, and how it ends.
#[derive(Clone, Copy)]
pub(crate) struct Fold<C, W> {
    /// The fold of no elements.
    identity: W,
    /// Folds elements one after the other.
    run: fn(W, &[C]) -> W,
    /// Folds each place of a row with the same place of another row.
    row: fn(&mut [W], &[C]),
    combine: fn(W, W) -> W,
    finish: fn(W, usize) -> C,
}

impl<C, W: Copy> Fold<C, W> {
    /// Reduces all of the elements, before the last rounding.
    pub(crate) fn of(&self, elements: &[C]) -> W {
        self.go_on(self.identity, elements)
    }

    /// Takes in more elements.
    pub(crate) fn go_on(&self, before: W, elements: &[C]) -> W {
        (self.run)(before, elements)
    }

    pub(crate) fn joined(&self, a: W, b: W) -> W {
        (self.combine)(a, b)
    }

    /// The result of `len` elements, rounded to their type.
    pub(crate) fn result(&self, wide: W, len: usize) -> C {
        (self.finish)(wide, len)
    }
}

/// Goes on from `start` by all elements.
#[inline(always)]
fn run<C: Copy, W: Copy>(
    start: W,
    identity: W,
    elements: &[C],
    lift: impl Fn(C) -> W,
    combine: impl Fn(W, W) -> W,
) -> W {
    // Sums of their own, so that the processor adds several at once: as many as it adds in the time that one
    // takes, and then the rest.
    let (many, rest) = elements.as_chunks::<32>();
    let (few, rest) = rest.as_chunks::<8>();
    let mut sums = [identity; 32];
    for chunk in many {
        sums.iter_mut().zip(chunk).for_each(|(sum, element)| *sum = combine(*sum, lift(*element)));
    }
    for chunk in few {
        sums.iter_mut().zip(chunk).for_each(|(sum, element)| *sum = combine(*sum, lift(*element)));
    }
    let (sums, _) = sums.as_chunks::<8>();
    let sums = sums.iter().copied().reduce(|a, b| std::array::from_fn(|place| combine(a[place], b[place])));
    let rest = rest.iter().map(|element| lift(*element));
    sums.into_iter().flatten().chain(rest).fold(start, combine)
}

macro_rules! fold {
    ($identity:expr, $lift:expr, |$a:ident, $b:ident| $combine:expr, $finish:expr) => {
        Some(Fold {
            identity: $identity,
            run: |start, elements| vectorized(|| run(start, $identity, elements, $lift, |$a, $b| $combine)),
            row: |sums, elements| {
                vectorized(|| {
                    for (sum, element) in sums.iter_mut().zip(elements) {
                        let ($a, $b) = (*sum, $lift(*element));
                        *sum = $combine;
                    }
                });
            },
            combine: |$a, $b| $combine,
            finish: $finish,
        })
    };
}

/// The largest or the smallest one, which wider numbers do not make more exact. Looking for NaN apart, while
/// the elements are in the fastest cache, takes less time than doing so in each comparison.
macro_rules! extremum {
    ($identity:ident, $chosen:ident, $before:tt) => {
        fold!(f64::$identity, f64::from, |a, b| a.$chosen(b), |chosen, _| chosen as Self).map(|fold| Fold {
            run: |start: f64, elements| {
                elements.chunks(BLOCK).fold(start, |start, block| {
                    let chosen = vectorized(|| {
                        let choose = |a, b| if a $before b { a } else { b };
                        run(Self::$identity, Self::$identity, block, Self::from, choose)
                    });
                    let has_nan = vectorized(|| block.iter().fold(false, |any, &a| any | Self::is_nan(a)));
                    start.$chosen(if has_nan { f64::NAN } else { chosen.into() })
                })
            },
            ..fold
        })
    };
}

macro_rules! floats {
    ($($ty:ident),*) => {$(
        impl Wide for $ty {
            type Wide = f64;

            fn fold(reduction: Reduction) -> Option<Fold<Self, f64>> {
                match reduction {
                    Reduction::Sum => fold!(0.0, f64::from, |a, b| a + b, |sum, _| sum as Self),
                    Reduction::Mean => fold!(0.0, f64::from, |a, b| a + b, |sum, len| (sum / len as f64) as Self),
                    Reduction::Prod => fold!(1.0, f64::from, |a, b| a * b, |product, _| product as Self),
                    Reduction::Max => extremum!(NEG_INFINITY, larger, >),
                    Reduction::Min => extremum!(INFINITY, smaller, <),
                    _ => None,
                }
            }
        }
    )*};
}

macro_rules! integers {
    ($($ty:ident),*) => {$(
        impl Wide for $ty {
            type Wide = Self;

            fn fold(reduction: Reduction) -> Option<Fold<Self, Self>> {
                match reduction {
                    Reduction::Sum => fold!(0 as Self, Self::from, |a, b| a.wrapping_add(b), |sum, _| sum),
                    Reduction::Prod => fold!(1 as Self, Self::from, |a, b| a.wrapping_mul(b), |product, _| product),
                    Reduction::Max => fold!(Self::MIN, Self::from, |a, b| a.max(b), |max, _| max),
                    Reduction::Min => fold!(Self::MAX, Self::from, |a, b| a.min(b), |min, _| min),
                    _ => None,
                }
            }
        }
    )*};
}

floats!(f32, f64);
integers!(i32, i64, u8, u32);

impl Wide for bool {
    type Wide = Self;

    fn fold(reduction: Reduction) -> Option<Fold<Self, Self>> {
        match reduction {
            Reduction::Any => fold!(false, Self::from, |a, b| a | b, |any, _| any),
            Reduction::All => fold!(true, Self::from, |a, b| a & b, |all, _| all),
            _ => None,
        }
    }
}

/// Reduces the dimensions `dims` of an array.
pub(crate) fn reduce<E: Element<Compute: Wide>>(
    reduction: Reduction,
    dims: Dims,
    (input, layout): (&[u8], &Layout),
    (out, out_layout): (&mut [u8], &Layout),
) -> Result<(), BackendError> {
    let fold = E::Compute::fold(reduction).ok_or_else(|| crate::unsupported(reduction))?;
    let array = Array::<E>::new(input, layout);
    let elements = array.to_contiguous()?;

    // Runs of dimensions that are all reduced, or all kept, from the inside out.
    let mut runs: Vec<(bool, usize)> = Vec::new();
    for (dim, &size) in layout.shape().iter().enumerate().rev().filter(|(_, size)| **size != 1) {
        match runs.last_mut() {
            Some((reduced, len)) if *reduced == dims.contains(dim) => *len *= size,
            _ => runs.push((dims.contains(dim), size)),
        }
    }
    let count: usize = runs.iter().filter(|(reduced, _)| *reduced).map(|(_, len)| len).product();
    let mut runs = runs.into_iter();

    // The innermost run that is reduced takes the elements, and those further out take what that one left.
    let mut inner = 1;
    let mut left = None;
    for (reduced, len) in runs.by_ref() {
        if reduced {
            left = Some(innermost(&fold, &elements, len, inner));
            break;
        }
        inner *= len;
    }
    let mut left = left.unwrap_or_else(|| innermost(&fold, &elements, 1, inner));
    for (reduced, len) in runs {
        if reduced {
            left = further_out(&fold, &left, len, inner);
        } else {
            inner *= len;
        }
    }
    write_all::<E>(out, out_layout, |out| {
        out.iter_mut().zip(left).for_each(|(out, wide)| *out = (fold.finish)(wide, count));
    });
    Ok(())
}

/// Reduces `len` rows of `inner` elements to one, for each such group.
fn innermost<C: Compute, W: Copy + Send + Sync>(
    fold: &Fold<C, W>,
    elements: &[C],
    len: usize,
    inner: usize,
) -> Vec<W> {
    let groups = elements.len() / (len * inner);
    let one = |group: usize, rows: Range<usize>, sums: &mut [W]| {
        let start = group * len * inner;
        let rows = &elements[start + rows.start * inner..start + rows.end * inner];
        match sums {
            [sum] => *sum = (fold.run)(*sum, rows),
            _ => rows.chunks_exact(inner).for_each(|row| (fold.row)(sums, row)),
        }
    };
    let mut sums = vec![fold.identity; groups * inner];
    if elements.len() < PARALLEL {
        sums.chunks_mut(inner).enumerate().for_each(|(group, sums)| one(group, 0..len, sums));
    } else if groups >= 16 {
        let least = (PARALLEL / 4).div_ceil(len * inner);
        let chunks = sums.par_chunks_mut(inner).with_min_len(least).enumerate();
        on_all(|| chunks.for_each(|(group, sums)| one(group, 0..len, sums)));
    } else {
        // Few sums of many elements: each is divided.
        let parts = len.min(16);
        let part = |number: usize| {
            let mut sums = vec![fold.identity; inner];
            let group = number / parts;
            let part = number % parts;
            one(group, len * part / parts..len * (part + 1) / parts, &mut sums);
            sums
        };
        let of_parts: Vec<Vec<W>> = on_all(|| (0..groups * parts).into_par_iter().map(part).collect());
        for (number, part) in of_parts.iter().enumerate() {
            let sums = &mut sums[number / parts * inner..][..inner];
            sums.iter_mut().zip(part).for_each(|(sum, part)| *sum = (fold.combine)(*sum, *part));
        }
    }
    sums
}

/// The same of what was reduced before.
fn further_out<C, W: Copy>(fold: &Fold<C, W>, left: &[W], len: usize, inner: usize) -> Vec<W> {
    let mut sums = vec![fold.identity; left.len() / len];
    for (sums, group) in sums.chunks_mut(inner).zip(left.chunks(len * inner)) {
        for row in group.chunks(inner) {
            sums.iter_mut().zip(row).for_each(|(sum, wide)| *sum = (fold.combine)(*sum, *wide));
        }
    }
    sums
}

/// The number of groups, the elements in the dimension `dim`, and the elements in the dimensions inside it.
pub(crate) fn around(shape: &[usize], dim: usize) -> (usize, usize, usize) {
    (shape[..dim].iter().product(), shape[dim], shape[dim + 1..].iter().product())
}

/// Finds the index of an extremum in the dimension `dim`.
pub(crate) fn arg_reduce<E: Element<Compute: Number>, I: Element>(
    extremum: Extremum,
    dim: usize,
    (input, layout): (&[u8], &Layout),
    (out, out_layout): (&mut [u8], &Layout),
) -> Result<(), BackendError> {
    let better: fn(E::Compute, E::Compute) -> bool = match extremum {
        Extremum::Max => |a, b| a > b,
        Extremum::Min => |a, b| a < b,
        other => return Err(crate::unsupported(other)),
    };
    let array = Array::<E>::new(input, layout);
    let elements = array.to_contiguous()?;
    let (_, len, inner) = around(layout.shape(), dim);
    let find = |place: usize| {
        let start = place / inner * len * inner + place % inner;
        let mut best = elements[start];
        let mut index = 0;
        for candidate in 1..len {
            let value = elements[start + candidate * inner];
            #[expect(clippy::eq_op, reason = "NaN differs from itself")]
            if best == best && (value != value || better(value, best)) {
                (best, index) = (value, candidate);
            }
        }
        I::Compute::from_i64(index as i64)
    };
    write_all::<I>(out, out_layout, |out| {
        if elements.len() < PARALLEL {
            out.iter_mut().enumerate().for_each(|(place, out)| *out = find(place));
        } else {
            on_all(|| out.par_iter_mut().enumerate().for_each(|(place, out)| *out = find(place)));
        }
    });
    Ok(())
}
