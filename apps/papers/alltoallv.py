"""``onesided bench alltoallv``, ``bench rounds``, ``bench patterns``: exchanges by every method.

Every rank sends equal blocks, filled with its own number, to all ranks, itself included. The first
2, 4, 8 ... ranks of the job exchange while the others sleep: the same number of bytes per rank
(weak scaling), or the same for all of them together (strong scaling). That is benchmark 1 of paper
000. ``bench rounds`` has longer regions and every kind of memory, on all ranks of the job.

``bench patterns`` is benchmark 2: two patterns of each matrix, in its partition over the ranks:
what the neighbors need for a product (the halo), and a full row-wise exchange, every nonzero to the
rank that owns its column. The counts are drawn as heat maps (Figure 4), the times side by side
(Figure 3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.resources import as_file
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.choices import Array, chosen, counted, hints, receiving
from onesided.apps.bench.sweep import Case, Labels, Make, sweep
from onesided.apps.bench.timing import REGION, Variant, unchecked
from onesided.apps.cli.failures import user_errors
from onesided.apps.cli.options import Options, doubling
from onesided.apps.cli.report import BASELINE, METHOD, Report, byte_count
from onesided.apps.cli.statistics import Verdict
from onesided.apps.tools.spmv import shipped, short_names
from onesided.apps.tools.trace_mesh import trace_mesh
from onesided.collectives import Alltoallv_init, OnesidedError, Request
from onesided.sparse import DistMatrix, from_rows, read

ITEM = 8  # bytes of an element
PLAIN = "plain"  # memory of what is no request
MEMCPY = "memcpy"
POISON = -1.0  # no element that is sent has this value
ROUNDS = 4  # verified before the measurement, and after it: both slots, and both with poison again
REMARK = (
    "Set-up: median of initializing plus median of freeing; break-even: iterations after which it "
    "has paid (paper 000, equations 1 to 3, medians). Short iterations are timed several in a row, "
    "each region after a barrier, by the slowest rank. vs mpi, vs memcpy: medians of the ratios of "
    "times taken in the same round."
)
AGAINST = "what was sent, element by element"


@dataclass(frozen=True)
class Problem:
    """What is exchanged: doubles packed in rank order, so many for each rank, and what must come.
    ``expected``: the elements that this rank gets, in the order of their senders. ``nbytes``: what
    the rank that sends most sends, its own block included; the same on all ranks."""

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
    labels: Labels, problem: Callable[[MPI.Intracomm], Problem], methods: Sequence[str],
    options: Options, *, ranks: int = 0, copies: bool = True, region: float = REGION,
) -> Case:
    """Local. Every method on one problem, into every kind of ``--memory``. ``copies``: a copy of as
    many bytes takes part, too; ``region``: seconds that are timed in a row."""
    plain = [BASELINE, MEMCPY] if copies else [BASELINE]
    variants = [{METHOD: name, "memory": PLAIN} for name in plain]
    variants += [{METHOD: name, "memory": place} for place in options.memory
                 for name in methods if name not in plain]
    opened = partial(_opened, problem, options)
    return Case(labels, variants, opened, ranks, plain, options.repeats, region)


def _opened(
    problem: Callable[[MPI.Intracomm], Problem], options: Options,
    comm: MPI.Intracomm, stack: ExitStack,
) -> Make:
    """Collective. What makes each variant of the problem."""
    given = problem(comm)

    def make(labels: Labels) -> Variant:
        name = labels[METHOD]
        size = {"bytes": given.nbytes}
        if name == MEMCPY:
            copy = partial(np.copyto, np.zeros_like(given.sent), given.sent)
            why = unchecked("a copy of as many bytes, for comparison")
            return Variant(copy, why, set_up=False, metrics=size)
        if name == BASELINE:
            call = _plain_call(comm, given)
            return Variant(call, partial(delivered, comm, given, call), set_up=False, metrics=size)
        request, free = _request(comm, given, name, labels["memory"], options)
        exchange = round_of(request)
        check = partial(delivered, comm, given, exchange)
        return Variant(exchange, check, free=free, used=request.method, metrics=size)

    return make


def _request(
    comm: MPI.Intracomm, problem: Problem, method: str, memory: str, options: Options
) -> tuple[Request, Callable[[], None]]:
    """Collective. A persistent exchange, and what frees it with its receive memory, which belongs
    to the set-up, as the window that paper 000 creates does."""
    counts, made = list(problem.recv_counts), ExitStack()
    slots = memory == "slots"
    received = None if slots else [receiving(comm, memory, sum(counts), made), counts]
    sent = [problem.sent, list(problem.send_counts)]
    try:
        request = Alltoallv_init(comm, sent, received, method=method, info=hints(options))
    except OnesidedError:  # the same on every rank
        made.close()
        raise
    made.callback(request.Free)
    return request, made.close


def round_of(request: Any) -> Callable[[], Any]:
    """Local. A call that starts a request and waits for it."""
    start, wait = request.Start, request.Wait

    def exchange() -> Any:
        start()
        return wait()

    return exchange


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


# -- uniform exchanges -----------------------------------------------------------------------------

BYTES_REMARK = (
    "Bytes are what a rank sends in one iteration, its own block included; GB/s: these bytes per "
    "second."
)


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
    names = chosen(options.comm)
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
    return report.end(comm, options, AGAINST)


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
    sweep(comm, given, report, cases, "exchanging")
    return report.end(comm, given, AGAINST)


# -- patterns of matrices -------------------------------------------------------------------------

BASE = 1 << 31  # more than the elements of a block
#: ``counts[p, q]``: elements that rank p sends to rank q, on all ranks the same array.
Counts = NDArray[np.int64]


def _of_matrix(counts: Counts, comm: MPI.Intracomm) -> Problem:
    """Local. An element tells its sender, its receiver and its place in the block."""
    ranks, rank = range(comm.size), comm.rank

    def block(source: int, target: int) -> NDArray[np.float64]:
        """Whole numbers that doubles hold."""
        first = float((source * comm.size + target) * BASE)
        return np.arange(counts[source, target], dtype=np.float64) + first

    return Problem(
        np.concatenate([block(rank, peer) for peer in ranks]),
        counts[rank].tolist(),
        counts[:, rank].tolist(),
        np.concatenate([block(peer, rank) for peer in ranks]),
        int(counts.sum(axis=1).max()) * ITEM,
    )


def _nonzeros(matrix: DistMatrix) -> NDArray[np.int64]:
    """Local. Nonzeros of this rank's rows in the columns that each rank owns, its own included.
    That is what a transposition of the matrix sends."""
    columns, owners = matrix.local_rows().indices, matrix.col_partition
    return np.bincount(owners.owners(columns), minlength=owners.parts).astype(np.int64)


#: By the words of ``--patterns``: how many elements this rank sends to each; before a product, or
#: all of its nonzeros.
PATTERNS: Mapping[str, Callable[[DistMatrix], NDArray[np.int64]]] = {
    "spmv": lambda matrix: matrix.pattern.send_counts,
    "rows": _nonzeros,
}

PATTERN_REMARK = (
    "spmv: the entries of x that neighbors need; rows: every nonzero to the owner of its column. "
    "GB/s: bytes that the rank that sends most sends, its own block included, per second; vs "
    "memcpy: every rank copies what it sends."
)
#: Nothing is multiplied, so nothing is measured to find out how.
HOW: dict[str, Any] = {"method": "p2p", "kernel": "scipy"}


def run_patterns(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where wrong data came."""
    names = chosen(options.comm)
    with user_errors():
        subjects = _subjects(comm, options)
    matrices = {
        name: facts | {"patterns": {each: {"counts": counts[each].tolist()} for each in counts}}
        for name, facts, counts in subjects
    }
    report = Report("bench patterns", options.settings(),
                    {"ranks": comm.size, "matrices": matrices}, remarks=[PATTERN_REMARK, REMARK],
                    by="matrix")  # fmt: skip
    cases = [
        exchange_case({"matrix": name, "pattern": each}, partial(_of_matrix, counts[each]), names,
                      options)
        for name, _, counts in subjects
        for each in counts
    ]  # fmt: skip
    sweep(comm, options, report, cases, "exchanging")
    return report.end(comm, options, AGAINST)


def _subjects(
    comm: MPI.Intracomm, options: Options
) -> list[tuple[str, dict[str, Any], dict[str, Counts]]]:
    """Collective. Every matrix: its name, what is told of it, and the counts of its patterns;
    nothing else is kept of it."""
    found = []

    def add(name: str, facts: dict[str, Any], made: DistMatrix) -> None:
        with made as matrix:
            facts |= {
                "shape": list(matrix.shape), "nonzeros": matrix.nnz,
                "partition": options.partition, "rows": matrix.row_partition.lengths().tolist(),
            }  # fmt: skip
            counts = {each: np.array(comm.allgather(PATTERNS[each](matrix)))
                      for each in options.patterns}  # fmt: skip
        found.append((name, facts, counts))

    with ExitStack() as stack:
        files = [Path(file) for file in options.files or [stack.enter_context(as_file(shipped()))]]
        for file, name in zip(files, short_names(files), strict=True):
            matrix = read(comm, file, partition=options.partition, **HOW)
            add(name, {"file": file.name}, matrix)
    if options.mesh:
        rows = trace_mesh(comm, options.mesh, options.seed)
        facts = {"generated": "mesh refined along curves", "seed": options.seed}
        matrix = from_rows(comm, rows, partition=options.partition, **HOW)
        add(f"mesh-{options.mesh}", facts, matrix)
    return found
