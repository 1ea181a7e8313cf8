"""``onesided bench alltoallv`` and ``bench rounds``: uniform exchanges by every method.

Every rank sends equal blocks, filled with its own number, to all ranks, itself included. The first
2, 4, 8 ... ranks of the job exchange while the others sleep: the same number of bytes per rank
(weak scaling), or the same for all of them together (strong scaling). That is benchmark 1 of paper
000. ``bench rounds`` has longer regions and every kind of memory, on all ranks of the job.

What benchmarks 1 and 2 of the paper share comes first: one exchange by every method in turns. A
set-up is initialized and freed several times; the median of the one and that of the other together
are T_init of its equation 1. Before the measurement every method delivers the data into poisoned
memory, so that what is left from a round before, or from another method, is found; after it the
contents are compared once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.apps.bench.memory import Array, give_back, made
from onesided.apps.bench.ranks import counted
from onesided.apps.bench.selection import BASELINE, chosen, hints
from onesided.apps.bench.sweep import Case, Labels, Make, sweep
from onesided.apps.bench.timing import REGION, Variant, unchecked
from onesided.apps.cli.options import Options, doubling
from onesided.apps.cli.report import METHOD, Report, Row, byte_count
from onesided.apps.cli.statistics import Verdict
from onesided.collectives import Alltoallv_init, OnesidedError, Request

ITEM = 8  # bytes of an element
PLAIN = "plain"  # memory of what is no request
MEMCPY = "memcpy"
MEMCPY_IN_TURN = "memcpy2"  # into two arrays in turn, as a request with two slots has to do
POISON = -1.0  # no element that is sent has this value
ROUNDS = 4  # verified before the measurement, and after it: both slots, and both with poison again
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
    send_counts: Sequence[int]
    recv_counts: Sequence[int]
    expected: Array
    nbytes: int


def uniform(count: int, comm: MPI.Intracomm) -> Problem:
    """Local. Blocks of ``count`` elements, filled with the number of the rank that sends them."""
    sent = np.full(count * comm.size, float(comm.rank))
    counts = [count] * comm.size
    expected = np.repeat(np.arange(float(comm.size)), count)
    return Problem(sent, counts, counts, expected, sent.nbytes)


def exchange_case(
    labels: Labels,
    problem: Callable[[MPI.Intracomm], Problem],
    methods: Sequence[str],
    options: Options,
    *,
    ranks: int = 0,
    copies: bool = True,
    region: float = REGION,
) -> Case:
    """Local. Every method on one problem, into every kind of ``--memory``.

    ``copies``: copies of as many bytes take part, too; ``region``: seconds that are timed in a row.
    """
    plain = [BASELINE, *([MEMCPY, MEMCPY_IN_TURN] if copies else [])]
    variants = [{METHOD: name, "memory": PLAIN} for name in plain]
    variants += [{METHOD: name, "memory": place} for place in options.memory
                 for name in methods if name not in plain]
    return Case(
        labels, variants, partial(_opened, problem, options), ranks,
        (BASELINE, MEMCPY) if copies else (BASELINE,), options.repeats, region,
    )  # fmt: skip


def _opened(
    problem: Callable[[MPI.Intracomm], Problem], options: Options,
    comm: MPI.Intracomm, stack: ExitStack,
) -> Make:
    """Collective. What makes each variant of the problem."""  # fmt: skip
    given = problem(comm)

    def make(labels: Labels) -> Variant:
        name = labels[METHOD]
        size = {"bytes": given.nbytes}
        if name in (MEMCPY, MEMCPY_IN_TURN):
            into = cycle([np.zeros_like(given.sent) for _ in range(1 + (name == MEMCPY_IN_TURN))])
            why = unchecked("a copy of as many bytes, for comparison")
            return Variant(lambda: np.copyto(next(into), given.sent), why, set_up=False,
                           metrics=size)  # fmt: skip
        if name == BASELINE:
            call = _plain_call(comm, given)
            return Variant(call, partial(delivered, comm, given, call), set_up=False, metrics=size)
        request, free = _request(comm, given, name, labels["memory"], options)
        start, wait = request.Start, request.Wait

        def exchange() -> Any:
            start()
            return wait()

        used = "" if request.method == name else request.method
        check = partial(delivered, comm, given, exchange)
        return Variant(exchange, check, free=free, used=used, metrics=size)

    return make


def _request(
    comm: MPI.Intracomm, problem: Problem, method: str, memory: str, options: Options
) -> tuple[Request, Callable[[], None]]:
    """Collective. A persistent exchange, and what frees it with its receive memory.

    The memory of :func:`~onesided.collectives.empty` belongs to the set-up, as the window that
    paper 000 creates does.
    """
    array = made(comm, memory, sum(problem.recv_counts))
    received = None if array is None else [array, list(problem.recv_counts)]
    sent = [problem.sent, list(problem.send_counts)]
    try:
        request = Alltoallv_init(comm, sent, received, method=method, info=hints(options))
    except OnesidedError:  # the same on every rank
        give_back(memory, array)
        raise

    def free() -> None:
        request.Free()
        give_back(memory, array)

    return request, free


def _plain_call(comm: MPI.Intracomm, problem: Problem) -> Callable[[], Array]:
    """Local. The baseline: the bare call of mpi4py, which returns what came; given so that there is
    no list to read in each call, no type to find, nothing to add up."""
    received = np.zeros_like(problem.expected)

    def prepared(array: Array, counts: Sequence[int]) -> list[Any]:
        sizes = np.array(counts, np.intc)
        return [array, (sizes, np.cumsum(sizes, dtype=np.intc) - sizes), MPI.DOUBLE]

    out = prepared(problem.sent, problem.send_counts)
    into = prepared(received, problem.recv_counts)

    def baseline() -> Array:
        comm.Alltoallv(out, into)
        return received

    return baseline


def delivered(comm: MPI.Intracomm, problem: Problem, call: Callable[[], Array]) -> Verdict:
    """Collective. Elements on all ranks that are not as they should be, in a few rounds."""
    wrong = 0
    for _ in range(ROUNDS):
        received = call()
        wrong += int(np.count_nonzero(received != problem.expected))
        received[...] = POISON  # the caller's until the next round
        comm.Barrier()
    return Verdict(float(comm.allreduce(wrong)), 0.0)


def wrong_elements(rows: Sequence[Row], against: str) -> str:
    """Local. A sentence about the contents of all rows."""
    wrong = sum(int(row.verdict.error) for row in rows if row.verdict is not None)
    if wrong:
        return f"WRONG: {wrong} elements are not {against}"
    return f"Verified: every element is {against}"


# -- uniform exchanges -----------------------------------------------------------------------------

BYTES_REMARK = (
    "Bytes are what a rank sends in one iteration, its own block included; GB/s: these bytes per "
    "second."
)
RIGHT = "the number of the rank that sent it"


def places(scaling: str, counts: Sequence[int], nbytes: int) -> list[tuple[int, int]]:
    """Local. Numbers of ranks, and how many elements each of them sends to every rank.

    Weak scaling: about the same number of bytes per rank, on every number of ranks. Strong: what
    the smallest number of ranks sends together, ``nbytes`` each, split up; left out are others
    among which less than an element per block would be left.
    """
    least = min(counts)
    total = nbytes * least
    if scaling == "strong":
        counts = [n for n in counts if n == least or total >= ITEM * n * n]
    each = {n: nbytes if scaling == "weak" else total // n for n in counts}
    return [(n, max(1, round(each[n] / ITEM / n))) for n in counts]


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where wrong data came."""
    names = [name for name in chosen(options.comm) if name != BASELINE]
    counts = counted(comm.size, options.ranks_list, doubling(2, comm.size))
    asked = {
        place for scaling in options.scaling for size in options.sizes
        for place in places(scaling, counts, size)
    }  # fmt: skip
    report = Report("bench alltoallv", options.settings(), {"ranks": comm.size, "counts": counts},
                    remarks=[BYTES_REMARK, REMARK], by="ranks", across="bytes")  # fmt: skip
    cases = [
        exchange_case({"ranks": str(ranks), "bytes": byte_count(count * ranks * ITEM)},
                      partial(uniform, count), names, options, ranks=ranks)
        for ranks, count in sorted(asked)
    ]  # fmt: skip
    sweep(comm, options, report, cases, "exchanging")
    report.remarks.append(wrong_elements(report.rows, RIGHT))
    return report.end(comm, options)


#: Seconds of the rounds that are timed in a row, and how many ``auto`` is told to expect.
IN_A_ROW, EXPECTED = 1e-3, "200"


def run_rounds(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command ``bench rounds``; its exit code is 1 where wrong data came."""
    names = chosen(options.comm, baseline=False)
    given = options.but(info=[("expected_iterations", EXPECTED), *options.info])
    report = Report("bench rounds", options.settings(), {"ranks": comm.size},
                    remarks=[BYTES_REMARK], across="bytes")  # fmt: skip
    cases = [
        exchange_case({"bytes": byte_count(count * ranks * ITEM)}, partial(uniform, count), names,
                      given, copies=False, region=IN_A_ROW)
        for ranks, count in sorted({places("weak", [comm.size], n)[0] for n in options.sizes})
    ]  # fmt: skip
    sweep(comm, given, report, cases, "rounds")
    report.remarks.append(wrong_elements(report.rows, RIGHT))
    return report.end(comm, options)
