"""Messages of several groups beside each other, made when they are first wanted, and kept."""

from __future__ import annotations

from collections.abc import Callable

from mpi4py import MPI

from onesided.collectives.partitioned.link import Link
from onesided.collectives.partitioned.notes import data_tag

#: Runs whose messages are kept. Where partitions are marked in the same way in every round the
#: same runs come back, and starting a message is cheaper than making one.
KEPT = 256


class Runs:
    """The persistent messages of runs of groups, by the first group and the one after the last."""

    def __init__(self, link: Link, make: Callable[..., MPI.Prequest]) -> None:
        """``make``: ``Send_init`` or ``Recv_init`` of the communicator."""
        self._link, self._make = link, make
        self._kept: dict[tuple[int, int], list[MPI.Prequest]] = {}
        link.on_release(self._free)

    def start(self, first: int, stop: int) -> list[MPI.Prequest]:
        """Local. Start the messages of the groups ``first`` to ``stop - 1``."""
        messages = self._kept.get((first, stop))
        if messages is None:
            if len(self._kept) >= KEPT:
                self._drop()
            link, tag = self._link, data_tag(self._link)
            messages = [
                self._make([piece, MPI.BYTE], link.peer, tag) for piece in link.pieces(first, stop)
            ]
            self._kept[first, stop] = messages
        MPI.Prequest.Startall(messages)
        return messages

    def _drop(self) -> None:
        """Free the oldest messages that are complete; the others stay."""
        for run, messages in list(self._kept.items())[: KEPT // 2]:
            if MPI.Prequest.Testall(messages):
                self._free_run(run)

    def _free_run(self, run: tuple[int, int]) -> None:
        for message in self._kept.pop(run):
            message.Free()

    def _free(self) -> None:
        for run in list(self._kept):
            self._free_run(run)
