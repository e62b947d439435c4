"""Each run has a stream of its own: what one run does, and how it fails, is nothing to another."""

# A session that gathers: an index beyond the end is a failure on the device, after the call has returned.
GATHER = """
    def gather(device):
        value = lambda name, kind, shape: helper.make_tensor_value_info(name, kind, shape)
        inputs = [value("x", TensorProto.FLOAT, [4]), value("at", TensorProto.INT64, [1])]
        nodes = [helper.make_node("Gather", ["x", "at"], ["y"])]
        graph = helper.make_graph(nodes, "g", inputs, [value("y", TensorProto.FLOAT, [1])])
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        return onnxruntime.InferenceSession(made.SerializeToString(), providers=[device])

    def at(index):
        return {"x": numpy.arange(4, dtype="float32"), "at": numpy.array([index])}
"""


def test_a_run_that_fails_fails_no_other(program):
    text = GATHER + """
    import threading
    bad, good = gather("openreg:0"), onnxruntime.InferenceSession(model("Relu", "Neg"), providers=["openreg:0"])
    done, passed, failed = threading.Event(), [], []
    def others():
        while not done.is_set():
            try:
                good.run(None, {"x": x})
            except Exception as error:
                failed.append(error)
    threads = [threading.Thread(target=others) for _ in range(2)]
    [thread.start() for thread in threads]
    for _ in range(200):
        try:
            passed.append(bad.run(None, at(9)))
        except Exception as error:
            assert "Gather" in str(error) or "index" in str(error), error
    done.set()
    [thread.join() for thread in threads]
    print(passed, failed)
    """
    assert program(text, DEVICE_ORT="openreg") == "[] []\n"


def test_a_run_that_failed_does_not_fail_the_next(program):
    text = GATHER + """
    session = gather("openreg:0")
    for _ in range(3):
        try:
            session.run(None, at(9))
            print("it passed")
        except Exception:
            print(session.run(None, at(2))[0])
    """
    assert program(text, DEVICE_ORT="openreg") == "[2.]\n" * 3


def test_branches_that_run_at_the_same_time_agree_with_the_cpu(program):
    text = """
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64])
    nodes, ends = [], []
    for branch in range(4):
        last = "x"
        for step, operator in enumerate(["MatMul", "Tanh", "MatMul", "Sigmoid"]):
            name = f"b{branch}_{step}"
            nodes.append(helper.make_node(operator, [last, "x"] if operator == "MatMul" else [last], [name]))
            last = name
        ends.append(last)
    nodes.append(helper.make_node("Sum", ends, ["y"]))
    made = helper.make_model(helper.make_graph(nodes, "g", [value("x")], [value("y")]),
                             opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    x = numpy.random.default_rng(0).random((64, 64), numpy.float32)
    expected = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    options = onnxruntime.SessionOptions()
    options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    options.inter_op_num_threads = 4
    session = onnxruntime.InferenceSession(made, options, providers=["openreg:0"])
    print(all(numpy.allclose(session.run(None, {"x": x})[0], expected, atol=1e-4) for _ in range(50)))
    """
    assert program(text, DEVICE_ORT="openreg") == "True\n"


def test_a_value_that_nothing_has_waited_for_is_read_when_it_is_there(program):
    text = """
    import onnxruntime as ort
    shape = (128, 128)
    a = numpy.eye(128, dtype=numpy.float32) * 2
    session = ort.InferenceSession(model(*["MatMul"] * 8, shape=shape), providers=["openreg:0"])
    expected = numpy.linalg.matrix_power(a, 9)
    run = ort.RunOptions()
    run.add_run_config_entry("disable_synchronize_execution_providers", "1")
    right = True
    for _ in range(20):
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(a, "gpu", 0))
        binding.bind_output("y", "gpu", 0)
        session.run_with_iobinding(binding, run)
        right &= bool((binding.get_outputs()[0].numpy() == expected).all())
    print(right)
    """
    assert program(text, DEVICE_ORT="openreg", OPENREG_SLOW="2ms") == "True\n"


def test_a_run_comes_after_what_was_written_outside_of_it(program):
    text = """
    import onnxruntime as ort
    session = ort.InferenceSession(model("Neg", shape=(1 << 16,)), providers=["openreg:0"])
    value = ort.OrtValue.ortvalue_from_numpy(numpy.zeros(1 << 16, "float32"), "gpu", 0)
    right = True
    for number in range(50):
        value.update_inplace(numpy.full(1 << 16, number, "float32"))
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", value)
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        right &= bool((binding.copy_outputs_to_cpu()[0] == -number).all())
    print(right)
    """
    assert program(text, DEVICE_ORT="openreg") == "True\n"


def test_graphs_in_nodes_run_on_the_device(program):
    text = '''
    import onnx
    made = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17]>
        g (float[2, 2] x, bool c, int64 n) => (float[2, 2] y, float[k, 2, 2] all, float[2, 2] z) {
            y, all = Loop (n, c, x) <body = b (int64 i, bool on, float[2, 2] v) => (bool on2, float[2, 2] w, float[2, 2] s) {
                on2 = Identity (on)
                w = Add (v, x)
                s = Neg (w)
            }>
            z = If (c) <
                then_branch = t () => (float[2, 2] a) { a = Mul (y, y) },
                else_branch = e () => (float[2, 2] a) { a = Neg (x) }
            >
        }
    """).SerializeToString()
    one = numpy.arange(4, dtype="float32").reshape(2, 2)
    for provider in ["CPUExecutionProvider", "openreg:0"]:
        session = onnxruntime.InferenceSession(made, providers=[provider])
        for on in [True, False]:
            y, all, z = session.run(None, {"x": one, "c": numpy.array(on), "n": numpy.array(3)})
            print(y.sum(), all.sum(), z.sum())
    '''
    lines = program(text, DEVICE_ORT="openreg", DEVICE_ORT_FALLBACK="deny").splitlines()
    assert lines == ["24.0 -54.0 224.0", "6.0 0.0 -6.0"] * 2


def test_what_a_graph_computes_on_the_cpu_is_there_when_it_is_needed(program):
    # The device has no operator of `com.microsoft`: the value goes there and back with each turn.
    text = '''
    import onnx
    made = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[512, 512] x, bool c, int64 n) => (float[512, 512] y, float[k, 512, 512] all) {
            y, all = Loop (n, c, x) <body = b (int64 i, bool on, float[512, 512] v)
                    => (bool on2, float[512, 512] w, float[512, 512] s) {
                on2 = Identity (on)
                w = com.microsoft.QuickGelu (v)
                s = com.microsoft.QuickGelu (w)
            }>
        }
    """).SerializeToString()
    inputs = {"x": numpy.ones((512, 512), "float32"), "c": numpy.array(True), "n": numpy.array(4)}
    of = lambda provider: onnxruntime.InferenceSession(made, providers=[provider])
    expected, session = of("CPUExecutionProvider").run(None, inputs), of("openreg:0")
    found = (session.run(None, inputs) for _ in range(50))
    print(all((a == b).all() for outputs in found for a, b in zip(outputs, expected)))
    '''
    assert program(text, DEVICE_ORT="openreg").startswith("True\n")


def test_what_is_written_outside_of_a_run_that_fails_is_written(program):
    # A session's constants are copied while the runs of another one fail.
    text = GATHER + """
    import threading
    bad, done, wrong = gather("openreg:0"), threading.Event(), []
    def fail():
        while not done.is_set():
            try:
                bad.run(None, at(9))
            except Exception:
                pass
    threads = [threading.Thread(target=fail) for _ in range(2)]
    [thread.start() for thread in threads]
    value = onnxruntime.OrtValue.ortvalue_from_numpy(numpy.zeros(1 << 12, "float32"), "gpu", 0)
    session = onnxruntime.InferenceSession(model("Neg", shape=(1 << 12,)), providers=["openreg:0"])
    for number in range(200):
        value.update_inplace(numpy.full(1 << 12, number, "float32"))
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", value)
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        if not (binding.copy_outputs_to_cpu()[0] == -number).all():
            wrong.append(number)
    done.set()
    [thread.join() for thread in threads]
    print(wrong)
    """
    assert program(text, DEVICE_ORT="openreg") == "[]\n"
