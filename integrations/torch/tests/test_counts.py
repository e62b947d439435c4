"""What is counted, and what DEVICE_TORCH_FALLBACK does. Each program sets its variables."""

PROGRAM = """
    import torch
    x = torch.tensor([3.0, 1.0], device="openreg")
    y = x + 1
    torch.openreg.reset_counts()
    print((x + y).tolist(), x.cumsum(0).tolist())
    counts = torch.openreg.counts()
    print(counts.native, counts.fallback)
    print(counts)
"""


def test_kernels_and_the_cpu_are_counted(program):
    printed = program(PROGRAM, DEVICE_TORCH="openreg").splitlines()
    assert printed[0] == "[7.0, 3.0] [3.0, 4.0]"
    assert printed[1] == "1 1"
    assert printed[2].split() == ["operator", "by", "type", "calls", "ms", "MB"]
    assert printed[3].split()[:4] == ["cumsum.out", "cpu", "float32", "1"]
    assert printed[4].split()[:4] == ["add.out", "kernel", "float32", "1"]


def test_an_expression_is_one_row_with_the_number_of_its_operators(program):
    text = """
        import torch
        x = torch.tensor([3.0, 1.0], device="openreg")
        torch.openreg.reset_counts()
        for _ in range(2):
            torch.ops.device_torch.expression("input f32, exp 0, neg 1, output 2", [x], [])
        counts = torch.openreg.counts()
        print(counts.native, counts.fused, counts.fallback, counts[0].operators)
        print(counts)
        torch.openreg.reset_counts()
        print(len(torch.openreg.counts()))
    """
    printed = program(text, DEVICE_TORCH="openreg").splitlines()
    assert printed[0] == "2 2 0 2"
    assert printed[2].split()[:5] == ["exp·neg", "fused", "2", "float32", "2"]
    assert printed[3] == "0"


def test_deny_is_an_error_that_names_the_operator(program):
    variables = {"DEVICE_TORCH": "openreg", "DEVICE_TORCH_FALLBACK": "deny"}
    printed = program(PROGRAM, fails=True, **variables)
    assert "NotImplementedError: aten::cumsum.out has no kernel on `openreg:0`" in printed
    assert "DEVICE_TORCH_FALLBACK=deny forbids the CPU" in printed


def test_deny_says_why_the_kernels_declined(program):
    text = "import torch; torch.tensor([1, 2], device='openreg') ** 2"
    printed = program(text, fails=True, DEVICE_TORCH="openreg", DEVICE_TORCH_FALLBACK="deny")
    assert "aten::pow.Tensor_Scalar_out" in printed and "rules of its own for integers" in printed


def test_a_device_without_kernels_says_so(program):
    text = "import torch; torch.ones(2, device='openreg')"
    variables = {"DEVICE_TORCH": "openreg", "DEVICE_TORCH_FALLBACK": "deny", "DEVICE_KERNELS_DISABLE": "*"}
    printed = program(text, fails=True, **variables)
    assert "aten::fill_.Scalar has no kernel on `openreg:0`: its backend has no kernels" in printed


def test_each_operator_is_one_of_pytorchs_and_listed_once(program):
    # The shim leaves out one that PyTorch does not know, as a misspelt one would be.
    text = """
        import ctypes, device_torch, pathlib, torch
        library = ctypes.CDLL(str(pathlib.Path(device_torch.__file__).parent / "libdevice_torch.so"))
        library.dt_operator.restype = ctypes.c_void_p
        names, length = [], ctypes.c_size_t()
        while text := library.dt_operator(ctypes.c_size_t(len(names)), ctypes.byref(length)):
            names.append(ctypes.string_at(text, length.value).decode())
        print(len(names) > 100 and len(names) == len(set(names)))
        known = set(torch._C._dispatch_get_all_op_names())
        print([name for name in names if "aten::" + name not in known])
    """
    assert program(text, DEVICE_TORCH="openreg") == "True\n[]\n"


def test_a_network_trains_with_no_fallback(program):
    text = """
        import torch
        from torch import nn
        network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to("openreg")
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        inputs, targets = torch.randn(5, 4).to("openreg"), torch.randn(5, 2).to("openreg")
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(network(inputs), targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(losses[2] < losses[0], torch.openreg.counts().fallback)
    """
    assert program(text, DEVICE_TORCH="openreg", DEVICE_TORCH_FALLBACK="deny") == "True 0\n"


def test_warn_warns_once_for_each_operator(program):
    printed = program(PROGRAM, DEVICE_TORCH="openreg", DEVICE_TORCH_FALLBACK="warn")
    assert printed.count("UserWarning: aten::cumsum.out has no kernel on `openreg:0`") == 1


def test_another_policy_is_an_error_that_names_the_three(program):
    text = "import torch; torch.ones(3, device='openreg').cumsum(0)"
    printed = program(text, fails=True, DEVICE_TORCH="openreg", DEVICE_TORCH_FALLBACK="never")
    assert "expected `allow`, `warn` or `deny`" in printed


def test_without_kernels_the_cpu_computes_where_the_bytes_are(program):
    printed = program(
        """
        import torch
        x = torch.tensor([[-1.0, 2.0], [float("nan"), 0.0]], device="openreg")
        torch.openreg.reset_counts()
        print(x.relu().tolist(), (x + x).tolist(), x[0].int().relu().tolist())
        print([count.operator for count in torch.openreg.counts() if count.bytes])
        """,
        DEVICE_TORCH="openreg",
        DEVICE_KERNELS_DISABLE="*",
    )
    numbers, copied = printed.splitlines()
    assert numbers == "[[0.0, 2.0], [nan, 0.0]] [[-2.0, 4.0], [nan, 0.0]] [0, 2]"
    assert copied == "['relu']", "of integers, as a result of its own"
