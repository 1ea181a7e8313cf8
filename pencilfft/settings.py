"""The arguments of a plan, checked. Pure: what a rank can find out without the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from onesided.collectives.errors import PatternError, UnsupportedError
from onesided.pencilfft.decomposition import choose_grid
from onesided.pencilfft.kernels.registry import choose_backend

#: Normalization -> powers of 1/sqrt(N) by which forward and backward scale (scipy.fft's meaning).
NORMS = {"forward": (2, 0), "ortho": (1, 1), "backward": (0, 2)}

#: Real dtype -> its complex one.
COMPLEX: dict[str, np.dtype[Any]] = {"f": np.dtype(np.complex64), "d": np.dtype(np.complex128)}


@dataclass(frozen=True)
class Settings:
    """What all ranks must agree on.

    ``axes`` are nested as mpi4py-fft's are, the last one transformed first; ``grid`` holds one
    size per array axis; ``dtype`` is that of the input of a forward transform.
    """

    shape: tuple[int, ...]
    axes: tuple[tuple[int, ...], ...]
    grid: tuple[int, ...]
    dtype: np.dtype[Any]
    backend: str
    norm: str

    @classmethod
    def of(
        cls,
        size: int,
        shape: Sequence[int],
        axes: Any,
        dtype: DTypeLike,
        grid: Sequence[int] | str | None,
        slab: bool | int,
        backend: str,
        norm: str | None,
    ) -> Settings:
        """Local. Check the arguments of a plan on ``size`` ranks."""
        lengths = _lengths(shape)
        kind = np.dtype(dtype)
        if kind.char not in "fdFD" or not kind.isnative:
            raise PatternError(
                f"dtype {kind} is not supported; float32, float64, complex64 and complex128 are"
            )
        chosen = "forward" if norm is None else norm
        if chosen not in NORMS:
            raise PatternError(f"norm {norm!r} is none of {', '.join(NORMS)}")
        groups = _groups(axes, len(lengths))
        parts = choose_grid(size, lengths, groups[-1], grid, slab)
        return cls(lengths, groups, parts, kind, choose_backend(backend), chosen)

    @property
    def order(self) -> tuple[int, ...]:
        """The axes in the order of a forward transform."""
        return tuple(axis for group in reversed(self.axes) for axis in reversed(group))

    @property
    def real(self) -> bool:
        """Whether the first transform is real to complex."""
        return self.dtype.kind == "f"

    @property
    def spectral_dtype(self) -> np.dtype[Any]:
        """Of the output of a forward transform."""
        return COMPLEX.get(self.dtype.char, self.dtype)

    def describe(self) -> str:
        """Local. The call in words, the same on all ranks if the arguments are."""
        return (
            f"PFFT(shape={self.shape}, axes={self.axes}, dtype={self.dtype.name}, "
            f"grid={self.grid}, backend={self.backend}, norm={self.norm})"
        )


def require_supported(padding: Any, collapse: Any, transforms: Any, darray: Any) -> None:
    """Local. Refuse arguments of mpi4py-fft's that this version does not implement."""
    given = {"padding": padding, "transforms": transforms, "darray": darray}
    for name, value in given.items():
        if value is not None and value is not False:
            raise UnsupportedError(f"{name}={value!r} is not supported; leave it out")
    if not isinstance(collapse, bool):
        raise PatternError(f"collapse is True or False, not {collapse!r}")


def _lengths(shape: Sequence[int]) -> tuple[int, ...]:
    try:
        lengths = tuple(index(length) for length in shape)
    except TypeError as error:
        raise PatternError(f"shape {shape!r} is not a sequence of integers") from error
    if len(lengths) < 2:
        raise UnsupportedError(f"shape {lengths} has fewer than the 2 dimensions that are needed")
    if min(lengths) < 1:
        raise PatternError(f"shape {lengths} has an axis without elements")
    return lengths


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
