"""Texts that models of transformers with random weights write: greedily and by beams, with each kind of cache."""

import torch
from program import program


def llama(device):
    from transformers import LlamaConfig, LlamaForCausalLM

    # Weights so large that the texts do not repeat one word.
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.3, eos_token_id=63, pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).to(device).eval()


def padded(device):
    """Texts of unequal lengths, with padding before them, and the mask."""
    ids = torch.randint(1, 62, (3, 6))
    mask = torch.ones_like(ids)
    mask[0, :3] = mask[2, :1] = 0
    return {"input_ids": ids.masked_fill(mask == 0, 0).to(device), "attention_mask": mask.to(device)}


@program("transformers")
def greedy(device):
    """Greedy texts: no cache, a growing one, one of fixed size; with scores and padding"""
    model, inputs = llama(device), padded(device)
    options = {"max_new_tokens": 12, "do_sample": False, "output_scores": True, "return_dict_in_generate": True}
    found = {"text": {}, "score": {}}
    for name, cache in [
        ("none", {"use_cache": False}),
        ("dynamic", {}),
        ("static", {"cache_implementation": "static"}),
    ]:
        output = model.generate(**inputs, **options, **cache)
        found["text"][name], found["score"][name] = output.sequences, torch.stack(output.scores).clamp(min=-1e4)
    return found


@program("transformers")
def beams(device):
    """Texts by beams, and greedily with penalties for what is repeated"""
    model, inputs = llama(device), padded(device)
    return {
        "text": model.generate(**inputs, max_new_tokens=10, num_beams=4, do_sample=False, num_return_sequences=2),
        "penalty": model.generate(
            **inputs,
            max_new_tokens=10,
            do_sample=False,
            repetition_penalty=1.3,
            no_repeat_ngram_size=2,
            min_new_tokens=4,
        ),
    }


@program("transformers")
def translation(device):
    """T5 writes from what its encoder reads: a cache for each, greedily and by beams"""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0,
        initializer_factor=3.0,
    )  # fmt: skip
    model = T5ForConditionalGeneration(config).to(device).eval()
    inputs = padded(device)
    return {
        "text": model.generate(**inputs, max_new_tokens=12, do_sample=False),
        "beams": model.generate(**inputs, max_new_tokens=12, do_sample=False, num_beams=3),
    }


@program("transformers")
def state_space_text(device):
    """Mamba writes with the states of its scan"""
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(vocab_size=64, hidden_size=24, num_hidden_layers=2, state_size=6, initializer_range=0.5)
    model = MambaForCausalLM(config).to(device).eval()
    ids = torch.randint(1, 62, (3, 6)).to(device)
    return {"text": model.generate(ids, max_new_tokens=12, do_sample=False)}
