"""What the commands can be given on the command line."""

from __future__ import annotations

import argparse

KIBI = 1024
SUFFIXES = {"K": KIBI, "M": KIBI**2, "G": KIBI**3}
SIZES = "1K 8K 32K 128K 1M 2M 16M"


def positive(text: str) -> int:
    """Local. A whole number above zero."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")
    return number


def seconds(text: str) -> float:
    """Local. A time above zero."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time in seconds above zero")
    return number


def above_zero(text: str) -> float:
    """Local. A finite number above zero."""
    number = not_negative(text)
    if number == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above zero")
    return number


def not_negative(text: str) -> float:
    """Local. A finite number, zero or above."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of zero or above")
    return number


def size(text: str) -> int:
    """Local. A number of bytes, with K, M or G for powers of 1024: ``32K``."""
    factor = SUFFIXES.get(text[-1:].upper(), 1)
    return factor * positive(text[:-1] if factor > 1 else text)


def grid_entry(text: str) -> int | str:
    """Local. ``auto``, or one extent of the process grid."""
    return text if text == "auto" else positive(text)


def info_entry(text: str) -> tuple[str, str]:
    """Local. One ``KEY=VALUE``."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    return key, value


def settings(options: argparse.Namespace) -> dict[str, object]:
    """Local. What a command was given, for its report; nothing about where it writes."""
    left_out = (
        "command terminal json ranks picture overhead traffic checkpoint restart solution".split()
    )
    given = {name: value for name, value in vars(options).items() if name not in left_out}
    return given | {"info": dict(options.info)}


def common(parser: argparse.ArgumentParser, comm: str | None) -> None:
    """Local. What every command takes; ``comm`` is the default of ``--comm``, None without it."""
    if comm is not None:
        parser.add_argument(
            "--comm",
            metavar="METHOD",
            default=comm,
            help=f"method, several with commas, or all (default {comm}); onesided doctor lists "
            "them",
        )
    parser.add_argument(
        "--ranks", metavar="N", type=positive, help="start on N ranks with the installed mpiexec"
    )
    parser.add_argument(
        "--info",
        metavar="KEY=VALUE",
        type=info_entry,
        action="append",
        default=[],
        help="hint for the methods, e.g. ranks_per_node=2 to emulate nodes; may be repeated",
    )
    parser.add_argument("--json", metavar="FILE", help="write the results to FILE")
    parser.add_argument(
        "--terminal",
        metavar="COLUMNS",
        type=positive,
        help="draw for a terminal of this width, which rank 0 cannot see behind mpiexec",
    )


def timed(parser: argparse.ArgumentParser, iterations: int) -> None:
    """Local. How often and how long a command measures."""
    parser.add_argument(
        "--iterations",
        metavar="N",
        type=positive,
        default=iterations,
        help=f"timed iterations of every method (default {iterations})",
    )
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=seconds,
        default=120.0,
        help="measure no longer than about S seconds, with fewer iterations (default 120)",
    )


def transform(parser: argparse.ArgumentParser) -> None:
    """Local. Which Fourier transform."""
    parser.add_argument(
        "--shape",
        metavar="N",
        type=positive,
        nargs="+",
        default=[128, 128, 128],
        help="global shape (default 128 128 128)",
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "float64", "complex64", "complex128"),
        default="float64",
        help="real types are transformed real to complex (default float64)",
    )
    parser.add_argument(
        "--backend", metavar="NAME", default="auto", help="kernel of the local transforms (auto)"
    )
    process_grid(parser)


def process_grid(parser: argparse.ArgumentParser) -> None:
    """Local. How arrays are split over ranks."""
    parser.add_argument(
        "--grid",
        metavar="N",
        type=grid_entry,
        nargs="+",
        default=["auto"],
        help="process grid, e.g. 4 (slabs) or 2 2 (pencils); default auto",
    )


def effort(parser: argparse.ArgumentParser, default: str | None) -> None:
    """Local. How the kernels of a plan are chosen."""
    parser.add_argument(
        "--effort",
        choices=("estimate", "measure"),
        default=default,
        help="measure may find faster kernels, estimate repeats a run bit for bit (estimate)",
    )


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
