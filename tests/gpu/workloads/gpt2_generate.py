"""GPT-2 (124M), half precision: greedy generation from random prompts."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import outputs


def main() -> None:
    options = outputs.arguments(tokens=32)
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config()).half().cuda().eval()
    model.generation_config.eos_token_id = None
    results = []
    for prompt_length in (8, 23):
        prompt = torch.randint(
            0, 50000, (1, prompt_length), generator=torch.Generator().manual_seed(prompt_length)
        ).cuda()
        results.append(
            model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                pad_token_id=50256,
                do_sample=False,
                max_new_tokens=options.tokens,
                return_dict_in_generate=True,
                output_logits=True,
            )
        )
    print(results[0].sequences[0].tolist())
    outputs.save(
        options.output, sequences=[r.sequences for r in results], logits=[torch.stack(r.logits) for r in results]
    )


if __name__ == "__main__":
    main()
