"""Whole programs on up to hundreds of thousands of ranks: a product, CG, an FFT, step by step.

Every rank has a clock, all of them in one array. A rank computes, for a time that varies a little
from rank to rank, and a round of an exchange is over for it when the slowest of those it hears from
has begun, and the model's time of a round has passed; a method that synchronizes all ranks waits
for all. So what the formulas of a single round leave out, that ranks wait for each other, comes of
itself. What an iteration takes is divided, without a rest, into parts:

- *compute*: the rank's own work;
- *latency*: rounds as they would be with messages of no bytes, as far as they are waited for;
- *bandwidth*: what the bytes add to that;
- *synchronization*: waiting for ranks that are late, the barriers of a method, and reductions.

The largest part is what limits. The product (:func:`product`) and CG (:func:`cg`) are those of a
seven-point stencil on a cube, with a block for each rank; the round travels during the product of
the own columns, as in :mod:`onesided.sparse`. CG has two reductions in an iteration, of as many
steps as a barrier. The transform (:func:`fft`) is forward, of a complex cube in pencils.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from onesided.apps.cli.report import duration
from onesided.apps.modelling.sweep import GUESS
from onesided.apps.report.chart import save
from onesided.apps.report.figure import Lines
from onesided.apps.report.quantities import PLAIN, RANKS, TIME
from onesided.collectives.errors import PatternError
from onesided.collectives.modelling.exchanges import Costs, contenders, formulas, predict_all
from onesided.collectives.modelling.parameters import Parameters
from onesided.collectives.modelling.traffic import Traffic
from onesided.pencilfft.decomposition import balanced

Floats = NDArray[np.float64]
PARTS = ("compute", "latency", "bandwidth", "synchronization")
REAL, COMPLEX = 8, 16  # bytes
#: Bytes that a row of the product moves: seven values, their columns, x and y; CG's vectors beside.
ROW_BYTES, VECTOR_BYTES = 7 * (REAL + 4) + 2 * REAL, 10 * REAL
REDUCTIONS = 2  # of an iteration of CG
ITERATIONS, WARM_UP = 12, 4
SEED = 1


@dataclass(frozen=True)
class Core:
    """What a rank computes with: bytes of memory and operations in a second, and by what share of
    its time a piece of work is longer, on average, because of what else the machine does."""

    memory: float = 4e9
    operations: float = 4e9
    noise: float = 0.01

    def __post_init__(self) -> None:
        if not (self.memory > 0 and self.operations > 0 and 0 <= self.noise < np.inf):
            raise PatternError(f"{self} computes nothing")


@dataclass(frozen=True)
class Machine:
    """So many ranks, ``per_node`` of them on each node, one after the other."""

    parameters: Parameters
    core: Core
    ranks: int
    per_node: int

    @property
    def nodes(self) -> int:
        """Local."""
        return -(-self.ranks // self.per_node)


@dataclass(frozen=True)
class Forecast:
    """Seconds of an iteration, and of its :data:`PARTS`, which are all of it.

    ``extrapolated``: some of it is far beyond what was measured.
    """

    seconds: float
    parts: Mapping[str, float]
    extrapolated: bool

    @property
    def limit(self) -> str:
        """Local. The largest part."""
        return max(self.parts, key=self.parts.__getitem__)


class Clocks:
    """The time of every rank, and where it went."""

    def __init__(self, machine: Machine) -> None:
        self.now: Floats = np.zeros(machine.ranks)
        self._machine = machine
        self._random = np.random.default_rng(SEED)
        self._spent = dict.fromkeys(PARTS, 0.0)
        self._begin = 0.0

    def work(self, seconds: Any) -> Floats:
        """Local. The time that a piece of work takes each rank; it is not spent yet."""
        noise = self._machine.core.noise
        late = noise * self._random.standard_exponential(self.now.size) if noise else 0.0
        return np.broadcast_to(np.asarray(seconds, float) * (1.0 + late), self.now.shape)

    def compute(self, seconds: Floats) -> None:
        """Local. Spend it."""
        self.now = self.now + seconds
        self._spent["compute"] += float(seconds.mean())

    def exchange(self, began: Floats, met: Floats, round_: Round) -> None:
        """Local. Wait for a round in which a rank has been since ``began``, and the last one that
        it hears from since ``met``."""
        over = np.maximum(self.now, met + round_.seconds)
        waited = over - self.now
        travelled = np.minimum(waited, round_.seconds)
        share = travelled / np.maximum(round_.seconds, 1e-300)
        for name, seconds in round_.parts().items():
            self._spent[name] += float(np.mean(share * seconds))
        self._spent["synchronization"] += float(np.mean(waited - travelled))
        self.now = over

    def reduce(self, seconds: float) -> None:
        """Local. A reduction over all ranks: the last one decides when it is over."""
        over = self.now.max() + seconds
        self._spent["synchronization"] += float(np.mean(over - self.now))
        self.now = np.full_like(self.now, over)

    def restart(self) -> None:
        """Local. What was until now does not count."""
        self._begin = float(self.now.mean())
        self._spent = dict.fromkeys(PARTS, 0.0)

    def forecast(self, iterations: int, extrapolated: bool) -> Forecast:
        """Local. Means over the ranks and so many iterations."""
        parts = {name: seconds / iterations for name, seconds in self._spent.items()}
        whole = (float(self.now.mean()) - self._begin) / iterations
        return Forecast(whole, parts, extrapolated)


@dataclass(frozen=True)
class Round:
    """A round of one method: seconds of each rank, without its bytes, and without its messages."""

    seconds: Floats
    empty: Floats
    alone: Floats
    everyone: bool

    @classmethod
    def of(cls, machine: Machine, traffic: Traffic, method: str) -> Round:
        """Local. By the formula of the method, which may say that a rank meets everyone."""
        none = np.zeros(np.shape(traffic.near_messages))
        empty = _changed(traffic, near_bytes=none, far_bytes=none, own_bytes=none, link_bytes=none)
        nobody = _changed(empty, near_messages=none, far_messages=none, link_messages=none)

        def seconds(each: Traffic) -> Floats:
            times = predict_all(each, machine.parameters, [method])[method]
            return np.asarray(times, float)

        software = machine.parameters.alone(method, 0.0)
        whole, without = seconds(traffic), seconds(empty)
        barriers = np.maximum(seconds(nobody) - software, 0.0)
        return cls(whole, np.minimum(without, whole), np.minimum(barriers, without),
                   formulas()[method].meets_everyone)  # fmt: skip

    def parts(self) -> dict[str, Floats]:
        """Local. What the seconds are made of."""
        return {
            "latency": self.empty - self.alone,
            "bandwidth": self.seconds - self.empty,
            "synchronization": self.alone,
        }


def _changed(traffic: Traffic, **numbers: Any) -> Traffic:
    return Traffic(**{**vars(traffic), **numbers})


# A stencil on a cube: blocks, neighbors on the node and off it.


@dataclass(frozen=True)
class Stencil:
    """The blocks of a cube of so many points; ``neighbors[rank, side]``, itself where is none."""

    points: float
    neighbors: NDArray[np.int64]
    traffic: Traffic
    inner: float

    @classmethod
    def of(cls, machine: Machine, points: float) -> Stencil:
        """Local. A block for every rank, as near to a cube as the number of ranks allows."""
        dims = balanced(machine.ranks, (0, 0, 0))
        sides = np.cbrt(points) / np.array(dims)
        if sides.min() < 1.0:
            raise PatternError(f"{points:.3g} points for {machine.ranks} ranks")
        ranks = np.arange(machine.ranks)
        place = np.stack(np.unravel_index(ranks, dims), axis=1)
        neighbors = np.empty((machine.ranks, 6), np.int64)
        nbytes = np.empty(6)
        for axis in range(3):
            for side, step in enumerate((-1, 1)):
                there = place.copy()
                there[:, axis] += step
                inside = (there[:, axis] >= 0) & (there[:, axis] < dims[axis])
                there = np.where(inside[:, None], there, place)
                neighbors[:, 2 * axis + side] = np.ravel_multi_index(tuple(there.T), dims)
                nbytes[2 * axis + side] = REAL * np.prod(np.delete(sides, axis))
        own = ranks[:, None]
        there, near = neighbors != own, neighbors // machine.per_node == own // machine.per_node
        far_messages, far_bytes = (there & ~near).sum(axis=1), (there & ~near) @ nbytes
        node = ranks // machine.per_node
        traffic = Traffic(
            ranks=machine.ranks,
            nodes=machine.nodes,
            near_messages=(there & near).sum(axis=1).astype(float),
            near_bytes=(there & near) @ nbytes,
            far_messages=far_messages.astype(float),
            far_bytes=far_bytes,
            own_bytes=np.zeros(machine.ranks),
            link_messages=np.bincount(node, far_messages)[node],
            link_bytes=np.bincount(node, far_bytes)[node],
        )
        rows = points / machine.ranks
        inner = float(np.prod(np.maximum(sides - 2.0, 0.0))) / rows
        return cls(rows, neighbors, traffic, inner)


def _multiply(clocks: Clocks, stencil: Stencil, round_: Round, seconds: float) -> None:
    """One product: the rows without ghosts while the round is under way, then the others."""
    began = clocks.now
    met = np.full_like(began, began.max()) if round_.everyone else began
    if not round_.everyone:
        met = np.maximum(began, began[stencil.neighbors].max(axis=1))
    clocks.compute(clocks.work(stencil.inner * seconds))
    clocks.exchange(began, met, round_)
    clocks.compute(clocks.work((1.0 - stencil.inner) * seconds))


def product(machine: Machine, points: float, method: str) -> Forecast:
    """Local. Products of the matrix of the stencil, one after the other."""
    stencil = Stencil.of(machine, points)
    step = partial(
        _multiply, stencil=stencil, round_=Round.of(machine, stencil.traffic, method),
        seconds=stencil.points * ROW_BYTES / machine.core.memory,
    )  # fmt: skip
    return _followed(machine, step, stencil.traffic)


def cg(machine: Machine, points: float, method: str) -> Forecast:
    """Local. Iterations of conjugate gradients with that matrix."""
    stencil = Stencil.of(machine, points)
    round_ = Round.of(machine, stencil.traffic, method)
    steps = float(np.max(Costs(stencil.traffic, machine.parameters).barrier()))
    multiplying = stencil.points * ROW_BYTES / machine.core.memory
    vectors = stencil.points * VECTOR_BYTES / machine.core.memory / REDUCTIONS

    def step(clocks: Clocks) -> None:
        _multiply(clocks, stencil, round_, multiplying)
        for _ in range(REDUCTIONS):
            clocks.compute(clocks.work(vectors))
            clocks.reduce(steps if machine.ranks > 1 else 0.0)

    return _followed(machine, step, stencil.traffic)


def _followed(machine: Machine, step: Callable[[Clocks], None], *traffics: Traffic) -> Forecast:
    clocks = Clocks(machine)
    for number in range(ITERATIONS):
        if number == WARM_UP:
            clocks.restart()
        step(clocks)
    guess = any(
        bool(np.any(machine.parameters.extrapolated(_changed(each, ranks=machine.ranks))))
        for each in traffics
    )
    return clocks.forecast(ITERATIONS - WARM_UP, guess)


# A transform in pencils: rows and columns of a grid of ranks.


def transposition(machine: Machine, size: int, stride: int, nbytes: float) -> Traffic:
    """Local. All to all among ``size`` ranks, ``stride`` apart, by all such groups at once.

    ``nbytes``: what a rank has, of which it keeps its share.
    """
    together = min(size, max(1, machine.per_node // stride))
    near, far, block = together - 1.0, size - float(together), nbytes / size
    sharing = min(machine.per_node, machine.ranks)
    return Traffic(
        ranks=size,
        nodes=-(-size // together),
        near_messages=near,
        near_bytes=near * block,
        far_messages=far,
        far_bytes=far * block,
        own_bytes=block,
        link_messages=sharing * far,
        link_bytes=sharing * far * block,
    )


def fft(machine: Machine, points: float, method: str) -> Forecast:
    """Local. Forward transforms of a complex cube, one after the other."""
    columns, rows = sorted(balanced(machine.ranks, (0, 0)))
    side, own = np.cbrt(points), points / machine.ranks
    if rows > side:
        raise PatternError(f"{points:.3g} points for {machine.ranks} ranks")
    core = machine.core
    lines = 5.0 * own * np.log2(max(side, 2.0)) / core.operations
    packing = 2.0 * COMPLEX * own / core.memory
    groups = [(rows, 1), (columns, rows)]  # how many, and how far apart
    traffics = [transposition(machine, *group, COMPLEX * own) for group in groups]
    rounds = [Round.of(machine, traffic, method) for traffic in traffics]

    def step(clocks: Clocks) -> None:
        clocks.compute(clocks.work(lines))
        for axis, ((size, _), round_) in enumerate(zip(groups, rounds, strict=True)):
            if size > 1:
                clocks.compute(clocks.work(packing))
                now = clocks.now.reshape(columns, rows)
                last = now.max(axis=1 - axis, keepdims=True)
                clocks.exchange(clocks.now, np.broadcast_to(last, now.shape).ravel(), round_)
            clocks.compute(clocks.work(lines))

    return _followed(machine, step, *(t for (size, _), t in zip(groups, traffics, strict=True)
                                      if size > 1))  # fmt: skip


#: By the name that ``--program`` takes.
PROGRAMS: Mapping[str, Callable[[Machine, float, str], Forecast]] = {
    "spmv": product,
    "cg": cg,
    "fft": fft,
}


# Strong and weak scaling by every method: a table, an image, and what limits it.


@dataclass(frozen=True)
class Step:
    """A number of ranks: what an iteration takes by method, and which may be the fastest."""

    ranks: int
    points: float
    forecasts: dict[str, Forecast]
    contenders: Sequence[str]

    @property
    def fastest(self) -> Forecast:
        """Local. That of the method of the least time."""
        return self.forecasts[self.contenders[0]]

    def record(self) -> dict[str, Any]:
        """Local. For JSON."""
        return {
            "labels": {"ranks": str(self.ranks)},
            "ranks": self.ranks,
            "points": self.points,
            "fastest": self.contenders[0],
            "contenders": list(self.contenders),
            "limit": self.fastest.limit,
            "extrapolated": self.fastest.extrapolated,
            "seconds": {name: each.seconds for name, each in self.forecasts.items()},
            "parts": {name: dict(each.parts) for name, each in self.forecasts.items()},
        }


@dataclass(frozen=True)
class Scaling:
    """A program on more and more ranks: ``points`` in all, or with ``weak`` of each rank."""

    program: str
    parameters: Parameters
    core: Core
    per_node: int
    points: float
    weak: bool

    def steps(self, counts: Sequence[int], methods: Sequence[str]) -> list[Step]:
        """Local. Those numbers of ranks that have points for all ranks.

        Raises :class:`PatternError` where none has.
        """
        found, reason = [], ""
        for ranks in counts:
            machine = Machine(self.parameters, self.core, ranks, self.per_node)
            points = self.points * (ranks if self.weak else 1)
            try:
                forecasts = {
                    method: PROGRAMS[self.program](machine, points, method) for method in methods
                }
            except PatternError as error:
                reason = str(error)
                continue
            seconds = {method: each.seconds for method, each in forecasts.items()}
            first = contenders(seconds, self.parameters.error)
            found.append(Step(ranks, points, forecasts, first))
        if not found:
            raise PatternError(f"no number of ranks is possible: {reason}")
        return found

    def table(self, steps: Sequence[Step]) -> Table:
        """Local. For a person."""
        table = Table(title=self.title, title_justify="left")
        names = list(steps[0].forecasts)
        for name in ("ranks", *names):
            table.add_column(name.replace("-", "-\n"), justify="right", no_wrap=True)
        table.add_column("fastest", overflow="fold")
        table.add_column("limit", overflow="fold")
        for step in steps:
            others = len(step.contenders) - 1
            told = f"{step.contenders[0]} +{others}" if others else step.contenders[0]
            told += GUESS if step.fastest.extrapolated else ""
            share = step.fastest.parts[step.fastest.limit] / step.fastest.seconds
            times = [duration(step.forecasts[name].seconds) for name in names]
            limit = f"{step.fastest.limit} {100 * share:.0f} %"
            table.add_row(f"{step.ranks:,}", *times, told, limit)
        return table

    @property
    def title(self) -> str:
        """Local. What is shown."""
        kind = "of each rank" if self.weak else "in all"
        return (
            f"An iteration of {self.program}, {self.points:.3g} points {kind}: "
            f"{self.parameters.name}, {self.per_node} ranks per node"
        )

    def draw(self, path: str, steps: Sequence[Step]) -> None:
        """Local. The time by method, hollow where it is a guess, and the parts of the fastest."""
        methods = list(steps[0].forecasts)
        times = {m: [(s.ranks, s.forecasts[m].seconds) for s in steps] for m in methods}
        guessed = {m: {s.ranks for s in steps if s.forecasts[m].extrapolated} for m in methods}
        shares = {
            part: [(s.ranks, 100 * s.fastest.parts[part] / s.fastest.seconds) for s in steps]
            for part in PARTS
        }
        hollow = " (hollow: extrapolated)" if any(guessed.values()) else ""
        time, share = TIME.called("time of an iteration"), PLAIN.called("% of the time")
        panels = [
            Lines(f"By method{hollow}", RANKS, time, times, guessed=guessed),
            Lines("Parts of the fastest", RANKS, share, shares, palette=methods),
        ]
        save(path, self.title, panels)
