"""Processes that all stay alive and take turns on the machine, one at a time. What differs between two processes of the
same program (addresses, cores, caches) is several per cent; between turns of one process it is less: several processes of
each kind, and many turns, give ratios that single runs do not."""

import json
import os
import signal
import statistics
import subprocess
import threading
from dataclasses import dataclass, field
from typing import Any, Optional


@dataclass
class Player:
    """One process of one kind (a mode, or a way to run the model), and the milliseconds of its turns."""

    kind: str
    process: subprocess.Popen
    times: list[float] = field(default_factory=list)
    summary: Optional[dict[str, Any]] = None


class Turns:
    """`with Turns(starts) as turns`: starts all processes at once; they set up side by side and then wait."""

    def __init__(self, starts: list[tuple[str, list[str], dict[str, str]]], timeout: float) -> None:
        self.failures: list[str] = []
        self.players = [
            Player(
                kind,
                subprocess.Popen(
                    command,
                    env=env,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                    start_new_session=True,
                ),
            )
            for kind, command, env in starts
        ]
        # A process that hangs is ended, and its pipe with it.
        self.watch = threading.Timer(timeout, self.end)
        self.watch.start()

    def __enter__(self) -> "Turns":
        return self

    def __exit__(self, *_: object) -> None:
        self.watch.cancel()
        self.end()

    def end(self) -> None:
        for player in self.players:
            if player.process.poll() is None:
                try:
                    os.killpg(player.process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def turn(self, player: Player) -> Optional[float]:
        """One turn; None, and the player is out, if its process failed."""
        try:
            player.process.stdin.write("go\n")
            player.process.stdin.flush()
            return float(player.process.stdout.readline())
        except (ValueError, OSError):
            self.end_player(player, "gave no answer")
            return None

    def end_player(self, player: Player, problem: str) -> None:
        if player.process.poll() is None:
            os.killpg(player.process.pid, signal.SIGKILL)
        stderr = player.process.stderr.read().strip()[-600:]
        self.failures.append(f"{player.kind}: {problem}: {stderr}")
        self.players.remove(player)

    def round(self, number: int, keep: bool) -> None:
        """Each process once, in an order that turns with the round."""
        at = number % max(1, len(self.players))
        for player in self.players[at:] + self.players[:at]:
            taken = self.turn(player)
            if taken is not None and keep:
                player.times.append(taken)

    def finish(self) -> None:
        """Lets every process end by itself, and reads the line that it closes with."""
        for player in self.players:
            # All at once: ending takes seconds each.
            player.process.stdin.close()
            player.process.stdin = None
        for player in list(self.players):
            stdout, stderr = player.process.communicate()
            lines = [line for line in stdout.splitlines() if line.startswith("{")]
            if player.process.returncode != 0 or not lines:
                self.failures.append(f"{player.kind}: status {player.process.returncode}: {stderr.strip()[-600:]}")
            else:
                player.summary = json.loads(lines[-1])

    def of(self, kind: str) -> list[Player]:
        return [player for player in self.players if player.kind == kind and player.times]

    def median(self, kind: str) -> Optional[float]:
        """The median over processes of the medians over turns."""
        players = self.of(kind)
        return statistics.median(statistics.median(p.times) for p in players) if players else None

    def ratios(self, kind: str, base: str) -> list[float]:
        """By round: the median of `kind`'s processes over that of `base`'s."""
        ours, theirs = self.of(kind), self.of(base)
        rounds = min((len(p.times) for p in ours + theirs), default=0)
        return [
            statistics.median(p.times[i] for p in ours) / statistics.median(p.times[i] for p in theirs)
            for i in range(rounds if ours and theirs else 0)
        ]
