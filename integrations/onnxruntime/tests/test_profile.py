"""What ONNX Runtime's profile and a trace show of a device's work."""

import json


def test_the_profile_has_the_work_of_each_node_of_its_session_alone(program, tmp_path):
    text = f"""
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = {str(tmp_path / "profile")!r}
    session = onnxruntime.InferenceSession(model("MatMul", "Relu"), options, providers=["openreg:0"])
    other = onnxruntime.InferenceSession(model("Neg"), providers=["openreg:0"])
    for _ in range(3):
        session.run(None, {{"x": x}})
        other.run(None, {{"x": x}})
    print(session.end_profiling())
    """
    path = program(text, DEVICE_ORT="openreg").strip()
    with open(path) as file:
        events = [event for event in json.load(file) if event["cat"] == "Kernel"]
    found = sorted((event["name"], event["args"]["parent_name"]) for event in events)
    one_run = [
        ("matmul", "MatMul_0_kernel_time"),
        ("read", "model_run"),
        ("relu", "Relu_1_kernel_time"),
        ("write", "model_run"),
    ]
    assert found == sorted(one_run * 3)
    assert {event["args"]["device"] for event in events} == {"openreg:0"}
    # Within the time of the run that it belongs to.
    with open(path) as file:
        runs = [event for event in json.load(file) if event["name"] == "model_run"]
    for event in events:
        assert any(run["ts"] <= event["ts"] + 1 <= run["ts"] + run["dur"] + 2 for run in runs), event


def test_a_trace_names_the_nodes(program, tmp_path):
    trace = tmp_path / "trace.json"
    # They have no names, so that the spans have those of their operators.
    text = 'onnxruntime.InferenceSession(model("MatMul", "Relu"), providers=["openreg:0"]).run(None, {"x": x})'
    program(text, DEVICE_ORT="openreg", DEVICE_TRACE=str(trace))
    text = trace.read_text()
    assert '"name":"MatMul"' in text and '"name":"Relu"' in text


def test_a_view_lies_in_the_memory_of_its_input(program, tmp_path):
    text = f"""
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.profile_file_prefix = {str(tmp_path / "profile")!r}
    session = onnxruntime.InferenceSession(model("Neg", *["Flatten"] * 4, "Relu"), options, providers=["openreg:0"])
    print((session.run(None, {{"x": x}})[0] == numpy.maximum(-x, 0)).all())
    print(session.end_profiling())
    """
    right, path = program(text, DEVICE_ORT="openreg").split()
    with open(path) as file:
        kernels = sorted(event["name"] for event in json.load(file) if event["cat"] == "Kernel")
    assert (right, kernels) == ("True", ["neg", "read", "relu", "write"])
