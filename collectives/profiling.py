"""Where the time of rounds goes, by request and label, as PETSc's ``-log_view`` tells of events.

``ONESIDED_PROFILE=1`` in the environment, on every rank, prints one table when MPI ends;
``ONESIDED_PROFILE=times.json`` writes the same numbers to that file. In a program::

    with profile(comm) as times:
        ...                       # rounds
    print(times)                  # the table, on every rank; times.rows has the numbers

A row stands for all requests of one method, call and *label* (what the program has assigned to
``request.label``). Of each number the largest over the ranks is told, and its ratio to the
smallest: 1.0 says that all ranks spend alike. Times are those inside ``Start`` and inside ``Wait``
and ``Test``; *waiting* is the part of ``Wait`` after its first look, which found something missing.
*Helped* says how often a round was moved by somebody else than its own verbs: by the compiled
core's progress thread, by Python's, or by a call for another request. While no profile is made
a round pays nothing but a look at one variable.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.collectives.program import profile_rounds

#: The environment variable, and its values that mean "no".
VARIABLE, NO = "ONESIDED_PROFILE", ("", "0", "false", "no")


#: What one rank has of a row: how often, bytes, and seconds.
Counts = Counter[str]

#: The numbers of a row that differ between ranks, and their headings in the table.
COLUMNS = {
    "in_start": "Start s", "in_wait": "Wait s", "waiting": "waiting s", "nbytes": "bytes",
    "rounds": "rounds",
}  # fmt: skip

_live: weakref.WeakSet[Any] = weakref.WeakSet()
_ended: dict[tuple[str, str], Counts] = {}  # of requests that have been freed
_depth = 0


def know(request: Any) -> None:
    """Local. There is such a request; every initialization says so."""
    _live.add(request)


def forget(request: Any) -> None:
    """Local. The request ends: its numbers stay."""
    if request in _live:
        _live.discard(request)
        if _depth:
            kind, counts = _of(request)
            _ended.setdefault(kind, Counter()).update(counts)


def _of(request: Any) -> tuple[tuple[str, str], Counts]:
    """The row of a request, and what it adds to it."""
    what, sent = request.described()
    rounds = int(request.rounds)
    numbers: dict[str, Any] = {
        "requests": 1, "rounds": rounds, "nbytes": rounds * sent, "in_start": request.in_start,
        "in_wait": request.in_wait, "waiting": request.waiting, "by_core": int(request.helped),
        "by_python": request.helped_by_python, "by_others": request.driven,
    }  # fmt: skip
    return (what, str(request.label)), Counter(numbers)


def _now() -> dict[tuple[str, str], Counts]:
    """Local. All rows of this rank, as they are now."""
    rows = {kind: counts.copy() for kind, counts in _ended.items()}
    for request in list(_live):
        kind, counts = _of(request)
        rows.setdefault(kind, Counter()).update(counts)
    return rows


def _switch(step: int) -> None:
    global _depth
    _depth += step
    profile_rounds(_depth > 0)


class Profile:
    """The table of a profile; ``rows`` is empty until it has been made.

    A row is a dictionary: ``what``, ``label``, ``ranks`` that have it, for each of requests,
    rounds, bytes and times the ``max`` over ranks and its ``ratio`` to the smallest, and how often
    rounds were helped, on all ranks together.

    Examples
    --------
    >>> with profile(comm) as times:
    ...     pass
    >>> times.rows
    []
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def __str__(self) -> str:
        head = f"{'what':34} {'label':14} {'requests':>8}"
        for title in COLUMNS.values():
            head += f" {title:>10} ratio"
        lines = [f"{head}  helped: core python others"]
        for row in self.rows:
            line = f"{row['what'][:34]:34} {row['label'][:14]:14} {row['requests']:8d}"
            for name in COLUMNS:
                cell = row[name]
                ratio = "-" if cell["ratio"] is None else f"{cell['ratio']:.1f}"
                line += f" {_short(cell['max']):>10} {ratio:>5}"
            helped = row["helped"]
            line += f"  {helped['core']:12d} {helped['python']:6d} {helped['others']:6d}"
            lines.append(line)
        return "\n".join(lines)

    def as_json(self) -> str:
        """Local. The rows as JSON."""
        return json.dumps(self.rows, indent=1)

    def gather(self, comm: MPI.Intracomm, mine: dict[tuple[str, str], Counts]) -> None:
        """Collective. Put the rows of all ranks together, of requests that had rounds."""
        everyone = comm.allgather({kind: each for kind, each in mine.items() if each["rounds"]})
        kinds = sorted({kind for rank in everyone for kind in rank})
        self.rows = [_joined(kind, [rank[kind] for rank in everyone if kind in rank])
                     for kind in kinds]


def _joined(kind: tuple[str, str], ranks: list[Counts]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "what": kind[0], "label": kind[1], "ranks": len(ranks),
        "requests": max(rank["requests"] for rank in ranks),
    }  # fmt: skip
    for name in COLUMNS:
        values = np.array([rank[name] for rank in ranks])
        least, most = values.min().item(), values.max().item()
        row[name] = {"max": most, "ratio": most / least if least else None}
    row["helped"] = {who: sum(rank[f"by_{who}"] for rank in ranks)
                     for who in ("core", "python", "others")}
    return row


def _short(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3g}"


@contextlib.contextmanager
def profile(comm: MPI.Intracomm) -> Iterator[Profile]:
    """Collective. Profile the rounds that end in the block, of requests made before or in it.

    Parameters
    ----------
    comm
        The ranks whose numbers are put together at the end of the block, if it ends well.

    Returns
    -------
    Profile
        Its ``rows`` are there after the block, on every rank; printed it is a table.

    Examples
    --------
    >>> request = Allreduce_init(comm, np.ones(1), np.zeros(1))
    >>> with profile(comm) as times:
    ...     request.Start()
    ...     received = request.Wait()
    >>> times.rows[0]["rounds"]["max"]
    1
    >>> request.Free()
    """
    made, before = Profile(), _now()
    _switch(1)
    try:
        yield made
        after = _now()
        for kind, counts in before.items():
            if kind in after:
                after[kind].subtract(counts)
                after[kind]["requests"] += counts["requests"]
    finally:
        _switch(-1)
    made.gather(comm, after)


def wanted() -> bool:
    """Local. Whether the environment asks for a profile of the whole program."""
    return os.environ.get(VARIABLE, "").strip().lower() not in NO


def tell() -> None:
    """Collective over ``MPI.COMM_WORLD``, before MPI ends: the table, or the file, by rank 0, if
    there were any rounds."""
    where = os.environ.get(VARIABLE, "").strip()
    made = Profile()
    made.gather(MPI.COMM_WORLD, _now())
    if made.rows and MPI.COMM_WORLD.rank == 0:
        try:
            if where.endswith(".json"):
                with open(where, "w", encoding="utf-8") as file:
                    file.write(made.as_json() + "\n")
            else:
                print(made, file=sys.stderr, flush=True)
        except Exception as error:  # the other ranks go on to what they end together
            with contextlib.suppress(Exception):
                print(f"onesided: no profile was written: {error}", file=sys.stderr, flush=True)


if wanted():
    _switch(1)
