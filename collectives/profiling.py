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
_running: list[Profile] = []  # those that are being made


def know(request: Any) -> None:
    """Local. There is such a request; every initialization says so."""
    _live.add(request)


def known() -> list[Any]:
    """Local. All requests of this rank that have been made to their end, and not been freed."""
    live: Any = _live  # its references, copied in one piece: other threads make and free requests
    requests = [request for each in live.data.copy() if (request := each()) is not None]
    return [request for request in requests if request._made]


def forget(request: Any) -> None:
    """Local. The request ends: its numbers stay in the profiles that are being made."""
    if request in _live:
        _live.discard(request)
        for each in list(_running):
            each._add(request)


def _numbers(request: Any) -> Counts:
    """What a request has counted from its beginning on."""
    numbers: dict[str, Any] = {
        "rounds": int(request.rounds), "in_start": request.in_start,
        "in_wait": request.in_wait, "waiting": request.waiting, "by_core": int(request.helped),
        "by_python": request.helped_by_python, "by_others": request.driven,
    }  # fmt: skip
    return Counter(numbers)


class Profile:
    """The table of a profile; ``rows`` is empty until it has been made.

    A row is a dictionary: ``what``, ``label``, how many ``ranks`` have it, and the most
    ``requests`` of a rank; for each of ``rounds``, ``nbytes``, ``in_start``, ``in_wait`` and
    ``waiting`` the ``max`` over ranks and its ``ratio`` to the smallest; and ``helped``, how often
    rounds were, on all ranks together, by ``core``, ``python`` and ``others``.

    Examples
    --------
    >>> with profile(comm) as times:
    ...     pass
    >>> times.rows
    []
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._mine: dict[tuple[str, str], Counts] = {}
        self._before: weakref.WeakKeyDictionary[Any, Counts] = weakref.WeakKeyDictionary()

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

    def _begin(self) -> None:
        """Local. What requests have counted up to now is none of this profile's."""
        for request in known():
            self._before[request] = _numbers(request)
        _running.append(self)
        profile_rounds(True)

    def _add(self, request: Any) -> None:
        """Local. Add what a request has counted since then to its row."""
        (what, sent), counts = request.described(), _numbers(request)
        counts.subtract(self._before.get(request, Counter()))
        counts.update({"requests": 1, "nbytes": counts["rounds"] * sent})
        self._mine.setdefault((what, request.label), Counter()).update(counts)

    def _end(self) -> None:
        """Local. Add what the requests that are left have counted; from now on nothing is added."""
        if self in _running:
            _running.remove(self)
        profile_rounds(bool(_running))
        for request in known():
            self._add(request)

    def gather(self, comm: MPI.Intracomm) -> None:
        """Collective. Put the rows of all ranks together, of requests that had rounds, or waited
        for one that had begun before."""
        everyone = comm.allgather({kind: each for kind, each in self._mine.items()
                                   if each["rounds"] or each["in_wait"]})
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
    """Collective. Profile the rounds that start in the block, of requests made before or in it.

    Times are those spent in the block, also on rounds that have started before it.

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
    made = Profile()
    made._begin()
    try:
        yield made
    finally:
        made._end()
    made.gather(comm)


def wanted() -> bool:
    """Local. Whether the environment asks for a profile of the whole program."""
    return os.environ.get(VARIABLE, "").strip().lower() not in NO


def tell() -> None:
    """Collective over ``MPI.COMM_WORLD``, before MPI ends: the table, or the file, by rank 0, if
    there were any rounds."""
    where = os.environ.get(VARIABLE, "").strip()
    _whole._end()
    _whole.gather(MPI.COMM_WORLD)
    if _whole.rows and MPI.COMM_WORLD.rank == 0:
        try:
            if where.endswith(".json"):
                with open(where, "w", encoding="utf-8") as file:
                    file.write(_whole.as_json() + "\n")
            else:
                print(_whole, file=sys.stderr, flush=True)
        except Exception as error:  # the other ranks go on to what they end together
            with contextlib.suppress(Exception):
                print(f"onesided: no profile was written: {error}", file=sys.stderr, flush=True)


#: The one that the environment asks for.
_whole = Profile()
if wanted():
    _whole._begin()
