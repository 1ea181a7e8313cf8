"""What the commands of this room can be given on the command line."""

from __future__ import annotations

import argparse

from onesided.apps.cli.options import SIZES, common, positive, size, timed, transform, whole


def tune(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided tune``."""
    common(parser, "auto")
    parser.add_argument(
        "--sizes",
        metavar="BYTES",
        type=size,
        nargs="+",
        default=[size(word) for word in SIZES.split()],
        help=f"bytes that every rank sends, in equal blocks to all (default {SIZES})",
    )
    parser.add_argument(
        "--show",
        action="store_true",
        help="measure nothing: show what is known, and what auto would take",
    )
    parser.add_argument(
        "--forget", action="store_true", help="remove the file of what was measured, first"
    )


def generate(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided generate``."""
    add = parser.add_argument
    add(
        "kind",
        metavar="KIND",
        choices=("grid7", "grid27", "mesh"),
        help="grid7 or grid27 (a cube of points with 6 or 26 neighbors each), or mesh (the dual "
        "graph of a triangulation refined along curves)",
    )
    add(
        "--size",
        metavar="N",
        type=positive,
        required=True,
        help="points along one edge of a grid, N**3 rows; triangles of a mesh, N rows",
    )
    add("--seed", metavar="N", type=whole, default=0, help="which curves of a mesh (default 0)")
    add("-o", "--output", metavar="FILE", required=True, help="write NAME.mtx or NAME.h5")
    add("--ranks", metavar="N", type=positive, help="start on N ranks with the installed mpiexec")
    add("--terminal", metavar="COLUMNS", type=positive, help=argparse.SUPPRESS)


def fft(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided fft``."""
    transform(parser)
    common(parser, "auto")
    timed(parser, 20)
    parser.add_argument(
        "--verify",
        action="store_true",
        help="compare with scipy.fft where the array fits on one rank, else with known transforms",
    )


def spmv(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided spmv``."""
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="Matrix Market, Harwell-Boeing, npz or HDF5 (default: the matrix of the package)",
    )
    parser.add_argument(
        "--partition",
        choices=("rows", "metis", "rcm"),
        default="rows",
        help="rows in their order, METIS's parts, or reverse Cuthill-McKee order (default rows)",
    )
    common(parser, "auto")
    timed(parser, 200)
    parser.add_argument(
        "--verify", action="store_true", help="compare with SciPy's product on rank 0"
    )
    parser.add_argument(
        "--traffic", metavar="FILE", help="draw who sends how much to whom into an image FILE"
    )


def doctor(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided doctor``."""
    common(parser, "all")


def bench_fft(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench fft``."""
    transform(parser)
    parser.set_defaults(shape=[256, 256, 256])
    common(parser, "auto,rma-notify")
    timed(parser, 20)
    add = parser.add_argument
    add(
        "--against",
        choices=("mpi4py-fft", "local-work", "fftw-mpi"),
        nargs="+",
        help="with what to compare (mpi4py-fft local-work; all with --suite)",
    )
    add("--suite", action="store_true", help="all cases that have targets; no --shape or --grid")
    add("--strict", action="store_true", help="with --suite: fail where a target is missed")
    add(
        "--shrink",
        metavar="N",
        type=positive,
        default=1,
        help="divide the shapes of --suite by N, without targets, for a quick look",
    )


def bench_spmv(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench spmv``."""
    common(parser, "rma-fence,rma-notify; with --suite rma-notify")
    parser.set_defaults(comm=None)
    timed(parser, 200)
    add = parser.add_argument
    add(
        "--points",
        metavar="N",
        type=positive,
        default=64,
        help="grid points along one edge of the cube: N**3 rows (default 64)",
    )
    add("--suite", action="store_true", help="all matrices that have targets, against PETSc too")
    add("--strict", action="store_true", help="1 where a target is missed")
    add(
        "--matrices",
        metavar="DIR",
        help="with --suite: Matrix Market files (default: the folder ONESIDED_MATRICES names)",
    )
    add(
        "--entries",
        metavar="N",
        type=positive,
        default=500_000,
        help="of those, matrices with more than N entries (default 500000)",
    )
    add(
        "--shrink",
        metavar="N",
        type=positive,
        default=1,
        help="make the matrices of --suite that are not files smaller, without targets",
    )


def grid_shape(text: str) -> tuple[int, ...]:
    """Local. Cells along every axis: ``256x256``."""
    return tuple(positive(part) for part in text.split("x"))


def bench_halo(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench halo``."""
    common(parser, None)
    timed(parser, 30)
    shapes = "256x256 2048x2048 128x128x128 64x64x64"
    parser.add_argument(
        "--shapes",
        metavar="NxN",
        type=grid_shape,
        nargs="+",
        default=[grid_shape(text) for text in shapes.split()],
        help=f"grids (default {shapes})",
    )
    parser.add_argument("--strict", action="store_true", help="1 where a target is missed")
