"""The memory between the transposes of a plan.

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

import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import alternate
from onesided.collectives.context import Context
from onesided.collectives.errors import RequestError
from onesided.collectives.hints import Hints
from onesided.pencilfft.blocking import MESSAGE_BYTES
from onesided.pencilfft.commons import Piece
from onesided.pencilfft.decomposition import array_in, memory_order, nbytes_of
from onesided.pencilfft.stages import Stage
from onesided.pencilfft.transpose import Transpose


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
                    method=method,
                    info=info,
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
                self._transposes.pop((forward, k)).free()
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
