"""The model beside measured rounds of the methods themselves, on all ranks of the job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from mpi4py import MPI

from onesided.apps.bench.race import Contestant, race, repeats, unchecked
from onesided.apps.bench.selection import hints, prepare, release
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import Row, byte_count
from onesided.apps.modelling.measuring import quick, round_of
from onesided.collectives import Alltoallv_init, Request
from onesided.collectives.modelling.exchanges import predict
from onesided.collectives.modelling.parameters import Parameters
from onesided.collectives.modelling.traffic import of_matrix

ITEM = 8  # bytes of an element


@dataclass
class Outcome:
    """The rows of a check, and for every method the sizes of its relative errors."""

    rows: list[Row]
    errors: dict[str, list[float]]

    def medians(self) -> dict[str, float]:
        """Local. The median error of every method that was timed."""
        return {method: median(errors) for method, errors in self.errors.items() if errors}


def check(
    comm: MPI.Intracomm,
    options: Options,
    names: Sequence[str],
    nodes: Sequence[int],
    parameters: Parameters,
) -> Outcome:
    """Collective. Uniform exchanges of every size, predicted and timed."""
    outcome = Outcome([], {name: [] for name in names})
    for size in sorted(set(options.sizes)):
        _one_size(comm, options, names, nodes, parameters, size, outcome)
    return outcome


def _one_size(
    comm: MPI.Intracomm,
    options: Options,
    names: Sequence[str],
    nodes: Sequence[int],
    parameters: Parameters,
    size: int,
    outcome: Outcome,
) -> None:
    count = max(1, round(size / ITEM / comm.size))
    sent = np.arange(count * comm.size, dtype=np.float64)
    counts = [count] * comm.size
    info = hints(options)

    def make(method: str) -> Request:
        return Alltoallv_init(comm, [sent, counts], None, method=method, info=info)

    candidates = prepare(comm, names, make, Request.Free)
    made = {each.method: each.made for each in candidates if each.made is not None}
    calls = {method: round_of(request) for method, request in made.items()}
    why = unchecked("the bytes do not matter to the model, and tests look at them")
    contestants = [Contestant(name, call, why, repeats(comm, call)) for name, call in calls.items()]
    seconds = options.seconds / len(set(options.sizes))
    found = race(comm, contestants, iterations=options.iterations, seconds=seconds)
    release(comm, candidates, Request.Free)
    traffic = of_matrix(np.full((comm.size, comm.size), count * ITEM), nodes)
    expected = predict(traffic, parameters, names)
    timed = found.times
    for each in candidates:
        labels = {"bytes": byte_count(sent.nbytes), "method": each.method}
        if each.method not in timed:
            outcome.rows.append(Row(labels, reason=each.reason))
            continue
        seen = quick(timed[each.method])
        error = expected[each.method] / seen - 1.0
        outcome.errors[each.method].append(abs(error))
        values = {"predicted us": expected[each.method] * 1e6, "error %": 100 * error}
        outcome.rows.append(
            Row(labels, timed[each.method], nbytes=sent.nbytes, values=values)
        )
