"""Functions that regions_test.py names in GRAPE_REGIONS and GRAPE_EXCLUDE."""
import functools

import torch


def wrapping(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def generate(work):
    work()


class Runner:
    @wrapping
    def run(self, work):
        work()

    @staticmethod
    def static(work):
        work()


def skipped(work):
    work()


def other(work):
    work()


class Excluded(torch.nn.Module):
    def forward(self, work):
        work()
