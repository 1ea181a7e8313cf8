"""The measurements of ``onesided bench partitioned``, one size of partitions after the other.

All contestants of a size are made once. With every order and number of threads each is checked, and
then all run in the same rounds; those that would take too long run in fewer of them, or give that
as a reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean, geometric_mean, median
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench import race as racing
from onesided.apps.bench.memory import receiving
from onesided.apps.bench.race import WARM_UP, nothing, race, unchecked
from onesided.apps.bench.selection import Candidate, prepare, release
from onesided.apps.bench.store import Part, Parts
from onesided.apps.bench.team import Team
from onesided.apps.cli.failures import closing
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import Row, byte_count, duration
from onesided.apps.cli.statistics import Verdict
from onesided.apps.papers.partitioned_sends import (
    NATIVE,
    ORDERS,
    SENDER,
    SINGLE,
    Contestant,
    Entry,
    Lane,
    Runner,
    Share,
    Work,
    busy,
    entries,
)
from onesided.collectives import agreed

# A round of Listing 1, to be timed or to be checked.

READY = "ready"
TURNS = 3  # rounds of a check; Open MPI's partitioned send is right in the first one only
PROBES = 16  # looks for messages between the start and the first mark of a checked round


class Round:
    """Start, the loop over partitions on several threads, wait. Calling it runs it.

    ``ready`` adds up the seconds from the beginning of a call until the last partition was ready
    (the bytes were there, the last mark began), on this side.
    """

    def __init__(self, runner: Runner, team: Team, works: Sequence[Work]) -> None:
        self.runner, self.ready = runner, 0.0
        self._team, self._works = team, works

    def __call__(self, meanwhile: Callable[[], object] = nothing) -> None:
        """Local, as far as the contestant is: the other side runs its own."""
        runner = self.runner
        begin = time.perf_counter()
        runner.start()
        meanwhile()
        ready = self._team.run(self._works) or [time.perf_counter()]
        runner.wait()
        self.ready += max(ready) - begin


class Check:
    """Sends data that change with every round, and looks at every partition."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._places = np.arange(-(-lane.message.size // 8), dtype=np.uint64)
        self._turn = 0

    def wrong(self, round_: Round, most: float) -> int:
        """Collective. The most partitions that were wrong after a round; notes the pace.

        The receiver looks as soon as it has waited. The sender destroys its buffer as soon as it
        has waited, which every correct transfer allows. After ``most`` seconds there are no more
        rounds.
        """
        lane, wrong, taken = self._lane, 0, list[float]()
        for _ in range(TURNS):
            expected = self._data()
            lane.message[:] = expected if lane.is_sender else ~expected
            lane.comm.Barrier()
            begin = time.perf_counter()
            round_(self._nudge)
            seconds = time.perf_counter() - begin
            if lane.is_sender:
                lane.message[:] = ~expected
            else:
                wrong = max(wrong, self._differing(expected))
            taken.append(lane.comm.allreduce(seconds, op=MPI.MAX))
            if sum(taken) > most:
                break
        round_.runner.pace = min(taken)
        worst: int = lane.comm.allreduce(wrong, op=MPI.MAX)
        return worst

    def _nudge(self) -> None:
        """Local. MPI makes progress before the first partition is ready."""
        for _ in range(PROBES):
            self._lane.comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)

    def _data(self) -> NDArray[np.uint8]:
        """Bytes that no other round has, and no other place."""
        self._turn += 1
        words = (self._places << np.uint64(24)) + np.uint64(self._turn)
        return words.view(np.uint8)[: self._lane.message.size]

    def _differing(self, expected: NDArray[np.uint8]) -> int:
        differs = self._lane.message != expected
        return int(differs.reshape(self._lane.partitions, -1).any(axis=1).sum())


Tick = Callable[[], None]
#: Seconds for which a contestant runs before each timed round, without being timed: in Listing 1 a
#: round follows another of the same kind. The first one takes up to twice as long.
LEAD = 1e-3
FEW = WARM_UP + 2  # rounds that the least measurement runs
SLOW = 4.0  # times the usual time, from which on there are fewer rounds if there is a hurry
TRIALS = 2  # rounds of a contestant that has just been made; the first one is slow


@dataclass(frozen=True)
class Place:
    """Where in the sweep: bytes of a partition, order of the marks, threads that mark."""

    part: int
    order: str
    threads: int


@dataclass
class Result:
    """What came out at a place for one contestant and marking.

    ``tails``: seconds from when the last partition was ready until both sides had completed.
    ``wrong``: partitions that a check found wrong. Without ``times`` there is a ``reason``;
    ``pace``: seconds of a round, roughly.
    """

    entry: Entry
    times: list[float] = field(default_factory=list)
    tails: list[float] = field(default_factory=list)
    setup: float = 0.0
    wrong: int = 0
    pace: float = 0.0
    reason: str = ""

    def row(self, place: Place, others: Sequence[Result], nbytes: int) -> Row:
        """Local. ``others``: all results of the place, for those to compare with."""
        labels = {
            "partition": byte_count(place.part),
            "order": place.order,
            "threads": str(place.threads),
            **self.entry.labels,
        }
        facts = {"partition_bytes": place.part, "wrong_partitions": self.wrong}
        if self.reason:
            return Row(labels, reason=self.reason, facts={**facts, "round_s": self.pace})
        mean, ready = fmean(self.times), median(self.tails)
        return Row(
            labels,
            self.times,
            setup=self.setup,
            nbytes=nbytes,
            against=self._opponents(others),
            details={"mean": [mean], "after last": self.tails},
            values={
                "mean_gigabytes_per_s": nbytes / mean / 1e9,
                "perceived_gigabytes_per_s": nbytes / ready / 1e9,
            },
            facts=facts,
            verdict=Verdict(self.wrong / (nbytes // place.part), 0.0),
        )

    def _opponents(self, others: Sequence[Result]) -> dict[str, Sequence[float]]:
        """Local. Times of the single message, and of the MPI's own send marked alike."""
        return {
            each.entry.contestant.method: each.times
            for each in others
            if each.times
            and (
                each.entry.contestant is SINGLE
                or (each.entry.contestant is NATIVE and each.entry.marking is self.entry.marking)
            )
        }


@dataclass
class Measurement:
    """What is measured; ``share``: seconds for one place."""

    options: Options
    contestants: Sequence[Contestant]
    share: float

    def run(
        self, comm: MPI.Intracomm, places: Sequence[Place], tick: Tick, parts: Parts
    ) -> None:
        """Collective. Measure at every place; ``tick`` is called after each."""
        options = self.options
        with closing() as stack:
            received = receiving(comm, options.memory, options.buffer, stack)
            team = stack.enter_context(Team(max(place.threads for place in places)))
            lane = Lane(comm, received, 1)
            if lane.is_sender:  # checks write to it before it is timed: untouched pages are all one
                lane = replace(lane, message=np.zeros(options.buffer, np.uint8))
            tags = iter(range(len(places) * len(self.contestants)))
            for size in dict.fromkeys(place.part for place in places):
                here = [place for place in places if place.part == size]
                sized = replace(lane, partitions=options.buffer // size)
                parts.add(str(size), partial(self._size, sized, here, team, tags, tick))
            del received, lane  # views of window memory, which is freed now

    def _size(
        self, lane: Lane, places: Sequence[Place], team: Team, tags: Any, tick: Tick, part: Part
    ) -> None:
        """Collective. All places of one size of partitions."""
        known = {each.name: each for each in self.contestants}

        def make(name: str) -> Runner:
            return made_ready(known[name], replace(lane, tag=next(tags)), team)

        candidates = prepare(lane.comm, list(known), make)
        check = Check(lane)
        part.rows = [
            Row({"partition": byte_count(places[0].part), **known[each.method].labels},
                reason=each.reason)
            for each in candidates
            if each.reason
        ]  # fmt: skip
        for place in places:
            found = self._place(lane, place, candidates, team, check)
            part.rows += [each.row(place, found, self.options.buffer) for each in found]
            tick()
        release(lane.comm, candidates)

    def _place(
        self,
        lane: Lane,
        place: Place,
        candidates: Sequence[Candidate[Runner]],
        team: Team,
        check: Check,
    ) -> list[Result]:
        """Collective. One place: check all, then time those that are not too slow."""
        order = ORDERS[place.order]
        shares = order.shares(lane.partitions, place.threads, self.options.seed)
        runners = {each.method: each for each in candidates if each.made is not None}
        rounds: dict[str, Round] = {}
        begin = time.perf_counter()
        found: list[Result] = []
        for entry in entries([each for each in self.contestants if each.name in runners]):
            candidate = runners[entry.contestant.name]
            runner = candidate.made
            if runner is None or not entry.marking.suits(order):
                continue
            result = Result(entry, setup=candidate.setup)
            found.append(result)
            result.reason = self._obstacle(entry.contestant, runner, place, TURNS + FEW)
            if not result.reason:
                round_ = self._round(entry, runner, lane, shares, team)
                result.wrong = check.wrong(round_, self.share)
                result.reason = self._obstacle(entry.contestant, runner, place, FEW)
                rounds[entry.name] = round_
            result.pace = runner.pace
        timed = [result for result in found if not result.reason]
        self._time(lane, timed, [rounds[result.entry.name] for result in timed], begin)
        return found

    def _round(
        self, entry: Entry, runner: Runner, lane: Lane, shares: Sequence[Share], team: Team
    ) -> Round:
        seconds = self.options.compute * 1e-6 if lane.is_sender else 0.0
        works = [entry.marking.work(runner, share, busy(seconds)) for share in shares]
        return Round(runner, team, [work for work in works if work is not None])

    def _obstacle(
        self, contestant: Contestant, runner: Runner, place: Place, rounds: int
    ) -> str:
        """Local, alike on both ranks. Why a contestant is not run so often here."""
        if contestant.multiple and place.threads > 1 and MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            return "several threads need MPI_THREAD_MULTIPLE"
        if rounds * runner.pace > self.share / 2:
            return f"rounds take too long for the {duration(self.share)} that --seconds leaves"
        return ""

    def _time(
        self, lane: Lane, results: Sequence[Result], rounds: Sequence[Round], begin: float
    ) -> None:
        """Collective. All in the same rounds for half of the time; then those that are fast.

        ``begin``: when the checks of the place began, which take some of its time.
        """
        if not results:
            return
        most = self.options.iterations
        pairs = list(zip(results, rounds, strict=True))
        costs = [result.pace + max(result.pace, LEAD) for result in results]
        bound = SLOW * geometric_mean(costs)
        fast = [pair for pair, cost in zip(pairs, costs, strict=True) if cost < bound]
        left = self._left(lane, begin)
        self._measure(lane, pairs, most, max(left, self.share / 4) / 2)
        done, left = len(results[0].times), self._left(lane, begin)
        if done < most and left > self.share / 8:
            self._measure(lane, fast, most - done, left)

    def _left(self, lane: Lane, begin: float) -> float:
        """Collective. Seconds of a place's share that are left, by the sender's clock."""
        left: float = lane.comm.bcast(self.share - (time.perf_counter() - begin), SENDER)
        return left

    def _measure(
        self, lane: Lane, pairs: Sequence[tuple[Result, Round]], iterations: int, seconds: float
    ) -> None:
        """Collective. Add times to the results."""
        why = unchecked("every partition was looked at in rounds of their own, which are counted")
        contestants = [
            racing.Contestant(
                result.entry.name,
                each,
                why,
                lead=LEAD,
                parts={READY: partial(getattr, each, READY)},
            )
            for result, each in pairs
        ]
        found = race(lane.comm, contestants, iterations=iterations, seconds=seconds)
        for result, _ in pairs:
            times = found.times[result.entry.name]
            ready = found.mine[result.entry.name][READY]
            result.times += times
            result.tails += [time - until for time, until in zip(times, ready, strict=True)]


def made_ready(contestant: Contestant, lane: Lane, team: Team) -> Runner:
    """Collective. A contestant after its first rounds, from which it knows its pace.

    What it cannot do, it says before or in the first one, on both ranks.
    """
    made: list[Runner] = []
    try:
        with agreed(lane.comm):
            made.append(contestant.make(lane))
        runner = made[0]
        share = Share(list(range(lane.partitions)))
        marking = contestant.markings[-1]  # in bulk, where it can
        works = [marking.work(runner, share, None)]
        round_ = Round(runner, team, [work for work in works if work is not None])
        runner.pace = min(racing.clocked(lane.comm, round_)[1] for _ in range(TRIALS))
    except Exception:
        for each in made:
            each.free()
        raise
    return runner


def whole_sweep(
    parts: Sequence[int], orders: Sequence[str], threads: Sequence[int]
) -> list[Place]:
    """Local. Every order with the first number of threads, every number with the first order."""
    cross = [(order, threads[0]) for order in orders]
    cross += [(orders[0], count) for count in threads[1:]]
    return [Place(part, order, count) for part in parts for order, count in cross]
