"""The memory between the transposes of a plan.

Each transpose receives into a piece of window memory on the sub-communicator of its grid axis,
large enough for either direction; transposes over one grid axis share a piece unless they follow
each other. What is to be sent lies in one piece of plain memory, where the peers cannot be
written to at once. So a plan needs one local volume for each grid axis over which it transposes,
and one more.

A piece is guarded by one credit that belongs to the memory: a rank releases it when it has read
it for the last time, whichever request filled it, and peers write the next round only then. A
rank that runs ahead of a delayed one stages its blocks and waits.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import alternate
from onesided.collectives.agreement import agreed
from onesided.collectives.context import Context
from onesided.collectives.hints import Hints
from onesided.pencilfft.blocking import MESSAGE_BYTES
from onesided.pencilfft.commons import Commons, Piece
from onesided.pencilfft.decomposition import memory_order
from onesided.pencilfft.stages import Stage
from onesided.pencilfft.transpose import Transpose


class Workspace:
    """Memory and transposes of a plan; it owns them."""

    def __init__(self, comm: MPI.Comm, comms: Sequence[MPI.Comm], stages: Sequence[Stage]) -> None:
        """Local. Errors of its methods are agreed over ``comm``; :meth:`free` gives all back.

        ``comms`` holds the communicator of each grid axis, its ranks in the order of their
        coordinates; they are borrowed.
        """
        self._comm, self._comms, self._stages = comm, comms, stages
        self._pieces: dict[tuple[int, int], Piece] = {}
        self._piece_of: list[tuple[int, int]] = []
        self._plain: NDArray[np.uint8] = np.empty(0, np.uint8)
        #: Transposes by direction and by the stage that they leave in forward order.
        self.transposes: dict[bool, list[Transpose]] = {True: [], False: []}

    def allocate(self) -> None:
        """Collective. The memory for all transposes."""
        nbytes: dict[tuple[int, int], int] = {}
        before: tuple[int, int] | None = None
        for stage, following in pairwise(self._stages):
            grid_axis = stage.after.layout[following.before.axis]
            before = (grid_axis, 1 if before == (grid_axis, 0) else 0)
            self._piece_of.append(before)
            need = max(stage.nbytes, following.nbytes)
            nbytes[before] = max(need, nbytes.get(before, 0))
        for key, size in nbytes.items():
            with agreed(self._comm):
                self._pieces[key] = Commons.of(self._comms[key[0]]).take(size)
        plain = max((stage.nbytes for stage in self._stages), default=0)
        with agreed(self._comm):
            self._plain = np.empty(plain if len(self._stages) > 1 else 0, np.uint8)

    def received(self, k: int, forward: bool) -> NDArray[Any]:
        """Local. What arrives by transpose k: the input of stage k + 1, or backward of stage k."""
        stage = self._stages[k + 1] if forward else self._stages[k]
        return self._pieces[self._piece_of[k]].array(*_form(stage, forward))

    def staged(self, k: int, forward: bool) -> NDArray[Any]:
        """Local. Where blocks wait that cannot be sent at once: the output of the other stage."""
        stage = self._stages[k] if forward else self._stages[k + 1]
        shape, dtype, order = _form(stage, not forward)
        count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        flat = self._plain[:count].view(dtype)
        return flat.reshape([shape[axis] for axis in order]).transpose(np.argsort(order))

    @property
    def nbytes(self) -> int:
        """Bytes of all memory on this rank."""
        return sum(piece.nbytes for piece in self._pieces.values()) + self._plain.nbytes

    def intermediate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Local. Plain memory for what lies between two passes over a plan without transposes."""
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if nbytes > self._plain.nbytes:
            self._plain = np.empty(nbytes, np.uint8)
        return self._plain[:nbytes].view(dtype).reshape(shape)

    def least_chunk(self, k: int, info: Mapping[str, str] | None) -> int:
        """Collective. Bytes that a chunk should have by which transpose k is fed: between nodes a
        message to every peer, each long enough; in shared memory all, as nothing leaves before."""
        comm = self._over(k)
        alone = Context.of(comm).node(Hints.of(info).ranks_per_node).alone
        return sys.maxsize if alone else MESSAGE_BYTES * comm.size

    def _over(self, k: int) -> MPI.Comm:
        source, target = self._stages[k].after, self._stages[k + 1].before
        return self._comms[source.layout[target.axis]]

    def connect(
        self,
        k: int,
        forward: bool,
        chunks: tuple[int, Sequence[int]],
        method: str,
        info: Mapping[str, str] | None,
    ) -> Transpose:
        """Collective. Transpose k of one direction; its source is cut into ``chunks``."""
        stages = self._stages[k : k + 2]
        source, target = stages[0].after, stages[1].before
        with agreed(self._comm):
            transpose = Transpose(
                self._over(k),
                *((source, target) if forward else (target, source)),
                self.staged(k, forward),
                self.received(k, forward),
                chunks,
                method=method,
                info=info,
            )
        self.transposes[forward].append(transpose)
        return transpose

    def share(self) -> None:
        """Local. Let the transposes that receive into one piece share its credit, and grant it."""
        groups: dict[tuple[int, int], list[Transpose]] = {}
        for forward, transposes in self.transposes.items():
            pieces = self._piece_of if forward else self._piece_of[::-1]
            for key, transpose in zip(pieces, transposes, strict=True):
                groups.setdefault(key, []).append(transpose)
        for group in groups.values():
            alternate([transpose.request for transpose in group])
            group[0].release()

    def free(self) -> None:
        """Collective. Give back the requests and then the memory."""
        for transposes in self.transposes.values():
            while transposes:
                transposes.pop(0).free()
        while self._pieces:  # unmapped when no view is left, so no name may keep one
            self._pieces.pop(next(iter(self._pieces))).give()


def _form(stage: Stage, before: bool) -> tuple[tuple[int, ...], np.dtype[Any], tuple[int, ...]]:
    """Shape and dtype of one side of a stage, and the memory order that suits it."""
    pencil, dtype = (stage.before, stage.dtypes[0]) if before else (stage.after, stage.dtypes[1])
    return pencil.subshape, dtype, memory_order(len(pencil.subshape), stage.axes)
