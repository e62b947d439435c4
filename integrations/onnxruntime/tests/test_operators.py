"""Operators beside ONNX Runtime's own, where ONNX's tests do not look."""

import os

import numpy
import onnxruntime
import pytest
from onnx import TensorProto, helper

import device_ort

DEVICE = os.environ.get("DEVICE_ORT_TEST", "openreg:0")


@pytest.fixture(scope="module", autouse=True)
def registered():
    os.environ.setdefault("DEVICE_ORT", DEVICE.partition(":")[0])
    device_ort.register()


def both(operator, inputs, opset, attributes, outputs=1, takes=True):
    """What a node computes on the device and on the CPU."""
    names = [f"y{at}" for at in range(outputs)]
    node = helper.make_node(operator, list(inputs), names, **attributes)
    kind = helper.np_dtype_to_tensor_dtype
    infos = [helper.make_tensor_value_info(name, kind(value.dtype), value.shape) for name, value in inputs.items()]
    results = [helper.make_empty_tensor_value_info(name) for name in names]
    graph = helper.make_graph([node], "g", infos, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    found = []
    for provider in (DEVICE, "CPUExecutionProvider"):
        before = device_ort.counts().get(DEVICE, {}).get("taken", 0)
        session = onnxruntime.InferenceSession(model, options, providers=[provider])
        if provider == DEVICE:
            assert (device_ort.counts()[DEVICE]["taken"] > before) == takes
        found.append(session.run(None, inputs))
    return found


def f32(*values):
    return numpy.array(values, numpy.float32)


def counted(*shape):
    return numpy.arange(numpy.prod(shape), dtype=numpy.float32).reshape(shape)


# The operator, its inputs, the version of ONNX's operators, and attributes.
CASES = {
    "the border of an old pad": ("Pad", {"x": f32([1, 2])}, 10, {"pads": [0, 1, 0, 0], "value": 5.0}),
    "a sum of large powers": ("ReduceLogSumExp", {"x": f32([100, 100], [-200, -200])}, 13, {"axes": [1]}),
    "a norm beyond the largest half": ("ReduceL2", {"x": numpy.array([[300, 300]], numpy.float16)}, 13, {"axes": [1]}),
    "an old resize that shrinks": ("Resize", {"x": counted(1, 1, 1, 6), "scales": f32(1, 1, 1, 0.6)}, 10, {}),
    "a bias of a scaled product": (
        "Gemm",
        {"a": f32([1, 2]), "b": f32([3], [4]), "c": f32(5)},
        13,
        {"alpha": 0.5, "beta": 2.0},
    ),
    "a vector by a matrix": ("MatMul", {"a": f32(1, 2), "b": f32([3, 4], [5, 6])}, 13, {}),
    "windows that are cut off": (
        "AveragePool",
        {"x": counted(1, 1, 5, 5)},
        11,
        {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1},
    ),
    "a transposed convolution in groups": (
        "ConvTranspose",
        {"x": counted(1, 2, 2, 4), "w": counted(2, 1, 2, 3)},
        11,
        {"group": 2, "strides": [2, 1], "pads": [0, 1, 1, 0], "output_padding": [1, 0]},
    ),
    "activations of a network that are the usual ones": (
        "LSTM",
        {"x": counted(3, 2, 2) / 10, "w": counted(1, 12, 2) / 30, "r": counted(1, 12, 3) / 50 - 0.3},
        14,
        {"hidden_size": 3, "activations": ["Sigmoid", "Tanh", "Tanh"]},
        3,
    ),
    "a reset behind the product": (
        "GRU",
        {
            "x": counted(3, 2, 2) / 10,
            "w": counted(1, 9, 2) / 30,
            "r": counted(1, 9, 3) / 50 - 0.3,
            "b": counted(1, 18) / 20 - 0.4,
        },
        14,
        {"hidden_size": 3, "linear_before_reset": 1, "direction": "reverse"},
        2,
    ),
    "products in batches": (
        "Einsum",
        {"a": counted(2, 3, 4, 5), "b": counted(5, 2, 3)},
        12,
        {"equation": "...ij, jbh -> bi..."},
    ),
    "a diagonal": ("Einsum", {"a": counted(3, 3, 4), "b": counted(4)}, 12, {"equation": "iij, j -> i"}),
    "sums of integers from the end": (
        "CumSum",
        {"x": numpy.arange(300, dtype=numpy.int64), "axis": numpy.array(0)},
        14,
        {"reverse": 1, "exclusive": 1},
    ),
    "bytes that are negative": (
        "DequantizeLinear",
        {"x": numpy.array([[-128, -1], [0, 127]], numpy.int8), "s": f32(0.5, 2), "z": numpy.array([1, -3], numpy.int8)},
        13,
        {"axis": 1},
    ),
    "numbers beyond a byte": (
        "QuantizeLinear",
        {"x": f32(-1000, -64.25, 0.75, 63.5, 1000), "s": f32(0.5), "z": numpy.array([-2], numpy.int8)},
        13,
        {},
    ),
    "bytes that are moved": ("Concat", {"a": numpy.array([-7], numpy.int8), "b": numpy.array([9], numpy.int8)}, 13, {"axis": 0}),
    "a product of no rows": ("Einsum", {"a": counted(0, 3), "b": counted(3, 4)}, 12, {"equation": "ij,jk->ik"}),
    # ONNX Runtime then runs the function that the operator is, whose nodes are taken.
    "a mask of a type that kernels lack": (
        "Attention",
        {"q": counted(1, 1, 2, 4), "k": counted(1, 1, 3, 4), "v": counted(1, 1, 3, 4), "m": numpy.zeros((2, 3), numpy.int16)},
        23,
        {},
    ),
    "lists of no index": ("GatherND", {"x": counted(2, 3), "i": numpy.zeros((2, 0), numpy.int64)}, 13, {}),
    "the largest of no elements": ("Hardmax", {"x": counted(2, 0)}, 13, {}),
    "steps backwards": (
        "Slice",
        {
            "x": counted(10),
            "starts": numpy.array([-2]),
            "ends": numpy.array([-(1 << 62)]),
            "axes": numpy.array([0]),
            "steps": numpy.array([-3]),
        },
        13,
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_as_on_the_cpu(name):
    ours, theirs = both(*CASES[name])
    for found, expected in zip(ours, theirs):
        assert found.dtype == expected.dtype and found.shape == expected.shape
        numpy.testing.assert_allclose(found.astype("float64"), expected.astype("float64"), rtol=2e-3, atol=1e-6)


LEFT = {
    "a mask": ("Dropout", {"x": f32(1, 2)}, 10, {}, 2),
    "more dimensions than kernels have on the way": (
        "Tile",
        {"x": numpy.ones((1, 1, 1, 1, 2), numpy.float32), "repeats": numpy.array([1, 1, 1, 1, 2])},
        13,
        {},
    ),
    "other activations of a network": (
        "RNN",
        {"x": counted(3, 2, 2) / 10, "w": counted(1, 3, 2) / 30, "r": counted(1, 3, 3) / 50},
        14,
        {"hidden_size": 3, "activations": ["Relu"]},
        2,
    ),
    "numbers of a byte with a sign": ("Sub", {"a": numpy.array([-7], numpy.int8), "b": numpy.array([9], numpy.int8)}, 14, {}),
    "integers that are shrunk": ("Shrink", {"x": numpy.arange(-3, 4)}, 9, {"bias": 1.5, "lambd": 1.0}),
    "booleans that are added": (
        "ScatterND",
        {"x": numpy.zeros(3, bool), "i": numpy.array([[0], [2]]), "v": numpy.array([True, False])},
        18,
        {"reduction": "add"},
    ),
    "an integer that is too long": (
        "ConstantOfShape",
        {"shape": numpy.array([2])},
        13,
        {"value": helper.make_tensor("value", TensorProto.INT64, [1], [(1 << 53) + 1])},
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_kernels_cannot_do_is_left_to_the_cpu(name):
    ours, theirs = both(*LEFT[name], takes=False)
    for found, expected in zip(ours, theirs):
        numpy.testing.assert_array_equal(found, expected)


ERRORS = {
    "an index beyond its dimension": (
        "GatherND",
        {"x": counted(2, 3, 4), "i": numpy.array([[0, 3]])},
        13,
        {},
        "index",
    ),
    "fewer lengths than sequences": (
        "ReverseSequence",
        {"x": counted(2, 3), "n": numpy.array([2])},
        10,
        {"batch_axis": 0, "time_axis": 1},
        "1 lengths for 2 sequences",
    ),
    "weights of another direction": (
        "LSTM",
        {"x": counted(3, 2, 2), "w": counted(2, 12, 2), "r": counted(2, 12, 3)},
        14,
        {"hidden_size": 3},
        "input 1 has the shape",
    ),
    "no depth": ("OneHot", {"i": numpy.array([1]), "d": numpy.array(0), "v": f32(0, 1)}, 11, {}, "a depth of no place"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_it_is_an_error(name):
    *node, message = ERRORS[name]
    with pytest.raises(Exception, match=message):
        both(*node)


def test_parts_that_are_no_whole_are_an_error():
    with pytest.raises(Exception, match="5 elements in 2 parts"):
        both("Split", {"x": f32(1, 2, 3, 4, 5), "split": numpy.array([1, 1])}, 13, {}, 2)


def test_memory_that_outputs_share_with_inputs_keeps_what_is_read_later():
    # `b` may lie where `a` does, and `c` where `b` does; `a` is read after both.
    node = helper.make_node
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Reshape", ["a", "flat"], ["b"]),
        node("Neg", ["b"], ["c"]),
        node("Unsqueeze", ["c", "first"], ["d"]),
        node("Reshape", ["d", "whole"], ["e"]),
        node("Add", ["e", "e"], ["f"]),
        node("Add", ["f", "a"], ["y"]),
    ]
    constants = {"flat": [-1], "first": [0], "whole": [3, 4]}
    kept = [helper.make_tensor(name, TensorProto.INT64, [len(values)], values) for name, values in constants.items()]
    kind = helper.make_tensor_value_info
    x, y = (kind(name, TensorProto.FLOAT, [3, 4]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=[DEVICE])
    x = counted(3, 4) - 4
    for _ in range(3):
        (found,) = session.run(None, {"x": x})
        numpy.testing.assert_array_equal(found, -numpy.maximum(x, 0))
