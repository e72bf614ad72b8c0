"""Processes that all stay alive and take turns on the machine, one at a time. What differs between two processes of the
same program (addresses, cores, caches) is several per cent; between turns of one process it is less: several processes of
each kind, and many turns, give ratios that single runs do not."""

import statistics
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from typing import IO, Any, Optional

from gpu_machine import end, json_line

ENDING = 120  # seconds that a process may take to end


@dataclass
class Player:
    """One process of one kind (a mode, or a way to run the model), and the milliseconds of its turns."""

    kind: str
    process: subprocess.Popen
    stderr: IO[bytes]
    times: list[float] = field(default_factory=list)
    summary: Optional[dict[str, Any]] = None

    def last_words(self) -> str:
        self.stderr.seek(0)
        said = self.stderr.read().decode(errors="replace").strip()
        # A stack of C++ frames may be all that the end has.
        errors = [line[:300] for line in said[:-600].splitlines() if "rror" in line][:4]
        return "\n".join([*errors, said[-600:]])


def start_player(kind: str, command: list[str], env: dict[str, str]) -> Player:
    # A file: a pipe that nobody reads would stop a process that has much to say.
    stderr = tempfile.TemporaryFile()
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, env=env, stdin=pipe, stdout=pipe, stderr=stderr, text=True, errors="replace", start_new_session=True
    )
    return Player(kind, process, stderr)


class Turns:
    """`with Turns(starts) as turns`: starts all processes at once; they set up side by side and then wait. `limits`: the
    seconds that one turn of a kind may take; who takes longer is out, and the others go on."""

    def __init__(
        self,
        starts: list[tuple[str, list[str], dict[str, str]]],
        timeout: float,
        limits: Optional[dict[str, float]] = None,
    ) -> None:
        self.failures: list[str] = []
        self.limits = limits or {}
        self.players = [start_player(*start) for start in starts]
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
                end(player.process)

    def turn(self, player: Player) -> Optional[float]:
        """One turn; None, and the player is out, if its process failed."""
        limit = self.limits.get(player.kind)
        watch = threading.Timer(limit, end, [player.process]) if limit else None
        begin = time.monotonic()
        try:
            if watch is not None:
                watch.start()
            player.process.stdin.write("go\n")
            player.process.stdin.flush()
            return float(player.process.stdout.readline())
        except (ValueError, OSError):
            late = limit is not None and time.monotonic() - begin >= limit
            self.end_player(player, f"a turn took more than {limit:.0f} s" if late else "gave no answer")
            return None
        finally:
            if watch is not None:
                watch.cancel()

    def end_player(self, player: Player, problem: str) -> None:
        if player.process.poll() is None:
            end(player.process)
        self.failures.append(f"{player.kind}: {problem}: {player.last_words()}")
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
            try:
                player.summary = json_line(player.process.communicate(timeout=ENDING)[0])
            except subprocess.TimeoutExpired:
                end(player.process)
                player.process.wait()
            if player.process.returncode != 0 or player.summary is None:
                player.summary = None
                self.failures.append(f"{player.kind}: status {player.process.returncode}: {player.last_words()}")

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
