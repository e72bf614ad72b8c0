"""Programs that generate text, a token at a time: transformers' own `generate`, with requests of mixed lengths."""

from typing import Any, Iterator

import torch

from bed import Run, listed

Results = Iterator[Any]


def decoder(run: Run, family: str, **more: Any) -> Any:
    """A decoder of about 12 layers that runs in half precision, as served ones do."""
    import transformers as hf  # noqa: PLC0415

    layers, width = run.size(12, 2), run.size(768, 32)
    common = {"vocab_size": 1000, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    heads = {"num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": width // 16 if run.small else 12}
    wide = {"intermediate_size": 2 * width}
    configs = {
        "gpt2": lambda: hf.GPT2Config(n_layer=layers, n_embd=width, n_head=heads["num_attention_heads"], **common, **more),
        "llama": lambda: hf.LlamaConfig(**common, **heads, **wide, num_key_value_heads=2 if run.small else 4, **more),
        "mixtral": lambda: hf.MixtralConfig(**common, **heads, **wide, num_key_value_heads=2, num_local_experts=4, **more),
        "opt": lambda: hf.OPTConfig(**common, **heads, ffn_dim=2 * width, word_embed_proj_dim=width, **more),
        "neox": lambda: hf.GPTNeoXConfig(**common, **heads, **wide, **more),
        "qwen2": lambda: hf.Qwen2Config(**common, **heads, **wide, num_key_value_heads=2, **more),
        "mamba": lambda: hf.MambaConfig(num_hidden_layers=layers, hidden_size=width, **common, **more),
    }
    model = hf.AutoModelForCausalLM.from_config(configs[family]())
    return run.put(model.to(torch.float16) if run.device.type == "cuda" else model)


def answers(run: Run, model: Any, **how: Any) -> Results:
    """Prompts and answers of lengths at random."""
    while True:
        asked, wanted = run.length(), run.length()
        prompt = run.tokens(1, asked)
        yield model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=wanted, min_new_tokens=wanted, **how
        ).cpu()


@listed("transformers", units=20)
def gpt2_greedy(run: Run) -> Results:
    """GPT-2 answers 20 requests of mixed lengths"""
    yield from answers(run, decoder(run, "gpt2"), do_sample=False)


@listed("transformers", units=20)
def llama_sampling(run: Run) -> Results:
    """Llama samples with top-k, top-p and a temperature"""
    yield from answers(run, decoder(run, "llama"), do_sample=True, top_k=40, top_p=0.9, temperature=0.8)


@listed("transformers", units=16)
def qwen2_static_cache(run: Run) -> Results:
    """Qwen2 with transformers' static cache"""
    yield from answers(run, decoder(run, "qwen2"), do_sample=False, cache_implementation="static", disable_compile=True)


@listed("transformers", units=12)
def mixtral_greedy(run: Run) -> Results:
    """Mixtral, whose experts are chosen on the device"""
    yield from answers(run, decoder(run, "mixtral"), do_sample=False)


@listed("transformers", units=16)
def mamba_greedy(run: Run) -> Results:
    """Mamba, a state-space model"""
    yield from answers(run, decoder(run, "mamba"), do_sample=False)


@listed("transformers", units=16)
def neox_penalties(run: Run) -> Results:
    """GPT-NeoX with a repetition penalty and no repeated n-grams"""
    yield from answers(run, decoder(run, "neox"), do_sample=False, repetition_penalty=1.3, no_repeat_ngram_size=3)


@listed("transformers", units=10)
def opt_padded_batches(run: Run) -> Results:
    """OPT on batches of four prompts, padded on the left"""
    model = decoder(run, "opt")
    while True:
        lengths = [run.length() for _ in range(4)]
        ids = torch.zeros(4, max(lengths), dtype=torch.long, device=run.device)
        for row, length in enumerate(lengths):
            ids[row, -length:] = run.tokens(length)
        yield model.generate(ids, attention_mask=(ids != 0).long(), max_new_tokens=run.length(), do_sample=False).cpu()


@listed("transformers", units=15)
def llama_chats(run: Run) -> Results:
    """Five chats of three turns; each keeps its cache from turn to turn"""
    from transformers import DynamicCache  # noqa: PLC0415

    model = decoder(run, "llama")
    while True:
        chats = [(torch.zeros(1, 0, dtype=torch.long, device=run.device), DynamicCache(config=model.config)) for _ in range(5)]
        for _ in range(3):
            for number, (said, cache) in enumerate(chats):
                said = torch.cat([said, run.tokens(1, run.length(5, 40))], 1)
                wanted = run.length(5, 40)
                said = model.generate(
                    said, attention_mask=torch.ones_like(said), past_key_values=cache, max_new_tokens=wanted, do_sample=False
                )
                chats[number] = (said, cache)
                yield said.cpu()


@listed("transformers", units=10)
def gpt2_assisted(run: Run) -> Results:
    """GPT-2 with a small assistant that drafts tokens"""
    import transformers as hf  # noqa: PLC0415

    model = decoder(run, "gpt2")
    small = hf.GPT2Config(n_layer=2, n_embd=64, n_head=4, vocab_size=1000, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    assistant = run.put(hf.GPT2LMHeadModel(small).to(model.dtype))
    yield from answers(run, model, do_sample=False, assistant_model=assistant)


def seq2seq(run: Run, family: str) -> Any:
    import transformers as hf  # noqa: PLC0415

    layers, width = run.size(6, 1), run.size(512, 32)
    common = {"vocab_size": 1000, "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 1}
    if family == "t5":
        config: Any = hf.T5Config(num_layers=layers, d_model=width, d_kv=width // 8, d_ff=2 * width, num_heads=8, **common)
    else:
        sides = {
            f"{side}_{key}": value
            for side in ("encoder", "decoder")
            for key, value in (("layers", layers), ("ffn_dim", 2 * width), ("attention_heads", 8))
        }
        kind = hf.BartConfig if family == "bart" else hf.MarianConfig
        config = kind(d_model=width, bos_token_id=1, forced_eos_token_id=None, **sides, **common)
    return run.put(hf.AutoModelForSeq2SeqLM.from_config(config))


@listed("transformers", units=20)
def t5_greedy(run: Run) -> Results:
    """T5 translates 20 sentences of mixed lengths"""
    yield from answers(run, seq2seq(run, "t5"), do_sample=False)


@listed("transformers", units=12)
def bart_beams(run: Run) -> Results:
    """BART summarizes with four beams and a length penalty"""
    yield from answers(run, seq2seq(run, "bart"), do_sample=False, num_beams=4, length_penalty=1.5)


@listed("transformers", units=12)
def marian_beams_of_batches(run: Run) -> Results:
    """Marian translates batches of eight with three beams"""
    model = seq2seq(run, "marian")
    while True:
        ids = run.tokens(8, run.length())
        yield model.generate(ids, num_beams=3, max_new_tokens=run.length(), do_sample=False).cpu()
