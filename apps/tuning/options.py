"""Options of ``onesided tune``; nothing heavy is imported here."""

from __future__ import annotations

import argparse

from onesided.apps.options import SIZES, common, size


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
