"""What ``onesided hpccg`` can be given on the command line."""

from __future__ import annotations

import argparse

from onesided.apps.mini.options import HALOS, mini
from onesided.apps.options import positive

COMM = "two-sided,lock-all-threads,rma-notify"
SIZE = 64
ITERATIONS = 150


def hpccg(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided hpccg``."""
    parser.epilog = f"METHOD may also be one of {HALOS}."
    add = parser.add_argument
    add(
        "--size",
        metavar="N",
        type=positive,
        nargs="+",
        default=[SIZE],
        help="points of every rank's box: one number for a cube, or three along x, y and z, in "
        f"which the boxes are stacked (default {SIZE})",
    )
    add(
        "--iterations",
        metavar="N",
        type=positive,
        default=ITERATIONS,
        help=f"iterations of conjugate gradients in a run (default {ITERATIONS})",
    )
    mini(parser, COMM, "the error in a slice, after a tenth of the iterations,")
