"""Progress on a terminal: rank 0 only, and never from a second thread."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich import progress as bars
from rich.console import Console

from onesided.apps.cli.failures import in_job
from onesided.apps.cli.options import Options

if TYPE_CHECKING:
    from mpi4py import MPI

PLAIN_WIDTH = 100  # columns where the output is a file or a pipe
COLUMNS = "ONESIDED_COLUMNS"  # of a terminal that the pipe of a launcher hides
INTERVAL = 0.2  # seconds between two drawings


def console() -> Console:
    """Local. Standard output; in a job the launcher told the width of the terminal if there is one.

    Open MPI lets every rank write to a terminal of its own making, whatever stands behind it.
    """
    width = os.environ.get(COLUMNS, "")
    if in_job() and width.isdecimal():
        return Console(width=int(width), force_terminal=True)
    if sys.stdout.isatty() and not in_job():
        return Console()
    return Console(width=PLAIN_WIDTH, force_terminal=False)


def on_rank_0(comm: MPI.Intracomm) -> Console | None:
    """Local. Standard output; None on other ranks."""
    return console() if comm.rank == 0 else None


@contextmanager
def _bar(
    out: Console | None, title: str, count: bars.ProgressColumn
) -> Iterator[Callable[..., None] | None]:
    """Yields what to call with changes of the bar, which is drawn now and then; None where ``out``
    is no terminal."""
    if out is None or not out.is_terminal:
        yield None
        return
    columns = bars.TextColumn(title), bars.BarColumn(), count, bars.TimeRemainingColumn()
    with bars.Progress(*columns, console=out, auto_refresh=False, transient=True) as bar:
        task = bar.add_task(title, total=None)
        drawn = time.monotonic() - INTERVAL

        def update(**changes: Any) -> None:
            nonlocal drawn
            bar.update(task, **changes)
            if time.monotonic() - drawn > INTERVAL:
                bar.refresh()
                drawn = time.monotonic()

        yield update


@contextmanager
def progress(
    comm: MPI.Intracomm, options: Options, title: str, total: int
) -> Iterator[Callable[[], None]]:
    """Local. Yields what to call after each step; draws on a terminal, on rank 0."""
    out = on_rank_0(comm) if options.format == "table" else None
    with _bar(out, title, bars.MofNCompleteColumn()) as update:
        if update is not None:
            update(total=total)
        yield lambda: None if update is None else update(advance=1)


@contextmanager
def reading(out: Console | None, title: str) -> Iterator[Callable[[int, int], None] | None]:
    """Local. Yields what to call with the bytes read so far and those of the file, as the
    ``progress`` of :func:`onesided.sparse.read`; None where ``out`` is no terminal."""
    with _bar(out, title, bars.DownloadColumn()) as update:
        yield update and (lambda done, total: update(completed=done, total=total))
