#!/usr/bin/env python3
"""What Grape keeps on the device for a thousand lengths of one model: GPT-2 generates 1,000 tokens, again and again.

lengths.py [--tokens 1000] [--rounds 5] [--nondeterministic] [--out FOLDER]

A length is observed twice, proven, and replayed from then on. One process under GRAPE_MODE=replay, then one plain, each
alone on the GPU. From some length on PyTorch's attention need not give the same bits twice (docs/BENCHMARKS.md): such
calls are replayed with --nondeterministic only, and then the tokens are printed, not judged. At the end of each:
  allocated   MiB of PyTorch's allocator in use: the model, and Grape's arenas
  reserved    all that the allocator holds
  outside     device memory in use beside it: contexts, modules, and graphs
What replay has more of `reserved` and `outside` than plain is Grape's. Both must give the same tokens.

Exit status: 0 measured (or no GPU), 1 a run failed or outputs differ, 2 usage. The budget (300 MiB) is printed, not judged.
"""

import argparse
import sys
from typing import Any, Optional

import paths  # noqa: F401
from gpu_machine import Measurement, add_options, environment, replaying, table, with_build
from turns import Turns

WORKLOAD = "gpt2"
BUDGET_MIB = 300
SIZES = ("allocated", "reserved", "outside")


class Lengths(Measurement):
    def rounds(self, kind: str, env: dict[str, str], rounds: int, seconds: float) -> Optional[dict[str, Any]]:
        """speed.py's summary after so many rounds, or as many as begin within the seconds."""
        end = self.left() - seconds
        command = self.speed(WORKLOAD, self.options.tokens, "--serve")
        with Turns([(kind, command, env)], max(10.0, self.left())) as turns:
            for number in range(rounds):
                if self.left() < end:
                    break
                turns.round(number, keep=True)
                for player in turns.players:
                    print(f"{kind}, round {number + 1} of {rounds}: {player.times[-1]:.3f} ms a token", flush=True)
            turns.finish()
        self.failures += turns.failures
        return turns.players[0].summary if turns.players else None

    def allowed(self) -> dict[str, str]:
        return {"GRAPE_ALLOW_NONDETERMINISTIC": "1"} if self.options.nondeterministic else {}

    def run(self) -> int:
        report = self.scratch / "report.json"
        environment_of_replay = replaying(self.build, report, **self.allowed())
        replay = self.rounds("replay", environment_of_replay, self.options.rounds, 0.6 * self.left())
        done = len(replay["rounds_ms"]) if replay else 1
        plain = self.rounds("plain", environment(), done, self.left() - 10)
        if replay is None or plain is None:
            print("\n".join(self.failures))
            return 1
        regions = self.regions(WORKLOAD, report)
        self.results = {"plain": plain, "replay": replay, "regions": regions}
        rows = [["MiB", *SIZES, "ms a token, round by round", "tokens"]]
        for kind, summary in (("plain", plain), ("replay", replay)):
            rounds = " ".join(f"{ms:.2f}" for ms in summary["rounds_ms"])
            rows.append([kind, *(f"{summary[f'{size}_mib']:.1f}" for size in SIZES), rounds, summary["digest"]])
        more = {size: replay[f"{size}_mib"] - plain[f"{size}_mib"] for size in SIZES}
        rows.append(["Grape's", *(f"{more[size]:+.1f}" for size in SIZES), "", ""])
        calls, replayed = (sum(region[key] for region in regions) for key in ("calls", "replayed"))
        lines = [
            table(rows),
            f"{self.options.tokens} lengths: {more['reserved'] + more['outside']:.1f} MiB of the device are Grape's "
            f"(budget {BUDGET_MIB}), {more['allocated']:.1f} of them in tensors and arenas, {more['outside']:.1f} in graphs; "
            f"{replayed} of {calls} calls replayed in {done} rounds",
        ]
        if plain["digest"] != replay["digest"] and not self.options.nondeterministic:
            self.failures.append("the tokens differ")
        text = "\n".join(lines + self.failures) + "\n"
        self.write("lengths", text)
        print(text, end="")
        return 1 if self.failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nondeterministic", action="store_true", help="replay also what differs from itself")
    add_options(parser, 240)
    options = parser.parse_args()
    return with_build(options, lambda build, scratch: Lengths(options, build, scratch).run())


if __name__ == "__main__":
    sys.exit(main())
