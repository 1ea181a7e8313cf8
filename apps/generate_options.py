"""What ``onesided generate`` can be given on the command line."""

from __future__ import annotations

import argparse

from onesided.apps.options import positive


def whole(text: str) -> int:
    """Local. A whole number, zero or above."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of zero or above")
    return int(text)


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
