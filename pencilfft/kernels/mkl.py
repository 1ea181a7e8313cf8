"""Kernel: Intel's MKL, from its Python package or the system, found and loaded once and called
through ctypes; no cosine or sine transforms.

No package finds it: the one of the name mkl has no Python module, mkl-service loads ``libmkl_rt``,
which must not be loaded (see :func:`load_library`), and threadpoolctl knows only what is loaded
already.
"""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.scripts import Kernel as CFunction
from onesided.collectives.steps import address
from onesided.pencilfft.kernels.protocol import Run, Task

#: Parts of MKL that are needed: computing, without threads, and the interface to it.
LAYERS = ("core", "sequential", "intel_lp64")

# Names and numbers of MKL's own header, mkl_dfti.h.
FORWARD_SCALE, BACKWARD_SCALE, NUMBER_OF_TRANSFORMS = 4, 5, 7
CONJUGATE_EVEN_STORAGE, PLACEMENT = 10, 11
INPUT_STRIDES, OUTPUT_STRIDES, INPUT_DISTANCE, OUTPUT_DISTANCE = 12, 13, 14, 15
THREAD_LIMIT = 27
COMPLEX, REAL, COMPLEX_COMPLEX, IN_PLACE, NOT_IN_PLACE = 32, 33, 39, 43, 44


@cache
def find_libraries() -> list[Path]:
    """Local. Files of :data:`LAYERS`; empty where MKL is not installed.

    They are looked for among the files of the Python package, in the environment's folder, and
    where the environment variable ``MKLROOT`` points.
    """
    folders = [Path(sys.prefix) / "lib"]
    try:
        found = [Path(str(file.locate())) for file in files("mkl") or () if _is_core(file.name)]
        folders = [path.resolve().parent for path in found] + folders
    except PackageNotFoundError:
        pass
    if os.environ.get("MKLROOT"):
        folders.append(Path(os.environ["MKLROOT"]) / "lib")
    for folder in folders:
        cores = sorted(path for path in folder.glob("libmkl_core.*") if _is_core(path.name))
        for core in reversed(cores):
            layers = [core.with_name(core.name.replace("core", layer)) for layer in LAYERS]
            if all(path.is_file() for path in layers):
                return layers
    return []


def _is_core(name: str) -> bool:
    return name.startswith("libmkl_core.") and not name.endswith(".a")


@cache
def load_library() -> ctypes.CDLL:
    """Local. The interface, with the types of its transforms told; raises :class:`ImportError`
    where MKL cannot be used.

    MKL brings functions of FFTW's names that do less than FFTW's own. Its run-time library
    ``libmkl_rt`` shows them to the whole process, and FFTW's users that are loaded later call
    them: so the layers are loaded one by one, and the one with these names for us alone.
    """
    layers = find_libraries()
    if not layers:
        raise ImportError("MKL is not installed")
    try:
        for path in layers[:-1]:
            ctypes.CDLL(str(path), mode=os.RTLD_LAZY | os.RTLD_GLOBAL)
        library = ctypes.CDLL(str(layers[-1]), mode=os.RTLD_LAZY | os.RTLD_LOCAL)
        for name in ("CreateDescriptor_d_1d", "CreateDescriptor_s_1d", "SetValue",
                     "CommitDescriptor", "FreeDescriptor"):  # fmt: skip
            getattr(library, f"Dfti{name}").restype = ctypes.c_long
        for compute in (library.DftiComputeForward, library.DftiComputeBackward):
            compute.restype, compute.argtypes = ctypes.c_long, [ctypes.c_void_p] * 3
    except (OSError, AttributeError) as error:
        raise ImportError(f"MKL in {layers[0].parent} cannot be used: {error}") from error
    return library


class Descriptor:
    """Local. One of MKL's transform descriptors; freed with the object.

    The constructors by precision and dimension choose twice as fast code for strided lines as
    ``DftiCreateDescriptor`` does.
    """

    def __init__(self, single: bool, domain: int, length: int) -> None:
        library = load_library()
        create = library.DftiCreateDescriptor_s_1d if single else library.DftiCreateDescriptor_d_1d
        self.handle = ctypes.c_void_p()
        self.usable = not create(ctypes.byref(self.handle), domain, ctypes.c_long(length))
        if self.usable and self.handle.value is not None:
            weakref.finalize(self, _free, library, self.handle.value).atexit = False
        self._set_value = library.DftiSetValue
        self._commit = library.DftiCommitDescriptor

    def set(self, parameter: int, value: int | float | Sequence[int]) -> None:
        """Local. Set one parameter; a refusal makes the descriptor unusable."""
        given: Any
        if isinstance(value, float):
            given = ctypes.c_double(value)
        elif isinstance(value, int):
            given = ctypes.c_long(value)
        else:
            given = (ctypes.c_long * len(value))(*value)
        self.usable = self.usable and not self._set_value(self.handle, parameter, given)

    def commit(self) -> bool:
        """Local. Make it ready; False where MKL cannot do such a transform."""
        self.usable = self.usable and not self._commit(self.handle)
        return self.usable


def _free(library: ctypes.CDLL, handle: int) -> None:
    library.DftiFreeDescriptor(ctypes.byref(ctypes.c_void_p(handle)))


#: A set of lines: how many, and how far apart they start in source and target.
Lines = tuple[int, int, int]


class MklKernel:
    """Local. See :class:`~.protocol.Kernel`; one thread, whatever MKL is told elsewhere."""

    name = "mkl"

    def __init__(self) -> None:
        """Local. ImportError where MKL is not usable."""
        load_library()

    def plan(self, task: Task, effort: str) -> Run | None:
        sizes = [np.dtype(layout.char).itemsize for layout in (task.source, task.target)]
        strides = task.source.strides[task.axis], task.target.strides[task.axis]
        if not task.complex_kind or task.source.char in "gG" or not task.whole_steps:
            return None
        (count, *distances), loops = _largest_apart(_merged_lines(task))
        descriptor = Descriptor(
            task.source.char in "fF", COMPLEX if task.kind == "c2c" else REAL, task.length
        )
        descriptor.set(PLACEMENT, IN_PLACE if task.in_place else NOT_IN_PLACE)
        if task.kind != "c2c":
            descriptor.set(CONJUGATE_EVEN_STORAGE, COMPLEX_COMPLEX)
        descriptor.set(INPUT_STRIDES, (0, strides[0] // sizes[0]))
        descriptor.set(OUTPUT_STRIDES, (0, strides[1] // sizes[1]))
        descriptor.set(NUMBER_OF_TRANSFORMS, count)
        descriptor.set(INPUT_DISTANCE, distances[0] // sizes[0])
        descriptor.set(OUTPUT_DISTANCE, distances[1] // sizes[1])
        descriptor.set(THREAD_LIMIT, 1)
        forward = task.kind == "r2c" or (task.kind == "c2c" and task.forward)
        descriptor.set(FORWARD_SCALE if forward else BACKWARD_SCALE, float(task.factor))
        return MklRun(descriptor, forward, loops) if descriptor.commit() else None


class MklRun:
    """Local. The call on all sets of lines, whose offsets in bytes are ``loops``."""

    def __init__(
        self, descriptor: Descriptor, forward: bool, loops: list[tuple[int, int]]
    ) -> None:
        library = load_library()
        self._compute = library.DftiComputeForward if forward else library.DftiComputeBackward
        self._descriptor, self._loops = descriptor, loops

    def __call__(self, source: NDArray[Any], target: NDArray[Any]) -> None:
        handle, compute = self._descriptor.handle, self._compute
        here, there = address(source), address(target)
        for source_offset, target_offset in self._loops:
            status = compute(handle, here + source_offset, there + target_offset)
            if status:
                raise RuntimeError(f"MKL failed with status {status} on shape {source.shape}")

    def lowered(self, source: NDArray[Any], target: NDArray[Any]) -> list[CFunction]:
        """Local. The same for the compiled core."""
        function = ctypes.cast(self._compute, ctypes.c_void_p).value or 0
        handle = self._descriptor.handle.value or 0
        return [CFunction(function, handle, True, *offsets) for offsets in self._loops]


def _merged_lines(task: Task) -> list[Lines]:
    """The other axes, those that follow each other evenly in both arrays merged into one."""
    others = [
        (n, s, t)
        for axis, (n, s, t) in enumerate(
            zip(task.source.shape, task.source.strides, task.target.strides, strict=True)
        )
        if axis != task.axis and n > 1
    ]
    merged: list[Lines] = []
    for n, s, t in sorted(others, key=lambda line: (abs(line[2]), abs(line[1]))):
        if merged and (s, t) == tuple(merged[-1][0] * step for step in merged[-1][1:]):
            merged[-1] = (merged[-1][0] * n, *merged[-1][1:])
        else:
            merged.append((n, s, t))
    return merged


def _largest_apart(lines: list[Lines]) -> tuple[Lines, list[tuple[int, int]]]:
    """The largest set of lines, and the offsets in bytes at which it is repeated."""
    if not lines:
        return (1, 0, 0), [(0, 0)]
    largest = max(lines, key=lambda line: (line[0], -abs(line[2])))
    rest = sorted((line for line in lines if line is not largest), key=lambda line: -abs(line[2]))
    offsets = [
        (
            sum(i * line[1] for i, line in zip(index, rest, strict=True)),
            sum(i * line[2] for i, line in zip(index, rest, strict=True)),
        )
        for index in product(*(range(line[0]) for line in rest))
    ]
    return largest, offsets
