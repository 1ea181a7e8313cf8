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


def report(parser: argparse.ArgumentParser) -> None:
    """Local. Options of ``onesided report``."""
    add = parser.add_argument
    add("folder", metavar="DIR", help="folder with the files that commands wrote with --json")
    add(
        "-o",
        "--output",
        metavar="FILE",
        default="report.html",
        help="the page, one file without references to others (default report.html)",
    )
    add("--figures", metavar="DIR", help="write every figure as PNG and CSV into this folder, too")
    add(
        "--mixed",
        action="store_true",
        help="take results of different machines and MPIs, and group them by these",
    )
    add("--ranks", metavar="N", type=positive, help=argparse.SUPPRESS)  # one process is enough


def whole(text: str) -> int:
    """Local. A whole number, zero or above."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of zero or above")
    return int(text)
