"""What a transform does along each axis, and between which transposes. Pure: no MPI calls.

A forward transform takes its axes one after the other. Consecutive axes that are local form a
*stage*; between two stages lies a transpose. The backward transform runs the stages the other
way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.errors import PatternError
from onesided.pencilfft.decomposition import PencilGeometry, nbytes_of
from onesided.pencilfft.kernels.protocol import REAL_KINDS

#: All kinds that a plan can be asked for.
KINDS = ("c2c", "r2c", *REAL_KINDS)

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
