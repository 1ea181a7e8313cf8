"""What ``onesided bench partitioned`` can be given on the command line."""

from __future__ import annotations

import argparse

from onesided.apps.generate_options import whole
from onesided.apps.options import common, not_negative, positive, size, timed

BUFFER = "1M"
SIZES = "64 256 1K 4K 16K 64K 256K 1M"
THREADS = (1, 4, 16)
#: Those of :mod:`onesided.apps.partitioned.orders`, which is not imported for a help text.
ORDERS = ("left-to-right", "randomized", "neighbourhood")
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
        help=f"bytes of a partition (default {SIZES}, as far as they fit the buffer)",
    )
    add(
        "--orders",
        choices=ORDERS,
        nargs="+",
        default=list(ORDERS),
        help="in which partitions are marked ready (default all)",
    )
    add(
        "--threads",
        metavar="N",
        type=positive,
        nargs="+",
        default=list(THREADS),
        help="threads that mark; numbers after the first are tried with the first order only "
        f"(default {' '.join(map(str, THREADS))})",
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
