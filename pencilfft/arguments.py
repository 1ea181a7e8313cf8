"""Arguments that say the same in several ways: kinds of transforms, padding, names of kernels.

mpi4py-fft's forms are understood beside our own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from operator import index
from typing import Any

import numpy as np

from onesided.collectives.errors import PatternError, UnsupportedError
from onesided.pencilfft.kernels.registry import installed

#: A function of mpi4py-fft, pyfftw or scipy -> the kind that it does; {} takes the type.
FUNCTIONS = {
    "fftn": "c2c",
    "rfftn": "r2c",
    "fft": "c2c",
    "rfft": "r2c",
    "dctn": "dct{}",
    "dstn": "dst{}",
    "dct": "dct{}",
    "dst": "dst{}",
}

#: mpi4py-fft's names of back ends -> ours.
BACKEND_NAMES = {"fftw": "mpi4py-fft", "numpy": "scipy", "mkl_fft": "mkl"}

#: A factor up to this one pads nothing, as in mpi4py-fft.
NO_PADDING = 1.0 + 1e-6


def requested_kinds(
    transforms: Any, kinds: Any, groups: Sequence[tuple[int, ...]], ndim: int
) -> dict[int, str]:
    """Local. Kind by axis, where one was asked for.

    ``kinds`` maps axes to kinds, or holds one for each axis of the flat list of axes; it may be
    one kind for all. ``transforms`` maps groups of axes to pairs of functions, as in mpi4py-fft.
    """
    if transforms and kinds:
        raise PatternError(f"transforms={transforms!r} and kinds={kinds!r} exclude each other")
    if transforms:
        return _kinds_of_functions(transforms, groups)
    if kinds is None:
        return {}
    flat = [axis for group in groups for axis in group]
    if isinstance(kinds, str):
        return dict.fromkeys(flat, kinds)
    if not isinstance(kinds, Mapping):
        if len(kinds) != len(flat):
            raise PatternError(f"kinds {kinds!r} has {len(kinds)} entries for {len(flat)} axes")
        return dict(zip(flat, kinds, strict=True))
    resolved = {}
    for axis, kind in kinds.items():
        place = index(axis) if index(axis) >= 0 else index(axis) + ndim
        if place not in flat:
            raise PatternError(f"kinds names axis {axis}, which is not among the axes {flat}")
        resolved[place] = kind
    return resolved


def _kinds_of_functions(transforms: Any, groups: Sequence[tuple[int, ...]]) -> dict[int, str]:
    resolved = {}
    try:
        pairs = {tuple(index(a) for a in axes): pair for axes, pair in transforms.items()}
    except (AttributeError, TypeError) as error:
        raise PatternError(f"transforms {transforms!r} does not map axes to functions") from error
    for axes, pair in pairs.items():
        if axes not in groups:  # mpi4py-fft looks groups up and ignores the others
            continue
        kind = _kind_of(pair[0])
        for axis in axes:
            resolved[axis] = kind
        if kind == "r2c":
            resolved.update(dict.fromkeys(axes[:-1], "c2c"))
    return resolved


def _kind_of(function: Any) -> str:
    """The kind of a function, of a partial one with its ``type``."""
    given = dict(getattr(function, "keywords", None) or {})
    name = getattr(getattr(function, "func", function), "__name__", repr(function))
    if name not in FUNCTIONS:
        known = ", ".join(FUNCTIONS)
        raise UnsupportedError(f"no transform like {name}; there are {known}")
    return FUNCTIONS[name].format(given.get("type", 2))


def padded_lengths(
    padding: Any, lengths: tuple[int, ...], groups: Sequence[tuple[int, ...]]
) -> tuple[int, ...]:
    """Local. The number of points on each axis of physical space.

    ``padding``: False, True for the 3/2 rule, one factor, or one for each axis of the array. Axes
    that are not transformed are not padded.
    """
    if padding is False or padding is None:
        return lengths
    given: Any = 1.5 if padding is True else padding
    factors: Sequence[Any] = [given] * len(lengths) if isinstance(given, Real) else given
    if len(factors) != len(lengths):
        raise PatternError(
            f"padding {padding!r} has {len(factors)} factors, the array {len(lengths)} axes"
        )
    physical = list(lengths)
    for axis in (axis for group in groups for axis in group):
        factor = float(factors[axis])
        if not np.isfinite(factor) or factor < 1.0:
            raise PatternError(f"padding {factor} of axis {axis} is less than 1")
        if factor > NO_PADDING:
            physical[axis] = int(np.floor(lengths[axis] * factor))
    return tuple(physical)


def backend_name(name: str) -> str:
    """Local. Our name of a kernel for mpi4py-fft's; what is not installed becomes "auto"."""
    if name not in BACKEND_NAMES:
        return name
    ours = BACKEND_NAMES[name]
    return ours if ours in installed() else "auto"
