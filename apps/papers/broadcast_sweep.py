"""The measurements of ``onesided bench broadcast``, one number of ranks after the other.

All contestants of one size run in the same rounds, after each has been checked once. A time goes
from a barrier until the last rank has the data, or the root knows that all have; no two broadcasts
run in a row, because the second would begin before the first has ended.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.race import Contestant, Race, race
from onesided.apps.bench.ranks import among
from onesided.apps.bench.selection import BASELINE, Candidate, prepare, release
from onesided.apps.bench.store import Part, Parts
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import Row, byte_count
from onesided.apps.cli.statistics import Verdict
from onesided.apps.papers.broadcasters import Entrant, Runner, Track, correct
from onesided.apps.papers.forecast import Forecast
from onesided.collectives import empty, free

Tick = Callable[[], None]


def _plain(comm: MPI.Intracomm, nbytes: int, stack: ExitStack) -> NDArray[Any]:
    return np.zeros(nbytes, np.uint8)


def _window(comm: MPI.Intracomm, nbytes: int, stack: ExitStack) -> NDArray[Any]:
    array = empty(comm, nbytes, np.uint8)
    stack.callback(free, array)
    array[:] = 0
    return array


#: How the memory of ``--memory`` is made, and freed with the stack.
MEMORY = {"plain": _plain, "empty": _window}


@dataclass
class Sweep:
    """What is measured, and what came out: seconds by ranks, bytes and contestant; rows in parts.

    ``share`` is how many seconds one size on one number of ranks may take.
    """

    parts: Parts
    options: Options
    entrants: Sequence[Entrant]
    info: Mapping[str, str]
    timeouts: tuple[float, float]
    forecast: Forecast
    share: float
    times: dict[tuple[int, int, str], list[float]] = field(default_factory=dict)

    def among(self, comm: MPI.Intracomm, count: int, sizes: Sequence[int], tick: Tick) -> None:
        """Collective. Let the first ``count`` ranks broadcast; the others sleep.

        :class:`CommandError` on all ranks, also for what those that slept cannot know.
        """
        among(comm, count, lambda sub: self._course(sub, sizes, tick))

    def _course(self, comm: MPI.Intracomm, sizes: Sequence[int], tick: Tick) -> None:
        """Collective. Every size."""
        with ExitStack() as stack:
            memory = MEMORY[self.options.memory](comm, max(sizes), stack)
            for size in sizes:
                track = Track(comm, memory[:size], self.info, self.timeouts)
                part = self.parts.add(f"{comm.size} {size}", partial(self._compare, track, tick))
                for name, row in zip(part.more, part.rows, strict=True):
                    if not row.reason:
                        self.times[comm.size, size, name] = list(row.times)

    def _compare(self, track: Track, tick: Tick, part: Part) -> None:
        """Collective. All contestants with one size."""
        comm, entered = track.comm, {each.name: each for each in self.entrants}
        made = prepare(comm, list(entered), lambda name: entered[name].ready(track), Runner.release)
        runners = {each.method: each.made for each in made if each.made is not None}
        try:
            found = self._race(track, runners, tick)
            wrong = [name for name, verdict in found.verdicts.items() if not verdict.passed]
            if wrong:
                raise CommandError(f"wrong data after {', '.join(wrong)}")
        finally:
            release(comm, made, Runner.release)
        times = found.times
        size = track.message.nbytes
        for candidate in made:
            entrant = entered[candidate.method]
            part.rows.append(self._row(entrant, candidate, comm.size, size, times))
        part.more = [candidate.method for candidate in made]

    def _race(self, track: Track, runners: Mapping[str, Runner], tick: Tick) -> Race:
        """Collective. All that could be made, checked with data of their own."""
        numbers = itertools.count()

        def check(runner: Runner) -> Verdict:
            return Verdict(float(not correct(track, runner, next(numbers))), 0.0)

        contestants = [
            Contestant(name, runner.call, partial(check, runner))
            for name, runner in runners.items()
        ]
        for _ in range(self.options.warm_up):
            for runner in runners.values():
                track.comm.Barrier()
                runner.call()
        iterations = self.options.iterations
        return race(track.comm, contestants, iterations=iterations, seconds=self.share, tick=tick)

    def _row(
        self,
        entrant: Entrant,
        candidate: Candidate[Runner],
        ranks: int,
        nbytes: int,
        times: Mapping[str, list[float]],
    ) -> Row:
        labels = {
            "ranks": str(ranks),
            "bytes": byte_count(nbytes),
            "method": entrant.method,
            "order": entrant.order or "-",
        }
        if candidate.reason:
            return Row(labels, reason=candidate.reason)
        mine = times[entrant.name]
        predicted = self.forecast.time(entrant.method, entrant.order, ranks, nbytes)
        details = {"mean": [fmean(mine)]}
        if predicted is not None:
            details["predicted"] = [predicted]
        return Row(
            labels,
            mine,
            setup=None if entrant.name == BASELINE else candidate.setup + candidate.freeing,
            nbytes=nbytes,
            against={BASELINE: times[BASELINE]},
            details=details,
        )
