"""One direction of a plan, called with the user's arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.errors import PatternError, RequestError
from onesided.pencilfft.distarray import DistArray

#: Options of FFTW's plans that mpi4py-fft passes on at a call; here they mean nothing.
FFTW_OPTIONS = frozenset({"implicit", "threads", "flags", "overwrite_input", "planner_effort"})


@dataclass(frozen=True, eq=False)
class Side:
    """What a plan's arrays are on one side of a transform.

    ``pencil`` tells which part of the global array this rank holds; ``shape`` is the local and
    ``global_shape`` the global shape, both with the ``batch`` leading axes that are not
    distributed. ``order`` is the memory order of arrays that the plan makes, outermost first.
    """

    pencil: Any
    shape: tuple[int, ...]
    global_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: tuple[int, ...]
    batch: tuple[int, ...] = ()

    def array(self, val: Any = None) -> Any:
        """Local. A new array of this side, not initialized for None."""
        return DistArray.of(self.pencil, self.dtype, val, self.batch, self.order)

    def local_slice(self) -> tuple[slice, ...]:
        """Local. This rank's block as slices of the global array."""
        local: tuple[slice, ...] = self.pencil.local_slice()
        return tuple(slice(0, extent) for extent in self.batch) + local


class SharedArrays:
    """The arrays of a plan itself, made when they are asked for.

    As in mpi4py-fft, what is the output of one direction is the input of the other.
    """

    def __init__(self, sides: Sequence[Side]) -> None:
        self._sides = sides
        self._arrays: dict[int, Any] = {}

    def get(self, side: Side) -> Any:
        """Local. The array of a side."""
        place = self._sides.index(side)
        if place not in self._arrays:
            self._arrays[place] = side.array(0)
        return self._arrays[place]

    def forget(self) -> None:
        """Local. Drop the arrays."""
        self._arrays = {}


class Transform:
    """Called as ``plan.forward(u)`` or ``plan.backward(u_hat)``.

    The input is read once and left as it is, the output is written once, and nothing is allocated
    when ``output_array`` is given.
    """

    def __init__(
        self,
        name: str,
        sides: tuple[Side, Side],
        arrays: Callable[[Side], Any],
        run: Callable[[NDArray[Any], NDArray[Any], int], None],
        scale: int,
        transposes: bool,
    ) -> None:
        """Local. ``arrays`` gives the plan's own array of a side."""
        self.name = name
        #: What goes in and what comes out.
        self.input, self.output = sides
        self._arrays, self._run, self._scale = arrays, run, scale
        self._transposes = transposes
        self._destroyed = False

    @property
    def input_array(self) -> Any:
        """What is transformed when no input is given; also the other direction's output array."""
        return self._arrays(self.input)

    @property
    def output_array(self) -> Any:
        """What is filled when neither input nor output is given; the other's input array."""
        return self._arrays(self.output)

    @property
    def input_pencil(self) -> Any:
        """Which part of the global input this rank holds."""
        return self.input.pencil

    @property
    def output_pencil(self) -> Any:
        """Which part of the global output this rank holds."""
        return self.output.pencil

    @property
    def input_dtype(self) -> np.dtype[Any]:
        """Dtype of the input."""
        return self.input.dtype

    @property
    def output_dtype(self) -> np.dtype[Any]:
        """Dtype of the output."""
        return self.output.dtype

    def __call__(
        self,
        input_array: Any = None,
        output_array: NDArray[Any] | None = None,
        normalize: bool | None = None,
        **options: Any,
    ) -> Any:
        """Collective. Transform the blocks of all ranks and return ``output_array``.

        ``input_array`` and ``output_array`` have this rank's local shapes and the dtypes of the
        plan, in any memory order; an input that can be cast to the dtype safely is copied first.
        Without an output a new :class:`DistArray` is returned; without an input
        :attr:`input_array` is read, and without both :attr:`output_array` is filled.
        ``normalize=True`` divides by N, the product of the modes of the transformed axes, False
        does not scale; None does what the ``norm`` of the plan says. Options of FFTW's plans that
        mpi4py-fft knows are ignored. A wrong array raises :class:`PatternError` on this rank,
        before anything is started.
        """
        if self._destroyed:
            raise RequestError(f"{self.name} of a plan that was destroyed")
        if options and not FFTW_OPTIONS.issuperset(options):
            raise PatternError(f"{self.name} does not take {', '.join(map(repr, options))}")
        given = self.input_array if input_array is None else input_array
        result: Any = output_array
        if output_array is None:
            result = self.output_array if input_array is None else self.output.array()
        source = self._source(given)
        target = _block("output", result, self.output)
        self._check_memory(source, target)
        self._run(source, target, self._scale if normalize is None else 2 * bool(normalize))
        return result

    def _source(self, given: Any) -> NDArray[Any]:
        side = self.input
        array = given if isinstance(given, np.ndarray) else np.asarray(given)
        cast = array.shape == side.shape and array.dtype != side.dtype
        if cast and np.can_cast(array.dtype, side.dtype, "safe"):
            array = array.astype(side.dtype)
        return _block("input", array, side)

    def _check_memory(self, source: NDArray[Any], target: NDArray[Any]) -> None:
        if not target.flags.writeable:
            raise PatternError(f"the output of {self.name} is read-only")
        if self._transposes or not np.may_share_memory(source, target):
            return
        same = source.__array_interface__ == target.__array_interface__
        if not same and np.shares_memory(source, target):
            raise PatternError(f"input and output of {self.name} overlap without being the same")

    def destroy(self) -> None:
        """Local. Refuse all calls from now on."""
        self._destroyed = True


def _block(what: str, array: Any, side: Side) -> NDArray[Any]:
    """The array as a plain ndarray, if it is this rank's block."""
    if not isinstance(array, np.ndarray):
        raise PatternError(f"the {what} is a {type(array).__name__}, not a NumPy array")
    if array.shape != side.shape:
        raise PatternError(
            f"the {what} has shape {array.shape}, this rank's block has {side.shape} "
            f"(of {side.global_shape})"
        )
    if array.dtype != side.dtype:
        raise PatternError(f"the {what} has dtype {array.dtype}, the plan {side.dtype}")
    pencil = getattr(array, "_p0", None)
    if pencil is not None and pencil is not side.pencil:
        here, wanted = pencil.local_slice(), side.pencil.local_slice()
        if here != wanted or pencil.shape != side.pencil.shape:
            raise PatternError(
                f"the {what} belongs to another plan: it is the block {here} of {pencil.shape}, "
                f"not {wanted} of {side.pencil.shape}"
            )
    return array.view(np.ndarray)
