"""What a transform does along each axis, and between which transposes. Pure: no MPI calls.

A forward transform takes its axes one after the other. Consecutive axes that are local form a
*stage*; between two stages lies a transpose. The backward transform runs the stages the other
way. The *operations* of a stage are kernels' transforms, and spectra that are cut or padded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.errors import PatternError
from onesided.pencilfft.decomposition import PencilGeometry, nbytes_of
from onesided.pencilfft.kernels.protocol import COMPLEX_KINDS, REAL_KINDS

#: All kinds that a plan can be asked for.
KINDS = ("c2c", "r2c", *REAL_KINDS)

#: Kinds of operations beside those of kernels' tasks.
CUT, PAD = "cut", "pad"

#: Real dtype -> its complex one.
COMPLEX: dict[str, np.dtype[Any]] = {char: np.dtype(char.upper()) for char in "fdg"}


#: What a kernel computes: a kind, and whether it is the forward one (of c2c: the negative sign in
#: the exponent; a cosine or sine transform that is not forward is of the type that undoes the
#: named one).
Call = tuple[str, bool]


def inverse_of(call: Call) -> Call:
    """Local. What undoes it, but for a factor."""
    kind, forward = call
    return {"r2c": "c2r", "c2r": "r2c"}.get(kind, kind), not forward


@dataclass(frozen=True)
class AxisTransform:
    """The transform along one axis.

    ``forward`` and ``backward`` are what is computed in the two directions. ``length`` is the
    unpadded number of points, ``physical`` that of the array before the forward transform (larger
    where the axis is padded), ``spectral`` that of the array after it. Of a complex line ``kept``
    says how many of the first modes that are, if not all.
    """

    axis: int
    forward: Call
    backward: Call
    length: int
    physical: int
    kept: int = 0

    @property
    def kind(self) -> str:
        """Of the forward transform."""
        return self.forward[0]

    @property
    def words(self) -> str:
        """What is computed, for people and as a name; short where backward undoes forward."""
        calls = self.forward, self.backward
        words = [f"{kind}{'' if forward else ' inverse'}" for kind, forward in calls]
        usual = self.forward[1] and self.backward == inverse_of(self.forward)
        return words[0] if usual else " and ".join(words)

    @staticmethod
    def family(kind: str) -> str:
        """Local. What kinds have in common that may follow each other: lengths, dtypes, modes."""
        return kind if kind in ("c2c", "dct1", "dst1") else "real" if kind[0] == "d" else "r2c"

    def shifted(self, batch: int) -> AxisTransform:
        """Local. The same transform of arrays with ``batch`` more leading axes."""
        return replace(self, axis=self.axis + batch)

    @property
    def full(self) -> int:
        """What the transform of ``physical`` points yields, before truncation."""
        return self.physical // 2 + 1 if self.kind == "r2c" else self.physical

    @property
    def spectral(self) -> int:
        """Length of the spectrum, which holds no more modes than the unpadded points carry."""
        return self.kept or (self.length // 2 + 1 if self.kind == "r2c" else self.length)

    @property
    def shares_highest(self) -> bool:
        """Whether the highest mode has no partner among the unpadded points, and one among more."""
        return self.length % 2 == 0 if self.kind == "r2c" else self.kind in ("dct1", "dst2")

    @property
    def padded(self) -> bool:
        """Whether the spectrum is cut after the transform, or its highest mode changed."""
        return self.full != self.spectral or (
            self.physical != self.length and self.kind == "r2c" and self.shares_highest
        )

    @property
    def modes(self) -> int:
        """The N by which this axis divides where a transform is normalized (scipy.fft's)."""
        if self.kind in ("c2c", "r2c"):
            return self.physical
        return 2 * (self.physical + {"dct1": -1, "dst1": 1}.get(self.kind, 0))


#: By kind where the first point lies, in distances of points, and how many of these there are
#: more than points.
_POINTS = {
    "dct1": (0.0, -1), "dct2": (0.5, 0), "dct3": (0.0, 0), "dct4": (0.5, 0),
    "dst1": (1.0, 1), "dst2": (0.5, 0), "dst3": (1.0, 0), "dst4": (0.5, 0),
}  # fmt: skip

#: The half waves in the interval of the first coefficient.
_FIRST = {
    "dct1": 0.0, "dct2": 0.0, "dct3": 0.5, "dct4": 0.5,
    "dst1": 1.0, "dst2": 1.0, "dst3": 0.5, "dst4": 0.5,
}  # fmt: skip


def points(step: AxisTransform | None, count: int) -> NDArray[Any]:
    """Local. The coordinates of ``count`` points, between 0 and 1; of no transform those of a
    period.

    Source: M. Frigo, S. G. Johnson, FFTW manual, section 4.8, for cosines and sines.
    """
    first, more = _POINTS.get("" if step is None else step.kind, (0.0, 0))
    return (np.arange(count) + first) / (count + more)


def wavenumbers(step: AxisTransform | None, count: int, length: float | None) -> NDArray[Any]:
    """Local. The waves in a period, negative ones too, or half waves in an interval, of each of
    ``count`` coefficients; 0 where nothing is transformed. Times 2 pi / length, or pi / length."""
    if step is None:
        return np.zeros(count)
    if step.kind in REAL_KINDS:
        halves: NDArray[Any] = np.arange(count) + _FIRST[step.kind]
        return halves if length is None else halves * (np.pi / length)
    found: NDArray[Any] = np.arange(count)
    if step.kind == "c2c":
        found = np.fft.ifftshift(found - count // 2)
    return found if length is None else found * (2 * np.pi / length)


def carried(step: AxisTransform | None, count: int, fraction: float) -> NDArray[Any]:
    """Local. Whether each of ``count`` coefficients is below this fraction of the highest one."""
    if step is None:
        return np.ones(count, bool)
    highest = step.length / 2
    if step.kind in REAL_KINDS:
        highest = step.length - (step.kind == "dct1")
    kept: NDArray[Any] = np.abs(wavenumbers(step, count, None)) < fraction * highest
    return kept


@dataclass(frozen=True)
class Stage:
    """The transforms that run without a transpose, in forward order, from pencil to pencil.

    ``before`` and ``after`` differ only in the global length of axes that a transform changes,
    ``dtypes`` are those before and after.
    """

    before: PencilGeometry
    transforms: tuple[AxisTransform, ...]
    after: PencilGeometry
    dtypes: tuple[np.dtype[Any], np.dtype[Any]]

    @property
    def axes(self) -> tuple[int, ...]:
        """The transformed axes in forward order."""
        return tuple(transform.axis for transform in self.transforms)

    @property
    def nbytes(self) -> int:
        """Bytes of the larger of the two local arrays."""
        return max(
            nbytes_of(pencil.subshape, dtype)
            for pencil, dtype in zip((self.before, self.after), self.dtypes, strict=True)
        )


def resolve_kinds(
    order: Sequence[int], calls: Mapping[int, tuple[Call, Call]], dtype: np.dtype[Any]
) -> dict[int, tuple[Call, Call]]:
    """Local. What is computed along every axis in ``order``, that of a forward transform.

    Axes without an entry in ``calls`` are real to complex while the data are real, else complex
    to complex. Raises :class:`PatternError` where a kind does not fit the data that reach it.
    """
    resolved = {}
    real = dtype.kind == "f"
    for axis in order:
        usual = ("r2c" if real else "c2c", True)
        found = calls.get(axis, (usual, inverse_of(usual)))
        kind = found[0][0]
        if kind not in KINDS:
            raise PatternError(f"kind {kind!r} of axis {axis} is none of {', '.join(KINDS)}")
        if kind == "r2c" and not real:
            raise PatternError(
                f"axis {axis} is to be transformed r2c, but the data that reach it are complex "
                f"(dtype {dtype}, axes transformed in the order {tuple(order)})"
            )
        if kind == "c2c" and real:
            raise PatternError(
                f"axis {axis} is to be transformed c2c, but the data that reach it are real "
                f"(dtype {dtype}, axes transformed in the order {tuple(order)})"
            )
        real = real and kind != "r2c"
        resolved[axis] = found
    return resolved


def plan_stages(
    first: PencilGeometry,
    transforms: Sequence[AxisTransform],
    dtype: np.dtype[Any],
    transposed_out: bool = True,
    groups: Sequence[Sequence[int]] = (),
) -> list[Stage]:
    """Local. The stages of a forward transform, ``transforms`` in its order.

    Of a group of axes, listed as mpi4py-fft does, it is the last one that is split by the transpose
    after the group, where it is whole then; of other axes it is the one transformed last.

    ``first`` is whole along the axis of the first transform and has the padded global shape.
    Without ``transposed_out``, stages that transform nothing lead back to the layout of the input.
    """
    stages: list[Stage] = []
    before = after = first
    here = start = dtype
    group: list[AxisTransform] = []
    aligned = {axes[0]: axes[-1] for axes in groups}
    for transform in transforms:
        axis = transform.axis
        if after.parts(axis) != 1:
            stages.append(Stage(before, tuple(group), after, (start, here)))
            before = after = after.pencil(axis)
            start, group = here, []
        group.append(transform)
        if transform.kind == "r2c":
            here = COMPLEX[here.char]
        after = replace(after, axis=axis).resized(axis, transform.spectral)
        if after.parts(aligned.get(axis, axis)) == 1:
            after = replace(after, axis=aligned.get(axis, axis))
    if not transposed_out:  # the way back begins with the axis that was made whole last
        after = replace(after, axis=before.axis)
    stages.append(Stage(before, tuple(group), after, (start, here)))
    return stages if transposed_out else [*stages, *_way_back(stages)]


def _way_back(stages: Sequence[Stage]) -> list[Stage]:
    """Empty stages that undo the transposes between ``stages``, the last one first."""
    back = []
    here = stages[-1].after
    dtype = stages[-1].dtypes[1]
    for stage in stages[-2::-1]:
        before = here.pencil(stage.after.axis)
        here = replace(before, axis=stage.before.axis)
        back.append(Stage(before, (), here, (dtype, dtype)))
    return back


@dataclass(frozen=True)
class Operation:
    """One step along ``axis``, between arrays of these lengths and dtypes.

    ``kind`` is that of a kernel's task, "cut" or "pad", and ``forward`` its direction;
    ``transform`` is what it belongs to. ``others`` is the product of the points of the axes whose
    factor it takes over, 0 where another one has taken over its own.
    """

    kind: str
    forward: bool
    transform: AxisTransform
    lengths: tuple[int, int]
    dtypes: tuple[np.dtype[Any], np.dtype[Any]]
    others: int = 1

    @property
    def axis(self) -> int:
        """The axis along which the step goes."""
        return self.transform.axis

    @property
    def is_kernel(self) -> bool:
        """Whether a kernel does it."""
        return self.kind not in (CUT, PAD)

    def normalization(self, scale: int) -> tuple[int, int]:
        """Local. ``scale`` and ``others`` of its task."""
        return (scale, self.others) if scale and self.others else (0, 1)

    @property
    def fits_in_place(self) -> bool:
        """Whether it may work in the array that it reads."""
        return self.is_kernel and self.kind not in ("r2c", "c2r")


def operations(stage: Stage, forward: bool) -> list[Operation]:
    """Local. The steps of a stage in one direction."""
    steps: list[Operation] = []
    dtype = stage.dtypes[0]
    for transform in stage.transforms:
        before = dtype
        if transform.kind == "r2c":
            dtype = stage.dtypes[1]
        steps += _of_axis(transform, before, dtype)
    if forward:
        return steps
    return [_reversed(step) for step in reversed(steps)]


def chains(stages: Sequence[Stage], forward: bool) -> list[list[Operation]]:
    """Local. The steps of all stages in one direction, by stage in the order in which they run.

    Of all transforms that have complex data one multiplies by the factor of them all, that along
    the last axis if there is one: its lines are dense, and a factor costs next to nothing there,
    along other axes up to a third of a transform.
    """
    found = [operations(stage, forward) for stage in (stages if forward else stages[::-1])]
    scaled = [step for steps in found for step in steps if step.kind in COMPLEX_KINDS]
    if not scaled:
        return found
    chosen = max(scaled, key=lambda step: step.axis)
    others = prod(step.transform.modes for step in scaled if step is not chosen)
    return [
        [
            replace(step, others=others if step is chosen else 0)
            if step.kind in COMPLEX_KINDS
            else step
            for step in steps
        ]
        for steps in found
    ]


def _of_axis(
    transform: AxisTransform, before: np.dtype[Any], after: np.dtype[Any]
) -> list[Operation]:
    lengths = (transform.physical, transform.full)
    steps = [Operation(*transform.forward, transform, lengths, (before, after))]
    if transform.padded:
        lengths = (transform.full, transform.spectral)
        steps.append(Operation(CUT, True, transform, lengths, (after, after)))
    return steps


def _reversed(step: Operation) -> Operation:
    call = step.transform.backward if step.is_kernel else (PAD, False)
    return Operation(*call, step.transform, step.lengths[::-1], step.dtypes[::-1])


def resizer(
    step: Operation, orthogonal: bool = False
) -> Callable[[NDArray[Any], NDArray[Any]], None]:
    """Local. What cuts or pads a spectrum: ``run(source, target)``.

    A spectrum is cut to the modes that the unpadded points carry. Of an even number of points the
    highest mode stands for both signs (the symmetric interpolant): it takes the sum of the two
    when cut, and gives each a half when padded. So does the highest mode of "dct1" and "dst2";
    where transforms are ``orthogonal`` it gives the root of a half.
    """
    transform = step.transform
    if transform.kind == "c2c" and not transform.kept:
        return _resize_full(step)
    factor = (0.5 if step.kind == PAD else 2.0) if transform.shares_highest else 1.0
    return _resize_half(step, factor**0.5 if orthogonal else factor)


def _resize_half(step: Operation, factor: float) -> Callable[[NDArray[Any], NDArray[Any]], None]:
    """Of non-negative modes, or of cosines and sines: the first ones are kept, the highest of them
    times a factor."""
    axis, kept = step.axis, min(step.lengths)
    low, rest = _along(axis, 0, kept), _along(axis, kept, None)
    top = _along(axis, kept - 1, kept)
    real = step.transform.kind == "r2c"

    def run(source: NDArray[Any], target: NDArray[Any]) -> None:
        np.copyto(target[low], source[low])
        target[rest] = 0
        if factor != 1.0:
            highest = target[top]
            np.multiply(highest, factor, out=highest)
            if real:
                highest.imag[...] = 0

    return run


def _resize_full(step: Operation) -> Callable[[NDArray[Any], NDArray[Any]], None]:
    """Of modes of both signs: the low ones of each are kept."""
    axis, n, cuts = step.axis, step.transform.length, step.kind == CUT
    shared = n % 2 == 0
    positive, negative = (n + 1) // 2, (n - 1) // 2
    low = _along(axis, 0, positive)
    high_from = _along(axis, step.lengths[0] - negative, None)
    high_to = _along(axis, step.lengths[1] - negative, None)
    middle = _along(axis, positive, step.lengths[1] - negative)
    full = max(step.lengths)
    single, plus = _along(axis, n // 2, n // 2 + 1), _along(axis, n // 2, n // 2 + 1)
    minus = _along(axis, full - n // 2, full - n // 2 + 1)

    def run(source: NDArray[Any], target: NDArray[Any]) -> None:
        np.copyto(target[low], source[low])
        np.copyto(target[high_to], source[high_from])
        if not cuts:
            target[middle] = 0
        if shared and cuts:
            np.add(source[plus], source[minus], out=target[single])
        elif shared:
            np.multiply(source[single], 0.5, out=target[plus])
            np.copyto(target[minus], target[plus])

    return run


def _along(axis: int, start: int, stop: int | None) -> tuple[slice, ...]:
    return (*[slice(None)] * axis, slice(start, stop))
