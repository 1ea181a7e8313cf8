"""One who runs an application: a method of ours, or an opponent; and the rows that come of all."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mpi4py import MPI

from onesided.apps.evidence.stopwatch import Stopwatch, communication
from onesided.apps.report import Row
from onesided.apps.selection import BASELINE
from onesided.apps.timing import Subject, measure
from onesided.apps.verdict import Verdict


@dataclass
class ApplicationRow(Row):
    """A row whose table leaves out what is the same everywhere; JSON has all.

    ``used``: the method that ``auto`` chose.
    """

    used: str = ""

    def cells(self) -> dict[str, str]:
        """Local. For the table."""
        shown = super().cells()
        shown.pop("quartiles", None)
        if self.verdict is not None and self.verdict.passed:
            del shown["error"]
        if self.used:
            shown["method"] = f"{self.labels['method']} ({self.used})"
        return shown

    def record(self) -> dict[str, Any]:
        """Local. For JSON."""
        return super().record() | ({"used": self.used} if self.used else {})


@dataclass
class Entrant:
    """``call`` runs the application once, Collective, or on rank 0 ``alone`` while others sleep.

    ``setup``: seconds of what comes before and after all runs; ``stopwatch``: of the communication
    inside, where that can be seen; ``own``: the last so many times by its own clock, Collective,
    for a program beside this one; ``reason``: why there is nothing to call.
    """

    name: str
    call: Callable[[], object] | None = None
    setup: float | None = None
    stopwatch: Stopwatch | None = None
    alone: bool = False
    lead: float = 0.0
    own: Callable[[int], list[float]] | None = None
    used: str = ""
    verdict: Verdict | None = None
    reason: str = ""


def timed(
    comm: MPI.Intracomm,
    entrants: Sequence[Entrant],
    options: Namespace,
    seconds: float,
    tick: Callable[[], None],
) -> dict[str, list[float]]:
    """Collective. Seconds of every run in turns, by name."""
    subjects, running = [], [each for each in entrants if each.call is not None]
    for each in running:
        call = each.call
        if call is not None:
            lapped = call if each.stopwatch is None else each.stopwatch.lapped(call)
            subjects.append(Subject(each.name, lapped, alone=each.alone, lead=each.lead))
    iterations = options.iterations
    lists = measure(comm, subjects, iterations=iterations, seconds=seconds, tick=tick)
    times = {each.name: taken for each, taken in zip(running, lists, strict=True)}
    for each in running:
        if each.own is not None:
            times[each.name] = each.own(len(times[each.name]))
    return times


def rows(
    comm: MPI.Intracomm,
    application: str,
    entrants: Sequence[Entrant],
    times: dict[str, list[float]],
    opponents: Sequence[str],
) -> list[Row]:
    """Collective. A row for everyone, with communication and compute apart where that is known.

    Their sum is the time of a run: communication is the mean over the ranks, compute the rest,
    which the slowest rank decides.
    """
    against = {name: times[name] for name in (BASELINE, *opponents) if name in times}
    found: list[Row] = []
    for each in entrants:
        labels = {"application": application, "method": each.name}
        if each.reason:
            found.append(Row(labels, reason=each.reason))
            continue
        taken, details = times[each.name], {}
        if each.stopwatch is not None:
            inside = communication(comm, each.stopwatch, len(taken))
            rest = [whole - part for whole, part in zip(taken, inside, strict=True)]
            details = {"communication": inside, "compute": rest}
        row = ApplicationRow(labels, taken, each.setup, against=against, details=details)
        row.verdict, row.used = each.verdict, each.used
        found.append(row)
    return found
