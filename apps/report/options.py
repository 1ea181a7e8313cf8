"""What ``onesided report`` can be given."""

from __future__ import annotations

from typing import Any

from onesided.apps.cli.options import FolderName, take


def report(parser: Any) -> None:
    """Local. Options of ``onesided report``."""
    add = parser.add_argument
    add("folder", metavar="DIR", help="folder with the files that commands wrote with --json")
    take(parser, "output", "report.html", "the page, one file without references to others")
    add(
        "--figures",
        metavar="DIR",
        type=FolderName,
        help="write every figure as PNG and CSV into this folder, too",
    )
    add(
        "--mixed",
        action="store_true",
        help="take results of different machines and MPIs, and group them by these",
    )
