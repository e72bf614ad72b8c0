"""Programs that read texts: embeddings, labels, answers, translations' scores."""

from typing import Any, Iterator

import torch
from torch.nn import functional as F

from bed import Run, listed

Results = Iterator[Any]


def encoder(run: Run, kind: str, **more: Any) -> Any:
    """A model of transformers by the name of its class, of six layers."""
    import transformers as hf  # noqa: PLC0415

    width = run.size(384, 32)
    config_of = getattr(hf, f"{kind.split('For')[0].removesuffix('Model')}Config")
    sizes = {"hidden_size": width, "num_hidden_layers": run.size(6, 1), "num_attention_heads": 12 if not run.small else 4}
    if config_of is hf.DistilBertConfig:
        sizes = {"dim": width, "n_layers": run.size(6, 1), "n_heads": sizes["num_attention_heads"], "hidden_dim": 4 * width}
    return run.put(getattr(hf, kind)(config_of(vocab_size=1000, **sizes, **more)))


def padded(run: Run, rows: int, high: int = 100) -> dict[str, torch.Tensor]:
    """Sentences of mixed lengths, padded to the longest, with their mask."""
    lengths = torch.tensor([run.length(8, high) for _ in range(rows)])
    mask = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
    return {"input_ids": run.tokens(rows, int(lengths.max())) * mask.to(run.device), "attention_mask": mask.to(run.device)}


@listed("sentence_transformers", "transformers", units=150)
def sentences_embedded(run: Run) -> Results:
    """sentence-transformers embeds batches of mixed sizes, from words to vectors on the host"""
    import tempfile  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    import transformers as hf  # noqa: PLC0415
    from sentence_transformers import SentenceTransformer, models  # noqa: PLC0415

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(995))]
    folder = Path(tempfile.mkdtemp())
    (folder / "vocab.txt").write_text("\n".join(words))
    tokenizer = hf.BertTokenizerFast(vocab_file=str(folder / "vocab.txt"))
    encoder(run, "BertModel").save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    read = models.Transformer(str(folder))
    model = SentenceTransformer(modules=[read, models.Pooling(read.get_word_embedding_dimension())], device=str(run.device))
    while True:
        rows = run.choice.choice((1, 4, 8, 16))
        texts = [" ".join(run.choice.choice(words[5:]) for _ in range(run.length(3, 40))) for _ in range(rows)]
        yield torch.from_numpy(model.encode(texts, show_progress_bar=False))


@listed("transformers", units=120)
def bert_answers(run: Run) -> Results:
    """BERT finds answers in passages, one request at a time"""
    model = encoder(run, "BertForQuestionAnswering")
    while True:
        with torch.no_grad():
            out = model(**padded(run, 1))
        yield int(out.start_logits.argmax()), int(out.end_logits.argmax())


@listed("transformers", units=80)
def deberta_labels_tokens(run: Run) -> Results:
    """DeBERTa labels the tokens of batches of eight sentences, in half precision"""
    model = encoder(run, "DebertaV2ForTokenClassification", relative_attention=True, pos_att_type=["p2c", "c2p"], num_labels=9)
    while True:
        with torch.inference_mode(), torch.autocast(run.device.type, torch.bfloat16):
            yield model(**padded(run, 8)).logits.argmax(-1).cpu()


@listed("transformers", units=120)
def electra_scores_pairs(run: Run) -> Results:
    """ELECTRA ranks eight passages for each question"""
    model = encoder(run, "ElectraForSequenceClassification", embedding_size=run.size(128, 16), num_labels=1)
    while True:
        with torch.inference_mode():
            yield model(**padded(run, 8)).logits[:, 0].argsort(descending=True).tolist()


@listed("transformers", units=80)
def distilbert_learns(run: Run) -> Results:
    """DistilBERT learns to classify batches of mixed lengths, with a schedule and clipped gradients"""
    import transformers as hf  # noqa: PLC0415

    model = encoder(run, "DistilBertForSequenceClassification", num_labels=3).train()
    optimizer = torch.optim.AdamW(model.parameters(), 5e-5)
    schedule = hf.get_linear_schedule_with_warmup(optimizer, 10, 200)
    while True:
        loss = model(**padded(run, 8), labels=run.tokens(8, below=7) % 3).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        yield loss.item()


@listed("transformers", "peft", units=60)
def lora_on_lengths(run: Run) -> Results:
    """peft's LoRA of a Llama learns on texts of mixed lengths, over two micro batches"""
    import peft  # noqa: PLC0415

    from generation import decoder  # noqa: PLC0415

    base = decoder(run, "llama").float()
    model = peft.get_peft_model(base, peft.LoraConfig(r=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.05)).train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-4)
    while True:
        losses = []
        for _ in range(2):
            ids = run.tokens(2, 8 * run.choice.randint(4, 12))
            loss = model(input_ids=ids, labels=ids).loss / 2
            loss.backward()
            losses.append(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
        yield torch.stack(losses).sum().item()


@listed("transformers", units=100)
def clip_matches(run: Run) -> Results:
    """CLIP compares a picture with as many texts as there are"""
    import transformers as hf  # noqa: PLC0415

    width = run.size(384, 32)
    sizes = {"hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": run.size(6, 1), "num_attention_heads": 4}
    config = hf.CLIPConfig(
        text_config={"vocab_size": 1000, "eos_token_id": 2, **sizes},
        vision_config={"image_size": run.size(128, 32), "patch_size": 16, **sizes}, projection_dim=64,
    )  # fmt: skip
    model = run.put(hf.CLIPModel(config))
    while True:
        rows = run.choice.randint(1, 8)
        with torch.no_grad():
            out = model(input_ids=run.tokens(rows, 16), pixel_values=run.randn(1, 3, run.size(128, 32), run.size(128, 32)))
        yield F.softmax(out.logits_per_image, -1).cpu()
