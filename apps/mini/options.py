"""What every mini-application can be given on the command line."""

from __future__ import annotations

import argparse

from onesided.apps.options import common, positive

SCALINGS = ("weak", "strong")
#: Names of :mod:`onesided.apps.mini.halos.registry` that are no exchanges, for a help text.
HALOS = "two-sided (the reference, always there), fence, fence-threads, lock-all-threads, halo"
RUNS = 3  # as in the paper


def mini(
    parser: argparse.ArgumentParser,
    comm: str,
    picture: str,
    runs: int = RUNS,
    what: str = "runs of every method, in turns",
) -> None:
    """Local. ``comm`` is the default of ``--comm``, ``runs`` that of ``--runs``.

    ``picture`` says what is drawn, ``what`` which runs these are.
    """
    common(parser, comm)
    add = parser.add_argument
    add(
        "--runs",
        metavar="N",
        type=positive,
        default=runs,
        help=f"{what} (default {runs})",
    )
    add(
        "--scaling",
        choices=SCALINGS,
        nargs="+",
        default=[],
        help="weak: the size is that of every rank; strong: all numbers of ranks solve the problem "
        "of the largest one (default: no scaling, one run on all ranks)",
    )
    add(
        "--ranks-list",
        metavar="N",
        type=positive,
        nargs="+",
        help="numbers of ranks for --scaling, the first so many of the job (default 1, 2, 4 ...)",
    )
    add("--verify", action="store_true", help="compare with a run of rank 0 alone")
    add("--picture", metavar="FILE", help=f"draw {picture} into an image FILE")
    add(
        "--overhead",
        metavar="FILE",
        help="draw the time over that of two-sided, by the number of ranks, into an image FILE",
    )
