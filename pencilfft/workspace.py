"""The memory between the transposes of a plan, and the transposes that work on it.

The transposes of a plan run over different grid axes, each once. Each has one piece of window
memory on the sub-communicator of its axis, large enough for either side, into which both
directions receive; a stage that is to be sent lies in a piece that this transpose does not
receive into. With two grid axes that is two local volumes in all:

    forward   stage 0 in piece 1 -> stage 1 in piece 0 -> stage 2 in piece 1
    backward  stage 2 in piece 0 -> stage 1 in piece 1 -> stage 0 in piece 0

With one, the second piece is plain memory. Peers write into a piece only between its owner's
Start and Wait, so a piece may be read and overwritten freely at all other times: a rank that
runs ahead waits for the Start of a delayed one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import empty, free
from onesided.collectives.agreement import agreed
from onesided.pencilfft.decomposition import PencilGeometry, Stage, memory_order
from onesided.pencilfft.transpose import Transpose


class Workspace:
    """Stage arrays and transposes of both directions; owns them and the sub-communicators.

    ``forward_stages[i]`` and ``backward_stages[i]`` hold stage i, ``forward[i]`` leads from
    stage i to i + 1 and ``backward[i]`` from stage i + 1 to i. Without a transpose there are no
    stage arrays.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        stages: Sequence[Stage],
        dtype: np.dtype[Any],
        method: str,
        info: Mapping[str, str] | None,
    ) -> None:
        """Collective over ``comm``. Errors are agreed; what they leave behind is given back."""
        self._comm, self._dtype = comm, dtype
        self._comms: list[MPI.Comm] = []
        self._pieces: list[NDArray[np.uint8]] = []
        self.forward: list[Transpose] = []
        self.backward: list[Transpose] = []
        self.forward_stages: list[NDArray[Any]] = []
        self.backward_stages: list[NDArray[Any]] = []
        #: The sub-communicator of each array axis of the first pencil.
        self.subcomm: tuple[MPI.Comm, ...] = ()
        try:
            self._split(stages[0].before)
            if len(stages) > 1:
                self._allocate(stages)
                self._connect(stages, method, info)
        except Exception:
            self.free()
            raise

    def _split(self, pencil: PencilGeometry) -> None:
        """One communicator per grid axis, its ranks in the order of their coordinates."""
        for axis, parts in enumerate(pencil.grid):
            if parts == 1:
                self._comms.append(MPI.COMM_SELF)
                continue
            color = 0
            for other, size in enumerate(pencil.grid):
                color = color * size + (0 if other == axis else pencil.coords[other])
            with agreed(self._comm):
                self._comms.append(self._comm.Split(color, pencil.coords[axis]))
        self.subcomm = tuple(self._comms[grid_axis] for grid_axis in pencil.layout)

    def _allocate(self, stages: Sequence[Stage]) -> None:
        nbytes = self._dtype.itemsize * max(_count(stage.after) for stage in stages)
        transposes = len(stages) - 1
        for stage, following in pairwise(stages):
            with agreed(self._comm):
                comm = self._comms[stage.after.layout[following.before.axis]]
                self._pieces.append(empty(comm, nbytes, np.uint8))
        pieces = list(self._pieces)
        if transposes == 1:
            pieces.append(np.empty(nbytes, np.uint8))
        for i, stage in enumerate(stages):
            forward = pieces[i - 1] if i else pieces[1]
            backward = pieces[i] if i < transposes else pieces[transposes - 2]
            self.forward_stages.append(self._stage_array(forward, stage))
            self.backward_stages.append(self._stage_array(backward, stage))

    def _stage_array(self, piece: NDArray[np.uint8], stage: Stage) -> NDArray[Any]:
        """A view of a piece with the local shape of a stage, in the memory order that suits it."""
        shape = stage.after.subshape
        order = memory_order(len(shape), stage.axes)
        flat = piece[: _count(stage.after) * self._dtype.itemsize].view(self._dtype)
        return flat.reshape([shape[axis] for axis in order]).transpose(np.argsort(order))

    def _connect(
        self, stages: Sequence[Stage], method: str, info: Mapping[str, str] | None
    ) -> None:
        for i, (stage, following) in enumerate(pairwise(stages)):
            source, target = stage.after, following.before
            comm = self._comms[source.layout[target.axis]]
            send, receive = self.forward_stages[i : i + 2]
            with agreed(self._comm):
                self.forward.append(
                    Transpose(comm, source, target, send, receive, method=method, info=info)
                )
            receive, send = self.backward_stages[i : i + 2]
            with agreed(self._comm):
                self.backward.append(
                    Transpose(comm, target, source, send, receive, method=method, info=info)
                )

    def free(self) -> None:
        """Collective. Give back requests, memory and communicators, in that order."""
        for transposes in (self.forward, self.backward):
            while transposes:
                transposes.pop(0).free()
        self.forward_stages, self.backward_stages = [], []
        while self._pieces:  # unmapped when no view is left, so no name may keep one
            free(self._pieces.pop(0))
        for comm in self._comms:
            if comm != MPI.COMM_SELF:
                comm.Free()
        self._comms, self.subcomm = [], ()


def _count(pencil: PencilGeometry) -> int:
    return int(np.prod(pencil.subshape, dtype=np.int64))
