#!/bin/sh
# ONNX Runtime 1.31.1 and ONNX 1.23.2 disagree on the length of a `Resize` by 0.7: of 10 elements, the first makes 7,
# and the shape inference of the second says 6.
#
# The operator's text says `floor(length * scale)`, and a scale is an `f32`: 0.7 is 0.699999988. ONNX multiplies in
# more digits, and rounds 6.99999988 down; ONNX Runtime multiplies in `f32`, where the product is 7. So a model whose
# shapes were inferred says one length, and a run returns another, with no error: a later node whose shape was made
# from the first does not fit. 0.6 of 5 elements is 3 in both, as its `f32` is above 0.6.
#
#     sh findings/onnx-resize-one-more.sh
#
# What it printed:
#
#     10 by 0.7: inferred 6, computed 7
#     5 by 0.6: inferred 3, computed 3
set -eu
here=$(dirname "$0")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# From Python's package registry.
sh "$here/../integrations/onnxruntime/tests/environment.sh" "$folder/python" 1.31.1 >&2
"$folder/python/bin/python" - <<'PYTHON' | tee "$folder/printed"
import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper

for length, scale in ((10, 0.7), (5, 0.6)):
    nodes = [helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="nearest")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [length])
    y = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph(nodes, "g", [x], [y], [helper.make_tensor("scales", TensorProto.FLOAT, [1], [scale])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9)
    inferred = onnx.shape_inference.infer_shapes(model).graph.output[0].type.tensor_type.shape.dim[0].dim_value
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    [computed] = session.run(None, {"x": numpy.arange(length, dtype=numpy.float32)})
    print(f"{length} by {scale}: inferred {inferred}, computed {computed.shape[0]}")
PYTHON
diff - "$folder/printed" <<'EXPECTED'
10 by 0.7: inferred 6, computed 7
5 by 0.6: inferred 3, computed 3
EXPECTED
