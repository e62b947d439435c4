"""Programs in lower precision: autocast, scalers of gradients, functions that autocast knows, weights in bfloat16."""

import torch
from program import gradients_of, program, train, type_of, weights_of
from torch import nn
from torch.nn import functional as F

BFLOAT16 = {
    "tolerance": 3e-2,
    "because": "a number of bfloat16 has 8 bits, and autocast has other lists for the CPU than for a device",
}


def network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Linear(128, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 5),
    )  # fmt: skip


@program(**BFLOAT16)
def autocast(device):
    """Training in autocast with bfloat16: convolutions, norms, an attention, new tensors inside"""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network()
            self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

        def forward(self, pictures):
            features = self.network[:-1](pictures)[None]
            return self.network[-1](features + self.attention(features, features, features)[0])[0]

    model = Model().to(device)
    pictures, labels = torch.randn(8, 3, 10, 10).to(device), torch.randint(5, (8,)).to(device)
    types = []

    def loss(model):
        with torch.autocast(type_of(device), dtype=torch.bfloat16):
            output = model(pictures + torch.zeros_like(pictures) * torch.randn(1, device=device))
            types.append(str(output.dtype))
            return F.cross_entropy(output, labels)

    return train(model, loss, torch.optim.SGD(model.parameters(), lr=0.01)) | {"type": types}


@program(tolerance=1e-2, because="a number of float16 has 11 bits")
def scaler(device):
    """Autocast with float16 and a `GradScaler`, which skips a step with an infinite gradient"""
    model = network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler(type_of(device), init_scale=1024.0, growth_interval=2)
    pictures, labels = torch.randn(8, 3, 10, 10).to(device), torch.randint(5, (8,)).to(device)
    found = {"loss": [], "scale": [], "skipped": []}
    for step in range(5):
        optimizer.zero_grad()
        with torch.autocast(type_of(device), dtype=torch.float16):
            loss = F.cross_entropy(model(pictures), labels)
        scaler.scale(loss).backward()
        if step == 2:
            model[0].weight.grad[0, 0, 0, 0] = float("inf")
        scaler.unscale_(optimizer)
        if step == 0:
            found["gradient"] = gradients_of(model)
        before = model[5].weight.detach().clone()
        scaler.step(optimizer)
        scaler.update()
        found["skipped"].append(torch.equal(before, model[5].weight))
        found["scale"].append(scaler.get_scale())
        found["loss"].append(loss.item())
    return found | {"weight": weights_of(model)}


@program(**BFLOAT16)
def custom_functions(device):
    """An own `autograd.Function` with `custom_fwd` and `custom_bwd`, in autocast and out of it"""
    kind = type_of(device)
    seen = []

    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type=kind)
        def forward(context, a, b):
            context.save_for_backward(a, b)
            result = a.mm(b)
            seen.append(str(result.dtype))
            return result

        @staticmethod
        @torch.amp.custom_bwd(device_type=kind)
        def backward(context, gradient):
            a, b = context.saved_tensors
            seen.append(torch.is_autocast_enabled(kind))
            return gradient.mm(b.t().to(gradient.dtype)), a.t().to(gradient.dtype).mm(gradient)

    class InFloat(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type=kind, cast_inputs=torch.float32)
        def forward(context, a):
            context.save_for_backward(a)
            seen.append(str(a.dtype))
            return a.sin()

        @staticmethod
        @torch.amp.custom_bwd(device_type=kind)
        def backward(context, gradient):
            return gradient * context.saved_tensors[0].cos()

    a, b = torch.randn(6, 7).to(device).requires_grad_(), torch.randn(7, 5).to(device).requires_grad_()
    found = {"output": [], "gradient": []}
    for enabled in (True, False):
        with torch.autocast(kind, dtype=torch.bfloat16, enabled=enabled):
            output = InFloat.apply(Product.apply(a, b).relu())
        found["gradient"] += torch.autograd.grad(output.float().sum(), (a, b))
        found["output"].append(output)
    return found | {"seen": seen}


@program(tolerance=3e-2, because="a number of bfloat16 has 8 bits")
def bfloat16_weights(device):
    """A model with weights of bfloat16, and an optimizer with weights of float32"""
    model = network().to(device, torch.bfloat16)
    pictures, labels = torch.randn(8, 3, 10, 10).to(device, torch.bfloat16), torch.randint(5, (8,)).to(device)
    exact = [weight.detach().float().requires_grad_() for weight in model.parameters()]
    optimizer = torch.optim.SGD(exact, lr=0.01)
    losses = []
    for _ in range(3):
        model.zero_grad()
        loss = F.cross_entropy(model(pictures).float(), labels)
        loss.backward()
        for weight, used in zip(exact, model.parameters()):
            weight.grad = used.grad.float()
        optimizer.step()
        with torch.no_grad():
            for weight, used in zip(exact, model.parameters()):
                used.copy_(weight)
        losses.append(loss.item())
    return {"loss": losses, "gradient": gradients_of(model)}
