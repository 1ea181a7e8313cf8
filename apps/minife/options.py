"""What ``onesided minife`` can be given on the command line."""

from __future__ import annotations

import argparse

from onesided.apps.options import above_zero, common, not_negative, positive, timed

COMM = "two-sided,fence,rma-fence,rma-notify,auto"
#: Names of what the modules of this folder define, which import more than a help text may.
PROBLEMS, SCALINGS = ("smooth", "hot-wall"), ("weak", "strong")
OWN = "fence, fence-threads, two-sided (the reference), lock-all-threads"


def minife(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided minife``."""
    parser.epilog = f"METHOD may also be one of {OWN}."
    add = parser.add_argument
    add(
        "--size",
        metavar="N",
        type=positive,
        nargs="+",
        default=[64],
        help="elements along each axis, one number for a cube; of weak scaling: on one rank (64)",
    )
    add(
        "--problem",
        choices=PROBLEMS,
        default=PROBLEMS[0],
        help="a smooth temperature, or one hot wall as in the original (default smooth)",
    )
    add(
        "--distort",
        metavar="D",
        type=not_negative,
        default=0.0,
        help="move the nodes inside by up to D along an axis, D below 0.2 (default 0)",
    )
    add(
        "--levels",
        metavar="N",
        type=positive,
        default=3,
        help="meshes for the order of convergence, each with half the elements of the next (3)",
    )
    add("--rtol", metavar="R", type=above_zero, default=1e-10, help="of the solutions (1e-10)")
    add(
        "--maxiter",
        metavar="N",
        type=positive,
        default=5000,
        help="iterations of conjugate gradients for a solution at most (default 5000)",
    )
    add(
        "--steps",
        metavar="N",
        type=positive,
        default=50,
        help="iterations of conjugate gradients that are timed in a row (default 50)",
    )
    add(
        "--scaling",
        choices=SCALINGS,
        nargs="+",
        default=[],
        help="also on fewer ranks: as many elements on each (weak), or in all (strong)",
    )
    add(
        "--ranks-list",
        metavar="N",
        type=positive,
        nargs="+",
        help="numbers of ranks of --scaling (default 1 2 4 ... and all)",
    )
    common(parser, COMM)
    timed(parser, 5)
    add("--picture", metavar="FILE", help="draw the temperature in a slice into an image FILE")
