#!/usr/bin/env python3
"""What Grape costs training that it cannot replay: 40 models, plain and preloaded, side by side. The limit is 1.02 of
plain's time, over the first 40 steps and over those after.

Groups of three processes train the same models: two plain ones, of which the second tells how far two equal processes
differ, and one under Grape with the caller's GRAPE_... variables. --mode adds one in another GRAPE_MODE. They import and
build side by side.
They take the same two cores, since equal processes on other cores differ by 7%, and
one after the other takes turns, alone on the machine: 40 turns of one step, then 24 turns of several steps. The
first step, in which kernels are loaded, is not counted. A step is forward, backward, AdamW and zero_grad, between
synchronisations. Later steps are compared by their median turn. The losses of all must be equal; where those of the
plain ones differ, the model is left out.

Prints a table and writes training_overhead.json and .txt to --out. Exit status: 0 measured (or no GPU), 1 a run failed or
losses differ, 2 usage.
"""

import argparse
import hashlib
import json
import math
import os
import statistics
import subprocess
import sys
import time
from typing import Any, Callable, Optional

from instructions import Instructions

import paths  # noqa: F401
from gpu_machine import Measurement, add_options, end, environment, preloaded, settings_of_caller, show, table, with_build

STEPS, TURNS, TURN_MS = 40, 24, 50
LIMIT = 1.02
UNITS = {"ms": "time", "cpu": "CPU time", "instructions": "instructions"}
PLAIN = ("mlp", "inplace_convolutions", "lstm", "siamese")
TORCHVISION = ("resnet18", "densenet121", "mobilenet_v2", "mobilenet_v3_small", "shufflenet_v2_x1_0", "squeezenet1_1",
               "googlenet", "mnasnet1_0", "regnet_y_400mf", "efficientnet_b0", "convnext_tiny", "vit_b_16", "swin_t", "vgg11")
TIMM = ("resnet26", "ghostnet_100", "mixer_s32_224", "resmlp_12_224", "dla34", "nf_resnet26", "repvgg_a0", "tf_efficientnet_b0")
TRANSFORMERS = ("albert", "bart", "bert", "deberta_v2", "distilbert", "electra", "gpt2", "llama", "mamba", "mixtral", "opt", "qwen2",
                "roberta", "t5")


def plain_model(name: str) -> tuple[Any, Callable[[Any], Any]]:
    import torch  # noqa: PLC0415
    from torch import nn  # noqa: PLC0415

    if name == "mlp":
        net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8))
        x = torch.randn(256, 64, device="cuda")
        return net, lambda model: model(x)
    if name == "inplace_convolutions":
        layers = [part for _ in range(8) for part in (nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True))]
        x = torch.randn(8, 16, 32, 32, device="cuda")
        return nn.Sequential(*layers), lambda model: model(x)
    if name == "lstm":
        x = torch.randn(16, 32, 64, device="cuda")
        return nn.LSTM(64, 128, 2, batch_first=True), lambda model: model(x)[0]
    net = nn.Sequential(nn.Linear(64, 128), nn.LayerNorm(128), nn.GELU(), nn.Linear(128, 32))
    a, b = torch.randn(2, 64, 64, device="cuda")
    return net, lambda model: model(a) * model(b)


def image_model(library: str, name: str) -> tuple[Any, Callable[[Any], Any]]:
    import torch  # noqa: PLC0415

    images = torch.randn(8, 3, 224, 224, device="cuda") if "224" in name or name in ("vit_b_16", "swin_t") else \
        torch.randn(8, 3, 96, 96, device="cuda")
    if library == "torchvision":
        import torchvision  # noqa: PLC0415

        more = {"init_weights": True} if name == "googlenet" else {}
        model = getattr(torchvision.models, name)(weights=None, num_classes=10, **more)
    else:
        import timm  # noqa: PLC0415

        model = timm.create_model(name, num_classes=10)
    return model, lambda called: getattr(called(images), "logits", None) if name == "googlenet" else called(images)


def text_model(name: str) -> tuple[Any, Callable[[Any], Any]]:
    import model_zoo  # noqa: PLC0415
    import torch  # noqa: PLC0415
    from transformers import AutoConfig, AutoModel  # noqa: PLC0415

    small = {"vocab_size": model_zoo.VOCABULARY}
    model = AutoModel.from_config(AutoConfig.for_model(name.replace("_", "-"), **small, **SIZES.get(name, {})))
    ids = torch.randint(3, model_zoo.VOCABULARY, (4, 64), device="cuda")
    arguments = {"input_ids": ids}
    if getattr(model.config, "is_encoder_decoder", False):
        arguments["decoder_input_ids"] = ids[:, :32]
    return model, lambda called: called(**arguments)[0]


# Of the families whose usual size is made for many GPUs: six layers, 512 wide.
SIZES: dict[str, dict[str, int]] = {
    name: {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 8, **more}
    for name, more in {
        "llama": {"num_key_value_heads": 8}, "qwen2": {"num_key_value_heads": 8}, "opt": {"ffn_dim": 1024, "word_embed_proj_dim": 512},
        "mixtral": {"num_key_value_heads": 8, "num_local_experts": 4}, "deberta_v2": {}, "mamba": {},
    }.items()
}


def build(name: str) -> tuple[Any, Callable[[Any], Any]]:
    if name in PLAIN:
        return plain_model(name)
    if name in TORCHVISION:
        return image_model("torchvision", name)
    return image_model("timm", name) if name in TIMM else text_model(name)


class Trainer:
    def __init__(self, name: str, instructions: Instructions) -> None:
        import torch  # noqa: PLC0415

        self.instructions = instructions
        torch.manual_seed(0)
        model, self.call = build(name)
        self.model = model.cuda().train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-4)
        self.digest = hashlib.sha256()
        self.finish = torch.cuda.synchronize
        self.steps(1)

    def steps(self, count: int) -> dict[str, Any]:
        self.finish()
        begin, instructions, seconds = time.perf_counter(), self.instructions.count(), time.process_time()
        for _ in range(count):
            loss = self.call(self.model).float().square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.finish()
        taken = {"ms": (time.perf_counter() - begin) * 1000 / count, "cpu": (time.process_time() - seconds) * 1000 / count}
        if instructions is not None:
            taken["instructions"] = (self.instructions.count() - instructions) / count
        self.digest.update(loss.detach().cpu().numpy().tobytes())
        return taken


def serve() -> int:
    """Answers `build NAME` and `step N`, a line each."""
    instructions = Instructions()
    import torch  # noqa: PLC0415
    import transformers  # noqa: F401, PLC0415

    torch.use_deterministic_algorithms(True, warn_only=True)
    trainer: Optional[Trainer] = None
    for line in sys.stdin:
        word, argument = line.split()
        try:
            if word == "build":
                trainer = None
                torch.cuda.empty_cache()
                trainer = Trainer(argument, instructions)
                answer: dict[str, Any] = {}
            else:
                answer = {**trainer.steps(int(argument)), "digest": trainer.digest.hexdigest()}
        except Exception as error:  # noqa: BLE001 (whatever a library raises)
            answer = {"error": f"{type(error).__name__}: {error}"[:200]}
        print(json.dumps(answer), flush=True)
    return 0


class Process:
    def __init__(self, command: list[str], env: dict[str, str], cores: set[int]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
        os.sched_setaffinity(self.process.pid, cores)  # before it has threads

    def say(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        while True:
            line = self.process.stdout.readline()
            if not line:
                return {"error": "the process ended"}
            if line.startswith("{"):
                return json.loads(line)

    def ask(self, line: str) -> dict[str, Any]:
        self.say(line)
        return self.answer()


class Overhead(Measurement):
    def group(self, number: int) -> dict[str, Process]:
        command = [self.options.python, __file__, "--serve"]
        more = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        all_cores = sorted(os.sched_getaffinity(0))
        cores = {all_cores[(2 * number + i) % len(all_cores)] for i in range(2)}
        group = {name: Process(command, environment(**more), cores) for name in ("plain", "again")}
        under_grape = preloaded(self.build, **{**settings_of_caller(), **more})
        group["Grape"] = Process(command, under_grape, cores)
        for mode in self.options.mode:
            group[mode] = Process(command, {**under_grape, "GRAPE_MODE": mode}, cores)
        return group

    def prepare(self, group: dict[str, Process], name: str) -> Optional[str]:
        for process in group.values():
            process.say(f"build {name}")
        return next((found["error"] for found in [process.answer() for process in group.values()] if "error" in found), None)

    def turns(self, group: dict[str, Process], count: int, turns: int) -> dict[str, list[dict[str, Any]]]:
        """What each process answers of its turns, for one step."""
        answers: dict[str, list[dict[str, Any]]] = {name: [] for name in group}
        names = list(group)
        for number in range(turns):
            for name in names[number % len(names) :] + names[: number % len(names)]:
                answer = group[name].ask(f"step {count}")
                if "error" in answer:
                    raise RuntimeError(answer["error"])
                answers[name].append(answer)
                self.digests[name] = answer["digest"]
        return answers

    def measure(self, group: dict[str, Process], name: str) -> list[str]:
        self.digests: dict[str, str] = {}
        first = self.turns(group, 1, STEPS)
        later = self.turns(group, max(1, round(TURN_MS / median(first["plain"], "ms"))), TURNS)
        plain = self.digests.pop("plain")
        row: dict[str, Any] = {
            "plain_ms": median(later["plain"], "ms"),
            "deterministic": self.digests.pop("again") == plain,
            "equal": all(digest == plain for digest in self.digests.values()),
        }
        for who in list(group)[1:]:
            for unit in UNITS:
                if unit in first[who][0]:
                    row[f"{who} first {unit}"] = trimmed(first[who], unit) / trimmed(first["plain"], unit)
                    row[f"{who} later {unit}"] = median(later[who], unit) / median(later["plain"], unit)
        self.results[name] = row
        equal = ("yes" if row["equal"] else "NO") if row["deterministic"] else "not even plain ones"
        ratios = [show(row[f"{who} {when} ms"]) for when in ("first", "later") for who in list(group)[1:]]
        return [name, show(row["plain_ms"], 2), *ratios, equal]


def median(answers: list[dict[str, Any]], unit: str) -> float:
    return statistics.median(answer[unit] for answer in answers)


def trimmed(answers: list[dict[str, Any]], unit: str) -> float:
    """Without the longest tenth, which is other work's doing as often as Grape's."""
    return sum(sorted(answer[unit] for answer in answers)[: len(answers) * 9 // 10])


def measure_all(measurement: Overhead, names: list[str]) -> list[list[str]]:
    options = measurement.options
    who = ["again", "Grape", *options.mode]
    rows = [["model", "plain ms", *[f"{one}, {when}" for when in ("first 40", "later") for one in who], "losses equal"]]
    parts = [names[i :: options.groups] for i in range(options.groups)]
    groups = [measurement.group(number) for number in range(len(parts))]
    for position in range(max(map(len, parts))):
        present = [(group, part[position]) for group, part in zip(groups, parts) if position < len(part)]
        problems = [measurement.prepare(group, name) for group, name in present]
        for (group, name), problem in zip(present, problems):
            if measurement.left() < 20:
                break
            try:
                if problem is not None:
                    raise RuntimeError(problem)
                rows.append(measurement.measure(group, name))
            except RuntimeError as error:
                rows.append([name, "", *[""] * (2 * len(who)), str(error)[:100]])
            print("  ".join(rows[-1]), flush=True)
    for process in [process for group in groups for process in group.values()]:
        end(process.process)
    return rows


def summary(results: dict[str, Any], who: list[str]) -> str:
    """The mean of logarithms is that of ratios; behind it what 38 models' chance leaves of it, two standard errors."""
    lines = []
    for unit, name in UNITS.items():
        for when, title in (("first", "first 40 steps"), ("later", "later")):
            for one in who:
                key = f"{one} {when} {unit}"
                ratios = sorted(row[key] for row in results.values() if key in row)
                if len(ratios) < 2:
                    continue
                logarithms = [math.log(ratio) for ratio in ratios]
                error = 2 * statistics.stdev(logarithms) / math.sqrt(len(ratios))
                over = sum(ratio > LIMIT for ratio in ratios)
                lines.append(
                    f"{name}, {title}, {one}: mean {math.exp(statistics.mean(logarithms)):.3f} +- {error:.3f}, "
                    f"median {statistics.median(ratios):.3f}, greatest {ratios[-1]:.3f}, {over} of {len(ratios)} over {LIMIT}"
                )
    return "\n".join(lines)


def main() -> int:
    if sys.argv[1:] == ["--serve"]:
        return serve()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, 560)
    parser.add_argument("--only", action="append", help="a model; may be given several times")
    parser.add_argument("--mode", action="append", default=[], help="one more process, with this GRAPE_MODE")
    parser.add_argument("--groups", type=int, default=4, help="groups of processes, which build side by side")
    options = parser.parse_args()
    return with_build(options, lambda build, scratch: report(Overhead(options, build, scratch)))


def report(measurement: Overhead) -> int:
    names = measurement.options.only or [*PLAIN, *TORCHVISION, *TIMM, *TRANSFORMERS]
    rows = measure_all(measurement, names)
    text = table(rows) + "\n" + summary(measurement.results, ["again", "Grape", *measurement.options.mode])
    print(text)
    measurement.write("training_overhead", text)
    unequal = [name for name, row in measurement.results.items() if row["deterministic"] and not row["equal"]]
    return 1 if unequal else 0


if __name__ == "__main__":
    sys.exit(main())
