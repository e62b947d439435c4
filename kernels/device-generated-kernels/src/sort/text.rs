//! The texts of the kernels that sort.

use std::fmt::Write;

use super::super::element::{Element, Number};
use super::super::opencl_c::{self, Parameters};
use super::super::space;
use super::{Form, GROUP, Kind, Recipe};

impl Recipe {
    pub(crate) fn text(&self) -> String {
        let mut names: Vec<String> =
            ["rows", "len", "first", "run", "step0", "step1", "step2"].map(str::to_owned).into();
        names.extend(space::names("", self.kept, &[0, 1, 2]));
        let parameters = Parameters {
            arrays: self.arrays(),
            values: vec![self.number()],
            indices: names,
            wide: self.wide,
            functions: self.keys(),
            group: matches!(self.form, Form::Group(_)).then_some([GROUP as usize, 1, 1]),
        };
        let body = match self.form {
            Form::Count => self.count(),
            Form::Digits => self.digits(),
            Form::Group(size) => self.group(size),
            Form::Merge => self.merge(),
        };
        opencl_c::program(&parameters, &body)
    }

    fn number(&self) -> Number {
        self.element.number()
    }

    /// The elements of intermediate results: keys, and indices if they are wanted.
    fn scratch(&self, written: bool) -> impl Iterator<Item = (Element, bool)> {
        let place = if self.wide { Element::I64 } else { Element::I32 };
        let places = self.indices.map(|_| (place, written));
        [(self.number().element(), written)].into_iter().chain(places)
    }

    /// The arrays: what is read, what is worked in, what is written.
    fn arrays(&self) -> Vec<(Element, bool)> {
        let mut arrays = Vec::new();
        match self.form {
            Form::Merge => arrays.extend(self.scratch(false)),
            _ => arrays.push((self.element, false)),
        }
        if self.form == Form::Digits {
            arrays.extend(self.scratch(true).chain(self.scratch(true)));
        } else if !self.last {
            arrays.extend(self.scratch(true));
        }
        if self.last {
            arrays.extend(self.values.then_some((self.element, true)));
            arrays.extend(self.indices.map(|element| (element, true)));
        }
        arrays
    }

    /// Functions from bits to keys and back.
    fn keys(&self) -> String {
        let t = opencl_c::number_type(self.number());
        let (sign, all) = match self.element.size() {
            1 => ("0x80u", "0xffu"),
            2 => ("0x8000u", "0xffffu"),
            4 => ("0x80000000u", "0xffffffffu"),
            _ => ("0x8000000000000000ul", "0xfffffffffffffffful"),
        };
        let (to, from) = match self.kind {
            Kind::Unsigned => ("bits".to_owned(), "key".to_owned()),
            Kind::Signed => (format!("bits ^ {sign}"), format!("key ^ {sign}")),
            // The negative number with the larger bits is the smaller one.
            Kind::Float => (
                format!("bits ^ ((bits & {sign}) ? {all} : {sign})"),
                format!("key ^ ((key & {sign}) ? {sign} : {all})"),
            ),
        };
        format!(
            "{t} to_key({t} bits, {t} flip) {{ return ({to}) ^ flip; }}\n\
             {t} of_key({t} key, {t} flip) {{ key ^= flip; return {from}; }}\n"
        )
    }

    /// The key of the input's element `at` of the row.
    fn load(&self, at: &str) -> String {
        format!("to_key({}, v0)", opencl_c::load(self.element, "p0", &format!("x0 + ({at}) * step0")))
    }

    /// Statements that declare where the row begins in the input and in the outputs.
    fn row(&self) -> String {
        let mut text = space::decode("", self.kept, "row");
        let begins_input = if self.form == Form::Merge { None } else { Some((0, 0)) };
        let outputs = if self.last { self.outputs() } else { Vec::new() };
        for (array, parameter) in begins_input.into_iter().chain(outputs) {
            let place = space::place("", self.kept, array);
            let _ = writeln!(text, "    const Index x{array} = o{parameter} + {place};");
        }
        text
    }

    /// The outputs: the number of each among the arrays of the call, and among the parameters.
    fn outputs(&self) -> Vec<(usize, usize)> {
        let count = usize::from(self.values) + usize::from(self.indices.is_some());
        let before = self.arrays().len() - count;
        (0..count).map(|output| (1 + output, before + output)).collect()
    }

    /// Statements that write a key and its index to the place `place` of the row: to the outputs, or to the
    /// intermediate result whose arrays begin with the parameter `result`.
    fn store(&self, result: usize, place: &str, key: &str, index: &str) -> String {
        if !self.last {
            let at = |parameter: usize| format!("o{parameter} + row * len + ({place})");
            let scratch: Vec<_> = self.scratch(true).collect();
            let values = [key, index].into_iter().zip(scratch).enumerate();
            let stores = values.map(|(number, (value, (element, _)))| {
                let parameter = result + number;
                opencl_c::store(element, &format!("p{parameter}"), &at(parameter), value)
            });
            return stores.collect::<Vec<_>>().join(" ");
        }
        let bits = format!("of_key({key}, v0)");
        let values = self.values.then_some((self.element, bits));
        let indices = self
            .indices
            .map(|element| (element, format!("({}){index}", opencl_c::number_type(element.number()))));
        let stores = values.into_iter().chain(indices).zip(self.outputs());
        let stores = stores.map(|((element, value), (array, parameter))| {
            let at = format!("x{array} + ({place}) * step{array}");
            opencl_c::store(element, &format!("p{parameter}"), &at, &value)
        });
        format!("if (({place}) < first) {{ {} }}", stores.collect::<Vec<_>>().join(" "))
    }

    fn count(&self) -> String {
        let t = opencl_c::number_type(self.number());
        let own = self.load("at");
        let other = self.load("i");
        format!(
            "    const Index item = {item};
    if (item >= rows * len) return;
    const Index row = item / len, at = item % len;
{row}    const {t} own = {own};
    Index place = 0;
    for (Index i = 0; i < at; i++) place += {other} <= own;
    for (Index i = at + 1; i < len; i++) place += {other} < own;
    {store}
",
            item = opencl_c::item(0),
            row = self.row(),
            store = self.store(1, "place", "own", "at"),
        )
    }

    fn digits(&self) -> String {
        let scratch: Vec<(Element, bool)> = self.scratch(true).collect();
        let with = self.indices.is_some();
        let t = opencl_c::stored_type(scratch[0].0);
        let only = |text: &str| if with { text.to_owned() } else { String::new() };
        let second = 1 + scratch.len();
        let mut text = format!(
            "    const Index runs = (len + run - 1) / run, item = {item};
    if (item >= rows * runs) return;
    const Index row = item / runs, begin = item % runs * run, end = min(begin + run, len);
{row}    __global {t} *from = p1 + o1 + row * len, *to = p{second} + o{second} + row * len, *other;
",
            item = opencl_c::item(0),
            row = self.row(),
        );
        text += &only(&format!(
            "    __global Index *from_at = p2 + o2 + row * len, *to_at = p{third} + o{third} + row * len;
    __global Index *other_at;\n",
            third = second + 1
        ));
        let _ = write!(
            text,
            "    for (Index i = begin; i < end; i++) {{ from[i] = {}; {} }}
    for (int shift = 0; shift < {}; shift += 8) {{
        Index places[256];
        for (int digit = 0; digit < 256; digit++) places[digit] = 0;
        for (Index i = begin; i < end; i++) places[(from[i] >> shift) & 255]++;
        Index next = begin;
        for (int digit = 0; digit < 256; digit++) {{
            const Index count = places[digit];
            places[digit] = next;
            next += count;
        }}
        for (Index i = begin; i < end; i++) {{
            const Index place = places[(from[i] >> shift) & 255]++;
            to[place] = from[i];
            {}
        }}
        other = from; from = to; to = other;
        {}
    }}
",
            self.load("i"),
            only("from_at[i] = i;"),
            8 * self.element.size(),
            only("to_at[place] = from_at[i];"),
            only("other_at = from_at; from_at = to_at; to_at = other_at;"),
        );
        if self.last {
            let index = if with { "from_at[i]" } else { "i" };
            let store = self.store(0, "i", "from[i]", index);
            let _ = writeln!(text, "    for (Index i = begin; i < end; i++) {{ {store} }}");
        }
        text
    }

    fn group(&self, size: i64) -> String {
        let number = self.number();
        let t = opencl_c::number_type(number);
        let place = if self.wide { Number::Long } else { Number::Int };
        let with = self.indices.is_some();
        let only = |text: &str| if with { text.to_owned() } else { String::new() };
        let barrier = opencl_c::barrier();
        // What fills up a run comes behind all elements: its key is the largest, and its place is behind the
        // row.
        format!(
            "    {shared}
    {shared_places}
    const Index runs = (len + run - 1) / run;
    const Index row = {group} / runs, begin = {group} % runs * run;
    const int t = {item};
{start}    for (int i = t; i < {size}; i += {GROUP}) {{
        const Index at = begin + i;
        keys[i] = at < len ? {load} : ({t})-1;
        {fill}
    }}
    {barrier}
    for (int span = 2; span <= {size}; span *= 2) {{
        for (int width = span / 2; width > 0; width /= 2) {{
            for (int i = t; i < {size} / 2; i += {GROUP}) {{
                const int a = 2 * i - (i & (width - 1)), b = a + width;
                const {t} of_a = keys[a], of_b = keys[b];
                const int is_after = of_a > of_b{tie};
                if (is_after == ((a & span) == 0)) {{
                    keys[a] = of_b; keys[b] = of_a;
                    {swap}
                }}
            }}
            {barrier}
        }}
    }}
    for (int i = t; i < {size}; i += {GROUP}) {{
        const Index at = begin + i;
        if (at < len) {{ {store} }}
    }}
",
            shared = opencl_c::shared(number, "keys", size as usize),
            shared_places = only(&opencl_c::shared(place, "places", size as usize)),
            group = opencl_c::group(0),
            item = opencl_c::item_in_group(0),
            start = self.row(),
            load = self.load("at"),
            fill = only("places[i] = at;"),
            tie = only(" || (of_a == of_b && places[a] > places[b])"),
            swap = only("const Index other = places[a]; places[a] = places[b]; places[b] = other;"),
            store = self.store(1, "at", "keys[i]", if with { "places[i]" } else { "at" }),
        )
    }

    fn merge(&self) -> String {
        let t = opencl_c::number_type(self.number());
        let key = |at: &str| format!("p0[o0 + row * len + {at}]");
        let index = if self.indices.is_some() { "p1[o1 + row * len + at]" } else { "at" };
        let result = self.scratch(false).count();
        format!(
            "    const Index item = {item};
    if (item >= rows * len) return;
    const Index row = item / len, at = item % len;
    const Index begin = at / run / 2 * 2 * run, middle = min(begin + run, len);
    const {t} own = {own};
    const int is_first = at < middle;
    Index low = is_first ? middle : begin, high = is_first ? min(middle + run, len) : middle;
    const Index start = low;
    while (low < high) {{
        const Index center = low + (high - low) / 2;
        const {t} other = {other};
        if (other < own || (other == own && !is_first)) low = center + 1; else high = center;
    }}
    const Index place = low - start + (is_first ? at : begin + (at - middle));
{row}    {store}
",
            item = opencl_c::item(0),
            own = key("at"),
            other = key("center"),
            row = self.row(),
            store = self.store(result, "place", "own", index),
        )
    }
}
