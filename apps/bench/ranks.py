"""Some ranks of a job at work, while the others sleep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mpi4py import MPI

from onesided.apps.cli.failures import LONGEST_WAIT, CommandError, Found, rest, user_errors


class Alone(Exception):
    """What one rank cannot do while others wait for it; it ends the job."""


def among(
    comm: MPI.Intracomm, members: Sequence[int], work: Callable[[MPI.Intracomm], Found]
) -> Found:
    """Collective. What ``work``, called on these ranks alone with a communicator of them, gives
    rank 0, which is one of them; the others sleep.

    :class:`CommandError` on all ranks, also for what those that slept cannot know. An error that a
    rank turns out to have alone, because the others do not come, is :class:`Alone` there.
    """
    taking_part = comm.rank in members
    sub: Any = comm.Split(0 if taking_part else MPI.UNDEFINED, comm.rank)
    found, trouble = None, ""
    if taking_part:
        try:
            with user_errors():
                found = work(sub)
        except CommandError as error:
            trouble = str(error)
            if not rest(comm, LONGEST_WAIT):
                raise Alone(f"rank {comm.rank} alone: {trouble}") from error
    if not trouble:
        rest(comm)
    if taking_part:
        sub.Free()
    result, trouble = comm.bcast((found, trouble))
    if trouble:
        raise CommandError(trouble)
    told: Found = result
    return told


def counted(size: int, asked: Sequence[int] | None, usual: Sequence[int]) -> list[int]:
    """Local. The numbers of ranks; :class:`CommandError` for more than the job has."""
    if not asked:
        return sorted(set(usual))
    if max(asked) > size:
        raise CommandError(
            f"--ranks-list {max(asked)}: the job has {size} rank{'s' if size > 1 else ''}"
        )
    return sorted(set(asked))


def node_of_ranks(comm: MPI.Intracomm) -> list[int]:
    """Collective. For every rank the lowest rank of its node."""
    shared = comm.Split_type(MPI.COMM_TYPE_SHARED, key=comm.rank)
    first = shared.bcast(comm.rank)
    shared.Free()
    return comm.allgather(first)
