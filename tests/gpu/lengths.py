#!/usr/bin/env python3
"""What Grape keeps on the device for a thousand lengths of one model: GPT-2 generates 1,000 tokens, again and again.

lengths.py [--tokens 1000] [--rounds 7] [--out FOLDER]

One process plain, then one under GRAPE_MODE=replay, each alone on the GPU. `kept` is the device memory in use at the end
that PyTorch's allocator does not hold: contexts, modules and graphs; `held` is what the allocator holds, Grape's arenas
included. What replay has more of both than plain is Grape's. Both must give the same tokens.

Exit status: 0 measured (or no GPU), 1 a run failed or outputs differ, 2 usage. The budget (300 MiB) is printed, not judged.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gpu_machine import environment, find_build, gpu_problem, preloaded, table

BUDGET_MIB = 300
WORKER = "--worker"


def work(tokens: int, rounds: int) -> None:
    import torch  # noqa: PLC0415
    from transformers import GPT2Config, GPT2LMHeadModel  # noqa: PLC0415

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config()).half().cuda().eval()
    model.generation_config.eos_token_id = None
    prompt = torch.randint(0, 50000, (1, 16)).cuda()
    mask = torch.ones_like(prompt)
    digest, times = hashlib.sha256(), []
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.no_grad():
            result = model.generate(
                prompt, attention_mask=mask, pad_token_id=50256, do_sample=False, max_new_tokens=tokens
            )
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1000 / tokens)
        digest.update(result.cpu().numpy().tobytes())
        del result
    free, total = torch.cuda.mem_get_info()
    held = torch.cuda.memory_reserved()
    print(
        json.dumps(
            {"ms": times, "digest": digest.hexdigest()[:16], "held": held >> 20, "kept": (total - free - held) >> 20}
        )
    )


def run(options: argparse.Namespace, env: dict[str, str]) -> dict[str, Any]:
    command = [options.python, __file__, WORKER, "--tokens", str(options.tokens), "--rounds", str(options.rounds)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=options.budget, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"exit status {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--budget", type=float, default=300, help="seconds for each of the two processes")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch")
    parser.add_argument(WORKER, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.tokens, options.rounds)
        return 0
    problem = gpu_problem(options.python)
    if problem is not None:
        print(f"skipped: {problem}")
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="grape-lengths-") as scratch:
        report = Path(scratch) / "report.json"
        try:
            build = find_build(Path(scratch))
            results["plain"] = run(options, environment())
            results["replay"] = run(options, preloaded(build, GRAPE_MODE="replay", GRAPE_REPORT=str(report)))
        except (FileNotFoundError, RuntimeError, subprocess.TimeoutExpired) as error:
            print(error)
            return 2 if isinstance(error, FileNotFoundError) else 1
        results["regions"] = json.loads(report.read_text())["regions"]
    (options.out / "lengths.json").write_text(json.dumps(results, indent=1))
    rows = [["", "ms a token, round by round", "held MiB", "kept MiB", "tokens"]]
    for kind in ("plain", "replay"):
        row = results[kind]
        rounds = " ".join(f"{ms:.2f}" for ms in row["ms"])
        rows.append([kind, rounds, str(row["held"]), str(row["kept"]), row["digest"]])
    more = sum(results["replay"][key] - results["plain"][key] for key in ("held", "kept"))
    replayed = sum(region["replayed"] for region in results["regions"])
    text = f"{table(rows)}\nGrape's share of the device's memory for {options.tokens} lengths: {more} MiB"
    text += f" (budget {BUDGET_MIB}); {replayed} calls replayed\n"
    (options.out / "lengths.txt").write_text(text)
    print(text)
    return 0 if results["plain"]["digest"] == results["replay"]["digest"] else 1


if __name__ == "__main__":
    sys.exit(main())
