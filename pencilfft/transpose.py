"""The global transpose: from a pencil along one axis to one along another, one direction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import Alltoallw_init
from onesided.collectives.errors import PatternError
from onesided.pencilfft.decomposition import PencilGeometry, transpose_boxes
from onesided.pencilfft.local import Outlet


class Transpose:
    """A persistent request that turns the blocks of ``source`` into those of ``target``.

    Blocks go straight from box to box, whatever the memory orders of the two arrays. ``comm`` is
    the sub-communicator of the grid axis over which the transpose runs; ranks in it are ordered
    by their coordinate. The arrays are bound: fill :attr:`outlets`, call, read ``receive``. The
    way back is a second transpose.

    The block that a rank keeps is no part of the exchange: the last transform before it writes
    that block where it is read next. So ``outlets`` says where a source block has to go: pairs of
    a part of it and of the array that takes this part, in ``send`` or in ``receive``.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        source: PencilGeometry,
        target: PencilGeometry,
        send: NDArray[Any],
        receive: NDArray[Any],
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
        self.comm, self.send, self.receive = comm, send, receive
        own, place = send_boxes[comm.rank], receive_boxes[comm.rank]
        send_boxes[comm.rank] = receive_boxes[comm.rank] = None
        self.outlets = _outlets(source.axis, send)
        kept = 0
        if own is not None and place is not None:
            kept = send[own].nbytes
            self.outlets = _outlets(source.axis, send, own[source.axis], receive[place])
        #: Bytes that this rank sends to others in one call.
        self.nbytes = send.nbytes - kept
        self._request = Alltoallw_init(
            comm, [send, send_boxes], [receive, receive_boxes], method=method, info=info
        )
        #: Name of the method in use; for "auto" the one that was chosen.
        self.method: str = self._request.method
        #: Seconds that the request took to be set up.
        self.setup_time: float = self._request.setup_time

    def __call__(self) -> None:
        """Collective. Exchange; ``receive`` holds the target pencil when this returns."""
        self._request.Start()
        self._request.Wait()

    def free(self) -> None:
        """Collective. Free the request; a second call does nothing."""
        self._request.Free()


def _outlets(
    axis: int,
    send: NDArray[Any],
    kept: slice = slice(0, 0),
    keeps: NDArray[Any] | None = None,
) -> tuple[Outlet, ...]:
    """The parts of a block before, in, and after the range that this rank keeps along ``axis``."""

    def part(start: int, stop: int) -> tuple[slice, ...]:
        return (*[slice(None)] * axis, slice(start, stop))

    length = send.shape[axis]
    outlets = [
        (part(start, stop), send[part(start, stop)])
        for start, stop in ((0, kept.start), (kept.stop, length))
        if stop > start
    ]
    if keeps is not None:
        outlets.append((part(kept.start, kept.stop), keeps))
    return tuple(outlets)
