"""What the benchmarks of the papers' experiments can be given on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from onesided.apps.cli.options import (
    ALL,
    SIZES,
    FolderName,
    InputFile,
    not_negative,
    positive,
    run_options,
    seconds,
    size,
    take,
    timed,
    whole,
)

#: Those of :mod:`onesided.apps.papers.rmamt_cell`, which is not imported for a help text.
RMA_MT_PATTERNS = ("latency", "bandwidth", "rate-pairs", "rate-halo")
SYNCS = ("fence", "pscw", "lock", "lock_all")
OPS = ("put", "get")
LEVELS = ("single", "multiple")
QUICK_SIZES = "1 1K 64K 1M"
#: Of a window, usually and in a quick run, unless a message of every thread needs more.
WINDOWS = ("64M", "8M")
#: Threads or neighbors of a rank, at most.
MOST_THREADS = 64
LARGEST = "4M"


def few(text: str) -> int:
    """Local. A number of threads or neighbors of a rank."""
    number: int = positive(text)
    if number > MOST_THREADS:
        raise argparse.ArgumentTypeError(f"{number}: at most {MOST_THREADS} of a rank")
    return number


def _some(parser: argparse.ArgumentParser, name: str, choices: Sequence[str], note: str) -> None:
    """Local. An option that takes some words of a list, all where nothing is given."""
    parser.add_argument(
        f"--{name}", choices=choices, nargs="+", default=list(choices), help=note
    )


def bench_rma_mt(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench rma-mt``."""
    parser.epilog = (
        "Cells that the folder has from before are not measured again: a sweep that was killed "
        "goes on. rate-pairs takes an even number of ranks, latency and bandwidth take 2."
    )
    add = parser.add_argument
    take(parser, "output", note="a folder for what is measured", type=FolderName, required=True)
    take(parser, "quick", note="under 5 minutes on 2 cores")
    take(parser, "strict")
    take(parser, "ranks", "2")
    take(parser, "patterns", ALL, choices=RMA_MT_PATTERNS)
    _some(parser, "syncs", SYNCS, "default all")
    _some(parser, "ops", OPS, "default both")
    note = "thread levels of MPI; with single the main thread transfers alone (default both)"
    _some(parser, "thread-levels", LEVELS, note)
    take(parser, "threads", "1 2 4 8 16", "which transfer", quick="1 4", many=True, type=few)
    said = (
        f"powers of two from 1 to {LARGEST}, for latency and bandwidth none from 2 to 8, as in "
        f"paper 002; quick {QUICK_SIZES}"
    )
    take(parser, "sizes", note="of a message", said=said)
    add("--messages", metavar="N", type=positive, default=256,
        help="of a thread in an epoch, but for latency (default 256)")  # fmt: skip
    usual, quick = WINDOWS
    add("--window", metavar="BYTES", type=size,
        help=f"of a window: fewer messages where they are large (default {usual}, quick {quick}, "
        "and more where one message of every thread needs it)")  # fmt: skip
    add("--neighbors", metavar="N", type=few, default=6,
        help="of a rank in rate-halo (default 6)")  # fmt: skip
    take(parser, "repeats", "5", "with new threads and a new window", quick="2")
    take(parser, "iterations", "200", "in a run", quick="40")
    add("--run-seconds", metavar="S", type=seconds,
        help="of a run, with fewer iterations where they take longer (default 0.2; quick 0.04)",
        )  # fmt: skip
    take(parser, "limit", "60", "a cell, which hangs then", quick="20")
    add("--batch", metavar="N", type=positive,
        help="cells of a job; where one fails, another job goes on after it; 1: each has its own "
        "(default 20; quick 64)")  # fmt: skip
    parser.usual |= {"run_seconds": (0.2, 0.04), "batch": (20, 64)}  # type: ignore[attr-defined]
    take(parser, "afresh")
    add("--retry", action="store_true", help="measure again what failed before")
    take(parser, "json", said="rma-mt.json in the folder")
    add("--second", metavar="DIR",
        help="draw Figures 5 to 7 of this folder, measured with another MPI (default: the same)",
        )  # fmt: skip
    take(parser, "terminal")


def bench_rma_mt_cells(parser: argparse.ArgumentParser) -> None:
    """Local. Of a job of ``bench rma-mt``, which measures the cells of a file."""
    parser.add_argument("cells", metavar="FILE")
    take(parser, "output", required=True, type=str)
    take(parser, "ranks")
    take(parser, "terminal")


#: Where the benchmarks receive that have no slots of a request.
ARRAYS = ("empty", "plain")
ARRAYS_NOTE = "in memory from collectives.empty, or in NumPy's"
BUFFER = "1M"
MESSAGE_SIZES = "64 256 1K 4K 16K 64K 256K 1M"
#: Those of :mod:`onesided.apps.papers.partitioned_sends`, which is not imported for a help text.
PARTITION_ORDERS = ("left-to-right", "randomized", "neighborhood")
#: Nothing joined, and the default of :func:`onesided.collectives.Psend_init`.
AGGREGATES = (0, 65536)


def size_or_nothing(text: str) -> int:
    """Local. A number of bytes, as :func:`size`, or 0."""
    return 0 if text == "0" else size(text)


def bench_partitioned(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench partitioned``."""
    run_options(parser, ALL)
    timed(parser, "30")
    add = parser.add_argument
    add("--buffer", metavar="BYTES", type=size, default=size(BUFFER), help=f"default {BUFFER}")
    said = f"{MESSAGE_SIZES}, as far as they fit the buffer"
    take(parser, "sizes", note="of a partition", said=said)
    take(parser, "orders", ALL, "in which partitions are marked ready", choices=PARTITION_ORDERS)
    note = "which mark; numbers after the first are tried with the first order only"
    take(parser, "threads", "1 4 16", note, many=True)
    add("--aggregates", metavar="BYTES", type=size_or_nothing, nargs="+", default=list(AGGREGATES),
        help="partitions are joined to groups of so many bytes; 0: not at all (default 0 64K)",
        )  # fmt: skip
    add("--compute", metavar="MICROSECONDS", type=not_negative, default=0.0,
        help="work before a partition is ready, which the sender's threads share (default 0)",
        )  # fmt: skip
    take(parser, "memory", "empty", ARRAYS_NOTE, choices=ARRAYS)
    add("--python", action="store_true",
        help="count ours in Python as well, beside the compiled counter")  # fmt: skip
    take(parser, "seed", "0", "the randomized order")
    take(parser, "targets", note="one thread, from left to right")
    take(parser, "strict")
    take(parser, "picture", note="Figures 3 to 6, FILE-3 and so on")


BROADCAST_SIZES = "2K 8K 16K 40K 256K 2M 8M"
PAPER_SIZES = [each << shift for shift in (10, 20) for each in range(2, 41, 2)]
#: Those of :mod:`onesided.collectives.trees`, which is not imported for a help text.
ORDERS = ("largest-first", "low-bit-first")


def bench_broadcast(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench broadcast``."""
    run_options(parser, ALL)
    timed(parser, "30")
    add = parser.add_argument
    sizes = parser.add_mutually_exclusive_group()
    take(sizes, "sizes", BROADCAST_SIZES, "of a message")
    take(sizes, "paper", note="the sizes of paper 003, 2, 4 ... 40 KiB and 2, 4 ... 40 MiB")
    take(parser, "ranks-list", said="2, 3 ... 8, then 16, 24 ... of the job")
    note = "in which the children in a binomial tree are served"
    take(parser, "orders", ALL, note, choices=ORDERS)
    note = f"{ARRAYS_NOTE}, by the persistent methods"
    take(parser, "memory", "empty", note, choices=ARRAYS)
    add("--warm-up", metavar="N", type=whole, default=0,
        help="untimed rounds first, besides the four that every measurement has (default 0)",
        )  # fmt: skip
    add("--waiter-timeout", metavar="S", type=not_negative, default=0.001,
        help="longest sleep of an idle Broadcaster in seconds (0.001, as in the paper)",
        )  # fmt: skip
    add("--flush-timeout", metavar="S", type=not_negative, default=0.001,
        help="longest sleep of a rank that waits for a passive broadcast (0.001, as in the paper)",
        )  # fmt: skip
    take(parser, "picture", note="Figures 13 to 16, FILE-13 and so on")


ITERATIONS = "1000"  # as in paper 000
PLACES = ("slots", "empty", "plain")
PLACES_NOTE = (
    "in two slots of the request, in an array from collectives.empty, in NumPy's memory as in "
    "paper 000"
)
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


def _repeated(parser: argparse.ArgumentParser) -> None:
    """Local. What every benchmark of exchanges takes."""
    run_options(parser, ALL)
    timed(parser, ITERATIONS)
    take(parser, "repeats", "10", "set-ups, which are timed")
    take(parser, "memory", "slots empty", PLACES_NOTE, many=True, choices=PLACES)


def bench_alltoallv(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench alltoallv``."""
    _repeated(parser)
    take(parser, "sizes", SIZES, "that each rank sends, its own block included")
    take(parser, "ranks-list", said="2, 4, 8 ... and all of the job")
    note = "all ranks together send what the smallest number of ranks sends then"
    take(parser, "scaling", ALL, note)
    take(parser, "picture", note="Figures 1 and 2, FILE-1 and so on")


def bench_rounds(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench rounds``."""
    run_options(parser, "rma-notify,p2p,mpi-persistent")
    timed(parser, "41")
    take(parser, "sizes", ROUND_SIZES, "that each rank sends, its own block included")
    take(parser, "memory", ALL, PLACES_NOTE, many=True, choices=PLACES)
    take(parser, "strict")


def bench_collectives(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench collectives``."""
    note = "an operation leaves out those that are none of its own"
    take(parser, "comm", note=note, said="auto, and the methods among which it chooses")
    run_options(parser, None)
    parser.add_argument(
        "--operations", metavar="NAME", choices=OPERATIONS, nargs="+", default=OPERATIONS,
        help=f"default all: {' '.join(OPERATIONS)}",
    )  # fmt: skip
    note = "that a rank has, or of one block, as OSU's micro-benchmarks count them"
    take(parser, "sizes", "8 64 256 1K 4K 16K 64K 256K 1M 4M", note, quick="8 1K 64K 1M")
    note = "in NumPy's memory, or in that of collectives.empty"
    take(parser, "memory", "plain", note, choices=ARRAYS)
    take(parser, "iterations", "41", quick="9")
    take(parser, "seconds", "120", quick="10")
    take(parser, "quick", note="few sizes and iterations")
    take(parser, "strict")
    note = "a folder for what is measured; a run that was ended goes on from there"
    take(parser, "output", note=note, type=FolderName)
    take(parser, "afresh")
    take(parser, "picture", note="all ratios")


def bench_patterns(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench patterns``."""
    add = parser.add_argument
    add("files", metavar="FILE", type=InputFile, nargs="*",
        help="matrices, in any format that spmv reads (default: the matrix of the package)",
        )  # fmt: skip
    _repeated(parser)
    add("--mesh", metavar="N", type=whole, default=MESH,
        help=f"also a generated mesh like hugetrace with N rows; 0 for none (default {MESH})",
        )  # fmt: skip
    take(parser, "seed", "0", "the curves of the mesh")
    take(parser, "partition", "rows")
    note = "spmv: the halo of a product; rows: every nonzero to the owner of its column"
    take(parser, "patterns", ALL, note, choices=PATTERNS)
    take(parser, "picture", note="Figures 3 and 4, FILE-NAME-PATTERN-times and -heat")


def bench_apps(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench apps``."""
    run_options(parser, ALL)
    timed(parser, "20")
    note = "a Fourier transform forward and backward, conjugate gradients (default both)"
    _some(parser, "applications", APPLICATIONS, note)
    note = "of the transformed array, and of the 27-point grid of conjugate gradients"
    take(parser, "shape", note=note, said="128 128 128, and 64 64 64")
    take(parser, "dtype", "float64")
    parser.add_argument(
        "--matrix", metavar="FILE", type=InputFile,
        help="or with the symmetric positive definite matrix of FILE",
    )  # fmt: skip
    take(parser, "maxiter", "100", "conjugate gradients take all of them")


def bench_all(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench all``."""
    take(parser, "output", note="a folder for the results", type=FolderName, required=True)
    take(parser, "quick", note="under 3 minutes on 2 cores")
    take(parser, "ranks", "2")
    parser.add_argument("--only", metavar="NAME", nargs="+", help="these experiments alone")
    take(parser, "limit", note="an experiment", said="its own")
    take(parser, "matrices", note="for bench patterns")
    take(parser, "terminal")
