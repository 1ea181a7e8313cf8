"""Progress on a terminal: rank 0 only, and never from a second thread."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from onesided.apps.cli.failures import in_job

PLAIN_WIDTH = 160  # columns where the output is a file or a pipe
INTERVAL = 0.2  # seconds between two drawings


def console(terminal: int | None) -> Console:
    """Local. Standard output; ``terminal`` is the width of one that a launcher's pipe hides.

    In a job it must be given: Open MPI lets every rank write to a terminal of its own making,
    whatever stands behind it.
    """
    if terminal:
        return Console(width=terminal, force_terminal=True)
    if sys.stdout.isatty() and not in_job():
        return Console()
    return Console(width=PLAIN_WIDTH, force_terminal=False)


@contextmanager
def progress(out: Console | None, title: str, total: int) -> Iterator[Callable[[], None]]:
    """Local. Yields what to call after each step; draws nothing where ``out`` is no terminal."""
    if out is None or not out.is_terminal:
        yield lambda: None
        return
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=out, auto_refresh=False, transient=True) as bar:
        task = bar.add_task(title, total=total)
        drawn = time.monotonic()

        def tick() -> None:
            nonlocal drawn
            bar.advance(task)
            if time.monotonic() - drawn > INTERVAL:
                bar.refresh()
                drawn = time.monotonic()

        bar.refresh()
        yield tick


@contextmanager
def reading(out: Console | None, title: str) -> Iterator[Callable[[int, int], None] | None]:
    """Local. Yields what to call with the bytes read so far and those of the file, as the
    ``progress`` of :func:`onesided.sparse.read`; None where ``out`` is no terminal."""
    if out is None or not out.is_terminal:
        yield None
        return
    columns = (TextColumn(title), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=out, auto_refresh=False, transient=True) as bar:
        task = bar.add_task(title, total=None)
        drawn = time.monotonic() - INTERVAL

        def advance(done: int, total: int) -> None:
            nonlocal drawn
            bar.update(task, completed=done, total=total)
            if time.monotonic() - drawn > INTERVAL:
                bar.refresh()
                drawn = time.monotonic()

        yield advance
