//! The group `conv`.

use device_kernels::{Conv2d, DType, Operator};

use super::{FLOATS, drawn, for_each};
use crate::case::{Case, Kind, Operand};
use crate::check::{Check, Drawn};
use crate::draw::Draw;
use crate::values::Domain;

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Forward,
    InputGrad,
    WeightGrad,
}

/// Which options differ from the plain ones.
#[derive(Clone, Copy, Default)]
struct Options {
    stride: bool,
    padding: bool,
    dilation: bool,
    groups: bool,
    bias: bool,
}

const WAYS: [(Way, &str); 3] =
    [(Way::Forward, "forward"), (Way::InputGrad, "input_grad"), (Way::WeightGrad, "weight_grad")];

pub(super) fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    let all = Options { stride: true, padding: true, dilation: true, groups: true, bias: true };
    for (way, name) in WAYS {
        let proves = format!("`{name}` of a convolution has all its products, with any options and layouts");
        let kinds = for_each(&FLOATS, move |dtype, case, draw| {
            let domain = draw.one_of(&[Domain::Integers, Domain::Small]);
            convolve(case, draw, way, dtype, all, Kind::Any, domain);
        });
        checks.push(Check::random(format!("conv::{name}"), proves, kinds));
    }
    let plain = Options::default();
    for (name, options) in [
        ("plain", plain),
        ("stride", Options { stride: true, ..plain }),
        ("padding", Options { padding: true, ..plain }),
        ("dilation", Options { dilation: true, ..plain }),
        ("groups", Options { groups: true, ..plain }),
        ("bias", Options { bias: true, ..plain }),
    ] {
        let kinds = WAYS.map(|(way, _)| {
            drawn(move |case: &mut Case, draw: &mut Draw<'_>| {
                convolve(case, draw, way, DType::F32, options, Kind::Plain, Domain::Integers);
            })
        });
        let proves = format!("convolutions and their gradients are right with the option {name} alone");
        checks.push(Check::random(format!("conv::{name}"), proves, kinds.into()));
    }
    let extreme =
        WAYS.map(|(way, _)| drawn(move |case: &mut Case, draw: &mut Draw<'_>| extreme(case, draw, way)));
    checks.push(Check::random(
        "conv::extreme_options",
        "strides, paddings and dilations may be as large as the vocabulary allows",
        extreme.into(),
    ));
    checks.push(Check::fixed(
        "conv::larger",
        "images of more elements than a group of threads has are complete",
        larger,
    ));
    checks.push(Check::fixed(
        "conv::padding_is_multiplied",
        "padding is zeros: a weight, or a gradient of the output, that is infinite or NaN gives NaN there",
        padding_is_multiplied,
    ));
    checks
}

fn convolve(
    case: &mut Case,
    draw: &mut Draw<'_>,
    way: Way,
    dtype: DType,
    options: Options,
    kind: Kind,
    domain: Domain,
) {
    let mut two = |on: bool, low: usize, high: usize| {
        if on { [draw.within(low, high), draw.within(low, high)] } else { [low; 2] }
    };
    let conv = Conv2d {
        stride: two(options.stride, 1, 3),
        padding: two(options.padding, 0, 2),
        dilation: two(options.dilation, 1, 3),
        groups: 1,
    };
    let kernel = two(true, 1, 3);
    let conv = Conv2d { groups: if options.groups { draw.within(1, 3) } else { 1 }, ..conv };
    let reach = |axis: usize| (kernel[axis] - 1) * conv.dilation[axis] + 1;
    let size = |draw: &mut Draw<'_>, axis: usize| {
        let least = reach(axis).saturating_sub(2 * conv.padding[axis]).max(1);
        least + draw.below(5)
    };
    let height = size(draw, 0);
    let width = size(draw, 1);
    let depth = draw.within(1, 2);
    let maps = conv.groups * draw.within(1, 2);
    let images = [draw.within(1, 2), depth * conv.groups, height, width];
    let bias = options.bias && draw.one_in(2);
    call(case, draw, way, dtype, conv, images, [maps, depth, kernel[0], kernel[1]], bias, kind, domain);
}

#[expect(clippy::too_many_arguments, reason = "a convolution has many")]
fn call(
    case: &mut Case,
    draw: &mut Draw<'_>,
    way: Way,
    dtype: DType,
    conv: Conv2d,
    images: [usize; 4],
    weights: [usize; 4],
    bias: bool,
    kind: Kind,
    domain: Domain,
) {
    let out = |axis: usize| {
        let reach = (weights[2 + axis] - 1) * conv.dilation[axis] + 1;
        (images[2 + axis] + 2 * conv.padding[axis] - reach) / conv.stride[axis] + 1
    };
    let result = [images[0], weights[0], out(0), out(1)];
    let mut array = |shape: &[usize], draw: &mut Draw<'_>| case.array(draw, dtype, shape, kind, domain);
    match way {
        Way::Forward => {
            let mut inputs: Vec<Operand> = vec![array(&images, draw).into(), array(&weights, draw).into()];
            if bias {
                inputs.push(array(&weights[..1], draw).into());
            }
            let out = case.output(draw, dtype, &result, kind);
            case.step(Operator::Conv2d(conv), inputs, [out]);
        }
        Way::InputGrad => {
            let inputs = [array(&result, draw).into(), array(&weights, draw).into()];
            let out = case.output(draw, dtype, &images, kind);
            case.step(Operator::Conv2dInputGrad(conv), inputs, [out]);
        }
        Way::WeightGrad => {
            let inputs = [array(&images, draw).into(), array(&result, draw).into()];
            let out = case.output(draw, dtype, &weights, kind);
            case.step(Operator::Conv2dWeightGrad(conv), inputs, [out]);
        }
    }
}

fn extreme(case: &mut Case, draw: &mut Draw<'_>, way: Way) {
    let lines = [0, 1].map(|_| {
        let kernel = draw.within(1, 3);
        draw.extreme_line(kernel, false)
    });
    let conv = Conv2d {
        stride: lines.map(|line| line.stride),
        padding: lines.map(|line| line.padding),
        dilation: lines.map(|line| line.dilation),
        groups: 1,
    };
    let images = [draw.within(1, 2), draw.within(1, 2)];
    let maps = draw.within(1, 2);
    let weights = [maps, images[1], lines[0].kernel, lines[1].kernel];
    let images = [images[0], images[1], lines[0].size, lines[1].size];
    call(case, draw, way, DType::F32, conv, images, weights, false, Kind::Any, Domain::Integers);
}

fn larger() -> Vec<Case> {
    WAYS.map(|(way, _)| {
        let mut case = Case::default();
        let conv = Conv2d { padding: [1, 1], ..Conv2d::default() };
        let shapes = ([2, 3, 29, 31], [5, 3, 3, 3]);
        let mut draw = Draw::new(&[]);
        call(
            &mut case,
            &mut draw,
            way,
            DType::F32,
            conv,
            shapes.0,
            shapes.1,
            false,
            Kind::Plain,
            Domain::Integers,
        );
        case
    })
    .into()
}

/// One number that is not finite, at the first place: of the weights, or of the gradient of the output. Of
/// few elements, and of so many that a set may compute in another way.
fn padding_is_multiplied() -> Vec<Case> {
    let mut cases = Vec::new();
    for number in [f64::INFINITY, f64::NAN] {
        for (images, maps) in [([1, 1, 2, 2], 1), ([2, 4, 12, 12], 8)] {
            let [count, depth, height, width] = images;
            let weights = [maps, depth, 3, 3];
            let out = [count, maps, height, width];
            let conv = Conv2d { padding: [1, 1], ..Conv2d::default() };
            for (operator, second, result) in
                [(Operator::Conv2d(conv), weights, out), (Operator::Conv2dWeightGrad(conv), out, weights)]
            {
                let mut case = Case::default();
                let mut numbers = vec![1.0; second.iter().product()];
                numbers[0] = number;
                let inputs =
                    [case.values(DType::F32, &images, &[1.0]), case.values(DType::F32, &second, &numbers)];
                let out = case.output(&mut Draw::new(&[]), DType::F32, &result, Kind::Plain);
                case.step(operator, inputs.map(Operand::from), [out]);
                cases.push(case);
            }
        }
    }
    cases
}

/// A convolution, for the checks of other groups.
pub(super) fn probe() -> Drawn {
    let all = Options { stride: true, padding: true, dilation: true, groups: true, bias: true };
    drawn(move |case, draw| convolve(case, draw, Way::Forward, DType::F32, all, Kind::Any, Domain::Integers))
}
