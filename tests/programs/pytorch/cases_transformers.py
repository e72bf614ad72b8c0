"""Usual programs: how programs use transformers. Small models of their configurations, random weights."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterator

import torch

from small import usual as case


def gpt2(**more: Any) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel, logging

    logging.set_verbosity_error()
    torch.manual_seed(1)
    config = GPT2Config(
        n_layer=2, n_embd=64, n_head=4, vocab_size=120, n_positions=128,
        bos_token_id=1, eos_token_id=2, pad_token_id=0, **more,
    )
    return GPT2LMHeadModel(config).cuda().eval()


def prompt(length: int, seed: int = 3, rows: int = 2) -> torch.Tensor:
    return torch.randint(3, 120, (rows, length), generator=torch.Generator().manual_seed(seed)).cuda()


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"<pad>": 0, "<s>": 1, "</s>": 2, **{f"w{i}": i for i in range(3, 120)}}
    inner = Tokenizer(models.WordLevel(words, unk_token="<s>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", bos_token="<s>", eos_token="</s>", padding_side="left"
    )


@case
def text_pipeline() -> Iterator[Any]:
    from transformers import pipeline, set_seed

    made = pipeline("text-generation", model=gpt2(), tokenizer=tokenizer(), device="cuda")
    for i in range(5):
        set_seed(i)
        texts = ["w5 w6 w7", "w8 w9", "w10 w11 w12 w13"]
        yield made(texts, max_new_tokens=8, do_sample=True, batch_size=3, pad_token_id=0)


@case
def padded_sampling() -> Iterator[Any]:
    model = gpt2()
    ids = prompt(8)
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    for i in range(6):
        torch.manual_seed(i)
        yield model.generate(
            ids, attention_mask=mask, max_new_tokens=8, do_sample=True, top_k=20, top_p=0.9, temperature=0.8,
            repetition_penalty=1.2, no_repeat_ngram_size=3, return_dict_in_generate=True, output_scores=True,
        ).sequences


@case
def sampled_beams() -> Iterator[Any]:
    model = gpt2()
    for i in range(5):
        torch.manual_seed(i)
        yield model.generate(prompt(5), max_new_tokens=8, num_beams=3, do_sample=i % 2 == 1, num_return_sequences=2)


@case
def static_cache() -> Iterator[Any]:
    model = gpt2()
    for i in range(5):
        yield model.generate(
            prompt(5, i), max_new_tokens=8, cache_implementation="static", disable_compile=True, do_sample=False
        )


@case
def assisted() -> Iterator[Any]:
    model, assistant = gpt2(), gpt2()
    for i in range(4):
        yield model.generate(prompt(6, i, rows=1), max_new_tokens=10, assistant_model=assistant, do_sample=False)
        yield model.generate(prompt(6, i, rows=1), max_new_tokens=10, prompt_lookup_num_tokens=3, do_sample=False)


@case
def streamed() -> Iterator[Any]:
    from transformers import TextIteratorStreamer

    model, words = gpt2(), tokenizer()
    for i in range(5):
        streamer = TextIteratorStreamer(words)
        arguments = {"max_new_tokens": 8, "do_sample": False, "streamer": streamer}
        thread = threading.Thread(target=model.generate, args=(prompt(5, i, rows=1),), kwargs=arguments)
        thread.start()
        yield list(streamer)
        thread.join()


@case
def answers_in_threads() -> Iterator[Any]:
    model = gpt2()

    def answer(i: int) -> torch.Tensor:
        return model.generate(prompt(4 + i % 2, i % 4, rows=1), max_new_tokens=8, do_sample=False)

    with ThreadPoolExecutor(3) as pool:
        for _ in range(4):
            yield list(pool.map(answer, range(9)))


@case
def chat_with_a_kept_cache() -> Iterator[Any]:
    from transformers import DynamicCache

    model = gpt2()
    for _ in range(4):
        cache, ids = DynamicCache(), prompt(4, rows=1)
        for turn in range(3):
            ids = model.generate(ids, past_key_values=cache, max_new_tokens=4, do_sample=False)
            yield ids
            ids = torch.cat([ids, prompt(2, turn, rows=1)], 1)
        yield cache.get_seq_length()


@case
def speech() -> Iterator[Any]:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    torch.manual_seed(1)
    config = WhisperConfig(
        vocab_size=120, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=50,
        max_target_positions=40, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3,
        suppress_tokens=None, begin_suppress_tokens=None,
    )
    model = WhisperForConditionalGeneration(config).cuda().eval()
    for i in range(5):
        features = torch.randn(2, 80, 100, generator=torch.Generator().manual_seed(i)).cuda()
        yield model.generate(features, max_new_tokens=10, do_sample=False)


@case
def sentences_of_many_lengths() -> Iterator[Any]:
    from transformers import BertConfig, BertModel

    torch.manual_seed(1)
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = BertConfig(vocab_size=120, **sizes)
    model = BertModel(config, add_pooling_layer=False).cuda().eval()
    for i in range(24):
        ids = prompt(4 + i % 4, i)
        mask = torch.ones_like(ids)
        mask[0, -2:] = i % 8 < 4
        hidden = model(ids, attention_mask=mask).last_hidden_state
        yield (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


@case
def attentions_and_hidden_states() -> Iterator[Any]:
    model = gpt2(attn_implementation="eager")
    for i in range(12):
        out = model(prompt(6, i), output_attentions=i % 2 == 0, output_hidden_states=True, labels=prompt(6, i))
        yield out.loss, out.logits, out.hidden_states, out.attentions or ()


@case
def heads_and_embeddings_change() -> Iterator[Any]:
    model = gpt2()
    for i in range(16):
        if i == 6:
            model.resize_token_embeddings(130)
        if i == 11:
            model.set_attn_implementation("eager")
        yield model(prompt(6, i)).logits
