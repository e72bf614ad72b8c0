"""Compares runs of a program, and says in one line what came out."""

import dataclasses
from typing import Any, Optional


@dataclasses.dataclass
class Outcome:
    name: str
    kind: str  # equal, differs, not deterministic, missing library, skipped, error, crashed, time limit
    detail: str = ""
    log: str = ""
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    replays: dict[str, Any] = dataclasses.field(default_factory=dict)

    def line(self, width: int) -> str:
        words = f"{self.name:{width}}  {self.kind}"
        if self.detail:
            words += f": {self.detail}" if self.kind != "differs" else f" {self.detail}"
        if self.replays:
            words += f"  [replayed {self.replays['replayed']} of {self.replays['calls']} calls"
            words += f", {len(self.replays['reasons'])} reasons]"
        if self.seconds:
            words += f"  {self.seconds['plain']:.1f} s, {self.seconds['grape']:.1f} s"
        return words


def first_difference(ours: list[dict[str, str]], theirs: list[dict[str, str]]) -> Optional[str]:
    """At which step what differs first, in words; None if nothing does."""
    for step, (one, other) in enumerate(zip(ours, theirs)):
        labels = [label for label in {**one, **other} if one.get(label) != other.get(label)]
        if labels:
            label = labels[0]
            more = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
            return f"at step {step} in {label}{more}{texts(label, one.get(label), other.get(label))}"
    if len(ours) != len(theirs):
        return f"in the number of steps: {len(ours)}, {len(theirs)}"
    return None


def texts(label: str, one: Optional[str], other: Optional[str]) -> str:
    """Both sides where they are words and not hashes."""
    if one is None or other is None:
        return f" (only {'plain' if other is None else 'under Grape'})"
    hashes = label.startswith(("value", "gradient", "buffer", "weight", "random", "modes", "indices"))
    return f" ({excerpt(one, other)} | {excerpt(other, one)})" if "None" in (one, other) or not hashes else ""


def excerpt(text: str, other: str, most: int = 70) -> str:
    """The part of a long text where it differs from the other."""
    if len(text) <= most:
        return text
    same = next((at for at, (a, b) in enumerate(zip(text, other)) if a != b), min(len(text), len(other)))
    begin = max(0, same - most // 2)
    return ("…" if begin else "") + text[begin : begin + most] + ("…" if begin + most < len(text) else "")


def failure(run: dict[str, Any], who: str, name: str) -> Optional[Outcome]:
    if run["status"] is None:
        return Outcome(name, "time limit", who, run["log"])
    if run["status"] != 0:
        return Outcome(name, "crashed", f"{who}, exit status {run['status']}", run["log"])
    return None


def judge(name: str, plain: list[dict[str, Any]], grape: list[dict[str, Any]]) -> Outcome:
    """Of one plain run, or of two where the first differs from those under Grape."""
    for who, runs in (("plain", plain), ("under Grape", grape)):
        for run in runs:
            failed = failure(run, who, name)
            if failed:
                return failed
    if plain[0]["error"]:
        return Outcome(name, "error", plain[0]["error"], plain[0]["log"])
    unsteady = first_difference(plain[0]["records"], plain[-1]["records"])
    found = [difference(plain[0], run, steady=unsteady is None) for run in grape]
    differing = [number for number, words in enumerate(found) if words]
    if differing:
        words = f"{found[differing[0]]}; in {len(differing)} of {len(grape)} runs"
        return Outcome(name, "differs", words, grape[differing[0]]["log"])
    return Outcome(name, "not deterministic", unsteady) if unsteady else Outcome(name, "equal")


def difference(plain: dict[str, Any], grape: dict[str, Any], steady: bool) -> Optional[str]:
    """Of a program that is not deterministic only the errors and the number of steps are compared."""
    if grape["error"]:
        return f"because it raises {grape['error']}"
    if not steady and len(plain["records"]) == len(grape["records"]):
        return None
    return first_difference(plain["records"], grape["records"])


def summary_of_reports(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Calls and replays of all modules and runs, and how often each reason was given."""
    if not reports:
        return {}
    regions = [region for report in reports for region in report["regions"]]
    reasons: dict[str, int] = {}
    for region in regions:
        for reason in region["reasons"]:
            reasons[reason["text"]] = reasons.get(reason["text"], 0) + reason["count"]
    return {
        "calls": sum(region["calls"] for region in regions),
        "replayed": sum(region["replayed"] for region in regions),
        "observed": sum(region["observed"] for region in regions),
        "reasons": reasons,
    }
