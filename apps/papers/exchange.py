"""One exchange by every method in turns: set-ups in a loop, contents verified, times, break-even.

What benchmarks 1 and 2 of paper 000 share. A set-up is initialized and freed several times; the
median of the one and that of the other together are T_init of its equation 1. Before the
measurement every method delivers the data into poisoned memory, so that what is left from a round
before, or from another method, is found; after it the contents are compared once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from statistics import fmean, median
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.apps.bench.memory import PLACES, Array, Exchanger
from onesided.apps.bench.race import REGION, Check, Contestant, nothing, race, repeats, unchecked
from onesided.apps.bench.selection import BASELINE, Candidate, hints, prepare, release
from onesided.apps.bench.store import Part
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import Row
from onesided.apps.cli.statistics import Verdict

PLAIN = "plain"  # memory of what is no request
MEMCPY = "memcpy"
MEMCPY_IN_TURN = "memcpy2"  # into two arrays in turn, as a request with two slots has to do
POISON = -1.0  # no element that is sent has this value
ROUNDS = 4  # verified before the measurement, and after it: both slots, and both with poison again
SETUP_SHARE = 0.3  # of the time, for set-ups that are repeated
REMARK = (
    "Set-up: median of initializing plus median of freeing; break-even: iterations after which it "
    "has paid (paper 000, equations 1 to 3, medians). Short iterations are timed several in a row, "
    "each region after a barrier, by the slowest rank. vs mpi, vs memcpy: medians of the ratios of "
    "times taken in the same round; memcpy2 fills two arrays in turn, as slots do."
)


@dataclass(frozen=True)
class Problem:
    """What is exchanged: doubles packed in rank order, so many for each rank, and what must come.

    ``expected``: the elements that this rank gets, in the order of their senders. ``nbytes``: what
    the rank that sends most sends, its own block included; the same on all ranks.
    """

    sent: Array
    send_counts: list[int]
    recv_counts: list[int]
    expected: Array
    nbytes: int


def setup_seconds(inits: Sequence[float], frees: Sequence[float]) -> float:
    """Local. T_init of the break-even rule: the median of initializing and that of freeing."""
    return median(inits) + median(frees)


@dataclass
class _Entrant:
    """What is timed: ``call`` runs one iteration and, where something comes, returns it.

    ``inits``, ``frees``: seconds of every set-up, on the slowest rank; none without a request.
    """

    row: Row
    call: Callable[[], Any]
    inits: list[float] = field(default_factory=list)
    frees: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Local. Of the method and its memory."""
        return f"{self.row.labels['method']} {self.row.labels['memory']}"

    def contestant(self, comm: MPI.Intracomm, problem: Problem, region: float) -> Contestant:
        """Collective. The call, as often in a row as fills a ``region`` of time."""
        check: Check = unchecked("a copy of as many bytes, for comparison")
        if self.row.labels["method"] not in (MEMCPY, MEMCPY_IN_TURN):
            check = lambda: delivered(comm, problem, self.call)  # noqa: E731
        count = repeats(comm, self.call, region)
        self.row.facts = {"repeats": count}
        return Contestant(self.name, self.call, check, count)


@dataclass
class Contest:
    """Every method on one problem; ``seconds``: what all of it may take.

    ``labels`` are those of the rows before the method; ``copies``: copies of as many bytes take
    part, too; ``region``: seconds of the rounds that are timed in a row.
    """

    comm: MPI.Intracomm
    options: Options
    names: Sequence[str]
    labels: Mapping[str, str]
    seconds: float
    copies: bool = True
    region: float = REGION

    def rows(self, problem: Problem, tick: Callable[[], object]) -> list[Row]:
        """Collective. A row for every contestant, or why it is missing."""
        comm, options = self.comm, self.options
        running = [
            _Entrant(self._row(problem, name, PLAIN), call)
            for name, call in _without_request(comm, problem, self.copies).items()
        ]
        made: list[tuple[str, Candidate[Exchanger]]] = []
        try:
            for place in options.memory if self.names else ():
                maker = exchangers(comm, problem, place, hints(options))
                candidates = prepare(comm, self.names, maker)
                made += [(place, candidate) for candidate in candidates]
                running += [
                    self._entered(self._row(problem, each.method, place), each, maker)
                    for each in candidates
                    if each.made is not None
                ]
            contestants = [each.contestant(comm, problem, self.region) for each in running]
            seconds = (1.0 - SETUP_SHARE) * self.seconds
            found = race(
                comm, contestants, iterations=options.iterations, seconds=seconds, tick=tick
            )
        except CommandError:  # the same on every rank
            _release(comm, running, made)
            raise
        _release(comm, running, made)
        plain = {
            each.row.labels["method"]: found.times[each.name]
            for each in running
            if not each.inits
        }
        for each in running:
            row, taken = each.row, found.times[each.name]
            row.times, row.against, row.verdict = taken, plain, found.verdicts.get(each.name)
            row.details = {"mean": [fmean(taken)]}
            if each.inits:
                row.setup = setup_seconds(each.inits, each.frees)
                more = {"init_times_s": each.inits, "free_times_s": each.frees}
                row.facts = {**row.facts, **more}
        return [each.row for each in running] + [
            Row({**self.labels, "method": each.method, "memory": place}, reason=each.reason)
            for place, each in made
            if each.reason
        ]

    def add(self, problem: Problem, tick: Callable[[], object], part: Part) -> None:
        """Collective. Add :meth:`rows` to a part of a benchmark."""
        part.rows += self.rows(problem, tick)

    def _row(self, problem: Problem, method: str, memory: str) -> Row:
        labels = {**self.labels, "method": method, "memory": memory}
        hidden = ("mean", "error", f"vs {MEMCPY_IN_TURN}")
        return Row(labels, nbytes=problem.nbytes, hidden=hidden)

    def _entered(
        self, row: Row, candidate: Candidate[Exchanger], maker: Callable[[str], Exchanger]
    ) -> _Entrant:
        """Collective. Set up again as often as there is time; the last one takes part."""
        comm, inits, frees = self.comm, [candidate.setup], list[float]()
        budget = SETUP_SHARE * self.seconds / (len(self.names) * len(self.options.memory))
        count = min(self.options.repeats, 1 + int(budget / max(candidate.setup, 1e-9)))
        for _ in range(count - 1):
            release(comm, [candidate])
            frees.append(candidate.freeing)
            again = prepare(comm, [candidate.method], maker)[0]
            inits.append(again.setup)
            candidate.made = again.made
        if candidate.made is None:
            raise CommandError(f"{candidate.method} could be initialized once only")
        used = candidate.made.method
        row.used = "" if used == candidate.method else used
        return _Entrant(row, candidate.made.round, inits, frees)


def exchangers(
    comm: MPI.Intracomm, problem: Problem, place: str, info: Mapping[str, str]
) -> Callable[[str], Exchanger]:
    """Local. What makes the exchange of a method, Collective."""
    send = problem.sent, problem.send_counts
    return lambda method: Exchanger(comm, PLACES[place], send, problem.recv_counts, method, info)


def uniform(comm: MPI.Intracomm, count: int) -> Problem:
    """Local. Blocks of ``count`` elements, filled with the number of the rank that sends them."""
    sent = np.full(count * comm.size, float(comm.rank))
    counts = [count] * comm.size
    expected = np.repeat(np.arange(float(comm.size)), count)
    return Problem(sent, counts, counts, expected, sent.nbytes)


def _plain_call(comm: MPI.Intracomm, problem: Problem) -> Callable[[], Array]:
    """Local. The baseline: the bare call of mpi4py, which returns what came."""
    received = np.zeros_like(problem.expected)
    out, into = [problem.sent, problem.send_counts], [received, problem.recv_counts]

    def baseline() -> Array:
        comm.Alltoallv(out, into)
        return received

    return baseline


def _without_request(
    comm: MPI.Intracomm, problem: Problem, copies: bool
) -> dict[str, Callable[[], Any]]:
    """Local. Those that need no request: the bare call, and copies of as many bytes."""
    sent = problem.sent
    turn = cycle([np.zeros_like(sent), np.zeros_like(sent)])
    calls: dict[str, Callable[[], Any]] = {BASELINE: _plain_call(comm, problem)}
    if copies:
        calls[MEMCPY] = partial(np.copyto, np.zeros_like(sent), sent)
        calls[MEMCPY_IN_TURN] = lambda: np.copyto(next(turn), sent)
    return calls


def delivered(comm: MPI.Intracomm, problem: Problem, call: Callable[[], Array]) -> Verdict:
    """Collective. Elements on all ranks that are not as they should be, in a few rounds."""
    wrong = 0
    for _ in range(ROUNDS):
        received = call()
        wrong += int(np.count_nonzero(received != problem.expected))
        received[...] = POISON  # the caller's until the next round
        comm.Barrier()
    return Verdict(float(comm.allreduce(wrong)), 0.0)


def _release(
    comm: MPI.Intracomm,
    running: Sequence[_Entrant],
    made: Sequence[tuple[str, Candidate[Exchanger]]],
) -> None:
    """Collective. Free every exchange, in reverse order, and note how long it took."""
    for entrant in running:
        entrant.call = nothing  # no view of the memory is left
    for _, candidate in reversed(made):
        release(comm, [candidate])
    freed = {f"{candidate.method} {place}": candidate.freeing for place, candidate in made}
    for entrant in running:
        if entrant.inits:
            entrant.frees.append(freed[entrant.name])


def wrong_elements(rows: Sequence[Row], against: str) -> str:
    """Local. A sentence about the contents of all rows."""
    wrong = sum(int(row.verdict.error) for row in rows if row.verdict is not None)
    if wrong:
        return f"WRONG: {wrong} elements are not {against}"
    return f"Verified: every element is {against}"
