"""The transposes of a plan, and the memory between them.

Each transpose receives into a piece of window memory on the sub-communicator of its grid axis,
large enough for either direction; transposes over one grid axis share a piece unless they follow
each other. What is to be sent lies in one piece of plain memory, where the peers cannot be
written to at once. So a plan needs one local volume for each grid axis over which it transposes,
and one more.

A piece is guarded by one credit that belongs to the memory: a rank releases it when it has read
it for the last time, whichever request filled it, and peers write the next round only then. A
rank that runs ahead of a delayed one stages its blocks and waits: as ranks agree at the end of a
transform, that happens only inside of one that returns over two grid axes, and after a Wait.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import Alltoallw_init, alternate
from onesided.collectives.context import Context
from onesided.collectives.errors import RequestError
from onesided.collectives.hints import Hints
from onesided.pencilfft.commons import Piece
from onesided.pencilfft.decomposition import (
    PencilGeometry,
    array_in,
    memory_order,
    nbytes_of,
    transpose_boxes,
)
from onesided.pencilfft.passes import MESSAGE_BYTES, Outlet, ranges
from onesided.pencilfft.stages import Stage

#: Names of the two routes of a pass before a transpose.
DIRECT, STAGED = "direct", "staged"


class Transpose:
    """A persistent request that turns the blocks of ``source`` into those of ``target``, over the
    ranks of one grid axis; the way back is a second one.

    The source is made chunk by chunk: ``chunks`` is the axis along which it is cut and the ends
    of the chunks. :meth:`routes` says where the parts of a chunk have to be written, in two ways.
    "direct": to the peers' memory, or to buffers that leave at once; allowed between an ``open``
    that returned true and ``wait``, with ``ready`` after every chunk. "staged": to ``send``,
    followed by ``start`` and ``wait``. On both routes the block that a rank keeps is written where
    it is read next; it is no part of the exchange.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        source: PencilGeometry,
        target: PencilGeometry,
        send: NDArray[Any],
        receive: NDArray[Any],
        chunks: tuple[int, Sequence[int]],
        method: str,
        info: Mapping[str, str] | None,
    ) -> None:
        """Collective over ``comm``."""
        send_boxes, receive_boxes = transpose_boxes(source, target)
        own, place = send_boxes[comm.rank], receive_boxes[comm.rank]
        send_boxes[comm.rank] = receive_boxes[comm.rank] = None
        #: Bytes that this rank sends to others in one call.
        self.nbytes = send.nbytes - (0 if own is None else send[own].nbytes)
        self.request: Any = Alltoallw_init(
            comm,
            [send, send_boxes],
            [receive, receive_boxes],
            method=method,
            info=info,
            chunks=chunks if send.size else None,
        )
        #: Name of the method in use; for "auto" the one that was chosen.
        self.method: str = self.request.method
        self.open, self.start, self.ready = (
            self.request.Open, self.request.Start, self.request.Ready)  # fmt: skip
        self.wait, self.test, self.release = (
            self.request.Wait, self.request.Test, self.request.Release)  # fmt: skip
        self._axis, self._send, self._chunks = source.axis, send, chunks
        self._own = own
        self._kept = None if own is None or place is None else receive[place]

    def routes(self) -> dict[str, list[list[Outlet]]]:
        """Local. By route and chunk, the parts of the source and the arrays that take them."""
        send, own, along = self._send, self._own, self._chunks[0]
        routes: dict[str, list[list[Outlet]]] = {DIRECT: [], STAGED: []}
        for k, span in enumerate(slice(*ends) for ends in ranges(self._chunks[1])):
            mine, kept = [], slice(0, 0)
            if own is not None and self._kept is not None:
                mine, kept = [_cut(own, self._kept, along, span)], own[self._axis]
            outlets = self.request.outlets[k] if send.size else []
            routes[DIRECT].append([(part, array) for _, part, array in outlets] + mine)
            routes[STAGED].append(_around(self._axis, send, kept, along, span) + mine)
        return routes

    def marks(self) -> list[Callable[[], object]]:
        """Local. By chunk, ``ready`` as a call without arguments."""
        return [self.request.mark(chunk) for chunk in self._every_chunk]

    def ready_all(self) -> None:
        """Local. Whatever the chunks of an opened round hold that are not ready, they leave now."""
        for chunk in self._every_chunk:
            with contextlib.suppress(RequestError):
                self.ready(chunk)

    @property
    def _every_chunk(self) -> range:
        """Where nothing is sent, there is one chunk all the same: of the round."""
        return range(len(self._chunks[1]) if self._send.size else 1)


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


class Workspace:
    """Memory and transposes of a plan; it owns them."""

    def __init__(self, comms: Sequence[MPI.Comm], stages: Sequence[Stage]) -> None:
        """Local. Errors of its methods are not those of all ranks; :meth:`free` gives all back.

        ``comms`` holds the communicator of each grid axis, its ranks in the order of their
        coordinates; they are borrowed.
        """
        self._comms, self._stages = comms, stages
        self._plain: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._pieces: dict[tuple[int, int], Piece] = {}
        self._piece_of: list[tuple[int, int]] = []
        for stage, following in pairwise(stages):
            grid_axis = stage.after.layout[following.before.axis]
            before = (grid_axis, 0)
            if self._piece_of and self._piece_of[-1] == before:
                before = (grid_axis, 1)
            self._piece_of.append(before)
        self._transposes: dict[tuple[bool, int], Transpose] = {}

    def reserve(self) -> None:
        """Local. The memory of this rank alone."""
        plain = max((stage.nbytes for stage in self._stages), default=0)
        self._plain = np.empty(plain if len(self._stages) > 1 else 0, np.uint8)

    def received(self, k: int, forward: bool) -> NDArray[Any]:
        """Local. What arrives by transpose k: the input of stage k + 1, or backward of stage k."""
        stage = self._stages[k + 1] if forward else self._stages[k]
        return self._pieces[self._piece_of[k]].array(*_form(stage, forward))

    def staged(self, k: int, forward: bool) -> NDArray[Any]:
        """Local. Where blocks wait that cannot be sent at once: the output of the other stage."""
        stage = self._stages[k] if forward else self._stages[k + 1]
        return array_in(self._plain, *_form(stage, not forward))

    @property
    def nbytes(self) -> int:
        """Bytes of all memory on this rank."""
        return sum(piece.nbytes for piece in self._pieces.values()) + self._plain.nbytes

    def intermediate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Local. Plain memory for what lies between two passes over a plan without transposes."""
        nbytes = nbytes_of(shape, dtype)
        if nbytes > self._plain.nbytes:
            self._plain = np.empty(nbytes, np.uint8)
        return array_in(self._plain, shape, dtype)

    def least_chunks(self, info: Mapping[str, str] | None) -> list[int]:
        """Collective. Bytes that a chunk should have by which each transpose is fed: between nodes
        a message to every peer, each long enough; in shared memory all of it, as nothing leaves
        before."""
        each = Hints.of(info).ranks_per_node
        least: dict[int, int] = {}

        def look(axis: int) -> None:
            comm = self._comms[axis]
            alone = Context.of(comm).node(each).alone
            least[axis] = sys.maxsize if alone else MESSAGE_BYTES * comm.size

        self._on_every_axis(look)
        return [least[axis] for axis, _ in self._piece_of]

    def connect(
        self,
        chunks: Callable[[int, bool], tuple[int, Sequence[int]]],
        method: str,
        info: Mapping[str, str] | None,
    ) -> None:
        """Collective. The memory of all transposes, and the transposes, both directions of each;
        ``chunks`` tells how the source of one is cut."""

        def join(axis: int) -> None:
            mine = [k for k, (of, _) in enumerate(self._piece_of) if of == axis]
            for key in dict.fromkeys(self._piece_of[k] for k in mine):
                need = [max(self._stages[k].nbytes, self._stages[k + 1].nbytes)
                        for k in mine if self._piece_of[k] == key]
                self._pieces[key] = Piece(self._comms[axis], max(need))
            for k, forward in [(k, True) for k in mine] + [(k, False) for k in reversed(mine)]:
                source, target = self._stages[k].after, self._stages[k + 1].before
                self._transposes[forward, k] = Transpose(
                    self._comms[axis],
                    *((source, target) if forward else (target, source)),
                    self.staged(k, forward),
                    self.received(k, forward),
                    chunks(k, forward),
                    method,
                    info,
                )

        self._on_every_axis(join)

    def _on_every_axis(self, call: Callable[[int], None]) -> None:
        """Collective. Call it with each grid axis that has a transpose. Errors are those of all
        ranks of a sub-communicator, so all go on to the next axis, where the ranks are others, and
        the first error is raised at the end."""
        error: Exception | None = None
        for axis in dict.fromkeys(axis for axis, _ in self._piece_of):
            try:
                call(axis)
            except Exception as problem:
                error = error or problem
        if error is not None:
            raise error

    def transpose(self, k: int, forward: bool) -> Transpose:
        """Local. Transpose k of one direction."""
        return self._transposes[forward, k]

    def transposes(self, forward: bool) -> list[Transpose]:
        """Local. Those of one direction, by the stage that they leave in forward order."""
        return [made for (way, _), made in sorted(self._transposes.items()) if way == forward]

    def share(self) -> None:
        """Local. Let the transposes that receive into one piece share its credit, and grant it."""
        groups: dict[tuple[int, int], list[Transpose]] = {}
        for (_, k), transpose in self._transposes.items():
            groups.setdefault(self._piece_of[k], []).append(transpose)
        for group in groups.values():
            alternate([transpose.request for transpose in group])
            group[0].release()

    def free(self) -> None:
        """Collective. Give back the requests and then the memory; not along a grid axis where a
        request is active that will not complete, because data may be on their way."""
        lost = set()
        while self._transposes:
            forward, k = next(iter(self._transposes))
            try:
                self._transposes.pop((forward, k)).request.Free()
            except RequestError:  # on all ranks of the axis
                lost.add(self._piece_of[k][0])
        while self._pieces:  # unmapped when no view is left, so no name may keep one
            piece = self._pieces.pop(axis := next(iter(self._pieces)))
            if axis[0] not in lost:
                piece.give()
            del piece


def _form(stage: Stage, before: bool) -> tuple[tuple[int, ...], np.dtype[Any], tuple[int, ...]]:
    """Shape and dtype of one side of a stage, and the memory order that suits it."""
    pencil, dtype = (stage.before, stage.dtypes[0]) if before else (stage.after, stage.dtypes[1])
    return pencil.subshape, dtype, memory_order(len(pencil.subshape), stage.axes)
