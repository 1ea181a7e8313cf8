"""Threads that drive the traffic to one neighbor each, beside the one that computes."""

from __future__ import annotations

from collections.abc import Sequence

from mpi4py import MPI

from onesided.apps.team import Team, Work
from onesided.collectives import ResourceError, UnsupportedError, agree, agreed

LEVELS = {
    MPI.THREAD_SINGLE: "MPI_THREAD_SINGLE",
    MPI.THREAD_FUNNELED: "MPI_THREAD_FUNNELED",
    MPI.THREAD_SERIALIZED: "MPI_THREAD_SERIALIZED",
}


def check_threads(comm: MPI.Intracomm) -> None:
    """Collective. ``UnsupportedError`` on every rank where one has too low a thread level."""
    with agreed(comm):
        level = MPI.Query_thread()
        if level < MPI.THREAD_MULTIPLE:
            raise UnsupportedError(
                "a thread for every neighbor needs MPI_THREAD_MULTIPLE, this MPI runs with "
                f"{LEVELS.get(level, level)}"
            )


def team_of(comm: MPI.Intracomm, neighbors: int) -> Team:
    """Collective. The calling thread and one for every neighbor.

    ``ResourceError`` on every rank where one cannot make so many.
    """
    team, error = Team(1), None
    try:
        team = Team(1 + neighbors)
    except RuntimeError as failure:
        error = ResourceError(f"{neighbors} threads: {failure}")
    try:
        agree(comm, error)
    except ResourceError:
        team.close()
        raise
    return team


def beside(puts: Sequence[Work]) -> list[Work]:
    """Local. Works of a team whose caller has none."""
    return [_nothing, *puts]


def _nothing() -> None:
    """Local. The work of the thread that computes."""
