"""What every mini-application can be given on the command line."""

from __future__ import annotations

import argparse

from onesided.apps.cli.options import above_zero, not_negative, positive, run_options, take, whole

#: Names of :mod:`onesided.apps.miniapps.halos` that are no exchanges, for a help text.
HALOS = "two-sided (the reference, always there), fence, fence-threads, lock-all-threads, halo"
RUNS = "3"  # as in the paper


def mini(
    parser: argparse.ArgumentParser, comm: str, picture: str, repeats: str = RUNS, what: str = ""
) -> None:
    """Local. ``comm`` and ``repeats`` are defaults.

    ``picture`` says what is drawn, ``what`` which runs are repeated.
    """
    run_options(parser, comm)
    take(parser, "repeats", repeats, what)
    take(parser, "scaling", said="none, one run on all ranks")
    take(parser, "ranks-list", note="with --scaling", said="1, 2, 4 ... and all of the job")
    take(parser, "verify", note="a run of rank 0 alone")
    take(
        parser,
        "picture",
        note=f"{picture}; with --scaling also the time over that of two-sided, into FILE-overhead",
    )


HPCCG_COMM = "two-sided,lock-all-threads,rma-notify"


def hpccg(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided hpccg``."""
    parser.epilog = f"METHOD may also be one of {HALOS}."
    take(
        parser,
        "shape",
        "64",
        "points of every rank's box, one number for a cube; the boxes are stacked along z",
    )
    take(parser, "iterations", "150", "of conjugate gradients in a run")
    mini(parser, HPCCG_COMM, "the error in a slice, after a tenth of the iterations")


MESH_COMM = "two-sided,fence,fence-threads,rma-fence,rma-notify"
#: Names of :data:`onesided.apps.miniapps.minife_mesh.PROBLEMS`, which needs NumPy.
PROBLEMS = ("smooth", "hot-wall")


def minife(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided minife``."""
    parser.epilog = f"METHOD may also be one of {HALOS}."
    add = parser.add_argument
    take(
        parser,
        "shape",
        "64",
        "elements, one number for a cube; with --scaling those of one rank's share",
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
    take(parser, "levels", note="for the order of convergence", said="3, if they are large enough")
    take(parser, "iterations", "100", "of conjugate gradients in a run")
    take(parser, "rtol", "1e-10", "of the solutions, which are not timed", type=above_zero)
    take(parser, "maxiter", "5000")
    mini(parser, MESH_COMM, "the temperature in a slice")


MD_REPEATS = "5"  # as many sets of neighbor lists as the standard problem has


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
    take(
        parser,
        "shape",
        note="lattice cells of 4 atoms, one number for a cube; with --scaling those of one rank's "
        "share",
        said="10 for every rank",
    )
    take(parser, "steps", said="100")
    take(parser, "dt", said="0.005")
    add("--temperature", metavar="T", type=above_zero, help="at the start (default 1.44)")
    add("--density", metavar="R", type=above_zero, help="atoms in a unit of volume (0.8442)")
    add(
        "--neighbor-every",
        metavar="N",
        type=positive,
        help="steps between neighbor lists (default 20)",
    )
    add("--cutoff", metavar="R", type=above_zero, help="of the force (default 2.5)")
    add("--skin", metavar="R", type=above_zero, help="of the neighbor lists (default 0.3)")
    take(parser, "print-every", note="0: at the start and at the end", said="100", type=whole)
    add("--kernel", metavar="NAME", default="auto", help="forces by numba or numpy (auto)")
    take(parser, "grid", "auto")
    mini(
        parser,
        MESH_COMM,
        "the atoms in the middle of the box",
        MD_REPEATS,
        "the steps are cut into N at most, where new neighbor lists are due",
    )
