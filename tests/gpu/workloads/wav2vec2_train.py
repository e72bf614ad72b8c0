"""Wav2Vec2 with CTC loss: training with automatic mixed precision on clips of several lengths.

Up to about 200 frames PyTorch's CTC loss has a backward without atomics; eager attention and deterministic
convolutions keep the rest repeatable bit by bit.
"""

import numpy
import torch
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

import outputs


def main() -> None:
    options = outputs.arguments(steps=6)
    torch.manual_seed(7)
    numpy.random.seed(7)
    torch.backends.cudnn.deterministic = True
    config = Wav2Vec2Config(num_hidden_layers=4, attn_implementation="eager", ctc_loss_reduction="mean", pad_token_id=0)
    model = Wav2Vec2ForCTC(config).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**12)
    losses = []
    for step in range(options.steps):
        samples = (16000, 24000, 12000)[step % 3]
        clips = torch.randn(4, samples).cuda()
        labels = torch.randint(1, 32, (4, 9)).cuda()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(clips, labels=labels).loss
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
        print(f"step {step}: loss {loss.item():.6f}, scale {scaler.get_scale():g}")
    outputs.save(options.output, losses=losses, parameters=dict(model.named_parameters()))


if __name__ == "__main__":
    main()
