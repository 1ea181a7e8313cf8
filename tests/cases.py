"""What a case is: a function that every rank of an MPI job runs, and the axes it is run along.

    from cases import parameters, ranks, skip

    @ranks(at_least=2)
    @parameters(method=lambda: list(methods()), dtype=["f4", "f8"])
    def case_ring(comm, method, dtype, seed): ...

``mpi_items`` makes pytest items of the functions ``case_*`` in tests/mpi, and runs them on the jobs
that ``jobs.py`` names for their module. A case has these fixtures: ``comm``, a communicator of its
own; ``seed``, a number that is the same on all ranks and in every run (ONESIDED_SEED overrides it);
``options``, those of the job.
"""

from __future__ import annotations

import faulthandler
import importlib
import inspect
import os
import random
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import pytest

CASE_MARK = "@case "
FAILED_MARK = "@failed "
LEFT_MARK = "@left "


def skip(reason: str) -> NoReturn:
    """Leave the case; every rank must do so with the same reason."""
    pytest.skip(reason)


def need(module: str) -> None:
    """Skip the case where a module cannot be imported."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        skip(f"{module} cannot be imported: {error}")


#: What may be refused: by which MPI ("" is any), which methods, with words of the refusal. A
#: refusal that does not stand here fails.
REFUSALS = [
    ("openmpi", ("mpi", "mpi-persistent"), "periodic Cartesian axis"),
    ("", ("rma",), "not in memory from empty"),
    ("", ("fence-threads", "lock-all-threads"), "MPI_THREAD_MULTIPLE"),
]


def skip_if_known(error: Exception, method: str) -> NoReturn:
    """Skip where the refusal is one that is known; else it is a failure."""
    import mpi_harness

    for mpi, methods, word in REFUSALS:
        if mpi in ("", mpi_harness.mpi_name()) and method in methods and word in str(error):
            skip(str(error))
    raise error


def parameters(**choices: Iterable[Any] | Callable[..., Iterable[Any]]) -> Callable[..., Any]:
    """Run the case for every combination of the choices.

    A callable gives them when it is asked, with the job if it takes an argument.
    """

    def mark(case: Callable[..., None]) -> Callable[..., None]:
        earlier = getattr(case, "choices", {})
        case.choices = {**choices, **earlier}  # type: ignore[attr-defined]
        return case

    return mark


def ranks(at_least: int = 1, at_most: int = 1 << 30) -> Callable[..., Any]:
    """Run the case only on jobs of so many ranks."""

    def mark(case: Callable[..., None]) -> Callable[..., None]:
        case.ranks = (at_least, at_most)  # type: ignore[attr-defined]
        return case

    return mark


def evaluated(choice: Any, job: Any) -> list[Any]:
    """The values of one axis on a job."""
    if not callable(choice):
        return list(choice)
    return list(choice(job) if inspect.signature(choice).parameters else choice())


def short(value: Any) -> str:
    """How a value is called in the name of an item."""
    name = getattr(value, "__name__", None) or str(value)
    return name.encode("ascii", "backslashreplace").decode().replace("[", "(").replace("]", ")")


def covering(rows: Sequence[Mapping[str, Any]], seed: int) -> list[int]:
    """Places of rows in which every value of every axis occurs.

    Chosen one after the other, each the best of some drawn by chance from the seed.
    """
    sets = [{(key, short(value)) for key, value in row.items()} for row in rows]
    missing = set[Any]().union(*sets)
    rng, left, chosen = random.Random(seed), list(range(len(rows))), list[int]()
    rng.shuffle(left)
    while missing:
        best = max(left[:40], key=lambda place: len(sets[place] & missing))
        if sets[best] & missing:
            chosen.append(best)
            missing -= sets[best]
            left.remove(best)
        left = [place for place in left[:40] if sets[place] & missing] + left[40:]
        left = left[20:] + left[:20]
    return sorted(chosen)


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
