"""PyTorch's profilers show what the device did: its operators, kernels, copies and memory, with their times."""

import json
import os
import pathlib
import shutil
import subprocess
import threading
import time

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, schedule

BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
CHOSEN = {name: value for name, value in os.environ.items() if name.startswith("DEVICE_TORCH")}
CHECKOUT = pathlib.Path(__file__).parents[3]


@pytest.fixture
def kernels(device, module):
    """Skips the test where no kernel of the device multiplies matrices."""
    module.reset_counts()
    matrix(device) @ matrix(device)
    if not any(count.operator == "mm.out" and count.native for count in module.counts()):
        pytest.skip("the CPU computes in the place of kernels")


def matrix(device):
    return torch.randn(128, 128, device=device)


def of_device(profiled):
    """The rows of devices."""
    return [event for event in profiled.events() if event.device_type == torch.autograd.DeviceType.PrivateUse1]


def named(profiled, name):
    """The sum of the operators of that name."""
    return sum(row.count for row in profiled.key_averages() if row.key == name), sum(
        row.device_time_total for row in profiled.key_averages() if row.key == name
    )


def messages(written):
    """What was written, without times and numbers of processes."""
    return {line.split("] ", 1)[-1] for line in written.splitlines()}


def test_use_device_has_times_of_operators_and_writes_nothing(device, kernels, capfd):
    with torch.autograd.profiler.profile():
        torch.ones(2) + 1
    of_cpu = messages(capfd.readouterr().err)
    begun = time.perf_counter()
    with torch.autograd.profiler.profile(use_device=device) as profiled:
        (matrix(device) @ matrix(device)).relu().cpu()
    wall = (time.perf_counter() - begun) * 1e6
    # Kineto writes lines of its own, without any device.
    assert messages(capfd.readouterr().err) <= of_cpu
    count, total = named(profiled, "aten::mm")
    assert count > 0 and 0 < total < 2 * wall
    rows = profiled.key_averages()
    assert 0 < sum(row.self_device_time_total for row in rows) < wall
    assert f"{device.upper()} total" in rows.table()


def test_the_cpu_in_the_place_of_the_device_is_no_warning(device, recwarn):
    tensor = matrix(device)
    for use_kineto in (False, True):
        with torch.autograd.profiler.profile(use_device=device, use_kineto=use_kineto) as profiled:
            tensor.cumsum(0)
        assert "aten::cumsum" in {row.key for row in profiled.key_averages()}
    assert [str(warning.message) for warning in recwarn] == []


def test_rows_of_the_device_have_names_and_plausible_times(device, kernels, capfd):
    with profile(activities=[ProfilerActivity.CPU]):
        torch.ones(2) + 1
    of_cpu = messages(capfd.readouterr().err)
    source = torch.ones(1000)
    begun = time.perf_counter()
    with profile(activities=BOTH) as profiled:
        result = (matrix(device) @ matrix(device)).relu()
        result[0, 0] = 1
        source.to(device)
        result.cpu()
    wall = (time.perf_counter() - begun) * 1e6
    assert messages(capfd.readouterr().err) <= of_cpu
    rows = of_device(profiled)
    assert {"matmul", "relu", "Memcpy HtoD", "Memcpy DtoH"} <= {row.name for row in rows}
    for row in rows:
        assert row.device_index == 0
        assert 0 <= row.time_range.start <= row.time_range.end <= wall
    assert 0 < sum(row.time_range.elapsed_us() for row in rows) < wall
    # The operator has the time of its kernel.
    [kernel] = [row for row in rows if row.name == "matmul"]
    averages = {row.key: row for row in profiled.key_averages()}
    assert averages["aten::matmul"].device_time_total == pytest.approx(kernel.time_range.elapsed_us())
    assert averages["aten::matmul"].self_device_time_total == 0
    assert averages["matmul"].self_device_time_total == pytest.approx(kernel.time_range.elapsed_us())
    assert f"Self {device.upper()}" in profiled.key_averages().table(sort_by="self_device_time_total")


def test_a_profile_of_the_cpu_has_no_row_of_the_device(device):
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        matrix(device).cpu()
    assert of_device(profiled) == []


def test_a_profile_of_the_device_alone_has_its_rows(device, kernels):
    with profile(activities=[ProfilerActivity.PrivateUse1]) as profiled:
        matrix(device) @ matrix(device)
    assert "matmul" in {row.name for row in of_device(profiled)}


def test_a_chrome_trace_has_kernels_with_their_operators(device, module, kernels, tmp_path):
    with profile(activities=BOTH) as profiled:
        (matrix(device) @ matrix(device)).cpu()
    path = tmp_path / "trace.json"
    profiled.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    [kernel] = [event for event in events if event.get("cat") == "kernel" and event["name"] == "matmul"]
    [operator] = [event for event in events if event.get("cat") == "cpu_op" and event["name"] == "aten::mm"][-1:]
    assert kernel["args"]["External id"] == operator["args"]["External id"]
    assert kernel["dur"] > 0 and kernel["pid"] == kernel["args"]["device"] == 0
    assert operator["ts"] <= kernel["ts"]
    names = {(event["pid"], event["args"]["name"]) for event in events if event["name"] == "process_name"}
    assert (0, module.get_device_name(0)) in names
    copies = [event for event in events if event.get("cat") == "gpu_memcpy" and event["name"] == "Memcpy DtoH"]
    assert copies[-1]["args"]["bytes"] == 128 * 128 * 4
    lanes = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert lanes[kernel["pid"], kernel["tid"]] == "PyTorch stream 0"
    waits = [event for event in events if event.get("cat") == "privateuse1_runtime"]
    assert any("synchronize" in wait["name"] for wait in waits)
    assert not any("event" in wait["name"] for wait in waits), "the profiler's own wait"


def test_a_schedule_records_its_steps_alone(device, kernels):
    traces = []
    with profile(
        activities=BOTH, schedule=schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=traces.append
    ) as profiled:
        counts = []
        for _ in range(8):
            matrix(device) @ matrix(device)
            profiled.step()
            if profiled.events() and len(traces) > len(counts):
                counts.append([row.name for row in of_device(profiled)].count("matmul"))
    assert counts == [2, 2]


def test_a_second_profile_has_its_own_rows(device, kernels):
    matrix(device) @ matrix(device)
    for calls in (3, 1):
        with profile(activities=BOTH) as profiled:
            for _ in range(calls):
                matrix(device) @ matrix(device)
        assert [row.name for row in of_device(profiled)].count("matmul") == calls
        matrix(device) @ matrix(device)


def test_rows_of_each_thread_belong_to_its_operators(device, kernels):
    config = torch.profiler._ExperimentalConfig(profile_all_threads=True)
    left, right = matrix(device), matrix(device)

    def compute():
        for _ in range(50):
            left @ right

    with profile(activities=BOTH, experimental_config=config) as profiled:
        threads = [threading.Thread(target=compute) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    rows = [row for row in of_device(profiled) if row.name == "matmul"]
    assert len(rows) == 100
    operators = [event for event in profiled.events() if event.name == "aten::mm" and event.kernels]
    assert len(operators) == 100 and len({event.thread for event in operators}) == 2
    # No two operators have one kernel.
    assert len({row.linked_correlation_id for row in rows}) == 100


def test_the_backward_pass_has_rows(device, kernels):
    left, right = matrix(device).requires_grad_(), matrix(device).requires_grad_()
    with profile(activities=BOTH) as profiled:
        (left @ right).sum().backward()
    averages = {row.key: row for row in profiled.key_averages()}
    assert averages["MmBackward0"].device_time_total > 0
    assert averages["matmul"].count == 3


def test_work_of_another_device_is_complete(two_devices, kernels):
    tensors = [matrix(device) for device in two_devices]
    with profile(activities=BOTH) as profiled:
        # PyTorch waits for the current device alone.
        for _ in range(20):
            tensors[1] @ tensors[1]
    rows = [row for row in of_device(profiled) if row.name == "matmul"]
    assert [row.device_index for row in rows] == [1] * 20


def test_memory_is_counted(device):
    with profile(activities=BOTH, profile_memory=True) as profiled:
        tensor = torch.empty(1 << 16, dtype=torch.uint8, device=device)
        del tensor
    rows = {row.key: row for row in profiled.key_averages()}
    assert rows["aten::empty"].self_device_memory_usage == 1 << 16
    assert rows["[memory]"].self_device_memory_usage == -(1 << 16)
    assert f"{device.upper()} Mem" in profiled.key_averages().table()


def observers():
    """The threads that get records."""
    names = [path.read_text().strip() for path in pathlib.Path("/proc/self/task").glob("*/comm")]
    return [name for name in names if name.startswith("observer")]


def test_nothing_is_recorded_when_off(device):
    before = observers()
    matrix(device).cpu()
    with profile(activities=BOTH):
        matrix(device).cpu()
        # A thread gives itself its name, when it begins.
        deadline = time.monotonic() + 10
        while len(observers()) == len(before) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(observers()) == len(before) + 1
    matrix(device).cpu()
    assert observers() == before


def test_an_operator_that_outlives_the_profile_leaves_nothing(device, kernels):
    profiled = profile(activities=BOTH)
    with torch.profiler.record_function("outer"):
        profiled.start()
        with torch.profiler.record_function("inner"):
            matrix(device) @ matrix(device)
            profiled.stop()
    assert "matmul" in {row.name for row in of_device(profiled)}
    with profile(activities=BOTH) as again:
        matrix(device) @ matrix(device)
    [row] = [row for row in of_device(again) if row.name == "matmul"]
    assert named(again, "aten::mm")[1] >= row.time_range.elapsed_us()


@pytest.mark.skipif(CHOSEN.get("DEVICE_TORCH") != "openreg", reason="the variables are of `openreg`")
def test_slow_copies_have_long_times(program):
    printed = program(
        """
        import torch
        source, result = torch.empty(2, 1024, device="openreg")
        for use_kineto in (False, True):
            with torch.autograd.profiler.profile(use_device="openreg", use_kineto=use_kineto) as profiled:
                result.copy_(source)
            print([row.device_time_total for row in profiled.key_averages() if row.key == "aten::copy_"])
        """,
        DEVICE_TORCH="openreg",
        OPENREG_SLOW="50ms",
    )
    times = [float(line.strip("[]")) for line in printed.splitlines() if line.startswith("[") and line[1].isdigit()]
    assert len(times) == 2 and all(50_000 <= time < 5e6 for time in times), printed


@pytest.mark.skipif(CHOSEN.get("DEVICE_TORCH") != "openreg", reason="the variables are of `openreg`")
def test_the_program_gets_the_failure_of_work_and_not_the_profiler(program):
    printed = program(
        """
        import torch
        source = torch.empty(1024, device="openreg:1")
        # The current device is another one, for which PyTorch waits.
        with torch.autograd.profiler.profile(use_device="openreg", use_kineto=True):
            torch.empty_like(source).copy_(source)
        try:
            torch.openreg.synchronize(1)
        except RuntimeError as error:
            print("failed:", error)
        torch.openreg.synchronize(1)
        """,
        DEVICE_TORCH="openreg",
        OPENREG_FAIL_COPY="1",
    )
    [failed] = [line for line in printed.splitlines() if line.startswith("failed:")]
    assert "fail" in failed.removeprefix("failed:") and "the profiler" not in printed, printed


@pytest.mark.parametrize("use_kineto", [False, True])
def test_a_child_of_a_fork_gets_a_clear_error(program, device, use_kineto):
    printed = program(
        f"""
        import os, torch
        torch.ones(2, device="{device}")
        child = os.fork()
        if child == 0:
            try:
                with torch.autograd.profiler.profile(use_device="{device}", use_kineto={use_kineto}):
                    torch.ones(2) + 1
            except RuntimeError as error:
                print("failed:", error, flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        """,
        **CHOSEN,
    )
    assert printed.count("the profiler ") == 1, printed
    [failed] = [line for line in printed.splitlines() if line.startswith("failed:")]
    assert "fork" in failed and "C++" not in printed, printed


@pytest.fixture
def clockless(tmp_path):
    """A folder with the template in C whose queues have no clock."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    template = CHECKOUT / "examples" / "custom-backend" / "c"
    text = (template / "mycqueue.c").read_text()
    changed = text.replace("dp_properties found = {", "dp_properties found = {.flags = DP_NO_TIMED_EVENTS,")
    assert changed != text
    source = tmp_path / "source" / "mycqueue.c"
    shutil.copytree(template, source.parent)
    source.write_text(changed)
    folder = tmp_path / "plugins"
    folder.mkdir(mode=0o755)
    headers = ["crates/device-plugin/include", "kernels/device-kernels-plugin/include"]
    includes = [f"-I{CHECKOUT / header}" for header in headers]
    library = folder / "libmycqueue.so"
    subprocess.run(
        ["cc", "-std=c11", "-O1", "-fPIC", "-shared", "-pthread", *includes, source, "-o", library], check=True
    )
    for file in (library, *template.glob("mycqueue*.json")):
        copied = folder / file.name
        if file != library:
            shutil.copy(file, copied)
        copied.chmod(0o644)
    return folder


def test_a_device_without_a_clock_says_so(program, clockless):
    printed = program(
        """
        import torch
        tensor = torch.ones(64, 64, device="mycqueue")
        for use_kineto in (False, True):
            with torch.autograd.profiler.profile(use_device="mycqueue", use_kineto=use_kineto) as profiled:
                for _ in range(3):
                    tensor = (tensor @ tensor).relu()
                tensor.cpu()
            total = sum(row.self_device_time_total for row in profiled.key_averages())
            print("kineto" if use_kineto else "events", total > 0)
        names = [event.name for event in profiled.function_events]
        print(names.count("matmul"), names.count("relu"))
        """,
        DEVICE_TORCH="mycqueue",
        DEVICE_TORCH_PLUGINS=str(clockless),
    )
    assert "events False" in printed and "kineto True" in printed and "3 3" in printed, printed
    assert printed.count("the profiler has no times of the device") == 1, printed
    assert printed.count("`mycqueue:0` has no clock") == 1 and "C++" not in printed, printed
