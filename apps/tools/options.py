"""What the commands of this room can be given: a function of their name adds their options."""

from __future__ import annotations

import argparse

from onesided.apps.cli.options import ALL, SIZES, InputFile, info_entry, run_options, take, timed

#: What ``onesided bench halo`` has.
GHOSTS, MIGRATE, MULTIGRID = HALO_PATTERNS = ("ghosts", "migrate", "multigrid")


def tune(parser: argparse.ArgumentParser) -> None:
    run_options(parser, None, rows=False)
    take(parser, "sizes", SIZES, "that every rank sends, in equal blocks to all")
    parser.add_argument("--show", action="store_true",
                        help="measure nothing: show what is known, and what auto would take")
    take(parser, "afresh", note="remove the file of what was measured, first")


def generate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "kind", metavar="KIND", choices=("grid7", "grid27", "mesh"),
        help="grid7 or grid27 (a cube of points with 6 or 26 neighbors each), or mesh (the dual "
        "graph of a triangulation refined along curves)")
    note = "points along an edge of a cube, N**3 rows; triangles of a mesh, N rows"
    take(parser, "shape", note=note, required=True)
    take(parser, "seed", "0", "the curves of a mesh")
    take(parser, "output", note="the matrix, NAME.mtx or NAME.h5", required=True)
    take(parser, "verify", note="read the file, and multiply with what was written")
    run_options(parser, None, info=False)


def _transform(parser: argparse.ArgumentParser) -> None:
    """Local. Which Fourier transform, but for its shape."""
    take(parser, "dtype", "float64", "real types are transformed real to complex")
    take(parser, "backend", "auto")
    take(parser, "grid", "auto")


def fft(parser: argparse.ArgumentParser) -> None:
    take(parser, "shape", "128 128 128")
    _transform(parser)
    run_options(parser, "auto")
    timed(parser, "20", figures="")
    take(parser, "verify", note="scipy.fft where the array fits on one rank, else known transforms")


def spmv(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", type=InputFile, nargs="?",
        help="Matrix Market, Harwell-Boeing, npz or HDF5 (default: the matrix of the package)")
    take(parser, "partition", "rows")
    run_options(parser, "auto")
    timed(parser, "200", figures="who sends how much to whom")
    take(parser, "verify", note="SciPy's product on rank 0")


def doctor(parser: argparse.ArgumentParser) -> None:
    run_options(parser, "all", rows=False)
    parser.add_argument(
        "--thorough", action="store_true",
        help="exchanges in all kinds of memory, long ones, types with holes, and in place")


def bench_fft(parser: argparse.ArgumentParser) -> None:
    said = "64 64 64, 128 128 128 and 256 256 256"
    take(parser, "shape", note="of an array; may be repeated", said=said, action="append")
    _transform(parser)
    run_options(parser, "auto,rma-notify")
    timed(parser, "20")
    take(parser, "repeats", "5", "set-ups, which are timed")
    parser.add_argument(
        "--order", choices=("C", "plan"), nargs="+", default=["C"],
        help="memory order of the spectrum: that of C, or the plan's own (default C)")
    opponents = ("mpi4py-fft", "fftw-mpi")
    parser.add_argument("--against", choices=opponents, nargs="+", default=[*opponents],
                        help="with what to compare (default both)")


def bench_spmv(parser: argparse.ArgumentParser) -> None:
    run_options(parser, "rma-fence,rma-notify")
    timed(parser, "200")
    note = "points along an edge of a cube, N**3 rows, of each matrix of a 27-point stencil"
    take(parser, "shape", note=note, said="64 and 100")
    take(parser, "mesh", said="1000000, where neither --shape nor --matrices are given")
    note = "files that spmv reads, or folders of Matrix Market files"
    take(parser, "matrices", note=note, said="those of the folder that ONESIDED_MATRICES names")


def bench_halo(parser: argparse.ArgumentParser) -> None:
    run_options(parser, None, info=False)
    timed(parser, "30")
    take(parser, "patterns", ALL, "ghosts, items that migrate, V-cycles", choices=HALO_PATTERNS)
    said = "of ghosts 256 256, 2048 2048, 128 128 128 and 64 64 64; 128 128 64; 1024 1024"
    take(parser, "shape", note="of a grid; may be repeated", said=said, action="append")


def bench_programs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", metavar="FILE", type=InputFile, nargs="*",
        help="programs (default: those that come with the package)")
    parser.add_argument(
        "--set", metavar="NAME=VALUE", type=info_entry, action="append", default=[],
        help="what the line NAME = ... of a program says instead, e.g. N=64; may be repeated")
    run_options(parser, None, info=False)
    timed(parser, "20", "600")
