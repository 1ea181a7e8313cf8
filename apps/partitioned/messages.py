"""Contestants that send a message for every partition, and the one that sends a single message.

As Tables 1 and 2 of the paper have them; a partition's number is its tag, so that threads on both
sides find each other.
"""

from __future__ import annotations

from mpi4py import MPI

from onesided.apps.partitioned.runner import Lane, Runner


def single(lane: Lane) -> Runner:
    """Local. The whole buffer by one blocking message, when everything is ready."""
    transfer = lane.comm.Send if lane.is_sender else lane.comm.Recv
    data, peer, tag = [lane.message, MPI.BYTE], lane.peer, lane.tag

    def wait() -> None:
        transfer(data, peer, tag)

    return Runner(wait=wait)


def blocking(lane: Lane) -> Runner:
    """Local. Send and Recv."""
    lane.check_tags()
    transfer = lane.comm.Send if lane.is_sender else lane.comm.Recv
    pieces, peer = [[piece, MPI.BYTE] for piece in lane.pieces()], lane.peer

    def mark(index: int) -> None:
        transfer(pieces[index], peer, index)

    return Runner(mark=mark)


def persistent(lane: Lane) -> Runner:
    """Local. Send_init and Recv_init beforehand, Start, Waitall."""
    lane.check_tags()
    make = lane.comm.Send_init if lane.is_sender else lane.comm.Recv_init
    requests: list[MPI.Request] = [
        make([piece, MPI.BYTE], lane.peer, index) for index, piece in enumerate(lane.pieces())
    ]
    starts = [request.Start for request in requests if isinstance(request, MPI.Prequest)]
    waitall = MPI.Request.Waitall

    def mark(index: int) -> None:
        starts[index]()

    def wait() -> None:
        waitall(requests)

    def free() -> None:
        for request in requests:
            request.Free()

    return Runner(mark=mark, wait=wait, free=free)


def immediate(lane: Lane) -> Runner:
    """Local. Isend and Irecv, Waitall."""
    lane.check_tags()
    begin = lane.comm.Isend if lane.is_sender else lane.comm.Irecv
    pieces, peer = [[piece, MPI.BYTE] for piece in lane.pieces()], lane.peer
    requests = [MPI.REQUEST_NULL for _ in pieces]
    waitall = MPI.Request.Waitall

    def mark(index: int) -> None:
        requests[index] = begin(pieces[index], peer, index)

    def wait() -> None:
        waitall(requests)

    return Runner(mark=mark, wait=wait)
