"""What every mini-application can be given on the command line."""

from __future__ import annotations

import argparse

from onesided.apps.cli.options import run_options, take, whole

#: Names of :mod:`onesided.apps.miniapps.halos` that are no exchanges, for a help text.
HALOS = "two-sided (the reference, always there), fence, fence-threads, lock-all-threads, halo"
MESH_COMM = "two-sided,fence,fence-threads,rma-fence,rma-notify"


def _mini(parser: argparse.ArgumentParser, comm: str, shape: str, note: str) -> None:
    parser.epilog = f"METHOD may also be one of {HALOS}."
    take(parser, "shape", shape or None, note, said="" if shape else "10 for every rank")
    run_options(parser, comm)
    take(parser, "repeats", "7", "six are needed for intervals")
    take(parser, "scaling", said="none, one run on all ranks")
    take(parser, "ranks-list", note="with --scaling", said="1, 2, 4 ... and all of the job")
    take(parser, "verify", note="a run of rank 0 alone")
    take(parser, "picture", note="the time over that of two-sided, as in Figure 8 of the paper")


def hpccg(parser: argparse.ArgumentParser) -> None:
    note = "points of every rank's box, one number for a cube; the boxes are stacked along z"
    _mini(parser, "two-sided,lock-all-threads,rma-notify", "64", note)
    take(parser, "iterations", "150", "of conjugate gradients in a run")


def minife(parser: argparse.ArgumentParser) -> None:
    note = "elements of a rank's share, one number for a cube; the shares are stacked along z"
    _mini(parser, MESH_COMM, "64", note)
    take(parser, "iterations", "100", "of conjugate gradients in a run")


def minimd(parser: argparse.ArgumentParser) -> None:
    note = "lattice cells of 4 atoms, one number for a cube; with --scaling of one rank's share"
    _mini(parser, MESH_COMM, "", note)
    take(parser, "steps", "140", "cut into --repeats runs where new neighbor lists are due")
    take(parser, "dt", "0.005")
    take(parser, "print-every", "100", "0: at the start and at the end", type=whole)
