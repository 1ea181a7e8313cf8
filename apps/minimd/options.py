"""What ``onesided minimd`` can be given on the command line."""

from __future__ import annotations

import argparse

from onesided.apps.generate_options import whole
from onesided.apps.mini.options import HALOS, mini
from onesided.apps.options import above_zero, positive, process_grid

COMM = "two-sided,fence,fence-threads,rma-fence,rma-notify"
RUNS = 5  # as many sets of neighbor lists as the standard problem has


def minimd(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided minimd``."""
    parser.epilog = (
        f"METHOD may also be one of {HALOS}. With --verify the energy must be conserved as well."
    )
    add = parser.add_argument
    add(
        "input",
        metavar="FILE",
        nargs="?",
        help="input file of Mantevo's MiniMD; options replace what it says (default: its standard "
        "problem, with 10 x 10 x 10 lattice cells for every rank)",
    )
    add(
        "--cells",
        metavar="N",
        type=positive,
        nargs=3,
        help="lattice cells of the box along every axis, each with 4 atoms; with --scaling those "
        "of one rank's share (default 10 10 10 for every rank)",
    )
    add("--steps", metavar="N", type=positive, help="time steps (default 100)")
    add("--dt", metavar="T", type=above_zero, help="time step (default 0.005)")
    add("--temperature", metavar="T", type=above_zero, help="at the start (default 1.44)")
    add("--density", metavar="R", type=above_zero, help="atoms in a unit of volume (0.8442)")
    add("--every", metavar="N", type=positive, help="steps between neighbor lists (default 20)")
    add("--cutoff", metavar="R", type=above_zero, help="of the force (default 2.5)")
    add("--skin", metavar="R", type=above_zero, help="of the neighbor lists (default 0.3)")
    add(
        "--thermo",
        metavar="N",
        type=whole,
        help="steps between lines of output; 0: at the start and at the end (default 100)",
    )
    add("--kernel", metavar="NAME", default="auto", help="forces by numba or numpy (auto)")
    process_grid(parser)
    mini(
        parser,
        COMM,
        "the atoms in the middle of the box",
        RUNS,
        "the steps are cut into N runs at most, where new neighbor lists are due; the methods take "
        "turns with each of them",
    )
