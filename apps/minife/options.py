"""What ``onesided minife`` can be given on the command line."""

from __future__ import annotations

import argparse

from onesided.apps.mini.options import HALOS, mini
from onesided.apps.options import above_zero, not_negative, positive

COMM = "two-sided,fence,fence-threads,rma-fence,rma-notify"
#: Names of :data:`onesided.apps.minife.problem.PROBLEMS`, which needs NumPy.
PROBLEMS = ("smooth", "hot-wall")


def minife(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided minife``."""
    parser.epilog = f"METHOD may also be one of {HALOS}."
    add = parser.add_argument
    add(
        "--size",
        metavar="N",
        type=positive,
        nargs="+",
        default=[64],
        help="elements along each axis, one number for a cube; with --scaling those of one rank's "
        "share (default 64)",
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
        help="move the nodes inside by up to D, below about 0.2 (default 0)",
    )
    add(
        "--levels",
        metavar="N",
        type=positive,
        help="meshes for the order of convergence, each with half the elements of the next along "
        "an axis; --size is the last (default 3, if it is large enough)",
    )
    add(
        "--iterations",
        metavar="N",
        type=positive,
        default=100,
        help="iterations of conjugate gradients in a timed run (default 100)",
    )
    add(
        "--rtol",
        metavar="R",
        type=above_zero,
        default=1e-10,
        help="relative residual of the solutions, which are not timed (default 1e-10)",
    )
    add(
        "--maxiter",
        metavar="N",
        type=positive,
        default=5000,
        help="iterations that a solution may take (default 5000)",
    )
    mini(parser, COMM, "the temperature in a slice")
