"""What ``onesided minimd`` can be given on the command line."""

from __future__ import annotations

import argparse

from onesided.apps.generate_options import whole
from onesided.apps.options import above_zero, common, positive, process_grid

#: Those of :mod:`onesided.apps.minimd.ways.registry` that are no exchanges, for a help text.
OWN = "two-sided (the reference), fence, fence-threads, partitioned"
COMM = "two-sided,fence,rma-fence,rma-lock,rma-notify,p2p"
WEAK, STRONG = "weak", "strong"


def minimd(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided minimd``."""
    parser.epilog = f"METHOD may also be one of {OWN}."
    add = parser.add_argument
    add(
        "input",
        metavar="FILE",
        nargs="?",
        help="input file of Mantevo's MiniMD; options replace what it says (default: its standard "
        "problem, with 10 lattice cells for every rank along each axis)",
    )
    add(
        "--cells",
        metavar="N",
        type=positive,
        nargs=3,
        help="lattice cells of the box along every axis, each with 4 atoms",
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
    add(
        "--rounds",
        metavar="N",
        type=positive,
        default=5,
        help="the methods take turns so many times, each with its part of the steps (default 5)",
    )
    add(
        "--scaling",
        choices=(WEAK, STRONG),
        help="run on the first 1, 2, 4 ... ranks: each with as many cells (weak), or the same box",
    )
    add(
        "--ranks-list",
        metavar="N",
        type=positive,
        nargs="+",
        help="numbers of ranks for --scaling (default 1 2 4 ... and all)",
    )
    process_grid(parser)
    common(parser, COMM)
    add(
        "--verify",
        action="store_true",
        help="compare the output with that of one rank; check that the energy is conserved",
    )
    add("--picture", metavar="FILE", help="draw the atoms in the middle of the box into FILE")
