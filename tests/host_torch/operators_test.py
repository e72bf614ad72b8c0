"""Operators on the simulated device give what they give on the CPU."""
import unittest
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(50, 16), nn.LayerNorm(16)
        self.lstm, self.convolution = nn.LSTM(16, 16, batch_first=True), nn.Conv1d(16, 16, 3, padding=1, groups=16)
        self.attention, self.out = nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 50)

    def forward(self, ids):
        x = self.norm(self.embedding(ids))
        x = x + self.lstm(x)[0]
        x = x + self.convolution(x.transpose(1, 2)).transpose(1, 2)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.out(x).softmax(-1), tuple(x.max(1)), torch.cat([x, -x], 2)[:, ::2], x.mT.contiguous()


def flat(result):
    return [result] if isinstance(result, torch.Tensor) else [x for part in result for x in flat(part)]


class OperatorsTest(unittest.TestCase):
    def test_network(self):
        torch.manual_seed(0)
        net = Net().eval()
        with torch.no_grad():
            ids = [torch.randint(50, (2, 7)) for _ in range(8)]
            expected = [flat(net(x)) for x in ids]
            net.cuda()
            for x, then in zip(ids, expected):
                for a, b in zip(then, flat(net(x.cuda()))):
                    self.assertTrue(torch.allclose(a, b.cpu(), atol=1e-5))

    def test_devices_of_the_machine_are_not_counted(self):
        seven = mock.patch.object(torch.cuda, "_raw_device_count_nvml", return_value=7)
        with seven, mock.patch.object(torch.cuda, "_cached_device_count", None):
            self.assertEqual(torch.cuda.device_count(), 1)

    def test_training(self):
        losses = {}
        for device in ("cpu", "cuda"):
            torch.manual_seed(0)
            net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to(device)
            optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
            x, y = (t.to(device) for t in (torch.arange(24.0).reshape(6, 4) / 24, torch.tensor([0, 1] * 3)))
            losses[device] = []
            for _ in range(5):
                optimizer.zero_grad()
                loss = F.cross_entropy(net(x), y)
                loss.backward()
                optimizer.step()
                losses[device].append(loss.item())
        self.assertTrue(torch.allclose(*(torch.tensor(losses[d]) for d in ("cpu", "cuda")), atol=1e-5))

    def test_shapes_that_hang_on_values(self):
        x = torch.tensor([3.0, 0.0, -2.0, 0.0], device="cuda")
        self.assertEqual(x.nonzero().flatten().tolist(), [0, 2])
        self.assertEqual(x[x != 0].tolist(), [3.0, -2.0])
        self.assertEqual(x.unique().tolist(), [-2.0, 0.0, 3.0])
        self.assertTrue(torch.equal(x, x.clone()))

    def test_indices(self):
        x = torch.arange(12, device="cuda").reshape(3, 4)
        self.assertEqual(x[:, [-1, 0]].tolist(), [[3, 0], [7, 4], [11, 8]])
        x[[0, 2], :2] = torch.tensor(-1, device="cuda")
        self.assertEqual(x.sum().item(), 66 - 18 - 4)

    def test_random_numbers(self):
        torch.cuda.manual_seed(1)
        first = [torch.rand(5, device="cuda"), F.dropout(torch.ones(50, device="cuda"))]
        torch.cuda.manual_seed(1)
        for x in first:
            again = torch.rand(5, device="cuda") if len(x) == 5 else F.dropout(torch.ones(50, device="cuda"))
            self.assertTrue(torch.equal(x, again))
        self.assertFalse(torch.equal(first[0], torch.rand(5, device="cuda")))

    def test_streams_and_graphs(self):
        side, x = torch.cuda.Stream(), torch.ones(64, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(20_000_000)
            y = x * 3
        torch.cuda.current_stream().wait_stream(side)
        self.assertEqual((y + x).sum().item(), 256)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            z = (x * 2).relu() + torch.rand(64, device="cuda")
        seen = []
        for _ in range(2):
            graph.replay()
            seen.append(z.clone())
        self.assertTrue(all(2 <= v < 3 for v in seen[0].tolist()))
        self.assertFalse(torch.equal(*seen))

    def test_errors(self):
        with self.assertRaisesRegex(RuntimeError, "shape|size"):
            torch.ones(2, 3, device="cuda") @ torch.ones(2, 3, device="cuda")


if __name__ == "__main__":
    unittest.main(verbosity=1)
