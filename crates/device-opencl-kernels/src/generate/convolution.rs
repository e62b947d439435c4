//! Convolutions and their gradients, in the direct form: an item sums all products of one element of the output. Each
//! gradient gathers what it is made of, so that no two items write to one element.

use std::fmt::Write;

use device_kernels::{Call, Conv2d};
use smallvec::{SmallVec, smallvec};

use super::dialect::{Dialect, Parameters};
use super::element::{Element, element};
use super::space;
use super::{Place, Plan, Step, Target};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Recipe {
    function: Function,
    element: Element,
    bias: bool,
    wide: bool,
}

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Function {
    Images,
    ImageGradient,
    WeightGradient,
}

/// The names of the sizes and options.
const NAMES: [&str; 18] = [
    "count", "images", "maps", "oh", "ow", "depth", "ih", "iw", "kh", "kw", "each", "sy", "sx", "py", "px",
    "dy", "dx", "cm",
];

pub(crate) fn plan(call: &Call, function: Function, options: Conv2d, target: Target) -> Option<Plan> {
    let &[(dtype, out)] = call.outputs() else { return None };
    let (first, second) = (call.inputs().first()?.array()?.1, call.inputs().get(1)?.array()?.1);
    let bias = call.inputs().get(2).and_then(|bias| bias.array()).map(|(_, bias)| bias);
    // Images, weights, and what is computed of them; the last is the one that an item has an element of.
    let ([images, weights, maps], order) = match function {
        Function::Images => ([first, second, out], [0, 1, 2]),
        Function::ImageGradient => ([out, second, first], [2, 1, 0]),
        Function::WeightGradient => ([first, out, second], [0, 2, 1]),
    };
    let size = |layout: &device_kernels::Layout, dim: usize| layout.shape()[dim] as i64;
    let groups = options.groups as i64;
    let pair = |[y, x]: [usize; 2]| [y as i64, x as i64];
    let ([sy, sx], [py, px], [dy, dx]) =
        (pair(options.stride), pair(options.padding), pair(options.dilation));
    let count = out.len();
    let cm = bias.map_or(0, |bias| bias.strides()[0] as i64);
    let mut indices: SmallVec<[i64; 24]> = smallvec![
        count as i64,
        size(&images, 0),
        size(&maps, 1),
        size(&maps, 2),
        size(&maps, 3),
        size(&weights, 1),
        size(&images, 2),
        size(&images, 3),
        size(&weights, 2),
        size(&weights, 3),
        size(&maps, 1) / groups,
        sy,
        sx,
        py,
        px,
        dy,
        dx,
        cm
    ];
    indices.extend(out.shape().iter().map(|&size| size as i64));
    for layout in [&images, &weights, &maps] {
        indices.extend(layout.strides().iter().map(|&stride| stride as i64));
    }
    // The arrays are parameters as images, weights, maps and bias, whatever their order in the call.
    let of_call = |array: usize| match array {
        2 if bias.is_some() => Place::Array(3),
        array => Place::Array(array),
    };
    let mut arrays: SmallVec<[(Place, i64); 4]> = order
        .iter()
        .zip([&images, &weights, &maps])
        .map(|(&array, layout)| (of_call(array), layout.offset() as i64))
        .collect();
    if let Some(bias) = &bias {
        arrays.push((Place::Array(2), bias.offset() as i64));
    }
    let recipe = Recipe { function, element: element(dtype)?, bias: bias.is_some(), wide: target.wide };
    let (items, group) = super::line(count, target.traits);
    let recipe = super::Recipe::Convolution(recipe);
    Some(Plan::from(Step { recipe, arrays, values: SmallVec::new(), indices, items, group }))
}

impl Recipe {
    pub(crate) fn text(&self, dialect: &dyn Dialect) -> String {
        let written = match self.function {
            Function::Images => 2,
            Function::ImageGradient => 0,
            Function::WeightGradient => 1,
        };
        let mut arrays: Vec<(Element, bool)> = (0..3).map(|array| (self.element, array == written)).collect();
        if self.bias {
            arrays.push((self.element, false));
        }
        let parameters = Parameters {
            arrays,
            indices: NAMES.map(str::to_owned).into_iter().chain(space::names("", 4, &[0, 1, 2])).collect(),
            wide: self.wide,
            ..Parameters::default()
        };
        let load = |array: usize, [a, b, c, d]: [&str; 4]| {
            let place = format!(
                "o{array} + ({a}) * s{array}_0 + ({b}) * s{array}_1 + ({c}) * s{array}_2 + ({d}) * s{array}_3"
            );
            dialect.load(self.element, &format!("p{array}"), &place)
        };
        let t = dialect.number(self.element.number());
        let mut body =
            format!("    const Index item = {};\n    if (item >= count) return;\n", dialect.item(0));
        body += &space::decode("", 4, "item");
        let _ = writeln!(body, "    {t} total = 0;");
        let _ = match self.function {
            Function::Images => writeln!(
                body,
                "    const Index from = j1 / each * depth;
    for (Index c = 0; c < depth; c++) {{
        {t} near = 0;
        for (Index ky = 0; ky < kh; ky++) {{
            const Index y = j2 * sy - py + ky * dy;
            if (y < 0 || y >= ih) continue;
            for (Index kx = 0; kx < kw; kx++) {{
                const Index x = j3 * sx - px + kx * dx;
                if (x >= 0 && x < iw) near += {} * {};
            }}
        }}
        total += near;
    }}",
                load(0, ["j0", "from + c", "y", "x"]),
                load(1, ["j1", "c", "ky", "kx"]),
            ),
            Function::ImageGradient => writeln!(
                body,
                "    const Index first = j1 / depth * each, c = j1 % depth;
    for (Index m = first; m < first + each; m++) {{
        {t} near = 0;
        for (Index ky = 0; ky < kh; ky++) {{
            const Index ty = j2 + py - ky * dy, y = ty / sy;
            if (ty < 0 || y * sy != ty || y >= oh) continue;
            for (Index kx = 0; kx < kw; kx++) {{
                const Index tx = j3 + px - kx * dx, x = tx / sx;
                if (tx >= 0 && x * sx == tx && x < ow) near += {} * {};
            }}
        }}
        total += near;
    }}",
                load(2, ["j0", "m", "y", "x"]),
                load(1, ["m", "c", "ky", "kx"]),
            ),
            Function::WeightGradient => writeln!(
                body,
                "    const Index c = j0 / each * depth + j1;
    for (Index n = 0; n < images; n++) {{
        {t} of_image = 0;
        for (Index my = 0; my < oh; my++) {{
            const Index y = my * sy - py + j2 * dy;
            if (y < 0 || y >= ih) continue;
            {t} near = 0;
            for (Index mx = 0; mx < ow; mx++) {{
                const Index x = mx * sx - px + j3 * dx;
                if (x >= 0 && x < iw) near += {} * {};
            }}
            of_image += near;
        }}
        total += of_image;
    }}",
                load(0, ["n", "c", "y", "x"]),
                load(2, ["n", "j0", "my", "mx"]),
            ),
        };
        let total = match self.bias {
            true => format!("(total + {})", dialect.load(self.element, "p3", "o3 + j1 * cm")),
            false => "total".to_owned(),
        };
        let place = format!("o{written} + {}", space::place("", 4, written));
        let _ = writeln!(body, "    {}", dialect.store(self.element, &format!("p{written}"), &place, &total));
        dialect.program(&parameters, &body)
    }
}
