#!/usr/bin/env python3
"""Deep Q-learning of a pole on a cart: a replay buffer on the host, a target network, acting with no gradients."""

import collections
import copy
import math
import random

import numpy
import torch
from torch import nn
from torch.nn import functional as F

import common

GAMMA = 0.99
BATCH = 128
TARGET_EVERY = 20  # steps
LONGEST = 200  # steps of an episode
Experience = tuple[numpy.ndarray, int, float, numpy.ndarray, float]


class CartPole:
    """The usual equations, by Euler's method."""

    def __init__(self, seed: int) -> None:
        self.draws = random.Random(seed)

    def reset(self) -> numpy.ndarray:
        self.age = 0
        self.state = [self.draws.uniform(-0.05, 0.05) for _ in range(4)]
        return numpy.array(self.state, dtype=numpy.float32)

    def step(self, action: int) -> tuple[numpy.ndarray, float, bool]:
        x, speed, angle, turn = self.state
        force = 10.0 if action else -10.0
        push = (force + 0.05 * turn * turn * math.sin(angle)) / 1.1
        bend = (9.8 * math.sin(angle) - math.cos(angle) * push) / (0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1))
        pull = push - 0.05 * bend * math.cos(angle) / 1.1
        self.state = [x + 0.02 * speed, speed + 0.02 * pull, angle + 0.02 * turn, turn + 0.02 * bend]
        self.age += 1
        fallen = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21
        return numpy.array(self.state, dtype=numpy.float32), 1.0, fallen


class Agent:
    def __init__(self, width: int) -> None:
        self.net = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)).cuda()
        self.target = copy.deepcopy(self.net)
        self.target.requires_grad_(False)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3, amsgrad=True)
        self.memory: collections.deque[Experience] = collections.deque(maxlen=10000)
        self.acted = 0

    def act(self, state: numpy.ndarray) -> int:
        self.acted += 1
        if random.random() < 0.05 + 0.85 * math.exp(-self.acted / 200):
            return random.randrange(2)
        with torch.no_grad():
            return int(self.net(torch.from_numpy(state).cuda().unsqueeze(0)).argmax(dim=1).item())

    def learn(self) -> torch.Tensor:
        columns = zip(*random.sample(self.memory, BATCH))
        state, action, reward, after, ended = (torch.as_tensor(numpy.array(column)).cuda() for column in columns)
        with torch.no_grad():
            best = self.target(after).max(dim=1).values
            wanted = reward.float() + GAMMA * best * (1.0 - ended.float())
        found = self.net(state).gather(1, action.unsqueeze(1)).squeeze(1)
        loss = F.smooth_l1_loss(found, wanted)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(self.net.parameters(), 100)
        self.optimizer.step()
        return loss


def main() -> None:
    options = common.options(__doc__)
    agent, world = Agent(16 if options.small else 128), CartPole(seed=1)
    watch = common.Watch(options.steps)
    state = world.reset()
    while watch.done < options.steps:
        action = agent.act(state)
        after, reward, fallen = world.step(action)
        agent.memory.append((state, action, reward, after, float(fallen)))
        state = world.reset() if fallen or world.age >= LONGEST else after
        if len(agent.memory) < BATCH:
            continue
        if watch.done == 0:
            watch.start()
        watch.step(agent.learn())
        if watch.done % TARGET_EVERY == 0:
            agent.target.load_state_dict(agent.net.state_dict())
    common.finish(watch, {"net": agent.net, "target": agent.target}, [agent.optimizer])


if __name__ == "__main__":
    main()
