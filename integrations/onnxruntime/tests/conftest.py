"""What tests share: models of a few nodes, and programs in processes of their own."""

import os
import subprocess
import sys
import textwrap

import pytest


@pytest.fixture
def program():
    """Runs a program, and returns what it prints on both streams. Variables are in its environment."""

    def run(text, fails=False, **variables):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DEVICE_")}
        environment |= {"DEVICE_ORT_LIBRARY": os.environ.get("DEVICE_ORT_LIBRARY", "")} | variables
        command = [sys.executable, "-c", MODEL + textwrap.dedent(text)]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert (ran.returncode != 0) == fails, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    return run


# A model of some operators, whose first input and output are `x` and `y`.
MODEL = '''
import numpy
import onnxruntime
from onnx import TensorProto, helper

def model(*operators, shape=(4, 4), dtype=TensorProto.FLOAT, opset=17):
    """A chain of nodes of one input each; a name with two inputs gets `x` twice."""
    nodes, last = [], "x"
    for at, operator in enumerate(operators):
        name = "y" if at == len(operators) - 1 else f"v{at}"
        inputs = [last, "x"] if operator in ("Add", "MatMul", "Mul") else [last]
        nodes.append(helper.make_node(operator, inputs, [name]))
        last = name
    value = lambda name: helper.make_tensor_value_info(name, dtype, shape)
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return made.SerializeToString()

x = numpy.linspace(-1, 1, 16, dtype=numpy.float32).reshape(4, 4)
'''
