"""BERT-base, half precision: encodes batches of several lengths."""

import torch
from transformers import BertConfig, BertModel

import outputs


def main() -> None:
    options = outputs.arguments(repeats=3)
    torch.manual_seed(3)
    model = BertModel(BertConfig()).half().cuda().eval()
    results = []
    with torch.inference_mode():
        for _ in range(options.repeats):
            for batch, length in ((1, 128), (4, 64), (1, 37)):
                ids = torch.randint(0, 30000, (batch, length)).cuda()
                mask = torch.ones_like(ids)
                mask[-1, length - 5 :] = 0
                result = model(input_ids=ids, attention_mask=mask)
                results.append((result.last_hidden_state, result.pooler_output))
    outputs.save(options.output, results=results)


if __name__ == "__main__":
    main()
