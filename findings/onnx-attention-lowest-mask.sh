#!/bin/sh
# ONNX Runtime 1.31.1 takes the lowest finite number in a mask of `Attention` for minus infinity, and no number
# beside it.
#
# A mask is added to the scores. Of a query that minus infinity hides from all keys, the operator's text wants zeros;
# any finite number is the same for all keys, so that the result is the mean of the values, also where it is as low as
# an `f32` can be. ONNX's reference computes so. ONNX Runtime's provider for the CPU has zeros for that lowest number,
# which exports of transformers write, and the mean for 0.999 of it: a thousandth of a mask decides.
#
#     sh findings/onnx-attention-lowest-mask.sh
#
# What it printed, of values whose mean begins with 4:
#
#     lowest: ONNX Runtime 0, ONNX's reference 4
#     0.999 of it: ONNX Runtime 4, ONNX's reference 4
#     minus infinity: ONNX Runtime 0, ONNX's reference 0
set -eu
here=$(dirname "$0")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# From Python's package registry.
sh "$here/../integrations/onnxruntime/tests/environment.sh" "$folder/python" 1.31.1 >&2
"$folder/python/bin/python" - <<'PYTHON' | tee "$folder/printed"
import numpy
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

shapes = {"q": (1, 1, 2, 4), "k": (1, 1, 3, 4), "v": (1, 1, 3, 4), "mask": (2, 3)}
inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
node = helper.make_node("Attention", list(shapes), ["y"])
graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info("y")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
reference = ReferenceEvaluator(model)
random = numpy.random.default_rng(1)
values = {name: random.uniform(0, 1, shape).astype("float32") for name, shape in shapes.items()}
values["v"] = numpy.arange(12, dtype="float32").reshape(shapes["v"])
lowest = numpy.finfo("float32").min
for name, hidden in (("lowest", lowest), ("0.999 of it", 0.999 * lowest), ("minus infinity", -numpy.inf)):
    values["mask"] = numpy.array([[hidden] * 3, [0] * 3], "float32")
    found, expected = (of.run(None, values)[0][0, 0, 0, 0] for of in (session, reference))
    print(f"{name}: ONNX Runtime {found:.0f}, ONNX's reference {expected:.0f}")
PYTHON
diff - "$folder/printed" <<'EXPECTED'
lowest: ONNX Runtime 0, ONNX's reference 4
0.999 of it: ONNX Runtime 4, ONNX's reference 4
minus infinity: ONNX Runtime 0, ONNX's reference 0
EXPECTED
