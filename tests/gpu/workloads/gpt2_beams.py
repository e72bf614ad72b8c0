"""GPT-2 (124M), half precision: beam search with five beams."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import outputs


def main() -> None:
    options = outputs.arguments(tokens=32)
    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config()).half().cuda().eval()
    model.generation_config.eos_token_id = None
    prompt = torch.randint(0, 50000, (2, 12)).cuda()
    result = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        pad_token_id=50256,
        do_sample=False,
        num_beams=5,
        num_return_sequences=2,
        max_new_tokens=options.tokens,
        return_dict_in_generate=True,
        output_scores=True,
    )
    print(result.sequences[0].tolist())
    outputs.save(
        options.output,
        sequences=result.sequences,
        sequence_scores=result.sequences_scores,
        scores=torch.stack(result.scores),
    )


if __name__ == "__main__":
    main()
