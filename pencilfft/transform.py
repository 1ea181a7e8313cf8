"""One direction of a plan, called with the user's arrays."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.errors import PatternError, RequestError, UnsupportedError
from onesided.collectives.steps import address
from onesided.pencilfft.decomposition import block_of
from onesided.pencilfft.distarray import DistArray
from onesided.pencilfft.legs import Flight
from onesided.pencilfft.settings import Settings

#: Options of FFTW's plans that mpi4py-fft passes on at a call; here they mean nothing.
FFTW_OPTIONS = frozenset({"implicit", "threads", "flags", "overwrite_input", "planner_effort"})

#: What a call returns, and what is copied there; while none is under way.
NOWHERE: tuple[Any, Any] = None, None

#: References to an array that only the plan has, that of the question among them.
OURS = 2

#: The array that a transform is given for its output, and returns.
Output = TypeVar("Output", bound=NDArray[Any])


@dataclass(frozen=True, eq=False)
class Side:
    """What a plan's arrays are on one side of a transform.

    ``pencil`` tells which part of the global array this rank holds; ``shape`` is the local shape,
    with the ``batch`` leading axes that are not distributed. ``order`` is the memory order of
    arrays that the plan makes, outermost first.
    """

    pencil: Any
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: tuple[int, ...]
    batch: tuple[int, ...]

    @property
    def global_shape(self) -> tuple[int, ...]:
        """Of the array that all ranks have together."""
        return self.batch + tuple(self.pencil.shape)

    def array(self, val: Any = None) -> Any:
        """Local. A new array of this side, not initialized for None."""
        return DistArray.of(self.pencil, self.dtype, val, self.batch, self.order)

    def array_in(self, memory: NDArray[Any], order: Sequence[int], row: int) -> Any:
        """Local. The array of this side at the beginning of some memory, its axes in this order,
        outermost first, and its rows ``row`` bytes apart."""
        strides, step = [0] * len(self.shape), row
        strides[order[-1]] = self.dtype.itemsize
        for axis in reversed(order[:-1]):
            strides[axis] = step
            step *= self.shape[axis]
        # of its own class, so that views refer to it or to its base, not to what both sides have
        base = memory.view(DistArray)
        block = np.ndarray.__new__(DistArray, self.shape, self.dtype, base, 0, strides)
        return DistArray.over(block, self.pencil, len(self.batch))


class SharedArrays:
    """The arrays of a plan itself, made when they are asked for.

    As in mpi4py-fft, what is the output of one direction is the input of the other. A result that
    a caller has taken in an array of its own is copied to that of the plan when somebody looks at
    it: at once where somebody has kept it, else when it is asked for, from the caller's array as it
    is then. Where that is gone, it holds NaN. ``arrays`` are there from the beginning.
    """

    def __init__(self, sides: Sequence[Side], arrays: Sequence[Any] = ()) -> None:
        self._arrays: dict[Side, Any] = dict(zip(sides, arrays, strict=False))
        self._one_memory = bool(arrays)
        self._taken: dict[Side, weakref.ref[Any]] = {}  # results that the plan's array has not

    def own(self, side: Side) -> Any:
        """Local. The array of a side, with whatever is in it."""
        if side not in self._arrays:
            self._arrays[side] = side.array(0)
        return self._arrays[side]

    def get(self, side: Side) -> DistArray:
        """Local. The array of a side, with the last result."""
        array: DistArray = self.own(side)
        taken = self._taken.pop(side, None)
        if taken is not None:
            last = taken()
            some = slice(None if last is None else len(last))  # it may have had fewer fields
            array[some] = np.nan if last is None else last
        return array

    def source(self, side: Side) -> Any:
        """Local. The array of a side, to be read. RequestError where what should be in it is gone.
        """
        taken = self._taken.get(side)
        if taken is not None and taken() is None:
            raise RequestError(
                "the last result went to an array of the caller's that is gone; give the input"
            )
        return self.get(side)

    def fresh(self, side: Side) -> Any:
        """Local. The array of a side, to be written to: what should be in it does not matter."""
        if self._one_memory:
            self._taken.clear()
        elif self._taken:
            self._taken.pop(side, None)
        return self.own(side)

    def took(self, side: Side, output: NDArray[Any]) -> None:
        """Local. A result is in ``output``, which a caller has given."""
        if output is self._arrays.get(side):
            self._taken.pop(side, None)
        elif side in self._arrays and self._kept(side):
            np.copyto(self._arrays[side][: len(output)], output)
        else:
            self._taken[side] = weakref.ref(output)

    def forget(self) -> None:
        """Local. Drop the arrays."""
        self._arrays, self._taken = {}, {}

    def _kept(self, side: Side) -> bool:
        """Whether somebody has the array, or a view of it: a view of its own class refers to the
        array that owns the memory."""
        return (
            sys.getrefcount(self._arrays[side]) > OURS
            or sys.getrefcount(self._arrays[side].base) > OURS
        )


def in_one_memory(sides: Sequence[Side], axis: int, transposes: bool) -> list[Any]:
    """Local. The arrays of both sides in one memory.

    Where nothing is transposed lines along ``axis`` begin at the same places, as FFTW's padded
    ones.
    """
    ndim = len(sides[0].shape)
    axis %= ndim
    order, rows = list(range(ndim)), [side.shape[-1] * side.dtype.itemsize for side in sides]
    if not transposes:
        order = [*(each for each in order if each != axis), axis]
        rows = [max(side.shape[axis] * side.dtype.itemsize for side in sides)] * 2
    sizes = [
        row * int(np.prod([side.shape[each] for each in order[:-1]]))
        for row, side in zip(rows, sides, strict=True)
    ]
    memory = np.zeros(max(*sizes, 1), np.uint8)
    return [side.array_in(memory, order, row) for side, row in zip(sides, rows, strict=True)]


class Transform:
    """Called as ``plan.forward(u)`` or ``plan.backward(u_hat)``.

    The input is read once and left as it is, unless the plan may overwrite it; the output is
    written once, and nothing is allocated where both are given and fit.

    Examples
    --------
    >>> with PFFT(comm, (8, 8)) as fft:
    ...     u, u_hat = newDistArray(fft, False, val=2), newDistArray(fft)
    ...     found = fft.forward(u, u_hat)  # into the caller's own array
    ...     fft.forward.Start(u, u_hat)  # begun now, completed later
    ...     fft.forward.Wait() is u_hat
    True
    """

    def __init__(
        self,
        name: str,
        sides: tuple[Side, Side],
        arrays: SharedArrays,
        execution: Any,
        scale: int,
        settings: Settings,
    ) -> None:
        """Local."""
        self.name = name
        #: What goes in and what comes out.
        self.input, self.output = sides
        self._arrays, self._execution, self._scale = arrays, execution, scale
        self._overwrites, self._real_axis = settings.overwrite_input, settings.real_axis
        self._flight = Flight(execution.engine, name == "forward", scale)
        # the last other pencil of the same blocks as input and output
        self._alike: dict[Side, Any] = dict.fromkeys(sides)
        self._fewer = bool(settings.batch) and len(settings.shape) > 1
        self._goes = NOWHERE
        self._begun = False

    @property
    def input_array(self) -> DistArray:
        """The plan's own input, read where none is given; also the other direction's output."""
        return self._arrays.get(self.input)

    @property
    def output_array(self) -> DistArray:
        """The plan's own output, returned where none is given; the other direction's input."""
        return self._arrays.get(self.output)

    @property
    def input_pencil(self) -> Any:
        """Which part of the global input this rank holds."""
        return self.input.pencil

    @property
    def output_pencil(self) -> Any:
        """Which part of the global output this rank holds."""
        return self.output.pencil

    @overload
    def __call__(
        self, input_array: Any = None, output_array: None = None, normalize: bool | None = None,
        **options: Any,
    ) -> DistArray: ...  # fmt: skip

    @overload
    def __call__(
        self, input_array: Any, output_array: Output, normalize: bool | None = None,
        **options: Any,
    ) -> Output: ...  # fmt: skip

    def __call__(
        self,
        input_array: Any = None,
        output_array: NDArray[Any] | None = None,
        normalize: bool | None = None,
        **options: Any,
    ) -> Any:
        """Collective. Transform the blocks of all ranks and return ``output_array``.

        The arrays have this rank's local shapes and the dtypes of the plan, in any memory order. Of
        a batch the first axis may be shorter, on all ranks alike; what :attr:`output_array` has
        beyond it is not defined then. What is otherwise but can be assigned to such an array, and
        from one, as ``a[...] = b`` does, goes through :attr:`input_array` and :attr:`output_array`.
        These are also what is read and returned where an array is not given, as in mpi4py-fft: the
        next call overwrites them.

        Input and output may be one memory: the same array, or, of real and complex data, lines
        that begin at the same places (FFTW's padded rows); where something is transposed, any
        two arrays. A plan that may overwrite its input (``overwrite_input=True``) copies one that
        it cannot write to, or whose elements share memory, to :attr:`input_array`.

        ``normalize=True`` divides by N, the product of the modes of the transformed axes, False
        does not scale; None does what the ``norm`` of the plan says. Options of FFTW's plans that
        mpi4py-fft knows are ignored. A wrong array on any rank raises :class:`PatternError` on
        every rank, and so does an error in the middle of the transform its own class; what is in
        the output then is not defined.
        """
        self._load(input_array, output_array, normalize, options)
        try:
            self._execution.run(self._flight)
            return self._result()
        finally:
            self._goes = NOWHERE

    def Start(
        self,
        input_array: Any = None,
        output_array: NDArray[Any] | None = None,
        normalize: bool | None = None,
    ) -> None:
        """Collective. Begin a transform, which :meth:`Wait` completes.

        Arguments as in a call. Until it is complete the input is not written to and the output not
        touched, and the plan does no other transform. This rank has transformed its first axes when
        it returns, and handed the result on; what follows is done by :meth:`Test` and
        :meth:`Wait`. Transforms of several plans may be under way at the same time; one that waits
        goes on with the others, so ranks may wait for them in different orders.

        Raises as a call does, on every rank; UnsupportedError where the method of the transposes
        is one that ranks have to use in one order.
        """
        execution, flight = self._execution, self._flight
        self._load(input_array, output_array, normalize, {})
        if flight.error is None and (methods := execution.in_order):
            flight.fail(UnsupportedError(
                f"the transposes of this plan ({', '.join(sorted(methods))}) go on in one order on "
                "all ranks; a transform can be begun with others, as rma-notify"
            ))  # fmt: skip
        try:
            execution.start(flight)
        except BaseException:
            self._goes = NOWHERE
            raise
        self._begun = True

    def Test(self) -> bool:
        """Local. Go on with the transform that was begun; true where it is complete, or where none
        is under way: :meth:`Wait` returns at once then."""
        if self._begun and self._flight.broken is not None:
            self._execution.refuse("Test")
        return not self._begun or self._flight.test()

    def Wait(self) -> NDArray[Any]:
        """Collective, in the sense of MPI. Complete the transform that was begun; the output.

        Ranks may wait for several plans in different orders, but other collective calls come before
        or after it on all ranks alike. An error in its middle is raised on the rank where it
        occurred, and on all others by the next transform of the plan. RequestError where none is
        under way, and where one was broken off by an interrupt: the plan is of no use then.
        """
        if not self._begun:
            raise RequestError(f"no {self.name} transform is under way")
        execution, flight = self._execution, self._flight
        if flight.broken is not None:
            execution.refuse("Wait")
        execution.left = error = flight.wait()
        execution.flight, self._begun = None, False
        try:
            if error is not None:
                raise error
            return self._result()
        finally:
            self._goes = NOWHERE

    def _load(
        self, given: Any, output: Any, normalize: bool | None, options: Mapping[str, Any]
    ) -> None:
        """What a call is about: ``_flight`` has it, or an error, and ``_goes`` what is returned."""
        execution, flight = self._execution, self._flight
        if execution.held not in execution.held.context.live:  # as alive, without a call
            raise RequestError(f"{self.name} of a plan that was destroyed")
        if execution.flight is not None:
            execution.refuse(self.name)
        try:
            if options and not FFTW_OPTIONS.issuperset(options):
                raise PatternError(f"{self.name} does not take {', '.join(map(repr, options))}")
            fields = self._fields(given, output) if self._fewer else 0
            source = self._source(given, fields)
            target = self._target(output, fields)
            if not execution.transposes:
                self._check_overlap(source, target)
            scale = self._scale if normalize is None else 2 * bool(normalize)
            flight.load(source, target, scale, fields)
        except Exception as problem:
            flight.fail(problem)

    def _fields(self, given: Any, output: Any) -> int:
        """How many fields the arrays have, where that is less than the plan's; else 0. All ranks
        have to find the same."""
        found = {0 if array is None else _fewer(array, side)
                 for array, side in ((given, self.input), (output, self.output))}  # fmt: skip
        if given is None or output is None:
            found.discard(0)
        return found.pop() if len(found) == 1 else 0

    def _result(self) -> NDArray[Any]:
        """What the caller gets."""
        result: NDArray[Any]
        result, copied = self._goes
        if copied is None:
            self._arrays.took(self.output, result)
        elif copied is not result:
            result[...] = copied
        return result

    def _source(self, given: Any, fields: int) -> NDArray[Any]:
        if given is None:
            return _plain(self._arrays.source(self.input))
        shape = self.input.shape if not fields else (fields, *self.input.shape[1:])
        block = self._block(given, self.input, shape)
        if block is not None and (not self._overwrites or _can_be_overwritten(block)):
            return block
        own, array = self._arrays.own(self.input), np.asarray(given)
        own = own[:fields] if fields else own
        try:
            own[...] = array
            self._arrays.fresh(self.input)  # where it was refused the last result is still there
        except (ValueError, TypeError) as problem:
            raise PatternError(
                f"the input has shape {array.shape} and dtype {array.dtype}, which cannot be "
                f"assigned to this rank's block of {shape} (of {self.input.global_shape}), "
                f"{self.input.dtype}"
            ) from problem
        return _plain(own)

    def _target(self, given: Any, fields: int) -> NDArray[Any]:
        """What is written."""
        side = self.output
        shape = side.shape if not fields else (fields, *side.shape[1:])
        if given is not None:
            if not isinstance(given, np.ndarray):
                raise PatternError(f"the output is a {type(given).__name__}, not a NumPy array")
            if not given.flags.writeable:
                raise PatternError(f"the output of {self.name} is read-only")
            block = self._block(given, side, shape)
            if block is not None:
                self._goes = given, None
                return block
            _check_assignment(given, side, shape)
        own = self._arrays.fresh(side)
        own = own[:fields] if fields else own
        self._goes = own if given is None else given, own
        return _plain(own)

    def _block(self, array: Any, side: Side, shape: tuple[int, ...]) -> NDArray[Any] | None:
        """An array that has the form of this rank's block, as a plain one, else None; PatternError
        for one of another plan's."""
        if not isinstance(array, np.ndarray):
            return None
        pencil = getattr(array, "_p0", None)
        if pencil is not None and pencil is not side.pencil and pencil is not self._alike[side]:
            here, wanted = block_of(pencil), side.pencil.local_slice()
            alike = here == wanted and tuple(pencil.shape) == side.pencil.shape
            if array.shape == shape and not alike:
                raise PatternError(
                    f"the array belongs to another plan: it is the block {here} of "
                    f"{pencil.shape}, not {wanted} of {side.pencil.shape}"
                )
            if alike:
                self._alike[side] = pencil
        if array.shape != shape or array.dtype != side.dtype:
            return None
        return array if type(array) is np.ndarray else array.view(np.ndarray)

    def _check_overlap(self, source: NDArray[Any], target: NDArray[Any]) -> None:
        if not np.may_share_memory(source, target):
            return
        same = source.__array_interface__ == target.__array_interface__
        if same or self._same_lines(source, target) or not np.shares_memory(source, target):
            return
        raise PatternError(f"input and output of {self.name} overlap without being the same")

    def _same_lines(self, source: NDArray[Any], target: NDArray[Any]) -> bool:
        """Whether real lines and their half spectra begin at the same places."""
        axis = self._real_axis
        if axis is None or address(source) != address(target):
            return False
        dense = all(array.strides[axis] == array.itemsize for array in (source, target))
        return dense and all(
            here == there
            for k, (here, there) in enumerate(zip(source.strides, target.strides, strict=True))
            if k != axis
        )


def _check_assignment(given: NDArray[Any], side: Side, shape: tuple[int, ...]) -> None:
    """Raise where a block of this shape cannot be assigned to an array."""
    block = shape
    while len(block) > given.ndim and block[0] == 1:
        block = block[1:]
    try:
        fits = np.broadcast_shapes(block, given.shape) == given.shape
    except ValueError:
        fits = False
    if not fits or not np.can_cast(side.dtype, given.dtype, "unsafe"):
        raise PatternError(
            f"the output has shape {given.shape} and dtype {given.dtype}, to which this rank's "
            f"block of {shape} (of {side.global_shape}), {side.dtype}, cannot be assigned"
        )


def _fewer(array: Any, side: Side) -> int:
    """How many fields an array has, where it is this rank's block of fewer; else 0."""
    shape = np.shape(array)
    alike = shape[1:] == side.shape[1:] and 0 < shape[0] < side.shape[0]
    return shape[0] if alike else 0


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    return array if type(array) is np.ndarray else array.view(np.ndarray)


def _can_be_overwritten(array: NDArray[Any]) -> bool:
    """Whether it can be written to, each element for itself."""
    if array.flags.c_contiguous:
        return array.flags.writeable
    span = array.itemsize
    steps = zip(map(abs, array.strides), array.shape, strict=True)
    for step, extent in sorted(steps):
        if extent > 1 and step < span:
            return False
        span += step * (extent - 1)
    return array.flags.writeable
