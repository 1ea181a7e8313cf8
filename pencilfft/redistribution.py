"""Persistent requests for arrays that change from call to call, kept with their communicator.

A program that makes a transfer, uses it once and drops it would pay for windows and schedules
every time. So the requests belong to the communicator, and a new transfer finds those of an
earlier one that did the same.

*When they are freed.* Freeing is collective, dropping a transfer is not. A redistribution without
users is freed by a later call that makes a new one, once there are too many: what is idle on
every rank, least recently used first, as agreed by all ranks. All are freed with their
communicator, and what is left before Finalize.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import Alltoallw_init
from onesided.collectives.agreement import agree
from onesided.collectives.context import Context
from onesided.collectives.errors import RequestError, ResourceError
from onesided.pencilfft.decomposition import Boxes, block

#: Redistributions that a communicator keeps when nobody uses them.
MOST = 16

#: Bytes of memory per rank, about, that they may hold.
MOST_BYTES = 1 << 28

Key = tuple[Any, ...]


class Redistribution:
    """From blocks along one axis to blocks along another, of any two arrays.

    Arrays of the caller's change from call to call, so the request is bound to memory of its own.
    Blocks go from the source straight into the peers' slots where the method has a way there, else
    through a send array, and from the slot to the target. What a rank keeps goes from array to
    array.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        axes: tuple[int, int],
        method: str,
        info: Mapping[str, str],
    ) -> None:
        """Collective over ``comm``. ``axes``: the one along which a source block is whole, first.

        ``shape`` is whole along both axes.
        """
        source, target = axes
        send_boxes, send_shape = _boxes(comm, shape, source, target)
        receive_boxes, receive_shape = _boxes(comm, shape, target, source)
        own, place = send_boxes[comm.rank], receive_boxes[comm.rank]
        send_boxes[comm.rank] = receive_boxes[comm.rank] = None
        self._kept = None if own is None or place is None else (own, place)
        send = np.empty(send_shape, dtype)  # pages that are never written take no memory
        self._outgoing = [(send[box], box) for box in send_boxes if box is not None]
        self._incoming = [box for box in receive_boxes if box is not None]
        self._request = Alltoallw_init(
            comm,
            [send, send_boxes],
            [(receive_shape, dtype), receive_boxes],
            method=method,
            info=info,
        )
        #: The transfers that use this.
        self.users: weakref.WeakSet[Any] = weakref.WeakSet()
        self.freed = False

    def __call__(self, source: NDArray[Any], target: NDArray[Any]) -> None:
        """Collective. The source is left as it is."""
        request = self._request
        if request.Open():
            for chunk, outlets in enumerate(request.outlets):
                for _, box, outlet in outlets:
                    outlet[...] = source[box]
                request.Ready(chunk)
        else:
            for memory, box in self._outgoing:
                memory[...] = source[box]
            request.Start()
        if self._kept is not None:
            own, place = self._kept
            target[place] = source[own]
        received = request.Wait()
        for box in self._incoming:
            target[box] = received[box]

    def free(self) -> None:
        """Collective. Give back windows and memory."""
        self.freed = True
        self._outgoing = []
        self._request.Free()


def _boxes(
    comm: MPI.Comm, shape: tuple[int, ...], whole: int, split: int
) -> tuple[Boxes, tuple[int, ...]]:
    """Per rank the box of a block that is whole along one axis, and the shape of the block."""
    start, stop = block(shape[split], comm.size, comm.rank)
    local = tuple(stop - start if axis == split else n for axis, n in enumerate(shape))
    boxes: Boxes = []
    for peer in range(comm.size):
        box = [slice(0, n) for n in local]
        box[whole] = slice(*block(shape[whole], comm.size, peer))
        boxes.append(None if any(part.start == part.stop for part in box) else tuple(box))
    return boxes, local


class Redistributions:
    """Those of one communicator, by what they do.

    All ranks use them in the same order, so they are the same ones everywhere. They are entered
    among the retired memory of the communicator's context, which asks :meth:`unused` and calls
    :meth:`unmap` when the communicator is freed or MPI ends: an attribute of their own is no way,
    because MPICH 5.0 leaves attributes that it has deleted in the list which mpi4py searches for a
    topology on its way to the next deletion callback.
    """

    _all: ClassVar[dict[int, Redistributions]] = {}  # by the number of the context

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[Key, Redistribution] = {}  # least recently used first
        self._bytes: dict[Key, int] = {}
        context.retired.append(self)
        Redistributions._all[context.number] = self

    @classmethod
    def of(cls, comm: MPI.Comm) -> Redistributions:
        """Collective on the first call for a communicator, local afterwards.

        RequestError where the communicator has been freed.
        """
        if comm == MPI.COMM_NULL:
            raise RequestError("the communicator of the transfer has been freed")
        context = Context.of(comm)
        return cls._all.get(context.number) or cls(context)

    def unused(self) -> bool:
        """Local. True where the communicator is being freed."""
        return self._context.orphaned

    def unmap(self) -> None:
        """Collective. Free all."""
        Redistributions._all.pop(self._context.number, None)
        self._bytes.clear()
        for key in list(self._known):
            self._known.pop(key).free()

    def __len__(self) -> int:
        return len(self._known)

    def find(
        self,
        user: object,
        comm: MPI.Comm,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        axes: tuple[int, int],
        method: str,
        info: Mapping[str, str],
    ) -> Redistribution:
        """Collective. The redistribution that does this, an earlier one or a new one."""
        key = (shape, dtype.str, axes, method, tuple(sorted(info.items())))
        found = self._known.pop(key, None)
        if found is None:
            nbytes = 3 * int(np.prod(shape, dtype=object)) * dtype.itemsize // comm.size
            if len(self._known) >= MOST or sum(self._bytes.values()) + nbytes > MOST_BYTES:
                self._free_idle(nbytes)
            arguments = (comm, shape, dtype, axes, method, info)
            try:
                found = Redistribution(*arguments)
            except ResourceError:  # agreed: every rank is here
                self._free_idle(None)
                found = Redistribution(*arguments)
            self._bytes[key] = nbytes
        self._known[key] = found
        found.users.add(user)
        return found

    def _free_idle(self, room: int | None) -> None:
        """Collective. Free what no rank uses, the oldest first, until ``room`` bytes more fit.

        None frees all of it.
        """
        idle = [not found.users for found in self._known.values()]
        everyone = agree(self._context.comm, what="free redistributions", value=idle)
        flags = [all(flags) for flags in zip(*everyone, strict=True)]
        for key, unused in zip(list(self._known), flags, strict=True):
            full = room is None or sum(self._bytes.values()) + room > MOST_BYTES
            if unused and (full or len(self._known) >= MOST):
                del self._bytes[key]
                self._known.pop(key).free()
