"""What the two Python packages around FFTW have in common: plans for any address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.pencilfft.kernels.memory import address_of, untouched
from onesided.pencilfft.kernels.protocol import Layout, Run, Task, real_view

#: FFTW's vector code wants both arrays at multiples of this many bytes.
ALIGNMENT = 16
#: Seconds that FFTW may plan when it is one of many candidates.
BRIEF_SECONDS = 0.01

#: Makes an FFTW plan on two arrays, which it may overwrite: (source, target, aligned) -> call.
Planner = Callable[[NDArray[Any], NDArray[Any], bool], Run]

_COSINES = {1: "REDFT00", 2: "REDFT10", 3: "REDFT01", 4: "REDFT11"}
_SINES = {1: "RODFT00", 2: "RODFT10", 3: "RODFT01", 4: "RODFT11"}


def transform_name(task: Task) -> str:
    """Local. FFTW's name of the transform, without its prefix."""
    if not task.complex_kind:
        return (_SINES if task.sine else _COSINES)[task.type]
    forward = task.forward if task.kind == "c2c" else task.kind == "r2c"
    return "FORWARD" if forward else "BACKWARD"


def can_do(task: Task) -> bool:
    """Local. Whether FFTW has the transform; it does not make cosine matrices orthogonal."""
    return task.complex_kind or not task.orthogonal or task.type == 4


class FftwRun:
    """Local. The call for a task: an FFTW plan for aligned arrays, and one for others.

    The second one is made when the first array comes that is not aligned.
    """

    def __init__(self, task: Task, planner: Planner) -> None:
        self._task, self._planner = task, planner
        self._split = not task.complex_kind and task.source.char in "FD"
        self._plans: dict[bool, Run] = {True: self._make(True)}
        self._factor = np.dtype(task.target.char).type(task.factor) if task.scale else None

    def __call__(self, source: NDArray[Any], target: NDArray[Any]) -> None:
        aligned = not (address_of(source) | address_of(target)) % ALIGNMENT
        if aligned not in self._plans:
            self._plans[aligned] = self._make(aligned)
        if self._split:
            self._plans[aligned](real_view(source), real_view(target))
        else:
            self._plans[aligned](source, target)
        if self._factor is not None:
            np.multiply(target, self._factor, out=target)

    def _make(self, aligned: bool) -> Run:
        """A plan made on memory of its own, at an address with just that alignment."""
        source = self._trial(self._task.source, aligned)
        target = source if self._task.in_place else self._trial(self._task.target, aligned)
        return self._planner(source, target, aligned)

    def _trial(self, layout: Layout, aligned: bool) -> NDArray[Any]:
        size = np.dtype(layout.char.lower()).itemsize
        array = untouched(layout, ALIGNMENT if aligned else size)
        return real_view(array) if self._split else array
