"""The model beside measured rounds of the methods themselves, on all ranks of the job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.race import Contestant, race, repeats, unchecked
from onesided.apps.bench.selection import hints, prepare, release
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import Row, byte_count
from onesided.apps.cli.statistics import Interval
from onesided.apps.modelling.measuring import quick, round_of
from onesided.collectives import Alltoallv_init, Request
from onesided.collectives.modelling.exchanges import contenders, predict
from onesided.collectives.modelling.parameters import Parameters
from onesided.collectives.modelling.traffic import of_matrix

ITEM = 8  # bytes of an element
SEED = 1
#: Of an irregular exchange: the share of the pairs that have something for each other.
DENSITY = 0.4

#: Elements that rank i sends to rank j, where a rank sends some ``count`` in all.
Counts = NDArray[np.int64]


def _uniform(count: float, nodes: Sequence[int]) -> Counts:
    """A block for every rank, itself included."""
    return np.full((len(nodes), len(nodes)), max(1, round(count / len(nodes))), np.int64)


def _irregular(count: float, nodes: Sequence[int]) -> Counts:
    """Some pairs, each with a size of its own; one at least, and nobody sends to itself."""
    random, ranks = np.random.default_rng(SEED), len(nodes)
    there = (random.random((ranks, ranks)) < DENSITY) & ~np.eye(ranks, dtype=bool)
    there[0, 1] = True
    sizes = there * random.standard_exponential(there.shape)
    return np.where(there, np.ceil(sizes * count / sizes.sum(axis=1).max()), 0).astype(np.int64)


def _pairs(count: float, nodes: Sequence[int]) -> Counts:
    """All of it to one rank: the one that has the same place on the next node."""
    members = [[rank for rank, node in enumerate(nodes) if node == each] for each in set(nodes)]
    members.sort()
    found = np.zeros((len(nodes), len(nodes)), np.int64)
    for number, mine in enumerate(members):
        theirs = members[(number + 1) % len(members)]
        for place, rank in enumerate(mine):
            shift = int(len(members) == 1)  # alone on its node it goes to the next rank
            found[rank, theirs[(place + shift) % len(theirs)]] += max(1, round(count))
    return found


#: By the name that ``--patterns`` takes.
PATTERNS: Mapping[str, Callable[[float, Sequence[int]], Counts]] = {
    "uniform": _uniform,
    "irregular": _irregular,
    "pairs": _pairs,
}


@dataclass
class Outcome:
    """The rows of a check, and for every method the sizes of its relative errors.

    ``choices``: for every exchange the methods that may be the fastest by the model, and the one
    that was.
    """

    rows: list[Row]
    errors: dict[str, list[float]]
    choices: list[tuple[Sequence[str], str]] = field(default_factory=list)

    def medians(self) -> dict[str, Interval]:
        """Local. The median error of every method that was timed."""
        return {method: Interval.of(errors) for method, errors in self.errors.items() if errors}

    def decided(self) -> tuple[int, int]:
        """Local. Exchanges of which the model says which method is the fastest, and is right."""
        single = [(names[0], seen) for names, seen in self.choices if len(names) == 1]
        return len(single), sum(name == seen for name, seen in single)


def check(
    comm: MPI.Intracomm,
    options: Options,
    names: Sequence[str],
    nodes: Sequence[int],
    parameters: Parameters,
) -> Outcome:
    """Collective. Exchanges of every pattern and size, predicted and timed."""
    outcome = Outcome([], {name: [] for name in names})
    points = list(product(dict.fromkeys(options.patterns), sorted(set(options.sizes))))
    info, seconds = hints(options), options.seconds / len(points)
    why = unchecked("the bytes do not matter to the model, and tests look at them")
    for pattern, size in points:
        table = PATTERNS[pattern](size / ITEM, nodes)
        counts = table[comm.rank].tolist()
        blocks = [np.arange(sum(counts), dtype=np.float64), counts]

        def make(method: str, blocks: Sequence[Any] = blocks) -> Request:
            return Alltoallv_init(comm, blocks, None, method=method, info=info)

        candidates = prepare(comm, names, make, Request.Free)
        calls = {method: round_of(request) for method, request in candidates.made.items()}
        contestants = [
            Contestant(name, call, why, repeats(comm, call)) for name, call in calls.items()
        ]
        timed = race(comm, contestants, iterations=options.iterations, seconds=seconds).times
        release(comm, candidates, Request.Free)
        traffic, nbytes = of_matrix(table * ITEM, nodes), int(table.sum(axis=1).max()) * ITEM
        expected = predict(traffic, parameters, names)
        seen = {name: quick(times) for name, times in timed.items()}
        among = contenders({name: expected[name] for name in timed}, parameters.error)
        outcome.choices.append((among, min(seen, key=seen.__getitem__)))
        for each in candidates:
            name = each.method
            row = Row({"pattern": pattern, "bytes": byte_count(nbytes), "method": name})
            if name in timed:
                error = expected[name] / seen[name] - 1.0
                outcome.errors[name].append(abs(error))
                values = {"predicted us": expected[name] * 1e6, "error %": 100 * error}
                row = replace(row, times=timed[name], nbytes=nbytes, values=values)
            outcome.rows.append(replace(row, reason=each.reason))
    return outcome
