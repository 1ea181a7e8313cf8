"""The bandwidth of memory, as STREAM measures it: simple loops over long arrays, on all ranks.

All ranks run at the same time, because they share the memory of a node. The arrays of a loop have
together as many bytes as what they are compared with, so that they are in the same caches, if they
are in caches at all; there is a limit, beyond which no cache goes. As in STREAM, bytes are those
that a loop reads and writes by its text.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from mpi4py import MPI

from onesided.apps.timing import STEADY, Subject, measure, repeats

ROUNDS = 8
SECONDS = 1.0  # that the probe takes at most, about
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
        """Local. That of the fastest loop, which no other program is supposed to exceed."""
        return max(self.loops.values())


def bandwidth(comm: MPI.Comm, nbytes: int) -> Bandwidth:
    """Collective. Copy (a = b), add (a = b + c) and dot (b . c), with ``nbytes`` on each rank."""
    nbytes = int(comm.allreduce(min(max(nbytes, LEAST_BYTES), MOST_BYTES), op=MPI.MIN))
    memory = np.full(nbytes // ITEM, 1.0)
    half, third = len(memory) // 2, len(memory) // 3
    pair = [memory[part * half : (part + 1) * half] for part in range(2)]
    three = [memory[part * third : (part + 1) * third] for part in range(3)]
    loops = {
        "copy": partial(np.copyto, pair[0], pair[1]),
        "add": partial(np.add, three[1], three[2], three[0]),
        "dot": partial(np.vdot, pair[0], pair[1]),
    }
    subjects = [Subject(name, call, repeats(comm, call, STEADY)) for name, call in loops.items()]
    moved = [arrays[0].nbytes * len(arrays) for arrays in (pair, three, pair)]
    times = measure(comm, subjects, iterations=ROUNDS, seconds=SECONDS)
    speeds = {
        subject.name: size / min(taken)
        for subject, size, taken in zip(subjects, moved, times, strict=True)
    }
    return Bandwidth(speeds, nbytes)
