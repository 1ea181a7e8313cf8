"""What the commands of this room can be given on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from onesided.apps.cli import options as cli
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.options import InputFile, not_negative, run_options, take, timed
from onesided.apps.miniapps.options import HALOS

WAYS = (
    f"{HALOS}, grid (neighbors write into the block itself), persistent (messages of packed faces, "
    "by hand)"
)


def _checkpoints(parser: argparse.ArgumentParser) -> None:
    """Local. For the commands that follow something over time steps."""
    take(parser, "checkpoint")
    take(parser, "save-every")
    take(parser, "restart", note="a checkpoint, on any number of ranks; its settings hold")


def heat(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided heat``; None is what a checkpoint may decide."""
    parser.epilog = f"METHOD may also be one of {WAYS}."
    take(parser, "shape", None, "along two or three axes", said="2048 2048")
    take(parser, "steps", "200")
    take(parser, "dt", said="nine tenths of the largest stable one")
    take(parser, "boundary", None, "periodic, or fixed at temperature 0", said="fixed",
         choices=("periodic", "fixed"))  # fmt: skip
    take(parser, "dtype", said="float64", choices=("float32", "float64"))
    note = "in turns, each with its part of the steps, or with those of --save-every"
    take(parser, "repeats", "10", note)
    take(parser, "grid", "auto")
    run_options(parser, "two-sided,persistent,grid,halo,rma-fence")
    take(parser, "verify", note="all steps on rank 0 alone; every byte must be the same")
    take(parser, "picture", note="the time over that of two-sided, and where it goes")
    _checkpoints(parser)


#: Functions of ``onesided.sparse``, with hyphens: those whose preconditioner must be Hermitian,
#: those that take any, and those that take none.
HERMITIAN = ("cg", "pipelined-cg", "minres", "chebyshev")
UNPRECONDITIONED = ("lsqr", "lsmr")
SOLVERS = (*HERMITIAN, "bicgstab", "gmres", "fgmres", *UNPRECONDITIONED)
#: Classes there, by what they are called on the command line.
PRECONDITIONERS = {"none": "", "jacobi": "Jacobi", "ilu": "BlockILU", "ssor": "SSOR", "amg": "AMG"}
TOLD = ("ilu",)  # those that are told whether they must be Hermitian


#: PETSc's methods that are ours and can end by the residual itself, and its preconditioners that a
#: build may have.
PETSC_SOLVERS = {
    "cg": "cg", "pipelined-cg": "pipecg", "bicgstab": "bcgs", "gmres": "gmres", "fgmres": "fgmres",
}  # fmt: skip
PETSC_NAMES = ("none", "jacobi", "bjacobi", "gamg", "hypre")


def conditions(names: Sequence[str], axes: int) -> Sequence[str]:
    """Local. What ``--boundary`` says of every axis; :class:`.CommandError` for another number."""
    if len(names) not in (1, axes):
        raise CommandError(
            f"--boundary names {len(names)} conditions for {axes} axes: one, or one per axis"
        )
    return names if len(names) == axes else [*names] * axes


def _matrix(parser: argparse.ArgumentParser) -> None:
    """Local. The matrix, and what is written of the result."""
    parser.add_argument("file", metavar="FILE", type=InputFile,
                        help="matrix, in any format that spmv reads")
    take(parser, "partition", "rows")
    take(parser, "output", note="the result, an .npy file")
    take(parser, "picture", note="how it converges")
    run_options(parser, "auto")
    take(parser, "repeats", "1", "a solution each, for timing")


def solve(parser: argparse.ArgumentParser) -> None:
    _matrix(parser)
    add = parser.add_argument
    add("--solver", choices=[*SOLVERS], default="cg", help="default cg, for definite matrices")
    add("--precond", choices=[*PRECONDITIONERS], default="none",
        help="jacobi: the diagonal; ilu, ssor: of the own rows and columns of each rank; "
        "amg: multigrid by smoothed aggregation")
    add("--pc", metavar="NAME", choices=[*PETSC_NAMES],
        help=f"solve by PETSc as well, with its preconditioner: {', '.join(PETSC_NAMES)}")
    add("--rhs", metavar="NAME|FILE", type=InputFile, default="ones",
        help="ones, random, or a FILE: Matrix Market, or .npy as --output writes it (ones)")
    take(parser, "restart", note="the vector that --output wrote, on any number of ranks")
    take(parser, "rtol", "1e-6")
    take(parser, "atol", "0", "of the residual")
    take(parser, "maxiter", said="10 times the unknowns")
    take(parser, "verify", note="the residual by SciPy's product on rank 0")


def pagerank(parser: argparse.ArgumentParser) -> None:
    _matrix(parser)
    add = parser.add_argument
    add("--damping", metavar="D", type=not_negative, default=0.85, help="following a link (0.85)")
    take(parser, "atol", "1e-8", "of the sum of changes")
    take(parser, "maxiter", "1000")
    add("--top", metavar="N", type=cli.positive, default=10, help="nodes to list (10)")
    take(parser, "verify", note="SciPy's products on rank 0")


def poisson(parser: argparse.ArgumentParser) -> None:
    take(parser, "shape", "64 64 64", "points of the finest grid")
    take(parser, "levels", "4")
    take(parser, "boundary", "periodic", choices=("periodic", "dirichlet", "neumann"))
    take(parser, "dtype", "float64", choices=("float32", "float64"))
    take(parser, "effort", "estimate")
    take(parser, "grid", "auto")
    run_options(parser, "auto")
    timed(parser, "10", figures="the errors over the spacing")
    take(parser, "verify", note="a solution of rank 0 alone")


def navier_stokes(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided navier-stokes``; None is what a checkpoint may decide."""
    take(parser, "shape", note="modes, one number for a cube", said="32")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--reynolds", metavar="RE", type=cli.above_zero, help="1/viscosity (1600)")
    size.add_argument("--nu", metavar="NU", type=not_negative, help="viscosity; 0 is none at all")
    take(parser, "dt", said="0.01")
    end = parser.add_mutually_exclusive_group()
    take(end, "steps", note="of this run")
    end.add_argument("--time", metavar="T", type=cli.above_zero, help="time to end at (1)")
    take(parser, "backend", said="auto")
    take(parser, "effort", said="estimate")
    take(parser, "print-every", said="a tenth of all")
    _checkpoints(parser)
    take(parser, "verify", note="the same steps on rank 0 alone")
    take(parser, "picture", note="the vorticity in a slice")
    take(parser, "grid", "auto")
    run_options(parser, "auto")
