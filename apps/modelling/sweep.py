"""The predictions of a sweep over numbers of ranks and sizes, and who is the fastest where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.apps.cli.report import byte_count, duration
from onesided.collectives.modelling.exchanges import contenders, predict, predict_all
from onesided.collectives.modelling.parameters import Parameters
from onesided.collectives.modelling.traffic import Traffic, uniform

#: Places along each side of the map.
FINE = 120
#: How far it reaches to both sides of a single number.
WIDE = 16.0
#: Behind a prediction that is a guess.
GUESS = " *"


@dataclass(frozen=True)
class Point:
    """One exchange: its size, and the predicted seconds by method.

    ``contenders`` are the methods that may be the fastest, given the error of the model;
    ``extrapolated`` tells that the exchange lies far beyond what was measured.
    """

    ranks: int
    nbytes: float
    block_bytes: float
    seconds: dict[str, float]
    contenders: Sequence[str]
    extrapolated: bool

    @property
    def fastest(self) -> str:
        """Local. The method of the least time; others may be as fast (``contenders``)."""
        return self.contenders[0]

    def record(self) -> dict[str, Any]:
        """Local. For JSON."""
        return {
            "ranks": self.ranks,
            "bytes": self.nbytes,
            "block_bytes": self.block_bytes,
            "fastest": self.fastest,
            "contenders": list(self.contenders),
            "extrapolated": self.extrapolated,
            "seconds": self.seconds,
        }

    def cells(self) -> list[str]:
        """Local. For the table."""
        times = [duration(seconds) for seconds in self.seconds.values()]
        others = len(self.contenders) - 1
        told = f"{self.fastest} +{others}" if others else self.fastest
        told += GUESS if self.extrapolated else ""
        return [f"{self.ranks:,}", byte_count(round(self.nbytes)), *times, told]


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
                traffic = self.traffic(ranks, size)
                seconds = predict(traffic, self.parameters, self.methods)
                first = contenders(seconds, self.parameters.error)
                guess = bool(self.parameters.extrapolated(traffic))
                found.append(Point(ranks, block * ranks, block, seconds, first, guess))
        return found

    def regions(self, counts: Sequence[int], sizes: Sequence[int]) -> Regions:
        """Local. The fastest method on a fine grid between the least and the most of both."""
        ranks = np.unique(np.geomspace(*_range(counts), FINE).round())
        nbytes = np.geomspace(*_range(sizes), FINE)
        traffic = self.traffic(ranks[:, None], nbytes[None, :])
        times = predict_all(traffic, self.parameters, self.methods)
        shape = (ranks.size, nbytes.size)
        stack = np.stack([np.broadcast_to(each, shape) for each in times.values()])
        near = stack <= (1.0 + self.parameters.error) * stack.min(axis=0)
        guess = np.broadcast_to(self.parameters.extrapolated(traffic), shape)
        undecided = near.sum(axis=0) > 1
        return Regions(ranks, nbytes, tuple(times), stack.argmin(axis=0), undecided, guess)


def _range(numbers: Sequence[int]) -> tuple[float, float]:
    """Local. From the least to the most; a single number lies in the middle."""
    least, most = min(numbers), max(numbers)
    return (max(least / WIDE, 1.0), most * WIDE) if least == most else (least, most)


@dataclass(frozen=True)
class Regions:
    """``winner[i, j]`` is the number of the fastest of ``methods`` for ranks i and bytes j.

    ``undecided[i, j]``: another one is slower by less than the error of the model;
    ``extrapolated[i, j]``: that is far beyond what was measured.
    """

    ranks: NDArray[np.float64]
    nbytes: NDArray[np.float64]
    methods: tuple[str, ...]
    winner: NDArray[np.intp]
    undecided: NDArray[np.bool_]
    extrapolated: NDArray[np.bool_]

    def shares(self) -> dict[str, float]:
        """Local. The share of the map in which a method is the fastest, where it is anywhere."""
        counts = np.bincount(self.winner.ravel(), minlength=len(self.methods))
        return {
            method: float(count / self.winner.size)
            for method, count in zip(self.methods, counts, strict=True)
            if count
        }
