"""What the commands of this room can be given on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field

from onesided.apps.cli.options import (
    above_zero,
    common,
    effort,
    not_negative,
    positive,
    process_grid,
    timed,
)

#: Those of :mod:`onesided.apps.solvers.heat_halos` that are no exchanges, for a help text.
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


@dataclass(frozen=True)
class Named:
    """A function or class of ``onesided.sparse``, and its keywords by the options that set them.

    ``hermitian``: a solver whose preconditioner must be Hermitian; ``preconditioned``: one that
    takes any.
    """

    name: str
    keywords: Mapping[str, str] = field(default_factory=dict)
    hermitian: bool = False
    preconditioned: bool = True


#: By what they are called on the command line. A new one is one line.
SOLVERS = {
    "cg": Named("cg", hermitian=True),
    "pipelined-cg": Named("pipelined_cg", hermitian=True),
    "minres": Named("minres", hermitian=True),
    "chebyshev": Named("chebyshev", hermitian=True),
    "bicgstab": Named("bicgstab"),
    "gmres": Named("gmres", {"basis": "restart"}),
    "fgmres": Named("fgmres", {"basis": "restart"}),
    "lsqr": Named("lsqr", preconditioned=False),
    "lsmr": Named("lsmr", preconditioned=False),
}
PRECONDITIONERS = {
    "none": None,
    "jacobi": Named("Jacobi"),
    "ilu": Named("BlockILU", {"fill": "fill_factor", "hermitian": "hermitian"}),
    "ssor": Named("SSOR", {"omega": "omega"}),
    "amg": Named("AMG"),
}


def damping(text: str) -> float:
    """Local. A number from zero to below one."""
    number = not_negative(text)
    if number >= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to below 1")
    return number


def _matrix(parser: argparse.ArgumentParser) -> None:
    """Local. The matrix, and what is written of the result."""
    parser.add_argument("file", metavar="FILE", help="matrix, in any format that spmv reads")
    parser.add_argument(
        "--partition",
        choices=("rows", "metis", "rcm"),
        default="rows",
        help="rows in their order, METIS's parts, or reverse Cuthill-McKee order (default rows)",
    )
    parser.add_argument("--solution", metavar="FILE", help="write the result to an HDF5 FILE")
    parser.add_argument(
        "--picture", metavar="FILE", help="draw how it converges into an image FILE"
    )
    common(parser, "auto")
    parser.add_argument(
        "--iterations",
        metavar="N",
        type=positive,
        default=1,
        help="solve N times by every method, for timing (default 1)",
    )


def solve(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided solve``."""
    _matrix(parser)
    add = parser.add_argument
    add("--solver", choices=[*SOLVERS], default="cg", help="default cg, for definite matrices")
    add(
        "--precond",
        choices=[*PRECONDITIONERS],
        default="none",
        help="jacobi: the diagonal; ilu, ssor: of the own rows and columns of each rank; "
        "amg: multigrid by smoothed aggregation",
    )
    add(
        "--rhs",
        metavar="NAME|FILE",
        default="ones",
        help="ones, random, or a FILE: Matrix Market, .npy, or HDF5 as --solution writes it (ones)",
    )
    add("--rtol", metavar="R", type=not_negative, default=1e-6, help="of the residual (1e-6)")
    add("--atol", metavar="R", type=not_negative, default=0.0, help="of the residual (0)")
    add("--maxiter", metavar="N", type=positive, help="most iterations (10 times the unknowns)")
    add("--basis", metavar="N", type=positive, default=30, help="of gmres, fgmres: restarted (30)")
    add("--omega", metavar="W", type=above_zero, default=1.0, help="of ssor, below 2 (1)")
    add("--fill", metavar="F", type=above_zero, default=1.0, help="of ilu: memory factor (1)")


def pagerank(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided pagerank``."""
    _matrix(parser)
    add = parser.add_argument
    add("--damping", metavar="D", type=damping, default=0.85, help="following a link (0.85)")
    add("--atol", metavar="R", type=not_negative, default=1e-8, help="sum of changes (1e-8)")
    add("--maxiter", metavar="N", type=positive, default=1000, help="most iterations (1000)")
    add("--top", metavar="N", type=positive, default=10, help="nodes to list (10)")
    add("--verify", action="store_true", help="compare with SciPy's products on rank 0")


def poisson(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided poisson``."""
    parser.add_argument(
        "--shape",
        metavar="N",
        type=positive,
        nargs="+",
        default=[64, 64, 64],
        help="global shape of the finest grid (default 64 64 64)",
    )
    parser.add_argument(
        "--levels",
        metavar="N",
        type=positive,
        default=4,
        help="number of grids, each with half the points of the next along an axis (default 4)",
    )
    parser.add_argument(
        "--boundary",
        metavar="NAME",
        choices=("periodic", "dirichlet", "neumann"),
        nargs="+",
        default=["periodic"],
        help="periodic, dirichlet or neumann: one for all axes, or one per axis (default periodic)",
    )
    parser.add_argument(
        "--points",
        choices=("centers", "nodes"),
        default="centers",
        help="between walls: cell centers (DST-II, DCT-II) or nodes (DST-I, DCT-I)",
    )
    parser.add_argument(
        "--eigenvalues",
        choices=("exact", "second-order"),
        default="exact",
        help="of the Laplacian, or of its second-order difference quotients (default exact)",
    )
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
    effort(parser, "estimate")
    process_grid(parser)
    common(parser, "auto")
    timed(parser, 10)
    parser.add_argument("--picture", metavar="FILE", help="draw the errors into an image FILE")


def navier_stokes(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided navier-stokes``; None is what a checkpoint may decide."""
    add = parser.add_argument
    add("--shape", metavar="N", type=positive, nargs="+", help="modes, one number for a cube (32)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--reynolds", metavar="RE", type=above_zero, help="1/viscosity (1600)")
    size.add_argument("--nu", metavar="NU", type=not_negative, help="viscosity; 0 is none at all")
    add("--dt", metavar="T", type=above_zero, help="time step (0.01)")
    end = parser.add_mutually_exclusive_group()
    end.add_argument("--steps", metavar="N", type=positive, help="time steps of this run")
    end.add_argument("--time", metavar="T", type=above_zero, help="time to end at (1)")
    add("--padding", metavar="P", type=above_zero, help="points per mode; 3/2 dealiases (1.5)")
    add("--backend", metavar="NAME", help="kernel of the local transforms (auto)")
    effort(parser, None)
    add("--every", metavar="N", type=positive, help="steps between two lines (a tenth of all)")
    add("--checkpoint", metavar="FILE", help="write the state at the end to an HDF5 FILE")
    add("--save-every", metavar="N", type=positive, help="and also after every N steps")
    add("--restart", metavar="FILE", help="go on from a checkpoint; its settings hold")
    add("--picture", metavar="FILE", help="draw the vorticity in a slice into an image FILE")
    process_grid(parser)
    common(parser, "auto")
