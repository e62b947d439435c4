//! Convolutions, as products of matrices.

use std::ops::Range;

use device_kernels::{Call, Conv2d, Layout};
use device_registry::backend::BackendError;
use rayon::prelude::*;

use crate::arrays::{Array, write_all, zeros};
use crate::element::Element;
use crate::elementwise::Inputs;
use crate::functions::vectorized;
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
        let image = images.shape();
        let kernel = weights.shape();
        let out = out.shape();
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

    /// Calls `visit` for each run of pixels in some lines of the output: the number of the row in the matrix
    /// of patches, the range of pixels, of which 0 is the first of these lines, and where the first one is in
    /// the image. Between two pixels are `stride` elements of the image.
    fn patches(&self, lines: Range<usize>, mut visit: impl FnMut(usize, Range<usize>, usize)) {
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
                    for (line, y) in lines.clone().enumerate() {
                        let from = y * conv.stride[0] + ky * conv.dilation[0];
                        let Some(from) = from.checked_sub(conv.padding[0]).filter(|from| *from < height)
                        else {
                            continue;
                        };
                        if first < last {
                            let x = first * conv.stride[1] + shift - conv.padding[1];
                            let start = (channel * height + from) * width + x;
                            visit(row, line * self.out[1] + first..line * self.out[1] + last, start);
                        }
                    }
                    row += 1;
                }
            }
        }
    }

    /// How many lines of the output are computed at a time: those whose patches stay in a fast cache.
    fn lines(&self) -> usize {
        const PATCHES: usize = 1 << 16;
        // With fewer, the work of a product would be to read the weights.
        const PIXELS: usize = 128;
        let width = self.out[1].max(1);
        let lines = PATCHES / (self.depth() * width).max(1);
        lines.max(PIXELS.div_ceil(width)).clamp(1, self.out[0].max(1))
    }

    /// Whether a pixel of the output is made of one pixel of the image, in the same place.
    fn is_pointwise(&self) -> bool {
        let Conv2d { stride, padding, .. } = self.conv;
        self.kernel == [1, 1] && stride == [1, 1] && padding == [0, 0]
    }

    /// How many images are one product of matrices: with few pixels each, its work would be to read the
    /// weights.
    fn batch(&self) -> usize {
        const PIXELS: usize = 256;
        (PIXELS / self.pixels().max(1)).clamp(1, self.images.max(1))
    }

    /// The elements of the image that each weight meets, for some lines of the output: a row for each weight,
    /// a column for each pixel. The pixels are the columns from `first` on, of `columns`. The others stay as
    /// they are.
    fn unfold<C: Real>(
        &self,
        image: &[C],
        lines: Range<usize>,
        patches: &mut [C],
        columns: usize,
        first: usize,
    ) {
        let stride = self.conv.stride[1];
        for row in patches.chunks_mut(columns) {
            row[first..first + lines.len() * self.out[1]].fill(C::default());
        }
        self.patches(lines, |row, pixels, start| {
            let row = row * columns + first;
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
    fn fold<C: Real>(&self, patches: &[C], columns: usize, first: usize, image: &mut [C]) {
        let stride = self.conv.stride[1];
        self.patches(0..self.out[0], |row, pixels, start| {
            let row = row * columns + first;
            let from = &patches[row + pixels.start..row + pixels.end];
            for (out, from) in image[start..].iter_mut().step_by(stride).zip(from) {
                *out += *from;
            }
        });
    }

    /// The channels of outputs that lie one image after the other, for one group: a row for each channel, the
    /// images side by side.
    fn side_by_side<C: Real>(&self, outputs: &[C], numbers: Range<usize>, group: usize, rows: &mut [C]) {
        let pixels = self.pixels();
        let columns = numbers.len() * self.pixels();
        for (place, number) in numbers.enumerate() {
            let start = number * self.out_len() + group * self.out_group_len();
            let channels = outputs[start..start + self.out_group_len()].chunks(pixels);
            for (row, channel) in rows.chunks_mut(columns).zip(channels) {
                row[place * pixels..][..pixels].copy_from_slice(channel);
            }
        }
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
    let images = images.to_contiguous()?;
    let weights = weights.to_contiguous()?;
    let bias = call.inputs().get(2).map(|_| array::<E>(call, inputs, 2).0);
    let bias = bias.as_ref().map(Array::to_contiguous).transpose()?;
    let forward = Forward { sizes, images: &images, weights: &weights, bias: bias.as_deref() };
    let is_batched = sizes.batch() > 1 && sizes.channels != [1, 1];
    let lines = if is_batched { sizes.out[0] } else { sizes.lines() };
    check_patches::<E::Compute>(sizes.depth(), lines * sizes.out[1])?;
    write_all::<E>(out, out_layout, |out| {
        if is_batched {
            for_each_batch(&sizes, out, sizes.out_len(), |memory, numbers, out, threads| {
                forward.batch(memory, numbers, out, threads);
            });
        } else {
            forward.in_parts(out);
        }
    });
    Ok(())
}

/// A convolution that is under way.
struct Forward<'a, C> {
    sizes: Sizes,
    images: &'a [C],
    weights: &'a [C],
    bias: Option<&'a [C]>,
}

/// Some lines of all channels of an image, for one group.
struct Part<'a, C> {
    number: usize,
    group: usize,
    lines: Range<usize>,
    /// Where the results go: the lines of each channel.
    out: Vec<&'a mut [C]>,
}

impl<C: Real> Forward<'_, C> {
    /// Some images with few pixels each, side by side.
    fn batch(
        &self,
        [patches, products]: &mut [Vec<C>; 2],
        numbers: Range<usize>,
        out: &mut [C],
        threads: Threads,
    ) {
        let sizes = &self.sizes;
        let depth = sizes.depth();
        let pixels = sizes.pixels();
        let columns = numbers.len() * pixels;
        patches.resize(depth * columns, C::default());
        products.resize(sizes.channels[1] * columns, C::default());
        for group in 0..sizes.conv.groups {
            for (place, number) in numbers.clone().enumerate() {
                let image = self.image(number, group);
                sizes.unfold(image, 0..sizes.out[0], patches, columns, place * pixels);
            }
            self.product(group, (patches, Matrix::by_rows(0, columns)), columns, products, threads);
            let channels = group * sizes.channels[1];
            for (channel, row) in products.chunks(columns).enumerate() {
                for (out, row) in out.chunks_mut(sizes.out_len()).zip(row.chunks(pixels)) {
                    out[(channels + channel) * pixels..][..pixels].copy_from_slice(row);
                }
            }
        }
    }

    /// One image after the other, in parts whose patches stay in a fast cache.
    fn in_parts(&self, out: &mut [C]) {
        let sizes = &self.sizes;
        let [height, width] = sizes.out;
        let lines = sizes.lines();
        let mut parts = Vec::new();
        for (place, out) in out.chunks_mut(sizes.out_group_len().max(1)).enumerate() {
            let mut of_group: Vec<Part<'_, C>> = (0..height.div_ceil(lines))
                .map(|part| Part {
                    number: place / sizes.conv.groups,
                    group: place % sizes.conv.groups,
                    lines: part * lines..height.min((part + 1) * lines),
                    out: Vec::with_capacity(sizes.channels[1]),
                })
                .collect();
            for channel in out.chunks_mut(sizes.pixels().max(1)) {
                of_group
                    .iter_mut()
                    .zip(channel.chunks_mut(lines * width))
                    .for_each(|(part, out)| part.out.push(out));
            }
            parts.append(&mut of_group);
        }
        let is_one = parts.len() == 1;
        if sizes.images < least(sizes) {
            let mut memory = Default::default();
            parts.into_iter().for_each(|part| self.part(&mut memory, part, Threads::One));
        } else if let Some(part) = parts.pop_if(|_| is_one) {
            on_all(|| self.part(&mut Default::default(), part, Threads::All));
        } else {
            let one = |memory: &mut _, part| self.part(memory, part, Threads::One);
            on_all(|| parts.into_par_iter().for_each_init(Default::default, one));
        }
    }

    fn part(&self, [patches, products]: &mut [Vec<C>; 2], part: Part<'_, C>, threads: Threads) {
        let sizes = &self.sizes;
        let image = self.image(part.number, part.group);
        // Padding is multiplied too, which matters where a weight is no finite number.
        let weights = &self.weights[part.group * sizes.depth()..][..sizes.depth()];
        if sizes.channels == [1, 1] && weights.iter().all(|weight| weight.to_f64().is_finite()) {
            return self.by_lines(image, weights, part);
        }
        let columns = part.lines.len() * sizes.out[1];
        products.resize(sizes.channels[1] * columns, C::default());
        if sizes.is_pointwise() {
            // The image itself has a row for each weight, and a column for each pixel.
            let image = (image, Matrix::by_rows(part.lines.start * sizes.out[1], sizes.pixels()));
            self.product(part.group, image, columns, products, threads);
        } else {
            patches.resize(sizes.depth() * columns, C::default());
            sizes.unfold(image, part.lines, patches, columns, 0);
            self.product(part.group, (patches, Matrix::by_rows(0, columns)), columns, products, threads);
        }
        for (out, row) in part.out.into_iter().zip(products.chunks(columns)) {
            out.copy_from_slice(row);
        }
    }

    /// A group of one channel: each weight is multiplied with lines of the image, as a product of matrices
    /// would have one row.
    fn by_lines(&self, image: &[C], weights: &[C], part: Part<'_, C>) {
        let sizes = &self.sizes;
        let stride = sizes.conv.stride[1];
        for out in part.out {
            out.fill(self.bias.map_or_else(C::default, |bias| bias[part.group]));
            sizes.patches(part.lines.clone(), |row, pixels, start| {
                let weight = weights[row];
                let out = &mut out[pixels];
                let image = &image[start..];
                if stride == 1 {
                    vectorized(|| out.iter_mut().zip(image).for_each(|(out, from)| *out += weight * *from));
                } else {
                    let image = image.iter().step_by(stride);
                    out.iter_mut().zip(image).for_each(|(out, from)| *out += weight * *from);
                }
            });
        }
    }

    /// The channels of an image, for one group.
    fn image(&self, number: usize, group: usize) -> &[C] {
        let start = number * self.sizes.image_len() + group * self.sizes.group_len();
        &self.images[start..start + self.sizes.group_len()]
    }

    /// Multiplies the weights of a group with patches: a row for each channel, a column for each pixel.
    fn product(
        &self,
        group: usize,
        patches: (&[C], Matrix),
        columns: usize,
        products: &mut [C],
        threads: Threads,
    ) {
        let [_, channels] = self.sizes.channels;
        let depth = self.sizes.depth();
        let first = group * channels;
        if let Some(bias) = self.bias {
            let of_group = &bias[first..first + channels];
            products.chunks_mut(columns).zip(of_group).for_each(|(row, bias)| row.fill(*bias));
        }
        multiply(
            [channels, columns, depth],
            (self.weights, Matrix::by_rows(first * depth, depth)),
            patches,
            (products, Matrix::by_rows(0, columns)),
            self.bias.is_some(),
            threads,
        );
    }
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
    let grad = grad.to_contiguous()?;
    let weights = weights.to_contiguous()?;
    let depth = sizes.depth();
    let pixels = sizes.pixels();
    check_patches::<E::Compute>(depth, pixels)?;
    let some =
        |[patches, grads]: &mut [Vec<E::Compute>; 2], numbers: Range<usize>, out: &mut [_], threads| {
            let columns = numbers.len() * pixels;
            patches.resize(depth * columns, E::Compute::default());
            grads.resize(sizes.channels[1] * columns, E::Compute::default());
            out.fill(E::Compute::default());
            for group in 0..conv.groups {
                sizes.side_by_side(&grad, numbers.clone(), group, grads);
                let of_weights = Matrix::by_rows(group * sizes.channels[1] * depth, depth);
                multiply(
                    [depth, columns, sizes.channels[1]],
                    (&weights, of_weights.transposed()),
                    (grads, Matrix::by_rows(0, columns)),
                    (patches, Matrix::by_rows(0, columns)),
                    false,
                    threads,
                );
                for (place, out) in out.chunks_mut(sizes.image_len()).enumerate() {
                    let image = &mut out[group * sizes.group_len()..][..sizes.group_len()];
                    sizes.fold(patches, columns, place * pixels, image);
                }
            }
        };
    write_all::<E>(out, out_layout, |out| {
        for_each_batch(&sizes, out, sizes.image_len(), some);
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
    let images = images.to_contiguous()?;
    let grad = grad.to_contiguous()?;
    let depth = sizes.depth();
    let pixels = sizes.pixels();
    check_patches::<E::Compute>(depth, pixels)?;
    let group_weights = sizes.channels[1] * depth;
    let batch = sizes.batch();
    // The sum of some images, for one group.
    let sum = |numbers: Range<usize>, group: usize, out: &mut [E::Compute], threads| {
        let mut patches = Vec::new();
        let mut grads = Vec::new();
        for first in numbers.clone().step_by(batch) {
            let some = first..numbers.end.min(first + batch);
            let columns = some.len() * pixels;
            patches.resize(depth * columns, E::Compute::default());
            grads.resize(sizes.channels[1] * columns, E::Compute::default());
            sizes.side_by_side(&grad, some.clone(), group, &mut grads);
            for (place, number) in some.enumerate() {
                let start = number * sizes.image_len() + group * sizes.group_len();
                let image = &images[start..start + sizes.group_len()];
                sizes.unfold(image, 0..sizes.out[0], &mut patches, columns, place * pixels);
            }
            multiply(
                [sizes.channels[1], depth, columns],
                (&grads, Matrix::by_rows(0, columns)),
                (&patches, Matrix::by_rows(0, columns).transposed()),
                (out, Matrix::by_rows(0, depth)),
                first > numbers.start,
                threads,
            );
        }
    };
    write_all::<E>(out, out_layout, |out| {
        // Each part has weights of its own, which are added up: only where that is little of the work.
        let of_pixels = (sizes.images * pixels / 1024).max(1);
        let parts = sizes.images.div_ceil(least(&sizes)).min(of_pixels).clamp(1, 16);
        for (group, out) in out.chunks_mut(group_weights).enumerate() {
            if parts == 1 {
                if sizes.images < least(&sizes) {
                    sum(0..sizes.images, group, out, Threads::One);
                } else {
                    on_all(|| sum(0..sizes.images, group, out, Threads::All));
                }
                continue;
            }
            let part = |part: usize| {
                let mut weights = vec![E::Compute::default(); group_weights];
                let numbers = sizes.images * part / parts..sizes.images * (part + 1) / parts;
                sum(numbers, group, &mut weights, Threads::One);
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

/// Calls `some` with memory to use, the numbers of some images and their elements, for all images.
fn for_each_batch<C: Real>(
    sizes: &Sizes,
    out: &mut [C],
    len: usize,
    some: impl Fn(&mut [Vec<C>; 2], Range<usize>, &mut [C], Threads) + Send + Sync,
) {
    let least = least(sizes);
    let batch = sizes.batch();
    let numbers = |turn: usize| turn * batch..sizes.images.min((turn + 1) * batch);
    if sizes.images < least {
        let mut memory = Default::default();
        let batches = out.chunks_mut(len * batch).enumerate();
        batches.for_each(|(turn, out)| some(&mut memory, numbers(turn), out, Threads::One));
    } else if sizes.images <= batch {
        on_all(|| some(&mut Default::default(), 0..sizes.images, out, Threads::All));
    } else {
        let batches = out.par_chunks_mut(len * batch).with_min_len(least.div_ceil(batch)).enumerate();
        let one =
            |memory: &mut _, (turn, out): (usize, &mut [C])| some(memory, numbers(turn), out, Threads::One);
        on_all(|| batches.for_each_init(Default::default, one));
    }
}

/// The fewest images that are worth another thread.
fn least(sizes: &Sizes) -> usize {
    let work = sizes.conv.groups * sizes.channels[1] * sizes.depth() * sizes.pixels();
    (1_usize << 17).div_ceil(work.max(1))
}
