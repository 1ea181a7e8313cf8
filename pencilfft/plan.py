"""The plan of a parallel FFT: everything decided, allocated and connected before the first one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from onesided.collectives.agreement import agree, agreed
from onesided.collectives.errors import PatternError, UnsupportedError
from onesided.collectives.hints import Hints
from onesided.collectives.registry import wanted
from onesided.pencilfft.commons import Commons
from onesided.pencilfft.decomposition import block_of, choose_grid, on_nodes
from onesided.pencilfft.engine import Engine
from onesided.pencilfft.execution import Execution
from onesided.pencilfft.kernels.registry import resolve_backend
from onesided.pencilfft.kernels.selection import BRIEF, MEASURE, Selection
from onesided.pencilfft.pencil import Communicators, Pencil, Subcomm, near
from onesided.pencilfft.planner import build, candidate_grids, fastest
from onesided.pencilfft.redistribution import Transfer
from onesided.pencilfft.settings import AUTO, C_ORDER, NORMS, PLANNER_EFFORTS, Settings
from onesided.pencilfft.stages import COMPLEX, AxisTransform, carried, points, wavenumbers
from onesided.pencilfft.transform import SharedArrays, Side, Transform, in_one_memory


class PFFT:
    """A parallel FFT, planned once, run many times.

    Collective over ``comm``, and so are ``forward``, ``backward`` and :meth:`destroy`. The names
    are those of mpi4py-fft: ``PFFT(comm, (256, 256, 256), dtype=float)`` transforms the last axis
    first, real to complex for a real dtype, then the other axes from last to first, with a global
    transpose wherever an axis is split over ranks.

    Parameters
    ----------
    comm
        Communicator of all ranks that hold a part; or, as in mpi4py-fft, a :class:`Subcomm` (the
        plan then destroys it) or a sequence of communicators, one per axis.
    shape
        Global shape without padding. It need not divide by anything; ranks may own nothing.
    axes
        Axes to transform, all by default; nested groups as in mpi4py-fft.
    dtype
        Of the input: float32 or float64, complex64 or complex128.
    grid
        Process grid: its size on each array axis, missing ones 1, free ones 0 or -1. None splits
        all axes but the last as evenly as possible, on several nodes such that the ranks of the
        last split axis share one; "auto" measures. ``(P,)`` is a slab.
    padding
        Factor by which physical space has more points than the spectrum carries, one for all axes
        or one for each; True is 3/2. False: none.
    collapse
        Join groups of axes that are local, as mpi4py-fft does. They are transformed together in
        any case: this changes :attr:`axes`, and with them what ``transforms`` is asked for.
    backend
        Kernel: "scipy", "ducc0", "pyfftw", "mkl", "mpi4py-fft"; "auto" chooses for each step.
        mpi4py-fft's names are understood, too.
    transforms
        As in mpi4py-fft: {axes of a group: (function, inverse)}, or ``kinds``. The functions are
        told by their names, and a partial one's ``type``; the second one need not undo the first.
    darray
        As in mpi4py-fft: plan for this array's shape, dtype and decomposition.
    slab
        Split one axis only: its number, or True for the one after the axis transformed first.
    norm
        As in scipy.fft; None is "forward", mpi4py-fft's convention: forward divides by N.
    method, info
        Of the transposes, see :func:`onesided.collectives.Alltoallw_init`. "auto" measures with
        ``effort="measure"``, and takes what usually wins otherwise.
    kinds
        Kinds of transforms: {axis: kind}, one per axis in the order of ``axes``, or one for all.
        "dct1" to "dct4", "dst1" to "dst4", "r2c", "c2c"; the last two by default.
    batch
        Extents of leading axes of all arrays that are neither transformed nor distributed; what
        they hold travels in one message. Calls may have fewer entries of the first one, on all
        ranks alike, and compute no more (one-dimensional plans may not).
    transposed_out
        Whether the output stays in the layout of the last stage (default, as in mpi4py-fft) or is
        distributed like the input. One-dimensional spectra are always in their natural order.
    effort
        What is measured before the plan is there; nothing is afterwards, and equal calls give
        equal bits. "brief" (default): kernels, for some 50 ms, where wisdom does not know them;
        "measure": all of them, methods and ``grid="auto"``; "estimate": nothing, and no file is
        asked.
    wisdom
        File of what was measured before: None for the usual one, a path, or False for none.
    order
        Memory order of the arrays that the plan makes: "C", or "plan" for the one that suits its
        last stage, which saves time where the spectrum is only worked on element by element.
    threads
        Threads of a kernel, where it has them: scipy, ducc0, pyfftw, mpi4py-fft; not mkl.
    planner_effort
        As in mpi4py-fft: FFTW_ESTIMATE, FFTW_MEASURE, FFTW_PATIENT and FFTW_EXHAUSTIVE are
        "estimate", "brief", "measure" and "measure".
    overwrite_input
        True: transforms may be made in the caller's input, which saves copies, and memory where
        nothing is transposed; what it holds afterwards is not defined. Otherwise, and with FFTW's
        flags, which are mpi4py-fft's words for a copy of its own, inputs are never written to.

    in_place
        The plan's own arrays, :attr:`Transform.input_array` and ``output_array``, are one memory,
        as FFTW's are: a call without arrays transforms what is there, real lines to their spectra.
        Inputs may be overwritten then.
    comm_backend
        As in later versions of mpi4py-fft: "MPI".

    Errors (PatternError, UnsupportedError, MethodError, MismatchError where ranks disagree) are
    raised by all ranks. Memory beside the user's arrays, in local volumes of the larger of the
    two dtypes: one for each grid axis that is transposed, one more for both directions together
    (none where nothing is transposed; one for a real backward transform, unless that may
    overwrite its input); one more where
    ``transposed_out=False`` goes back over the same grid axis. ``p2p`` packs
    blocks on both sides of every exchange beside that.

    A plan owns requests and window memory: leave it with ``with`` or :meth:`destroy`. One that is
    dropped warns, and is freed by the next plan that is made or destroyed on its communicator;
    where that is gone already, when MPI ends, or at once on one rank.

    Examples
    --------
    >>> with PFFT(comm, (8, 8, 8), dtype=float) as fft:
    ...     u = newDistArray(fft, False, val=1)
    ...     u_hat = fft.forward(u)
    ...     again = np.array(fft.backward(u_hat))
    >>> np.allclose(again, 1)
    True
    """

    #: Extents of the leading axes that are not distributed.
    batch: tuple[int, ...] = ()

    # a subclass written for mpi4py-fft may set the public attributes and leave the constructor out
    _sides: tuple[Side, ...] = ()
    _transfer: Any = None

    def __init__(
        self,
        comm: Any,
        shape: Sequence[int] | None = None,
        axes: Any = None,
        dtype: DTypeLike = float,
        grid: Sequence[int] | str | None = None,
        padding: Any = False,
        collapse: bool = False,
        backend: str = AUTO,
        transforms: Any = None,
        darray: Any = None,
        *,
        slab: bool | int | None = False,
        norm: str | None = None,
        method: str = AUTO,
        info: Mapping[str, str] | None = None,
        kinds: Any = None,
        batch: Sequence[int] = (),
        transposed_out: bool | None = None,
        effort: str | None = None,
        wisdom: str | bool | None = None,
        order: str = C_ORDER,
        threads: int = 1,
        planner_effort: str | None = None,
        overwrite_input: bool | str = False,
        in_place: bool = False,
        comm_backend: str = "MPI",
    ) -> None:
        began = time.perf_counter()
        given = None
        if slab is None or isinstance(slab, np.bool_):
            slab = bool(slab)
        if darray is not None:
            _check_array(comm, darray)
            shape, dtype, given = darray.pencil.shape, darray.dtype, darray.subcomm
            axes = _aligned_first(darray) if axes is None else axes
            padding, grid, slab = False, None, False
        elif not isinstance(comm, MPI.Comm):
            given = comm
        whole = _whole(comm, given)
        error: Exception | None = None
        name = ""
        try:
            if comm_backend != "MPI":
                raise UnsupportedError(f"comm_backend={comm_backend!r}; there is MPI")
            words = (
                padding, transforms, kinds, resolve_backend(backend), norm, batch, transposed_out,
                _effort(effort, planner_effort), order, threads, in_place or overwrite_input,
            )  # fmt: skip
            settings = Settings.of(shape, axes, dtype, *words)
            wanted(method)  # also where nothing is exchanged
            hints = Hints.of(info)
            sizes = _sizes(whole.size, settings, grid, slab, given)
            if collapse:
                if sizes is None:  # what is measured must not split axes that are joined
                    sizes = choose_grid(whole.size, settings.shape, settings.axes[-1], AUTO, slab)
                groups = settings.collapsed(sizes)
                settings = Settings.of(shape, groups, dtype, *words)
            selection = Selection(settings.backend, settings.effort, wisdom, settings.threads)
            name = f"{settings.describe()} on grid {sizes or grid!r} by {method} with {hints}"
            name += ", in one memory" if in_place else ""
        except Exception as problem:
            error = problem
        agree(whole, error, name)
        if sizes is not None and grid is None and slab is False and given is None:
            sizes = on_nodes(sizes, settings.shape, near(whole, hints.ranks_per_node))
        self._settings, self._comm = settings, whole
        self._given = given if isinstance(given, Subcomm) else None
        self.batch = settings.batch
        Commons.of(whole).collect()
        make = partial(build, whole, settings, selection, method, info, given)
        if sizes is None:
            sizes = fastest(
                whole, candidate_grids(whole.size, settings.shape, settings.axes[-1]), make
            )
        self._execution = execution = Execution(whole, make(sizes), selection)
        engine, self._selection = execution.engine, selection
        #: The sub-communicators over which the axes of the input are split.
        self.subcomm = Communicators(engine.pencils[0].subcomm)
        #: The pencils of the input and of the output of a forward transform.
        self.pencil = list(engine.pencils)
        self._sides = sides = tuple(
            Side(self.pencil[out], *engine.form(out), settings.batch) for out in (False, True)
        )
        self._arrays = SharedArrays(sides)
        if in_place:
            transposes = execution.transposes
            try:
                with agreed(whole):
                    padded = any(step.physical != step.length for step in settings.transforms)
                    if padded and not transposes:
                        raise UnsupportedError("padded transforms in one memory need a transpose")
                    axis = settings.real_axis
                    arrays = in_one_memory(sides, -1 if axis is None else axis, transposes)
            except Exception:  # that of all ranks
                execution.free()
                raise
            self._arrays = SharedArrays(sides, arrays)
        scales = NORMS[settings.norm]
        #: The transform from physical to spectral space.
        self.forward = Transform(
            "forward", (sides[0], sides[1]), self._arrays, execution, scales[0], settings
        )
        #: The transform from spectral to physical space.
        self.backward = Transform(
            "backward", (sides[1], sides[0]), self._arrays, execution, scales[1], settings
        )
        #: Axes in nested groups; the last one is transformed first.
        self.axes = settings.axes
        #: Whether groups of local axes were joined.
        self.collapse = collapse
        #: The transforms of each group of axes, in the order of a forward transform.
        self.xfftn = settings.grouped(self.axes)
        #: Seconds that the constructor took.
        self.setup_time = time.perf_counter() - began

    @property
    def grid(self) -> tuple[int, ...]:
        """Over how many ranks each axis of the input is split."""
        return tuple(comm.size for comm in self.subcomm)

    @property
    def backend(self) -> str:
        """Name of the kernel in use."""
        return self._selection.name

    @property
    def transfer(self) -> Sequence[Any]:
        """Between two groups of axes each, the :class:`Transfer` of a forward transform, for any
        arrays. Empty after :meth:`destroy`."""
        if self._transfer is None:
            self._transfer = tuple(self._transfers())
        given: Sequence[Any] = self._transfer
        return given

    @transfer.setter
    def transfer(self, transfers: Any) -> None:
        """Local. Of a subclass that makes its own, as shenfun's does."""
        self._transfer = transfers

    def _transfers(self) -> Iterator[Transfer]:
        dtype, pencil = self._settings.dtype, self.pencil[0]
        for steps, following in zip(self.xfftn, reversed(self.axes[:-1]), strict=False):
            geometry = pencil.geometry
            for step in steps:
                geometry = geometry.resized(step.axis, step.spectral)
                dtype = COMPLEX[dtype.char] if step.kind == "r2c" else dtype
            before = Pencil.of(geometry, pencil.subcomm)
            pencil = before.pencil(following[-1])
            yield before.transfer(pencil, dtype, self.batch)

    @property
    def _engine(self) -> Engine:
        return self._execution.engine

    @property
    def transposes(self) -> tuple[Any, ...]:
        """The exchanges of both directions, those of forward first; none after ``destroy``."""
        return (*self._engine.exchanges(True), *self._engine.exchanges(False))

    @property
    def dimensions(self) -> int:
        """Number of distributed dimensions of the arrays."""
        return len(self.pencil[0].shape)

    def shape(self, forward_output: bool = True) -> tuple[int, ...]:
        """Local. Shape of this rank's block of the output of forward, or of its input."""
        return self.batch + tuple(self._pencil(forward_output).subshape)

    def local_slice(self, forward_output: bool = True) -> tuple[slice, ...]:
        """Local. This rank's block as slices of the global array."""
        block = block_of(self._pencil(forward_output))
        return (*(slice(0, extent) for extent in self.batch), *block)

    def global_shape(self, forward_output: bool = False) -> tuple[int, ...]:
        """Local. Shape of the global array in physical space, or in spectral space."""
        return self.batch + tuple(self._pencil(forward_output).shape)

    def dtype(self, forward_output: bool = False) -> np.dtype[Any]:
        """Local. Dtype of the input of forward, or of its output."""
        if self._sides:
            return self._sides[bool(forward_output)].dtype
        direction = self.forward
        array = direction.output_array if forward_output else direction.input_array
        dtype: np.dtype[Any] = array.dtype
        return dtype

    def memory_order(self, forward_output: bool = True) -> tuple[int, ...] | None:
        """Local. The memory order of arrays that the plan makes, outermost axis first."""
        return self._sides[bool(forward_output)].order if self._sides else None

    def local_mesh(self, domain: Sequence[Any] | None = None) -> list[NDArray[Any]]:
        """Local. The coordinates of this rank's points in physical space, one array for each axis,
        which broadcast against each other and against the arrays of the plan.

        ``domain`` gives each axis as a pair (origin, length), or as a length from 0; None is
        (0, 2 pi). Points are those of a period, without its end, or of the kind of cosines and
        sines of the axis, in an interval.
        """
        pencil, steps = self.forward.input_pencil, self._steps
        given = _per_axis("domain", domain, len(pencil.shape), 2 * np.pi)
        pairs = [entry if np.iterable(entry) else (0.0, entry) for entry in given]
        return self._open_mesh(False, [
            origin + length * points(steps.get(axis), count)
            for axis, (count, (origin, length)) in enumerate(zip(pencil.shape, pairs, strict=True))
        ])  # fmt: skip

    def wavenumbers(self, scaled: Sequence[float] | float | None = None) -> list[NDArray[Any]]:
        """Local. What this rank's coefficients belong to, one array for each axis, which broadcast
        against each other and against the arrays of the plan.

        Of Fourier transforms the waves in a period, negative ones too, of cosines and sines the
        half waves in the interval; 0 along axes that are not transformed. With ``scaled``, the
        lengths of the domain (or one for all axes), per unit of length: 2 pi k / L, or pi k / L.
        """
        pencil, steps = self.forward.output_pencil, self._steps
        lengths = _per_axis("scaled", scaled, len(pencil.shape), None)
        return self._open_mesh(True, [
            wavenumbers(steps.get(axis), count, length)
            for axis, (count, length) in enumerate(zip(pencil.shape, lengths, strict=True))
        ])  # fmt: skip

    def mask(self, fraction: float = 2 / 3) -> NDArray[np.bool_]:
        """Local. True where a coefficient of this rank is below ``fraction`` of the highest
        wavenumber along every axis: the 2/3 rule, where arrays are not padded."""
        pencil, steps = self.forward.output_pencil, self._steps
        kept = self._open_mesh(True, [
            carried(steps.get(axis), count, fraction) for axis, count in enumerate(pencil.shape)
        ])  # fmt: skip
        found: NDArray[np.bool_] = np.ones(tuple(pencil.subshape), bool)
        for each in kept:
            found &= each
        return found

    @property
    def _steps(self) -> dict[int, AxisTransform]:
        return {step.axis: step for step in self._settings.transforms}

    def _open_mesh(self, output: bool, lines: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """This rank's part of a line of numbers for each axis."""
        own = self._pencil(output).local_slice()
        parts = [line[span] for line, span in zip(lines, own, strict=True)]
        return [np.asarray(part) for part in np.meshgrid(*parts, indexing="ij", sparse=True)]

    @property
    def nbytes(self) -> int:
        """Bytes of memory that this rank has for the plan, beside arrays of the caller's and the
        plan's own, and what kernels need for themselves."""
        return self._engine.nbytes

    def explain(self) -> str:
        """Local. What the plan does, for people: the grid, and in both directions each step with
        the kernel that does it, and each exchange with its method."""
        lines = [
            self._settings.describe(),
            f"process grid {self.grid}, {self.nbytes} bytes, made in {self.setup_time:.3f} s",
        ]
        for forward in (True, False):
            lines.append("forward:" if forward else "backward:")
            for leg in self._engine.legs(forward):
                lines += [f"  {words}" for words in leg.local.describe()]
                if leg.transpose is not None:
                    sent = leg.transpose.nbytes
                    lines.append(f"  exchange by {leg.transpose.method}, sends {sent} bytes")
        return "\n".join(lines)

    def _pencil(self, forward_output: bool) -> Any:
        return self.forward.output_pencil if forward_output else self.forward.input_pencil

    def destroy(self) -> None:
        """Collective. Free requests, window memory and communicators; twice is once."""
        alive = self._execution.alive
        try:
            self._execution.free()
        finally:  # also where it tells of another plan, which was dropped
            if not self._execution.alive:
                self._arrays.forget()
                self._transfer = ()
                if alive and self._given is not None:
                    self._given.destroy()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """Collective on normal exit; on an exception nothing collective is called."""
        if error is None:
            self.destroy()


def _per_axis(name: str, given: Any, count: int, usual: Any) -> list[Any]:
    """One entry for each axis, from a sequence of them or from one for all."""
    if given is None:
        return [usual] * count
    entries = list(given) if np.iterable(given) else [given] * count
    if len(entries) != count:
        raise PatternError(f"{name} has {len(entries)} entries for {count} axes")
    return entries


def _aligned_first(darray: Any) -> list[int]:
    """All axes, ordered so that the one along which the blocks are whole is transformed first."""
    ndim = len(darray.pencil.shape)
    return [int(axis) for axis in np.roll(range(ndim), ndim - 1 - darray.alignment)]


def _effort(effort: Any, planner_effort: Any) -> Any:
    """Ours, from mpi4py-fft's words where they are given."""
    if planner_effort is None:
        return BRIEF if effort is None else effort
    if effort is not None:
        raise PatternError(f"{effort=} and {planner_effort=} exclude each other")
    if planner_effort not in PLANNER_EFFORTS:
        known = ", ".join(PLANNER_EFFORTS)
        raise PatternError(f"planner_effort {planner_effort!r} is none of {known}")
    return PLANNER_EFFORTS[planner_effort]


def _whole(comm: Any, given: Sequence[MPI.Comm] | None) -> MPI.Intracomm:
    """The communicator of all ranks."""
    if given is not None:
        return Communicators(given).comm
    if not isinstance(comm, MPI.Intracomm):
        raise UnsupportedError(f"comm is a {type(comm).__name__}, not an intracommunicator")
    return comm


def _check_array(comm: Any, darray: Any) -> None:
    """Collective where there is a communicator. ``darray`` is a block that knows its ranks."""
    whole = comm if isinstance(comm, MPI.Intracomm) else MPI.COMM_SELF
    with agreed(whole, "darray"):
        try:
            _ = darray.pencil.shape, darray.subcomm, darray.alignment
        except AttributeError as error:
            raise PatternError(f"darray is a {type(darray).__name__}, no DistArray") from error


def _sizes(
    size: int,
    settings: Settings,
    grid: Sequence[int] | str | None,
    slab: bool | int,
    given: Sequence[MPI.Comm] | None,
) -> tuple[int, ...] | None:
    """The process grid; None where it is to be measured."""
    if grid is not None and not isinstance(grid, str):
        if not np.iterable(grid):
            raise PatternError(f"grid is {grid!r}, not extents for the axes, None or {AUTO!r}")
        grid = tuple(grid)
    if len(settings.shape) == 1:
        if grid not in (None, AUTO) or slab is not False:
            raise PatternError("a one-dimensional array is split over all ranks; leave out grid")
        return (size,)
    if given is None:
        if grid == AUTO and settings.effort == MEASURE and slab is False:
            return None
        return choose_grid(size, settings.shape, settings.axes[-1], grid, slab)
    if grid is not None or slab is not False:
        raise PatternError("communicators for each axis leave no choice for grid and slab")
    if len(given) != len(settings.shape):
        raise PatternError(f"{len(given)} communicators for {len(settings.shape)} axes")
    for axis in settings.axes[-1]:
        if given[axis].size != 1:
            raise PatternError(
                f"axis {axis} is split over {given[axis].size} ranks; it is transformed first "
                "and must be whole"
            )
    return tuple(part.size for part in given)
