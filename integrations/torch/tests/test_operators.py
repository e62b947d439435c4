"""Operators where a kernel could differ from the CPU: types, halves, outputs of another shape, NaN, aliases.

Each case makes its tensors by `t`, on the device or on the CPU, and has to give the same values, or to fail on both.
"""

import math

import pytest
import torch
from torch.nn import functional as F

f16, bf16, f32, f64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
i32, i64, u8 = torch.int32, torch.int64, torch.uint8
nan, inf = math.nan, math.inf


def with_out(function, *shape, dtype=f32):
    """Calls a function with an output of a shape, and returns the output."""

    def call(t):
        out = torch.zeros(shape, dtype=dtype, device=t(0.0).device)
        function(t, out)
        return out

    return call


def in_place(function, values, dtype=f32):
    def call(t):
        tensor = t(values, dtype)
        function(t, tensor)
        return tensor

    return call


def gradient(function, shape):
    def call(t):
        tensor = torch.zeros(shape, device=t(0.0).device, requires_grad=True)
        function(t, tensor).backward()
        return tensor.grad

    return call


def statistics(t):
    norm = torch.nn.BatchNorm1d(3).to(t(0.0).device)
    values = torch.arange(24.0).reshape(8, 3).to(t(0.0).device)
    norm(values.to(bf16))
    return torch.stack([norm.running_mean, norm.running_var])


CASES = {
    # Types.
    "integers into a float": with_out(lambda t, o: torch.neg(t([1, 2], u8), out=o), 2),
    "a quotient of integers into integers": with_out(lambda t, o: torch.div(t([7]), t([2]), out=o), 1, dtype=i64),
    "booleans into integers": with_out(lambda t, o: torch.add(t([True]), t([True]), out=o), 1, dtype=i64),
    "a sum that wraps in 32 bits": with_out(
        lambda t, o: torch.add(t([2**31 - 1], i32), t([1], i32), out=o), 1, dtype=i64
    ),
    "an element without dimensions": with_out(lambda t, o: torch.mul(t([3, 4]), t(0.5), out=o), 2, dtype=i64),
    "addcdiv of integers": lambda t: torch.addcdiv(t([1]), t([4]), t([2])),
    "integers and a float": lambda t: t([1, 2, 3]) + 0.5,
    "halves and integers": lambda t: t([1.5], f16) * t([3]),
    "two kinds of halves": lambda t: t([1.5], f16) + t([3.0], bf16),
    "an element of the CPU": lambda t: t(0.1) == torch.tensor(0.1, dtype=f64),
    "where with an element of the CPU": lambda t: torch.where(t([True]), t(0.1), torch.tensor(0.1, dtype=f64)),
    # Numbers beside halves are wider.
    "a large divisor": lambda t: t([60000.0], f16) / 1e5,
    "a large factor": lambda t: t([1e-3], f16) * 1e5,
    "a small factor": lambda t: t([1000.0], bf16) * 1e-8,
    # Numbers that a type does not have.
    "a fill out of range": lambda t: torch.full((1,), 2**40, dtype=i32, device=t(0).device),
    "a comparison out of range": lambda t: torch.zeros(1, dtype=i32, device=t(0).device) == 2**32,
    "a mask of halves": lambda t: t([1.0], f16).masked_fill(t([True]), -1e9),
    "a fill with a list": lambda t: t([1.0, 2.0]).fill_(t([3.0])),
    "halves to bytes": lambda t: t([-1.0, 300.0], f16).to(u8),
    # Outputs of another shape.
    "a sum into a list": with_out(lambda t, o: torch.sum(t([[1.0, 2.0], [3.0, 4.0]]), (0, 1), out=o), 1),
    "a sum into a row": with_out(lambda t, o: torch.sum(t([[1.0, 2.0], [3.0, 4.0]]), 0, out=o), 1, 2),
    "the largest into a list": with_out(lambda t, o: torch.argmax(t([1.0, 3.0]), out=o), 1, dtype=i64),
    "a sum into nothing": with_out(lambda t, o: torch.add(t([1.0, 2.0]), 1, out=o), 0),
    "the ten largest into nothing": with_out(
        lambda t, o: torch.topk(t([1.0, 5.0, 3.0]), 2, out=(o, torch.zeros(0, dtype=i64, device=o.device))), 0
    ),
    # Order.
    "sorted with NaN": lambda t: torch.sort(-t([nan, 1.0, 2.0])).values,
    "sorted down with NaN": lambda t: torch.sort(t([1.0, nan, -inf]), descending=True).values,
    "two zeros": lambda t: torch.sort(t([0.0, -0.0]), stable=True).indices,
    "the largest with NaN": lambda t: torch.topk(t([1.0, -nan, 2.0]), 1).values,
    # Aliases.
    "joined into a part": in_place(lambda t, b: torch.cat([b[2:], b[:2]], out=b), [0.0, 1.0, 2.0, 3.0]),
    "scattered into its source": in_place(
        lambda t, b: torch.scatter(t([0.0, 0.0]), 0, t([1, 0]), b, out=b), [5.0, 6.0]
    ),
    "a lazy clone": in_place(lambda t, b: torch._lazy_clone(b).add_(1), [0.0, 1.0]),
    "a product in place": in_place(lambda t, b: b.addmm_(t([[1.0, 2.0]]), t([[3.0], [4.0]])), [[1.0]]),
    # Losses.
    "an ignored row that is infinite": lambda t: F.cross_entropy(t([[-inf, 0.0], [0.0, 1.0]]), t([-100, 0])),
    "all rows ignored": gradient(lambda t, x: F.cross_entropy(x, t([-100, -100])), (2, 3)),
    # Others.
    "negative infinity": lambda t: torch.isneginf(t([-inf, inf, nan, 0.0])),
    "positive infinity of halves": lambda t: torch.isposinf(t([-inf, inf, nan, 0.0], f16)),
    "integers are not infinite": lambda t: torch.isneginf(t([1, -2])),
    "a weight of one": lambda t: torch.lerp(t([1e8]), t([1.0]), 1.0),
    "a weight of a tenth": lambda t: torch.lerp(t([1.0, 2.0]), t([3.0, 5.0]), 0.1),
    "statistics of half the precision": statistics,
    "a negative index": lambda t: t([[1.0, 2.0], [3.0, 4.0]])[t([-1, 0])],
    "an index of two dimensions": lambda t: t([1.0, 2.0, 3.0])[t([[0, 2], [1, 1]])],
}


def outcome(case, device):
    def t(values, dtype=None):
        return torch.tensor(values, dtype=dtype, device=device)

    try:
        return case(t).cpu()
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        return type(error)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("name", CASES)
def test_an_operator_does_what_the_cpu_does(device, name):
    here, there = outcome(CASES[name], "cpu"), outcome(CASES[name], device)
    if isinstance(here, type) or isinstance(there, type):
        assert here is there
        return
    assert (there.dtype, there.shape) == (here.dtype, here.shape)
    torch.testing.assert_close(there, here, equal_nan=True)


def test_autocast_of_the_cpu_does_not_change_what_it_computes_for_a_device(device):
    layer = torch.nn.Conv3d(1, 1, 2).to(device)
    with torch.autocast("cpu", dtype=bf16):
        assert layer(torch.ones(1, 1, 3, 3, 3, device=device)).dtype == f32


# Functions of two or three tensors that have a way of their own where all are alike, by name, new and in place.
FORMS = {
    "add": lambda a, b, c: a.add(b),
    "add a multiple": lambda a, b, c: a.add(b, alpha=0.5),
    "add in place": lambda a, b, c: a.add_(b, alpha=-2),
    "sub": lambda a, b, c: a.sub(b),
    "sub in place": lambda a, b, c: a.sub_(b),
    "mul": lambda a, b, c: a.mul(b),
    "mul in place": lambda a, b, c: a.mul_(b),
    "div": lambda a, b, c: a.div(b),
    "div in place": lambda a, b, c: a.div_(b),
    "a number": lambda a, b, c: a.mul(3.5),
    "neg": lambda a, b, c: a.neg(),
    "sigmoid": lambda a, b, c: a.sigmoid(),
    "exp in place": lambda a, b, c: a.exp_(),
    "threshold": lambda a, b, c: torch.ops.aten.threshold_backward(a, b, 0.0),
    "lerp in place": lambda a, b, c: a.lerp_(b, 0.25),
    "addcmul in place": lambda a, b, c: a.addcmul_(b, c, value=0.5),
    "addcdiv in place": lambda a, b, c: a.addcdiv_(b, c, value=0.5),
}
OPERANDS = {
    "alike": lambda t: (t([1.0, -2.0, 3.0]), t([4.0, 5.0, -6.0]), t([0.5, 2.0, 8.0])),
    "halves": lambda t: (t([1.0, -2.0], bf16), t([4.0, 5.0], bf16), t([0.5, 2.0], bf16)),
    "several types": lambda t: (t([1.0, -2.0], f64), t([4.0, 5.0], f32), t([1, 2], i64)),
    "several shapes": lambda t: (t([[1.0, -2.0], [3.0, 4.0]]), t([4.0, 5.0]), t([[0.5], [2.0]])),
    "too small": lambda t: (t([1.0, -2.0]), t([[4.0, 5.0], [1.0, 1.0]]), t([0.5, 2.0])),
    "other strides": lambda t: (t([[1.0, 2.0], [3.0, 4.0]]).t(), t([[1.0, 2.0], [3.0, 5.0]]), t([[1.0, 2.0], [4.0, 8.0]])),
    "one of the CPU": lambda t: (t([1.0, -2.0]), torch.tensor(0.1, dtype=f64), torch.tensor(2.0)),
    "the same": lambda t: (lambda a: (a, a, a))(t([1.0, -2.0, 3.0])),
    "overlapping": lambda t: (lambda a: (a[1:], a[:-1], a[:-1]))(t([1.0, -2.0, 3.0, 4.0])),
    "nothing": lambda t: (t([]), t([]), t([])),
    "integers": lambda t: (t([1, 2]), t([3, 4]), t([5, 6])),
}


# Of three tensors, the second may not be on the CPU, nor may it beside one of CUDA.
CALLS = [
    (form, operands)
    for form in FORMS
    for operands in OPERANDS
    if not (form.startswith("addc") and operands == "one of the CPU")
]


@pytest.mark.parametrize(("form", "operands"), CALLS)
def test_a_form_whose_tensors_are_alike_does_what_the_cpu_does(device, form, operands):
    def case(t):
        given = OPERANDS[operands](t)
        return torch.stack([FORMS[form](*given).flatten().double(), given[0].flatten().double()])

    here, there = outcome(case, "cpu"), outcome(case, device)
    if isinstance(here, type) or isinstance(there, type):
        assert here is there
        return
    torch.testing.assert_close(there, here, rtol=2e-2 if operands == "halves" else 1e-5, atol=1e-6)
