"""The arguments of a plan, checked. Pure: what a rank can find out without the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from onesided.collectives.errors import PatternError
from onesided.pencilfft.arguments import padded_lengths, requested_kinds
from onesided.pencilfft.decomposition import choose_grid
from onesided.pencilfft.stages import AxisTransform, resolve_kinds

#: Normalization -> powers of 1/sqrt(N) by which forward and backward scale (scipy.fft's meaning).
NORMS = {"forward": (2, 0), "ortho": (1, 1), "backward": (0, 2)}

#: How long a plan may look for a fast way.
EFFORTS = ("estimate", "measure")


@dataclass(frozen=True)
class Settings:
    """What all ranks must agree on.

    ``shape`` is the padded global shape of the input of a forward transform, ``dtype`` its dtype;
    ``axes`` are nested as mpi4py-fft's are, the last one transformed first; ``transforms`` come
    in the order of a forward transform; ``batch`` holds the extents of the leading axes that are
    not distributed, which ``shape`` and axis numbers leave out.
    """

    shape: tuple[int, ...]
    axes: tuple[tuple[int, ...], ...]
    transforms: tuple[AxisTransform, ...]
    dtype: np.dtype[Any]
    backend: str
    norm: str
    batch: tuple[int, ...]
    transposed_out: bool
    effort: str

    @classmethod
    def of(
        cls,
        shape: Any,
        axes: Any,
        dtype: DTypeLike,
        padding: Any,
        transforms: Any,
        kinds: Any,
        backend: str,
        norm: str | None,
        batch: Any,
        transposed_out: bool | None,
        effort: str,
    ) -> Settings:
        """Local. Check the arguments of a plan."""
        lengths = _lengths("shape", shape)
        kind = np.dtype(dtype)
        if kind.char not in "fdFD" or not kind.isnative:
            raise PatternError(
                f"dtype {kind} is not supported; float32, float64, complex64 and complex128 are"
            )
        chosen = "forward" if norm is None else norm
        if chosen not in NORMS:
            raise PatternError(f"norm {norm!r} is none of {', '.join(NORMS)}")
        if effort not in EFFORTS:
            raise PatternError(f"effort {effort!r} is none of {', '.join(EFFORTS)}")
        groups = _groups(axes, len(lengths))
        order = _order(groups)
        requested = requested_kinds(transforms, kinds, groups, len(lengths))
        resolved = resolve_kinds(order, requested, kind)
        physical = padded_lengths(padding, lengths, groups)
        steps = tuple(AxisTransform(a, resolved[a], lengths[a], physical[a]) for a in order)
        for step in steps:
            if step.kind == "dct1" and step.physical < 2:
                raise PatternError(f"dct1 along axis {step.axis} needs 2 points, there is 1")
        if transposed_out is None:
            transposed_out = len(lengths) > 1
        extents = _lengths("batch", batch) if np.size(batch) else ()
        out = bool(transposed_out)
        return cls(physical, groups, steps, kind, backend, chosen, extents, out, effort)

    @property
    def order(self) -> tuple[int, ...]:
        """The axes in the order of a forward transform."""
        return tuple(step.axis for step in self.transforms)

    @property
    def spectral_dtype(self) -> np.dtype[Any]:
        """Of the output of a forward transform."""
        if any(step.kind == "r2c" for step in self.transforms):
            return np.dtype(self.dtype.char.upper())
        return self.dtype

    def collapsed(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Local. The groups of axes with local ones joined, as mpi4py-fft's ``collapse`` does.

        ``sizes`` tells over how many ranks each axis of the input is split.
        """
        groups: list[tuple[int, ...]] = [()]
        for group in reversed(self.axes):
            if all(sizes[axis] == 1 for axis in group):
                groups[0] = (*group, *groups[0])
            else:
                groups.insert(0, group)
        return tuple(groups)

    def grouped(self, axes: Sequence[tuple[int, ...]]) -> tuple[tuple[AxisTransform, ...], ...]:
        """Local. The transforms of groups of axes, both in the order of a forward transform."""
        steps = {step.axis: step for step in self.transforms}
        return tuple(tuple(steps[axis] for axis in reversed(group)) for group in reversed(axes))

    def describe(self) -> str:
        """Local. The call in words, the same on all ranks if the arguments are."""
        kinds = ", ".join(
            f"{step.axis}: {step.kind} {step.length}/{step.physical}" for step in self.transforms
        )
        return (
            f"PFFT(shape={self.shape}, axes={self.axes}, dtype={self.dtype.name}, "
            f"transforms=({kinds}), batch={self.batch}, norm={self.norm}, "
            f"backend={self.backend}, effort={self.effort}, "
            f"transposed_out={self.transposed_out})"
        )


def _lengths(name: str, shape: Any) -> tuple[int, ...]:
    try:
        lengths = tuple(index(length) for length in shape)
    except TypeError as error:
        raise PatternError(f"{name} {shape!r} is not a sequence of integers") from error
    if not lengths:
        raise PatternError(f"{name} {shape!r} has no axis")
    if min(lengths) < 1:
        raise PatternError(f"{name} {lengths} has an axis without elements")
    return lengths


def _order(groups: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(axis for group in reversed(groups) for axis in reversed(group))


def _groups(axes: Any, ndim: int) -> tuple[tuple[int, ...], ...]:
    """Axes as non-negative numbers in nested tuples; each at most once."""
    if axes is None:
        return tuple((axis,) for axis in range(ndim))
    try:
        entries = list(axes) if np.iterable(axes) else [axes]
        groups = [
            tuple(index(axis) for axis in (entry if np.iterable(entry) else (entry,)))
            for entry in entries
        ]
    except TypeError as error:
        raise PatternError(f"axes {axes!r} are not integers, or groups of integers") from error
    flat = [axis for group in groups for axis in group]
    if not flat or not all(groups):
        raise PatternError(f"axes {axes!r} hold no axis")
    for axis in flat:
        if not -ndim <= axis < ndim:
            raise PatternError(f"axis {axis} does not exist in {ndim} dimensions")
    positive = [axis % ndim for axis in flat]
    twice = next((axis for axis in positive if positive.count(axis) > 1), None)
    if twice is not None:
        raise PatternError(f"axes {axes!r} name axis {twice} twice")
    return tuple(tuple(axis % ndim for axis in group) for group in groups)


def grid_of(
    size: int, settings: Settings, grid: Sequence[int] | str | None, slab: bool | int
) -> tuple[int, ...]:
    """Local. The sizes of the grid axes for ``size`` ranks, see :func:`choose_grid`."""
    return choose_grid(size, settings.shape, settings.axes[-1], grid, slab)
