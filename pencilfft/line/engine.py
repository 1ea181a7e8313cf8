"""What carries out the plan of one-dimensional arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.pencilfft.engine import Form, Run
from onesided.pencilfft.kernels.selection import Selection
from onesided.pencilfft.line.blocks import LineBlocks
from onesided.pencilfft.line.line import LineTransforms
from onesided.pencilfft.settings import Settings


@dataclass(frozen=True)
class LinePencil:
    """Local. This rank's part of a distributed line; the names are those of a pencil.

    No axis is whole, so that there is none to redistribute to; ``axis`` is the only one.
    """

    geometry: LineBlocks
    comm: MPI.Intracomm
    axis: int = 0

    @property
    def subcomm(self) -> tuple[MPI.Comm, ...]:
        """The communicator of all ranks that hold a part; borrowed."""
        return (self.comm,)

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape."""
        return self.geometry.shape

    @property
    def subshape(self) -> tuple[int, ...]:
        """Local shape."""
        return self.geometry.subshape

    @property
    def substart(self) -> tuple[int, ...]:
        """Place of this rank's first element."""
        return self.geometry.substart

    def local_slice(self) -> tuple[slice, ...]:
        """Local. The part as slices of the global array."""
        return self.geometry.local_slice()


@dataclass(frozen=True)
class LineExchange:
    """One exchange of a line: its method, the bytes it sends to others, seconds of set-up."""

    method: str
    nbytes: int
    setup_time: float


class LineEngine:
    """Transforms of one distributed line, see :class:`~.line.LineTransforms`."""

    def __init__(
        self,
        comm: MPI.Intracomm,
        settings: Settings,
        selection: Selection,
        method: str,
        info: Mapping[str, str] | None,
    ) -> None:
        """Collective."""
        n = settings.shape[0]
        self._line = line = LineTransforms(
            comm, n, settings.dtype, selection, method, info, settings.transposed_out
        )
        self._comm = comm
        self.geometries = (line.input_geometry, line.output_geometry)
        self.comms: tuple[tuple[MPI.Comm, ...], tuple[MPI.Comm, ...]] = ((comm,), (comm,))
        self._dtypes = (settings.dtype, settings.spectral_dtype)

    def form(self, output: bool) -> Form:
        """Local. Of the array before the forward transform, or after it."""
        return self.geometries[output].subshape, self._dtypes[output], (0,)

    def pencil(self, geometry: LineBlocks, comms: Sequence[MPI.Comm]) -> LinePencil:
        """Local. What users see of a geometry."""
        return LinePencil(geometry, self._comm)

    def run(self, forward: bool) -> Run:
        """Local. The transform of one direction."""
        line = self._line

        def run(source: NDArray[Any], target: NDArray[Any], scale: int) -> None:
            line.run(forward, source, target, scale)

        return run

    def exchanges(self, forward: bool) -> Sequence[LineExchange]:
        """Local. The exchanges of one direction."""
        part = self._line.exchanges(forward)
        return [LineExchange(each.method, _sent(each), each.setup_time) for each in part]

    def frequencies(self) -> NDArray[np.int64]:
        """Local. The frequency of every coefficient that this rank has, in order."""
        return self._line.frequencies()

    def free(self) -> None:
        """Collective. Give everything back; a second call does nothing."""
        self._line.free()


def _sent(request: Any) -> int:
    """Bytes that this rank sends to others in one round."""
    exchange = request.operation
    return sum(
        block.size * exchange.send.dtype.itemsize
        for block in exchange.send.blocks
        if block.peer != exchange.rank
    )
