"""Runs ONNX's own tests of operators on a device, and compares with ONNX Runtime's CPU provider.

    python tests/node_tests.py openreg:0
    python tests/node_tests.py openreg:0 --only add softmax --verbose

A test that passes on the CPU and fails on the device is an error, unless `node-failures.txt` lists it with a reason; so
is one of the list that passes wholly on the device.
"""

import argparse
import collections
import pathlib
import sys
import warnings

import numpy
import onnx
import onnxruntime
from onnx.backend.test.loader import load_model_tests

import device_ort

KNOWN = pathlib.Path(__file__).parent / "node-failures.txt"


def same(found, expected, test):
    if isinstance(expected, list):
        return len(found) == len(expected) and all(same(a, b, test) for a, b in zip(found, expected))
    if expected is None:
        return found is None
    found = numpy.asarray(found)
    expected = numpy.asarray(expected)
    if found.shape != expected.shape:
        return False
    if expected.dtype.kind in "OSU":
        return (found.astype(str) == expected.astype(str)).all()
    if expected.dtype.kind not in "biuf":
        found, expected = found.astype(numpy.float32), expected.astype(numpy.float32)
    return numpy.allclose(found, expected, rtol=max(test.rtol, 1e-3), atol=max(test.atol, 1e-7), equal_nan=True)


def as_input(value):
    """A value as ONNX Runtime takes it."""
    if isinstance(value, list):
        return [as_input(item) for item in value]
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return value if value is None else numpy.asarray(value)


# The newest operator set of ONNX that ONNX Runtime 1.31 takes, and the newest version of its files. Tests of newer ones
# are run as these: most have only more types.
OPERATOR_SET, FILES = 26, 13


def supported(model):
    model.ir_version = min(model.ir_version, FILES)
    for used in model.opset_import:
        if not used.domain:
            used.version = min(used.version, OPERATOR_SET)
    return model.SerializeToString()


def run(test, providers):
    """Whether a test passes on providers."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(supported(test.model), options, providers=providers, enable_fallback=0)
    names = [item.name for item in session.get_inputs()]
    for inputs, expected in test.data_sets:
        found = session.run(None, dict(zip(names, map(as_input, inputs))))
        if not all(same(a, b, test) for a, b in zip(found, expected)):
            return False
    return True


def attempt(test, providers):
    try:
        return "passes" if run(test, providers) else "differs"
    except Exception as error:
        return str(error).splitlines()[0] if str(error) else type(error).__name__


def known():
    lines = (line.split(": ", 1) for line in KNOWN.read_text().splitlines() if line and not line.startswith("#"))
    return {name: reason for name, reason in lines} if KNOWN.exists() else {}


def main():
    # ONNX makes its tests as they are loaded, some of them by divisions by zero.
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("device")
    parser.add_argument("--only", nargs="*", help="tests whose names contain one of these")
    parser.add_argument("--every", type=int, default=1, help="each so many-th test alone")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    device_ort.register()
    tests = list(load_model_tests(kind="node"))
    if arguments.only:
        tests = [test for test in tests if any(word in test.name for word in arguments.only)]
    tests = tests[:: arguments.every]
    count = collections.Counter()
    wrong = []
    listed = known()
    operators = set()
    for test in tests:
        on_cpu = attempt(test, ["CPUExecutionProvider"])
        before = device_ort.counts().get(arguments.device, {})
        on_device = attempt(test, [arguments.device, "CPUExecutionProvider"])
        after = device_ort.counts().get(arguments.device, {})
        taken = after.get("taken", 0) - before.get("taken", 0)
        left = sum(after.values()) - sum(before.values()) - taken
        count["on the CPU"] += on_cpu == "passes"
        count["on the device"] += on_device == "passes"
        if taken and not left:
            count["wholly on the device"] += 1
            if on_device == "passes":
                operators |= {node.op_type for node in test.model.graph.node}
        elif taken:
            count["in part on the device"] += 1
        if on_cpu == "passes" and on_device != "passes" and test.name not in listed:
            wrong.append(f"{test.name}: {on_device}")
        if on_device == "passes" and test.name in listed and not left:
            wrong.append(f"{test.name}: it passes, and is listed: {listed[test.name]}")
        if arguments.verbose:
            print(f"{test.name}: {on_cpu} | {on_device} | {taken} taken, {left} left", flush=True)
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    passed = ", ".join(f"{number} {what}" for what, number in count.items())
    print(f"{len(tests)} tests: {passed}; {len(operators)} operators wholly on the device; {len(wrong)} wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
