"""Compares what a program found on the CPU with what it found on a device.

Integers, truths and texts are equal. Of two tensors of floating-point numbers no numbers are further apart than the
tolerance times the tensor's largest. A gradient that is zero but for rounding, such as that of the bias of a key in an
attention, has no right digits: so a difference below the rounding of the largest number of its group passes too.
"""

import math

import torch

ROUNDING = torch.finfo(torch.float32).eps


def compare(here, there, tolerance):
    """The largest difference, as a part of its tensor's largest number, and what is wrong, in words."""
    here, there = flatten(here), flatten(there)
    problems = [f"{'.'.join(path)}: not on the device" for path in here.keys() - there.keys()]
    problems += [f"{'.'.join(path)}: on the device alone" for path in there.keys() - here.keys()]
    if not here:
        problems.append("the program has returned nothing")
    scales = {}
    for path, value in here.items():
        scales[group(path)] = max(scales.get(group(path), 0.0), largest(value))
    worst = 0.0
    for path in sorted(here.keys() & there.keys()):
        try:
            worst = max(worst, difference(here[path], there[path], tolerance, scales[group(path)]))
        except Different as error:
            problems.append(f"{'.'.join(path)}: {error}")
    return worst, problems


class Different(Exception):
    """Two values are not the same, up to rounding."""


def difference(here, there, tolerance, scale):
    """The largest difference of two leaves, or an error."""
    if type(here) is not type(there):
        raise Different(f"a {type(there).__name__}, and on the CPU a {type(here).__name__}")
    if isinstance(here, float):
        here, there = torch.tensor(here, dtype=torch.float64), torch.tensor(there, dtype=torch.float64)
    if not isinstance(here, torch.Tensor):
        if here != there:
            raise Different(f"{there}, and on the CPU {here}")
        return 0.0
    if (here.dtype, here.shape) != (there.dtype, there.shape):
        raise Different(f"{kind(there)}, and on the CPU {kind(here)}")
    if not (here.is_floating_point() or here.is_complex()):
        if not torch.equal(here, there):
            raise Different(f"{int((here != there).sum())} of {here.numel()} elements differ")
        return 0.0
    if here.numel() == 0:
        return 0.0
    wide = torch.complex128 if here.is_complex() else torch.float64
    here, there = here.to(wide), there.to(wide)
    if not here.isfinite().all():
        raise Different("not finite on the CPU: the program is of no use")
    apart = (here - there).abs().max().item()
    whole = max(largest(here), scale * ROUNDING / tolerance, math.ulp(0.0))
    # Not `apart > …`, which a NaN is not either.
    if not apart <= tolerance * whole:
        raise Different(f"{apart:.2g} apart, and the largest is {largest(here):.2g}: {apart / whole:.2g} of it")
    return apart / whole


def largest(value):
    """The largest size of a floating-point number in a leaf."""
    if isinstance(value, float):
        return abs(value)
    if isinstance(value, torch.Tensor) and value.numel() and (value.is_floating_point() or value.is_complex()):
        return value.abs().max().item()
    return 0.0


def kind(tensor):
    return f"{str(tensor.dtype).removeprefix('torch.')} of {list(tensor.shape)}"


def group(path):
    """The group of a leaf: the dict or list that it is in."""
    return path[:-1] or path


def flatten(value, path=()):
    """The leaves of dicts and lists by their paths. Tensors are on the CPU then."""
    if isinstance(value, (dict, list, tuple)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        leaves = {}
        for key, item in items:
            leaves |= flatten(item, (*path, str(key)))
        return leaves
    return {path: value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value}
