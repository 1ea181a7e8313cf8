"""Jobs that stay up between tests, and what they are asked for: items of a module, or a program.

There is one for every number of ranks, environment and layout. A failure ends it, and the next
request gets a new one. What all the requests of a job have left to MPI is seen when it ends; where
there is something, each is repeated alone to find out which one it was.
"""

from __future__ import annotations

import json
import os
import re
import select
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mpi_harness
from mpi_harness import TESTS, Job, Outcome

SERVE = TESTS / "serve.py"
USUAL = dict(os.environ)
MOST_RANKS = 24  # asleep or not, of all jobs together
GRACE = 10.0  # seconds in which the other ranks must have come where one has failed
# what counts when a job starts; all else is read when it is needed
AT_START = ("ONESIDED_CORE", "MPI", "OMPI_", "OMP_", "UCX_")


@dataclass(frozen=True)
class Request:
    """``kind`` is items or program; ``words`` what these are given."""

    kind: str
    words: tuple[str, ...]
    env: dict[str, str | None] = field(default_factory=dict)
    folder: str = field(default_factory=os.getcwd)

    def __str__(self) -> str:
        env = (f"{key}={text}" for key, text in self.env.items())
        words = " ".join([*env, *self.words])
        return words if len(words) < 400 else f"{words[:400]} and {len(self.words)} words"


def changes() -> dict[str, str | None]:
    """What a test has set, or taken out, of the environment of this process."""
    found: dict[str, str | None] = dict.fromkeys(USUAL.keys() - os.environ.keys())
    return found | {key: text for key, text in os.environ.items() if USUAL.get(key) != text}


class Server(Job):
    """A job that answers requests until one of them goes wrong."""

    def __init__(self, ranks: int, env: Mapping[str, str], nodes: int) -> None:
        self.env, self.nodes, self.answered = env, nodes, list[Request]()
        super().__init__(SERVE, ranks, env=env, nodes=nodes, limit=1e6, base=USUAL)

    def prepare(self) -> None:
        """A pipe for each rank, held open at both ends: nobody waits for the other to open it, and
        who writes more than fits does not wait for a rank that is gone."""
        self._pipes = []
        for rank in range(self.ranks):
            path = self.folder / f"requests{rank}"
            os.mkfifo(path)
            self._pipes.append(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))

    def _send(self, content: Mapping[str, Any], timeout: float) -> None:
        """To all ranks, as long as the job is there; what it comes to is seen later."""
        self._starts = {name: (self.folder / name).stat().st_size for name in self._starts}
        limit = time.monotonic() + timeout
        for pipe in self._pipes:
            left = json.dumps(content).encode() + b"\n"
            while left and self.launcher.poll() is None and time.monotonic() < limit:
                if select.select([], [pipe], [], 0.1)[1]:
                    left = left[os.write(pipe, left) :]

    def ask(self, request: Request, timeout: float) -> Outcome:
        """The outcome; after anything but a pass or an exit code of all ranks the job has ended.

        The time is over when nothing has been printed for so long, or for a shorter one where a
        rank that has failed waits for the others.
        """
        token, began = uuid.uuid4().hex, time.monotonic()
        moved, limit = began, timeout
        self._send({"token": token, **vars(request)}, timeout)
        command = (*self.command, str(request))
        done, seen = re.compile(rf"\n?@done {token} \d+ (\d+)\n?"), 0
        while self.launcher.poll() is None and time.monotonic() < moved + limit:
            time.sleep(0.005)
            size = sum((self.folder / name).stat().st_size for name in self._starts)
            if size == seen:
                continue
            seen, moved = size, time.monotonic()
            streams = self.streams()
            codes = [done.findall(text) for text in streams]
            if any(len(found) != self.ranks for found in codes):
                limit = min(GRACE, timeout) if mpi_harness.alone(*streams) else timeout
                continue
            code = max(map(int, codes[0]))
            kind, reason = mpi_harness.classify(code, False, self.ranks, token, *streams)
            ended = request.kind == "program" and len(set(codes[0])) == 1
            if kind == "pass" or ended:
                self.answered.append(request)
            else:
                self.end(0.0)
            streams = [done.sub("", text) for text in streams]
            return Outcome(kind, code, reason, *streams, time.monotonic() - began, command)
        outcome = self.end(max(0.0, moved + limit - time.monotonic()))
        if outcome.kind == "pass":
            outcome = replace(outcome, kind="crash", reason="the ranks ended before the request")
        return replace(outcome, command=command)

    @property
    def alive(self) -> bool:
        return self.launcher.returncode is None

    def end(self, timeout: float) -> Outcome:
        """As that of any job; nobody can ask any more."""
        try:
            return super().end(timeout)
        finally:
            while self._pipes:
                os.close(self._pipes.pop())

    def close(self) -> Outcome:
        """The end of a job without failures, and whether it has left anything."""
        self._send({"kind": "end"}, 60.0)
        outcome = self.end(60.0)
        return replace(outcome, reason=f"{outcome.reason}, after\n{_lines(self.answered)}")

    def culprits(self) -> list[Request]:
        """Those of the requests that leave something when they are all that a job does."""
        found = []
        for request in self.answered:
            job = Server(self.ranks, self.env, self.nodes)
            job.ask(request, 600.0)
            if not job.alive or job.close().kind != "pass":
                found.append(request)
        return found


def _lines(requests: Iterable[Request]) -> str:
    return "\n".join(map(str, requests))


class Servers:
    """The jobs that wait for requests; those that were not asked for longest end first."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[Any, ...], Server] = {}
        self._bad: list[Outcome] = []

    def ask(
        self, request: Request, ranks: int, env: Mapping[str, str], timeout: float, nodes: int = 1
    ) -> Outcome:
        """The outcome in the job of so many ranks in this environment, started if need be."""
        late = {key: env[key] for key in env if not key.startswith(AT_START)}
        request = replace(request, env=changes() | request.env | late)
        env = {key: env[key] for key in env if key not in late}
        place = (ranks, tuple(sorted(env.items())), nodes)
        job = self._jobs.pop(place, None)
        if job is None:
            while self._jobs and ranks + sum(job.ranks for job in self._jobs.values()) > MOST_RANKS:
                self._close(next(iter(self._jobs)))
            job = Server(ranks, env, nodes)
        outcome = job.ask(request, timeout)
        if job.alive:
            self._jobs[place] = job
            if ranks > MOST_RANKS:
                self._close(place)
        return outcome

    def _close(self, place: tuple[Any, ...]) -> None:
        job = self._jobs.pop(place)
        outcome = job.close()
        if outcome.kind == "leak" and len(job.answered) > 1:
            found = _lines(job.culprits()) or "none of them alone"
            outcome = replace(outcome, reason=f"{outcome.reason}\nIt is left by\n{found}")
        if outcome.kind != "pass":
            self._bad.append(outcome)

    def close(self) -> list[Outcome]:
        """End all jobs; the outcomes of those that did not end well, of earlier ones too."""
        while self._jobs:
            self._close(next(iter(self._jobs)))
        bad, self._bad = self._bad, []
        return bad


SERVERS = Servers()  # those of this session


def run(
    program: str | Path,
    ranks: int,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    timeout: float = 300.0,
    nodes: int = 1,
    folder: str | None = None,
) -> Outcome:
    """As that of ``mpi_harness``, in a job that is up, and in a folder."""
    words = str(program).split() if str(program).startswith("-m ") else [str(program)]
    request = Request("program", (*words, *arguments), folder=folder or os.getcwd())
    return SERVERS.ask(request, ranks, env or {}, timeout, nodes)
