//! Convolutions, as products of matrices.

use device_kernels::{Call, Conv2d, Layout};
use device_registry::backend::BackendError;
use rayon::prelude::*;

use crate::arrays::{Array, write_all, zeros};
use crate::element::Element;
use crate::elementwise::Inputs;
use crate::real::{Matrix, Real, Threads, multiply};
use crate::threads::on_all;

/// The sizes of a convolution, for one group.
#[derive(Clone, Copy)]
struct Sizes {
    conv: Conv2d,
    images: usize,
    /// Channels of the images and of the output, for each group.
    channels: [usize; 2],
    image: [usize; 2],
    kernel: [usize; 2],
    out: [usize; 2],
}

impl Sizes {
    fn new(conv: Conv2d, images: &Layout, weights: &Layout, out: &Layout) -> Self {
        let (image, kernel, out) = (images.shape(), weights.shape(), out.shape());
        Self {
            conv,
            images: image[0],
            channels: [kernel[1], kernel[0] / conv.groups],
            image: [image[2], image[3]],
            kernel: [kernel[2], kernel[3]],
            out: [out[2], out[3]],
        }
    }

    /// The weights of one output.
    fn depth(&self) -> usize {
        self.channels[0] * self.kernel[0] * self.kernel[1]
    }

    fn pixels(&self) -> usize {
        self.out[0] * self.out[1]
    }

    /// The elements of one image, of all groups.
    fn image_len(&self) -> usize {
        self.conv.groups * self.group_len()
    }

    fn group_len(&self) -> usize {
        self.channels[0] * self.image[0] * self.image[1]
    }

    fn out_group_len(&self) -> usize {
        self.channels[1] * self.pixels()
    }

    fn out_len(&self) -> usize {
        self.conv.groups * self.out_group_len()
    }

    /// Calls `visit` for each run of columns: where it begins in a row of the matrix of patches, the range of
    /// pixels, and where the first one is in the image. Between two pixels are `stride` elements of the
    /// image.
    fn patches(&self, mut visit: impl FnMut(usize, std::ops::Range<usize>, usize)) {
        let Self { conv, image: [height, width], kernel: [kernel_height, kernel_width], .. } = *self;
        let mut row = 0;
        for channel in 0..self.channels[0] {
            for ky in 0..kernel_height {
                for kx in 0..kernel_width {
                    // The pixels of an output row whose element of the image is inside.
                    let shift = kx * conv.dilation[1];
                    let first = conv.padding[1].saturating_sub(shift).div_ceil(conv.stride[1]);
                    let inside = (width + conv.padding[1]).saturating_sub(shift);
                    let last = inside.div_ceil(conv.stride[1]).min(self.out[1]);
                    for y in 0..self.out[0] {
                        let from = y * conv.stride[0] + ky * conv.dilation[0];
                        let Some(from) = from.checked_sub(conv.padding[0]).filter(|from| *from < height)
                        else {
                            continue;
                        };
                        if first < last {
                            let x = first * conv.stride[1] + shift - conv.padding[1];
                            let start = (channel * height + from) * width + x;
                            visit(row, y * self.out[1] + first..y * self.out[1] + last, start);
                        }
                    }
                    row += self.pixels();
                }
            }
        }
    }

    /// The elements of the image that each weight meets: a row for each weight, a column for each pixel.
    fn unfold<C: Real>(&self, image: &[C], patches: &mut [C]) {
        patches.fill(C::default());
        let stride = self.conv.stride[1];
        self.patches(|row, pixels, start| {
            let out = &mut patches[row + pixels.start..row + pixels.end];
            if stride == 1 {
                out.copy_from_slice(&image[start..start + out.len()]);
            } else {
                out.iter_mut()
                    .zip(image[start..].iter().step_by(stride))
                    .for_each(|(out, from)| *out = *from);
            }
        });
    }

    /// Adds each element of patches to the element of the image that it came from.
    fn fold<C: Real>(&self, patches: &[C], image: &mut [C]) {
        let stride = self.conv.stride[1];
        self.patches(|row, pixels, start| {
            let from = &patches[row + pixels.start..row + pixels.end];
            for (out, from) in image[start..].iter_mut().step_by(stride).zip(from) {
                *out += *from;
            }
        });
    }
}

fn array<'a, 'c, E: Element>(
    call: &'c Call,
    inputs: &Inputs<'a>,
    place: usize,
) -> (Array<'a, E>, &'c Layout) {
    match (call.inputs()[place].array(), inputs[place]) {
        (Some((_, layout)), Some(bytes)) => (Array::new(bytes, layout), layout),
        _ => unreachable!("images and weights are arrays, which have bytes"),
    }
}

pub(crate) fn conv2d<E: Element<Compute: Real>>(
    conv: Conv2d,
    call: &Call,
    inputs: &Inputs<'_>,
    out: &mut [u8],
) -> Result<(), BackendError> {
    let (_, out_layout) = &call.outputs()[0];
    let (images, images_layout) = array::<E>(call, inputs, 0);
    let (weights, weights_layout) = array::<E>(call, inputs, 1);
    let sizes = Sizes::new(conv, images_layout, weights_layout, out_layout);
    let (images, weights) = (images.to_contiguous()?, weights.to_contiguous()?);
    let bias = call.inputs().get(2).map(|_| array::<E>(call, inputs, 2).0);
    let bias = bias.as_ref().map(Array::to_contiguous).transpose()?;
    let (depth, pixels) = (sizes.depth(), sizes.pixels());
    check_patches::<E::Compute>(depth, pixels)?;
    let one = |patches: &mut Vec<E::Compute>, (number, out): (usize, &mut [E::Compute])| {
        patches.resize(depth * pixels, E::Compute::default());
        if let Some(bias) = &bias {
            out.chunks_mut(pixels).zip(&**bias).for_each(|(out, bias)| out.fill(*bias));
        }
        for (group, out) in out.chunks_mut(sizes.out_group_len()).enumerate() {
            let start = number * sizes.image_len() + group * sizes.group_len();
            sizes.unfold(&images[start..start + sizes.group_len()], patches);
            let of_weights = Matrix::by_rows(group * sizes.channels[1] * depth, depth);
            multiply(
                [sizes.channels[1], pixels, depth],
                (&weights, of_weights),
                (patches, Matrix::by_rows(0, pixels)),
                (out, Matrix::by_rows(0, pixels)),
                bias.is_some(),
                Threads::One,
            );
        }
    };
    write_all::<E>(out, out_layout, |out| {
        for_each_image(&sizes, out, sizes.out_len(), one);
    });
    Ok(())
}

pub(crate) fn input_grad<E: Element<Compute: Real>>(
    conv: Conv2d,
    call: &Call,
    inputs: &Inputs<'_>,
    out: &mut [u8],
) -> Result<(), BackendError> {
    let (_, out_layout) = &call.outputs()[0];
    let (grad, grad_layout) = array::<E>(call, inputs, 0);
    let (weights, weights_layout) = array::<E>(call, inputs, 1);
    let sizes = Sizes::new(conv, out_layout, weights_layout, grad_layout);
    let (grad, weights) = (grad.to_contiguous()?, weights.to_contiguous()?);
    let (depth, pixels) = (sizes.depth(), sizes.pixels());
    check_patches::<E::Compute>(depth, pixels)?;
    let one = |patches: &mut Vec<E::Compute>, (number, out): (usize, &mut [E::Compute])| {
        patches.resize(depth * pixels, E::Compute::default());
        out.fill(E::Compute::default());
        for (group, out) in out.chunks_mut(sizes.group_len()).enumerate() {
            let of_weights = Matrix::by_rows(group * sizes.channels[1] * depth, depth);
            let start = number * sizes.out_len() + group * sizes.out_group_len();
            multiply(
                [depth, pixels, sizes.channels[1]],
                (&weights, of_weights.transposed()),
                (&grad, Matrix::by_rows(start, pixels)),
                (patches, Matrix::by_rows(0, pixels)),
                false,
                Threads::One,
            );
            sizes.fold(patches, out);
        }
    };
    write_all::<E>(out, out_layout, |out| {
        for_each_image(&sizes, out, sizes.image_len(), one);
    });
    Ok(())
}

pub(crate) fn weight_grad<E: Element<Compute: Real>>(
    conv: Conv2d,
    call: &Call,
    inputs: &Inputs<'_>,
    out: &mut [u8],
) -> Result<(), BackendError> {
    let (_, out_layout) = &call.outputs()[0];
    let (images, images_layout) = array::<E>(call, inputs, 0);
    let (grad, grad_layout) = array::<E>(call, inputs, 1);
    let sizes = Sizes::new(conv, images_layout, out_layout, grad_layout);
    let (images, grad) = (images.to_contiguous()?, grad.to_contiguous()?);
    let (depth, pixels) = (sizes.depth(), sizes.pixels());
    check_patches::<E::Compute>(depth, pixels)?;
    let group_weights = sizes.channels[1] * depth;
    // The sum of some images, for one group.
    let sum = |numbers: std::ops::Range<usize>, group: usize, out: &mut [E::Compute]| {
        let mut patches = vec![E::Compute::default(); depth * pixels];
        for (turn, number) in numbers.enumerate() {
            let start = number * sizes.image_len() + group * sizes.group_len();
            sizes.unfold(&images[start..start + sizes.group_len()], &mut patches);
            let start = number * sizes.out_len() + group * sizes.out_group_len();
            multiply(
                [sizes.channels[1], depth, pixels],
                (&grad, Matrix::by_rows(start, pixels)),
                (&patches, Matrix::by_rows(0, pixels).transposed()),
                (out, Matrix::by_rows(0, depth)),
                turn > 0,
                Threads::One,
            );
        }
    };
    write_all::<E>(out, out_layout, |out| {
        let parts = sizes.images.div_ceil(least(&sizes)).clamp(1, 16);
        for (group, out) in out.chunks_mut(group_weights).enumerate() {
            if parts == 1 {
                sum(0..sizes.images, group, out);
                continue;
            }
            let part = |part: usize| {
                let mut weights = vec![E::Compute::default(); group_weights];
                let numbers = sizes.images * part / parts..sizes.images * (part + 1) / parts;
                sum(numbers, group, &mut weights);
                weights
            };
            let of_parts: Vec<_> = on_all(|| (0..parts).into_par_iter().map(part).collect());
            out.fill(E::Compute::default());
            for weights in &of_parts {
                out.iter_mut().zip(weights).for_each(|(sum, part)| *sum += *part);
            }
        }
    });
    Ok(())
}

/// Fails if there is no memory for the patches of one image. Each thread has its own, so that what is left
/// may still not suffice.
fn check_patches<C: Real>(depth: usize, pixels: usize) -> Result<(), BackendError> {
    zeros::<C>(depth.saturating_mul(pixels)).map(drop)
}

/// Calls `one` with patches to use and the number and elements of each image.
fn for_each_image<C: Real>(
    sizes: &Sizes,
    out: &mut [C],
    len: usize,
    one: impl Fn(&mut Vec<C>, (usize, &mut [C])) + Send + Sync,
) {
    let least = least(sizes);
    if sizes.images <= least {
        let mut patches = Vec::new();
        out.chunks_mut(len).enumerate().for_each(|image| one(&mut patches, image));
    } else {
        let images = out.par_chunks_mut(len).with_min_len(least).enumerate();
        on_all(|| images.for_each_init(Vec::new, one));
    }
}

/// The fewest images that are worth another thread.
fn least(sizes: &Sizes) -> usize {
    let work = sizes.conv.groups * sizes.channels[1] * sizes.depth() * sizes.pixels();
    (1_usize << 17).div_ceil(work.max(1))
}
