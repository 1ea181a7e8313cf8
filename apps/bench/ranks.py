"""Some ranks of a job at work, while the others sleep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from mpi4py import MPI

from onesided.apps.bench.race import rest
from onesided.apps.cli.failures import CommandError, together, user_errors

Found = TypeVar("Found")


def by_rank_0(comm: MPI.Intracomm, work: Callable[[], Found]) -> Found | None:
    """Collective. What rank 0 comes to while the others, which get None, sleep.

    :class:`CommandError` on every rank where rank 0 cannot do it.
    """
    found: Found | None = None
    trouble: CommandError | None = None
    if comm.rank == 0:
        try:
            with user_errors():
                found = work()
        except CommandError as error:
            trouble = type(error)(str(error))
    rest(comm)
    trouble = comm.bcast(trouble)
    if trouble is not None:
        raise trouble
    return found


def from_rank_0(comm: MPI.Intracomm, work: Callable[[], Found]) -> Found:
    """Collective. The same, but all ranks get it."""
    found: Found = comm.bcast(by_rank_0(comm, work))
    return found


class Alone(Exception):
    """What one rank cannot do while others wait for it; it ends the job."""


def among(comm: MPI.Intracomm, count: int, work: Callable[[MPI.Intracomm], None]) -> None:
    """Collective. Call ``work`` with a communicator of the first ``count`` ranks, on these alone.

    :class:`CommandError` on all ranks, also for what those that slept cannot know. An error that a
    rank turns out to have alone, because the others do not come, is :class:`Alone` there.
    """
    taking_part = comm.rank < count
    sub: Any = comm.Split(0 if taking_part else MPI.UNDEFINED, comm.rank)
    trouble = ""
    if taking_part:
        try:
            with user_errors():
                work(sub)
        except CommandError as error:
            trouble = str(error)
            if not together(comm):
                raise Alone(f"rank {comm.rank} alone: {trouble}") from error
    if not trouble:
        rest(comm)
    if taking_part:
        sub.Free()
    trouble = comm.bcast(trouble)
    if trouble:
        raise CommandError(trouble)


def counted(size: int, asked: Sequence[int] | None, usual: Sequence[int]) -> list[int]:
    """Local. The numbers of ranks; :class:`CommandError` for more than the job has."""
    if not asked:
        return sorted(set(usual))
    if max(asked) > size:
        raise CommandError(
            f"--ranks-list {max(asked)}: the job has {size} rank{'s' if size > 1 else ''}"
        )
    return sorted(set(asked))
