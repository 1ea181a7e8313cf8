"""Which local product: measured on all ranks, when a matrix is made, or recalled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import agreed
from onesided.collectives.agreement import largest
from onesided.collectives.tuning.decisions import Cost, Record, learn, recall, size
from onesided.sparse.halo import Halo
from onesided.sparse.kernels.registry import KERNELS, product
from onesided.sparse.kernels.scipy_calls import Csr
from onesided.sparse.product import Product

_LONG = 4e-3  # seconds of a product that needs no more than one look
_GLANCES = 2  # by which a shorter one is seen to be worth more
_CLOSE = 0.25  # if it is not slower than the best by more than this part
_ROUNDS = 3  # in which two candidates are then timed in turn
_SECONDS = 0.03  # that such a comparison may take, about
_MOST_CALLS = 20  # in a row


@dataclass(frozen=True)
class Choice:
    """The name of a kernel, and the product made of it."""

    kernel: str
    run: Product


class Contest:
    """Makes the product of the rows of one rank over [owned | ghost]; the same on all ranks."""

    def __init__(self, comm: MPI.Intracomm, rows: Csr, halo: Halo) -> None:
        """Local."""
        self._comm, self._rows = comm, rows
        self._x = np.ones(rows.n_own, rows.data.dtype)
        self._y = np.empty(len(rows), rows.data.dtype)
        self._halo = halo

    def choose(self, kernels: list[str]) -> Choice:
        """Collective. The fastest on the slowest rank; a name alone is taken as it is.

        What has been measured for such rows is recalled. Two are in memory at a time. ``kernels``
        are this rank's; those are tried that all ranks have and that suit the rows of any.
        """
        if len(kernels) > 1:
            kernels = [name for name in kernels if KERNELS[name].works(self._rows)]
        suited = [name for name in kernels if KERNELS[name].suits(self._rows)]
        flags = [[name not in kernels, name in suited] for name in KERNELS]
        sizes = self._sizes()
        most = largest(self._comm, None, "kernels", [*np.ravel(flags).tolist(), *sizes])
        most, sizes = most[: -len(sizes)], most[-len(sizes) :]
        shared = {name for name, lacks in zip(KERNELS, most[::2], strict=True) if not lacks}
        wanted = {name for name, suits in zip(KERNELS, most[1::2], strict=True) if suits}
        names = [name for name in kernels if name in (shared & wanted or shared)]
        if len(names) == 1:
            return Choice(names[0], self._made(names)[0])
        situation = self._situation(sizes)
        known = recall(self._comm, situation)
        if known is not None and known.covers(names):
            best = known.ranking(names)[0]
            return Choice(best, self._made([best])[0])
        champion, challenger = self._made(names[:2])
        best, least, costs = names[0], 0.0, {}
        for name in names[1:]:
            if name != names[1]:
                (challenger,) = self._made([name])
            runs = self._call(champion), self._call(challenger)
            if not least:
                least, seen = self._glance(runs)
            else:
                (seen,) = self._glance(runs[1:])
            if least < _LONG and seen < (1.0 + _CLOSE) * least:
                least, seen = self._in_turns(*runs, least)
            costs[best], costs[name] = Cost(0.0, least), Cost(0.0, seen)
            if seen < least:
                best, champion, least = name, challenger, seen
        learn(self._comm, situation, Record(costs, {}))
        return Choice(best, champion)

    def _sizes(self) -> list[int]:
        """Local. Rows, entries and ghosts, and by how many eighths the lengths of rows spread."""
        rows, lengths = self._rows, np.diff(self._rows.indptr)
        spread = float(lengths.std() / max(lengths.mean(), 1.0)) if len(lengths) else 0.0
        return [len(rows), len(rows.data), rows.n_cols - rows.n_own, round(8 * spread)]

    def _situation(self, most: list[int]) -> str:
        """Local. What rows like these are called, from the largest sizes of any rank."""
        rows = self._rows
        return (
            f"sparse product: {self._comm.size} ranks; {size(most[0])} rows, {size(most[1])} "
            f"entries of {rows.data.dtype}, {rows.indices.dtype}; {size(most[2])} ghosts; lengths "
            f"spread by {most[3] / 8:g}"
        )

    def _call(self, product: Product) -> Callable[[], object]:
        return partial(product, self._halo, self._x, self._y)

    def _made(self, names: list[str]) -> list[Product]:
        """Collective. One rank without memory is an error on all."""
        with agreed(self._comm):
            return [product(name, self._rows) for name in names]

    def _glance(self, calls: Sequence[Callable[[], object]]) -> list[float]:
        """Collective. Seconds of calls that are not the first, by the slowest rank."""
        firsts = self._slowest(np.array([_seconds(call, 1) for call in calls]))
        times = np.full((len(calls), _GLANCES), np.inf)
        for seconds, call, first in zip(times, calls, firsts, strict=True):
            for look in range(_GLANCES if first < _LONG else 1):
                seconds[look] = _seconds(call, 1)
        found: list[float] = self._slowest(times).min(axis=1).tolist()
        return found

    def _in_turns(
        self, one: Callable[[], object], other: Callable[[], object], seconds: float
    ) -> tuple[float, float]:
        """Collective. Seconds of two calls that take turns."""
        count = int(np.clip(_SECONDS / (2 * _ROUNDS) / max(seconds, 1e-9), 1, _MOST_CALLS))
        samples = [[_seconds(call, count) for call in (one, other)] for _ in range(_ROUNDS)]
        medians = np.median(self._slowest(np.array(samples)), axis=0) / count
        return float(medians[0]), float(medians[1])

    def _slowest(self, times: NDArray[Any]) -> NDArray[Any]:
        self._comm.Allreduce(MPI.IN_PLACE, times, op=MPI.MAX)
        return times


def _seconds(call: Callable[[], object], count: int) -> float:
    began = perf_counter()
    for _ in range(count):
        call()
    return perf_counter() - began
