"""Candidates measured against each other, two at a time, in the same moments.

The winner of a duel meets the next candidate. Both of a duel run in turn, several rounds in a row
where a round is short, so that what disturbs the machine disturbs both. Every number is that of
the slowest rank, and the same on all ranks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.errors import UnsupportedError
from onesided.collectives.registry import Method
from onesided.collectives.request import Request
from onesided.collectives.tuning.decisions import Cost, Record

#: Seconds that a duel may take, the turns of each in it, and those of the first look.
SECONDS, TURNS, GLANCES = 0.12, 24, 4

#: Seconds of the rounds that are timed in a row, and the most of them.
IN_A_ROW, MOST_IN_A_ROW = 1.5e-4, 64

#: A candidate that takes so many times as long at the first look is looked at no more.
HOPELESS = 1.5

#: Of the rounds that the caller expects, the share whose time measuring may take; where that is
#: less than the rounds of a first look nothing is measured.
SHARE, FIRST_LOOK = 0.05, 5


@dataclass
class Entrant:
    """A request under trial."""

    name: str
    request: Request
    setup: float


class Race:
    """The candidates of one operation on one communicator."""

    def __init__(self, comm: MPI.Intracomm, iterations: int = 0) -> None:
        """``iterations``: rounds that the caller expects, 0 if that is not known."""
        self._comm, self._iterations = comm, iterations
        self._began = time.perf_counter()
        self._setups: dict[str, float] = {}  # seconds on this rank, of those that are freed
        self.complete = True  # every candidate has been tried

    def run(self, candidates: Iterable[Method], make: Callable[[Method], Request]) -> Record:
        """Collective. Costs of the candidates; requests are freed.

        Where the caller expects few rounds the first candidates alone are tried, as far as
        :data:`SHARE` of their time goes, or none; put the ones that are cheap to set up first.
        """
        costs: dict[str, Cost] = {}
        refused: dict[str, str] = {}
        if self._iterations and SHARE * self._iterations < FIRST_LOOK:
            self.complete = False
            return Record(costs, refused)
        champion: Entrant | None = None
        for method in candidates:
            if champion is not None and self._spent(costs[champion.name].round):
                self.complete = False
                break
            try:
                entrant = self._enter(method.name, partial(make, method))
            except MemoryError:  # another time there may be more
                self.complete = False
                continue
            except UnsupportedError as error:
                refused[method.name] = str(error)
                continue
            if champion is None:
                champion = entrant
                costs[entrant.name] = self._alone(entrant)
            else:
                champion = self._duel(champion, entrant, costs)
        if champion is not None:
            self._leave(champion)
            slowest = np.array([self._setups[name] for name in costs])
            self._comm.Allreduce(MPI.IN_PLACE, slowest, MPI.MAX)
            costs = {name: replace(known, setup=float(setup))
                     for (name, known), setup in zip(costs.items(), slowest, strict=True)}
        return Record(costs, refused)

    def _spent(self, seconds: float) -> bool:
        """Collective. Whether measuring has taken its share, if one round takes so long."""
        if not self._iterations:
            return False
        mine = time.perf_counter() - self._began
        slowest = self._comm.allreduce(mine, MPI.MAX)
        return bool(slowest > SHARE * self._iterations * seconds)

    def _enter(self, name: str, make: Callable[[], Request]) -> Entrant:
        began = time.perf_counter()
        request = make()
        setup = time.perf_counter() - began
        return Entrant(name, request, setup)

    def _leave(self, entrant: Entrant) -> None:
        """Collective. Free the request, and count that."""
        began = time.perf_counter()
        entrant.request.Free()
        self._setups[entrant.name] = entrant.setup + time.perf_counter() - began

    def _alone(self, entrant: Entrant) -> Cost:
        """Collective. What is known of the first candidate."""
        turns = GLANCES
        if self._iterations:
            turns = max(1, min(turns, int(SHARE * self._iterations) - FIRST_LOOK))
        repeats = self._in_a_row([entrant])
        times = self._times([entrant], repeats, turns)[0]
        return Cost(entrant.setup, float(np.median(times)), float(times.min()))

    def _duel(self, champion: Entrant, entrant: Entrant, costs: dict[str, Cost]) -> Entrant:
        """Collective. The faster one; the other one is freed."""
        pair = [champion, entrant]
        repeats = self._in_a_row(pair)
        times = self._times(pair, repeats, GLANCES)
        seconds = np.median(times, axis=1)
        if seconds.max() < HOPELESS * seconds.min():
            room = SECONDS / max(repeats * float(seconds.sum()), 1e-9)
            more = max(0, min(TURNS, int(room)) - GLANCES)
            if more:
                times = np.hstack([times, self._times(pair, repeats, more)])
        ratio = float(np.median(times[1] / times[0]))
        round_of_champion = float(np.median(times[0]))
        least = times.min(axis=1)
        costs[champion.name] = Cost(champion.setup, round_of_champion, float(least[0]))
        costs[entrant.name] = Cost(entrant.setup, round_of_champion * ratio, float(least[1]))
        winner, loser = (champion, entrant) if ratio >= 1 else (entrant, champion)
        self._leave(loser)
        return winner

    def _in_a_row(self, pair: list[Entrant]) -> int:
        """Collective. Rounds to be timed in a row; the first rounds of a request warm it up."""
        seconds = float(self._times(pair, 1, 2)[:, 1].min())
        return max(1, min(MOST_IN_A_ROW, int(IN_A_ROW / max(seconds, 1e-7))))

    def _times(self, pair: list[Entrant], repeats: int, turns: int) -> NDArray[np.float64]:
        """Collective. Seconds of a round, by entrant and turn, on the slowest rank."""
        times = np.empty((len(pair), turns))
        barrier, clock = self._comm.Barrier, time.perf_counter
        for turn in range(turns):
            for place in range(len(pair)) if turn % 2 else reversed(range(len(pair))):
                start, wait = pair[place].request.Start, pair[place].request.Wait
                barrier()
                began = clock()
                for _ in range(repeats):
                    start()
                    wait()
                times[place, turn] = (clock() - began) / repeats
        self._comm.Allreduce(MPI.IN_PLACE, times, MPI.MAX)
        return times
