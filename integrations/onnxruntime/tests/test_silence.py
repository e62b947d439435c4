"""ONNX Runtime computes on the CPU in silence in several ways. None of them is a device's."""


def test_a_device_that_cannot_be_opened_is_an_error(program):
    # As in a child of a fork, whose parent has used it.
    text = """
        import os
        parent = onnxruntime.InferenceSession(model("Relu"), providers=["openreg:0"])
        if os.fork() == 0:
            try:
                onnxruntime.InferenceSession(model("Relu"), providers=["openreg:0"])
                print("it was made", flush=True)
            except Exception as error:
                print("was in use when this process was forked" in str(error), flush=True)
            os._exit(0)
        os.wait()
    """
    assert program(text, DEVICE_ORT="openreg") == "True\n"


def test_a_session_whose_device_takes_nothing_says_so(program):
    # There are no kernels of strings.
    text = 'onnxruntime.InferenceSession(model("Identity", dtype=TensorProto.STRING), providers=["openreg:0"])'
    printed = program(text, DEVICE_ORT="openreg")
    assert "`openreg:0` computes 0 of 1 nodes; of the others, Identity: no kernel has its type" in printed


def test_deny_is_an_error_that_names_each_operator_and_why(program):
    text = """
        import device_ort
        onnxruntime.InferenceSession(model("Relu", "Det", shape=(2, 2)), providers=["openreg:0"])
    """
    printed = program(text, fails=True, DEVICE_ORT="openreg", DEVICE_ORT_FALLBACK="deny")
    assert "`openreg:0` computes 1 of 2 nodes" in printed
    assert "Det: there is no such operator here" in printed and "DEVICE_ORT_FALLBACK is `deny`" in printed


def test_another_policy_is_an_error_that_names_both(program):
    text = 'onnxruntime.InferenceSession(model("Relu", "Det", shape=(2, 2)), providers=["openreg:0"])'
    printed = program(text, fails=True, DEVICE_ORT="openreg", DEVICE_ORT_FALLBACK="never")
    assert "expected `allow` or `deny`" in printed


def test_what_is_left_to_the_cpu_is_counted(program):
    text = """
        import device_ort
        session = onnxruntime.InferenceSession(model("Relu", "Det", shape=(2, 2)), providers=["openreg:0"])
        print(device_ort.counts()["openreg:0"])
    """
    assert program(text, DEVICE_ORT="openreg").startswith("{'taken': 1, 'Det': 1}\n")


def test_a_device_without_kernels_takes_nothing_and_says_so(program):
    text = 'onnxruntime.InferenceSession(model("Relu"), providers=["openreg:0"])'
    printed = program(text, DEVICE_ORT="openreg", DEVICE_KERNELS_DISABLE="*")
    assert "`openreg:0` computes 0 of 1 nodes" in printed and "no kernel for `relu` of f32" in printed


def test_a_failure_in_a_run_is_an_error_of_the_run(program):
    text = """
        session = onnxruntime.InferenceSession(model("MatMul", "Relu"), providers=["openreg:0"])
        try:
            for _ in range(100):
                session.run(None, {"x": x})
        except Exception as error:
            print("lost" in str(error), session.get_providers()[0])
    """
    printed = program(text, DEVICE_ORT="openreg", OPENREG_LOSE_DEVICE="20")
    assert printed == "True openreg:0\n"


def test_memory_that_is_not_there_is_an_error_with_the_reason(program):
    text = """
        shape = (1 << 14, 1 << 14)
        session = onnxruntime.InferenceSession(model("Relu", "Neg", shape=shape), providers=["openreg:0"])
        session.run(None, {"x": numpy.zeros(shape, numpy.float32)})
    """
    printed = program(text, fails=True, DEVICE_ORT="openreg")
    assert "memory" in printed and "openreg:0" in printed


def test_a_graph_that_is_asked_for_twice_is_counted_once(program):
    text = """
        import device_ort
        versions = [helper.make_opsetid("", 17), helper.make_opsetid("loc", 1)]
        nodes = [helper.make_node("Relu", ["x"], ["y"])]
        function = helper.make_function("loc", "F", ["x"], ["y"], nodes, versions[:1])
        value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4])
        nodes = [helper.make_node("F", ["x"], ["y"], domain="loc")]
        graph = helper.make_graph(nodes, "g", [value("x")], [value("y")])
        made = helper.make_model(graph, functions=[function], ir_version=9, opset_imports=versions)
        onnxruntime.InferenceSession(made.SerializeToString(), providers=["openreg:0"])
        print(device_ort.counts()["openreg:0"])
    """
    assert program(text, DEVICE_ORT="openreg", DEVICE_ORT_FALLBACK="deny") == "{'taken': 1}\n"


def test_a_corrupt_model_is_an_error_of_onnx_runtime_and_the_next_session_works(program):
    text = """
        made = model("MatMul", "Relu")
        for cut in range(0, len(made), 7):
            try:
                onnxruntime.InferenceSession(made[:cut], providers=["openreg:0"]).run(None, {"x": x})
                print("it ran")
            except Exception:
                pass
        print(onnxruntime.InferenceSession(made, providers=["openreg:0"]).run(None, {"x": x})[0].shape)
    """
    assert program(text, DEVICE_ORT="openreg").splitlines()[-1] == "(4, 4)"


def test_a_trace_that_cannot_be_written_harms_no_run(program):
    text = """
        session = onnxruntime.InferenceSession(model("MatMul", "Relu"), providers=["openreg:0"])
        print(session.run(None, {"x": x})[0].shape)
    """
    printed = program(text, DEVICE_ORT="openreg", DEVICE_TRACE="/dev/full")
    assert printed.startswith("(4, 4)\n"), printed
