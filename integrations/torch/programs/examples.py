"""Programs in the manner of PyTorch's examples, on data that they make."""

import torch
from program import gradients_of, program, train, weights_of
from torch import nn
from torch.nn import functional as F


@program()
def mnist(device):
    """Digits: convolutions, pooling, Adadelta and a schedule of rates"""
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(576, 32), nn.ReLU(), nn.Linear(32, 10), nn.LogSoftmax(1),
    ).to(device)  # fmt: skip
    pictures, labels = torch.rand(40, 1, 16, 16), torch.randint(10, (40,))
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    losses = []
    for _ in range(2):
        for batch in torch.arange(40).split(16):
            optimizer.zero_grad()
            loss = F.nll_loss(model(pictures[batch].to(device)), labels[batch].to(device))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        schedule.step()
    with torch.no_grad():
        known = model(pictures.to(device)).argmax(1) == labels.to(device)
    return {"loss": losses, "gradient": gradients_of(model), "known": known, "rate": schedule.get_last_lr()}


@program()
def vae(device):
    """A variational autoencoder, with noise from the CPU"""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden, self.mean, self.spread = nn.Linear(64, 32), nn.Linear(32, 4), nn.Linear(32, 4)
            self.output = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 64), nn.Sigmoid())

        def forward(self, pictures, noise):
            hidden = F.relu(self.hidden(pictures))
            mean, spread = self.mean(hidden), self.spread(hidden)
            return self.output(mean + noise * torch.exp(0.5 * spread)), mean, spread

    model = Model().to(device)
    pictures, noise = torch.rand(32, 64).to(device), torch.randn(32, 4).to(device)

    def loss(model):
        output, mean, spread = model(pictures, noise)
        divergence = -0.5 * torch.sum(1 + spread - mean.pow(2) - spread.exp())
        return F.binary_cross_entropy(output, pictures, reduction="sum") + divergence

    found = train(model, loss, torch.optim.SGD(model.parameters(), lr=1e-4))
    with torch.no_grad():
        return found | {"sample": model.output(noise)}


@program()
def dcgan(device):
    """Two networks that train against each other: transposed convolutions, batch norms, spectral norm"""
    generator = nn.Sequential(
        nn.ConvTranspose2d(8, 16, 4, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.ConvTranspose2d(16, 3, 4, stride=2, padding=1), nn.Tanh(),
    ).to(device)  # fmt: skip
    judge = nn.Sequential(
        nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 16, 4, stride=2, padding=1)), nn.LeakyReLU(0.2),
        nn.Conv2d(16, 1, 4), nn.Flatten(0),
    ).to(device)  # fmt: skip
    real = (torch.rand(8, 3, 8, 8) * 2 - 1).to(device)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.02) for model in (generator, judge)]
    yes, no = torch.ones(8, device=device), torch.zeros(8, device=device)
    losses = []
    for _ in range(3):
        made = generator(torch.randn(8, 8, 1, 1).to(device))
        optimizers[1].zero_grad()
        judged = F.binary_cross_entropy_with_logits(judge(real), yes)
        judged = judged + F.binary_cross_entropy_with_logits(judge(made.detach()), no)
        judged.backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        fooled = F.binary_cross_entropy_with_logits(judge(made), yes)
        fooled.backward()
        optimizers[0].step()
        losses += [judged.item(), fooled.item()]
    return {
        "loss": losses, "gradient": gradients_of(generator), "weight": weights_of(generator) | weights_of(judge)
    }  # fmt: skip


@program(tolerance=1e-3, because="the steps of LBFGS divide by differences of gradients, which amplifies rounding")
def time_sequence(device):
    """Waves by two LSTM cells in double precision, with LBFGS"""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.output = nn.LSTMCell(1, 12), nn.LSTMCell(12, 12), nn.Linear(12, 1)

        def forward(self, wave, further):
            first = second = None
            output, outputs = None, []
            for index in range(wave.shape[1] + further):
                value = wave[:, index : index + 1] if index < wave.shape[1] else output
                first = self.first(value, first)
                second = self.second(first[0], second)
                output = self.output(second[0])
                outputs.append(output)
            return torch.cat(outputs, 1)

    model = Model().double().to(device)
    steps = torch.arange(20, dtype=torch.float64)
    waves = torch.sin((steps + torch.randint(-8, 8, (6, 1))) / 3).to(device)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(model(waves[:, :-1], 0), waves[:, 1:])
        loss.backward()
        losses.append(loss.item())
        return loss

    for _ in range(2):
        optimizer.step(closure)
    with torch.no_grad():
        return {"loss": losses, "sample": model(waves[:, :-1], further=8)}


@program()
def actor_critic(device):
    """Reinforcement learning: a made world on the CPU, a policy on the device, actions drawn by the CPU"""
    body, policy, value = nn.Linear(4, 16), nn.Linear(16, 2), nn.Linear(16, 1)
    model = nn.ModuleDict({"body": body, "policy": policy, "value": value}).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    found = {"loss": [], "action": []}
    for _ in range(3):
        state, chances, values, rewards = torch.randn(4), [], [], []
        for _ in range(6):
            hidden = F.relu(body(state.to(device)))
            choices = torch.distributions.Categorical(F.softmax(policy(hidden), -1))
            action = torch.distributions.Categorical(choices.probs.cpu()).sample()
            chances.append(choices.log_prob(action.to(device)))
            values.append(value(hidden))
            rewards.append(1.0 if (state[0] > 0) == bool(action) else 0.0)
            found["action"].append(action.item())
            state = 0.9 * state.roll(1) + 0.1 * action
        returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0).to(device)
        returns = (returns - returns.mean()) / (returns.std() + 1e-3)
        values, chances = torch.cat(values), torch.stack(chances)
        loss = -(chances * (returns - values.detach())).sum() + F.smooth_l1_loss(values, returns, reduction="sum")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found["loss"].append(loss.item())
    return found | {"gradient": gradients_of(model), "weight": weights_of(model)}


@program()
def super_resolution(device):
    """Larger pictures: pixel shuffle, bicubic interpolation, gradient clipping"""
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 4, 3, padding=1), nn.PixelShuffle(2)
    ).to(device)
    small, large = torch.rand(4, 1, 12, 12).to(device), torch.rand(4, 1, 24, 24).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    found = {"loss": [], "norm": [], "gradient": []}
    for _ in range(4):
        optimizer.zero_grad()
        blurred = F.interpolate(small, scale_factor=2, mode="bicubic", align_corners=False)
        loss = F.mse_loss(model(small) + blurred, large)
        loss.backward()
        found["norm"].append(nn.utils.clip_grad_norm_(model.parameters(), 0.05))
        # Not after the step: on a device, SGD with `nesterov` changes the gradients.
        found["gradient"].append(gradients_of(model))
        optimizer.step()
        found["loss"].append(loss.item())
    with torch.no_grad():
        return found | {"sample": model(small)}


@program()
def graph_convolutions(device):
    """A network on a graph: its edges by `index_add`, `scatter_reduce` and a dense product"""
    edges = torch.randint(30, (2, 120)).to(device)
    features, labels = torch.randn(30, 8).to(device), torch.randint(3, (30,)).to(device)

    class Layer(nn.Linear):
        def forward(self, nodes):
            messages = super().forward(nodes)[edges[0]]
            total = torch.zeros(30, self.out_features, device=device).index_add(0, edges[1], messages)
            most = torch.zeros_like(total).scatter_reduce(
                0, edges[1][:, None].expand_as(messages), messages, "amax", include_self=True
            )
            dense = torch.zeros(30, 30, device=device).index_put((edges[1], edges[0]), edges.new_ones(120).float())
            return total + most + dense @ super().forward(nodes)

    model = nn.Sequential(Layer(8, 16), nn.ReLU(), Layer(16, 3)).to(device)
    loss = lambda model: F.nll_loss(F.log_softmax(model(features), 1), labels)
    return train(model, loss, torch.optim.SGD(model.parameters(), lr=0.01))


@program()
def style_transfer(device):
    """Instance norms, reflected borders, upsampling and products of features, and the total variation of a picture"""
    model = nn.Sequential(
        nn.ReflectionPad2d(2), nn.Conv2d(3, 8, 5, bias=False), nn.InstanceNorm2d(8, affine=True), nn.ReLU(),
        nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(8, 3, 3, padding=1),
    ).to(device)  # fmt: skip
    pictures, style = torch.rand(2, 3, 16, 16).to(device), torch.rand(2, 3, 32, 32).to(device)

    def products(features):
        rows = features.flatten(2)
        return rows @ rows.mT / rows.shape[-1]

    def loss(model):
        output = model(pictures)
        variation = output.diff(dim=2).abs().mean() + output.diff(dim=3).abs().mean()
        return F.mse_loss(products(output), products(style)) + 0.1 * variation

    return train(model, loss)


@program()
def functional_transforms(device):
    """Gradients of each sample by `torch.func`: `vmap`, `grad`, `functional_call`, a Hessian and a second derivative"""
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
    weights = dict(model.named_parameters())
    inputs, targets = torch.randn(5, 6).to(device), torch.randn(5, 1).to(device)

    def loss(weights, row, target):
        return F.mse_loss(torch.func.functional_call(model, weights, (row,)), target)

    each = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(weights, inputs, targets)
    hessian = torch.func.hessian(lambda row: loss(weights, row, targets[0]))(inputs[0])
    rows = inputs.clone().requires_grad_()
    first = torch.autograd.grad(model(rows).sum(), rows, create_graph=True)[0]
    penalty = (first.norm(dim=1) - 1).square().mean()
    penalty.backward()
    return {"gradient": each, "hessian": hessian, "penalty": penalty, "second": gradients_of(model)}
