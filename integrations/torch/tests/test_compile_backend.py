"""`torch.compile(…, backend="device_torch")`: what it computes is what the operators compute one by one."""

import copy
import logging

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.nn import functional

BACKEND = "device_torch"


@pytest.fixture(autouse=True)
def _forgets_what_was_compiled():
    counters.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture
def kernels(device, module):
    """Skips the test where the device has no kernels."""
    if not torch.ops.device_torch.has_kernels(0):
        pytest.skip("the CPU computes in the place of kernels")


def compiled(function, **options):
    return torch.compile(function, backend=BACKEND, fullgraph=True, **options)


def counted(module, function, *arguments):
    """The result of a function, and the counts of its operators."""
    module.synchronize()
    module.reset_counts()
    result = function(*arguments)
    module.synchronize()
    return result, module.counts()


def check(module, function, *arguments, expressions=None, **options):
    """Compares a compiled function with the function, and returns both counts."""
    expected, eager = counted(module, function, *arguments)
    traced = compiled(function, **options)
    traced(*arguments)
    result, fused = counted(module, traced, *arguments)
    torch.testing.assert_close(result, expected, equal_nan=True)
    if expressions is not None:
        assert fused.fused == expressions, f"\n{fused}"
    return eager, fused


# --- What is fused ---


def test_elements_are_computed_by_one_launch(device, module, kernels):
    x, scale = torch.randn(8, 6).to(device), torch.randn(6).to(device)
    eager, fused = check(module, lambda x, scale: (x * 2 + 1).tanh() * scale - x, x, scale, expressions=1)
    assert eager.native == 5 and fused.native == 1
    (count,) = fused
    assert count.operator == "mul·add·tanh·mul·sub" and count.operators == 5
    assert "fused 5" in str(fused)


def test_a_softmax_and_a_norm_are_one_expression_each(device, module, kernels):
    x, weight = torch.randn(5, 7).to(device), torch.randn(7).to(device)
    check(module, lambda x: torch.softmax(x * 2, 1) + 1, x, expressions=1)
    check(module, lambda x: torch.log_softmax(x * 2, 0), x, expressions=1)
    check(module, lambda x, w: functional.layer_norm(x, (7,), w, w).relu(), x, weight, expressions=1)
    check(module, lambda x: functional.rms_norm(x, (7,)), x, expressions=1)


def test_reduced_dimensions_stay_or_not(device, module, kernels):
    x = torch.randn(4, 5, 6).to(device)
    check(module, lambda x: (x - x.mean(1, keepdim=True)) * (x.sum(1).unsqueeze(1) + 1), x, expressions=1)
    check(module, lambda x: x.abs().amax((0, 2)).sqrt() + 1, x, expressions=1)
    check(module, lambda x: (x * x).sum() / 2, x, expressions=1)
    check(module, lambda x: torch.var_mean(x, (0, 1)), x, expressions=1)
    # Without the leading dimension, what is left is broadcast as it is.
    check(module, lambda x: x - x.mean(0), x, expressions=1)
    check(module, lambda x: (x.sum(2) + x.mean(2), x.sum(2, keepdim=True) * 2), x, expressions=1)


def test_what_is_reduced_meets_tensors_of_its_own_shape(device, module, kernels):
    x, other = torch.randn(4, 5, 6).to(device), torch.randn(4, 6).to(device)
    check(module, lambda x, other: (x.sum(1) * other + 1).relu(), x, other, expressions=1)
    square = torch.randn(5, 5).to(device)
    # `[5]` is a row here, and not what is left of each row.
    check(module, lambda x: x + x.sum(1), square)
    check(module, lambda x: x.exp() + x.sum(1) * x.sum(0), square)


def test_reductions_of_other_dimensions_are_expressions_of_their_own(device, module, kernels):
    x = torch.randn(4, 5).to(device)
    _, fused = check(module, lambda x: torch.softmax(torch.softmax(x, 0), 1), x, expressions=2)
    assert fused.native == 2


def test_one_operator_is_called_as_it_is(device, module, kernels):
    x = torch.randn(4, 4).to(device)
    _, fused = check(module, lambda x: (x @ x).relu() @ x, x, expressions=0)
    assert [count.operator for count in fused if count.dtype] and fused.native == 3


def test_an_expression_never_needs_itself(device, module, kernels):
    x = torch.randn(4, 4).to(device)
    # The product lies between the two uses of the exponential.
    check(module, lambda x: (x.exp() + 1) * ((x.exp() + 1) @ x).tanh() + x.exp(), x)
    check(module, lambda x: (x + 1) * torch.cumsum(x + 1, 0) * 2 + (x * 3), x)


def test_large_groups_are_several_expressions(device, module, kernels):
    x = torch.randn(3, 4).to(device)

    def long(x):
        for number in range(200):
            x = (x + number / 7).sin()
        return x

    def many(x):
        return [(x + number) * 2 for number in range(1, 20)]

    def wide(*inputs):
        return sum((x * 2 for x in inputs[1:]), inputs[0])

    _, fused = check(module, long, x)
    assert fused.native < 10
    _, fused = check(module, many, x)
    assert fused.native < 10
    _, fused = check(module, wide, *[torch.randn(3, 4).to(device) for _ in range(40)])
    assert fused.native < 20


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_rounded_as_without_a_compiler(device, module, kernels, dtype):
    x, y = torch.randn(50, 20).to(device, dtype), torch.randn(50, 20).to(device, dtype)
    functions = [
        lambda x, y: (x * y + x) * y - y,
        lambda x, y: (x + 0.1) * 3 - y,
        lambda x, y: functional.silu(x).float() + y,
        lambda x, y: torch.where(x > y, x, y * 0.5) + 1,
    ]
    for function in functions:
        expected, got = function(x, y), compiled(function)(x, y)
        assert expected.dtype == got.dtype and torch.equal(expected, got)


def test_types_are_promoted_as_without_a_compiler(device, module, kernels):
    floats, ints = torch.randn(6, 5).to(device), torch.randint(-9, 9, (6, 5)).to(device)
    truths, bytes_ = floats > 0, torch.randint(0, 99, (6, 5), dtype=torch.uint8).to(device)
    one = torch.tensor(3.0, dtype=torch.float64)
    for function in (
        lambda f, i, t, b: (f + i) * t + b,
        lambda f, i, t, b: (i + b) * 2 - t.int(),
        lambda f, i, t, b: i / 3 + i.half() * 1.5,
        lambda f, i, t, b: (t & (f < i)) | (b > 50),
        lambda f, i, t, b: (i.sum(1) + t.sum(1)) * 2,
        lambda f, i, t, b: (t.any(1), t.all(0), (i > 3).sum()),
        lambda f, i, t, b: f * one + i * 2.5,
        lambda f, i, t, b: torch.where(t, f, i) * 2,
        lambda f, i, t, b: (f.half() * one + 1, f[0, 0] + i + 1),
    ):
        check(module, function, floats, ints, truths, bytes_)


def test_layouts_are_those_of_eager(device, module, kernels):
    images = torch.randn(2, 3, 4, 5).to(device).to(memory_format=torch.channels_last)
    rows = torch.randn(6, 7).to(device)
    for function, argument in (
        (lambda x: (x + 1) * 2, images),
        (lambda x: (x.t() + 1).relu(), rows),
        (lambda x: (x[:, ::2] * 2 + 1).transpose(0, 1), rows),
        (lambda x: (x.expand(3, 6, 7) + 1) * 2, rows),
        (lambda x: ((x.permute(0, 2, 3, 1) + 1) * 2).contiguous().view(-1, 3), images),
    ):
        check(module, function, argument)
        assert compiled(function)(argument).stride() == function(argument).stride()


# --- PyTorch's operators ---

# Each is followed by another operator, as one alone is called as it is.
OPERATORS = """
    abs add addcdiv addcmul amax amin atan2 clamp clamp_max cos div eq erf exp floor ge hypot isnan le lerp
    log1p log_softmax logaddexp logical_and logical_or logsumexp lt masked_fill maximum mean mul nan_to_num
    neg pow prod rsub rsqrt sigmoid sign softmax sqrt square std sub sum tanh trunc var where any all
    bitwise_xor nn.functional.elu nn.functional.gelu nn.functional.hardswish nn.functional.hardtanh
    nn.functional.layer_norm nn.functional.leaky_relu nn.functional.mish nn.functional.mse_loss
    nn.functional.relu6 nn.functional.silu nn.functional.softplus nn.functional.smooth_l1_loss
    nn.functional.glu nn.functional.batch_norm
""".split()


def of_database(name, dtype):
    """Functions of an operator on samples of PyTorch's database, of which two have many elements and some
    shapes."""
    from torch.testing._internal.common_methods_invocations import op_db

    info = next(info for info in op_db if info.name == name)
    if dtype not in info.dtypes:
        return
    samples = []
    for sample in info.sample_inputs("cpu", dtype):
        if isinstance(sample.input, torch.Tensor) and sample.input.numel() > 1:
            samples.append(sample)
        if len(samples) == 6:
            break
    for sample in samples[::3] if dtype == torch.float32 else samples[:1]:
        yield info, sample


def then(result):
    """One more operator on each result."""
    return [
        ~leaf if leaf.dtype == torch.bool else leaf + leaf
        for leaf in torch.utils._pytree.tree_leaves(result)
        if isinstance(leaf, torch.Tensor)
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64], ids=str)
def test_operators_of_pytorchs_database(device, module, kernels, dtype):
    failures, fused = [], 0
    for name in OPERATORS:
        for info, sample in of_database(name, dtype):
            moved = sample.transform(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf)
            function = lambda *arguments: then(info.op(*arguments, **moved.kwargs))  # noqa: B023
            arguments = (moved.input, *moved.args)
            try:
                expected = function(*arguments)
            except (RuntimeError, NotImplementedError):
                continue
            tolerance = {"rtol": 5e-3, "atol": 5e-3} if dtype == torch.float16 else {}
            try:
                result, counts = counted(module, compiled(function, dynamic=False), *arguments)
                torch.testing.assert_close(result, expected, equal_nan=True, **tolerance)
                fused += counts.fused
            except Exception as error:  # noqa: BLE001 # All of them are reported.
                failures.append(f"{name}: {type(error).__name__}: {error}")
            torch._dynamo.reset()
    assert failures == []
    assert fused > {torch.float32: 90, torch.float16: 40, torch.int64: 20}[dtype]


# --- Networks ---


class Recurrent(nn.Module):
    """An LSTM, step by step."""

    def __init__(self):
        super().__init__()
        self.cell, self.output = nn.LSTMCell(5, 8), nn.Linear(8, 3)

    def forward(self, inputs):
        states = None
        for step in inputs.unbind(1):
            states = self.cell(step, states)
        return self.output(states[0])


class Attention(nn.Module):
    """A block of GPT2, in plain operators."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads, self.norms = heads, nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(
            nn.Linear(width, 32), nn.GELU(approximate="tanh"), nn.Linear(32, width)
        )

    def forward(self, states):
        batch, length, width = states.shape
        parts = (
            self.attention(self.norms[0](states))
            .view(batch, length, 3, self.heads, -1)
            .permute(2, 0, 3, 1, 4)
        )
        query, key, value = parts.unbind(0)
        mask = torch.ones(length, length, dtype=torch.bool, device=states.device).tril()
        scores = (query @ key.transpose(-2, -1) * (width // self.heads) ** -0.5).masked_fill(
            ~mask, float("-inf")
        )
        found = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, length, width)
        states = states + self.output(found)
        return states + self.perceptron(self.norms[1](states))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(20, 16), nn.Embedding(9, 16)
        self.blocks, self.norm = nn.Sequential(Attention(), Attention()), nn.LayerNorm(16)

    def forward(self, text):
        states = self.words(text) + self.places(torch.arange(text.shape[1], device=text.device))
        return (self.norm(self.blocks(states)) @ self.words.weight.t()).flatten(0, 1)


def perceptron():
    return nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3))


def encoder():
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)


def convolutions():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.SiLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5),
    )  # fmt: skip


NETWORKS = {
    "perceptron": (perceptron, lambda: (torch.randn(12, 6), torch.randn(12, 3)), functional.mse_loss),
    "encoder": (encoder, lambda: (torch.randn(3, 5, 8), torch.randn(3, 5, 8)), functional.mse_loss),
    "convolutions": (
        convolutions,
        lambda: (torch.randn(4, 2, 9, 9), torch.randint(5, (4,))),
        functional.cross_entropy,
    ),
    "recurrent": (Recurrent, lambda: (torch.randn(4, 6, 5), torch.randn(4, 3)), functional.mse_loss),
    "gpt": (Gpt, lambda: (torch.randint(20, (3, 9)), torch.randint(20, (27,))), functional.cross_entropy),
}


def trained(network, inputs, targets, loss, compiles, steps=5, **options):
    """The losses of a training with Adam."""
    network = copy.deepcopy(network)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01, **options)

    def forward(inputs, targets):
        return loss(network(inputs), targets)

    step = optimizer.step
    if compiles:
        forward, step = compiled(forward), torch.compile(step, backend=BACKEND)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = forward(inputs, targets)
        value.backward()
        step()
        losses.append(value.item())
    return losses


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_train_as_without_a_compiler(device, module, kernels, name):
    network, data, loss = NETWORKS[name]
    network, (inputs, targets) = network().to(device), data()
    arguments = (network, inputs.to(device), targets.to(device), loss)
    expected, found = trained(*arguments, False), trained(*arguments, True)
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-6) and expected[-1] < expected[0]
    assert counters["device_torch"]["graphs that are not fused"] == 0
    assert counters["device_torch"]["groups that are not fused"] == 0
    assert counters["device_torch"]["calls that are not fused"] == 0
    assert counters["device_torch"]["expressions"] > 3


@pytest.mark.parametrize(
    "options", [{}, {"foreach": True}, {"capturable": True}, {"amsgrad": True, "weight_decay": 0.1}]
)
def test_a_step_of_adam_is_few_launches(device, module, kernels, options):
    torch.manual_seed(3)
    weights = [torch.randn(7, 5).to(device).requires_grad_() for _ in range(6)]
    twins = [weight.detach().clone().requires_grad_() for weight in weights]
    optimizers = [torch.optim.Adam(each, lr=0.1, **options) for each in (weights, twins)]
    steps = [optimizers[0].step, torch.compile(optimizers[1].step, backend=BACKEND)]
    for _ in range(4):
        for weight, twin in zip(weights, twins):
            weight.grad = torch.randn(7, 5).to(device)
            twin.grad = weight.grad.clone()
        launches = [counted(module, step)[1].native for step in steps]
    for weight, twin in zip(weights, twins):
        torch.testing.assert_close(twin, weight, rtol=1e-4, atol=1e-5)
    # The results are where the weights were: nothing is copied.
    assert launches[1] <= 6 + 6 * options.get("capturable", False) and launches[0] >= 40, launches


def test_numbers_of_the_cpu_are_computed_at_once(device, module, kernels):
    """As an optimizer counts the steps of each parameter."""

    def function(tensors, numbers):
        results = []
        for tensor, number in zip(tensors, numbers):
            number.add_(1)
            results.append(tensor * (1 - 0.9**number).sqrt() + 0.5 / number)
        return results

    tensors = [torch.full((3,), float(place)).to(device) for place in range(6)]
    numbers = [torch.tensor(float(place)) for place in range(6)]
    twins = [number.clone() for number in numbers]
    traced = compiled(function)
    for _ in range(2):
        torch.testing.assert_close(traced(tensors, numbers), function(tensors, twins))
        assert numbers == twins
    # Six numbers with a sum, a power, a difference and its root, and a quotient of each.
    assert counters["device_torch"]["batched numbers"] >= 5 * 5
    assert counters["device_torch"]["graphs that are not fused"] == 0


def test_numbers_that_are_returned_have_memory_of_their_own(device, module, kernels):
    numbers = [torch.tensor(place) for place in range(6)]
    tensor = torch.ones(3).to(device)
    _, *doubled = compiled(lambda x, numbers: (x * 2 + 1, *(number * 2 for number in numbers)))(tensor, numbers)
    assert doubled == [number * 2 for number in numbers]
    assert len({number.untyped_storage().data_ptr() for number in doubled}) == 6


def test_gradients_are_those_of_eager(device, module, kernels):
    x = torch.randn(6, 5).to(device)

    def function(x):
        return (functional.gelu(x, approximate="tanh") * torch.softmax(x, 1)).pow(3).sum(0).tanh()

    gradients = []
    for each in (function, compiled(function)):
        leaf = x.clone().requires_grad_()
        each(leaf).sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients)


# --- Shapes, and memory that is written ---


def test_dynamic_shapes_compile_once(device, module, kernels):
    graphs = []
    weight = torch.randn(7).to(device)

    def function(x):
        return torch.softmax(x * x.shape[0] + 1, 1) * weight + x.mean(1, keepdim=True)

    traced = compiled(function, dynamic=True)
    for rows in (4, 9, 2, 33):
        x = torch.randn(rows, 7).to(device)
        torch.testing.assert_close(traced(x), function(x))
        graphs.append(counters["device_torch"]["graphs"])
        _, counts = counted(module, traced, x)
        assert counts.fused == 1 and counts.native == 1, f"\n{counts}"
    assert graphs[0] == graphs[-1]


def test_a_batch_without_elements_and_one_of_one_row(device, module, kernels):
    def function(x):
        return torch.relu(x * 2 + 1), x.exp().sum(1) * 2

    traced = compiled(function, dynamic=True)
    for rows in (3, 0, 1, 5):
        x = torch.randn(rows, 4).to(device)
        torch.testing.assert_close(traced(x), function(x))


def test_functions_that_write_to_arguments(device, module, kernels):
    def function(x, y):
        x.mul_(2).add_(y)
        y[:, 1] += x[:, 0] * 2
        view = x.view(-1)
        view[:3] = view[:3] * 3 + 1
        return x.sum() + y

    for dynamic in (False, True):
        pairs = [[torch.randn(4, 4).to(device), torch.randn(4, 4).to(device)]]
        pairs.append([each.clone() for each in pairs[0]])
        traced = compiled(function, dynamic=dynamic)
        for _ in range(2):
            torch.testing.assert_close(traced(*pairs[1]), function(*pairs[0]))
            torch.testing.assert_close(pairs[1], pairs[0])


def test_old_elements_are_read_before_they_are_written(device, module, kernels):
    def function(x, y):
        old = x.t() @ y
        swapped = (x + 1) * 2
        x.copy_((y * 2).sin())
        y.copy_(swapped)
        return old, x.t() + swapped, swapped * 2

    for each in (function, lambda x, y: (x.copy_((x.t() + 1) * 2), y.add_(x).mul_(2))):
        pairs = [[torch.randn(4, 4).to(device), torch.randn(4, 4).to(device)]]
        pairs.append([each.clone() for each in pairs[0]])
        torch.testing.assert_close(compiled(each)(*pairs[1]), each(*pairs[0]))
        torch.testing.assert_close(pairs[1], pairs[0])


def test_what_a_function_returns_has_memory_of_its_own(device, module, kernels):
    def function(x):
        y = (x + 1) * 2
        x.copy_(y)
        return y

    x = torch.randn(4).to(device)
    y = compiled(function)(x)
    torch.testing.assert_close(x, y)
    x.zero_()
    assert y.abs().sum() > 0


def test_a_written_argument_has_another_version(device, module, kernels):
    x = torch.randn(4).to(device)
    version = x._version
    compiled(lambda x: x.mul_(2).add_(1))(x)
    assert x._version > version


def test_memory_is_freed_with_the_last_use(device, module, kernels):
    x = torch.randn(256, 256).to(device)

    def function(x):
        for _ in range(6):
            x = (x.exp() @ x).tanh() + 1
        return x

    peaks = []
    for each in (function, compiled(function)):
        each(x)
        module.synchronize()
        module.reset_peak_memory_stats()
        each(x)
        peaks.append(module.max_memory_allocated())
    assert peaks[1] <= peaks[0]


def test_random_numbers_are_drawn_in_the_order_of_the_program(device, module, kernels):
    def function(x):
        a = functional.dropout(x.exp() + 1, 0.5)
        b = torch.rand_like(x) * 2 + a
        return functional.dropout(b * 2 + 1, 0.3) + a

    x = torch.randn(20, 20).to(device)
    torch.manual_seed(5)
    expected = function(x)
    traced = compiled(function)
    torch.manual_seed(5)
    torch.testing.assert_close(traced(x), expected)


# --- What is not fused, and what fails ---


def test_an_operator_without_a_kernel_is_the_cpus_and_the_others_are_fused(device, module, kernels):
    x = torch.randn(5, 6).to(device)
    _, fused = check(module, lambda x: (torch.cumsum(x * 2 + 1, 0) * 3).tanh(), x, expressions=2)
    assert [count.operator for count in fused if not count.native] == ["cumsum.out"]


def test_types_that_no_kernel_has_stay_as_they_are(device, module, kernels):
    x = torch.randint(0, 9, (4, 5), dtype=torch.int16).to(device)
    check(module, lambda x: (x + 1) * 2, x, expressions=0)
    check(module, lambda x: torch.view_as_real((x + 1j) * 2), x.float(), expressions=0)


def test_what_the_device_refuses_is_computed_one_by_one_and_counted(device, module, kernels, caplog):
    from device_torch import _compile_backend

    fused = _compile_backend.Fused("input i32, sqrt 0, output 1", 2, lambda x: (x + 1,))
    with pytest.raises(RuntimeError, match="sqrt of i32: expected a float"):
        fused([torch.ones(2, device=device, dtype=torch.int32)], [])
    # A tensor of another type than the expression has.
    fused = _compile_backend.Fused("input f32, sqrt 0, output 1", 2, lambda x: (x + 1,))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert fused([torch.ones(2, device=device, dtype=torch.int32)], [])[0].tolist() == [2, 2]
    assert counters["device_torch"]["calls that are not fused"] == 2
    assert [record.name for record in caplog.records] == ["device_torch._compile_backend"]
    assert "its 2 operators are called one by one" in caplog.text


def test_a_mistake_of_the_compiler_costs_no_program(device, module, kernels, monkeypatch, caplog):
    from device_torch import _compile_backend

    def fails(*_):
        raise AssertionError("a mistake")

    monkeypatch.setattr(_compile_backend, "Partition", fails)
    with caplog.at_level(logging.WARNING):
        check(module, lambda x: (x + 1) * 2, torch.randn(3).to(device), expressions=0)
    assert counters["device_torch"]["graphs that are not fused"] == 1
    assert "a graph is not fused: AssertionError: a mistake" in caplog.text


def test_tensors_of_the_cpu_compile_too(device):
    x = torch.randn(4)
    assert torch.equal(compiled(lambda x: (x + 1) * 2)(x), (x + 1) * 2)


def test_without_kernels_a_compiled_function_is_as_it_was(program):
    printed = program(
        """
        import torch
        x = torch.randn(4, device="openreg")
        traced = torch.compile(lambda x: (x + 1).tanh() * 2, backend="device_torch")
        torch.testing.assert_close(traced(x), (x + 1).tanh() * 2)
        print(torch.openreg.counts().fused, dict(torch._dynamo.utils.counters["device_torch"]))
        """,
        DEVICE_TORCH="openreg",
        DEVICE_KERNELS_DISABLE="*",
    )
    assert printed.splitlines()[-1] == "0 {'graphs': 1}"


def test_a_failure_has_the_name_of_the_expression(program):
    printed = program(
        """
        import torch
        x = torch.randn(4).to("openreg")
        traced = torch.compile(lambda x: x.add_(1).tanh_().mul_(2), backend="device_torch")
        traced(x)
        try:
            x.cpu()
        except RuntimeError as error:
            print("read:", error)
        traced(x)
        """,
        fails=True,
        DEVICE_TORCH="openreg",
        OPENREG_LOSE_DEVICE="3",
    )
    assert "AcceleratorError: `add·tanh·mul`: `openreg:0` (device-openreg 0.1.0): launch: device" in printed


def test_the_backend_is_listed_and_imports_nothing_before(program):
    printed = program(
        """
        import sys, torch
        print("imported:", "device_torch._compile_backend" in sys.modules)
        print("listed:", "device_torch" in torch.compiler.list_backends(exclude_tags=None))
        """,
        DEVICE_TORCH="openreg",
    )
    assert "imported: False" in printed and "listed: True" in printed


def test_an_expression_is_a_row_of_the_profiler(device, module, kernels):
    from torch.profiler import ProfilerActivity, profile

    x = torch.randn(64, 64).to(device)
    traced = compiled(lambda x: (x + 1).tanh() * 2)
    traced(x)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiled:
        traced(x)
        module.synchronize()
    names = {event.name for event in profiled.events()}
    assert {"device_torch::expression", "add·tanh·mul"} <= names


# --- The operator itself ---


def test_an_expression_is_called_by_its_text(device, kernels):
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).to(device)
    call = torch.ops.device_torch.expression
    (doubled,) = call("input f32, input f32, mul 0 1, output 2", [x], [2.0])
    assert doubled.tolist() == [[2, 4], [6, 8]]
    sums, kept, rest = call(
        "input f32, reduce_sum 0 1, sub 0 1, output 1, output 1, output 2; squeezed; reduced; full 1 0",
        [x],
        [],
    )
    assert sums.tolist() == [3, 7] and kept.tolist() == [[3], [7]] and rest.tolist() == [[-2, -1], [-4, -3]]
    assert rest.stride() == (1, 2)


def test_an_expression_writes_to_tensors(device, kernels):
    x, out = torch.tensor([1.0, 2.0]).to(device), torch.zeros(2, device=device)
    text = "input f32, exp 0, neg 0, output 2, output 1"
    (powers,) = torch.ops.device_torch.expression_(text, [x], [], [out])
    assert out.tolist() == [-1, -2] and torch.equal(powers, x.exp())
    assert torch.ops.device_torch.expression_("input f32, neg 0, output 1", [x], [], [x]) == []
    assert x.tolist() == [-1, -2]


def test_mistakes_of_an_expression_are_errors(device, kernels):
    x = torch.ones(2, device=device)
    call = torch.ops.device_torch.expression
    for text, tensors, expected in (
        ("input f32, negate 0, output 1", [x], "`negate 0` is no step of an expression"),
        ("input f32, neg 0, output 1; whole", [x], "`whole` is no form of a result"),
        ("input f32, input f32, add 0 1, output 2", [x], "expected 2 inputs, found 1"),
        ("input f32, neg 0, output 1", [x.int()], "no kernel of the device computes the expression"),
    ):
        with pytest.raises((RuntimeError, NotImplementedError), match=expected):
            call(text, tensors, [])
