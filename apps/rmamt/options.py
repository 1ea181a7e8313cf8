"""What ``onesided bench rma-mt`` can be given on the command line."""

from __future__ import annotations

import argparse

from onesided.apps.options import positive, seconds, size

#: Those of :mod:`onesided.apps.rmamt`, which is not imported for a help text.
PATTERNS = ("latency", "bandwidth", "rate-pairs", "rate-halo")
SYNCS = ("fence", "pscw", "lock", "lock_all")
OPS = ("put", "get")
LEVELS = ("single", "multiple")
THREADS = (1, 2, 4, 8, 16)
QUICK_THREADS = (1, 4)
QUICK_SIZES = "1 1K 64K 1M"
#: Threads of a rank, at most.
MOST_THREADS = 64
LARGEST = "4M"
#: By the name of an option: what it is usually, and in a quick run.
USUAL = {
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
    add("--patterns", choices=PATTERNS, nargs="+", default=list(PATTERNS), help="default all")
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
        help=f"threads that transfer (default {_text(THREADS)}; quick {_text(QUICK_THREADS)})",
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
        help=f"of a thread in an epoch, but for latency{_usual('messages')}",
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
        help=f"of a cell, with new threads and a new window{_usual('runs')}",
    )
    add("--iterations", metavar="N", type=positive, help=f"of a run{_usual('iterations')}")
    add(
        "--seconds",
        metavar="S",
        type=seconds,
        help=f"of a run, with fewer iterations where they take longer{_usual('seconds')}",
    )
    add(
        "--limit",
        metavar="S",
        type=seconds,
        help=f"a cell that takes longer hangs{_usual('limit')}",
    )
    add(
        "--batch",
        metavar="N",
        type=positive,
        help="cells of a job; where one fails, another job goes on after it; "
        f"1: each has its own{_usual('batch')}",
    )


def bench_rma_mt_cells(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench rma-mt-cells``."""
    add = parser.add_argument
    add("cells", metavar="FILE", help="cells, as bench rma-mt writes them")
    add("-o", "--output", metavar="FILE", required=True, help="where outcomes are appended")
    add("--ranks", metavar="N", type=positive, help="start on N ranks with the installed mpiexec")
    add("--terminal", metavar="COLUMNS", type=positive, help=argparse.SUPPRESS)


def _usual(name: str) -> str:
    usual, quick = USUAL[name]
    return f" (default {usual:g}; quick {quick:g})"


def _text(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, numbers))
