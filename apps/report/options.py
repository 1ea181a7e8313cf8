"""What ``onesided report``, ``bench compare`` and ``bench check`` can be given."""

from __future__ import annotations

import argparse

from onesided.apps.cli.options import FolderName, InputFile, above_zero, take

FOLDER = "with the JSON files that commands wrote with --json"


def report(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("folder", metavar="DIR", type=InputFile, help=FOLDER)
    take(parser, "output", "report.html", "the page, in one file")
    add("--figures", metavar="DIR", type=FolderName,
        help="also write every figure into this folder, as PNG (with matplotlib) and CSV")
    add("--mixed", action="store_true",
        help="results of several machines or MPIs, side by side, instead of refusing them")


def bench_compare(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    for name in ("old", "new"):
        add(name, metavar=name.upper(), type=InputFile, help="what a command wrote with --json")
    add("--threshold", metavar="R", type=above_zero, default=1.05,
        help="exit with 1 where a time is surely more than R times the old one (default 1.05)")


def bench_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", type=InputFile, help=FOLDER)
