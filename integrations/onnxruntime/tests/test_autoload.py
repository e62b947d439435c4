"""That a program names a device, and nothing else."""


def test_a_device_is_a_provider_by_its_text(program):
    printed = program(
        """
        session = onnxruntime.InferenceSession(model("MatMul", "Add", "Relu"), providers=["openreg:1"])
        difference = numpy.abs(session.run(None, {"x": x})[0] - numpy.maximum(x @ x + x, 0)).max()
        import device_ort
        print(session.get_providers()[0], difference < 1e-6, device_ort.counts()["openreg:1"]["taken"] > 0)
        """,
        DEVICE_ORT="openreg",
    )
    assert printed == "openreg:1 True True\n"


def test_two_devices_compute_in_one_session(program):
    printed = program(
        """
        session = onnxruntime.InferenceSession(model("MatMul", "Relu"), providers=["openreg:0", "openreg:1"])
        print(session.get_providers(), numpy.allclose(session.run(None, {"x": x})[0], numpy.maximum(x @ x, 0)))
        """,
        DEVICE_ORT="openreg",
    )
    assert printed == "['openreg:0', 'openreg:1', 'CPUExecutionProvider'] True\n"


def test_no_backend_is_loaded_for_a_program_that_names_none(program):
    printed = program(
        """
        session = onnxruntime.InferenceSession(model("Relu"))
        print(session.get_providers(), "device_ort" in __import__("sys").modules)
        """,
        DEVICE_ORT="nonsense",
    )
    assert printed == "['CPUExecutionProvider'] False\n"


def test_a_simulated_device_that_was_not_chosen_is_an_error_that_says_how(program):
    text = 'onnxruntime.InferenceSession(model("Relu"), providers=["openreg:1"])'
    printed = program(text, fails=True)
    assert "ValueError: `openreg:1` is no device that ONNX Runtime is offered" in printed
    assert "DEVICE_ORT=openreg" in printed


def test_a_backend_that_does_not_exist_is_an_error_with_what_exists(program):
    text = 'onnxruntime.InferenceSession(model("Relu"), providers=["openreg:0"])'
    printed = program(text, fails=True, DEVICE_ORT="opnreg")
    assert "DEVICE_ORT is `opnreg`" in printed and "openreg" in printed


def test_a_device_that_does_not_exist_is_an_error_and_not_the_cpu(program):
    text = 'onnxruntime.InferenceSession(model("Relu"), providers=["openreg:7"])'
    printed = program(text, fails=True, DEVICE_ORT="openreg")
    assert "`openreg:7` is no device" in printed and "['openreg:0', 'openreg:1']" in printed


def test_variables_turn_the_autoload_off(program):
    text = 'print("openreg:0" in onnxruntime.get_available_providers())'
    assert program(text, DEVICE_ORT="openreg") == "True\n"
    for name in ("DEVICE_BACKEND_AUTOLOAD", "DEVICE_ORT_AUTOLOAD"):
        assert program(text, DEVICE_ORT="openreg", **{name: "0"}) == "False\n"


def test_one_call_takes_the_place_of_the_autoload(program):
    text = """
        import device_ort
        device_ort.register()
        print(onnxruntime.InferenceSession(model("Relu"), providers=["openreg:0"]).get_providers()[0])
    """
    assert program(text, DEVICE_ORT="openreg", DEVICE_ORT_AUTOLOAD="0") == "openreg:0\n"


def test_the_devices_say_what_they_are(program):
    printed = program(
        """
        found = {device.ep_name: dict(device.ep_metadata) for device in onnxruntime.get_ep_devices()}
        print(found["openreg:1"]["device"], found["openreg:1"]["kind"], "cpu" in found)
        """,
        DEVICE_ORT="openreg",
    )
    assert printed == "openreg:1 simulated False\n"


def test_a_backend_can_be_registered_again(program):
    text = """
        import device_ort
        for _ in range(3):
            onnxruntime.register_execution_provider_library("openreg", str(device_ort.LIBRARY))
            session = onnxruntime.InferenceSession(model("Relu"), providers=["openreg:0"])
            print(session.run(None, {"x": x})[0].max())
            del session
            onnxruntime.unregister_execution_provider_library("openreg")
    """
    assert program(text, DEVICE_ORT="openreg", DEVICE_ORT_AUTOLOAD="0") == "1.0\n" * 3


def test_a_registration_of_another_name_is_an_error_with_the_backends(program):
    text = """
        import device_ort
        onnxruntime.register_execution_provider_library("mine", str(device_ort.LIBRARY))
    """
    printed = program(text, fails=True, DEVICE_ORT="openreg")
    assert "`mine` is no backend of this program" in printed and "openreg" in printed


def test_four_threads_run_one_session(program):
    text = """
        import threading
        session = onnxruntime.InferenceSession(model("MatMul", "Add", "Relu"), providers=["openreg:0"])
        expected = numpy.maximum(x @ x + x, 0)
        wrong = []
        def work():
            for _ in range(50):
                if not numpy.allclose(session.run(None, {"x": x})[0], expected):
                    wrong.append(1)
        threads = [threading.Thread(target=work) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        print(wrong)
    """
    assert program(text, DEVICE_ORT="openreg") == "[]\n"


def test_a_search_for_the_module_changes_nothing(program):
    text = """
        import subprocess, sys
        child = "import importlib.util; importlib.util.find_spec('onnxruntime'); import onnxruntime; "
        child += "print('openreg:0' in onnxruntime.get_available_providers())"
        print(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout)
    """
    assert program(text, DEVICE_ORT="openreg") == "True\n\n"


def test_the_start_of_python_imports_nothing_more(program):
    text = """
        import subprocess, sys
        child = "import sys; print([name for name in ('ctypes', 'device_ort', 'onnxruntime') if name in sys.modules])"
        print(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout)
    """
    assert program(text, DEVICE_ORT="openreg") == "[]\n\n"


def test_a_provider_that_the_program_registered_itself_is_kept(program):
    text = """
        import device_ort
        onnxruntime.register_execution_provider_library("openreg", str(device_ort.LIBRARY))
        print(onnxruntime.InferenceSession(model("Relu"), providers=["openreg:0"]).get_providers()[0])
    """
    assert program(text, DEVICE_ORT="openreg") == "openreg:0\n"


def test_a_session_may_get_a_device_later(program):
    text = """
        session = onnxruntime.InferenceSession(model("Relu"))
        session.set_providers(["openreg:0"])
        print(session.get_providers()[0])
    """
    assert program(text, DEVICE_ORT="openreg") == "openreg:0\n"


def test_a_session_outlives_its_registration(program):
    text = """
        import device_ort
        onnxruntime.register_execution_provider_library("openreg", str(device_ort.LIBRARY))
        session = onnxruntime.InferenceSession(model("MatMul", "Relu"), providers=["openreg:0"])
        onnxruntime.unregister_execution_provider_library("openreg")
        print(numpy.allclose(session.run(None, {"x": x})[0], numpy.maximum(x @ x, 0)))
        del session
    """
    assert program(text, DEVICE_ORT="openreg", DEVICE_ORT_AUTOLOAD="0") == "True\n"


def test_an_output_is_bound_to_the_device_by_its_number(program):
    text = """
        session = onnxruntime.InferenceSession(model("Neg"), providers=["openreg:1"])
        binding = session.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_output("y", "gpu", 1)
        session.run_with_iobinding(binding)
        print((binding.copy_outputs_to_cpu()[0] == -x).all())
    """
    assert program(text, DEVICE_ORT="openreg") == "True\n"
