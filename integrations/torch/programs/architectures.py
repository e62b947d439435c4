"""Small models of many architectures of transformers, with random weights: a step of each."""

import torch
from program import count, gradients_of, program

# What makes a model small, or its dropout zero: each architecture has some of these names.
SMALL = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "head_dim": 8, "embedding_size": 32,
    "d_model": 32, "d_ff": 48, "d_kv": 8, "ffn_dim": 48, "word_embed_proj_dim": 32, "rotary_dim": 8, "num_heads": 4,
    "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "num_layers": 2, "decoder_start_token_id": 1,
    "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "n_inner": 48, "dim": 32, "hidden_dim": 48,
    "n_layers": 2, "n_heads": 4, "ffn_hidden_size": 48, "state_size": 8, "sliding_window": 8, "attention_window": 8,
    "attention_types": [[["global", "local"], 1]], "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 24,
} | dict.fromkeys(
    [
        "hidden_dropout_prob", "attention_probs_dropout_prob", "attention_dropout", "hidden_dropout", "dropout",
        "activation_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop", "dropout_rate", "residual_dropout",
        "encoder_layerdrop", "decoder_layerdrop", "layerdrop", "classifier_dropout",
    ],
    0.0,
)  # fmt: skip


def stepped(device, kind, names):
    """Losses, gradients and outputs of models of a class such as `AutoModelForCausalLM`, by their names."""
    import transformers

    found = {"parameters": {}, "loss": {}, "gradient": {}, "sample": {}}
    for name in names.split():
        config = transformers.AutoConfig.for_model(name)
        config = transformers.AutoConfig.for_model(name, **{key: SMALL[key] for key in SMALL if hasattr(config, key)})
        model = getattr(transformers, kind).from_config(config).to(device)
        ids = torch.randint(3, 60, (2, 16))
        mask = torch.ones_like(ids)
        mask[1, -5:] = 0
        inputs = {"input_ids": ids, "attention_mask": mask, "labels": ids}
        output = model(**{key: value.to(device) for key, value in inputs.items()})
        output.loss.backward()
        found["parameters"][name] = count(model)
        found["loss"][name] = output.loss
        found["gradient"][name] = gradients_of(model)
        found["sample"][name] = output.logits
    return found


@program("transformers")
def causal_models(device):
    """More architectures that write: GPT-J, OPT, Qwen, Gemma, Mistral, RWKV and others"""
    return stepped(
        device, "AutoModelForCausalLM",
        "biogpt bloom codegen cohere ctrl falcon_mamba gemma gemma2 gemma3_text glm gpt_neo gpt_neox gptj granite "
        "granitemoe helium jetmoe minimax mistral mpt nemotron olmo olmo2 olmoe opt persimmon phi phi3 qwen2 qwen2_moe "
        "qwen3 qwen3_moe rwkv smollm3 stablelm starcoder2 xglm",
    )  # fmt: skip


@program("transformers")
def masked_models(device):
    """More architectures for masked words: ALBERT, DeBERTa, Longformer, ModernBERT and others"""
    return stepped(
        device, "AutoModelForMaskedLM",
        "albert big_bird camembert convbert deberta deberta-v2 distilbert electra flaubert ibert layoutlm longformer "
        "mobilebert modernbert mpnet nystromformer rembert roberta squeezebert xlm xlm-roberta yoso",
    )  # fmt: skip


@program("transformers")
def translating_models(device):
    """More architectures of an encoder and a decoder: BART, Marian, LED, NLLB and others"""
    return stepped(
        device, "AutoModelForSeq2SeqLM",
        "bigbird_pegasus blenderbot fsmt led m2m_100 marian mbart mt5 nllb-moe pegasus plbart umt5",
    )  # fmt: skip
