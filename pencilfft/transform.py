"""One direction of a plan: local transforms and transposes in turn, user array to user array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.errors import PatternError, RequestError
from onesided.pencilfft.decomposition import PencilGeometry, Stage
from onesided.pencilfft.distarray import DistArray
from onesided.pencilfft.kernels.protocol import Kernel
from onesided.pencilfft.local import LocalTransform
from onesided.pencilfft.transpose import Transpose


@dataclass(frozen=True)
class Leg:
    """Local transforms, and the transpose after them; None reads or writes the user's array."""

    local: LocalTransform
    reads: NDArray[Any] | None = None
    writes: NDArray[Any] | None = None
    transpose: Transpose | None = None


class Transform:
    """Called as ``plan.forward(u)`` or ``plan.backward(u_hat)``.

    The input is read once and left as it is, the output is written once, and nothing is allocated
    when ``output_array`` is given. ``input_pencil`` and ``output_pencil`` say which blocks the
    two are, ``input_dtype`` and ``output_dtype`` of what.
    """

    def __init__(
        self,
        name: str,
        pencils: tuple[PencilGeometry, PencilGeometry],
        dtypes: tuple[np.dtype[Any], np.dtype[Any]],
        legs: Sequence[Leg],
        scale: int,
    ) -> None:
        self.name = name
        self.input_pencil, self.output_pencil = pencils
        self.input_dtype, self.output_dtype = dtypes
        self._legs, self._scale = legs, scale
        self._transposes = any(leg.transpose is not None for leg in legs)
        self._input: DistArray | None = None
        self._destroyed = False

    @property
    def input_array(self) -> DistArray:
        """What is transformed when no input is given; made at the first use."""
        if self._input is None:
            self._input = DistArray(self.input_pencil, self.input_dtype, 0)
        return self._input

    def __call__(
        self,
        input_array: NDArray[Any] | None = None,
        output_array: NDArray[Any] | None = None,
        normalize: bool | None = None,
    ) -> Any:
        """Collective. Transform the blocks of all ranks and return ``output_array``.

        ``input_array`` and ``output_array`` have this rank's local shapes and the dtypes of the
        plan, in any memory order; without an output a new :class:`DistArray` is returned, without
        an input :attr:`input_array` is read. ``normalize=True`` divides by N, the product of the
        lengths of the transformed axes, False does not scale; None does what the ``norm`` of the
        plan says. A wrong array raises :class:`PatternError` on this rank, before anything is
        started.
        """
        if self._destroyed:
            raise RequestError(f"{self.name} of a plan that was destroyed")
        given = self.input_array if input_array is None else input_array
        result: NDArray[Any]
        if output_array is None:
            result = DistArray(self.output_pencil, self.output_dtype)
        else:
            result = output_array
        source = _block("input", given, self.input_pencil, self.input_dtype)
        target = _block("output", result, self.output_pencil, self.output_dtype)
        self._check_memory(source, target)
        self._run(source, target, self._scale if normalize is None else 2 * bool(normalize))
        return result

    def _run(self, source: NDArray[Any], target: NDArray[Any], scale: int) -> None:
        for leg in self._legs:
            reads = source if leg.reads is None else leg.reads
            writes = target if leg.writes is None else leg.writes
            leg.local(reads, writes, scale)
            if leg.transpose is not None:
                leg.transpose()

    def _check_memory(self, source: NDArray[Any], target: NDArray[Any]) -> None:
        if not target.flags.writeable:
            raise PatternError(f"the output of {self.name} is read-only")
        if self._transposes or not np.may_share_memory(source, target):
            return
        same = source.__array_interface__ == target.__array_interface__
        if not same and np.shares_memory(source, target):
            raise PatternError(f"input and output of {self.name} overlap without being the same")

    def destroy(self) -> None:
        """Local. Refuse all calls from now on and drop the arrays."""
        self._destroyed = True
        self._legs, self._input = (), None


def _block(what: str, array: Any, pencil: PencilGeometry, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The array as a plain ndarray, if it has the shape and dtype of the block."""
    if not isinstance(array, np.ndarray):
        raise PatternError(f"the {what} is a {type(array).__name__}, not a NumPy array")
    if array.shape != pencil.subshape:
        raise PatternError(
            f"the {what} has shape {array.shape}, this rank's block has {pencil.subshape} "
            f"(of {pencil.shape})"
        )
    if array.dtype != dtype:
        raise PatternError(f"the {what} has dtype {array.dtype}, the plan {dtype}")
    return array.view(np.ndarray)


def plan_legs(
    kernel: Kernel,
    stages: Sequence[Stage],
    forward: bool,
    dtypes: tuple[np.dtype[Any], np.dtype[Any]],
    arrays: Sequence[NDArray[Any]],
    transposes: Sequence[Transpose],
) -> list[Leg]:
    """Local. The legs of one direction. All sequences are in the order of the forward transform.

    ``dtypes`` are those of the user's input and output, ``arrays`` holds the stages.
    """
    spectral = dtypes[1] if forward else dtypes[0]
    if not transposes:
        return _local_legs(kernel, stages[0], forward, dtypes, spectral)
    order = range(len(stages)) if forward else range(len(stages) - 1, -1, -1)
    crossings: list[Transpose | None] = [*(transposes if forward else reversed(transposes)), None]
    legs = []
    for k, (i, transpose) in enumerate(zip(order, crossings, strict=True)):
        axes, shapes = _directed(stages[i], forward)
        starts, ends = k == 0, transpose is None
        kinds = (dtypes[0] if starts else spectral, dtypes[1] if ends else spectral)
        outlets = () if transpose is None else transpose.outlets
        local = LocalTransform(kernel, axes, forward, shapes, kinds, outlets=outlets)
        legs.append(
            Leg(local, None if starts else arrays[i], None if ends else arrays[i], transpose)
        )
    return legs


def _local_legs(
    kernel: Kernel,
    stage: Stage,
    forward: bool,
    dtypes: tuple[np.dtype[Any], np.dtype[Any]],
    spectral: np.dtype[Any],
) -> list[Leg]:
    """Without a transpose: in groups of axes that leave one to form blocks along."""
    axes, shapes = _directed(stage, forward)
    groups = _groups(axes, len(shapes[0]))
    if len(groups) == 1:
        return [Leg(LocalTransform(kernel, axes, forward, shapes, dtypes))]
    between = shapes[1] if forward else shapes[0]
    staged = None if dtypes[1] == spectral else np.empty(between, spectral)
    legs = []
    for k, group in enumerate(groups):
        starts, ends = k == 0, k == len(groups) - 1
        sides = (shapes[0] if starts else between, shapes[1] if ends else between)
        kinds = (dtypes[0] if starts else spectral, dtypes[1] if ends else spectral)
        in_place = not starts and (staged is None or not ends)
        local = LocalTransform(kernel, group, forward, sides, kinds, in_place)
        legs.append(Leg(local, None if starts else staged, None if ends else staged))
    return legs


def _directed(
    stage: Stage, forward: bool
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], tuple[int, ...]]]:
    """Axes in the order of their transforms, local shapes before and after."""
    shapes = (stage.before.subshape, stage.after.subshape)
    return (stage.axes, shapes) if forward else (stage.axes[::-1], shapes[::-1])


def _groups(axes: tuple[int, ...], ndim: int) -> list[tuple[int, ...]]:
    """All axes cut into groups that leave one free, not the last one where that can be."""
    if len(axes) < ndim:
        return [axes]
    groups: list[tuple[int, ...]] = [axes[:1]]
    for axis in axes[1:]:
        joined = (*groups[-1], axis)
        if set(range(ndim - 1)) - set(joined):
            groups[-1] = joined
        else:
            groups.append((axis,))
    return groups
