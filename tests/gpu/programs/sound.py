"""Programs on speech and sound."""

from typing import Any, Iterator

import torch
from torch import nn
from torch.nn import functional as F

from bed import Run, listed

Results = Iterator[Any]


@listed("transformers", units=8)
def whisper_transcribes(run: Run) -> Results:
    """Whisper transcribes clips, greedily and with three beams by turns"""
    import transformers as hf  # noqa: PLC0415

    layers, width = run.size(6, 1), run.size(512, 32)
    config = hf.WhisperConfig(
        vocab_size=1000, d_model=width, encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=2 * width, decoder_ffn_dim=2 * width, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=1, begin_suppress_tokens=None, max_source_positions=run.size(1500, 50),
    )  # fmt: skip
    model = run.put(hf.WhisperForConditionalGeneration(config))
    number = 0
    while True:
        features = run.randn(1, 80, 2 * config.max_source_positions)
        number += 1
        yield model.generate(features, max_new_tokens=run.length(), num_beams=1 if number % 2 else 3, do_sample=False).cpu()


@listed("transformers", units=40)
def wav2vec2_recognizes(run: Run) -> Results:
    """Wav2Vec2 recognizes clips of mixed lengths, and the host takes the best letters"""
    import transformers as hf  # noqa: PLC0415

    width = run.size(512, 32)
    config = hf.Wav2Vec2Config(
        hidden_size=width, num_hidden_layers=run.size(12, 2), num_attention_heads=8, intermediate_size=2 * width,
        conv_dim=(run.size(256, 16),) * 7, num_conv_pos_embeddings=32, vocab_size=32,
    )  # fmt: skip
    model = run.put(hf.Wav2Vec2ForCTC(config))
    while True:
        with torch.no_grad():
            yield model(run.randn(1, 1600 * run.choice.randint(5, 30))).logits.argmax(-1).cpu()


@listed("transformers", units=60)
def hubert_classifies_batches(run: Run) -> Results:
    """HuBERT sorts batches of padded clips into classes"""
    import transformers as hf  # noqa: PLC0415

    width = run.size(384, 32)
    config = hf.HubertConfig(
        hidden_size=width, num_hidden_layers=run.size(8, 2), num_attention_heads=8, intermediate_size=2 * width,
        conv_dim=(run.size(128, 16),) * 7, num_conv_pos_embeddings=32, num_labels=12, mask_time_prob=0.0,
    )  # fmt: skip
    model = run.put(hf.HubertForSequenceClassification(config))
    while True:
        clips = [run.randn(1600 * run.choice.randint(5, 15)) for _ in range(run.choice.choice((1, 2, 4)))]
        with torch.inference_mode():
            yield model(nn.utils.rnn.pad_sequence(clips, batch_first=True)).logits.softmax(-1).cpu()


@listed("torchaudio", units=60)
def conformer_trains_on_lengths(run: Run) -> Results:
    """torchaudio's Conformer learns CTC on batches of mixed lengths"""
    import torchaudio  # noqa: PLC0415

    width = run.size(256, 16)
    conformer = torchaudio.models.Conformer(width, 4, 2 * width, run.size(8, 1), 31, dropout=0.1)
    model = run.put(nn.ModuleList([nn.Linear(80, width), conformer, nn.Linear(width, 40)]), train=True)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    while True:
        lengths = torch.tensor([run.choice.randint(6, 12) * 10 for _ in range(4)])
        hidden, kept = model[1](model[0](run.randn(4, int(lengths.max()), 80)), lengths.to(run.device))
        said = F.log_softmax(model[2](hidden), -1).transpose(0, 1)
        loss = F.ctc_loss(said, run.tokens(4, 5, below=40), kept.cpu(), torch.full((4,), 5))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield loss.item()


@listed("torchaudio", units=12)
def emformer_transduces(run: Run) -> Results:
    """An RNN-T of torchaudio decodes with beams, segment by segment"""
    import torchaudio  # noqa: PLC0415

    model = torchaudio.models.emformer_rnnt_model(
        input_dim=80, encoding_dim=run.size(256, 16), num_symbols=64, segment_length=16, right_context_length=4,
        time_reduction_input_dim=32, time_reduction_stride=4, transformer_num_heads=4,
        transformer_ffn_dim=run.size(512, 32), transformer_num_layers=run.size(6, 1), transformer_dropout=0.0,
        transformer_activation="gelu", transformer_left_context_length=30, transformer_max_memory_size=0,
        transformer_weight_init_scale_strategy="depthwise", transformer_tanh_on_mem=True, symbol_embedding_dim=64,
        num_lstm_layers=1, lstm_layer_norm=True, lstm_layer_norm_epsilon=1e-3, lstm_dropout=0.0,
    )  # fmt: skip
    decoder = torchaudio.models.RNNTBeamSearch(run.put(model), blank=63)
    state, hypotheses = None, None
    while True:
        with torch.no_grad():
            hypotheses, state = decoder.infer(
                run.randn(1, 20, 80), torch.tensor([20], device=run.device), 4, state=state, hypothesis=hypotheses
            )
        yield [hypothesis[0] for hypothesis in hypotheses]
