"""Who takes part in ``onesided bench partitioned``: the only place where one is chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onesided.apps.failures import CommandError
from onesided.apps.partitioned.markings import BULK, ONE_BY_ONE, WHOLE, Marking
from onesided.apps.partitioned.messages import blocking, immediate, persistent, single
from onesided.apps.partitioned.options import EVERY
from onesided.apps.partitioned.requests import native, ours
from onesided.apps.partitioned.runner import Lane, Runner
from onesided.apps.report import NOTHING, byte_count
from onesided.collectives import partitioned_methods
from onesided.collectives.program import COMPILED

AUTO = "auto"

#: Methods whose time is not that of counting.
NOT_COUNTED = ("p2p", "mpi")


@dataclass(frozen=True)
class Contestant:
    """A way of sending a buffer in partitions, and how it can be marked.

    ``aggregate``: of ours, bytes of a group. ``multiple``: several threads that mark are
    several that call MPI. ``foreign``: what is measured is the MPI's own, faults included.
    ``python``: it counts in Python although a compiled counter is there.
    """

    method: str
    make: Callable[[Lane], Runner]
    markings: Sequence[Marking]
    aggregate: int | None = None
    multiple: bool = True
    foreign: bool = False
    python: bool = False

    @property
    def name(self) -> str:
        """Local. The method and the bytes of a group, for the legend of a figure."""
        if self.aggregate is None:
            return self.method
        return f"{self.labels['method']} {byte_count(self.aggregate)}"

    @property
    def labels(self) -> dict[str, str]:
        """Local. For a table."""
        grouped = NOTHING if not self.aggregate else byte_count(self.aggregate)
        method = f"{self.method}, in Python" if self.python else self.method
        return {"method": method, "aggregate": grouped}


@dataclass(frozen=True)
class Entry:
    """A contestant marked in one way: what is timed."""

    contestant: Contestant
    marking: Marking

    @property
    def name(self) -> str:
        """Local. The contestant and its marking."""
        return f"{self.contestant.name} {self.marking.name}"

    @property
    def labels(self) -> dict[str, str]:
        """Local. For a table."""
        return self.contestant.labels | {"marked": self.marking.name}


SINGLE = Contestant("single", single, [WHOLE], multiple=False)
NATIVE = Contestant("psend", native, [ONE_BY_ONE, BULK], foreign=True)
_OTHERS = (
    SINGLE,
    Contestant("send", blocking, [ONE_BY_ONE]),
    Contestant("persistent", persistent, [ONE_BY_ONE]),
    Contestant("isend", immediate, [ONE_BY_ONE]),
    NATIVE,
)


def contestants(
    text: str, aggregates: Sequence[int], python: bool = False
) -> list[Contestant]:
    """Local. Those that ``--comm`` means, the single message first.

    ``all``: the mechanisms of the paper and every method of ours with every aggregation; ``auto``
    is no method of its own, but can be asked for. ``python``: ours count in Python as well, beside
    the compiled counter. :class:`CommandError` for an unknown name.
    """
    known = {each.method: [each] for each in _OTHERS}
    for method in partitioned_methods():
        known[method] = _ours(method, aggregates, python)
    asked = list(known) if text == EVERY else [name.strip() for name in text.split(",")]
    known[AUTO] = _ours(AUTO, aggregates, python)
    for name in asked:
        if name not in known:
            names = ", ".join(known)
            raise CommandError(f"no method {name!r}; the methods are {names}, or {EVERY}")
    return [each for name in dict.fromkeys([SINGLE.method, *asked]) for each in known[name]]


def _ours(method: str, aggregates: Sequence[int], python: bool) -> list[Contestant]:
    """Local. With ``python`` the largest groups are counted in Python as well, if C is there."""
    found = [
        Contestant(method, ours(method, size), [ONE_BY_ONE, BULK], size, multiple=False)
        for size in dict.fromkeys(aggregates)
    ]
    if python and COMPILED and method not in NOT_COUNTED:
        most = max(aggregates)
        make = ours(method, most, compiled=False)
        found.append(Contestant(method, make, [ONE_BY_ONE], most, multiple=False, python=True))
    return found


def entries(field: Sequence[Contestant]) -> list[Entry]:
    """Local. Every contestant with each of its ways of marking."""
    return [Entry(each, marking) for each in field for marking in each.markings]
