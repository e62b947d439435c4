//! The group `pool`.

use device_kernels::{DType, Operator, Pool2d};

use super::{FLOATS, INDICES, NUMBERS, drawn, for_each};
use crate::case::{Case, Kind};
use crate::check::{Check, Drawn};
use crate::draw::Draw;
use crate::element::{self, Value};
use crate::reference::{for_each_index, places};
use crate::values::Domain;

pub(super) fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    let mut random =
        |name: &str, proves: &str, dtypes: &[DType], call: fn(DType, &mut Case, &mut Draw<'_>)| {
            checks.push(Check::random(format!("pooling::{name}"), proves, for_each(dtypes, call)));
        };
    random(
        "max",
        "each window has its largest element, and a NaN if it has one",
        &NUMBERS,
        |dtype, case, draw| {
            max(case, draw, dtype, None, small_pooling);
        },
    );
    random(
        "max_places",
        "places count from the start of an image, row by row",
        &NUMBERS,
        |dtype, case, draw| {
            let index = draw.one_of(&INDICES);
            max(case, draw, dtype, Some(index), small_pooling);
        },
    );
    random(
        "max_grad",
        "the gradient of a maximum goes to its place, and is 0 elsewhere",
        &FLOATS,
        |dtype, case, draw| {
            max_grad(case, draw, dtype, false, small_pooling);
        },
    );
    random(
        "max_grad_out_of_range",
        "a place outside of the image gets no gradient, or is an error of the stream",
        &FLOATS,
        |dtype, case, draw| {
            max_grad(case, draw, dtype, true, small_pooling);
            case.may_fail = true;
        },
    );
    random(
        "avg",
        "a mean that does not count the padding divides by the elements in the image",
        &FLOATS,
        |dtype, case, draw| {
            mean(case, draw, dtype, false, false, small_pooling);
        },
    );
    random(
        "avg_counts_padding",
        "a mean that counts the padding divides by all elements up to its end",
        &FLOATS,
        |dtype, case, draw| {
            mean(case, draw, dtype, true, false, small_pooling);
        },
    );
    random(
        "avg_grad",
        "the gradient of a mean goes to all elements of its window",
        &FLOATS,
        |dtype, case, draw| {
            let count_padding = draw.one_in(2);
            mean(case, draw, dtype, count_padding, true, small_pooling);
        },
    );
    random(
        "adaptive_avg",
        "adaptive windows overlap where the sizes do not divide",
        &FLOATS,
        |dtype, case, draw| {
            adaptive(case, draw, dtype, false);
        },
    );
    random(
        "adaptive_avg_grad",
        "the gradient of an adaptive mean goes to all elements of its window",
        &FLOATS,
        |dtype, case, draw| {
            adaptive(case, draw, dtype, true);
        },
    );
    let mut extreme: Vec<Drawn> = vec![
        drawn(|case, draw| max(case, draw, DType::F32, None, extreme_pooling)),
        drawn(|case, draw| max(case, draw, DType::F32, Some(DType::I32), extreme_pooling)),
        drawn(|case, draw| max_grad(case, draw, DType::F32, false, extreme_pooling)),
    ];
    for (count_padding, grad) in [(false, false), (false, true), (true, false), (true, true)] {
        extreme.push(drawn(move |case, draw| {
            mean(case, draw, DType::F32, count_padding, grad, extreme_pooling);
        }));
    }
    checks.push(Check::random(
        "pooling::extreme_options",
        "windows, strides, paddings and dilations may be as large as the vocabulary allows",
        extreme,
    ));
    checks.push(Check::fixed(
        "pooling::windows_of_padding",
        "a window without any element of the images has the mean 0, and the smallest number as its largest",
        windows_of_padding,
    ));
    checks
}

/// Draws windows, the shape of images that they fit in, and the result's shape.
type DrawPooling = fn(&mut Draw<'_>) -> (Pool2d, [usize; 4], [usize; 4]);

fn extreme_pooling(draw: &mut Draw<'_>) -> (Pool2d, [usize; 4], [usize; 4]) {
    let lines = [0, 1].map(|_| {
        let kernel = draw.extreme();
        draw.extreme_line(kernel, true)
    });
    let pool = Pool2d {
        kernel: lines.map(|line| line.kernel),
        stride: lines.map(|line| line.stride),
        padding: lines.map(|line| line.padding),
        dilation: lines.map(|line| line.dilation),
    };
    let [n, c] = [draw.within(1, 2), draw.within(1, 3)];
    (pool, [n, c, lines[0].size, lines[1].size], [n, c, lines[0].out, lines[1].out])
}

/// Windows whose elements are at both sides of an image.
fn windows_of_padding() -> Vec<Case> {
    let pool = Pool2d { kernel: [1, 2], stride: [1, 1], padding: [0, 1], dilation: [1, 2] };
    let shape = [1, 2, 3, 1];
    let mut cases = Vec::new();
    let mut add = |operator: Operator, dtype: DType, outputs: &[DType]| {
        let mut case = Case::default();
        let input = case.values(dtype, &shape, &[1.0, 2.0, 3.0]);
        let mut draw = Draw::new(&[]);
        let outputs: Vec<_> =
            outputs.iter().map(|&dtype| case.output(&mut draw, dtype, &shape, Kind::Plain)).collect();
        case.step(operator, [input.into()], outputs);
        cases.push(case);
    };
    for dtype in FLOATS {
        for count_padding in [false, true] {
            add(Operator::AvgPool2d { pool, count_padding }, dtype, &[dtype]);
            add(Operator::AvgPool2dGrad { pool, count_padding }, dtype, &[dtype]);
        }
    }
    for dtype in NUMBERS {
        add(Operator::MaxPool2d(pool), dtype, &[dtype, DType::I32]);
    }
    cases
}

/// Small windows. Some results have a last window that ends behind the padding.
fn small_pooling(draw: &mut Draw<'_>) -> (Pool2d, [usize; 4], [usize; 4]) {
    let mut two = |low: usize, high: usize| [draw.within(low, high), draw.within(low, high)];
    let kernel = two(1, 3);
    let stride = two(1, 3);
    let dilation = two(1, 2);
    let padding = [0, 1].map(|axis| draw.below(kernel[axis] / 2 + 1));
    let pool = Pool2d { kernel, stride, padding, dilation };
    let mut images = [draw.within(1, 2), draw.within(1, 3), 0, 0];
    let mut out = [0; 4];
    out[..2].copy_from_slice(&images[..2]);
    for axis in 0..2 {
        let reach = (kernel[axis] - 1) * dilation[axis] + 1;
        let size = reach.saturating_sub(2 * padding[axis]).max(1) + draw.below(6);
        let steps = size + 2 * padding[axis] - reach;
        let more = steps.div_ceil(stride[axis]) + 1;
        let inside = (more - 1) * stride[axis] < size + padding[axis];
        out[2 + axis] = if inside && draw.one_in(2) { more } else { steps / stride[axis] + 1 };
        images[2 + axis] = size;
    }
    (pool, images, out)
}

fn max(case: &mut Case, draw: &mut Draw<'_>, dtype: DType, places: Option<DType>, draw_pooling: DrawPooling) {
    let (pool, images, out) = draw_pooling(draw);
    let input = case.array(draw, dtype, &images, Kind::Any, Domain::Few);
    if dtype.is_float() && draw.one_in(3) {
        // Windows with several NaN.
        let mut stream = draw.stream();
        case.fill(&input, |bytes| {
            if stream.below(2) == 0 {
                element::write(dtype, Value::Float(f64::NAN), bytes);
            }
        });
    }
    let mut outputs = vec![case.output(draw, dtype, &out, Kind::Any)];
    outputs.extend(places.map(|index| case.output(draw, index, &out, Kind::Any)));
    case.step(Operator::MaxPool2d(pool), [input.into()], outputs);
}

fn max_grad(case: &mut Case, draw: &mut Draw<'_>, dtype: DType, outside: bool, draw_pooling: DrawPooling) {
    // Each window has elements, one of which can be the largest.
    let (pool, images, out, windows) = loop {
        let (pool, images, out) = draw_pooling(draw);
        let mut windows = Vec::new();
        for_each_index(&out, |at| windows.push(places(pool, false, at, &images).0));
        if windows.iter().all(|window| !window.is_empty()) {
            break (pool, images, out, windows);
        }
    };
    let grad = case.array(draw, dtype, &out, Kind::Any, Domain::Integers);
    let index = draw.one_of(&INDICES);
    let (low, high) = element::range(index);
    let size = (images[2] * images[3]) as i128;
    let outsiders = [size, size + 1, high, if low < 0 { -1 } else { size }, if low < 0 { low } else { high }];

    let at = case.output(draw, index, &out, Kind::Any);
    let mut stream = draw.stream();
    let mut windows = windows.into_iter();
    case.fill(&at, |bytes| {
        let window = windows.next().expect("one for each element");
        let (y, x) = stream.one_of(&window);
        let place = match outside && stream.below(2) == 0 {
            true => stream.one_of(&outsiders),
            false => (y * images[3] + x) as i128,
        };
        element::write(index, Value::Int(place), bytes);
    });
    let out = case.output(draw, dtype, &images, Kind::Any);
    case.step(Operator::MaxPool2dGrad(pool), [grad.into(), at.into()], [out]);
}

fn mean(
    case: &mut Case,
    draw: &mut Draw<'_>,
    dtype: DType,
    count_padding: bool,
    grad: bool,
    draw_pooling: DrawPooling,
) {
    let (pool, images, out) = draw_pooling(draw);
    let (from, to) = if grad { (out, images) } else { (images, out) };
    let domain = draw.one_of(&[Domain::Integers, Domain::Small]);
    let input = case.array(draw, dtype, &from, Kind::Any, domain);
    let out = case.output(draw, dtype, &to, Kind::Any);
    let operator = match grad {
        true => Operator::AvgPool2dGrad { pool, count_padding },
        false => Operator::AvgPool2d { pool, count_padding },
    };
    case.step(operator, [input.into()], [out]);
}

fn adaptive(case: &mut Case, draw: &mut Draw<'_>, dtype: DType, grad: bool) {
    let start = [draw.within(1, 2), draw.within(1, 3)];
    let images = [start[0], start[1], draw.within(1, 9), draw.within(1, 9)];
    let out = [start[0], start[1], draw.within(1, 9), draw.within(1, 9)];
    let (from, to) = if grad { (out, images) } else { (images, out) };
    let domain = draw.one_of(&[Domain::Integers, Domain::Small]);
    let input = case.array(draw, dtype, &from, Kind::Any, domain);
    let result = case.output(draw, dtype, &to, Kind::Any);
    let operator = if grad { Operator::AdaptiveAvgPool2dGrad } else { Operator::AdaptiveAvgPool2d };
    case.step(operator, [input.into()], [result]);
}

/// A pooling, for the checks of other groups.
pub(super) fn probe() -> Drawn {
    drawn(|case, draw| {
        let count_padding = draw.one_in(2);
        mean(case, draw, DType::F32, count_padding, false, small_pooling);
    })
}
