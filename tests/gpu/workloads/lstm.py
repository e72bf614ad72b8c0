"""A two-layer bidirectional LSTM through cuDNN, which forks to side streams: plain and packed sequences."""

import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import outputs


def main() -> None:
    options = outputs.arguments(repeats=3)
    torch.manual_seed(6)
    model = torch.nn.LSTM(256, 512, num_layers=2, bidirectional=True).cuda().eval()
    results = []
    with torch.no_grad():
        for _ in range(options.repeats):
            for length in (64, 17):
                output, (hidden, cell) = model(torch.randn(length, 4, 256).cuda())
                results.append((output, hidden, cell))
            packed = pack_padded_sequence(torch.randn(40, 3, 256).cuda(), torch.tensor([40, 21, 9]))
            output, (hidden, cell) = model(packed)
            results.append((pad_packed_sequence(output)[0], hidden, cell))
    outputs.save(options.output, results=results)


if __name__ == "__main__":
    main()
