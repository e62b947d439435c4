"""Adds two numbers on a device: `python add.py opencl:0`."""

import sys

import numpy
import onnxruntime
from onnx import TensorProto, helper

number = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
sum_of_two = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "add", [number], [sum_of_two])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)

session = onnxruntime.InferenceSession(model.SerializeToString(), providers=[sys.argv[1]])
print(session.run(None, {"x": numpy.ones(1, numpy.float32)})[0])
