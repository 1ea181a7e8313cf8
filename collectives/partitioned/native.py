"""The MPI's own partitioned send, where it can be trusted."""

from __future__ import annotations

import functools
import time

import numpy as np
from mpi4py import MPI

from onesided.collectives.partitioned.channel import Channel, Receiver, Sender

#: Open MPI corrupts data from the second round on, and hangs unless every rank of COMM_WORLD has
#: made a partitioned request (ompi #12328, #12969). Later releases are tried.
OPEN_MPI = (5, 0, 12)

#: Seconds that the trial may take; one that needs other ranks would never end.
PATIENCE = 5.0


@functools.cache
def distrust() -> str:
    """Local. Why the MPI's own partitioned send is not used; "" where it works.

    MPIs with known faults are not tried: the trial itself might hang.
    """
    name, version = MPI.get_vendor()
    if name == "Open MPI" and version < OPEN_MPI:
        return (
            f"the partitioned send of Open MPI {'.'.join(map(str, version))} needs every rank of "
            "COMM_WORLD and corrupts data from the second round on"
        )
    if MPI.Get_version() < (4, 0):
        return "this MPI is older than MPI-4"
    try:
        return _trial()
    except (MPI.Exception, NotImplementedError) as error:
        return f"the partitioned send of this MPI fails: {error}"


def _trial() -> str:
    """Two rounds to this rank itself, filled late, with different data."""
    source, target = np.zeros(8, np.int64), np.zeros(8, np.int64)
    send = MPI.COMM_SELF.Psend_init([source, MPI.INT64_T], 4, 0, 0)
    receive = MPI.COMM_SELF.Precv_init([target, MPI.INT64_T], 4, 0, 0)
    fault = ""
    for turn in range(1, 3):
        MPI.Prequest.Startall([send, receive])
        if send.Test():
            fault = f"a send of round {turn} is complete before anything is ready"
            break
        source[:] = np.arange(8) + 100 * turn
        for index in (3, 0, 2, 1):
            send.Pready(index)
        if not _completes([send, receive]):
            return f"round {turn} does not complete with this rank alone"
        if not np.array_equal(source, target):
            fault = f"wrong data in round {turn}"
    send.Free()
    receive.Free()
    return fault


def _completes(requests: list[MPI.Prequest]) -> bool:
    # one by one: MPICH 5.0 fails MPI_Testall on requests that are no messages
    end = time.monotonic() + PATIENCE
    while not all([request.Test() for request in requests]):
        if time.monotonic() > end:
            return False
    return True


def _parts(channel: Channel) -> int:
    """Partitions of the MPI's request, which must be equal: groups, or what they are made of."""
    grouping = channel.grouping
    return grouping.groups if grouping.last == grouping.per else grouping.partitions


def _factor(channel: Channel) -> int:
    """Partitions of the MPI's request to a group."""
    return 1 if _parts(channel) == channel.grouping.groups else channel.grouping.per


class NativeSend(Sender):
    """Groups are partitions of the MPI's own request; where one is smaller, partitions are."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self._parts = parts = _parts(channel)
        self._factor = _factor(channel)
        data = [channel.memory, MPI.BYTE]
        self._send = channel.comm.Psend_init(data, parts, channel.peer, channel.sender.base)
        message = self._send
        channel.on_release(lambda: channel.drop(message))

    @classmethod
    def doubt(cls) -> str:
        return distrust()

    def begin(self) -> None:
        self._send.Start()

    def leave(self, first: int, stop: int) -> None:
        low, high = first * self._factor, min(stop * self._factor, self._parts) - 1
        self._send.Pready_range(low, high)

    def idle(self) -> bool:
        return self._send.Test()


class NativeReceive(Receiver):
    """The MPI's own request, with the partitions of the sender."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self._parts = parts = _parts(channel)
        self._factor = _factor(channel)
        data = [channel.memory, MPI.BYTE]
        self._receive = channel.comm.Precv_init(data, parts, channel.peer, channel.sender.base)
        message = self._receive
        channel.on_release(lambda: channel.drop(message))

    def begin(self) -> None:
        self._receive.Start()

    def advance(self) -> bool:
        return self._receive.Test()

    def arrived(self, first: int, stop: int) -> bool:
        end = min(stop * self._factor, self._parts)
        return all(self._receive.Parrived(part) for part in range(first * self._factor, end))
