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
    left_out = ("command", "terminal", "json", "ranks")
    given = {name: value for name, value in vars(options).items() if name not in left_out}
    return given | {"info": dict(options.info)}


def common(parser: argparse.ArgumentParser, comm: str) -> None:
    """Local. What every command takes; ``comm`` is the default of ``--comm``."""
    parser.add_argument(
        "--comm",
        metavar="METHOD",
        default=comm,
        help=f"method, several with commas, or all (default {comm}); onesided doctor lists them",
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
        "--grid",
        metavar="N",
        type=grid_entry,
        nargs="+",
        default=["auto"],
        help="process grid, e.g. 4 (slabs) or 2 2 (pencils); default auto",
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


def spmv(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided spmv``."""
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="Matrix Market file, plain or gzip (default: the matrix that comes with the package)",
    )
    common(parser, "auto")
    timed(parser, 200)
    parser.add_argument(
        "--verify", action="store_true", help="compare with SciPy's product on rank 0"
    )


def doctor(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided doctor``."""
    common(parser, "all")


def bench_alltoallv(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench alltoallv``."""
    common(parser, "rma-fence,rma-notify")
    timed(parser, 100)
    parser.add_argument(
        "--sizes",
        metavar="BYTES",
        type=size,
        nargs="+",
        default=[size(s) for s in SIZES.split()],
        help=f"bytes that each rank sends, its own block included (default {SIZES})",
    )


def bench_fft(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench fft``."""
    transform(parser)
    parser.set_defaults(shape=[256, 256, 256])
    common(parser, "rma-fence,rma-notify")
    timed(parser, 20)


def bench_spmv(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided bench spmv``."""
    common(parser, "rma-fence,rma-notify")
    timed(parser, 200)
    parser.add_argument(
        "--points",
        metavar="N",
        type=positive,
        default=64,
        help="grid points along one edge of the cube: N**3 rows (default 64)",
    )
