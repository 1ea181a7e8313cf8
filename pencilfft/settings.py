"""The arguments of a plan, checked. Pure: what a rank can find out without the others.

mpi4py-fft's forms are understood beside our own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from operator import index
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from onesided.collectives.errors import PatternError, UnsupportedError
from onesided.pencilfft.kernels.protocol import REAL_KINDS
from onesided.pencilfft.kernels.selection import BRIEF, EFFORTS, ESTIMATE, MEASURE
from onesided.pencilfft.stages import AxisTransform, Call, inverse_of, resolve_kinds

#: Normalization -> powers of 1/sqrt(N) by which forward and backward scale (scipy.fft's meaning).
NORMS = {"forward": (2, 0), "ortho": (1, 1), "backward": (0, 2)}

#: mpi4py-fft's words for how long FFTW may plan -> ours.
PLANNER_EFFORTS = {
    "FFTW_ESTIMATE": ESTIMATE,
    "FFTW_MEASURE": BRIEF,
    "FFTW_PATIENT": MEASURE,
    "FFTW_EXHAUSTIVE": MEASURE,
}

#: mpi4py-fft's words for what FFTW may do to mpi4py-fft's own copy of an input: ours is untouched.
INPUT_FLAGS = ("FFTW_DESTROY_INPUT", "FFTW_PRESERVE_INPUT")

#: Memory orders of the arrays that a plan makes: C order, or what suits its last stage.
C_ORDER, PLAN_ORDER = ORDERS = ("C", "plan")

#: Of backend, method and grid: to be chosen.
AUTO = "auto"

#: A function of mpi4py-fft, pyfftw or scipy -> what it computes; {} takes the type.
FUNCTIONS = {
    "fft": "c2c", "ifft": "c2c inverse", "rfft": "r2c", "irfft": "r2c inverse",
    "ihfft": "r2c", "hfft": "r2c inverse",
    "dct": "dct{}", "idct": "dct{} inverse", "dst": "dst{}", "idst": "dst{} inverse",
}  # fmt: skip

#: A factor up to this one pads nothing, as in mpi4py-fft.
NO_PADDING = 1.0 + 1e-6


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
    order: str
    threads: int
    overwrite_input: bool

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
        order: str,
        threads: Any,
        overwrite_input: Any,
    ) -> Settings:
        """Local. Check the arguments of a plan."""
        padding, overwrite_input = (
            bool(each) if isinstance(each, np.bool_) else each
            for each in (padding, overwrite_input)
        )
        lengths = _lengths("shape", shape)
        kind = np.dtype(dtype)
        if kind.char not in "fdgFDG" or not kind.isnative:
            raise PatternError(
                f"dtype {kind} is not supported; float32, float64, longdouble and their complex "
                "ones are"
            )
        chosen = "forward" if norm is None else norm
        if chosen not in NORMS:
            raise PatternError(f"norm {norm!r} is none of {', '.join(NORMS)}")
        if effort not in EFFORTS:
            raise PatternError(f"effort {effort!r} is none of {', '.join(EFFORTS)}")
        if order not in ORDERS:
            raise PatternError(f"order {order!r} is none of {', '.join(ORDERS)}")
        if not isinstance(threads, int | np.integer) or threads < 1:
            raise PatternError(f"threads is {threads!r}; it is the number of threads of a kernel")
        if not isinstance(overwrite_input, bool) and overwrite_input not in INPUT_FLAGS:
            raise PatternError(
                f"overwrite_input is {overwrite_input!r}; it is a bool, or FFTW's flag: "
                f"{', '.join(INPUT_FLAGS)}"
            )
        groups = _groups(axes, len(lengths))
        sequence = tuple(axis for group in reversed(groups) for axis in reversed(group))
        requested = _requested_calls(transforms, kinds, groups, len(lengths))
        resolved = resolve_kinds(sequence, requested, kind)
        physical = _padded_lengths(padding, lengths, groups)
        steps = tuple(
            AxisTransform(a, *resolved[a], length=lengths[a], physical=physical[a])
            for a in sequence
        )
        for step in steps:
            if step.kind == "dct1" and step.length < 2:
                raise PatternError(f"dct1 along axis {step.axis} needs 2 modes, there is 1")
        if transposed_out is None:
            transposed_out = len(lengths) > 1
        extents = _lengths("batch", batch) if np.size(batch) else ()
        out = bool(transposed_out)
        return cls(
            physical, groups, steps, kind, backend, chosen, extents, out, effort, order,
            int(threads), overwrite_input is True,
        )  # fmt: skip

    @property
    def sequence(self) -> tuple[int, ...]:
        """The axes in the order of a forward transform."""
        return tuple(step.axis for step in self.transforms)

    @property
    def real_axis(self) -> int | None:
        """The axis, batch axes counted, of lines that become half spectra; None where none do."""
        axes = [step.axis for step in self.transforms if step.kind == "r2c"]
        return len(self.batch) + axes[0] if axes else None

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
        return tuple(group for group in groups if group)

    def grouped(self, axes: Sequence[tuple[int, ...]]) -> tuple[tuple[AxisTransform, ...], ...]:
        """Local. The transforms of groups of axes, both in the order of a forward transform."""
        steps = {step.axis: step for step in self.transforms}
        return tuple(tuple(steps[axis] for axis in reversed(group)) for group in reversed(axes))

    def describe(self) -> str:
        """Local. The call in words, the same on all ranks if the arguments are."""
        kinds = ", ".join(
            f"{step.axis}: {step.words} {step.length}/{step.physical}" for step in self.transforms
        )
        overwrites = ", overwrite_input=True" if self.overwrite_input else ""
        return (
            f"PFFT(shape={self.shape}, batch={self.batch}, axes={self.axes}, "
            f"dtype={self.dtype.name}, transforms=({kinds}), norm={self.norm}, "
            f"backend={self.backend}, effort={self.effort}, order={self.order}, "
            f"threads={self.threads}, transposed_out={self.transposed_out}{overwrites})"
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


def _requested_calls(
    transforms: Any, kinds: Any, groups: Sequence[tuple[int, ...]], ndim: int
) -> dict[int, tuple[Call, Call]]:
    """What is computed along an axis in both directions, where that was asked for.

    ``kinds`` maps axes to kinds, or holds one for each axis of the flat list of axes; it may be
    one kind for all. ``transforms`` maps groups of axes to pairs of functions, as in mpi4py-fft.
    """
    if transforms and kinds:
        raise PatternError(f"transforms={transforms!r} and kinds={kinds!r} exclude each other")
    if transforms:
        return _calls_of_functions(transforms, groups)
    flat = [axis for group in groups for axis in group]
    given: dict[int, str] = {}
    if isinstance(kinds, str):
        given = dict.fromkeys(flat, kinds)
    elif isinstance(kinds, Mapping):
        for axis, kind in kinds.items():
            place = index(axis) if index(axis) >= 0 else index(axis) + ndim
            if place not in flat:
                raise PatternError(f"kinds names axis {axis}, which is not among the axes {flat}")
            given[place] = kind
    elif kinds is not None:
        if len(kinds) != len(flat):
            raise PatternError(f"kinds {kinds!r} has {len(kinds)} entries for {len(flat)} axes")
        given = dict(zip(flat, kinds, strict=True))
    return {axis: ((kind, True), inverse_of((kind, True))) for axis, kind in given.items()}


def _calls_of_functions(
    transforms: Any, groups: Sequence[tuple[int, ...]]
) -> dict[int, tuple[Call, Call]]:
    resolved = {}
    try:
        pairs = {tuple(index(a) for a in axes): pair for axes, pair in transforms.items()}
    except (AttributeError, TypeError) as error:
        raise PatternError(f"transforms {transforms!r} does not map axes to functions") from error
    for axes, pair in pairs.items():
        if axes not in groups:  # mpi4py-fft looks groups up and ignores the others
            continue
        try:
            forward, backward = pair
        except (TypeError, ValueError) as error:
            raise PatternError(f"transforms of {axes} is {pair!r}, not two functions") from error
        calls = _call_of(forward), _call_of(backward)
        if calls[0][0] == "c2r":
            raise UnsupportedError(
                f"a forward transform from complex to real data ({forward!r}) would change lengths "
                "in a way that nothing undoes; mpi4py-fft cannot make such a plan either"
            )
        if AxisTransform.family(calls[0][0]) != AxisTransform.family(calls[1][0]):
            raise UnsupportedError(f"{backward!r} fits nothing that {forward!r} makes")
        if calls[0][0] in REAL_KINDS and not calls[0][1]:  # named by what is computed
            kinds = [kind[:3] + {"2": "3", "3": "2"}.get(kind[3], kind[3]) for kind, _ in calls]
            calls = (kinds[0], True), (kinds[1], not calls[1][1])
        for axis in axes:
            resolved[axis] = calls
        if calls[0][0] == "r2c":
            signs: tuple[Call, Call] = ("c2c", True), ("c2c", False)
            resolved.update(dict.fromkeys(axes[:-1], signs))
    return resolved


def _call_of(function: Any) -> Call:
    """What a function computes, or a partial one with its ``type``."""
    given = dict(getattr(function, "keywords", None) or {})
    plain = getattr(function, "func", function)
    name = getattr(plain, "__name__", repr(plain))
    short = name.removesuffix("n")
    known = short in FUNCTIONS
    if short in ("hfft", "ihfft") and not str(plain.__module__).startswith("mpi4py_fft"):
        known = False  # NumPy's and SciPy's conjugate; mpi4py-fft's are those of FFTW
    if not known:
        names = ", ".join(f"{short}n" for short in FUNCTIONS)
        raise UnsupportedError(f"no transform like {name}; there are {names}")
    kind, _, inverse = FUNCTIONS[short].format(given.get("type", 2)).partition(" ")
    return inverse_of((kind, True)) if inverse else (kind, True)


def _padded_lengths(
    padding: Any, lengths: tuple[int, ...], groups: Sequence[tuple[int, ...]]
) -> tuple[int, ...]:
    """The number of points on each axis of physical space.

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
