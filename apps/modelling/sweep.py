"""The predictions of a sweep over numbers of ranks and sizes, and who is the fastest where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.apps.report import byte_count, duration
from onesided.collectives.modelling.exchanges import predict, predict_all
from onesided.collectives.modelling.parameters import Parameters
from onesided.collectives.modelling.traffic import Traffic, uniform

#: Places along each side of the map.
FINE = 120
#: How far it reaches to both sides of a single number.
WIDE = 16.0


@dataclass(frozen=True)
class Point:
    """One exchange: its size, and the predicted seconds by method."""

    ranks: int
    nbytes: float
    block_bytes: float
    seconds: dict[str, float]

    @property
    def fastest(self) -> str:
        """Local. The method of the least time, the first one of equals."""
        return min(self.seconds, key=self.seconds.__getitem__)

    def record(self) -> dict[str, Any]:
        """Local. For JSON."""
        return {
            "ranks": self.ranks,
            "bytes": self.nbytes,
            "block_bytes": self.block_bytes,
            "fastest": self.fastest,
            "seconds": self.seconds,
        }

    def cells(self) -> list[str]:
        """Local. For the table."""
        times = [duration(seconds) for seconds in self.seconds.values()]
        return [f"{self.ranks:,}", byte_count(round(self.nbytes)), *times, self.fastest]


@dataclass(frozen=True)
class Sweep:
    """Uniform exchanges on nodes of ``per_node`` ranks; ``blocks``: sizes are those of a block."""

    parameters: Parameters
    methods: Sequence[str]
    per_node: int
    blocks: bool

    def traffic(self, ranks: Any, sizes: Any) -> Traffic:
        """Local. Numbers, or arrays that broadcast."""
        block = sizes if self.blocks else np.asarray(sizes, float) / ranks
        return uniform(ranks, self.per_node, block)

    def points(self, counts: Sequence[int], sizes: Sequence[int]) -> list[Point]:
        """Local. A prediction for every number of ranks and size."""
        found = []
        for ranks in counts:
            for size in sizes:
                block = float(size) if self.blocks else size / ranks
                seconds = predict(self.traffic(ranks, size), self.parameters, self.methods)
                found.append(Point(ranks, block * ranks, block, seconds))
        return found

    def regions(self, counts: Sequence[int], sizes: Sequence[int]) -> Regions:
        """Local. The fastest method on a fine grid between the least and the most of both."""
        ranks = np.unique(np.geomspace(*_range(counts), FINE).round())
        nbytes = np.geomspace(*_range(sizes), FINE)
        times = predict_all(
            self.traffic(ranks[:, None], nbytes[None, :]), self.parameters, self.methods
        )
        shape = (ranks.size, nbytes.size)
        stack = np.stack([np.broadcast_to(each, shape) for each in times.values()])
        return Regions(ranks, nbytes, tuple(times), stack.argmin(axis=0))


def _range(numbers: Sequence[int]) -> tuple[float, float]:
    """Local. From the least to the most; a single number lies in the middle."""
    least, most = min(numbers), max(numbers)
    return (max(least / WIDE, 1.0), most * WIDE) if least == most else (least, most)


@dataclass(frozen=True)
class Regions:
    """``winner[i, j]`` is the number of the fastest of ``methods`` for ranks i and bytes j."""

    ranks: NDArray[np.float64]
    nbytes: NDArray[np.float64]
    methods: tuple[str, ...]
    winner: NDArray[np.intp]

    def shares(self) -> dict[str, float]:
        """Local. The share of the map in which a method is the fastest, where it is anywhere."""
        counts = np.bincount(self.winner.ravel(), minlength=len(self.methods))
        return {
            method: float(count / self.winner.size)
            for method, count in zip(self.methods, counts, strict=True)
            if count
        }
