"""Models of the usual kinds, in as few lines as they need, for `overhead.py`: no library is needed for them."""

import torch
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    """Two convolutions around which the input is added."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.around = nn.Sequential()
        if stride > 1 or inputs != outputs:
            self.around = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, images):
        return functional.relu(self.inner(images) + self.around(images))


def resnet18(classes):
    layers = [nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Residual(inputs, outputs, stride), Residual(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


class Block(nn.Module):
    """Attention to what is before, and a perceptron."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, states):
        batch, length, width = states.shape
        of_heads = self.attention(self.norms[0](states)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(*of_heads, is_causal=True)
        states = states + self.output(found.transpose(1, 2).reshape(batch, length, width))
        return states + self.perceptron(self.norms[1](states))


class Gpt(nn.Module):
    """A language model as GPT2 is one, with the weights of its words at both ends."""

    def __init__(self, words=512, width=128, heads=4, layers=4, length=64):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, text):
        places = self.places(torch.arange(text.shape[1], device=text.device))
        return self.head(self.norm(self.blocks(self.words(text) + places)))
