"""Libraries that own the loop: transformers' Trainer, Lightning, accelerate, and adapters of PEFT."""

import tempfile
from typing import Any

import torch
from bed import Run, program
from programs_plain import images
from programs_text import TEXT, build
from programs_usage import SmallNet
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Tokens(Dataset):
    def __init__(self, count: int, generator: torch.Generator) -> None:
        self.rows = torch.randint(4, 40, (count, 8), generator=generator)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def add_trainer(name: str, model_name: str, about: str, **settings: Any) -> None:
    @program("transformers", "accelerate", tags="trainer text", name=name)
    def trainer(run: Run) -> None:
        from transformers import Trainer, TrainerCallback, TrainingArguments  # noqa: PLC0415

        class See(TrainerCallback):
            def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any, **more: Any) -> None:
                run.see(gradients=model)

            def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
                run.see(model=model, optimizer=more["optimizer"])
                run.end_step()

        model = build(model_name, TEXT[model_name])
        with tempfile.TemporaryDirectory() as folder:
            options = TrainingArguments(
                output_dir=folder, max_steps=run.count, per_device_train_batch_size=2, report_to=[], save_strategy="no",
                logging_steps=4, eval_steps=8, eval_strategy="steps", disable_tqdm=True,
                use_cpu=run.device.type == "cpu",
                dataloader_pin_memory=False, learning_rate=1e-3, **settings,
            )  # fmt: skip
            data = Tokens(16, run.data), Tokens(4, run.data)
            made = Trainer(model, options, train_dataset=data[0], eval_dataset=data[1], callbacks=[See()])
            made.train()
        log = [{key: value for key, value in row.items() if key in ("loss", "eval_loss", "grad_norm", "learning_rate")}
               for row in made.state.log_history]  # fmt: skip
        run.see(log=log)

    trainer.__doc__ = about


add_trainer("trainer_bert", "Bert:ForMaskedLM", "Trainer with evaluation and a warm-up", warmup_steps=5)
add_trainer(
    "trainer_llama_bf16", "Llama:ForCausalLM", "Trainer, bf16, accumulation, gradient checkpointing",
    bf16=True, gradient_accumulation_steps=2, gradient_checkpointing=True,
)  # fmt: skip


@program("lightning", tags="trainer conv inplace")
def lightning_fit(run: Run) -> None:
    """Lightning's Trainer with validation, clipping and a scheduler."""
    import lightning  # noqa: PLC0415

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = SmallNet()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss = F.cross_entropy(self.net(batch[0]), batch[1])
            run.see(loss=loss)
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            run.see(**{f"validation {index}": self.net(batch[0])})

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            run.see(model=self.net)

        def on_train_batch_end(self, outputs: Any, batch: Any, index: int) -> None:
            run.see(after=self.net)
            run.end_step()

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]

    def loader(count: int) -> Any:
        x, y = torch.randn(count, 3, 16, 16, generator=run.data), torch.randint(5, (count,), generator=run.data)
        return DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4, shuffle=False)

    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=3, accelerator="cpu" if run.device.type == "cpu" else "gpu", devices=1, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=0.5,
            default_root_dir=folder, barebones=False,
        )  # fmt: skip
        trainer.fit(Model(), loader(4 * max(run.count // 3, 8)), loader(8))


@program("accelerate", tags="trainer conv inplace")
def accelerate_loop(run: Run) -> None:
    """accelerate's loop with accumulation and clipping."""
    import accelerate  # noqa: PLC0415

    accelerator = accelerate.Accelerator(cpu=run.device.type == "cpu", gradient_accumulation_steps=2)
    model = SmallNet()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    for _ in run.steps():
        x, y = images(run)
        with accelerator.accumulate(model):
            loss = F.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                run.see(norm=accelerator.clip_grad_norm_(model.parameters(), 1.0))
            optimizer.step()
            run.see(loss=loss, model=model)
            optimizer.zero_grad()


def add_adapter(name: str, about: str, target: str, **options: Any) -> None:
    @program("peft", "transformers", tags="peft text", name=name)
    def adapter(run: Run) -> None:
        import peft  # noqa: PLC0415

        base = build(target, TEXT[target])
        kind = options.get("kind", "LoraConfig")
        settings = {key: value for key, value in options.items() if key != "kind"}
        model = run.put(peft.get_peft_model(base, getattr(peft, kind)(**settings)))
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=1e-3)
        for step in run.steps():
            tokens = run.randint(36, 2, 8) + 4
            out = model(input_ids=tokens, labels=tokens)
            optimizer.zero_grad()
            out.loss.backward()
            optimizer.step()
            run.see(loss=out.loss, logits=out.logits, model=model)
            if step % 6 == 5:
                model.eval()
                with torch.no_grad():
                    run.see(evaluated=model(input_ids=tokens).logits)
                    if kind == "LoraConfig":
                        model.merge_adapter()
                        run.see(merged=model(input_ids=tokens).logits)
                        model.unmerge_adapter()
                model.train()

    adapter.__doc__ = about


add_adapter(
    "peft_lora", "LoRA with dropout on a Llama, merged and unmerged in between", "Llama:ForCausalLM",
    r=4, lora_dropout=0.1, target_modules=["q_proj", "v_proj"],
)  # fmt: skip
add_adapter(
    "peft_dora", "DoRA on GPT-2", "GPT2:LMHeadModel", r=4, use_dora=True, target_modules=["c_attn"], fan_in_fan_out=True
)
add_adapter("peft_ia3", "IA3 on a BERT", "Bert:ForMaskedLM", kind="IA3Config", target_modules=["key", "value", "dense"],
            feedforward_modules=["dense"])  # fmt: skip


@program("transformers", tags="text checkpoint attention")
def transformers_checkpointed(run: Run) -> None:
    """Llama with gradient checkpointing and a frozen embedding."""
    model: Any = run.put(build("Llama:ForCausalLM", TEXT["Llama:ForCausalLM"]))
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.get_input_embeddings().requires_grad_(False)
    model.enable_input_require_grads()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    for _ in run.steps():
        tokens = run.randint(36, 2, 8) + 4
        out = model(input_ids=tokens, labels=tokens, use_cache=False)
        optimizer.zero_grad()
        out.loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        run.see(loss=out.loss, model=model)
