"""Writes cases.txt: what PyTorch prints, for the test tests/printing.rs to compare with.

Run it with a Python that has PyTorch, `python3 make_cases.py > cases.txt`; the tests themselves need neither.
With the path of another version's `torch/_tensor_str.py` as an argument it also runs that file's functions, on the
PyTorch that is installed, and stops where they print anything else.

The table was made with PyTorch 1.13.0a0, and compared in that way with the `_tensor_str.py` of PyTorch 2.15.0:
there is no difference.

All text is made by PyTorch's own functions: of the elements by `_tensor_str`, and of the suffixes, which may break a
line, by `_add_suffixes`. What is not PyTorch's is what the suffixes say: the device, and the dtype by its Rust name.
Whether the size and the dtype are said is what PyTorch does for the dtype that stands in the same place: `int64` for
i32, because each is what an integer literal is, and with float64 as the default dtype.
"""

import importlib.util
import itertools
import math
import sys

import torch

torch.set_default_dtype(torch.float64)

DTYPES = {
    "bool": torch.bool,
    "u8": torch.uint8,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
}
INTEGERS = ["u8", "i8", "i16", "i32", "i64"]
FLOATS = ["f16", "bf16", "f32", "f64"]
# What each is to PyTorch, for the question of what goes without saying.
STANDS_FOR = {**DTYPES, "i32": torch.int64, "i64": torch.int32}

PREFIX = "tensor("
nan, inf = math.nan, math.inf


def other_version(path):
    """The module `torch._tensor_str` of another version, on top of this one."""
    # Newer dtypes and devices that it looks up; no case uses them.
    for dtype in ["4_e2m1fn_x2", "8_e8m0fnu", "8_e5m2", "8_e5m2fnuz", "8_e4m3fn", "8_e4m3fnuz"]:
        if not hasattr(torch, "float" + dtype):
            setattr(torch, "float" + dtype, object())
    if not hasattr(torch.Tensor, "is_maia"):
        torch.Tensor.is_maia = False
    spec = importlib.util.spec_from_file_location("other_tensor_str", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


OTHER = other_version(sys.argv[1]) if len(sys.argv) > 1 else None


class Values:
    """The elements of a case: listed, or by a rule that the test knows too; `puts` replaces some."""

    def __init__(self, rule, values, puts=()):
        self.rule, self.values, self.puts = rule, list(values), list(puts)

    def put(self, index, value):
        return Values(self.rule, self.values, self.puts + [(index, value)])

    def elements(self, count):
        if self.rule == "values":
            assert len(self.values) == count
            elements = list(self.values)
        elif self.rule == "cycle":
            elements = list(itertools.islice(itertools.cycle(self.values), count))
        else:
            start, step = self.values
            elements = [start + index * step for index in range(count)]
        for index, value in self.puts:
            elements[index] = value
        return elements

    def text(self, number):
        words = [self.rule] + [number(value) for value in self.values]
        for index, value in self.puts:
            words += ["put", str(index), number(value)]
        return " ".join(words)


def values(*them):
    return Values("values", them)


def cycle(*them):
    return Values("cycle", them)


def arange(start=0, step=1):
    return Values("arange", (start, step))


def same(a, b):
    return a == b and math.copysign(1, a) == math.copysign(1, b) or a != a and b != b


def case(why, dtype, shape, elements, device="cpu"):
    if dtype in FLOATS:
        cast = lambda value: torch.tensor(float(value)).to(DTYPES[dtype]).item()
    else:
        cast = int
    # Listed values are rounded to the dtype here, so that they are exact in the table; rules have to be exact.
    elements = Values(elements.rule, map(cast, elements.values), [(i, cast(v)) for i, v in elements.puts])
    listed = elements.elements(math.prod(shape))
    tensor = torch.tensor(listed, dtype=torch.float64 if dtype in FLOATS else torch.int64).to(DTYPES[dtype])
    assert all(same(a, b) for a, b in zip(tensor.tolist(), listed)), (why, dtype)
    tensor = tensor.reshape(shape)

    in_its_place = str(tensor.to(STANDS_FOR[dtype]))
    suffixes = []
    if device != "cpu":
        suffixes.append(f"device='{device}'")
    if "size=" in in_its_place:
        suffixes.append(f"size={tuple(shape)}")
    if "dtype=" in in_its_place:
        suffixes.append(f"dtype={dtype}")

    text = printed(torch._tensor_str, tensor, suffixes)
    if device == "cpu" and "dtype=" not in in_its_place:
        assert text == in_its_place, (text, in_its_place)
    if OTHER:
        # The newer one needs half precision operations on the cpu that an older PyTorch may lack.
        widened = tensor.float() if dtype in ["f16", "bf16"] else tensor
        assert printed(OTHER, widened, suffixes) == text, text

    print()
    if why:
        print("#", why)
    number = {"bool": lambda value: str(bool(value)).lower()}.get(dtype, repr)
    print(dtype, str(list(shape)).replace(" ", ""), device, elements.text(number))
    for line in text.split("\n"):
        print(f"| {line}".rstrip())


def printed(module, tensor, suffixes):
    body = module._tensor_str(tensor, len(PREFIX))
    return module._add_suffixes(PREFIX + body, suffixes, len(PREFIX), force_newline=False)


def every_dtype():
    for dtype in DTYPES:
        some = {"bool": [1, 0, 0], "u8": [0, 7, 255]}.get(dtype, [-1, 0, 100])
        if dtype in FLOATS:
            some = [-1.5, 0.25, 100]
        rows = cycle(*some)
        case("a scalar", dtype, [], values(some[0]))
        case("one element, not a scalar", dtype, [1], values(some[0]))
        case("one element in four dimensions", dtype, [1, 1, 1, 1], values(some[1]))
        case("padded to the widest", dtype, [3], values(*some))
        case("rows", dtype, [2, 3], rows)
        case("an empty line between matrices", dtype, [2, 2, 3], rows)
        case("two empty lines between blocks", dtype, [2, 1, 2, 2], rows)
        case("empty", dtype, [0], values())
        case("empty, in the second dimension", dtype, [2, 0], values())
        case("empty, in the first dimension", dtype, [0, 3], values(), "openreg:1")
        case("empty, in the middle", dtype, [1, 0, 2], values())
        case("a scalar on a device", dtype, [], values(some[2]), "openreg:0")
        case("on a device", dtype, [2, 2], rows, "openreg:1")
        case("lines are broken", dtype, [2, 26], rows, "openreg:0")
        case("summarized", dtype, [1001], rows)
        case("summarized in all dimensions", dtype, [8, 9, 40], rows, "openreg:0")


def integers():
    for dtype in INTEGERS:
        info = torch.iinfo(DTYPES[dtype])
        case("the ends of the range", dtype, [3], values(info.min, 0, info.max))
        case("wide rows", dtype, [2, 9], cycle(info.min, info.max))
    case("1001 numbers, of different widths", "i32", [1001], arange())
    case("a million", "i32", [1000, 1000], arange())
    case("what is not shown does not decide on the width", "i64", [1001], arange(0, 0).put(500, -123456))
    case("what is shown does", "i64", [1001], arange(0, 0).put(998, -123456))
    case("the sign counts", "i16", [2, 2], values(-5, 5, -10, 10))
    case("the width is that of all dimensions", "i32", [2, 2, 2], values(1, 2, 3, 4, 5, 6, 7, -80000))


def floats():
    for dtype in FLOATS:
        info = torch.finfo(DTYPES[dtype])
        small, large, tiny = info.tiny, info.max, info.tiny * info.eps
        case("whole", dtype, [3], values(1, -2, 30))
        case("whole, a scalar", dtype, [], values(7))
        case("not whole", dtype, [3], values(1, -2.5, 30))
        case("not exact in binary", dtype, [4], values(0.1, 0.2, 0.3, 1 / 3))
        case("zeros", dtype, [2], values(0.0, -0.0))
        case("negative zero", dtype, [], values(-0.0))
        case("nan", dtype, [], values(nan))
        case("infinity", dtype, [], values(inf))
        case("not finite, with whole numbers", dtype, [4], values(nan, inf, -inf, 2))
        case("not finite, with others", dtype, [5], values(nan, inf, -inf, -0.0, 2.5))
        case("not finite, with exponents", dtype, [6], values(nan, inf, -inf, 0.0, -0.0, 2.0 ** -15))
        case("nothing that counts for the width", dtype, [2, 30], cycle(nan, -0.0, -inf))
        case("exponents", dtype, [3], values(2.0 ** -13, -1, 30000))
        case("the smallest and the largest", dtype, [4], values(small, -small, large, -large))
        case("the smallest of all", dtype, [], values(tiny))
        case("the ratio is 1000: whole", dtype, [2], values(1, 1000))
        case("the ratio is more than 1000: whole", dtype, [2], values(1, 1008))
        case("the ratio is 1000", dtype, [2], values(0.5, 500))
        case("the ratio is more than 1000", dtype, [2], values(0.5, 504))
        case("the sign does not matter for the ratio", dtype, [2], values(-2, 3000))
        case("just at 0.0001, as near as the dtype comes", dtype, [2], values(0.0001, 0.0))
        case("summarized, with a fraction that is not shown", dtype, [1001], cycle(1.0).put(500, 0.5))
        case("summarized, with a fraction that is shown", dtype, [1001], cycle(1.0).put(3 + 995, 0.5))
        case("summarized, with an infinity that is not shown", dtype, [7, 144], cycle(1.5, 2.5).put(144 * 3, inf))
        case("the ratio of what is shown decides", dtype, [1001], cycle(2.0).put(997, 30000))
        case("the same, shown", dtype, [1001], cycle(2.0).put(1000, 30000))
    for dtype in ["f32", "f64"]:
        case("the largest is 1e8", dtype, [2], values(1e8, -2e7))
        case("the largest is more than 1e8", dtype, [2], values(1e8 + 8, -2e7))
        case("the ratio is just more than 1000: whole", dtype, [2], values(100, 100001))
        case("zero in the middle of exponents", dtype, [3], values(1e9, 0, -1e9))
        case("more than 1e8 of both signs", dtype, [], values(-123456789))
    step = lambda value, to: torch.nextafter(torch.tensor(value), torch.tensor(to)).item()
    case("the largest is 1e8, and one is not whole", "f64", [2], values(1e8, 99999999.5))
    case("the largest is more than 1e8, and one is not whole", "f64", [2], values(1e8 + 0.5, 99999999.5))
    case("the ratio is just more than 1000", "f64", [2], values(0.5, step(500.0, inf)))
    case("the ratio is 1000 after rounding", "f64", [2], values(0.1, 100))
    case("the ratio is more than 1000, but not the product", "f64", [2], values(0.5459, 545.9000000000001))
    case("the product is more than 1000 times, but not the ratio", "f64", [2], values(0.5076, 507.6000000000001))
    case("the smallest is 0.0001", "f64", [2], values(0.0001, 0.05))
    case("the smallest is just less than 0.0001", "f64", [2], values(step(0.0001, 0.0), 0.05))
    case("the smallest is just more than 0.0001", "f32", [], values(0.000100000005))
    case("the ratio overflows", "f64", [2], values(5e-324, 1e308))
    case("exponents of three digits", "f64", [3], values(1e100, -1e-100, 1))
    case("the widest exponent decides", "f64", [2, 2], values(1e-9, 1e-99, 1e-100, nan))
    case("a large number of no meaning to the last digit", "f64", [], values(12345678.9))
    case("halves are rounded to even", "f64", [4], values(0.03125, 0.09375, 1.00003125, 2.5))
    case("halves are rounded to even in exponents", "f64", [3], values(103125, 109375, 1))
    case("not quite halves", "f64", [5], values(1.00005, 2.00005, 1.00015, 0.00015, 0.00025))
    case("rounded up to one digit more", "f64", [2], values(9.99996, -0.99996))
    case("rounded up to the next exponent", "f64", [2], values(9.99996e9, -9.99994e-7))
    case("rounded to zero", "f64", [2], values(step(0.0001, 1.0), -0.00014))
    case("numbers of all sizes", "f64", [3, 8], cycle(1e-3, -1e-2, 0.1, 1, -0.75))
    case("lines of exponents", "f64", [20], arange(1, 1e5))
    case("lines of exponents", "f32", [2, 13], cycle(1e-7, -3e4))
    case("lines of exponents, summarized", "f64", [1001], arange(1, 1e5))
    case("lines of wide exponents, summarized", "f64", [2, 1001], cycle(-1e-100, 1))
    case("lines of decimals", "f32", [30], arange(-4, 0.5))
    case("lines of whole numbers", "f16", [50], arange(-25, 1))
    case("1001 numbers", "f64", [1001], arange(0, 0.5))


def summaries():
    for shape in [
        [1000], [1001], [10, 100], [1, 1001], [1001, 1], [6, 167], [7, 143], [167, 6], [143, 7], [334, 3], [3, 334],
        [7, 7, 21], [6, 6, 28], [2, 3, 7, 30], [7, 2, 3, 30], [6, 6, 6, 6], [7, 7, 7, 7], [1, 1, 1, 1, 1001],
        [7, 1, 143], [8, 1, 1, 126], [2, 2, 2, 2, 2, 1],
    ]:
        case("summarized" if math.prod(shape) > 1000 else "not summarized", "i32", shape, arange())
    case("lines are broken in a summary", "i64", [1001], cycle(-(2 ** 63)))
    case("lines are broken in a summary", "i64", [7, 200], cycle(-(2 ** 63), 1), "openreg:0")


def lines():
    for shape in [[24], [25], [48], [49], [2, 24], [2, 25], [1, 2, 23], [1, 2, 24], [1, 1, 23, 1], [1, 1, 1, 22],
                  [1, 1, 1, 23], [1] * 9 + [21], [1] * 9 + [22], [1] * 75 + [3]]:
        case(f"rows of one digit, {shape[-1]} in the last dimension", "i32", shape, arange(0, 0))
    for width, count in [(2, 18), (2, 19), (9, 6), (9, 7), (20, 3), (20, 4)]:
        case(f"rows of width {width}", "i64", [count], cycle(-(10 ** (width - 2))))
    case("nothing is wider than a whole line", "f64", [4], values(-1e300, 1e-300, 1, nan))


def suffixes():
    # Each is a number of elements and their width: the first ends where a suffix still fits, the second where not.
    for count, width in [(10, 4), (7, 7), (8, 6), (9, 5)]:
        case("a dtype that may not fit", "i64", [count], cycle(10 ** (width - 1)))
    for count, width in [(17, 1), (13, 2), (18, 1), (12, 2)]:
        case("a device that may not fit", "i32", [count], cycle(10 ** (width - 1)), "openreg:0")
    for count, width in [(10, 2), (14, 1), (13, 1), (11, 2)]:
        case("a dtype that may not fit after the device", "i64", [count], cycle(10 ** (width - 1)), "openreg:1")
    for count in [44, 45, 41, 42, 47, 48]:
        case("a dtype that may not fit after the last of some lines", "i16", [count], arange(0, 0))
        case("a device that may not fit after the last of some lines", "bool", [count // 4], cycle(1), "openreg:0")
    for count in [30, 31, 32]:
        case("a device that may not fit after the last of some lines", "i32", [count], cycle(10), "openreg:1")
        case("a dtype and a device that may not fit", "u8", [count], cycle(10), "openreg:1")
    for count in range(6, 12):
        case("after floats", "f32", [count], arange(0, 0.5), "openreg:0")
        case("after floats", "bf16", [2, count], arange(0, 0.5))
    case("a long size", "i32", [0] + [1] * 18, values(), "openreg:0")
    case("a longer size", "u8", [3, 0] + [10] * 12, values(), "openreg:0")
    case("a dtype just fits after a size on a line of its own", "i64", [0] + [1] * 18, values(), "openreg:0")
    case("a dtype does not fit there", "i64", [0] + [1] * 17 + [10], values(), "openreg:0")
    case("a size that fits", "f64", [0] + [1] * 19, values())
    case("a size that does not", "f64", [0] + [1] * 20, values())
    case("a size of one dimension is not said", "f64", [0], values(), "openreg:0")


print(f"# What PyTorch {torch.__version__} prints; made by make_cases.py. A case is its dtype, shape, device and elements,")
print("# then the text after `|`. `cycle` repeats its values, `arange` is a start and a step, `put` replaces an element.")
every_dtype()
integers()
floats()
summaries()
lines()
suffixes()
