"""PyTorch's own database of operators (`OpInfo`), on a device against the CPU: values, and gradients.

    DEVICE_TORCH=openreg python tests/opinfo.py [--list FILE] [NAME...]

A row is an operator with a type. Each row runs with the samples that PyTorch has for it. Of random numbers, types
and shapes are compared, as a device draws its own. Rows that fail are compared with a list that has the reason for
each: a row that fails and is not in it makes the status 1, and so does a row that is in it and passes.
"""

import argparse
import copy
import os
import pathlib
import sys
import warnings

os.environ.setdefault("PYTORCH_TEST_WITH_SLOW", "0")

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

NAME = torch._C._get_privateuse1_backend_name()
DTYPES = [torch.float32, torch.int64, torch.bfloat16, torch.bool]
# Samples that a row has at most: some have hundreds, which differ little.
SAMPLES = 24
# Their results have any values.
WITHOUT_VALUES = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
}  # fmt: skip


class Seeds:
    """Counts the calls of `torch.manual_seed`: PyTorch's samples of random numbers set one, and the state back."""

    count = 0
    set = torch.manual_seed


def counting(seed):
    Seeds.count += 1
    return Seeds.set(seed)


torch.manual_seed = counting


def to_device(value):
    """The value with tensors on the device, which are leaves of gradients where they were."""

    def move(leaf):
        if isinstance(leaf, torch.Tensor):
            there = leaf.detach().to(NAME)
            if leaf.layout == torch.strided and leaf.untyped_storage().nbytes() > leaf.nbytes:
                # A view, with what is around it: some operators look there.
                whole = torch.empty(0, dtype=leaf.dtype).set_(leaf.untyped_storage()).to(NAME)
                there = whole.as_strided(leaf.size(), leaf.stride(), leaf.storage_offset())
            return there.requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.device) and leaf.type == "cpu":
            return torch.device(NAME)
        return NAME if leaf == "cpu" else leaf

    return tree_map(move, value)


def tensors(value):
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def run(op, arguments, with_gradients):
    """The results and the gradients, and whether random numbers were drawn."""
    torch.manual_seed(1)
    before, seeds = torch.get_rng_state(), Seeds.count
    flat = [leaf for leaf in tensors(arguments) if leaf.requires_grad]
    result = op(*arguments[0], **arguments[1])
    results = tensors(result)
    is_random = Seeds.count > seeds or not torch.equal(before, torch.get_rng_state())
    gradients = []
    if with_gradients and flat:
        used = [leaf for leaf in results if leaf.requires_grad and (leaf.is_floating_point() or leaf.is_complex())]
        if used:
            torch.manual_seed(2)
            weights = [torch.ones_like(leaf) for leaf in used]
            gradients = torch.autograd.grad(used, flat, weights, allow_unused=True)
    return results, [gradient for gradient in gradients if gradient is not None], is_random


def compare(here, there):
    assert len(here) == len(there), f"{len(there)} tensors instead of {len(here)}"
    for a, b in zip(here, there):
        assert b.device.type == NAME or a.numel() == 0 or a.dim() == 0, f"a result on {b.device}"
        torch.testing.assert_close(b.detach().cpu(), a.detach(), equal_nan=True, **tolerance(a.dtype))


def tolerance(dtype):
    if dtype in (torch.bfloat16, torch.float16):
        return {"rtol": 3e-2, "atol": 3e-2}
    if dtype in (torch.float32, torch.complex64):
        return {"rtol": 2e-4, "atol": 5e-5}
    return {}


def check(op, dtype):
    """Runs a row. Returns how many samples were compared, and raises what is wrong with one."""
    gradients = dtype == torch.float32 and op.supports_autograd
    count = 0
    torch.manual_seed(0)
    for sample in op.sample_inputs("cpu", dtype, requires_grad=gradients):
        if count == SAMPLES:
            break
        arguments = ((sample.input, *sample.args), dict(sample.kwargs))
        moved = to_device(copy.deepcopy(arguments) if not gradients else arguments)
        try:
            here = run(op, arguments, gradients)
        except Exception:  # noqa: BLE001 # Where the CPU fails, there is nothing to compare.
            continue
        there = run(op, moved, gradients)
        if op.name in WITHOUT_VALUES or here[2]:
            here, there = ([[torch.zeros_like(leaf) for leaf in side[0]], []] for side in (here, there))
        compare(here[0], there[0])
        compare(here[1], there[1])
        count += 1
    return count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    expected = {}
    if arguments.list:
        for line in arguments.list.read_text().splitlines():
            if line and not line.startswith("#"):
                row, _, reason = line.partition(": ")
                expected[row] = reason
    passed, without, samples, wrong = dict.fromkeys(DTYPES, 0), 0, 0, []
    for op in op_db:
        name = op.name + ("." + op.variant_test_name if op.variant_test_name else "")
        if arguments.names and name not in arguments.names:
            continue
        for dtype in DTYPES:
            if dtype not in op.dtypes:
                continue
            row = f"{name} {str(dtype).removeprefix('torch.')}"
            try:
                compared = check(op, dtype)
                samples += compared
            except Exception as error:  # noqa: BLE001
                lines = [line for line in str(error).splitlines() if line.strip()]
                text = f"{row}: {type(error).__name__}: {' '.join(lines)[:160]}"
                if row not in expected:
                    wrong.append(text)
                continue
            without += compared == 0
            passed[dtype] += compared > 0
            if row in expected:
                wrong.append(f"{row}: passes, and is in the list of failures")
    by_type = ", ".join(f"{count} of {str(dtype).removeprefix('torch.')}" for dtype, count in passed.items())
    print(by_type)
    print(f"{sum(passed.values())} rows pass with {samples} samples; {len(expected)} fail as listed; {without} are not the CPU's")
    for line in wrong:
        print(line)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
