"""What the benchmarks of the papers' experiments can be given on the command line."""

from __future__ import annotations

import argparse

from onesided.apps.cli import options as cli
from onesided.apps.cli.options import ALL, InputFile, run_options, take, timed

# Names of what a benchmark knows are written here again: it is not imported for a help text.

#: Where the benchmarks receive that have no slots of a request.
ARRAYS = ("empty", "plain")
ARRAYS_NOTE = "in memory from collectives.empty, or in NumPy's"
MESSAGE_SIZES = "64 256 1K 4K 16K 64K 256K 1M"
MOST_THREADS = 64  # of a rank


def few(text: str) -> int:
    """Local. A number of threads of a rank."""
    number: int = cli.positive(text)
    if number > MOST_THREADS:
        raise argparse.ArgumentTypeError(f"{number}: at most {MOST_THREADS} of a rank")
    return number


def bench_rma_mt(parser: argparse.ArgumentParser) -> None:
    run_options(parser, None, info=False)
    timed(parser, "50", "600")
    note = "a case, with --ranks; it measures for half of S, and is tried once more by its variants"
    take(parser, "limit", "120", note)
    take(parser, "patterns", ALL, choices=("latency", "bandwidth", "rate-pairs", "rate-halo"))
    take(parser, "threads", "1 2 4 8 16", "which transfer", many=True, type=few)
    take(parser, "sizes", "1 8 64 512 4K 32K 256K 1M 4M", "of a message")


def bench_partitioned(parser: argparse.ArgumentParser) -> None:
    run_options(parser, ALL, info=False)
    timed(parser, "30")
    parser.add_argument("--buffer", metavar="BYTES", type=cli.size, default=cli.size("1M"),
                        help="default 1M")  # fmt: skip
    said = f"{MESSAGE_SIZES}, as far as they fit the buffer"
    take(parser, "sizes", note="of a partition", said=said)
    orders = ("left-to-right", "randomized", "neighborhood")
    take(parser, "orders", ALL, "in which partitions are marked ready", choices=orders)
    note = "which mark; numbers after the first are tried with the first order only"
    take(parser, "threads", "1 4 16", note, many=True, type=few)
    take(parser, "memory", "empty", ARRAYS_NOTE, choices=ARRAYS)


def bench_broadcast(parser: argparse.ArgumentParser) -> None:
    run_options(parser, ALL)
    timed(parser, "30")
    take(parser, "sizes", "2K 8K 16K 40K 256K 2M 8M", "of a message")
    take(parser, "ranks-list", said="2, 3 ... 8, then 16, 24 ... of the job")
    take(parser, "memory", "empty", f"{ARRAYS_NOTE}, by the persistent methods", choices=ARRAYS)


PLACES = ("slots", "empty", "plain")
PLACES_NOTE = (
    "in two slots of the request, in an array from collectives.empty, in NumPy's memory as in "
    "paper 000"
)
OPERATIONS = (
    "Barrier Bcast Gather Gatherv Scatter Scatterv Allgather Allgatherv Alltoall Alltoallv "
    "Alltoallw Reduce Allreduce Reduce_scatter Reduce_scatter_block Scan Exscan Neighbor_allgather "
    "Neighbor_allgatherv Neighbor_alltoall Neighbor_alltoallv Neighbor_alltoallw"
).split()


def _repeated(parser: argparse.ArgumentParser) -> None:
    run_options(parser, ALL)
    timed(parser, "1000")  # as in paper 000
    take(parser, "repeats", "10", "set-ups, which are timed")
    take(parser, "memory", "slots empty", PLACES_NOTE, many=True, choices=PLACES)


def bench_alltoallv(parser: argparse.ArgumentParser) -> None:
    _repeated(parser)
    take(parser, "sizes", cli.SIZES, "that each rank sends, its own block included")
    take(parser, "ranks-list", said="2, 4, 8 ... and all of the job")
    note = "all ranks together send what the smallest number of ranks sends then"
    take(parser, "scaling", ALL, note)


def bench_rounds(parser: argparse.ArgumentParser) -> None:
    run_options(parser, "auto,rma-notify,p2p,mpi-persistent")
    timed(parser, "41")
    take(parser, "repeats", "20", "set-ups, which are timed")
    take(parser, "sizes", f"64 {cli.SIZES}", "that each rank sends, its own block included")
    take(parser, "memory", ALL, PLACES_NOTE, many=True, choices=PLACES)


def bench_collectives(parser: argparse.ArgumentParser) -> None:
    note = "an operation leaves out those that are none of its own"
    take(parser, "comm", note=note, said="auto, and the methods among which it chooses")
    run_options(parser, None)
    said = f"default all: {' '.join(OPERATIONS)}"
    parser.add_argument("--operations", metavar="NAME", choices=[*OPERATIONS, ALL], nargs="+",
                        action=cli.Several, default=OPERATIONS, help=said)  # fmt: skip
    note = "that a rank has, or of one block, as OSU's micro-benchmarks count them"
    take(parser, "sizes", "8 64 256 1K 4K 16K 64K 256K 1M 4M", note)
    note = "in NumPy's memory, or in that of collectives.empty"
    take(parser, "memory", "plain", note, choices=ARRAYS)
    timed(parser, "41")


def bench_patterns(parser: argparse.ArgumentParser) -> None:
    help_text = "matrices, in any format that spmv reads (default: the matrix of the package)"
    parser.add_argument("files", metavar="FILE", type=InputFile, nargs="*", help=help_text)
    _repeated(parser)
    take(parser, "mesh", "200000")
    take(parser, "seed", "0", "the curves of the mesh")
    take(parser, "partition", "rows")
    note = "spmv: the halo of a product; rows: every nonzero to the owner of its column"
    take(parser, "patterns", ALL, note, choices=("spmv", "rows"))


def bench_apps(parser: argparse.ArgumentParser) -> None:
    run_options(parser, ALL)
    timed(parser, "20")
    parser.add_argument(
        "--applications", choices=("fft", "cg"), nargs="+", default=["fft", "cg"],
        help="a Fourier transform forward and backward, conjugate gradients (default both)")
    note = "of the transformed array, and of the 27-point grid of conjugate gradients"
    take(parser, "shape", note=note, said="128 128 128, and 64 64 64")
    take(parser, "dtype", "float64", "of the transformed array")
    take(parser, "maxiter", "100", "conjugate gradients take all of them")


def bench_all(parser: argparse.ArgumentParser) -> None:
    take(parser, "output", note="a folder for the results", type=cli.FolderName, required=True)
    take(parser, "quick", note="some 3 minutes on 2 cores")
    take(parser, "ranks", "2")
    parser.add_argument("--only", metavar="NAME", nargs="+", help="these experiments alone")
    take(parser, "limit", note="an experiment", said="its own")
    take(parser, "matrices", note="for bench patterns")
