"""Programs with masks: padding, causal, of packed sequences, of labels that do not count."""

import torch
from program import count, program, train
from torch import nn
from torch.nn import functional as F


def padding(lengths, width):
    """True where a sequence has ended."""
    return torch.arange(width)[None] >= torch.tensor(lengths)[:, None]


@program()
def padding_in_eval(device):
    """`nn.TransformerEncoder` in `eval` with a padding mask, by its fast path and without"""
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 3).to(device).eval()
    rows, mask = torch.randn(4, 9, 16).to(device), padding([9, 5, 7, 1], 9).to(device)
    found = {"parameters": count(model)}
    for name, mode in [("no_grad", torch.no_grad), ("inference_mode", torch.inference_mode)]:
        with mode():
            output = model(rows, src_key_padding_mask=mask)
            # What stands at padding is not defined: the fast path has zeros there.
            found[name] = output.masked_fill(mask[..., None], 0)
            found[f"{name} without"] = model(rows)
    # A mask with a hole is not the end of a sequence.
    hole = mask.clone()
    hole[0, 3] = True
    with torch.no_grad():
        found["hole"] = model(rows, src_key_padding_mask=hole).masked_fill(hole[..., None], 0)
        attention = model.layers[0].self_attn
        found["attention"] = attention(rows, rows, rows, key_padding_mask=mask)
    return found


@program()
def padding_in_training(device):
    """`nn.Transformer` with causal and padding masks, and labels that do not count"""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(30, 16, padding_idx=0)
            self.transformer = nn.Transformer(16, 2, 2, 2, 32, dropout=0.0, batch_first=True)
            self.output = nn.Linear(16, 30)

        def forward(self, source, target):
            causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=device)
            result = self.transformer(
                self.words(source), self.words(target), tgt_mask=causal, tgt_is_causal=True,
                src_key_padding_mask=source == 0, memory_key_padding_mask=source == 0,
                tgt_key_padding_mask=torch.zeros(target.shape, device=device).masked_fill(target == 0, -torch.inf),
            )  # fmt: skip
            return self.output(result)

    source = torch.randint(1, 30, (4, 8)).masked_fill(padding([8, 3, 5, 6], 8), 0).to(device)
    target = torch.randint(1, 30, (4, 7)).masked_fill(padding([7, 6, 2, 4], 7), 0).to(device)
    return train(
        Model().to(device),
        lambda model: F.cross_entropy(model(source, target[:, :-1]).mT, target[:, 1:], ignore_index=0),
    )


@program()
def packed_sequences(device):
    """Packed sequences of several lengths by an LSTM and a GRU of two directions, and CTC loss"""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(6, 8, batch_first=True, bidirectional=True)
            self.gru = nn.GRU(16, 8, num_layers=2, batch_first=True, bidirectional=True)
            self.output = nn.Linear(16, 5)

        def forward(self, rows, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(rows, lengths, batch_first=True, enforce_sorted=False)
            output, _ = self.gru(self.lstm(packed)[0])
            output, _ = nn.utils.rnn.pad_packed_sequence(output, batch_first=True)
            return F.log_softmax(self.output(output), -1)

    rows, lengths = torch.randn(4, 10, 6).to(device), torch.tensor([10, 4, 7, 6])
    targets = torch.randint(1, 5, (4, 2)).to(device)

    def loss(model):
        output = model(rows, lengths)
        return F.ctc_loss(output.transpose(0, 1), targets, lengths.to(device), torch.full((4,), 2, device=device))

    return train(Model().to(device), loss)


@program()
def attention_masks(device):
    """`scaled_dot_product_attention` with masks of truths and of numbers, causal, and of grouped heads"""
    query, key, value = (torch.randn(2, 4, 6, 8).to(device).requires_grad_() for _ in range(3))
    allowed = (torch.rand(2, 1, 6, 6) > 0.3).to(device) | torch.eye(6, dtype=torch.bool, device=device)
    kinds = {
        "truths": {"attn_mask": allowed},
        "numbers": {"attn_mask": torch.zeros(2, 1, 6, 6, device=device).masked_fill(~allowed, -torch.inf)},
        "causal": {"is_causal": True},
        "none": {},
        "grouped": {"is_causal": True, "enable_gqa": True},
    }
    found = {"output": {}, "gradient": {}}
    for name, options in kinds.items():
        some = [key[:, :2], value[:, :2]] if name == "grouped" else [key, value]
        output = F.scaled_dot_product_attention(query, *some, **options)
        found["output"][name] = output
        found["gradient"][name] = torch.autograd.grad(output.square().sum(), (query, key, value))
    return found


@program()
def flags(device):
    """Gradients of a masked loss: `masked_fill`, `where`, `masked_select`, `index_put` with truths"""
    rows = torch.randn(5, 6).to(device).requires_grad_()
    mask = (torch.rand(5, 6) > 0.5).to(device)
    parts = {
        "fill": rows.masked_fill(mask, 2.0), "where": torch.where(mask, rows.sin(), rows.exp()),
        "select": rows.masked_select(mask), "index": rows[mask] * 3, "scatter": rows.masked_scatter(mask, rows.cos()),
    }  # fmt: skip
    gradients = {
        name: torch.autograd.grad(part.square().sum(), rows, retain_graph=True) for name, part in parts.items()
    }
    with torch.no_grad():
        put = rows.clone()
        put[mask] = 7.0
        put[:, 0] = put[:, 1]
    return {"output": parts | {"put": put}, "gradient": gradients}
