"""``Psend_init`` and ``Precv_init``: local, and what they do not know yet comes by letter."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from onesided.collectives.hints import Hints
from onesided.collectives.partitioned.arguments import Arguments, checked
from onesided.collectives.partitioned.letter import RECEIVER, SENDER, Letter
from onesided.collectives.partitioned.mailbox import Mailbox
from onesided.collectives.partitioned.receive import PartitionedReceive
from onesided.collectives.partitioned.registry import AUTO
from onesided.collectives.partitioned.send import PartitionedSend
from onesided.collectives.partitioned.transports.p2p import tags_wanted
from onesided.collectives.partitioned.view import View, view_of

#: Bytes that a group holds at least, where partitions are smaller.
AGGREGATE = 65536


def Psend_init(
    comm: MPI.Intracomm, buf: Any, partitions: int, dest: int, tag: int = 0, *,
    method: str = AUTO, aggregate: int = AGGREGATE, info: MPI.Info | None = None,
) -> PartitionedSend:
    """Local. The sending side of a partitioned send, inactive.

    ``buf``: a contiguous array or buffer of ``partitions`` equal parts. Partitions are joined to
    *groups* of at most ``aggregate`` bytes (one partition at least), and a group leaves when all
    its partitions are ready; 0 joins nothing. The sender's value counts. ``method`` is a name of
    :func:`partitioned_methods`, the same on both sides or "auto" on one; ``info`` with ``compiled``
    set to ``false`` counts partitions in Python where a compiled counter has been built.

    The receiver calls :func:`Precv_init` with as many bytes and the same tag, in as many
    partitions as it likes; requests of one pair and tag are matched in the order of their
    initialization, which no other call has to accompany. ``dest`` may be ``MPI.PROC_NULL``.

    Messages go over ``comm`` with tags from the upper half of its range: where the program
    receives with ``MPI.ANY_TAG`` on it, give a duplicate. ``comm`` and the buffer must outlive the
    request.

    Raises :class:`PatternError` for partitions that do not divide the buffer, a buffer that is not
    contiguous, and tags or ranks out of range, :class:`MethodError` for an unknown method.
    """
    mailbox, compiled = Mailbox.of(comm), Hints.of(info).compiled
    given = checked(comm, buf, partitions, dest, tag, method, aggregate, False)
    grouping = given.grouping
    base = mailbox.take_tags(tags_wanted(grouping.groups, grouping.size))
    return PartitionedSend(given, mailbox, _letter(SENDER, given, base), compiled)


def Precv_init(
    comm: MPI.Intracomm, buf: Any, partitions: int, source: int, tag: int = 0, *,
    method: str = AUTO, aggregate: int = AGGREGATE, info: MPI.Info | None = None,
) -> PartitionedReceive:
    """Local. The receiving side of a partitioned send, inactive; see :func:`Psend_init`.

    Into a contiguous part of an array from :func:`empty` a sender on the same node stores, which
    is the fastest way; one on another node can Put there (``method="rma"``). As many receives at a
    time as the array has links. ``MPI.ANY_SOURCE`` and ``MPI.ANY_TAG`` are refused, as by MPI.
    """
    mailbox = Mailbox.of(comm)
    given = checked(comm, buf, partitions, source, tag, method, aggregate, True)
    base = mailbox.take_tags(1)
    view = View() if given.nowhere else view_of(comm, given.memory, given.peer)
    letter = _letter(RECEIVER, given, base, view.fields())
    return PartitionedReceive(given, mailbox, letter, view.give_back)


def _letter(
    side: int, given: Arguments, base: int, view: dict[str, int] | None = None
) -> Letter:
    return Letter(side, given.tag, given.memory.size, given.partitions, given.aggregate, base,
                  given.code, **(view or {}))
