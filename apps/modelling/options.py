"""What ``onesided model`` and ``onesided bench model`` can be given on the command line."""

from __future__ import annotations

import argparse

from onesided.apps.cli.options import above_zero, positive, run_options, size, take, timed

#: Off the sizes that the parameters are fitted to, which are powers of two.
CHECKED = "1K 3K 12K 48K 192K 768K 3M"
SWEPT = "1K 8K 32K 128K 1M 2M 16M"
#: Those of :mod:`onesided.collectives.modelling.parameters`, which is not imported for a help text.
NETWORKS = ("paper", "gigabit", "infiniband")
#: Those of :mod:`onesided.apps.modelling.check`, which is not imported for it either.
PATTERNS = ("uniform", "irregular", "pairs")
#: Those of :mod:`onesided.apps.modelling.programs`, likewise.
PROGRAMS = ("spmv", "cg", "fft")


def bench_model(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench model``."""
    run_options(parser, "mpi,rma-fence,rma-lock")
    timed(parser, "60", "40")
    take(parser, "verify", note="what the model predicts with the times of the methods of --comm")
    take(parser, "sizes", CHECKED, "that each rank sends for --verify, its own block included")
    note = "uniform, irregular, or a rank with the one at its place on the next node"
    take(parser, "patterns", "uniform", note, choices=PATTERNS)
    take(parser, "parameters", note="verify these, and find no others")
    parser.add_argument(
        "--keep",
        action="store_true",
        help="keep the parameters for programs that estimate (info key effort)",
    )


def model(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided model``."""
    run_options(parser, "all")
    source = parser.add_mutually_exclusive_group()
    take(source, "parameters")
    source.add_argument(
        "--network",
        choices=NETWORKS,
        help="parameters that come with this program, which says where they are from (paper)",
    )
    take(parser, "ranks-list", "28:448")
    parser.add_argument(
        "--per-node", metavar="N", type=positive, default=28, help="ranks of a node (default 28)"
    )
    take(parser, "sizes", SWEPT, "that each rank sends, its own block included")
    parser.add_argument(
        "--blocks", action="store_true", help="--sizes are those of a block, one for every rank"
    )
    take(parser, "paper", note="beside what paper 000 tells; draws its Figure 1")
    take(parser, "picture", note="where which method is the fastest, or the times of --program")
    parser.add_argument(
        "--program",
        choices=PROGRAMS,
        help="follow a program on --ranks-list, not a round: products of a stencil's matrix, CG "
        "with it, or transforms",
    )
    take(parser, "shape", "512", "of the cube of --program; of a rank's part if weak")
    take(parser, "scaling", "strong", "of --program", many=False)
    parser.add_argument(
        "--bandwidth",
        metavar="BYTES",
        type=size,
        default=size("4G"),
        help="that a rank of --program moves in a second, assumed (default 4G)",
    )
    parser.add_argument(
        "--flops",
        metavar="N",
        type=above_zero,
        default=4e9,
        help="of floating point that a rank of --program does in a second, assumed (default 4e9)",
    )
