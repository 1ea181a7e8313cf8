"""What the benchmarks of the papers' experiments can be given on the command line."""

from __future__ import annotations

import argparse

from onesided.apps.generate_options import whole
from onesided.apps.options import SIZES, common, positive, seconds, size, timed

ITERATIONS = 1000  # as in paper 000
INITS = 10
SCALINGS = ("weak", "strong")
PLACES = ("slots", "empty", "plain")
ROUND_SIZES = "64 1K 8K 32K 128K 1M 2M 16M"
PATTERNS = ("spmv", "rows")
APPLICATIONS = ("fft", "cg")
MESH = 200_000
#: Those of :mod:`onesided.apps.evidence.operations`, which is not imported for a help text.
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
