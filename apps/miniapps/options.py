"""What every mini-application can be given on the command line."""

from __future__ import annotations

import argparse

from onesided.apps.cli.options import (
    above_zero,
    common,
    not_negative,
    positive,
    process_grid,
    whole,
)

SCALINGS = ("weak", "strong")
#: Names of :mod:`onesided.apps.miniapps.halos` that are no exchanges, for a help text.
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


HPCCG_COMM = "two-sided,lock-all-threads,rma-notify"
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
    mini(parser, HPCCG_COMM, "the error in a slice, after a tenth of the iterations,")


MESH_COMM = "two-sided,fence,fence-threads,rma-fence,rma-notify"
#: Names of :data:`onesided.apps.miniapps.minife_mesh.PROBLEMS`, which needs NumPy.
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
    mini(parser, MESH_COMM, "the temperature in a slice")


MESH_COMM = "two-sided,fence,fence-threads,rma-fence,rma-notify"
MD_RUNS = 5  # as many sets of neighbor lists as the standard problem has


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
        MESH_COMM,
        "the atoms in the middle of the box",
        MD_RUNS,
        "the steps are cut into N runs at most, where new neighbor lists are due; the methods take "
        "turns with each of them",
    )
