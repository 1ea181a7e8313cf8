"""The bandwidth of memory, as NumPy reaches it by simple loops over long arrays, on all ranks.

The loops are those of STREAM and some that only read, as most of a product with a matrix is. One
core does not get all that its memory could give: more streams at a time get more of it, and the
product of few long rows with a vector, which is BLAS, most of what was tried. So this is a measure
of what can be expected, and nearly a bound, but no law of nature.

All ranks run at the same time, because they share the memory of a node. The arrays of a loop have
together as many bytes as what they are compared with, so that they are in the same caches, if they
are in caches at all; there is a limit, beyond which no cache goes. As in STREAM, bytes are those
that a loop reads and writes by its text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.timing import Subject, measure, repeats
from onesided.collectives import agreed

ROUNDS = 8
SECONDS = 0.5  # that the probe takes at most, about
REGION = 1e-3  # seconds that a timed region lasts at least
ROWS = 4  # that a product has, beside its vector
LEAST_BYTES, MOST_BYTES = 1 << 16, 1 << 28
ITEM = 8


@dataclass(frozen=True)
class Bandwidth:
    """Bytes per second of one rank while all are at work, by loop; the slowest rank's.

    ``nbytes`` are those of the arrays of one rank.
    """

    loops: dict[str, float]
    nbytes: int

    @property
    def best(self) -> float:
        """Local. That of the fastest loop."""
        return max(self.loops.values())

    def or_faster(self, other: Bandwidth) -> Bandwidth:
        """Local. By loop the faster of two measurements, on a machine whose clocks change."""
        pairs = ((name, max(speed, other.loops[name])) for name, speed in self.loops.items())
        return Bandwidth(dict(pairs), self.nbytes)


def bandwidth(comm: MPI.Intracomm, nbytes: int) -> Bandwidth:
    """Collective. Of all loops, with ``nbytes`` on each rank.

    ``MemoryError`` on every rank where one has not so much memory.
    """
    nbytes = int(comm.allreduce(min(max(nbytes, LEAST_BYTES), MOST_BYTES), op=MPI.MIN))
    with agreed(comm):
        loops = _loops(np.full(nbytes // ITEM, 1.0))
    subjects = [
        Subject(name, call, repeats(comm, call, REGION)) for name, (call, _) in loops.items()
    ]
    times = measure(comm, subjects, iterations=ROUNDS, seconds=SECONDS)
    entries = zip(loops.items(), times, strict=True)
    speeds = {name: moved / min(taken) for (name, (_, moved)), taken in entries}
    return Bandwidth(speeds, nbytes)


def _loops(memory: NDArray[np.float64]) -> dict[str, tuple[Callable[[], Any], int]]:
    """Local. By name what is called, and the bytes that it reads and writes."""
    first, second = _parts(memory, 2)
    a, b, c = _parts(memory, 3)
    *_, vector = _parts(memory, ROWS + 1)
    rows = memory[: ROWS * len(vector)].reshape(ROWS, -1)
    return {
        "copy": (partial(np.copyto, first, second), 2 * first.nbytes),
        "add": (partial(np.add, b, c, a), 3 * a.nbytes),
        "dot": (partial(np.vdot, first, second), 2 * first.nbytes),
        "sum": (partial(np.add.reduce, memory), memory.nbytes),
        "rows": (partial(np.dot, rows, vector, np.empty(ROWS)), rows.nbytes + vector.nbytes),
    }


def _parts(memory: NDArray[np.float64], count: int) -> list[NDArray[np.float64]]:
    """Local. So many arrays of one length."""
    length = len(memory) // count
    return [memory[part * length : (part + 1) * length] for part in range(count)]
