"""Runs models of files on a device and on the CPU with made inputs, and compares.

    python tests/models.py openreg:0 FOLDER...

A line for each model: how many nodes the device takes, what it leaves, and the largest difference.
"""

import argparse
import pathlib
import sys

import numpy
import onnxruntime

import device_ort

# The height and width of images, and the length of signals, where a model leaves them open.
SIZES = [(320, 320, 576), (48, 320, 576)]


# Where a model quantizes what it has computed: a number that is rounded the other way is a whole step off.
QUANTIZED = {"common_old": 2e-2}


def inputs_of(session, height, width, length):
    """An input for each that a model asks for, the same each time."""
    random = numpy.random.default_rng(7)
    found = {}
    for item in session.get_inputs():
        rank = len(item.shape)
        # The first dimension is a batch of one.
        sizes = {2: (1, length), 4: (1, 1, height, width)}.get(rank, (1,) * rank)
        if rank == 4 and item.shape[3] == 3:
            sizes = (1, height, width, 3)
        shape = [size if isinstance(size, int) and size > 0 else sizes[at] for at, size in enumerate(item.shape)]
        kind = item.type.removeprefix("tensor(").removesuffix(")")
        dtype = {"float": "float32", "double": "float64"}.get(kind, kind)
        if item.name == "sr":
            found[item.name] = numpy.array(16000, dtype)
        elif dtype.startswith("float"):
            found[item.name] = random.uniform(0, 1, shape).astype(dtype)
        else:
            found[item.name] = random.integers(0, 100, shape).astype(dtype)
    return found


def compare(path, device):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    on_cpu = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    for sizes in SIZES:
        inputs = inputs_of(on_cpu, *sizes)
        try:
            expected = on_cpu.run(None, inputs)
            break
        except onnxruntime.capi.onnxruntime_pybind11_state.Fail:
            if sizes == SIZES[-1]:
                raise
    before = device_ort.counts().get(device, {})
    on_device = onnxruntime.InferenceSession(str(path), options, providers=[device])
    after = device_ort.counts()[device]
    found = on_device.run(None, inputs)
    count = {name: number - before.get(name, 0) for name, number in after.items()}
    taken = count.pop("taken")
    left = {name: number for name, number in count.items() if number}
    worst = 0.0
    for ours, theirs in zip(found, expected):
        scale = max(1e-3, float(numpy.abs(theirs).max())) if theirs.size else 1.0
        worst = max(worst, float(numpy.abs(ours.astype("float64") - theirs).max(initial=0)) / scale)
    return taken, left, worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("device")
    parser.add_argument("folder", type=pathlib.Path, nargs="+")
    parser.add_argument("--most", type=float, default=2e-3, help="the largest difference, by the largest number")
    arguments = parser.parse_args()
    wrong = 0
    paths = [path for folder in arguments.folder for path in sorted(folder.rglob("*.onnx"))]
    whole = 0
    for path in paths:
        try:
            taken, left, worst = compare(path, arguments.device)
        except Exception as error:
            wrong += 1
            print(f"{path.stem}: error: {str(error).splitlines()[0]}")
            continue
        is_near = worst <= QUANTIZED.get(path.stem, arguments.most)
        wrong += not is_near
        whole += not left
        mark = "" if is_near else ", which is too much"
        print(f"{path.stem}: {taken} nodes on {arguments.device}, left {left}; difference {worst:.1e}{mark}", flush=True)
    print(f"{len(paths)} models: {whole} wholly on {arguments.device}, {wrong} wrong")
    return int(wrong > 0 or not paths)


if __name__ == "__main__":
    sys.exit(main())
