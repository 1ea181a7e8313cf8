"""What ``onesided solve`` and ``onesided pagerank`` can be given on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field

from onesided.apps.options import above_zero, common, not_negative, positive


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
