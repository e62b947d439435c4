//! Convolutions and their gradients, in two forms. Each gradient gathers what it is made of, so that no two
//! items write to one element.
//!
//! *Direct*: an item sums all products of one element of the output. *Packed*, for large ones on processors:
//! a product of matrices, one of which has the elements of the convolution's windows. It is made in the
//! panels that products of matrices read, for a part of the images at a time.

use std::fmt::Write;

use device_kernels::{Call, Conv2d, Layout};
use smallvec::{SmallVec, smallvec};

use super::element::{Element, element};
use super::matmul::{self, Depth, OfPanels, Pack};
use super::opencl_c::{self, Parameters};
use super::space::{self, Dim, Space};
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
    let [(dtype, out)] = call.outputs() else { return None };
    let first = call.inputs().first()?.array()?.1;
    let second = call.inputs().get(1)?.array()?.1;
    let bias = call.inputs().get(2).and_then(|bias| bias.array()).map(|(_, bias)| bias);
    // Images, weights, and what is computed of them; the last is the one that an item has an element of.
    let ([images, weights, maps], order) = match function {
        Function::Images => ([first, second, out], [0, 1, 2]),
        Function::ImageGradient => ([out, second, first], [2, 1, 0]),
        Function::WeightGradient => ([first, out, second], [0, 2, 1]),
    };
    let options = Options::new(options)?;
    let ([of_images, of_weights, of_maps], count) =
        ([shape(images)?, shape(weights)?, shape(maps)?], out.len());
    let [number, _, height, width] = of_images;
    let [_, depth, kernel_height, kernel_width] = of_weights;
    let [_, all_maps, out_height, out_width] = of_maps;
    let mut indices: SmallVec<[i64; 24]> = smallvec![
        super::index(count)?,
        number,
        all_maps,
        out_height,
        out_width,
        depth,
        height,
        width,
        kernel_height,
        kernel_width,
        all_maps / options.groups
    ];
    indices.extend(options.steps());
    indices.push(bias.map_or(Some(0), |bias| super::index(bias.strides()[0]))?);
    indices.extend(shape(out)?);
    for layout in [images, weights, maps] {
        indices.extend(strides(layout)?);
    }
    // The arrays are parameters as images, weights, maps and bias, whatever their order in the call.
    let of_call = |array: usize| match array {
        2 if bias.is_some() => Place::Array(3),
        array => Place::Array(array),
    };
    let mut arrays = SmallVec::<[(Place, i64); 4]>::new();
    for (array, layout) in order.into_iter().zip([images, weights, maps]) {
        arrays.push((of_call(array), super::index(layout.offset())?));
    }
    if let Some(bias) = &bias {
        arrays.push((Place::Array(2), super::index(bias.offset())?));
    }
    let element = element(*dtype)?;
    let mut parts = Parts { function, element, options, images, weights, maps, bias, arrays, target };
    if let Some(plan) = parts.packed() {
        return Some(plan);
    }
    let arrays = std::mem::take(&mut parts.arrays);
    let recipe = Recipe { function, element, bias: bias.is_some(), wide: target.wide };
    let (items, group) = super::line(count, target.traits);
    let recipe = super::Kind::Convolution(recipe).into();
    Some(Plan::from(Step { recipe, arrays, values: SmallVec::new(), indices, items, group }))
}

fn shape(layout: &Layout) -> Option<[i64; 4]> {
    super::indices(<[usize; 4]>::try_from(layout.shape()).ok()?)
}

fn strides(layout: &Layout) -> Option<[i64; 4]> {
    super::indices(<[isize; 4]>::try_from(layout.strides()).ok()?)
}

/// The options as kernels have them.
#[derive(Clone, Copy)]
struct Options {
    stride: [i64; 2],
    padding: [i64; 2],
    dilation: [i64; 2],
    groups: i64,
}

impl Options {
    fn new(Conv2d { stride, padding, dilation, groups }: Conv2d) -> Option<Self> {
        Some(Self {
            stride: super::indices(stride)?,
            padding: super::indices(padding)?,
            dilation: super::indices(dilation)?,
            groups: super::index(groups)?,
        })
    }

    /// The parameters `sy, sx, py, px, dy, dx`.
    fn steps(&self) -> impl Iterator<Item = i64> + use<> {
        [self.stride, self.padding, self.dilation].into_iter().flatten()
    }
}

/// A convolution that is to be planned. The arrays are images, weights, maps and bias.
struct Parts<'a> {
    function: Function,
    element: Element,
    options: Options,
    images: &'a Layout,
    weights: &'a Layout,
    maps: &'a Layout,
    bias: Option<&'a Layout>,
    arrays: SmallVec<[(Place, i64); 4]>,
    target: Target,
}

/// The elements of a convolution's windows as a matrix in panels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Windows {
    function: Function,
    element: Element,
    /// Whether neighbours in a row of windows are neighbours in memory, so that most are copied as they lie.
    /// For the gradient by images, rows have strides of 1 too, so that nothing is divided.
    neighbours: bool,
    wide: bool,
}

/// How many elements of windows are in memory at a time.
const WINDOWS: i64 = 1 << 24;

/// Whether the last two dimensions are one, and its stride.
fn plane(layout: &Layout) -> Option<i64> {
    let ([.., height, width], [.., outer, row, column]) = (shape(layout)?, strides(layout)?);
    match (height, width) {
        // For one element any stride will do: the next dimension's makes one line of both.
        (1, 1) => Some(outer),
        (1, _) => Some(column),
        (_, 1) => Some(row),
        _ => (row == column * width).then_some(column),
    }
}

impl Parts<'_> {
    /// A plan with products of matrices, if they are large enough, and each matrix except the windows' has
    /// even strides.
    fn packed(&self) -> Option<Plan> {
        if self.target.traits.groups {
            return None;
        }
        let ([images, _, ih, iw], [_, depth, kh, kw], [_, all_maps, oh, ow]) =
            (shape(self.images)?, shape(self.weights)?, shape(self.maps)?);
        let of_images = strides(self.images)?;
        let of_weights = strides(self.weights)?;
        let of_maps = strides(self.maps)?;
        let groups = self.options.groups;
        let each = all_maps / groups;
        let kernel = kh * kw;
        let out = oh * ow;
        // For each group and image: rows, columns and sum; the matrix that is packed as it is: its array, the
        // stride of its rows, its sum, and the stride of groups; and the output: strides of rows, columns and
        // groups.
        let [image, weight, map] = [0, 1, 2];
        let (sizes, (left, along, depth_of_sum, left_group), (written, out_strides, out_group), source);
        match self.function {
            Function::Images => {
                let step = plane(self.weights)?;
                sizes = [each, out, depth * kernel];
                let sum =
                    Depth { k: sizes[2], inner: kernel, across: step, jump: of_weights[1] - kernel * step };
                (left, along, depth_of_sum, left_group) = (weight, of_weights[0], sum, each * of_weights[0]);
                (written, out_strides, out_group) = (map, [of_maps[1], plane(self.maps)?], each * of_maps[1]);
                source = image;
            }
            Function::ImageGradient => {
                let step = plane(self.weights)?;
                sizes = [depth, ih * iw, each * kernel];
                let sum =
                    Depth { k: sizes[2], inner: kernel, across: step, jump: of_weights[0] - kernel * step };
                (left, along, depth_of_sum, left_group) = (weight, of_weights[1], sum, each * of_weights[0]);
                (written, out_strides, out_group) =
                    (image, [of_images[1], plane(self.images)?], depth * of_images[1]);
                source = map;
            }
            Function::WeightGradient => {
                let step = plane(self.maps)?;
                sizes = [each, depth * kernel, images * out];
                let sum = Depth { k: sizes[2], inner: out, across: step, jump: of_maps[0] - out * step };
                (left, along, depth_of_sum, left_group) = (map, of_maps[1], sum, each * of_maps[1]);
                let step = plane(self.weights)?;
                if depth > 1 && of_weights[1] != kernel * step {
                    return None;
                }
                (written, out_strides, out_group) = (weight, [of_weights[0], step], each * of_weights[0]);
                source = image;
            }
        }
        let [m, n, k] = sizes;
        let number = self.element.number().unsigned();
        let columns = matmul::panel_columns(number);
        // It may be too large to be counted, as there may be strides of zero.
        let of_one = super::index(super::product([matmul::count(n, columns), columns, k, groups])?)?;
        // The gradient of weights has all images in its sum.
        let (runs, all) = if self.function == Function::WeightGradient { (1, 1) } else { (images, images) };
        if m < 4 || n < 8 || of_one > WINDOWS * 4 || m.saturating_mul(n * k) < 1 << 13 {
            return None;
        }
        let at_once = (WINDOWS / of_one).clamp(1, runs);
        let mut plan = Plan::default();
        let panel = matmul::ROWS;
        let of_left = super::index(super::product([matmul::count(m, panel), panel, k])?)?;
        plan.scratch.push(super::product([of_left, groups])?.checked_mul(number.size())?);
        plan.scratch.push(super::product([of_one, at_once])?.checked_mul(number.size())?);
        let dim = |size: i64, strides: [i64; 4]| Dim { size, strides };
        let space = |dims: &[Dim]| Space {
            dims: dims.iter().filter(|dim| dim.size > 1).copied().collect(),
            offsets: [0; space::ARRAYS],
        };
        let wide = self.target.wide;
        let batch = space(&[dim(groups, [left_group, of_left, 0, 0])]);
        let pack = Pack { element: self.element, panel, batch: batch.rank(), neighbours: along == 1, wide };
        let arrays = [self.arrays[left], (Place::Scratch(0), 0)];
        plan.steps.push(pack.step([m, along], depth_of_sum, arrays, &batch)?);
        let of_source = [of_images, of_weights, of_maps][source];
        let of_written = [of_images, of_weights, of_maps][written];
        let mut first = 0;
        while first < all {
            let count = at_once.min(all - first);
            let (place, offset) = self.arrays[source];
            let mut indices: SmallVec<[i64; 24]> =
                smallvec![n, k, groups, if source == map { each } else { depth }, oh, ow, ih, iw, kh, kw];
            indices.extend(self.options.steps());
            indices.extend(of_source);
            let neighbours = of_source[3] == 1
                && match self.function {
                    Function::Images => self.options.stride[1] == 1,
                    Function::ImageGradient => self.options.stride == [1, 1],
                    Function::WeightGradient => false,
                };
            let recipe = Windows { function: self.function, element: self.element, neighbours, wide };
            let [panels, chunks] = [matmul::count(n, columns), matmul::count(k, matmul::CHUNK)];
            let items =
                [super::product([panels])?, super::product([chunks])?, super::product([count, groups])?];
            plan.steps.push(Step {
                recipe: super::Kind::Windows(recipe).into(),
                arrays: smallvec![(place, offset + first * of_source[0]), (Place::Scratch(1), 0)],
                values: SmallVec::new(),
                indices,
                items,
                group: [1; 3],
            });
            let of_group = of_one / groups;
            let bias = match &self.bias {
                Some(bias) => Some(super::index(bias.strides()[0])?),
                None => None,
            };
            let batch = space(&[
                dim(count, [0, of_one, of_written[0], 0]),
                dim(groups, [of_left, of_group, out_group, bias.unwrap_or(0) * each]),
            ]);
            let (place, offset) = self.arrays[written];
            let mut arrays: SmallVec<[(Place, i64); 4]> = smallvec![
                (Place::Scratch(0), 0),
                (Place::Scratch(1), 0),
                (place, offset + if all > 1 { first * of_written[0] } else { 0 })
            ];
            arrays.extend(self.arrays.get(3).copied());
            let product = OfPanels {
                element: self.element,
                sizes,
                out: out_strides,
                bias: bias.map(|step| [step, 0]),
                batch,
                wide,
            };
            plan.steps.push(product.step(arrays)?);
            first += count;
        }
        Some(plan)
    }
}

impl Windows {
    pub(crate) fn text(&self) -> String {
        let number = self.element.number().unsigned();
        let panel = matmul::panel_columns(number);
        let chunk = matmul::CHUNK;
        let names = [
            "size", "k", "groups", "channels", "oh", "ow", "ih", "iw", "kh", "kw", "sy", "sx", "py", "px",
            "dy", "dx", "s0", "s1", "s2", "s3",
        ];
        let parameters = Parameters {
            arrays: vec![(self.element, false), (number.element(), true)],
            indices: names.map(str::to_owned).into(),
            wide: self.wide,
            ..Parameters::default()
        };
        // The indices in three dimensions: of a row of the matrix, which is in the sum, and of a column.
        let (sum, column) = match self.function {
            Function::Images => (["kh", "kw"], ["oh", "ow"]),
            Function::ImageGradient => (["kh", "kw"], ["ih", "iw"]),
            Function::WeightGradient => (["oh", "ow"], ["kh", "kw"]),
        };
        let place = match self.function {
            Function::Images => "y = b1[l] * sy - py + a1 * dy, x = b2[l] * sx - px + a2 * dx",
            Function::WeightGradient => "y = a1 * sy - py + b1[l] * dy, x = a2 * sx - px + b2[l] * dx",
            Function::ImageGradient => {
                "ty = b1[l] + py - a1 * dy, tx = b2[l] + px - a2 * dx, y = ty / sy, x = tx / sx"
            }
        };
        let inside = match self.function {
            Function::ImageGradient => {
                "ty >= 0 && tx >= 0 && y * sy == ty && x * sx == tx && y >= 0 && y < oh && x >= 0 && x < ow"
            }
            _ => "y >= 0 && x >= 0 && y < ih && x < iw",
        };
        // The first of the three is an image, or a channel of the group.
        let (image, channel) = match self.function {
            Function::WeightGradient => ("a0", "group * channels + b0[l]"),
            _ => ("image", "group * channels + a0"),
        };
        let load = opencl_c::load(
            self.element,
            "p0",
            &format!("o0 + {image} * s0 + ({channel}) * s1 + y * s2 + x * s3"),
        );
        let t = opencl_c::number_type(number);
        let (first, [height, width]) = match self.function {
            Function::ImageGradient => ("y1 = b1[0] + py - a1 * dy, x1 = b2[0] + px - a2 * dx", ["oh", "ow"]),
            _ => ("y1 = b1[0] * sy - py + a1 * dy, x1 = b2[0] - px + a2 * dx", ["ih", "iw"]),
        };
        let copied = match self.neighbours {
            true => format!(
                "        const Index {first};
        if (line && y1 >= 0 && y1 < {height} && x1 >= 0 && x1 + {panel} <= {width}) {{
            const Index from = o0 + image * s0 + (group * channels + a0) * s1 + y1 * s2 + x1;
            for (int l = 0; l < {panel}; l++) p1[to + l] = ({t}){};
        }} else
",
                opencl_c::load(self.element, "p0", "from + l")
            ),
            false => String::new(),
        };
        let [sum_h, sum_w] = sum;
        let [column_h, column_w] = column;
        let body = format!(
            "    const Index panel = {}, begin = {} * {chunk}, end = min(begin + {chunk}, k), batch = {};
    const Index group = batch % groups, image = batch / groups;
    Index b0[{panel}], b1[{panel}], b2[{panel}];
    for (int l = 0; l < {panel}; l++) {{
        const Index column = min(panel * {panel} + l, size - 1);
        b0[l] = column / {column_w} / {column_h};
        b1[l] = column / {column_w} % {column_h};
        b2[l] = column % {column_w};
    }}
    const int line = (panel + 1) * {panel} <= size && b1[0] == b1[{panel} - 1] && b0[0] == b0[{panel} - 1];
    Index to = o1 + ((batch * ((size + {panel} - 1) / {panel}) + panel) * k + begin) * {panel};
    Index a2 = begin % {sum_w}, a1 = begin / {sum_w} % {sum_h}, a0 = begin / {sum_w} / {sum_h};
    for (Index i = begin; i < end; i++, to += {panel}) {{
{copied}        for (int l = 0; l < {panel}; l++) {{
            const Index {place};
            p1[to + l] = {inside} ? ({t}){load} : 0;
        }}
        if (++a2 == {sum_w}) {{ a2 = 0; if (++a1 == {sum_h}) {{ a1 = 0; a0++; }} }}
    }}
",
            opencl_c::item(0),
            opencl_c::item(1),
            opencl_c::item(2),
        );
        opencl_c::program(&parameters, &body)
    }
}

impl Recipe {
    pub(crate) fn text(&self) -> String {
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
            opencl_c::load(self.element, &format!("p{array}"), &place)
        };
        let t = opencl_c::number_type(self.element.number());
        let mut body =
            format!("    const Index item = {};\n    if (item >= count) return;\n", opencl_c::item(0));
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
            for (Index kx = 0; kx < kw; kx++) {{
                const Index x = j3 * sx - px + kx * dx;
                const {t} image = y >= 0 && y < ih && x >= 0 && x < iw ? {} : 0;
                near += image * {};
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
            if (ty < 0 || y * sy != ty || y < 0 || y >= oh) continue;
            for (Index kx = 0; kx < kw; kx++) {{
                const Index tx = j3 + px - kx * dx, x = tx / sx;
                if (tx >= 0 && x * sx == tx && x >= 0 && x < ow) near += {} * {};
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
            {t} near = 0;
            for (Index mx = 0; mx < ow; mx++) {{
                const Index x = mx * sx - px + j3 * dx;
                const {t} image = y >= 0 && y < ih && x >= 0 && x < iw ? {} : 0;
                near += image * {};
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
            true => format!("(total + {})", opencl_c::load(self.element, "p3", "o3 + j1 * cm")),
            false => "total".to_owned(),
        };
        let place = format!("o{written} + {}", space::place("", 4, written));
        let _ =
            writeln!(body, "    {}", opencl_c::store(self.element, &format!("p{written}"), &place, &total));
        opencl_c::program(&parameters, &body)
    }
}

#[cfg(test)]
mod tests {
    use device_kernels::{Argument, DType, Operator};

    use super::*;
    use crate::{Kind, Traits};

    fn steps(images: Layout, out: [usize; 4], groups: bool) -> Vec<Kind> {
        let array = |layout| Argument::Array(DType::F32, layout);
        let weights = Layout::contiguous([8, 16, 3, 3]).unwrap();
        let arguments = [array(images), array(weights)];
        let out = [array(Layout::contiguous(out).unwrap())];
        let call = Call::new(Operator::Conv2d(Conv2d::default()), &arguments, &out).unwrap();
        let traits = Traits { doubles: true, groups, units: 2 };
        let plan = crate::plan(&call, Target { traits, wide: false }).unwrap();
        plan.steps.into_iter().map(|step| step.recipe.0).collect()
    }

    /// The kernels of a gradient by weights `[8, 1, size, size]` of so many images, which repeat one element.
    fn steps_of_weight_gradient(images: usize, size: usize) -> Vec<Kind> {
        let array = |shape: [usize; 4]| {
            Argument::Array(DType::F32, Layout::contiguous([1; 4]).unwrap().broadcast_to(shape).unwrap())
        };
        let arguments = [array([images, 1, size + 7, size + 7]), array([images, 8, 8, 8])];
        let out = [Argument::Array(DType::F32, Layout::contiguous([8, 1, size, size]).unwrap())];
        let call = Call::new(Operator::Conv2dWeightGrad(Conv2d::default()), &arguments, &out).unwrap();
        let traits = Traits { doubles: true, groups: false, units: 2 };
        let plan = crate::plan(&call, Target { traits, wide: false }).unwrap();
        plan.steps.into_iter().map(|step| step.recipe.0).collect()
    }

    #[test]
    fn a_gradient_of_one_channel_is_a_product_of_matrices() {
        let steps = steps_of_weight_gradient(4, 5);
        assert!(matches!(&steps[..], [Kind::Pack(_), Kind::Windows(_), Kind::Packed(_)]), "{steps:?}");
    }

    #[test]
    fn windows_that_are_too_many_to_be_counted_are_not_packed() {
        // 2^64 elements, whose number overflows to 0.
        let steps = steps_of_weight_gradient(1 << 50, 16);
        assert!(matches!(&steps[..], [Kind::Convolution(_)]), "{steps:?}");
    }

    #[test]
    fn large_convolutions_are_products_of_matrices_in_parts_of_the_images() {
        let images = |n: usize, size: usize| Layout::contiguous([n, 16, size, size]).unwrap();
        let few = steps(images(2, 12), [2, 8, 10, 10], false);
        assert!(matches!(&few[..], [Kind::Pack(_), Kind::Windows(_), Kind::Packed(_)]), "{few:?}");
        let many = steps(images(300, 32), [300, 8, 30, 30], false);
        assert!(many.len() > 3 && many.len() % 2 == 1, "{many:?}");
        let of_gpu = steps(images(2, 12), [2, 8, 10, 10], true);
        assert!(matches!(&of_gpu[..], [Kind::Convolution(_)]), "{of_gpu:?}");
        let small = steps(images(1, 4), [1, 8, 2, 2], false);
        assert!(matches!(&small[..], [Kind::Convolution(_)]), "{small:?}");
    }
}
