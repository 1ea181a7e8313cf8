"""What ``onesided bench broadcast`` can be given on the command line."""

from __future__ import annotations

import argparse

from onesided.apps.generate_options import whole
from onesided.apps.options import common, not_negative, positive, size, timed

SIZES = "2K 8K 16K 40K 256K 2M 8M"
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
        default=[size(text) for text in SIZES.split()],
        help=f"bytes of a message (default {SIZES})",
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
