"""Nodes of a traced graph as steps of an expression, whose text `torch.ops.device_torch.expression` takes.

Each node is computed in the type that PyTorch computes it in, and rounded to the type of its result: an
expression gives what its operators give one after the other.
"""

import math

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

aten, prims = torch.ops.aten, torch.ops.prims

TYPES = {
    torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.float64: "f64", torch.int32:
    "i32", torch.int64: "i64", torch.uint8: "u8", torch.bool: "bool",
}  # fmt: skip

MOST_INPUTS, MOST_OUTPUTS, MOST_NODES = 16, 8, 128


class Unsupported(Exception):
    """Why a node is in no expression."""


class Text:
    """The text of an expression while it grows. A value is the number of its step."""

    def __init__(self):
        self.steps, self.types, self.operators = [], [], 0
        self._known = {}

    def _add(self, step, dtype):
        """Equal steps are one."""
        if step not in self._known or step.startswith("input"):
            self._known[step] = len(self.steps)
            self.steps.append(step)
            self.types.append(dtype)
            if len(self.steps) > MOST_NODES:
                raise Unsupported("an expression has too few nodes for it")
        return self._known[step]

    def input(self, dtype):
        return self._add(f"input {TYPES[dtype]}", dtype)

    def literal(self, dtype, number):
        if not fits(number, dtype):
            raise Unsupported(f"{number} is no number of the type {dtype}")
        if dtype.is_floating_point:
            number = float(number)
        elif dtype != torch.bool:
            number = int(number)
        return self._add(f"literal {TYPES[dtype]} {_written(number)}", dtype)

    def apply(self, operator, *values, dtype=None, options=""):
        """The result of an operator, which has the type of its last operand, unless `dtype` is another
        one."""
        words = [operator, *map(str, values), *([options] if options else [])]
        count = len(self.steps)
        value = self._add(" ".join(words), dtype or self.types[values[-1]])
        self.operators += len(self.steps) - count
        return value

    def cast(self, value, dtype):
        """The value as another type, where kernels convert as PyTorch does."""
        before = self.types[value]
        if before == dtype:
            return value
        if before.is_floating_point and not dtype.is_floating_point and dtype != torch.bool:
            raise Unsupported("PyTorch has rules of its own for floats that become integers")
        return self.apply("copy", value, dtype=dtype, options=TYPES[dtype])

    def finished(self, outputs):
        return ", ".join([*self.steps, *(f"output {value}" for value in outputs)])


def _written(number):
    """A number as Rust reads it."""
    if isinstance(number, bool):
        return str(number).lower()
    if isinstance(number, float) and not math.isfinite(number):
        return "NaN" if math.isnan(number) else f"{'-' if number < 0 else ''}inf"
    return repr(number)


def fits(number, dtype):
    """Whether a number is one of a type: what is not, PyTorch refuses, or wraps in its own way."""
    if dtype == torch.bool:
        return isinstance(number, bool)
    if dtype.is_floating_point:
        return not math.isfinite(number) or abs(number) <= torch.finfo(dtype).max
    limits = torch.iinfo(dtype)
    return isinstance(number, int) and limits.min <= number <= limits.max


def wide(dtype):
    """The type in which numbers beside halves are, and several operators after one another."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


class Emitter:
    """Adds nodes to a text. `resolve(argument, dtype)` has the value of a node of the graph, where `dtype`
    is the type that an element of the CPU becomes."""

    def __init__(self, text, resolve):
        self.text, self._resolve = text, resolve

    def value(self, argument, dtype):
        """An argument as a value of a type."""
        if isinstance(argument, torch.fx.Node):
            return self.text.cast(self._resolve(argument, dtype), dtype)
        if isinstance(argument, (bool, int, float)):
            if dtype.is_floating_point:
                argument = float(argument)
            return self.text.literal(dtype, argument)
        raise Unsupported("an argument is no number and no tensor")

    def emit(self, node):
        """Adds a node, and returns its value."""
        rule = RULES.get(node.target)
        if rule is None:
            raise Unsupported("no kernel has it")
        return rule(self, node)

    # Helpers of the rules.

    def dtype(self, node):
        return node.meta["val"].dtype

    def computed_type(self, node, *arguments):
        """The type of a node's arithmetic: its own, or a wider one where a number is beside a half."""
        dtype = self.dtype(node)
        has_number = any(not is_tensor(argument) for argument in arguments)
        return wide(dtype) if has_number else dtype

    def elements(self, node, operator, *arguments, dtype=None):
        """An operator on the arguments in one type, rounded to the node's."""
        dtype = dtype or self.computed_type(node, *arguments)
        result = self.text.apply(operator, *(self.value(argument, dtype) for argument in arguments))
        return self.text.cast(result, self.dtype(node))


def is_tensor(argument):
    """Whether an argument is a tensor of the device: not a number, nor an element of the CPU, which is as
    one."""
    if not isinstance(argument, torch.fx.Node):
        return False
    value = argument.meta.get("val")
    return isinstance(value, torch.Tensor) and (value.device.type != "cpu" or value.dim() > 0)


def check_float(node):
    if not node.meta["val"].dtype.is_floating_point:
        raise Unsupported("PyTorch has rules of its own for integers")


def check_number(node):
    if node.meta["val"].dtype == torch.bool:
        raise Unsupported("no kernel has it for booleans")


# --- The rules ---


def _float_unary(operator):
    def rule(emit, node):
        check_float(node)
        return emit.elements(node, operator, node.args[0])

    return rule


def _number_unary(operator):
    def rule(emit, node):
        check_number(node)
        return emit.elements(node, operator, node.args[0])

    return rule


def _test(operator):
    def rule(emit, node):
        dtype = node.args[0].meta["val"].dtype
        if not dtype.is_floating_point:
            raise Unsupported("its elements are never infinite")
        return emit.text.apply(operator, emit.value(node.args[0], dtype), dtype=torch.bool)

    return rule


def _binary(operator, check=check_number):
    def rule(emit, node):
        check(node)
        return emit.elements(node, operator, *node.args[:2])

    return rule


def _sum(operator):
    """`a + alpha * b`"""

    def rule(emit, node):
        check_number(node)
        a, b = node.args[:2]
        alpha = node.kwargs.get("alpha", node.args[2] if len(node.args) > 2 else 1)
        if isinstance(alpha, (int, float)) and alpha == 1:
            return emit.elements(node, operator, a, b)
        dtype = wide(emit.dtype(node))
        scaled = emit.text.apply("mul", emit.value(b, dtype), emit.value(alpha, dtype))
        result = emit.text.apply(operator, emit.value(a, dtype), scaled)
        return emit.text.cast(result, emit.dtype(node))

    return rule


def _bits(operator):
    def rule(emit, node):
        if node.meta["val"].dtype.is_floating_point:
            raise Unsupported("no kernel has it for floats")
        return emit.elements(node, operator, *node.args)

    return rule


def _truths(operator):
    def rule(emit, node):
        values = []
        for argument in node.args:
            if not is_tensor(argument):
                raise Unsupported("an argument is no tensor of the device")
            values.append(emit.text.cast(emit.value(argument, argument.meta["val"].dtype), torch.bool))
        return emit.text.apply(operator, *values)

    return rule


def _compare(operator):
    def rule(emit, node):
        values = [a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in node.args]
        _, dtype = elementwise_dtypes(*values, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT)
        if dtype == torch.bool and operator not in ("eq", "ne"):
            raise Unsupported("no kernel has it for booleans")
        operands = [emit.value(argument, dtype) for argument in node.args]
        return emit.text.apply(operator, *operands, dtype=torch.bool)

    return rule


def _divide(emit, node):
    if len(node.args) > 2 or node.kwargs.get("rounding_mode") is not None:
        raise Unsupported("no kernel rounds a quotient as PyTorch does")
    check_float(node)
    return emit.elements(node, "div", *node.args[:2])


def _power(emit, node):
    check_float(node)
    base, exponent = node.args
    if exponent == 2:
        dtype = emit.dtype(node)
        value = emit.value(base, dtype)
        return emit.text.apply("mul", value, value)
    if exponent == 0.5:
        return emit.elements(node, "sqrt", base)
    return emit.elements(node, "pow", base, exponent)


def _rsqrt(emit, node):
    check_float(node)
    dtype = wide(emit.dtype(node))
    root = emit.text.apply("sqrt", emit.value(node.args[0], dtype))
    return emit.text.cast(emit.text.apply("recip", root), emit.dtype(node))


def _silu(emit, node):
    value = emit.value(node.args[0], wide(emit.dtype(node)))
    product = emit.text.apply("mul", value, emit.text.apply("sigmoid", value))
    return emit.text.cast(product, emit.dtype(node))


def _gelu(emit, node):
    """The approximation is `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))`."""
    if node.kwargs.get("approximate", "none") == "none":
        return emit.elements(node, "gelu", node.args[0])
    text, dtype = emit.text, wide(emit.dtype(node))
    number = lambda value: text.literal(dtype, value)
    x = emit.value(node.args[0], dtype)
    cube = text.apply("mul", text.apply("mul", x, x), x)
    inner = text.apply("add", x, text.apply("mul", number(0.044715), cube))
    slope = text.apply("tanh", text.apply("mul", number(math.sqrt(2 / math.pi)), inner))
    half = text.apply("mul", number(0.5), x)
    return text.cast(text.apply("mul", half, text.apply("add", number(1.0), slope)), emit.dtype(node))


def _leaky_relu(emit, node):
    """`max(a, 0) + slope * min(a, 0)`"""
    check_float(node)
    text, dtype = emit.text, wide(emit.dtype(node))
    x, zero = emit.value(node.args[0], dtype), text.literal(dtype, 0.0)
    slope = emit.value(node.args[1] if len(node.args) > 1 else 0.01, dtype)
    below = text.apply("mul", text.apply("min", x, zero), slope)
    return text.cast(text.apply("add", text.apply("max", x, zero), below), emit.dtype(node))


def _where(emit, node):
    condition, a, b = node.args
    if not isinstance(condition, torch.fx.Node) or condition.meta["val"].dtype != torch.bool:
        raise Unsupported("its condition is not of booleans")
    dtype = emit.dtype(node)
    return emit.text.apply(
        "where", emit.value(condition, torch.bool), emit.value(a, dtype), emit.value(b, dtype)
    )


def _clamp(emit, node):
    check_number(node)
    low, high = [*node.args[1:], None, None][:2]
    low, high = node.kwargs.get("min", low), node.kwargs.get("max", high)
    return _limited(emit, node, low, high)


def _limited(emit, node, low, high):
    limits = [limit for limit in (low, high) if limit is not None]
    if not limits:
        raise Unsupported("it has no limit")
    operator = "clamp" if len(limits) == 2 else "max" if high is None else "min"
    return emit.elements(node, operator, node.args[0], *limits)


def _hardtanh(emit, node):
    check_number(node)
    low, high = [*node.args[1:], *(-1.0, 1.0)[len(node.args) - 1 :]]
    return _limited(emit, node, low, high)


def _convert(emit, node):
    """A conversion, or a copy in another layout, which is the value itself."""
    extra = {name: value for name, value in node.kwargs.items() if value not in (None, False)}
    if extra.keys() - {"dtype", "device", "layout", "memory_format"}:
        raise Unsupported("it is more than a conversion")
    if not is_tensor(node.args[0]) or node.args[0].meta["val"].device != node.meta["val"].device:
        raise Unsupported("it is a copy between devices")
    source = node.args[0]
    return emit.text.cast(emit.value(source, source.meta["val"].dtype), emit.dtype(node))


def _copy(emit, node):
    """`copy(self, source)`: the source as the type of `self`."""
    return emit.value(node.args[1], emit.dtype(node))


def reduced_dims(node):
    """The dimensions that a node reduces, and whether they stay; `None` for other nodes."""
    if node.target not in REDUCTIONS:
        return None
    operand = node.args[0].meta["val"]
    _, of_all = REDUCTIONS[node.target]
    dims = None if of_all else node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    keeps = not of_all and bool(node.args[2] if len(node.args) > 2 else node.kwargs.get("keepdim", False))
    rank = operand.dim()
    if isinstance(dims, int):
        dims = [dims]
    dims = sorted(dim % rank for dim in dims) if dims and rank else list(range(rank))
    return tuple(dims), keeps


def _reduce(emit, node):
    operator, _ = REDUCTIONS[node.target]
    dims, _ = reduced_dims(node)
    operand = node.args[0].meta["val"]
    dtype = emit.dtype(node)
    if not dims:
        raise Unsupported("it has no dimension")
    wanted = {"reduce_any": torch.bool, "reduce_all": torch.bool}.get(operator)
    if (wanted or dtype) != dtype or (dtype == torch.bool and not wanted):
        raise Unsupported("no kernel has it for its type")
    if operator == "reduce_mean" and not dtype.is_floating_point:
        raise Unsupported("a mean is a float")
    narrows = operand.dtype.is_floating_point and wide(dtype) != wide(operand.dtype) and dtype != torch.bool
    if narrows and operand.dtype == torch.float64:
        raise Unsupported("its result is of a narrower type")
    return emit.text.apply(operator, emit.value(node.args[0], dtype), options=" ".join(map(str, dims)))


# By overload: the operator, and whether it is of all dimensions.
REDUCTIONS = {
    aten.sum.dim_IntList: ("reduce_sum", False),
    aten.sum.default: ("reduce_sum", True),
    aten.mean.dim: ("reduce_mean", False),
    aten.mean.default: ("reduce_mean", True),
    aten.amax.default: ("reduce_max", False),
    aten.amin.default: ("reduce_min", False),
    aten.max.default: ("reduce_max", True),
    aten.min.default: ("reduce_min", True),
    aten.prod.dim_int: ("reduce_prod", False),
    aten.any.dim: ("reduce_any", False),
    aten.any.dims: ("reduce_any", False),
    aten.any.default: ("reduce_any", True),
    aten.all.dim: ("reduce_all", False),
    aten.all.dims: ("reduce_all", False),
    aten.all.default: ("reduce_all", True),
}

_FLOAT_UNARY = {
    "sqrt": "sqrt", "exp": "exp", "log": "log", "log1p": "log1p", "sin": "sin", "cos": "cos", "tan": "tan",
    "asin": "asin", "acos": "acos", "atan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh",
    "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "erf": "erf", "sigmoid": "sigmoid",
    "reciprocal": "recip", "relu": "relu", "floor": "floor", "ceil": "ceil", "round": "round",
    "trunc": "trunc",
}  # fmt: skip

RULES = {
    **{getattr(aten, name).default: _float_unary(operator) for name, operator in _FLOAT_UNARY.items()},
    **{
        getattr(aten, name).default: _number_unary(op)
        for name, op in [("neg", "neg"), ("abs", "abs"), ("sign", "sign")]
    },
    aten.sgn.default: _number_unary("sign"),
    aten.isnan.default: _test("is_nan"),
    aten.isinf.default: _test("is_inf"),
    aten.rsqrt.default: _rsqrt,
    aten.silu.default: _silu,
    aten.gelu.default: _gelu,
    aten.leaky_relu.default: _leaky_relu,
    aten.hardtanh.default: _hardtanh,
    aten.bitwise_not.default: _bits("not"),
    aten.logical_not.default: _truths("not"),
    aten.add.Tensor: _sum("add"),
    aten.add.Scalar: _sum("add"),
    aten.sub.Tensor: _sum("sub"),
    aten.sub.Scalar: _sum("sub"),
    aten.mul.Tensor: _binary("mul"),
    aten.mul.Scalar: _binary("mul"),
    aten.div.Tensor: _divide,
    aten.div.Scalar: _divide,
    prims.div.default: _divide,
    aten.maximum.default: _binary("max"),
    aten.minimum.default: _binary("min"),
    aten.remainder.Tensor: _binary("rem", check_float),
    aten.remainder.Scalar: _binary("rem", check_float),
    aten.atan2.default: _binary("atan2", check_float),
    aten.pow.Tensor_Scalar: _power,
    aten.pow.Tensor_Tensor: _power,
    aten.pow.Scalar: _power,
    **{
        getattr(getattr(aten, f"bitwise_{name}"), form): _bits(name)
        for name in ("and", "or", "xor")
        for form in ("Tensor", "Scalar")
    },
    **{getattr(aten, f"logical_{name}").default: _truths(name) for name in ("and", "or", "xor")},
    **{
        getattr(getattr(aten, name), form): _compare(name)
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
        for form in ("Tensor", "Scalar")
    },
    aten.where.self: _where,
    aten.where.ScalarSelf: _where,
    aten.where.ScalarOther: _where,
    aten.where.Scalar: _where,
    aten.clamp.default: _clamp,
    aten.clamp.Tensor: _clamp,
    aten.clamp_min.default: lambda emit, node: _limited(emit, node, node.args[1], None),
    aten.clamp_max.default: lambda emit, node: _limited(emit, node, None, node.args[1]),
    aten._to_copy.default: _convert,
    prims.convert_element_type.default: lambda emit, node: emit.text.cast(
        emit.value(node.args[0], node.args[0].meta["val"].dtype), emit.dtype(node)
    ),
    aten.clone.default: _convert,
    aten.copy.default: _copy,
    **{target: _reduce for target in REDUCTIONS},
}
