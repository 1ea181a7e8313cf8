"""Redistribution of whichever arrays, from blocks along one axis to blocks along another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from onesided.collectives.errors import PatternError, RequestError
from onesided.pencilfft.decomposition import block
from onesided.pencilfft.redistribution import Redistribution, Redistributions

#: The method where none is asked for. Not "auto": a transfer may be used only once, and measuring
#: would cost more than it saves.
METHOD = "rma-notify"


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
        self._found: dict[bool, Redistribution] = {}

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
        source = self._checked("source", source, shapes[0])
        target = self._checked("target", target, shapes[1])
        if not target.flags.writeable:
            raise PatternError("the target of the transfer is read-only")
        if self.comm.size == 1:
            target[...] = source
            return
        found = self._found.get(forward)
        if found is None or found.freed:
            axes = self._axes if forward else self._axes[::-1]
            found = Redistributions.of(self.comm).find(
                self, self.comm, self.shape, self.dtype, axes, self._method, self._info
            )
            self._found[forward] = found
        found(source, target)

    def _checked(self, what: str, array: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        if not isinstance(array, np.ndarray):
            raise PatternError(f"the {what} is a {type(array).__name__}, not a NumPy array")
        if array.shape != shape or array.dtype != self.dtype:
            raise PatternError(
                f"the {what} has shape {array.shape} and dtype {array.dtype}, the transfer "
                f"{shape} and {self.dtype}"
            )
        return np.asarray(array)

    def destroy(self) -> None:
        """Local. The requests stay with the communicator for the next one; twice is once."""
        self._destroyed = True
        for found in self._found.values():
            found.users.discard(self)
        self._found.clear()
