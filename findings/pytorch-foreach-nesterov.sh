#!/bin/sh
# PyTorch 2.15.0: `SGD(nesterov=True)` writes to `.grad` in its form `foreach`, and not in its plain form.
#
# `foreach` is the default on every device but the CPU. So a program that reads gradients behind `step()`, for their
# norm or to add them up, reads other numbers as soon as its model is on a device. The weights are the same. Seen on
# the CPU alone, with the form chosen by hand: a gradient of 2, a momentum of a half.
#
#     sh findings/pytorch-foreach-nesterov.sh
#
# What it printed:
#
#     foreach=False: gradient [2.0, 2.0], weight [0.7, 0.7]
#     foreach=True: gradient [3.0, 3.0], weight [0.7, 0.7]
set -eu
here=$(dirname "$0")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# PyTorch from Python's package registry, without NVIDIA's libraries.
sh "$here/../integrations/torch/tests/environment.sh" "$folder/python" 2.15.0 >&2
"$folder/python/bin/python" - <<'PYTHON' | tee "$folder/printed"
import torch

for foreach in (False, True):
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.full((2,), 2.0)
    torch.optim.SGD([weight], lr=0.1, momentum=0.5, nesterov=True, foreach=foreach).step()
    print(f"{foreach=}: gradient {weight.grad.tolist()}, weight {[round(number, 4) for number in weight.tolist()]}")
PYTHON
diff - "$folder/printed" <<'EXPECTED'
foreach=False: gradient [2.0, 2.0], weight [0.7, 0.7]
foreach=True: gradient [3.0, 3.0], weight [0.7, 0.7]
EXPECTED
