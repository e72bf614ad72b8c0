"""An ordinary PyTorch program: GPT-2 (random weights, half precision) answers prompts, one after the other.

Nothing here knows of Grape. Prints what a token took for each answer, and a digest of all tokens.
"""

import argparse
import hashlib
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=10, help="answers (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of an answer (default: %(default)s)")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config()).half().cuda().eval()
    model.generation_config.eos_token_id = None
    digest = hashlib.sha256()
    times = []
    for _ in range(options.prompts):
        prompt = torch.randint(0, 50000, (1, 16)).cuda()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        answer = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            pad_token_id=50256,
            do_sample=False,
            max_new_tokens=options.tokens,
        )
        digest.update(answer.cpu().numpy().tobytes())
        times.append((time.perf_counter() - begin) * 1e3 / options.tokens)
    print("ms a token, answer by answer:", " ".join(f"{milliseconds:.2f}" for milliseconds in times))
    print(f"sha256 of all tokens: {digest.hexdigest()}")


if __name__ == "__main__":
    main()
