"""The plan of a parallel FFT: everything decided, allocated and connected before the first one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike

from onesided.collectives.agreement import agree, agreed
from onesided.collectives.errors import UnsupportedError
from onesided.pencilfft.decomposition import PencilGeometry, plan_stages
from onesided.pencilfft.kernels.registry import load_kernel
from onesided.pencilfft.settings import NORMS, Settings, require_supported
from onesided.pencilfft.transform import Transform, plan_legs
from onesided.pencilfft.transpose import Transpose
from onesided.pencilfft.workspace import Workspace


class PFFT:
    """A parallel FFT of arrays with two or more dimensions, planned once, run many times.

    Collective over ``comm``, and so are ``forward``, ``backward`` and :meth:`destroy`. The names
    are those of mpi4py-fft: ``PFFT(comm, (256, 256, 256), dtype=float)`` transforms the last axis
    first, real to complex for a real dtype, then the other axes from last to first, with a global
    transpose wherever an axis is split over ranks.

    Parameters
    ----------
    comm
        Communicator of all ranks that hold a part.
    shape
        Global shape of the input of a forward transform. It need not divide by anything; ranks
        may own nothing.
    axes
        Axes to transform, all by default; nested groups as in mpi4py-fft.
    dtype
        Of the input: float32 or float64 (real to complex), complex64 or complex128.
    grid
        Process grid: its size on each array axis, missing ones 1, free ones 0 or -1. None splits
        all axes but the last as evenly as possible; "auto" prefers a slab while every rank gets
        planes. ``(P,)`` is a slab.
    collapse
        Accepted for mpi4py-fft's sake: axes that are local are always transformed together.
    backend
        Kernel: "scipy", "ducc0", "pyfftw", or "auto".
    slab
        Split one axis only: its number, or True for the one after the axis transformed first.
    norm
        As in scipy.fft; None is "forward", mpi4py-fft's convention: forward divides by N.
    method, info
        Of the transposes, see :func:`onesided.collectives.Alltoallw_init`.
    padding, transforms, darray
        Of mpi4py-fft; refused with UnsupportedError when given.

    Errors (PatternError, UnsupportedError, MethodError, MismatchError where ranks disagree) are
    raised by all ranks. Memory beside the user's arrays: two local volumes of the spectral dtype,
    the larger of all stages; three with three grid axes, none where nothing is transposed (one
    for a backward real transform).

    A plan owns communicators and window memory: leave it with ``with`` or :meth:`destroy`.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        shape: Sequence[int] = (),
        axes: Any = None,
        dtype: DTypeLike = float,
        grid: Sequence[int] | str | None = None,
        padding: Any = False,
        collapse: bool = False,
        backend: str = "auto",
        transforms: Any = None,
        darray: Any = None,
        *,
        slab: bool | int = False,
        norm: str | None = None,
        method: str = "auto",
        info: Mapping[str, str] | None = None,
    ) -> None:
        began = time.perf_counter()
        if not isinstance(comm, MPI.Intracomm):
            raise UnsupportedError(f"comm is a {type(comm).__name__}, not an intracommunicator")
        with agreed(comm):
            require_supported(padding, collapse, transforms, darray)
            settings = Settings.of(comm.size, shape, axes, dtype, grid, slab, backend, norm)
            kernel = load_kernel(settings.backend)
        agree(comm, what=f"{settings.describe()} by {method}")
        self._settings = settings
        order = settings.order
        #: Axes in nested groups; the last one is transformed first.
        self.axes = settings.axes
        #: Name of the kernel in use.
        self.backend = settings.backend
        coords = np.unravel_index(comm.rank, settings.grid)
        first = PencilGeometry(
            settings.shape,
            settings.grid,
            tuple(int(place) for place in coords),
            tuple(range(len(settings.shape))),
            order[0],
        )
        stages = plan_stages(first, order, settings.real)
        #: The pencils of the input and of the output of a forward transform.
        self.pencil = (stages[0].before, stages[-1].after)
        self._workspace = workspace = Workspace(comm, stages, settings.spectral_dtype, method, info)
        dtypes = (settings.dtype, settings.spectral_dtype)
        scales = NORMS[settings.norm]
        #: The transform from physical to spectral space.
        self.forward = Transform(
            "forward",
            self.pencil,
            dtypes,
            plan_legs(kernel, stages, True, dtypes, workspace.forward_stages, workspace.forward),
            scales[0],
        )
        #: The transform from spectral to physical space.
        self.backward = Transform(
            "backward",
            self.pencil[::-1],
            dtypes[::-1],
            plan_legs(
                kernel,
                stages,
                False,
                dtypes[::-1],
                workspace.backward_stages,
                workspace.backward,
            ),
            scales[1],
        )
        #: Seconds that the constructor took.
        self.setup_time = time.perf_counter() - began

    @property
    def subcomm(self) -> tuple[MPI.Comm, ...]:
        """The sub-communicator over which each axis of the input is split; owned by the plan."""
        return self._workspace.subcomm

    @property
    def transposes(self) -> tuple[Transpose, ...]:
        """The transposes of both directions, those of forward first; none after ``destroy``."""
        return (*self._workspace.forward, *self._workspace.backward)

    @property
    def dimensions(self) -> int:
        """Number of dimensions of the arrays."""
        return len(self._settings.shape)

    def shape(self, forward_output: bool = True) -> tuple[int, ...]:
        """Local. Shape of this rank's block of the output of forward, or of its input."""
        return self._pencil(forward_output).subshape

    def local_slice(self, forward_output: bool = True) -> tuple[slice, ...]:
        """Local. This rank's block as slices of the global array."""
        return self._pencil(forward_output).local_slice()

    def global_shape(self, forward_output: bool = False) -> tuple[int, ...]:
        """Local. Shape of the global array in physical space, or in spectral space."""
        return self._pencil(forward_output).shape

    def dtype(self, forward_output: bool = False) -> np.dtype[Any]:
        """Local. Dtype of the input of forward, or of its output."""
        settings = self._settings
        return settings.spectral_dtype if forward_output else settings.dtype

    def _pencil(self, forward_output: bool) -> PencilGeometry:
        return self.pencil[1 if forward_output else 0]

    def destroy(self) -> None:
        """Collective. Free requests, window memory and communicators; twice is once."""
        self.forward.destroy()
        self.backward.destroy()
        self._workspace.free()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Collective on normal exit; on an exception nothing collective is called."""
        if error is None:
            self.destroy()
