"""Candidates measured against each other, two at a time, in the same moments.

The winner of a duel meets the next candidate. Both of a duel run in turn, several rounds in a row
where a round is short, so that what disturbs the machine disturbs both; a duel ends when it is
clear who is faster. Every number is that of the slowest rank, and the same on all ranks, the time
that has been spent included. A race has so much time and no more: who has not been tried by then is
passed over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.errors import MPIError, UnsupportedError
from onesided.collectives.registry import Method
from onesided.collectives.request import Request
from onesided.collectives.tuning.decisions import Cost, Record

#: Seconds that a race may take where nothing leaves a node, and where something does.
SECONDS, SECONDS_FAR = 0.2, 0.5
#: The same for who measures ahead (``onesided tune``).
AHEAD_OF_TIME = 10.0

#: The turns of each in a duel, where something leaves a node, and those between two looks at who is
#: ahead. Between nodes what disturbs one turn disturbs the next ones, too.
TURNS, TURNS_FAR, GLANCES = 24, 96, 4

#: Seconds of the rounds that are timed in a row, and the most of them.
IN_A_ROW, MOST_IN_A_ROW = 1.5e-4, 64

#: A duel is decided when one takes so many times as long, after this part of its turns, or has lost
#: more turns than the other one by that part.
HOPELESS, LEAST, AHEAD = 1.5, 6, 3
#: So many times as long in both of the first rounds, if none is shorter than these seconds: nothing
#: more is tried.
SURE, LONG = 8.0, 1e-3

#: Of the rounds that the caller expects, the share whose time measuring may take; where that is
#: less than the rounds of a first look nothing is measured.
SHARE, FIRST_LOOK = 0.05, 5


@dataclass
class Entrant:
    name: str
    request: Request
    setup: float


class Race:
    """The candidates of one operation on one communicator."""

    def __init__(self, comm: MPI.Intracomm, far: bool, iterations: int = 0) -> None:
        """``far``: something leaves a node. ``iterations``: rounds that the caller expects, 0 if
        that is not known."""
        self._comm, self._iterations = comm, iterations
        self._seconds = SECONDS_FAR if far else SECONDS
        self._turns = TURNS_FAR if far else TURNS
        self._began, self._spent = time.perf_counter(), 0.0
        self._setups: dict[str, float] = {}  # seconds on this rank, of those that are freed
        self.complete = True  # the record may be kept, as long as it says itself

    def run(self, candidates: Sequence[Method], make: Callable[[Method], Request]) -> Record:
        """Collective. Costs of the candidates; requests are freed.

        Where the caller expects few rounds the first candidates alone are tried, as far as
        :data:`SHARE` of their time goes, or none; put likely winners first.
        """
        costs: dict[str, Cost] = {}
        refused: dict[str, str] = {}
        passed: dict[str, str] = {}
        if self._iterations and SHARE * self._iterations < FIRST_LOOK:
            self.complete = False
            return Record(costs, refused)
        champion: Entrant | None = None
        for number, method in enumerate(candidates):
            if champion is not None and self._few_are_worth_it(costs[champion.name].round):
                self.complete = False
                break
            if champion is not None and self._spent >= self._seconds:
                passed[method.name] = "there was no time to try it"
                continue
            try:
                entrant = self._enter(method.name, partial(make, method))
            except MPIError:  # another time it may work
                self.complete = False
                continue
            except MemoryError as error:
                passed[method.name] = str(error)
                continue
            except UnsupportedError as error:
                refused[method.name] = str(error)
                continue
            except Exception:  # on all ranks: of a method from outside, say
                if champion is not None:
                    champion.request.Free()
                raise
            if champion is None:
                champion = entrant
                costs[entrant.name] = self._alone(entrant)
            else:
                champion = self._duel(champion, entrant, costs, len(candidates) - number)
        if champion is not None:
            self._leave(champion)
            slowest = np.array([self._setups[name] for name in costs])
            self._comm.Allreduce(MPI.IN_PLACE, slowest, MPI.MAX)
            costs = {name: replace(known, setup=float(setup))
                     for (name, known), setup in zip(costs.items(), slowest, strict=True)}
        return Record(costs, refused, passed)

    def _few_are_worth_it(self, seconds: float) -> bool:
        """Whether measuring has taken its share, if one round takes so long."""
        return bool(self._iterations) and self._spent > SHARE * self._iterations * seconds

    def _enter(self, name: str, make: Callable[[], Request]) -> Entrant:
        began = time.perf_counter()
        request = make()
        return Entrant(name, request, time.perf_counter() - began)

    def _leave(self, entrant: Entrant) -> None:
        """Collective. Free the request, and count that."""
        began = time.perf_counter()
        entrant.request.Free()
        self._setups[entrant.name] = entrant.setup + time.perf_counter() - began

    def _alone(self, entrant: Entrant) -> Cost:
        """Collective. What is known of the first candidate."""
        repeats, turns, _ = self._first_look([entrant], 1)
        if self._iterations:
            turns = max(1, min(turns, int(SHARE * self._iterations) - FIRST_LOOK))
        times = self._times([entrant], repeats, turns)[0]
        return Cost(entrant.setup, float(np.median(times)))

    def _duel(
        self, champion: Entrant, entrant: Entrant, costs: dict[str, Cost], left: int
    ) -> Entrant:
        """Collective. The faster one; the other one is freed. ``left``: duels, this one included.
        """
        pair = [champion, entrant]
        until = self._spent + max(self._seconds - self._spent, 0.0) / left
        repeats, turns, looks = self._first_look(pair, left)
        least = looks.min(axis=1, keepdims=True)
        slow = int(least[1, 0] > least[0, 0])
        sure = least[slow, 0] > SURE * looks[1 - slow, 1] > SURE * LONG
        times = least if sure else self._times(pair, repeats, turns)
        while (not self._decided(times) and times.shape[1] < self._turns
               and self._spent < until):  # fmt: skip
            times = np.hstack([times, self._times(pair, repeats, turns)])
        ratio = float(np.median(times[1] / times[0]))
        known = costs[champion.name].round
        round_of_champion = known if sure else float(np.median(times[0]))
        costs[champion.name] = Cost(champion.setup, round_of_champion)
        costs[entrant.name] = Cost(entrant.setup, round_of_champion * ratio)
        winner, loser = (champion, entrant) if ratio >= 1 else (entrant, champion)
        self._leave(loser)
        return winner

    def _decided(self, times: NDArray[np.float64]) -> bool:
        """Local. Whether it is clear which of two is the faster one."""
        if times.shape[1] < GLANCES:
            return True  # there is no time for more
        ratios = times[1] / times[0]
        ratio, lost = float(np.median(ratios)), int(np.count_nonzero(ratios > 1))
        won = len(ratios) - lost
        clear = max(ratio, 1 / ratio) >= HOPELESS and len(ratios) >= self._turns // LEAST
        return clear or abs(lost - won) >= self._turns // AHEAD

    def _first_look(
        self, entrants: list[Entrant], left: int
    ) -> tuple[int, int, NDArray[np.float64]]:
        """Collective. Rounds to be timed in a row, turns between two looks, and seconds of two
        rounds of each; the first one warms it up."""
        looks = self._times(entrants, 1, 2)
        seconds = looks[:, 1]
        repeats = max(1, min(MOST_IN_A_ROW, int(IN_A_ROW / max(float(seconds.min()), 1e-7))))
        room = max(self._seconds - self._spent, 0.0) / left
        turns = int(room / max(repeats * float(seconds.sum()), 1e-9))
        return repeats, max(1, min(GLANCES, turns)), looks

    def _times(self, pair: list[Entrant], repeats: int, turns: int) -> NDArray[np.float64]:
        """Collective. Seconds of a round, by entrant and turn, on the slowest rank."""
        times = np.empty(len(pair) * turns + 1)
        found = times[1:].reshape(len(pair), turns)
        barrier, clock = self._comm.Barrier, time.perf_counter
        for turn in range(turns):
            for place in range(len(pair)) if turn % 2 else reversed(range(len(pair))):
                start, wait = pair[place].request.Start, pair[place].request.Wait
                barrier()
                began = clock()
                for _ in range(repeats):
                    start()
                    wait()
                found[place, turn] = (clock() - began) / repeats
        times[0] = clock() - self._began
        self._comm.Allreduce(MPI.IN_PLACE, times, MPI.MAX)
        self._spent = float(times[0])
        return found
