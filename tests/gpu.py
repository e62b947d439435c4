"""What PyTorch's own CUDA takes for the operators of `devices bench --kernels`, and the digits on this project's `cuda`.

Ends with 77, which `gpu.sh` calls skipped, on a machine without PyTorch or without a GPU for it. The digits are of
device-torch, which is skipped unless its package fits the PyTorch that is there.
"""

import importlib.util
import os
import subprocess
import sys
import time


def median(run, synchronize):
    """The median time of a call in microseconds, of runs of as many calls as take a while."""
    for _ in range(3):
        run()
    synchronize()
    times = []
    for _ in range(7):
        start = time.perf_counter()
        for _ in range(20):
            run()
        synchronize()
        times.append((time.perf_counter() - start) / 20)
    return sorted(times)[3] * 1e6


def main():
    if importlib.util.find_spec("torch") is None:
        print("skipped: there is no PyTorch")
        return 77
    import torch

    if not torch.cuda.is_available():
        print("skipped: PyTorch finds no GPU")
        return 77
    print(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, microseconds for a call")
    for name in "float32", "float16", "bfloat16":
        dtype = getattr(torch, name)
        million = torch.rand(1 << 24, device="cuda").to(dtype)
        rows = torch.rand(4096, 1024, device="cuda").to(dtype)
        calls = {
            "add, 1": lambda one=million[:1]: one + one,
            "add, 2^24": lambda: million + million,
            "sum, 2^24": lambda: million.sum(),
            "softmax, 4096 x 1024": lambda: rows.softmax(1),
        }
        for size in 256, 1024, 4096, 8192:
            matrix = torch.rand(size, size, device="cuda").to(dtype)
            calls[f"matmul, {size}"] = lambda matrix=matrix: matrix @ matrix
        for call, run in calls.items():
            print(f"{name:9} {call:22} {median(run, torch.cuda.synchronize):12.1f}")
    if importlib.util.find_spec("device_torch") is None:
        print("skipped: device-torch is not installed, whose package is for one version of PyTorch")
        return 0
    environment = dict(os.environ, DEVICE_TORCH="cuda", DEVICE_TORCH_NAME="nv", DEVICE_TORCH_FALLBACK="deny")
    return subprocess.run([sys.executable, sys.argv[1], "nv", "--compare"], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
