"""T5-small, bfloat16: encoder and decoder, greedy generation for a padded batch."""

import torch
from transformers import T5Config, T5ForConditionalGeneration

import outputs


def main() -> None:
    options = outputs.arguments(tokens=24)
    torch.manual_seed(2)
    config = T5Config(decoder_start_token_id=0)
    model = T5ForConditionalGeneration(config).to(torch.bfloat16).cuda().eval()
    model.generation_config.eos_token_id = None
    source = torch.randint(2, 32000, (2, 19)).cuda()
    mask = torch.ones_like(source)
    mask[1, 11:] = 0
    result = model.generate(
        source,
        attention_mask=mask,
        do_sample=False,
        max_new_tokens=options.tokens,
        return_dict_in_generate=True,
        output_logits=True,
    )
    print(result.sequences[0].tolist())
    outputs.save(options.output, sequences=result.sequences, logits=torch.stack(result.logits))


if __name__ == "__main__":
    main()
