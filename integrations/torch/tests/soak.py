"""Threads that compute on one device for a while: results are the CPU's, and memory does not grow.

    DEVICE_TORCH=openreg python tests/soak.py --seconds 60
"""

import argparse
import contextlib
import gc
import random
import threading
import time

import torch


def resident():
    """The memory of this process, in MiB."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


def step(random_numbers, device, generator):
    """One piece of work, on the device and on the CPU."""
    rows, columns = random_numbers.randint(1, 64), random_numbers.randint(1, 64)
    host = torch.randn(rows, columns, generator=generator, requires_grad=True)
    there = host.detach().to(device).requires_grad_()
    results = []
    for x in (host, there):
        weight = torch.linspace(-1, 1, columns * 3, device=x.device).view(3, columns)
        y = torch.relu(x @ weight.t())[::2].contiguous()
        loss = torch.nn.functional.mse_loss(y, torch.zeros_like(y)) + y.view(-1)[:1].exp().sum()
        loss.backward()
        results.append((loss.detach().cpu(), x.grad.cpu()))
    for expected, found in zip(*results):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def work(number, device, until, counts, failures):
    random_numbers, generator = random.Random(number), torch.Generator().manual_seed(number)
    try:
        while time.monotonic() < until and not failures:
            with torch.Stream(device) if random_numbers.random() < 0.3 else contextlib.nullcontext():
                step(random_numbers, device, generator)
            counts[number] += 1
    except BaseException as error:  # The main thread reports it.
        failures.append(error)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--threads", type=int, default=4)
    arguments = parser.parse_args()
    device = torch.accelerator.current_accelerator()
    counts, failures, sizes = [0] * arguments.threads, [], []
    for until in (arguments.seconds / 4, arguments.seconds):
        begun = time.monotonic()
        end = begun + until
        threads = [
            threading.Thread(target=work, args=(number, device, end, counts, failures))
            for number in range(arguments.threads)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        gc.collect()
        torch.accelerator.synchronize()
        torch.accelerator.memory.empty_cache()
        allocated = torch.accelerator.memory.memory_allocated()
        assert allocated == 0, f"{allocated} bytes are still allocated"
        sizes.append(resident())
    first, last = sizes
    print(f"{sum(counts)} steps by {arguments.threads} threads; {first:.0f} MiB after a quarter, {last:.0f} MiB at the end")
    assert last < first * 1.1 + 16, "the memory of the process grows"


if __name__ == "__main__":
    main()
