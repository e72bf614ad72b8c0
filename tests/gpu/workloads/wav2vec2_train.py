"""Wav2Vec2 with CTC loss: training with automatic mixed precision on clips of several lengths.

Up to about 200 frames PyTorch's CTC loss has a backward without atomics; eager attention and deterministic
convolutions keep the rest repeatable bit by bit.
"""

import numpy
import torch
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

import outputs


class Trainer:
    def __init__(self) -> None:
        torch.manual_seed(7)
        numpy.random.seed(7)
        torch.backends.cudnn.deterministic = True
        config = Wav2Vec2Config(
            num_hidden_layers=4, attn_implementation="eager", ctc_loss_reduction="mean", pad_token_id=0
        )
        self.model = Wav2Vec2ForCTC(config).cuda().train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.scaler = torch.amp.GradScaler("cuda", init_scale=2.0**12)

    def step(self, number: int) -> torch.Tensor:
        samples = (16000, 24000, 12000)[number % 3]
        clips = torch.randn(4, samples).cuda()
        labels = torch.randint(1, 32, (4, 9)).cuda()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = self.model(clips, labels=labels).loss
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()


def main() -> None:
    options = outputs.arguments(steps=6)
    trainer, losses = Trainer(), []
    for step in range(options.steps):
        losses.append(trainer.step(step))
        print(f"step {step}: loss {losses[-1].item():.6f}, scale {trainer.scaler.get_scale():g}")
    outputs.save(options.output, losses=losses, parameters=dict(trainer.model.named_parameters()))


if __name__ == "__main__":
    main()
