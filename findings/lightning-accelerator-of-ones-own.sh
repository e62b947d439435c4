#!/bin/sh
# Lightning 2.6.6: `Trainer(accelerator=OWN, devices=1)` computes on the CPU, without a word.
#
# OWN is an instance of a class derived from `Accelerator`, as Lightning's documentation shows, whose
# `get_parallel_devices` returns one device. With `devices=2` the Trainer takes the accelerator's devices; with one it
# takes `cpu`. `strategy=SingleDeviceStrategy(DEVICE, accelerator=OWN)` has the device. The device here is PyTorch's own
# `meta`, and no backend is involved.
#
#     sh findings/lightning-accelerator-of-ones-own.sh
#
# What it printed, for one device and for two:
#
#     1 SingleDeviceStrategy cpu
#     2 DDPStrategy meta:0
set -eu
here=$(dirname "$0")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# PyTorch from Python's package registry, without NVIDIA's libraries.
sh "$here/../integrations/torch/tests/environment.sh" "$folder/python" 2.15.0 >&2
"$folder/python/bin/python" -m pip install --quiet --no-deps --disable-pip-version-check lightning==2.6.6 \
    pytorch-lightning==2.6.6 lightning-utilities==0.15.2 torchmetrics==1.9.0 packaging pyyaml tqdm >&2
"$folder/python/bin/python" - 2>"$folder/warnings" <<'PYTHON' | tee "$folder/printed"
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.accelerators import Accelerator


class Own(Accelerator):
    def setup_device(self, device):
        pass

    def teardown(self):
        pass

    def get_device_stats(self, device):
        return {}

    @staticmethod
    def parse_devices(devices):
        return devices

    @staticmethod
    def get_parallel_devices(devices):
        return [torch.device("meta", index) for index in range(int(devices))]

    @staticmethod
    def auto_device_count():
        return 2

    @staticmethod
    def is_available():
        return True

    @staticmethod
    def name():
        return "own"


quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
for devices in (1, 2):
    strategy = Trainer(accelerator=Own(), devices=devices, **quiet).strategy
    print(devices, type(strategy).__name__, strategy.root_device)
PYTHON
diff - "$folder/printed" <<'EXPECTED'
1 SingleDeviceStrategy cpu
2 DDPStrategy meta:0
EXPECTED
