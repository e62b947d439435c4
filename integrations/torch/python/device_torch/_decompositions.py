"""Operators in terms of others that an expression has, beside PyTorch's own decompositions."""

import functools

import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._decomp.decompositions import pw_cast_for_opmath

aten = torch.ops.aten

# PyTorch's own ones, beside its core's.
_OF_PYTORCH = [
    aten._softmax, aten._log_softmax, aten._native_batch_norm_legit, aten._native_batch_norm_legit_functional,
    aten._native_batch_norm_legit_no_training, aten.native_batch_norm, aten.native_dropout,
    aten.hardtanh_backward,
]  # fmt: skip

# What the device has kernels for, or what gains nothing as several operators.
_LEFT_OUT = [
    aten.leaky_relu.default, aten.native_dropout.default, aten.nll_loss_forward.default,
    aten.nll_loss_backward.default, aten.nll_loss2d_forward.default, aten.nll_loss2d_backward.default,
    aten.embedding_dense_backward.default, aten.stack.default, aten.silu.default,
]  # fmt: skip


def variance(x, dims, correction, keepdim):
    """The variance, and the mean, around which it is."""
    dims = [dim % x.dim() for dim in dims] if dims else list(range(x.dim()))
    count = 1
    for dim in dims:
        count = count * x.shape[dim]
    mean = aten.mean.dim(x, dims, True)
    centered = x - mean
    total = aten.sum.dim_IntList(centered * centered, dims, keepdim)
    free = count - correction
    return total / (free if not isinstance(free, (int, float)) or free > 0 else 0), mean


def _is_usual(x, dims):
    """Whether there is a variance that kernels compute: PyTorch knows what the others are."""
    return x.dim() > 0 and x.dtype.is_floating_point and all(x.shape[dim] != 0 for dim in range(x.dim()))


def var(x, dim=None, *, correction=None, keepdim=False):
    if not _is_usual(x, dim):
        return NotImplemented
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    return variance(wide, dim, 1 if correction is None else correction, keepdim)[0].to(x.dtype)


def var_mean(x, dim=None, *, correction=None, keepdim=False):
    if not _is_usual(x, dim):
        return NotImplemented
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    found, mean = variance(wide, dim, 1 if correction is None else correction, keepdim)
    if not keepdim:
        mean = aten.squeeze.dims(mean, list(range(x.dim())) if not dim else dim)
    return found.to(x.dtype), mean.to(x.dtype)


def std(x, dim=None, *, correction=None, keepdim=False):
    found = var(x, dim, correction=correction, keepdim=keepdim)
    return found if found is NotImplemented else found.sqrt()


def native_layer_norm(x, normalized_shape, weight, bias, eps):
    """For halves, PyTorch decides in which type the mean is."""
    if x.dtype not in (torch.float32, torch.float64) or not normalized_shape or not _is_usual(x, None):
        return NotImplemented
    dims = list(range(x.dim() - len(normalized_shape), x.dim()))
    found, mean = variance(x, dims, 0, True)
    scale = torch.rsqrt(found + eps)
    result = (x - mean) * scale
    if weight is not None:
        result = result * weight
    if bias is not None:
        result = result + bias
    return result, mean, scale


@pw_cast_for_opmath
def addcmul(self, tensor1, tensor2, *, value=1):
    product = tensor1 * tensor2
    return self + (product if value == 1 else product * value)


@pw_cast_for_opmath
def addcdiv(self, tensor1, tensor2, *, value=1):
    quotient = tensor1 / tensor2
    return self + (quotient if value == 1 else quotient * value)


@pw_cast_for_opmath
def lerp(self, end, weight):
    """As the device's kernel, which is exact for 1."""
    if isinstance(weight, (int, float)):
        return self + weight * (end - self) if abs(weight) < 0.5 else end - (1 - weight) * (end - self)
    way = end - self
    return torch.where(weight.abs() < 0.5, self + weight * way, end - (1 - weight) * way)


def lerp_scalar_tensor(self, end, weight):
    """A weight of the CPU is a number."""
    return lerp(self, end, weight)


# --- Lists of tensors, as optimizers have ---


def _each(function, *lists, **options):
    return [function(*arguments, **options) for arguments in zip(*lists)]


def _foreach_table():
    """Each operator on lists as the operator on tensors that it stands for."""
    table = {}
    unary = ["abs", "neg", "sqrt", "rsqrt", "exp", "log", "reciprocal", "sign", "sigmoid", "tanh"]
    for name in unary:
        table[getattr(aten, f"_foreach_{name}").default] = functools.partial(_each, getattr(torch, name))
    for name in ("add", "sub", "mul", "div", "maximum", "minimum", "clamp_max", "clamp_min", "pow"):
        packet = getattr(aten, f"_foreach_{name}")
        function = {"maximum": torch.maximum, "minimum": torch.minimum, "clamp_max": torch.clamp_max,
                    "clamp_min": torch.clamp_min}.get(name, getattr(torch, name))  # fmt: skip
        of_number = {"maximum": torch.clamp_min, "minimum": torch.clamp_max}.get(name, function)

        def with_list(self, other, alpha=1, function=function):
            return _each(functools.partial(function, alpha=alpha) if alpha != 1 else function, self, other)

        def with_one(self, other, alpha=1, function=of_number):
            return with_list(self, [other] * len(self), alpha, function)

        def with_numbers(self, others, function=of_number):
            return _each(function, self, others)

        for overload, rule in (
            ("List", with_list),
            ("Scalar", with_one),
            ("Tensor", with_one),
            ("ScalarList", with_numbers),
        ):
            if overload in packet.overloads():
                table[getattr(packet, overload)] = rule
    for name, function in (("addcmul", addcmul), ("addcdiv", addcdiv)):
        packet = getattr(aten, f"_foreach_{name}")

        def with_value(self, a, b, value=1, function=function):
            return [function(*each, value=value) for each in zip(self, a, b)]

        def with_values(self, a, b, scalars, function=function):
            return [function(*each, value=value) for *each, value in zip(self, a, b, scalars)]

        table[packet.Scalar], table[packet.ScalarList] = with_value, with_values
    table[aten._foreach_lerp.List] = functools.partial(_each, torch.lerp)
    table[aten._foreach_lerp.Scalar] = lambda self, end, weight: [
        torch.lerp(a, b, weight) for a, b in zip(self, end)
    ]
    table[aten._foreach_pow.ScalarAndTensor] = lambda self, exponent: [torch.pow(self, e) for e in exponent]
    return table


@functools.cache
def table():
    """What the backend decomposes."""
    found = dict(core_aten_decompositions())
    found.update(get_decompositions(_OF_PYTORCH))
    for left in _LEFT_OUT:
        found.pop(left, None)
    found.update(
        {
            aten.var.correction: var,
            aten.var_mean.correction: var_mean,
            aten.std.correction: std,
            aten.native_layer_norm.default: native_layer_norm,
            aten.addcmul.default: addcmul,
            aten.addcdiv.default: addcdiv,
            aten.lerp.Scalar: lerp,
            aten.lerp.Tensor: lerp,
        }
    )
    found.update(_foreach_table())
    return found
