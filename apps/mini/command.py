"""What the commands of mini-applications begin and end with."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from mpi4py import MPI
from rich.console import Console

from onesided.apps.failures import user_errors
from onesided.apps.mini import overhead
from onesided.apps.mini.row import MiniRow
from onesided.apps.mini.scaling import Stage
from onesided.apps.picture import check_picture
from onesided.apps.progress import console, progress
from onesided.apps.report import Report, check_json
from onesided.apps.spmv import FAILED
from onesided.collectives import agreed

ROOT = 0
REMARK = (
    "Times are those of an iteration of conjugate gradients, the mean over a run, by the slowest "
    "rank; exchange: what the ranks spend with their ghosts, waiting included; product: the local "
    "one; sums: the two reductions; vectors: the rest."
)


@contextmanager
def solving(
    comm: MPI.Intracomm, options: Namespace, steps: int
) -> Iterator[tuple[Console | None, Callable[[], None]]]:
    """Collective. Yields the console of rank 0, and what to call after each of so many steps.

    :class:`.CommandError` before them where a file cannot be written.
    """
    check_json(comm, options)
    check_picture(comm, options.picture)
    check_picture(comm, options.overhead, "--overhead")
    out = console(options.terminal) if comm.rank == ROOT else None
    with progress(out, "solving", steps) as tick:
        yield out, tick


@contextmanager
def drawing(comm: MPI.Intracomm) -> Iterator[None]:
    """Collective. What rank 0 draws in the block; where it cannot, that is every rank's error."""
    with user_errors(), agreed(comm):
        yield


def finish(
    comm: MPI.Intracomm,
    options: Namespace,
    out: Console | None,
    report: Report,
    rows: Sequence[MiniRow],
    title: str,
) -> int:
    """Collective. Overheads, pictures, tables and JSON; the exit code, 1 where a result is wrong.

    ``title``: of the picture.
    """
    report.rows = list(rows)
    report.remarks.append(overhead.REMARK)
    report.listings = {**report.listings, **overhead.listings(rows)}
    with drawing(comm):
        if comm.rank == ROOT and options.overhead is not None:
            overhead.draw(options.overhead, title, rows)
    report.finish(comm, out, options.json)
    return FAILED if comm.bcast(report.verified, root=ROOT) is False else 0


def staged(every: Sequence[Stage], size: Callable[[Stage], dict[str, Any]]) -> list[dict[str, Any]]:
    """Local. The stages for JSON; ``size`` tells how large the problem of one is."""
    return [{"scaling": each.scaling, "ranks": each.ranks, **size(each)} for each in every]
