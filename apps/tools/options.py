"""What the commands of this room can be given on the command line."""

from __future__ import annotations

import argparse

from onesided.apps.cli.options import (
    SIZES,
    InputFile,
    positive,
    run_options,
    take,
    timed,
    transform,
)


def tune(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided tune``."""
    run_options(parser, "auto")
    take(parser, "sizes", SIZES, "that every rank sends, in equal blocks to all")
    parser.add_argument(
        "--show",
        action="store_true",
        help="measure nothing: show what is known, and what auto would take",
    )
    take(parser, "afresh", note="remove the file of what was measured, first")


def generate(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided generate``."""
    parser.add_argument(
        "kind",
        metavar="KIND",
        choices=("grid7", "grid27", "mesh"),
        help="grid7 or grid27 (a cube of points with 6 or 26 neighbors each), or mesh (the dual "
        "graph of a triangulation refined along curves)",
    )
    take(
        parser,
        "shape",
        note="points along an edge of a cube, N**3 rows; triangles of a mesh, N rows",
        required=True,
    )
    take(parser, "seed", "0", "the curves of a mesh")
    take(parser, "output", note="the matrix, NAME.mtx or NAME.h5", required=True)
    take(parser, "verify", note="read the file, and multiply with what was written")
    run_options(parser, None)


def fft(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided fft``."""
    transform(parser, "128 128 128")
    run_options(parser, "auto")
    timed(parser, "20")
    take(
        parser,
        "verify",
        note="scipy.fft where the array fits on one rank, else known transforms",
    )


def spmv(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided spmv``."""
    parser.add_argument(
        "file",
        metavar="FILE",
        type=InputFile,
        nargs="?",
        help="Matrix Market, Harwell-Boeing, npz or HDF5 (default: the matrix of the package)",
    )
    take(parser, "partition", "rows")
    run_options(parser, "auto")
    timed(parser, "200")
    take(parser, "verify", note="SciPy's product on rank 0")
    take(parser, "picture", note="who sends how much to whom")


def doctor(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided doctor``."""
    run_options(parser, "all")


def bench_fft(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench fft``."""
    transform(parser, "256 256 256")
    run_options(parser, "auto,rma-notify")
    timed(parser, "20")
    parser.add_argument(
        "--against",
        choices=("mpi4py-fft", "local-work", "fftw-mpi"),
        nargs="+",
        help="with what to compare (default mpi4py-fft local-work; all with --targets)",
    )
    take(parser, "targets", note="without --shape and --grid")
    take(parser, "quick", note="the shapes of --targets divided by 16, without targets")
    take(parser, "strict")


def bench_spmv(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench spmv``."""
    take(parser, "comm", said="rma-fence,rma-notify; with --targets rma-notify")
    run_options(parser, None)
    timed(parser, "200")
    take(parser, "shape", "64", "points along an edge of a cube, N**3 rows")
    take(parser, "targets", note="products, halos, solutions, reading; against PETSc too")
    take(parser, "quick", note="the generated matrices of --targets divided by 64, without targets")
    take(parser, "strict")
    take(
        parser,
        "matrices",
        note="Matrix Market, or folders of these, for --targets",
        said="those of the folder that ONESIDED_MATRICES names",
    )
    parser.add_argument(
        "--entries",
        metavar="N",
        type=positive,
        default=500_000,
        help="of those, matrices with more than N entries (default 500000)",
    )


def bench_halo(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench halo``."""
    run_options(parser, None)
    timed(parser, "30")
    take(
        parser,
        "shape",
        note="of a grid; may be repeated",
        said="256 256, 2048 2048, 128 128 128 and 64 64 64",
        action="append",
    )
    take(parser, "strict")
