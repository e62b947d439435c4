//! Images: convolutions and poolings.

use std::ops::RangeInclusive;

use super::arguments::{Array, Class};
use crate::operator::{Conv2d, MAX_STEP, Pool2d};
use crate::problem::Problem;

/// Checks the images, the weights and the output of a convolution.
pub(super) fn convolution(conv: Conv2d, arrays: [(&'static str, Array<'_>); 3]) -> Result<(), Problem> {
    let [(_, input), (of_weights, weights), (of_out, out)] = arrays;
    let &[images, channels, height, width] = input.image(arrays[0].0)? else { unreachable!("it has four") };
    Class::Float.check(arrays[0].0, input.dtype)?;
    for (argument, array) in arrays {
        array.same_dtype(argument, input.dtype)?;
    }
    steps(conv.stride, conv.padding, conv.dilation)?;
    let &[maps, depth, ..] = weights.layout.shape() else {
        return weights.expect_if(false, of_weights, "[out, in / groups, kh, kw]");
    };
    let groups = conv.groups;
    if groups == 0 || channels % groups != 0 || maps % groups != 0 {
        let expected = "a number that divides the channels";
        return Err(Problem::Option { option: "number of groups", expected, found: groups.to_string() });
    }
    if weights.layout.len() == 0 {
        return Err(Problem::Empty { argument: of_weights });
    }
    let fits = weights.layout.rank() == 4 && depth == channels / groups;
    weights.expect_if(fits, of_weights, format_args!("[out, {}, kh, kw]", channels / groups))?;
    let kernel = [weights.layout.shape()[2], weights.layout.shape()[3]];
    let size = |axis: usize, size: usize| {
        let reach = (kernel[axis] - 1).checked_mul(conv.dilation[axis])?.checked_add(1)?;
        let padded = conv.padding[axis].checked_mul(2)?.checked_add(size)?;
        Some(padded.checked_sub(reach)? / conv.stride[axis] + 1)
    };
    let (Some(out_height), Some(out_width)) = (size(0, height), size(1, width)) else {
        return input.expect_if(false, arrays[0].0, "[n, c, h, w] that the weights fit into");
    };
    out.expect(of_out, &[images, maps, out_height, out_width])
}

/// Checks images and the output of a pooling. A last window that begins inside, and ends behind the padding,
/// may be counted or not.
pub(super) fn pooling(
    pool: Pool2d,
    (of_input, input): (&'static str, Array<'_>),
    (of_out, out): (&'static str, Array<'_>),
) -> Result<(), Problem> {
    let &[images, channels, height, width] = input.image(of_input)? else { unreachable!("it has four") };
    let &[_, _, out_height, out_width] = out.image(of_out)? else { unreachable!("it has four") };
    out.same_dtype(of_out, input.dtype)?;
    positive("window", pool.kernel)?;
    steps(pool.stride, pool.padding, pool.dilation)?;
    for (axis, (size, found)) in [(height, out_height), (width, out_width)].into_iter().enumerate() {
        let reach = (pool.kernel[axis] - 1).saturating_mul(pool.dilation[axis]).saturating_add(1);
        let padding = pool.padding[axis];
        if padding >= reach {
            let expected = "less than the window reaches";
            return Err(Problem::Option { option: "padding", expected, found: padding.to_string() });
        }
        let sizes = padding.checked_mul(2).and_then(|padding| padding.checked_add(size));
        let steps = sizes.and_then(|padded| padded.checked_sub(reach));
        let Some(steps) = steps else {
            return input.expect_if(false, of_input, "[n, c, h, w] that a window fits into");
        };
        let stride = pool.stride[axis];
        let count = steps / pool.stride[axis] + 1;
        let inside = |count: usize| (count - 1).saturating_mul(stride) < size + padding;
        let fits = found == count || (found == steps.div_ceil(stride) + 1 && inside(found));
        let expected = match axis {
            0 => format!("[{images}, {channels}, {count}, w]"),
            _ => format!("[{images}, {channels}, h, {count}]"),
        };
        out.expect_if(fits, of_out, expected)?;
    }
    out.expect(of_out, &[images, channels, out_height, out_width])?;
    some((of_input, input), out)
}

/// Checks that there are elements to compute an output from.
pub(super) fn some((of_input, input): (&'static str, Array<'_>), out: Array<'_>) -> Result<(), Problem> {
    let nothing = input.layout.len() == 0 && out.layout.len() > 0;
    if nothing { Err(Problem::Empty { argument: of_input }) } else { Ok(()) }
}

/// Checks images and the output of an adaptive pooling.
pub(super) fn adaptive(
    (of_input, input): (&'static str, Array<'_>),
    (of_out, out): (&'static str, Array<'_>),
) -> Result<(), Problem> {
    Class::Float.check(of_input, input.dtype)?;
    let &[images, channels, ..] = input.image(of_input)? else { unreachable!("it has four") };
    let &[_, _, height, width] = out.image(of_out)? else { unreachable!("it has four") };
    out.same(of_out, input.dtype, &[images, channels, height, width])
}

/// Checks the numbers that convolutions and poolings have in common.
fn steps(stride: [usize; 2], padding: [usize; 2], dilation: [usize; 2]) -> Result<(), Problem> {
    positive("stride", stride)?;
    positive("dilation", dilation)?;
    within("padding", padding, 0..=MAX_STEP, "numbers up to isize::MAX / 8")
}

fn positive(option: &'static str, values: [usize; 2]) -> Result<(), Problem> {
    within(option, values, 1..=MAX_STEP, "numbers from 1 to isize::MAX / 8")
}

fn within(
    option: &'static str,
    values: [usize; 2],
    range: RangeInclusive<usize>,
    expected: &'static str,
) -> Result<(), Problem> {
    if values.iter().all(|value| range.contains(value)) {
        return Ok(());
    }
    Err(Problem::Option { option, expected, found: format!("{values:?}") })
}
