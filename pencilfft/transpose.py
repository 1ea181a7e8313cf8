"""The global transpose: from a pencil along one axis to one along another, one direction."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import Alltoallw_init
from onesided.collectives.errors import PatternError, RequestError
from onesided.pencilfft.blocking import ranges
from onesided.pencilfft.decomposition import PencilGeometry, transpose_boxes
from onesided.pencilfft.passes import Outlet

#: Names of the two routes of a pass before a transpose.
DIRECT, STAGED = "direct", "staged"


class Transpose:
    """A persistent request that turns the blocks of ``source`` into those of ``target``.

    Blocks go straight from box to box, whatever the memory orders of the two arrays. ``comm`` is
    the sub-communicator of the grid axis over which the transpose runs; ranks in it are ordered
    by their coordinate. The arrays are bound. The way back is a second transpose.

    The source is made chunk by chunk: ``chunks`` is the axis along which it is cut and the ends
    of the chunks. :meth:`routes` says where the parts of a chunk have to be written, in two ways.
    "direct": to the peers' memory, or to buffers that leave at once; allowed between an
    :meth:`open` that returned true and :meth:`wait`, with :meth:`ready` after every chunk.
    "staged": to ``send``, followed by :meth:`start` and :meth:`wait`. On both routes the block
    that a rank keeps is written where it is read next; it is no part of the exchange.

    Examples
    --------
    >>> plan = PFFT(comm, (8, 8, 8), grid=(1, comm.size), method="p2p")
    >>> plan.destroy()  # plans make them, one for each change of the whole axis
    """

    def __init__(
        self,
        comm: MPI.Comm,
        source: PencilGeometry,
        target: PencilGeometry,
        send: NDArray[Any],
        receive: NDArray[Any],
        chunks: tuple[int, Sequence[int]],
        *,
        method: str = "auto",
        info: Mapping[str, str] | None = None,
    ) -> None:
        """Collective over ``comm``."""
        grid_axis, send_boxes, receive_boxes = transpose_boxes(source, target)
        if comm.size != source.grid[grid_axis] or comm.rank != source.coords[grid_axis]:
            raise PatternError(
                f"rank {comm.rank} of {comm.size} does not fit coordinate "
                f"{source.coords[grid_axis]} of {source.grid[grid_axis]} on grid axis {grid_axis}"
            )
        self.comm, self.receive = comm, receive
        own, place = send_boxes[comm.rank], receive_boxes[comm.rank]
        send_boxes[comm.rank] = receive_boxes[comm.rank] = None
        kept = 0 if own is None else send[own].nbytes
        #: Bytes that this rank sends to others in one call.
        self.nbytes = send.nbytes - kept
        self._request = request = Alltoallw_init(
            comm,
            [send, send_boxes],
            [receive, receive_boxes],
            method=method,
            info=info,
            chunks=chunks if send.size else None,
        )
        #: Name of the method in use; for "auto" the one that was chosen.
        self.method: str = request.method
        #: Seconds that the request took to be set up.
        self.setup_time: float = request.setup_time
        self.open, self.start, self.ready = request.Open, request.Start, request.Ready
        self.wait, self.test, self.release = request.Wait, request.Test, request.Release
        self._source, self._send, self._chunks = source, send, chunks
        self._own, self._place = own, place

    def routes(self) -> dict[str, list[list[Outlet]]]:
        """Local. By route and chunk, the parts of the source and the arrays that take them."""
        send, own, along = self._send, self._own, self._chunks[0]
        routes: dict[str, list[list[Outlet]]] = {DIRECT: [], STAGED: []}
        keeps = None if own is None or self._place is None else (own, self.receive[self._place])
        axis = self._source.axis
        for k, span in enumerate(slice(*ends) for ends in ranges(self._chunks[1])):
            mine = [] if keeps is None else [_cut(*keeps, along, span)]
            kept = slice(0, 0) if own is None else own[axis]
            outlets = self._request.outlets[k] if send.size else []
            routes[DIRECT].append([(part, array) for _, part, array in outlets] + mine)
            routes[STAGED].append(_around(axis, send, kept, along, span) + mine)
        return routes

    def marks(self) -> list[Callable[[], object]]:
        """Local. By chunk, :attr:`ready` as a call without arguments."""
        return [self._request.mark(chunk) for chunk in self._every_chunk]

    def ready_all(self) -> None:
        """Local. Whatever the chunks of an opened round hold that are not ready, they leave now."""
        for chunk in self._every_chunk:
            with contextlib.suppress(RequestError):
                self.ready(chunk)

    @property
    def _every_chunk(self) -> range:
        """Where nothing is sent, there is one chunk all the same: of the round."""
        return range(len(self._chunks[1]) if self._send.size else 1)

    @property
    def request(self) -> Any:
        """The persistent request, for those that share its memory."""
        return self._request

    def free(self) -> None:
        """Collective. Free the request; a second call does nothing."""
        self._request.Free()


def _cut(box: tuple[slice, ...], array: NDArray[Any], axis: int, span: slice) -> Outlet:
    """The part of a box, and of the array of its shape, that a chunk holds."""
    part = list(box)
    part[axis] = span
    return tuple(part), array[(*[slice(None)] * axis, span)]


def _around(axis: int, send: NDArray[Any], kept: slice, along: int, span: slice) -> list[Outlet]:
    """A chunk of the send array, but for the range that this rank keeps along ``axis``."""
    outlets = []
    for start, stop in ((0, kept.start), (kept.stop, send.shape[axis])):
        if stop > start:
            part = [slice(0, length) for length in send.shape]
            part[axis], part[along] = slice(start, stop), span
            outlets.append((tuple(part), send[tuple(part)]))
    return outlets
