"""Words between ranks that have something for each other: nobody counts for all ranks.

Who has something for a rank is found as by T. Hoefler, C. Siebert, A. Lumsdaine, Scalable
communication protocols for dynamic sparse data exchange, PPoPP 2010: a message that is complete
has been received, so when all ranks say that theirs are complete, none is under way. A rank has as
many messages as counterparts, and one barrier.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping
from typing import Any

from mpi4py import MPI


def told(
    comm: MPI.Intracomm,
    tag: int,
    words: Mapping[int, Any],
    answer: Callable[[int], Any] | None = None,
) -> dict[int, Any]:
    """Collective. By rank, what ranks have told this one, which tells ``words[p]`` to rank ``p``.

    With an ``answer``, on all ranks, a rank that is told something and has not told anything itself
    answers: then every rank that has been told something is heard. ``tag`` is not that of any other
    call before the ranks have agreed on something.
    """
    waits = {peer for peer in words if answer is not None and peer != comm.rank}
    heard = {comm.rank: words[comm.rank]} if comm.rank in words else {}
    sends = [comm.Issend([pickle.dumps(words[p]), MPI.BYTE], p, tag) for p in _others(comm, words)]
    barrier: MPI.Request | None = None
    status = MPI.Status()
    while True:
        while (message := comm.Improbe(MPI.ANY_SOURCE, tag, status)) is not None:
            source, room = status.Get_source(), bytearray(status.Get_count(MPI.BYTE))
            message.Recv([room, MPI.BYTE])
            heard[source] = pickle.loads(room)
            if answer is not None and source not in words:
                sends.append(comm.Issend([pickle.dumps(answer(source)), MPI.BYTE], source, tag))
        complete = MPI.Request.Testall(sends)
        if barrier is None and complete:
            barrier = comm.Ibarrier()
        if barrier is not None and complete and waits <= heard.keys() and barrier.Test():
            return heard
        os.sched_yield()


def swapped(comm: MPI.Intracomm, tag: int, words: Mapping[int, Any]) -> dict[int, Any]:
    """Collective over ranks that all tell each other something. By rank, what has come."""
    sends = [comm.isend(words[peer], peer, tag) for peer in _others(comm, words)]
    heard = {peer: comm.recv(source=peer, tag=tag) for peer in _others(comm, words)}
    MPI.Request.Waitall(sends)
    if comm.rank in words:
        heard[comm.rank] = words[comm.rank]
    return heard


def _others(comm: MPI.Intracomm, words: Mapping[int, Any]) -> list[int]:
    """Local. The other ranks, from the next one on, so that not all begin with one."""
    ranks = [peer for peer in words if peer != comm.rank]
    return sorted(ranks, key=lambda peer: (peer - comm.rank) % comm.size)
