"""Models of transformers with random weights, which train. Most of them tie weights."""

import torch
from program import program, train
from torch.nn import functional as F


def words(high, *shape):
    return torch.randint(3, high, shape)


def trained(model, device, inputs, **options):
    """Trains a model of transformers on inputs with labels, and samples its output. Eager attention and no dropout."""
    model = model.to(device)
    inputs = {name: value.to(device) for name, value in inputs.items()}
    found = train(model, lambda model: model(**inputs).loss, **options)
    model.eval()
    with torch.no_grad():
        return found | {"sample": model(**inputs).logits}


@program("transformers")
def gpt2(device):
    """GPT2: tied weights, a padding mask"""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=64, n_positions=24, n_embd=32, n_layer=3, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
    )
    ids = words(64, 4, 16)
    mask = torch.ones_like(ids)
    mask[1, :5] = mask[3, :2] = 0
    return trained(
        GPT2LMHeadModel(config),
        device,
        {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)},
    )


@program("transformers")
def bert(device):
    """BERT for masked words: tied weights, a padding mask, labels of few places"""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=24, hidden_dropout_prob=0, attention_probs_dropout_prob=0,
    )  # fmt: skip
    ids = words(64, 4, 16)
    mask = torch.ones_like(ids)
    mask[0, 9:] = mask[2, 13:] = 0
    labels = ids.masked_fill(torch.rand(4, 16) > 0.3, -100)
    inputs = {"input_ids": ids.masked_fill(labels > 0, 2), "attention_mask": mask, "labels": labels}
    return trained(BertForMaskedLM(config), device, inputs)


@program("transformers")
def t5(device):
    """T5: an encoder and a decoder with tied weights and relative positions"""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, dropout_rate=0, decoder_start_token_id=0
    )
    return trained(
        T5ForConditionalGeneration(config), device, {"input_ids": words(64, 3, 12), "labels": words(64, 3, 7)}
    )


@program("transformers")
def whisper(device):
    """Whisper: sound by convolutions, and a decoder of tied weights"""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=64, num_mel_bins=12, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_source_positions=20,
        max_target_positions=16, dropout=0, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    inputs = {"input_features": torch.randn(2, 12, 40), "labels": words(64, 2, 9)}
    return trained(WhisperForConditionalGeneration(config), device, inputs)


@program("transformers")
def mamba(device):
    """Mamba: a scan of states, and tied weights"""
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(vocab_size=64, hidden_size=24, num_hidden_layers=2, state_size=6)
    ids = words(64, 3, 10)
    return trained(MambaForCausalLM(config), device, {"input_ids": ids, "labels": ids})


@program("transformers")
def llama(device):
    """Llama: rotated positions, grouped heads, padding, and its checkpointing"""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    model.gradient_checkpointing_enable()
    ids = words(64, 4, 16)
    mask = torch.ones_like(ids)
    mask[1, :6] = 0
    labels = ids.masked_fill(mask == 0, -100)
    return trained(model, device, {"input_ids": ids, "attention_mask": mask, "labels": labels})


@program("transformers")
def mixtral(device):
    """Mixtral: experts that are chosen for each word"""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32, num_local_experts=4, output_router_logits=True,
    )  # fmt: skip
    ids = words(64, 3, 12)
    return trained(MixtralForCausalLM(config), device, {"input_ids": ids, "labels": ids})


@program("transformers")
def clip(device):
    """CLIP: pictures and texts, and a loss over all pairs"""
    from transformers import CLIPConfig, CLIPModel

    part = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = CLIPConfig(
        text_config=part | {"vocab_size": 64, "max_position_embeddings": 12, "eos_token_id": 2},
        vision_config=part | {"image_size": 16, "patch_size": 8}, projection_dim=16,
    )  # fmt: skip
    model = CLIPModel(config).to(device)
    inputs = {"input_ids": words(64, 3, 9).to(device), "pixel_values": torch.randn(3, 3, 16, 16).to(device)}

    def loss(model):
        logits = model(**inputs).logits_per_text
        return F.cross_entropy(logits, torch.arange(3, device=device))

    return train(model, loss)


@program("transformers")
def vit(device):
    """ViT: pictures in patches"""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48, image_size=16, patch_size=4,
        num_labels=5, hidden_dropout_prob=0, attention_probs_dropout_prob=0,
    )  # fmt: skip
    inputs = {"pixel_values": torch.randn(4, 3, 16, 16), "labels": torch.randint(5, (4,))}
    return trained(ViTForImageClassification(config), device, inputs)
