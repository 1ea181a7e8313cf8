"""Redistribution of whichever arrays, from blocks along one axis to blocks along another.

A program that makes a transfer, uses it once and drops it would pay for windows and schedules
every time. So the requests belong to the communicator, and a new transfer finds those of an
earlier one that did the same.

*When they are freed.* Freeing is collective, dropping a transfer is not. A redistribution without
users is freed by a later call that makes a new one, once there are too many: what is idle on
every rank, the oldest first, as agreed by all ranks. All are freed with their
communicator, and what is left before Finalize. One that an interrupt has left in its middle, on any
rank, is given up by the next call (:class:`prepared`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from types import TracebackType
from typing import Any, ClassVar

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from onesided.collectives import Alltoallw_init, alternate
from onesided.collectives.agreement import agreed, largest, words_of_all
from onesided.collectives.errors import PatternError, RequestError, ResourceError
from onesided.pencilfft.commons import Commons, Piece
from onesided.pencilfft.decomposition import Boxes, array_in, block, boxes_between, nbytes_of

#: The method where none is asked for. Not "auto": a transfer may be used only once, and measuring
#: would cost more than it saves.
METHOD = "rma-notify"

#: Redistributions that a communicator keeps when nobody uses them.
MOST = 16

#: Bytes of memory per rank, about, that they may hold.
MOST_BYTES = 1 << 28

Key = tuple[Any, ...]


class Redistribution:
    """Between two decompositions of a global array, of any two arrays.

    Arrays of the caller's change from call to call, so the requests are bound to memory of their
    own: one piece of window memory, which both directions receive into. Blocks go from the source
    straight into the peers' piece where the method has a way there and the peers have given it
    up, else through a send array, and from the piece to the target. What a rank keeps goes from
    array to array.
    """

    #: Those of this process that are under way, or were interrupted.
    under_way: ClassVar[set[Redistribution]] = set()

    def __init__(
        self,
        comm: MPI.Comm,
        dtype: np.dtype[Any],
        boxes: Sequence[tuple[Boxes, tuple[int, ...]]],
        method: str,
        info: Mapping[str, str],
    ) -> None:
        """Collective over ``comm``. ``boxes``: of either decomposition what this rank has in common
        with the block of every rank in the other one, and the shape of its own block."""
        nbytes = [nbytes_of(local, dtype) for _, local in boxes]
        with agreed(comm):
            send = np.empty(max(nbytes), np.uint8)  # pages that are never written take no memory
        self._piece = Piece(comm, max(nbytes))
        self._ways: list[_Way] = []
        try:
            for source, target in ((0, 1), (1, 0)):
                local = boxes[source][1]
                sent = array_in(send, local, dtype)
                received = self._piece.array(boxes[target][1], dtype)
                of, to = list(boxes[source][0]), list(boxes[target][0])
                own, place = of[comm.rank], to[comm.rank]
                of[comm.rank] = to[comm.rank] = None
                request = Alltoallw_init(
                    comm, [sent, of], [received, to], method=method, info=info
                )
                kept = None if own is None or place is None else (own, place)
                outgoing = [(sent[box], box) for box in of if box is not None]
                incoming = [(received[box], box) for box in to if box is not None]
                self._ways.append(_Way(request, kept, outgoing, incoming))
        except Exception:  # agreed
            self.free()
            raise
        alternate([way.request for way in self._ways])
        self._ways[0].request.Release()
        #: The transfers that use this.
        self.users: weakref.WeakSet[Any] = weakref.WeakSet()
        self.freed = False

    def __call__(self, forward: bool, source: NDArray[Any], target: NDArray[Any]) -> None:
        """Collective. To the second decomposition, or back; the source is left as it is."""
        self.under_way.add(self)
        self._ways[not forward](source, target)
        self.under_way.discard(self)

    def free(self) -> None:
        """Collective. Give back requests and memory; not where data may be on their way to it, as a
        rank was interrupted."""
        self.freed, lost = True, False
        while self._ways:
            try:
                self._ways.pop().request.Free()
            except RequestError:  # on all ranks
                lost = True
        if not lost:
            self._piece.give()
        self.under_way.discard(self)


@dataclass
class _Way:
    """One direction: what this rank keeps, and what it sends and receives, by box."""

    request: Any
    kept: tuple[Any, Any] | None
    outgoing: list[tuple[NDArray[Any], Any]]
    incoming: list[tuple[NDArray[Any], Any]]

    def __call__(self, source: NDArray[Any], target: NDArray[Any]) -> None:
        request = self.request
        if request.Open():
            for chunk, outlets in enumerate(request.outlets):
                for _, box, outlet in outlets:
                    outlet[...] = source[box]
                request.Ready(chunk)
        else:
            for memory, box in self.outgoing:
                memory[...] = source[box]
            request.Start()
        if self.kept is not None:
            own, place = self.kept
            target[place] = source[own]
        request.Wait()
        for memory, box in self.incoming:
            target[box] = memory
        request.Release()


def _blocks(shape: tuple[int, ...], split: int, parts: int) -> list[tuple[slice, ...]]:
    """The blocks of all ranks of an array that is cut along one axis."""
    every = [tuple(slice(0, n) for n in shape)] * parts
    return [
        (*box[:split], slice(*block(shape[split], parts, rank)), *box[split + 1 :])
        for rank, box in enumerate(every)
    ]


class Redistributions:
    """Those of one communicator, by what they do; all ranks use them in the same order."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm
        self._known: dict[Key, Redistribution] = {}  # the oldest first
        self._bytes: dict[Key, int] = {}

    @classmethod
    def of(cls, comm: MPI.Comm) -> Redistributions:
        """Collective on the first call for a communicator, local afterwards."""
        commons = Commons.of(comm)
        found: Redistributions = commons.once(cls, lambda: cls(commons.context.comm))
        return found

    def destroy(self) -> None:
        """Collective. Free all."""
        for key in list(self._known):
            self._drop(key)

    def find(
        self,
        user: object | None,
        comm: MPI.Comm,
        dtype: np.dtype[Any],
        name: Any,
        boxes: Callable[[], Sequence[tuple[Boxes, tuple[int, ...]]]],
        method: str,
        info: Mapping[str, str],
    ) -> Redistribution:
        """Collective. The redistribution with this name, an earlier one or a new one of ``boxes``.

        Names are equal on a rank where they are on all.
        """
        key = (name, dtype, method, tuple(sorted(info.items())))
        found = self._known.get(key)
        if found is None:
            sides = boxes()
            sizes = [nbytes_of(shape, dtype) for _, shape in sides]
            (nbytes,) = largest(comm, None, "redistribution", [max(sizes)])
            if len(self._known) >= MOST or sum(self._bytes.values()) + nbytes > MOST_BYTES:
                self._free_idle(nbytes)
            arguments = (comm, dtype, sides, method, info)
            try:
                found = Redistribution(*arguments)
            except ResourceError:  # agreed: every rank is here
                self._free_idle(None)
                found = Redistribution(*arguments)
            self._bytes[key] = nbytes
            self._known[key] = found  # in the order in which they are made: the same on all ranks
        if user is not None:
            found.users.add(user)
        return found

    def give_up(self) -> None:
        """Collective. Free those that are in their middle on any rank: nobody goes on with them."""
        mine = [int(found in Redistribution.under_way) for found in self._known.values()]
        broken = largest(self._comm, None, "give up redistributions", mine)
        for key in [key for key, is_broken in zip(self._known, broken, strict=True) if is_broken]:
            self._drop(key)

    def _drop(self, key: Key) -> None:
        del self._bytes[key]
        self._known.pop(key).free()

    def _free_idle(self, room: int | None) -> None:
        """Collective. Free what no rank uses, the oldest first, until ``room`` bytes more fit.

        None frees all of it.
        """
        users = [int(bool(found.users)) for found in self._known.values()]
        used = largest(self._comm, None, "free redistributions", users)
        for key, busy in zip(list(self._known), used, strict=True):
            full = room is None or sum(self._bytes.values()) + room > MOST_BYTES
            if not busy and (full or len(self._known) >= MOST):
                self._drop(key)


class prepared(agreed):
    """Collective. As :class:`agreed`, before a redistribution among the ranks of ``over``: what
    interrupts have left in its middle there, on any rank, is given up."""

    def __init__(self, comm: MPI.Comm, what: object) -> None:
        super().__init__(comm, what)
        #: The communicator, or the one of its parts that this rank is in.
        self.over = comm

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, Exception):
            broken = len(Redistribution.under_way)
            if largest(self._comm, error, self._what, [broken])[0]:
                Redistributions.of(self.over).give_up()


def between(
    comm: MPI.Comm,
    dtype: np.dtype[Any],
    here: tuple[slice, ...],
    there: tuple[slice, ...],
) -> Redistribution | None:
    """Collective. That from the blocks ``here`` to the blocks ``there``, slices of a global array;
    None where these are the same on every rank."""
    mine = [(a.start, a.stop, b.start, b.stop) for a, b in zip(here, there, strict=True)]
    words = words_of_all(4 * len(mine) * comm.size, np.int64)
    comm.Allgather(np.array(mine, np.int64), words)
    everyone = words.reshape(comm.size, len(mine), 4)
    if np.array_equal(everyone[..., :2], everyone[..., 2:]):
        return None

    def boxes() -> list[Any]:
        of = [[tuple(slice(*ends) for ends in each) for each in everyone[..., k : k + 2].tolist()]
              for k in (0, 2)]  # fmt: skip
        return [boxes_between(here, of[1]), boxes_between(there, of[0])]

    return Redistributions.of(comm).find(None, comm, dtype, words.tobytes(), boxes, METHOD, {})


class Transfer:
    """Local. A redistribution of arrays between two pencils, over the ranks of ``comm``.

    Arguments and attributes as in mpi4py-fft: ``shape`` is that of the two pencils together,
    whole along ``axisA`` and ``axisB`` both; ``subshapeA`` and ``subshapeB`` are the local shapes,
    whole along the axis of their own and cut into blocks along the other one.

    The arrays are not bound, and a transfer costs next to nothing: the persistent requests behind
    it belong to the communicator and are found again by shape, dtype and axes. They are made by
    the first :meth:`forward` or :meth:`backward` that needs them.

    ``method`` and ``info`` as in :func:`~onesided.collectives.Alltoallw_init`. Raises PatternError
    where the shapes do not fit.

    Examples
    --------
    >>> shape = 2 * comm.size, 3 * comm.size
    >>> rows, columns = np.ones((2, shape[1])), np.zeros((shape[0], 3))
    >>> transfer = Transfer(comm, shape, float, rows.shape, 1, columns.shape, 0)
    >>> transfer.forward(rows, columns)
    >>> bool((columns == 1).all())
    True
    >>> transfer.destroy()
    """

    def __init__(
        self,
        comm: MPI.Comm,
        shape: Sequence[int],
        dtype: DTypeLike,
        subshapeA: Sequence[int],
        axisA: int,
        subshapeB: Sequence[int],
        axisB: int,
        *,
        method: str = METHOD,
        info: Mapping[str, str] | None = None,
    ) -> None:
        self.comm, self.dtype = comm, np.dtype(dtype)
        self.shape = tuple(index(n) for n in shape)
        self.subshapeA, self.axisA = tuple(index(n) for n in subshapeA), axisA
        self.subshapeB, self.axisB = tuple(index(n) for n in subshapeB), axisB
        self._method, self._info = method, dict(info or {})
        self._axes = self._checked_axes()
        self._destroyed = False
        self._found: Redistribution | None = None

    def _checked_axes(self) -> tuple[int, int]:
        ndim = len(self.shape)
        for axis in (self.axisA, self.axisB):
            if not -ndim <= axis < ndim:
                raise PatternError(f"axis {axis} does not exist in {ndim} dimensions")
        a, b = index(self.axisA) % ndim, index(self.axisB) % ndim
        if a == b:
            raise PatternError(f"a transfer from axis {a} to axis {b} goes nowhere")
        for name, subshape, axis in (("A", self.subshapeA, b), ("B", self.subshapeB, a)):
            start, stop = block(self.shape[axis], self.comm.size, self.comm.rank)
            expected = (*self.shape[:axis], stop - start, *self.shape[axis + 1 :])
            if subshape != expected:
                raise PatternError(
                    f"subshape{name} is {subshape}; rank {self.comm.rank} of {self.comm.size} has "
                    f"{expected} of {self.shape}"
                )
        return a, b

    def forward(self, arrayA: NDArray[Any], arrayB: NDArray[Any]) -> None:
        """Collective. Redistribute ``arrayA`` of shape subshapeA into ``arrayB`` of subshapeB.

        Of this transfer's dtype, in any memory order. PatternError, locally and before anything
        is started, where they are not.
        """
        self._run(True, arrayA, arrayB)

    def backward(self, arrayB: NDArray[Any], arrayA: NDArray[Any]) -> None:
        """Collective. Redistribute ``arrayB`` of shape subshapeB into ``arrayA`` of subshapeA."""
        self._run(False, arrayB, arrayA)

    def _run(self, forward: bool, source: NDArray[Any], target: NDArray[Any]) -> None:
        if self._destroyed:
            raise RequestError("a transfer that was destroyed cannot be used")
        shapes = (self.subshapeA, self.subshapeB) if forward else (self.subshapeB, self.subshapeA)
        for what, array, shape in zip(("source", "target"), (source, target), shapes, strict=True):
            if not isinstance(array, np.ndarray):
                raise PatternError(f"the {what} is a {type(array).__name__}, not a NumPy array")
            if array.shape != shape or array.dtype != self.dtype:
                raise PatternError(
                    f"the {what} has shape {array.shape} and dtype {array.dtype}, the transfer "
                    f"{shape} and {self.dtype}"
                )
        if not target.flags.writeable:
            raise PatternError("the target of the transfer is read-only")
        source, target = np.asarray(source), np.asarray(target)
        if self.comm.size == 1:
            target[...] = source
            return
        found = self._found
        if found is None or found.freed:
            low, high = sorted(self._axes)
            size, rank = self.comm.size, self.comm.rank
            sides = [_blocks(self.shape, split, size) for split in (high, low)]
            found = self._found = Redistributions.of(self.comm).find(
                self, self.comm, self.dtype, (self.shape, low, high),
                lambda: [boxes_between(sides[k][rank], sides[1 - k]) for k in (0, 1)],
                self._method, self._info,
            )  # fmt: skip
        found(forward == (self._axes[0] < self._axes[1]), source, target)

    def destroy(self) -> None:
        """Local. The requests stay with the communicator for the next one; twice is once."""
        self._destroyed = True
        if self._found is not None:
            self._found.users.discard(self)
        self._found = None
