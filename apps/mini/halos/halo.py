"""What all ways of bringing ghosts up to date have in common: who sends which entries to whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import agreed
from onesided.sparse import HaloPattern


@dataclass(frozen=True)
class Need:
    """Who needs which entries of a distributed vector, and what the user told the methods.

    ``comm`` is borrowed, and has to outlive the halos that are made of this.
    """

    comm: MPI.Intracomm
    pattern: HaloPattern
    dtype: np.dtype[Any]
    info: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Neighbor:
    """A rank to exchange with: what of the packed entries it gets, and which ghosts it sends.

    """

    rank: int
    sent: slice
    ghosts: slice


def neighbors(pattern: HaloPattern) -> list[Neighbor]:
    """Local. By rank; one with nothing to send or to receive has an empty slice."""
    sent, received = _parts(pattern.send_counts), _parts(pattern.recv_counts)
    pairs = enumerate(zip(sent, received, strict=True))
    return [
        Neighbor(rank, out, ghosts)
        for rank, (out, ghosts) in pairs
        if out.stop > out.start or ghosts.stop > ghosts.start
    ]


def _parts(counts: NDArray[np.int64]) -> list[slice]:
    ends = np.cumsum(counts).tolist()
    return [slice(end - count, end) for end, count in zip(ends, counts.tolist(), strict=True)]


class Packed:
    """Collective. The entries that neighbors need, packed for all of them one after the other.

    ``MemoryError`` on every rank where one has no memory for them.
    """

    k = 1

    def __init__(self, need: Need) -> None:
        self._index = need.pattern.send_index
        with agreed(need.comm):
            self._packed: NDArray[Any] = np.zeros(len(self._index), need.dtype)

    def _pack(self, x: NDArray[Any]) -> None:
        np.take(x, self._index, out=self._packed, mode="clip")
