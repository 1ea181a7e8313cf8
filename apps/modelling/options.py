"""What ``onesided model`` and ``onesided bench model`` can be given on the command line."""

from __future__ import annotations

import argparse

from onesided.apps.cli.options import common, positive, size, timed

#: Off the sizes that the parameters are fitted to, which are powers of two.
CHECKED = "1K 3K 12K 48K 192K 768K 3M"
SWEPT = "1K 8K 32K 128K 1M 2M 16M"
#: Those of :mod:`onesided.collectives.modelling.parameters`, which is not imported for a help text.
NETWORKS = ("paper", "gigabit", "infiniband")


def rank_counts(text: str) -> list[int]:
    """Local. A number of ranks, or ``28:448`` for 28 and its doubles up to 448 and 448 itself."""
    first, colon, last = text.partition(":")
    least = positive(first)
    if not colon:
        return [least]
    most = positive(last)
    if most < least:
        raise argparse.ArgumentTypeError(f"{text!r} goes down")
    counts = [least]
    while counts[-1] * 2 < most:
        counts.append(counts[-1] * 2)
    return counts if most == least else [*counts, most]


def bench_model(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench model``."""
    common(parser, "mpi,rma-fence,rma-lock")
    timed(parser, 60)
    parser.set_defaults(seconds=40.0)
    add = parser.add_argument
    add("--check", action="store_true", help="time the methods of --comm, and compare")
    add(
        "--sizes",
        metavar="BYTES",
        type=size,
        nargs="+",
        default=[size(text) for text in CHECKED.split()],
        help=f"bytes that each rank sends in the check, its own block included ({CHECKED})",
    )
    add("--parameters", metavar="FILE", help="check those of FILE, and find no others")
    add(
        "--keep",
        action="store_true",
        help="keep the parameters for programs that estimate (info key effort)",
    )


def model(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided model``."""
    common(parser, "all")
    add = parser.add_argument
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--parameters", metavar="FILE", help="parameters, as onesided bench model --json wrote them"
    )
    source.add_argument(
        "--network",
        choices=NETWORKS,
        help="parameters that come with this program, which says where they are from (paper)",
    )
    add(
        "--ranks-list",
        metavar="N",
        type=rank_counts,
        nargs="+",
        default=[rank_counts("28:448")],
        help="numbers of ranks; 28:448 is 28, 56 ... 448 (default)",
    )
    add("--per-node", metavar="N", type=positive, default=28, help="ranks of a node (default 28)")
    add(
        "--sizes",
        metavar="BYTES",
        type=size,
        nargs="+",
        default=[size(text) for text in SWEPT.split()],
        help=f"bytes that each rank sends, its own block included (default {SWEPT})",
    )
    add("--blocks", action="store_true", help="--sizes are those of a block, one for every rank")
    add("--paper", action="store_true", help="beside what paper 000 tells; draws its Figure 1")
    add("--picture", metavar="FILE", help="draw where which method is the fastest into an image")
