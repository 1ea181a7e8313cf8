"""What the benchmarks of the papers' experiments can be given on the command line."""

from __future__ import annotations

import argparse

from onesided.apps.cli.options import (
    SIZES,
    common,
    not_negative,
    positive,
    seconds,
    size,
    timed,
    whole,
)

#: Those of :mod:`onesided.apps.papers.rmamt_cell`, which is not imported for a help text.
RMA_MT_PATTERNS = ("latency", "bandwidth", "rate-pairs", "rate-halo")
SYNCS = ("fence", "pscw", "lock", "lock_all")
OPS = ("put", "get")
LEVELS = ("single", "multiple")
RMA_MT_THREADS = (1, 2, 4, 8, 16)
QUICK_THREADS = (1, 4)
QUICK_SIZES = "1 1K 64K 1M"
#: Threads of a rank, at most.
MOST_THREADS = 64
LARGEST = "4M"
#: By the name of an option: what it is usually, and in a quick run.
RMA_MT_USUAL = {
    "messages": (256, 256),
    "window": (64 << 20, 8 << 20),
    "runs": (5, 2),
    "iterations": (200, 40),
    "seconds": (0.2, 0.04),
    "limit": (60.0, 20.0),
    "batch": (20, 64),
}


def threads(text: str) -> int:
    """Local. A number of threads."""
    number = positive(text)
    if number > MOST_THREADS:
        raise argparse.ArgumentTypeError(f"{number} threads: at most {MOST_THREADS} of a rank")
    return number


def neighbours(text: str) -> int:
    """Local. How many neighbours a halo has."""
    number = positive(text)
    if number > MOST_THREADS:
        raise argparse.ArgumentTypeError(f"{number} neighbours: at most {MOST_THREADS} of a rank")
    return number


def bench_rma_mt(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench rma-mt``; its ``--ranks`` are those of the jobs."""
    parser.epilog = (
        "Cells that DIR has from before are not measured again: a sweep that was killed goes on."
    )
    add = parser.add_argument
    add("-o", "--output", metavar="DIR", required=True, help="folder for what is measured")
    add("--quick", action="store_true", help="small and short: under 5 minutes on 2 cores")
    add(
        "--ranks",
        dest="job_ranks",
        metavar="N",
        type=positive,
        default=2,
        help="ranks of the message rates, rate-pairs takes an even number of them, latency and "
        "bandwidth take 2 (default 2)",
    )
    known = list(RMA_MT_PATTERNS)
    add("--patterns", choices=known, nargs="+", default=known, help="default all")
    add("--syncs", choices=SYNCS, nargs="+", default=list(SYNCS), help="default all")
    add("--ops", choices=OPS, nargs="+", default=list(OPS), help="default both")
    add(
        "--levels",
        choices=LEVELS,
        nargs="+",
        default=list(LEVELS),
        help="thread levels of MPI; with single the main thread transfers alone (default both)",
    )
    add(
        "--threads",
        metavar="N",
        type=threads,
        nargs="+",
        help=f"threads that transfer (default {_text(RMA_MT_THREADS)}; "
        f"quick {_text(QUICK_THREADS)})",
    )
    add(
        "--sizes",
        metavar="BYTES",
        type=size,
        nargs="+",
        help=f"bytes of a message (default powers of two from 1 to {LARGEST}, for latency and "
        f"bandwidth none from 2 to 8, as in paper 002; quick {QUICK_SIZES})",
    )
    _measured(parser)
    add("--afresh", action="store_true", help="forget what DIR has from before")
    add("--retry", action="store_true", help="measure again what failed before")
    add("--json", metavar="FILE", help="write the results to FILE (default DIR/rma-mt.json)")
    add(
        "--second",
        metavar="DIR",
        help="draw Figures 5 to 7 of this folder, measured with another MPI (default: the same)",
    )
    add("--terminal", metavar="COLUMNS", type=positive, help=argparse.SUPPRESS)
    parser.set_defaults(ranks=None)  # this command starts its jobs itself


def _measured(parser: argparse.ArgumentParser) -> None:
    """Local. How much is measured in a cell."""
    add = parser.add_argument
    add(
        "--messages",
        metavar="N",
        type=positive,
        help=f"of a thread in an epoch, but for latency{_usual_number('messages')}",
    )
    add(
        "--window",
        metavar="BYTES",
        type=size,
        help="of a window: fewer messages where they are large (default 64M, quick 8M, and more "
        "where one message of every thread needs it)",
    )
    add(
        "--neighbours",
        metavar="N",
        type=neighbours,
        default=6,
        help="of a rank in rate-halo (default 6)",
    )
    add(
        "--runs",
        metavar="N",
        type=positive,
        help=f"of a cell, with new threads and a new window{_usual_number('runs')}",
    )
    add("--iterations", metavar="N", type=positive, help=f"of a run{_usual_number('iterations')}")
    add(
        "--seconds",
        metavar="S",
        type=seconds,
        help=f"of a run, with fewer iterations where they take longer{_usual_number('seconds')}",
    )
    add(
        "--limit",
        metavar="S",
        type=seconds,
        help=f"a cell that takes longer hangs{_usual_number('limit')}",
    )
    add(
        "--batch",
        metavar="N",
        type=positive,
        help="cells of a job; where one fails, another job goes on after it; "
        f"1: each has its own{_usual_number('batch')}",
    )


def bench_rma_mt_cells(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench rma-mt-cells``."""
    add = parser.add_argument
    add("cells", metavar="FILE", help="cells, as bench rma-mt writes them")
    add("-o", "--output", metavar="FILE", required=True, help="where outcomes are appended")
    add("--ranks", metavar="N", type=positive, help="start on N ranks with the installed mpiexec")
    add("--terminal", metavar="COLUMNS", type=positive, help=argparse.SUPPRESS)


def _usual_number(name: str) -> str:
    usual, quick = RMA_MT_USUAL[name]
    return f" (default {usual:g}; quick {quick:g})"


def _text(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, numbers))


BUFFER = "1M"
MESSAGE_SIZES = "64 256 1K 4K 16K 64K 256K 1M"
SENDING_THREADS = (1, 4, 16)
#: Those of :mod:`onesided.apps.papers.partitioned_sends`, which is not imported for a help text.
PARTITION_ORDERS = ("left-to-right", "randomized", "neighbourhood")
#: Nothing joined, and the default of :func:`onesided.collectives.Psend_init`.
AGGREGATES = (0, 65536)
EVERY = "all"


def size_or_nothing(text: str) -> int:
    """Local. A number of bytes, as :func:`size`, or 0."""
    return 0 if text == "0" else size(text)


def bench_partitioned(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench partitioned``."""
    common(parser, EVERY)
    timed(parser, 30)
    add = parser.add_argument
    add("--buffer", metavar="BYTES", type=size, default=size(BUFFER), help=f"default {BUFFER}")
    add(
        "--partition-sizes",
        metavar="BYTES",
        type=size,
        nargs="+",
        help=f"bytes of a partition (default {MESSAGE_SIZES}, as far as they fit the buffer)",
    )
    add(
        "--orders",
        choices=PARTITION_ORDERS,
        nargs="+",
        default=list(PARTITION_ORDERS),
        help="in which partitions are marked ready (default all)",
    )
    add(
        "--threads",
        metavar="N",
        type=positive,
        nargs="+",
        default=list(SENDING_THREADS),
        help="threads that mark; numbers after the first are tried with the first order only "
        f"(default {' '.join(map(str, SENDING_THREADS))})",
    )
    add(
        "--aggregates",
        metavar="BYTES",
        type=size_or_nothing,
        nargs="+",
        default=list(AGGREGATES),
        help="partitions are joined to groups of so many bytes; 0: not at all (default 0 64K)",
    )
    add(
        "--compute",
        metavar="MICROSECONDS",
        type=not_negative,
        default=0.0,
        help="work before a partition is ready, which the sender's threads share (default 0)",
    )
    add(
        "--memory",
        choices=("empty", "plain"),
        default="empty",
        help="of the receive buffer: from collectives.empty, or NumPy's (empty)",
    )
    add(
        "--python",
        action="store_true",
        help="count ours in Python as well, beside the compiled counter",
    )
    add("--seed", metavar="N", type=whole, default=0, help="of the randomized order (default 0)")
    add(
        "--targets",
        action="store_true",
        help="only what has a target: one thread, from left to right, beside what was measured",
    )
    add("--picture", metavar="PREFIX", help="draw Figures 3 to 6 into PREFIX-3.png and so on")


BROADCAST_SIZES = "2K 8K 16K 40K 256K 2M 8M"
KIBI_SWEEP = " ".join(f"{kibi}K" for kibi in range(2, 41, 2))
#: Those of :mod:`onesided.collectives.trees`, which is not imported for a help text.
ORDERS = ("largest-first", "low-bit-first")
MEBI_SWEEP = " ".join(f"{mebi}M" for mebi in range(2, 41, 2))


def bench_broadcast(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench broadcast``."""
    common(parser, "all")
    timed(parser, 30)
    add = parser.add_argument
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument(
        "--sizes",
        metavar="BYTES",
        type=size,
        nargs="+",
        default=[size(text) for text in BROADCAST_SIZES.split()],
        help=f"bytes of a message (default {BROADCAST_SIZES})",
    )
    sizes.add_argument(
        "--paper",
        dest="sizes",
        action="store_const",
        const=[size(text) for text in f"{KIBI_SWEEP} {MEBI_SWEEP}".split()],
        help="the sizes of paper 003: 2, 4 ... 40 KiB and 2, 4 ... 40 MiB",
    )
    add(
        "--ranks-list",
        metavar="N",
        type=positive,
        nargs="+",
        help="numbers of ranks, the first so many of the job (default 2, 3 ... 8, then 16, 24 ...)",
    )
    add(
        "--orders",
        choices=ORDERS,
        nargs="+",
        default=list(ORDERS),
        help="in which the children in a binomial tree are served (default both)",
    )
    add(
        "--memory",
        choices=("empty", "plain"),
        default="empty",
        help="of the persistent methods' buffers: from collectives.empty, or NumPy's (empty)",
    )
    add(
        "--warm-up",
        metavar="N",
        type=whole,
        default=0,
        help="untimed rounds first, besides the four that every measurement has (default 0)",
    )
    add(
        "--waiter-timeout",
        metavar="S",
        type=not_negative,
        default=0.001,
        help="longest sleep of an idle Broadcaster in seconds (0.001, as in the paper)",
    )
    add(
        "--flush-timeout",
        metavar="S",
        type=not_negative,
        default=0.001,
        help="longest sleep of a rank that waits for a passive broadcast (0.001, as in the paper)",
    )
    add("--picture", metavar="PREFIX", help="draw Figures 13 to 16 into PREFIX-13.png and so on")


ITERATIONS = 1000  # as in paper 000
INITS = 10
SCALINGS = ("weak", "strong")
PLACES = ("slots", "empty", "plain")
ROUND_SIZES = "64 1K 8K 32K 128K 1M 2M 16M"
PATTERNS = ("spmv", "rows")
APPLICATIONS = ("fft", "cg")
MESH = 200_000
#: Those of :mod:`onesided.apps.papers.operations`, which is not imported for a help text.
OPERATIONS = (
    "Barrier Bcast Gather Gatherv Scatter Scatterv Allgather Allgatherv Alltoall Alltoallv "
    "Alltoallw Reduce Allreduce Reduce_scatter Reduce_scatter_block Scan Exscan Neighbor_allgather "
    "Neighbor_allgatherv Neighbor_alltoall Neighbor_alltoallv Neighbor_alltoallw"
).split()
#: By the name of an option of ``bench collectives``: what it is usually, and in a quick run.
USUAL = {
    "sizes": ("8 64 256 1K 4K 16K 64K 256K 1M 4M", "8 1K 64K 1M"),
    "iterations": ("41", "9"),
    "seconds": ("120", "10"),
}


def _repeated(parser: argparse.ArgumentParser) -> None:
    """Local. What every benchmark of exchanges takes."""
    common(parser, "all")
    timed(parser, ITERATIONS)
    parser.add_argument(
        "--inits",
        metavar="N",
        type=positive,
        default=INITS,
        help=f"initialize and free every method N times (default {INITS})",
    )
    parser.add_argument(
        "--memory",
        choices=PLACES,
        nargs="+",
        default=["slots", "empty"],
        help="where requests receive: two slots of their own, an array from collectives.empty, "
        "NumPy's memory as in paper 000 (default slots empty)",
    )


def bench_alltoallv(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench alltoallv``."""
    _repeated(parser)
    add = parser.add_argument
    add(
        "--sizes",
        metavar="BYTES",
        type=size,
        nargs="+",
        default=[size(text) for text in SIZES.split()],
        help=f"bytes that each rank sends, its own block included (default {SIZES})",
    )
    add(
        "--ranks-list",
        metavar="N",
        type=positive,
        nargs="+",
        help="numbers of ranks, the first so many of the job (default 2, 4, 8 ... and all)",
    )
    add(
        "--scaling",
        choices=SCALINGS,
        nargs="+",
        default=list(SCALINGS),
        help="weak: these bytes per rank; strong: all ranks together send what the smallest "
        "number of ranks sends then (default both)",
    )
    add("--picture", metavar="PREFIX", help="draw Figures 1 and 2 into PREFIX-1.png and so on")


def bench_rounds(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench rounds``."""
    common(parser, None)
    timed(parser, 41)
    add = parser.add_argument
    add(
        "--sizes",
        metavar="BYTES",
        type=size,
        nargs="+",
        default=[size(text) for text in ROUND_SIZES.split()],
        help=f"bytes that each rank sends, its own block included (default {ROUND_SIZES})",
    )
    add(
        "--memory",
        choices=PLACES,
        nargs="+",
        default=list(PLACES),
        help="where requests receive (default all three)",
    )
    add(
        "--methods",
        metavar="METHOD",
        nargs="+",
        default=["rma-notify", "p2p", "mpi-persistent"],
        help="what auto is compared with (default the any-order methods among which it chooses)",
    )
    add("--strict", action="store_true", help="1 where a target is missed")


def bench_collectives(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench collectives``."""
    common(parser, None)
    add = parser.add_argument
    add(
        "--operations",
        metavar="NAME",
        choices=OPERATIONS,
        nargs="+",
        default=OPERATIONS,
        help=f"default all: {' '.join(OPERATIONS)}",
    )
    add(
        "--sizes",
        metavar="BYTES",
        type=size,
        nargs="+",
        help="bytes that a rank has, or of one block, as OSU's micro-benchmarks count them"
        + _usual("sizes"),
    )
    add(
        "--methods",
        metavar="METHOD",
        nargs="+",
        help="or all; an operation leaves out those that are none of its own (default auto, and "
        "the methods among which it chooses)",
    )
    add(
        "--memory",
        choices=("plain", "empty"),
        default="plain",
        help="where is received: NumPy's memory, or that of collectives.empty (default plain)",
    )
    add(
        "--iterations",
        metavar="N",
        type=positive,
        help=f"turns, in each of which every contestant is timed{_usual('iterations')}",
    )
    add(
        "--seconds",
        metavar="S",
        type=seconds,
        help=f"measure no longer than about S seconds, in fewer turns{_usual('seconds')}",
    )
    add("--quick", action="store_true", help="few sizes and turns")
    add("--strict", action="store_true", help="exit with 1 where a target is missed")
    add(
        "-o",
        "--output",
        metavar="DIR",
        help="keep what is measured in this folder: a run that was ended goes on from there",
    )
    add("--afresh", action="store_true", help="forget what DIR has from before")
    add("--picture", metavar="FILE", help="draw all ratios into an image FILE")


def _usual(name: str) -> str:
    usual, quick = USUAL[name]
    return f" (default {usual}; quick {quick})"


def bench_patterns(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench patterns``."""
    add = parser.add_argument
    add(
        "files",
        metavar="FILE",
        nargs="*",
        help="matrices, in any format that spmv reads (default: the matrix of the package)",
    )
    _repeated(parser)
    add(
        "--mesh",
        metavar="N",
        type=whole,
        default=MESH,
        help=f"also a generated mesh like hugetrace with N rows; 0 for none (default {MESH})",
    )
    add("--seed", metavar="N", type=whole, default=0, help="which curves of the mesh (default 0)")
    add(
        "--partition",
        choices=("rows", "metis", "rcm"),
        default="rows",
        help="rows in their order, METIS's parts, or reverse Cuthill-McKee order (default rows)",
    )
    add(
        "--patterns",
        choices=PATTERNS,
        nargs="+",
        default=list(PATTERNS),
        help="spmv: the halo of a product; rows: every nonzero to the owner of its column "
        "(default both)",
    )
    add(
        "--picture",
        metavar="PREFIX",
        help="draw Figures 3 and 4 into PREFIX-NAME-PATTERN-times.png and -heat.png",
    )


def bench_apps(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench apps``."""
    common(parser, "all")
    timed(parser, 20)
    add = parser.add_argument
    add(
        "--applications",
        choices=APPLICATIONS,
        nargs="+",
        default=list(APPLICATIONS),
        help="a Fourier transform forward and backward, conjugate gradients (default both)",
    )
    add(
        "--shape",
        metavar="N",
        type=positive,
        nargs="+",
        default=[128, 128, 128],
        help="global shape of the transformed array (default 128 128 128)",
    )
    add("--dtype", choices=("float32", "float64", "complex64", "complex128"), default="float64")
    add(
        "--points",
        metavar="N",
        type=positive,
        default=64,
        help="conjugate gradients on the 27-point grid of N**3 points (default 64)",
    )
    add("--matrix", metavar="FILE", help="or with the symmetric positive definite matrix of FILE")
    add(
        "--steps",
        metavar="N",
        type=positive,
        default=100,
        help="iterations of conjugate gradients (default 100)",
    )


def bench_all(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench all``; its ``--ranks`` are those of the jobs."""
    add = parser.add_argument
    add("-o", "--output", metavar="DIR", required=True, help="folder for the results")
    add("--quick", action="store_true", help="small and short: under 3 minutes on 2 cores")
    add(
        "--ranks",
        dest="job_ranks",
        metavar="N",
        type=positive,
        default=2,
        help="ranks of the measured jobs (default 2)",
    )
    add("--only", metavar="NAME", nargs="+", help="these experiments alone")
    add(
        "--limit",
        metavar="S",
        type=seconds,
        help="end an experiment that takes longer than S seconds (default: its own limit)",
    )
    add("--matrices", metavar="FILE", nargs="+", default=[], help="matrices for bench patterns")
    add("--terminal", metavar="COLUMNS", type=positive, help=argparse.SUPPRESS)
    parser.set_defaults(ranks=None)  # this command starts its jobs itself
