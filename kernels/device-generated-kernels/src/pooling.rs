//! Poolings and their gradients. An item has one element of the output; a gradient looks for the windows that
//! its element is in.

use std::fmt::Write;

use device_kernels::{Argument, Call, DType, Layout, Operator, Pool2d};
use smallvec::{SmallVec, smallvec};

use super::element::{Element, element};
use super::expression;
use super::opencl_c::{self, Parameters};
use super::space;
use super::{Place, Plan, Step, Target};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Recipe {
    function: Function,
    element: Element,
    /// The type of the places, where there are some.
    places: Option<Element>,
    wide: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Function {
    Max,
    MaxGradient,
    Mean { count_padding: bool },
    MeanGradient { count_padding: bool },
    Adaptive,
    AdaptiveGradient,
}

/// The names of the sizes and options: of the images, of the windows' array, and of a window.
const NAMES: [&str; 13] = ["count", "ih", "iw", "oh", "ow", "kh", "kw", "sy", "sx", "py", "px", "dy", "dx"];

pub(crate) fn plan(call: &Call, target: Target) -> Option<Plan> {
    let none = Pool2d::new([1, 1]);
    let (function, pool) = match call.operator() {
        Operator::MaxPool2d(pool) => (Function::Max, pool),
        Operator::MaxPool2dGrad(pool) => (Function::MaxGradient, pool),
        Operator::AvgPool2d { pool, count_padding } => (Function::Mean { count_padding }, pool),
        Operator::AvgPool2dGrad { pool, count_padding } => (Function::MeanGradient { count_padding }, pool),
        Operator::AdaptiveAvgPool2d => (Function::Adaptive, none),
        Operator::AdaptiveAvgPool2dGrad => (Function::AdaptiveGradient, none),
        _ => return None,
    };
    let (dtype, out) = call.outputs().first()?;
    let input = call.inputs().first()?.array()?.1;
    // Places are an input of a gradient, and an output otherwise.
    let places: Option<(DType, &Layout)> = match function {
        Function::MaxGradient => Some(call.inputs().get(1).and_then(Argument::array)?),
        _ => call.outputs().get(1).map(|(dtype, layout)| (*dtype, layout)),
    };
    let gradient = matches!(
        function,
        Function::MaxGradient | Function::MeanGradient { .. } | Function::AdaptiveGradient
    );
    let (images, windows) = if gradient { (out, input) } else { (input, out) };
    let mut indices: SmallVec<[i64; 24]> = smallvec![super::index(out.len())?];
    for layout in [images, windows] {
        indices.extend(super::indices([layout.shape()[2], layout.shape()[3]])?);
    }
    if matches!(function, Function::Adaptive | Function::AdaptiveGradient) {
        // The places of windows are computed by products of both sizes.
        let &[_, height, width, out_height, out_width] = &indices[..] else { return None };
        super::index(super::product([height + 1, out_height + 1])?)?;
        super::index(super::product([width + 1, out_width + 1])?)?;
    }
    for option in [pool.kernel, pool.stride, pool.padding, pool.dilation] {
        indices.extend(super::indices(option)?);
    }
    for &size in out.shape() {
        indices.push(super::index(size)?);
    }
    // The arrays are parameters as input, output and places.
    let mut arrays: SmallVec<[(Place, i64); 4]> = SmallVec::new();
    let of_out = if function == Function::MaxGradient { 2 } else { 1 };
    let of_places = if function == Function::MaxGradient { 1 } else { 2 };
    let all = [(0, Some(input)), (of_out, Some(out)), (of_places, places.map(|(_, layout)| layout))];
    for (array, layout) in all {
        let Some(layout) = layout else { continue };
        arrays.push((Place::Array(array), super::index(layout.offset())?));
        for &stride in layout.strides() {
            indices.push(super::index(stride)?);
        }
    }
    let places = match places {
        Some((dtype, _)) => Some(element(dtype)?),
        None => None,
    };
    let recipe = Recipe { function, element: element(*dtype)?, places, wide: target.wide };
    let (items, group) = super::line(out.len(), target.traits);
    let recipe = super::Kind::Pooling(recipe).into();
    Some(Plan::from(Step { recipe, arrays, values: SmallVec::new(), indices, items, group }))
}

/// Statements that run `inner` for each element of the window `(j2, j3)` that is in the image, at `y` and
/// `x`.
fn of_window(inner: &str) -> String {
    format!(
        "    const Index top = j2 * sy - py, left = j3 * sx - px;
    const Index bottom = min(kh, steps_before(ih, top, dy)), right = min(kw, steps_before(iw, left, dx));
    for (Index ky = steps_before(0, top, dy); ky < bottom; ky++) {{
        const Index y = top + ky * dy;
        for (Index kx = steps_before(0, left, dx); kx < right; kx++) {{
            const Index x = left + kx * dx;
{inner}        }}
    }}
"
    )
}

/// Statements that run `inner` for each window `(y, x)` that the element `(j2, j3)` of the image is in.
fn of_element(inner: &str) -> String {
    format!(
        "    const Index ty = j2 + py, tx = j3 + px;
    const Index bottom = min(oh, ty / sy + 1), right = min(ow, tx / sx + 1);
    for (Index y = steps_before(ty - (kh - 1) * dy, 0, sy); y < bottom; y++) {{
        if ((ty - y * sy) % dy != 0) continue;
        for (Index x = steps_before(tx - (kw - 1) * dx, 0, sx); x < right; x++) {{
            if ((tx - x * sx) % dx != 0) continue;
{inner}        }}
    }}
"
    )
}

/// How many of the places `first`, `first + step` and on are before `end`. And how many elements of a window
/// count in one direction: those from `low` on and before `high`. Neither is a loop, as a window may be far
/// larger than its image.
const STEPS: &str = "\
Index steps_before(Index end, Index first, Index step) {
    return first < end ? (end - first + step - 1) / step : 0;
}
Index counted(Index first, Index kernel_size, Index dilation, Index low, Index high) {
    const Index end = min(kernel_size, steps_before(high, first, dilation));
    return max(end - steps_before(low, first, dilation), (Index)0);
}
";

/// The window of an adaptive pooling: where it begins, and where the one before ends.
const ADAPTIVE: &str = "\
Index begin_of(Index i, Index size, Index windows) { return (Index)((long)i * size / windows); }
Index end_of(Index i, Index size, Index windows) { return (Index)((((long)i + 1) * size + windows - 1) / windows); }
";

impl Recipe {
    pub(crate) fn text(&self) -> String {
        let number = self.element.number();
        let mut arrays = vec![(self.element, false), (self.element, true)];
        arrays.extend(self.places.map(|places| (places, self.function == Function::Max)));
        let every: Vec<usize> = (0..arrays.len()).collect();
        let strides = space::names("", 4, &every);
        let functions = match self.function {
            Function::Adaptive | Function::AdaptiveGradient => ADAPTIVE,
            _ => STEPS,
        };
        let parameters = Parameters {
            arrays,
            indices: NAMES.map(str::to_owned).into_iter().chain(strides).collect(),
            wide: self.wide,
            functions: functions.to_owned(),
            ..Parameters::default()
        };
        let at = |array: usize| {
            format!("o{array} + j0 * s{array}_0 + j1 * s{array}_1 + y * s{array}_2 + x * s{array}_3")
        };
        let load = opencl_c::load(self.element, "p0", &at(0));
        let store = |value: &str| {
            opencl_c::store(self.element, "p1", &format!("o1 + {}", space::place("", 4, 1)), value)
        };
        let low = "0";
        let high = ["ih", "iw"];
        let counts = |count_padding: bool, [y, x]: [&str; 2]| {
            let one = |window: &str, s: &str, p: &str, k: &str, d: &str, size: &str| match count_padding {
                true => format!("counted({window} * {s} - {p}, {k}, {d}, -{p}, {size} + {p})"),
                false => format!("counted({window} * {s} - {p}, {k}, {d}, {low}, {size})"),
            };
            let y = one(y, "sy", "py", "kh", "dy", high[0]);
            let x = one(x, "sx", "px", "kw", "dx", high[1]);
            format!("(($T){y} * ($T){x})")
        };

        let mut body =
            format!("    const Index item = {};\n    if (item >= count) return;\n", opencl_c::item(0));
        body += &space::decode("", 4, "item");
        match self.function {
            Function::Max => {
                let _ =
                    writeln!(body, "    $T best = {};\n    Index place = -1;", expression::lowest(number));
                body += &of_window(&format!(
                    "            const $T value = {load};
            if (place < 0 || value > best || value != value) {{ best = value; place = y * iw + x; }}
"
                ));
                let _ = writeln!(body, "    {}", store("best"));
                if let Some(places) = self.places {
                    let value =
                        format!("({})(place < 0 ? 0 : place)", opencl_c::number_type(places.number()));
                    let to = format!("o2 + {}", space::place("", 4, 2));
                    let _ = writeln!(body, "    {}", opencl_c::store(places, "p2", &to, &value));
                }
            }
            Function::MaxGradient => {
                let places = self.places.expect("a gradient has places");
                body += "    $T total = 0;\n";
                body += &of_element(&format!(
                    "            if ((long){} == (long)j2 * iw + j3) total += {load};\n",
                    opencl_c::load(places, "p2", &at(2)),
                ));
                let _ = writeln!(body, "    {}", store("total"));
            }
            Function::Mean { count_padding } => {
                body += "    $T total = 0;\n";
                body += &of_window(&format!("            total += {load};\n"));
                let _ = writeln!(body, "    const $T counted_ = {};", counts(count_padding, ["j2", "j3"]));
                let _ = writeln!(body, "    {}", store("(counted_ > 0 ? total / counted_ : 0)"));
            }
            Function::MeanGradient { count_padding } => {
                body += "    $T total = 0;\n";
                body += &of_element(&format!(
                    "            total += {load} / {};\n",
                    counts(count_padding, ["y", "x"])
                ));
                let _ = writeln!(body, "    {}", store("total"));
            }
            Function::Adaptive => {
                let _ = write!(
                    body,
                    "    const Index top = begin_of(j2, ih, oh), bottom = end_of(j2, ih, oh);
    const Index left = begin_of(j3, iw, ow), right = end_of(j3, iw, ow);
    $T total = 0;
    for (Index y = top; y < bottom; y++) {{
        $T near = 0;
        for (Index x = left; x < right; x++) near += {load};
        total += near;
    }}
    {}
",
                    store("(total / (($T)(bottom - top) * ($T)(right - left)))"),
                );
            }
            Function::AdaptiveGradient => {
                // The windows of an element, by the same formula with image and windows exchanged.
                let _ = write!(
                    body,
                    "    $T total = 0;
    for (Index y = begin_of(j2, oh, ih); y < end_of(j2, oh, ih); y++) {{
        const Index height = end_of(y, ih, oh) - begin_of(y, ih, oh);
        for (Index x = begin_of(j3, ow, iw); x < end_of(j3, ow, iw); x++) {{
            const Index width = end_of(x, iw, ow) - begin_of(x, iw, ow);
            total += {load} / (($T)height * ($T)width);
        }}
    }}
    {}
",
                    store("total"),
                );
            }
        }
        let body = expression::spell(number, &body);
        opencl_c::program(&parameters, &body)
    }
}
