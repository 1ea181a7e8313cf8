"""What ``onesided heat`` can be given on the command line."""

from __future__ import annotations

import argparse

from onesided.apps.options import above_zero, common, positive, process_grid

#: Those of :mod:`onesided.apps.heat.halos.registry` that are no exchanges, for a help text.
OWN = "blocking, persistent (the reference), halo, partitioned"
COMM = "blocking,persistent,halo,partitioned,rma-fence"


def heat(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided heat``."""
    parser.epilog = f"METHOD may also be one of {OWN}."
    add = parser.add_argument
    add(
        "--shape",
        metavar="N",
        type=positive,
        nargs="+",
        default=[2048, 2048],
        help="points of the grid, along two or three axes (default 2048 2048)",
    )
    add("--steps", metavar="N", type=positive, default=200, help="time steps (default 200)")
    add(
        "--dt",
        metavar="T",
        type=above_zero,
        help="time step (default: nine tenths of the largest stable one)",
    )
    add("--alpha", metavar="A", type=above_zero, default=1.0, help="diffusivity (default 1)")
    add(
        "--peak",
        metavar="T",
        type=above_zero,
        default=1.0,
        help="temperature of the hottest spot at the start (default 1)",
    )
    add(
        "--boundary",
        metavar="NAME",
        choices=("periodic", "fixed"),
        nargs="+",
        default=["fixed"],
        help="periodic, or fixed at temperature 0: one for all axes, or one per axis (fixed)",
    )
    add("--dtype", choices=("float32", "float64"), default="float64")
    add(
        "--threads",
        metavar="N",
        type=positive,
        default=1,
        help="threads of every rank that compute, and mark what they have computed (default 1)",
    )
    add(
        "--pieces",
        metavar="N",
        type=positive,
        default=1,
        help="tiles at every face, sent one by one if partitioned (--threads of them at least)",
    )
    add(
        "--rounds",
        metavar="N",
        type=positive,
        default=10,
        help="the methods take turns so many times, each with its part of the steps (default 10)",
    )
    process_grid(parser)
    common(parser, COMM)
    add(
        "--verify",
        action="store_true",
        help="compute all steps on rank 0 as well; every byte must be the same",
    )
    add("--picture", metavar="FILE", help="draw the temperature at the end into an image FILE")
