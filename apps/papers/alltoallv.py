"""``onesided bench alltoallv`` and ``bench rounds``: uniform exchanges by every method.

Every rank sends equal blocks, filled with its own number, to all ranks, itself included. The first
2, 4, 8 ... ranks of the job exchange while the others sleep: the same number of bytes per rank
(weak scaling), or the same for all of them together (strong scaling). That is benchmark 1 of paper
000. ``bench rounds`` has longer regions and every kind of memory, on all ranks of the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from mpi4py import MPI

from onesided.apps.bench.ranks import counted
from onesided.apps.bench.selection import BASELINE, chosen
from onesided.apps.bench.sweep import sweep
from onesided.apps.cli.options import Options, doubling
from onesided.apps.cli.report import Report, byte_count
from onesided.apps.papers.exchange import REMARK, exchange_case, uniform, wrong_elements

ITEM = 8  # bytes of an element
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
