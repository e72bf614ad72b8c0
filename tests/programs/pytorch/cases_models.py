"""Whole models of torchaudio, torchvision, timm and transformers, in the ways that programs use them."""

import importlib
from typing import Any

import bed
from small import CALLS, Run, Skip, case, copy, data, ints, net, nn, torch


def library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise Skip(f"{name}: {type(error).__name__}: {str(error)[:80]}") from error


@case("torchaudio: Emformer.infer with its streaming state, Conformer with lengths, on and on")
def streaming_speech(run: Run) -> None:
    models = library("torchaudio.models")
    emformer = net(
        lambda: models.Emformer(
            32, 4, 64, 2, segment_length=4, left_context_length=6, right_context_length=1, max_memory_size=2
        )
    )
    conformer = net(lambda: models.Conformer(32, 4, 64, 2, depthwise_conv_kernel_size=7))
    for stream in range(3):
        state = None
        for step in range(12):
            lengths = torch.tensor([5, 5], device=bed.device())
            y, n, state = emformer.infer(data(stream * 20 + step, 2, 5, 32), lengths, state)
            run.see(y, n, state)
    for i in range(16):
        lengths = torch.tensor([9, 4 + i // 4], device=bed.device())
        run.see(conformer(data(i, 2, 9, 32), lengths), emformer(data(i, 2, 9, 32), lengths - 1))


@case("torchaudio: ConvTasNet, WaveRNN, Tacotron2.infer (reads stop decisions), HDemucs, Wav2Letter, DeepSpeech")
def speech_models(run: Run) -> None:
    models = library("torchaudio.models")
    separator = net(lambda: models.ConvTasNet(2, 16, 32, 3, 16, 32, 2, 2))
    vocoder = net(
        lambda: models.WaveRNN(
            [2, 2, 3], 16, 12, n_res_block=1, n_rnn=32, n_fc=32, kernel_size=5, n_freq=10, n_hidden=16, n_output=16
        )
    )
    letters, deep = net(lambda: models.Wav2Letter(10, "mfcc", 12)), net(lambda: models.DeepSpeech(12, 32, 8))
    for i in range(14):
        run.see(separator(data(i, 2, 1, 600)))
        run.see(vocoder(data(i, 2, 1, 12 * (8 - 5 + 1)), data(i, 2, 1, 10, 8)))
        run.see(letters(data(i, 2, 12, 300)), deep(data(i, 2, 1, 20, 12)))
    reader = net(
        lambda: models.Tacotron2(
            n_symbol=20,
            symbol_embedding_dim=32,
            encoder_embedding_dim=32,
            n_mels=10,
            decoder_rnn_dim=32,
            attention_rnn_dim=32,
            attention_hidden_dim=16,
            prenet_dim=16,
            postnet_embedding_dim=32,
            encoder_n_convolution=2,
            decoder_max_step=12,
        )
    )
    for i in range(8):
        run.seed(i)  # its prenet drops out always
        run.see(reader.infer(ints(i, 20, 2, 7), torch.tensor([7, 5], device=bed.device())))


@case("torchaudio: RNNT with emformer, its joiner and predictor called step by step with states")
def transducer(run: Run) -> None:
    models = library("torchaudio.models")
    model = net(
        lambda: models.emformer_rnnt_model(
            input_dim=16,
            encoding_dim=32,
            num_symbols=12,
            segment_length=4,
            right_context_length=1,
            time_reduction_input_dim=16,
            time_reduction_stride=1,
            transformer_num_heads=2,
            transformer_ffn_dim=32,
            transformer_num_layers=1,
            transformer_dropout=0.1,
            transformer_activation="relu",
            transformer_left_context_length=4,
            transformer_max_memory_size=0,
            transformer_weight_init_scale_strategy="depthwise",
            transformer_tanh_on_mem=True,
            symbol_embedding_dim=16,
            num_lstm_layers=2,
            lstm_layer_norm=True,
            lstm_layer_norm_epsilon=1e-3,
            lstm_dropout=0.1,
        )
    )
    for i in range(12):
        run.see(
            model(
                data(i, 2, 9, 16),
                torch.tensor([8, 6], device=bed.device()),
                ints(i, 11, 2, 5),
                torch.tensor([5, 3], device=bed.device()),
            )
        )
    for stream in range(2):
        state, known = None, None
        for step in range(12):
            encoded, n, state = model.transcribe_streaming(
                data(step, 1, 5, 16), torch.tensor([5], device=bed.device()), state
            )
            predicted, _, known = model.predict(
                ints(step, 11, 1, 1), torch.ones(1, device=bed.device(), dtype=torch.long), known
            )
            joined = model.join(encoded, n, predicted, torch.ones(1, device=bed.device(), dtype=torch.long))
            run.see(joined, state, known)


@case("torchaudio's transforms: spectrograms, Resample with its kernels, masks by chance, augmentation on the host")
def audio_transforms(run: Run) -> None:
    transforms = library("torchaudio.transforms")
    chain = nn.Sequential(
        transforms.Resample(8000, 6000), transforms.MelSpectrogram(6000, 128, n_mels=16), transforms.AmplitudeToDB()
    ).to(bed.device())
    masks = nn.Sequential(transforms.FrequencyMasking(4), transforms.TimeMasking(6)).to(bed.device())
    for i in range(20):
        wave = data(i, 2, 1600 if i % 7 != 6 else 2400)
        y = chain(wave)
        run.see(
            y,
            masks(y),
            transforms.MFCC(6000, 8, melkwargs={"n_fft": 128, "n_mels": 16}).to(bed.device())(wave) if i < 3 else 0,
        )
        if i == 12:
            chain[1].mel_scale.fb.mul_(1.5)


@case("torchaudio's Wav2Vec2 and HuBERT, with lengths, features of all layers, layer drop in train mode")
def speech_encoders(run: Run) -> None:
    models = library("torchaudio.models")
    model = net(
        lambda: models.wav2vec2_model(
            extractor_mode="group_norm",
            extractor_conv_layer_config=[(32, 10, 5), (32, 3, 2)],
            extractor_conv_bias=False,
            encoder_embed_dim=32,
            encoder_projection_dropout=0.1,
            encoder_pos_conv_kernel=8,
            encoder_pos_conv_groups=4,
            encoder_num_layers=3,
            encoder_num_heads=4,
            encoder_attention_dropout=0.1,
            encoder_ff_interm_features=64,
            encoder_ff_interm_dropout=0.1,
            encoder_dropout=0.1,
            encoder_layer_norm_first=False,
            encoder_layer_drop=0.3,
            aux_num_out=9,
        )
    )
    for i in range(24):
        if i == 14:
            model.train()
        if i == 20:
            model.eval()
        wave = data(i, 2, 800)
        run.see(model(wave), model(wave, torch.tensor([800, 500 + 10 * (i // 6)], device=bed.device())))
        if i % 5 == 0:
            run.see(model.extract_features(wave, num_layers=2))


@case("torchvision: RAFT-like flow is heavy; RetinaNet and SSD with NMS and data-dependent detections, FCN, video")
def vision_models(run: Run) -> None:
    models = library("torchvision.models")
    detection, segmentation, video = models.detection, models.segmentation, models.video
    torch.manual_seed(1)
    finder = net(
        lambda: detection.ssdlite320_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=5, score_thresh=0.05
        )
    )
    labels = net(lambda: segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4))
    for i in range(9):
        run.see(finder([data(i, 3, 64, 64), data(i + 1, 3, 80, 60)]), labels(data(i, 1, 3, 64, 64)))
    small = net(lambda: models.swin_transformer.SwinTransformer([2, 2], 24, [2, 2], [2, 2], [4, 4], num_classes=7))
    for i in range(14):
        run.see(small(data(i, 2, 3, 32, 32)))
        if i == 9:
            small.train()
    clip = net(lambda: video.r3d_18(weights=None, num_classes=5))
    for i in range(5):
        run.see(clip(data(i, 1, 3, 4, 24, 24)))


@case("torchvision's operators in a module: roi_align, nms, deform_conv2d, box operators, and transforms by chance")
def vision_operators(run: Run) -> None:
    ops, transforms = library("torchvision.ops"), library("torchvision.transforms.v2")

    class Boxes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.offset = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(4, 18, 3, padding=1)
            self.deformed = ops.DeformConv2d(4, 8, 3, padding=1)

        def forward(self, x: torch.Tensor, boxes: torch.Tensor) -> Any:
            y = torch.relu(self.conv(x)) + self.deformed(x, self.offset(x))
            regions = ops.roi_align(y, [boxes], (3, 3), 0.5)
            kept = ops.nms(boxes, regions.mean((1, 2, 3)), 0.4)
            return y, regions, kept, boxes[kept], ops.box_iou(boxes, boxes), ops.roi_pool(y, [boxes], (2, 2))

    model, chance = net(Boxes), transforms.Compose(
        [transforms.RandomHorizontalFlip(), transforms.GaussianBlur(3), transforms.Normalize([0.5] * 4, [0.2] * 4)]
    )
    for i in range(2 * CALLS):
        boxes = data(i // 3, 6, 4).abs() * 5
        boxes = torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:] + 2], 1)
        run.see(model(chance(data(i, 1, 4, 16, 16)), boxes))


@case("timm: models of several kinds, heads reset, gradient checkpointing set, features only, fused attention off")
def timm_models(run: Run) -> None:
    timm = library("timm")
    torch.manual_seed(1)
    vit = net(
        lambda: timm.models.vision_transformer.VisionTransformer(
            32, 8, num_classes=6, embed_dim=48, depth=2, num_heads=3
        )
    )
    convs = net(lambda: timm.create_model("mobilenetv3_small_050", pretrained=False, num_classes=6))
    for i in range(40):
        x = data(i, 2, 3, 32, 32)
        if i == 12:
            vit.reset_classifier(4)
            vit.head.to(bed.device())
            vit.head.weight.fill_(0.1), vit.head.bias.zero_()
        if i == 18:
            vit.blocks[0].attn.fused_attn = not vit.blocks[0].attn.fused_attn
        if i == 24:
            vit.set_grad_checkpointing(True)
        if i == 30:
            vit.global_pool = "avg"
            vit.pool_type = "avg"
        run.see(vit(x), convs(x), vit.forward_features(x) if i % 4 == 0 else 0)


def tiny(kind: str, **more: Any) -> Any:
    transformers = library("transformers")
    torch.manual_seed(2)
    common = {
        "vocab_size": 100,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
    }
    config = getattr(transformers, kind + "Config")(**{**common, **more})
    model = getattr(transformers, kind + ("ForCausalLM" if "Mistral" in kind or "Llama" in kind else "Model"))(config)
    return model.to(bed.device()).eval()


@case(
    "transformers: a decoder by hand with its own loop, cache objects cropped, reordered, copied, two requests in turn"
)
def decoder_by_hand(run: Run) -> None:
    model = tiny("Llama", num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0)
    ids = [ints(j, 100, 2, 5) for j in range(3)]
    out = [model(i, use_cache=True) for i in ids]
    for step in range(20):
        for j in range(3):
            token = out[j].logits[:, -1].argmax(-1, keepdim=True)
            out[j] = model(token, past_key_values=out[j].past_key_values, use_cache=True)
            run.see(out[j].logits, label=f"step {step} request {j}")
        if step == 8:
            out[0].past_key_values.crop(-2)
        if step == 12:
            out[1].past_key_values = copy.deepcopy(out[0].past_key_values)
        if step == 15:
            out[2].past_key_values.reorder_cache(torch.tensor([1, 0], device=bed.device()))
    run.see([layer.keys for layer in out[0].past_key_values.layers])


@case("transformers: generate with processors, sampling, attention implementations exchanged, config changed in place")
def generation_with_changes(run: Run) -> None:
    model = tiny("Mistral", num_key_value_heads=2, max_position_embeddings=64, sliding_window=6, pad_token_id=0)
    for i in range(10):
        if i == 3:
            model.set_attn_implementation("eager")
        if i == 5:
            model.config.sliding_window = 3
        if i == 7:
            model.set_attn_implementation("sdpa")
        if i == 8:
            model.model.layers[0].self_attn.scaling *= 0.5
        ids = ints(i % 2, 99, 2, 4) + 1
        run.seed(i)
        kinds = [
            {"do_sample": False, "repetition_penalty": 1.3},
            {"do_sample": True, "top_k": 20, "temperature": 0.7},
            {"num_beams": 2, "do_sample": False, "no_repeat_ngram_size": 2},
        ]
        run.see(
            *(model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=10, **kind) for kind in kinds)
        )


@case("transformers: encoders with masks of changing content, output flags, heads pruned, embeddings resized")
def encoders_with_flags(run: Run) -> None:
    model = tiny("Bert", max_position_embeddings=32)
    for i in range(36):
        ids, mask = ints(i, 100, 2, 8), torch.ones(2, 8, device=bed.device(), dtype=torch.long)
        mask[1, 8 - i % 3 :] = 0
        flags = {"output_hidden_states": i % 6 == 1, "return_dict": i % 8 != 5}
        if i == 16:
            model.resize_token_embeddings(104)
        if i == 24:
            model.encoder.layer.append(copy.deepcopy(model.encoder.layer[0]))
        if i == 30:
            del model.encoder.layer[1]
        run.see(model(ids, attention_mask=mask, **flags), model(inputs_embeds=data(i, 2, 8, 64)))


@case("transformers: Mamba with its state of convolutions, T5 with encoder outputs kept, Whisper features by hand")
def other_states(run: Run) -> None:
    transformers = library("transformers")
    torch.manual_seed(3)
    t5 = (
        transformers.T5ForConditionalGeneration(
            transformers.T5Config(
                vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0
            )
        )
        .to(bed.device())
        .eval()
    )
    encoded = t5.encoder(ints(1, 100, 2, 6))
    for i in range(8):
        run.see(
            t5.generate(encoder_outputs=copy.copy(encoded) if i % 2 else encoded, max_new_tokens=8, do_sample=False)
        )
        if i == 5:
            encoded.last_hidden_state.mul_(1.5)
    mamba = (
        transformers.MambaForCausalLM(
            transformers.MambaConfig(vocab_size=100, hidden_size=32, state_size=8, num_hidden_layers=2)
        )
        .to(bed.device())
        .eval()
    )
    for i in range(4):
        run.see(
            mamba.generate(ints(i, 99, 2, 5) + 1, max_new_tokens=10, do_sample=False), mamba(ints(i, 100, 2, 7)).logits
        )
