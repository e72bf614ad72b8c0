#!/usr/bin/env python3
"""Low-rank adapters of a Llama, trained by transformers' Trainer, with evaluations: random weights and tokens, bf16."""

import tempfile
from typing import Any

import peft
import torch
from torch.utils.data import Dataset
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainerCallback, TrainingArguments

import common


class Rows(Dataset):
    """Blocks of tokens, as one cuts them from a long text."""

    def __init__(self, count: int, length: int, words: int, seed: int) -> None:
        self.ids = torch.randint(3, words, (count, length), generator=torch.Generator().manual_seed(seed))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = self.ids[index]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


class Clock(TrainerCallback):
    def __init__(self, watch: common.Watch) -> None:
        self.watch = watch

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.watch.start()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.watch.step()


def make_model(small: bool, words: int) -> Any:
    layers, width, heads, inner = (2, 64, 4, 128) if small else (16, 1024, 16, 2816)
    config = LlamaConfig(num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads, num_key_value_heads=heads // 2,
                         intermediate_size=inner, vocab_size=words, max_position_embeddings=512)  # fmt: skip
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    adapters = peft.LoraConfig(r=8, lora_alpha=16, lora_dropout=0.05, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    return peft.get_peft_model(model, adapters)


def main() -> None:
    options = common.options(__doc__)
    words, length = (100, 16) if options.small else (32000, 256)
    model = make_model(options.small, words)
    watch = common.Watch(options.steps)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=options.steps, per_device_train_batch_size=2, per_device_eval_batch_size=4,
            learning_rate=2e-4, warmup_steps=10, bf16=True, logging_steps=10, eval_strategy="steps",
            eval_steps=max(2, options.steps // 5), save_strategy="no", report_to=[], disable_tqdm=True, seed=0,
        )  # fmt: skip
        train, held_out = Rows(512, length, words, seed=1), Rows(32, length, words, seed=2)
        trainer = Trainer(model, arguments, train_dataset=train, eval_dataset=held_out, callbacks=[Clock(watch)])
        trainer.train()
    log = [row[name] for row in trainer.state.log_history for name in ("loss", "grad_norm", "eval_loss") if name in row]
    common.finish(watch, {"model": model}, [trainer.optimizer.optimizer], log)


if __name__ == "__main__":
    main()
