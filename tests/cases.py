"""Cases: functions that every rank of a job runs together, one after the other.

A case module defines functions ``case_*(comm, ...)``. ``run_cases.py`` runs them on the ranks of
one MPI job, in the order of their definition:

    from cases import parameters, ranks, skip

    @ranks(at_least=2)
    @parameters(method=lambda: list(methods()), dtype=["f4", "f8"])
    def case_ring(comm, method, dtype, seed): ...

Each case gets a communicator of its own. An exception on any rank, or ranks that do not agree
that the case is to be skipped, is a failure of the case. A parameter named ``seed`` gets a number
that is the same on all ranks and in every run (ONESIDED_SEED overrides it), one named ``options``
the dict of ``--option`` arguments.
"""

from __future__ import annotations

import faulthandler
import importlib
import inspect
import itertools
import json
import os
import signal
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, NoReturn

CASE_MARK = "@case "
FAILED_MARK = "@failed "
LEFT_MARK = "@left "
GRACE = 10.0  # seconds that a rank which failed alone waits for the others


class Skip(Exception):
    """The case does not apply here; the reason is its text."""


def skip(reason: str) -> NoReturn:
    """Leave the case; every rank must do so with the same reason."""
    raise Skip(reason)


def need(module: str) -> None:
    """Skip the case where a module cannot be imported."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        skip(f"{module} cannot be imported: {error}")


def parameters(**choices: Iterable[Any] | Callable[..., Iterable[Any]]) -> Callable[..., Any]:
    """Run the case for every combination of the choices.

    A callable is called in the job, with the communicator if it takes an argument.
    """

    def mark(case: Callable[..., None]) -> Callable[..., None]:
        earlier = getattr(case, "choices", {})
        case.choices = {**choices, **earlier}  # type: ignore[attr-defined]
        return case

    return mark


def ranks(at_least: int = 1, at_most: int = 1 << 30) -> Callable[..., Any]:
    """Run the case only on so many ranks; elsewhere it counts as skipped."""

    def mark(case: Callable[..., None]) -> Callable[..., None]:
        case.ranks = (at_least, at_most)  # type: ignore[attr-defined]
        return case

    return mark


@dataclass(frozen=True)
class Case:
    """One function with one combination of parameters, of those that are chosen."""

    function: Callable[..., None]
    parameters: dict[str, Any]
    number: int = 0
    of: int = 1

    @property
    def name(self) -> str:
        inside = ",".join(f"{key}={_short(value)}" for key, value in self.parameters.items())
        return self.function.__name__ + (f"[{inside}]" if inside else "")

    @property
    def seed(self) -> int:
        given = os.environ.get("ONESIDED_SEED")
        return int(given) if given else zlib.crc32(self.name.encode())

    @property
    def ranks(self) -> tuple[int, int]:
        """The numbers of ranks from and to which it applies."""
        return getattr(self.function, "ranks", (1, 1 << 30))

    def __call__(self, comm: Any, options: dict[str, str]) -> None:
        low, high = self.ranks
        if not low <= comm.size <= high:
            skip(f"needs {low} to {high} ranks, there are {comm.size}")
        extra = {"seed": self.seed, "options": options}
        wanted = inspect.signature(self.function).parameters
        extra = {key: value for key, value in extra.items() if key in wanted}
        self.function(comm, **self.parameters, **extra)


@dataclass(frozen=True)
class Choice:
    """Cases whose name contains one of the texts, all where there is none.

    Of the numbers of ranks ``among`` which a job's own is, a case runs on one: in the next turn on
    the next of those on which it applies. With a ``share`` of three a third of a function's
    cases is due, but one at least, in the next turn another one.
    """

    select: list[str]
    among: list[int]
    share: int = 1
    turn: int = 0

    def __contains__(self, case: Case) -> bool:
        return not self.select or any(text in case.name for text in self.select)

    def is_due(self, case: Case, size: int) -> bool:
        """Whether it runs on so many ranks in this turn."""
        if self._place(case) % self._share(case):
            return False
        return size not in self.among or self._size(case) == size

    def _share(self, case: Case) -> int:
        return min(self.share, case.of)

    def _place(self, case: Case) -> int:
        return zlib.crc32(case.function.__name__.encode()) + case.number + self.turn

    def _size(self, case: Case) -> int:
        low, high = case.ranks
        fitting = [number for number in self.among if low <= number <= high] or self.among
        return fitting[self._place(case) // self._share(case) % len(fitting)]


def _short(value: Any) -> str:
    return getattr(value, "__name__", None) or str(value)


def collect(module: ModuleType, comm: Any, chosen: Choice) -> Iterator[Case]:
    """The chosen cases of a module in the order of their definition."""
    for name, function in list(vars(module).items()):
        if not name.startswith("case_"):
            continue
        choices = {
            key: list(_evaluated(value, comm))
            for key, value in getattr(function, "choices", {}).items()
        }
        combinations = itertools.product(*choices.values())
        cases = [Case(function, dict(zip(choices, each, strict=True))) for each in combinations]
        cases = [case for case in cases if case in chosen]
        for number, case in enumerate(cases):
            yield replace(case, number=number, of=len(cases))


def _evaluated(choice: Any, comm: Any) -> Iterable[Any]:
    if not callable(choice):
        return choice
    return choice(comm) if inspect.signature(choice).parameters else choice()


class Deadline:
    """End this process, with the stacks of all threads on stderr, when a case takes too long.

    Both timers work below Python: a rank that hangs inside MPI with the interpreter's lock held
    is ended as well. The process outlives its own stacks by two seconds, for those of the others.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def arm(self) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, self.seconds + 2.0)
        faulthandler.dump_traceback_later(self.seconds)

    def shorten(self, seconds: float) -> None:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, min(seconds, self.seconds))

    def disarm(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def say(text: str, stream: int = 1) -> None:
    """Write whole lines by one call, so that those of other ranks do not run into them."""
    sys.stdout.flush()
    sys.stderr.flush()
    data = f"\n{text}\n".encode()
    while data:
        data = data[os.write(stream, data) :]


def run_case(case: Case, world: Any, options: dict[str, str], deadline: Deadline) -> str:
    """Collective. Run one case and agree on its outcome: passed, failed or skipped."""
    comm = world.Dup()
    reason, outcome, began = "", "passed", time.perf_counter()
    deadline.arm()
    try:
        case(comm, options)
    except Skip as error:
        outcome, reason = "skipped", str(error)
    except Exception:
        outcome, reason = "failed", traceback.format_exc()
        say(
            f"{FAILED_MARK}rank {world.rank} of {world.size}, {case.name}, "
            f"ONESIDED_SEED={case.seed}\n{reason}",
            stream=2,
        )
        deadline.shorten(GRACE)
    if outcome == "passed" and comm.Iprobe():
        say(f"{LEFT_MARK}a message that nobody has received: {case.name}", stream=2)
    everyone = world.allgather((outcome, reason))
    if any(entry != everyone[0] for entry in everyone) or everyone[0][0] == "failed":
        outcome = "failed"
        reason = "\n".join(f"rank {rank}: {how} {why}" for rank, (how, why) in enumerate(everyone))
    else:
        comm.Free()
    deadline.disarm()
    if world.rank == 0:
        line = {
            "name": case.name,
            "parameters": {key: _short(value) for key, value in case.parameters.items()},
            "ranks": world.size,
            "outcome": outcome,
            "seconds": round(time.perf_counter() - began, 4),
            "reason": reason,
        }
        say(CASE_MARK + json.dumps(line))
    return outcome


def run_module(module: ModuleType, chosen: Choice, options: dict[str, str]) -> int:
    """Collective. Run the chosen cases; the number of failures."""
    from mpi4py import MPI

    faulthandler.enable()
    world = MPI.COMM_WORLD.Dup()
    deadline = Deadline(float(os.environ.get("ONESIDED_CASE_TIMEOUT", "60")))
    cases = list(collect(module, world, chosen))
    due = [case for case in cases if chosen.is_due(case, world.size)]
    names = world.allgather([case.name for case in due])
    if any(entry != names[0] for entry in names):
        raise RuntimeError(f"the ranks do not have the same cases: {names}")
    if cases and not due and world.rank == 0:
        reason = f"none of {len(cases)} cases is due on {world.size} ranks in turn {chosen.turn}"
        say(CASE_MARK + json.dumps({"name": "none", "outcome": "skipped", "reason": reason}))
    outcomes = [run_case(case, world, options, deadline) for case in due]
    failures = outcomes.count("failed")
    if not failures:
        world.Free()
    return failures
