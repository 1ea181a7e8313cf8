"""What ``onesided report`` can be given on the command line."""

from __future__ import annotations

import argparse

from onesided.apps.options import positive


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
