"""Kernels: FFTW, the library that pyfftw and mpi4py-fft bring with them, for any strides.

Both packages plan through their own classes, which keep the plans to themselves. FFTW's functions
are found in their extension modules, so plans are made here, and compiled scripts call them.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.scripts import Kernel as CFunction
from onesided.collectives.scripts import Scaling
from onesided.collectives.steps import address
from onesided.pencilfft.kernels.protocol import Layout, Run, Task

#: FFTW's vector code wants both arrays at multiples of this many bytes.
ALIGNMENT = 16
#: Seconds that FFTW may plan when it is one of many candidates.
BRIEF_SECONDS = 0.01

# numbers of fftw3.h
MEASURE, UNALIGNED, PRESERVE_INPUT, ESTIMATE = 0, 1 << 1, 1 << 4, 1 << 6
_PREFIXES = ("fftw", "fftwf", "fftwl")
_COSINES, _SINES = {1: 3, 2: 5, 3: 4, 4: 6}, {1: 7, 2: 9, 3: 8, 4: 10}


class _Dimension(ctypes.Structure):
    """fftw_iodim64: extent, and strides in elements."""

    _fields_ = [(name, ctypes.c_ssize_t) for name in ("n", "source", "target")]


class _Precision:
    """FFTW's functions for one type of real numbers."""

    def __init__(self, file: str, prefix: str) -> None:
        library = ctypes.PyDLL(file)  # planning is not thread-safe: with the interpreter lock
        self._functions = {
            name: getattr(library, f"{prefix}_{name}")
            for name in (
                "plan_guru64_dft", "plan_guru64_dft_r2c", "plan_guru64_dft_c2r", "plan_guru64_r2r",
                "destroy_plan", "set_timelimit",
            )
        }  # fmt: skip
        for name, function in self._functions.items():
            function.restype = ctypes.c_void_p if name.startswith("plan") else None
        self._functions["set_timelimit"].argtypes = [ctypes.c_double]
        self._functions["destroy_plan"].argtypes = [ctypes.c_void_p]
        running = ctypes.CDLL(file)
        self._execute = {
            name: running[f"{prefix}_execute_{name}"]
            for name in ("dft", "dft_r2c", "dft_c2r", "r2r")
        }
        for function in self._execute.values():
            function.restype, function.argtypes = None, [ctypes.c_void_p] * 3
        self._threads = self._threads_before = None
        if hasattr(library, f"{prefix}_plan_with_nthreads"):
            library[f"{prefix}_init_threads"]()
            self._threads = library[f"{prefix}_plan_with_nthreads"]
            self._threads_before = getattr(library, f"{prefix}_planner_nthreads", lambda: 1)

    def plan(
        self, task: Task, effort: str, source: NDArray[Any], target: NDArray[Any], flags: int
    ) -> tuple[Any, int] | None:
        """Local. The function that executes a plan, and the plan; None where there is none.

        The arrays may be overwritten.
        """
        lines, others = _dimensions(task)
        call = self._functions
        threads = None
        if self._threads is not None and self._threads_before is not None:
            threads = self._threads_before()
            self._threads(task.threads)
        name = {"c2c": "dft", "r2c": "dft_r2c", "c2r": "dft_c2r"}.get(task.kind, "r2r")
        words: tuple[Any, ...] = ()
        if task.kind == "c2c":
            words = (ctypes.c_int(-1 if task.forward else 1),)
        elif name == "r2r":
            words = ((ctypes.c_int * 1)((_SINES if task.sine else _COSINES)[task.type]),)
        flags |= ESTIMATE if effort == "estimate" else MEASURE
        if effort == "brief":
            call["set_timelimit"](BRIEF_SECONDS)
        made = call[f"plan_guru64_{name}"](
            ctypes.c_int(len(lines)), lines, ctypes.c_int(len(others)), others,
            ctypes.c_void_p(address(source)), ctypes.c_void_p(address(target)), *words,
            ctypes.c_uint(flags),
        )  # fmt: skip
        if effort == "brief":
            call["set_timelimit"](-1.0)  # nobody can ask FFTW for the limit that a program has set
        if threads is not None and self._threads is not None:
            self._threads(threads)
        return None if made is None else (self._execute[name], made)

    def destroy(self, plan: int) -> None:
        """Local. Of a plan that nobody uses any more."""
        self._functions["destroy_plan"](plan)


def _dimensions(task: Task) -> tuple[Any, Any]:
    """The axis of the transform, and all others, complex data as two real numbers for r2r."""
    sides = task.source, task.target
    sizes = [np.dtype(side.char).itemsize for side in sides]
    split = not task.complex_kind and task.source.char in "FDG"
    if split:
        sizes = [size // 2 for size in sizes]
    strides = [
        [step // size for step in side.strides] for side, size in zip(sides, sizes, strict=True)
    ]
    others = list(zip(task.source.shape, *strides, strict=True))
    _, *steps = others.pop(task.axis)
    parts = [(2, 1, 1)] if split else []
    return _array([(task.length, *steps)]), _array([*parts, *others])


def _array(entries: Sequence[tuple[int, ...]]) -> Any:
    return (_Dimension * len(entries))(*(_Dimension(*entry) for entry in entries))


class FftwKernel:
    """Local. See :class:`~.protocol.Kernel`. ``modules``: the extension modules with FFTW's
    functions, by prefix."""

    def __init__(self, name: str, modules: dict[str, str]) -> None:
        self.name = name
        self._precisions: dict[str, _Precision] = {}
        for prefix, module in modules.items():
            try:
                self._precisions[prefix] = _Precision(str(import_module(module).__file__), prefix)
            except (ImportError, OSError, AttributeError):  # not in this build
                continue
        if "fftw" not in self._precisions:
            raise ImportError(f"FFTW's functions are not found in {name}")

    def plan(self, task: Task, effort: str) -> Run | None:
        prefix = {"f": "fftwf", "d": "fftw", "g": "fftwl"}[task.source.char.lower()]
        precision = self._precisions.get(prefix)
        # FFTW does not make cosine matrices orthogonal
        able = task.complex_kind or not task.orthogonal or task.type == 4
        if precision is None or not task.whole_steps or not able or task.empty:
            return None
        run = FftwRun(task, effort, precision)
        return run if run.planned(True) is not None else None


class FftwRun:
    """Local. The call for a task: an FFTW plan for aligned arrays, and one for others.

    The second one is made when the first array comes that is not aligned.
    """

    def __init__(self, task: Task, effort: str, precision: _Precision) -> None:
        self._task, self._effort, self._precision = task, effort, precision
        self._plans: dict[bool, tuple[Any, int] | None] = {}
        self._factor: Any = task.factor if task.scale else None

    def __call__(self, source: NDArray[Any], target: NDArray[Any]) -> None:
        execute, plan = self._plan_for(source, target)
        execute(plan, address(source), address(target))
        if self._factor is not None:
            np.multiply(target, self._factor, out=target)

    def lowered(self, source: NDArray[Any], target: NDArray[Any]) -> list[CFunction | Scaling]:
        """Local. The same for the compiled core, at these addresses."""
        execute, plan = self._plan_for(source, target)
        function = ctypes.cast(execute, ctypes.c_void_p).value or 0
        steps: list[CFunction | Scaling] = [CFunction(function, plan, False)]
        if self._factor is not None:
            steps.append(Scaling(float(self._factor)))
        return steps

    def _plan_for(self, source: NDArray[Any], target: NDArray[Any]) -> tuple[Any, int]:
        found = self.planned(not (address(source) | address(target)) % ALIGNMENT)
        if found is None:
            raise RuntimeError(f"FFTW has no plan for {self._task}")
        return found

    def planned(self, aligned: bool) -> tuple[Any, int] | None:
        """Local. What executes the plan and the plan, made on memory of its own."""
        if aligned not in self._plans:
            task = self._task
            source = _trial(task.source, aligned)
            target = source if task.in_place else _trial(task.target, aligned)
            flags = PRESERVE_INPUT | (0 if aligned else UNALIGNED)
            made = self._precision.plan(task, self._effort, source, target, flags)
            self._plans[aligned] = made
            if made is not None:
                weakref.finalize(self, self._precision.destroy, made[1]).atexit = False
        return self._plans[aligned]


def _trial(layout: Layout, aligned: bool) -> NDArray[Any]:
    return layout.untouched(ALIGNMENT if aligned else np.dtype(layout.char.lower()).itemsize)


def pyfftw_kernel() -> FftwKernel:
    """Local. The FFTW that pyfftw brings."""
    return FftwKernel("pyfftw", dict.fromkeys(_PREFIXES, "pyfftw.pyfftw"))


def mpi4py_fft_kernel() -> FftwKernel:
    """Local. The FFTW that mpi4py-fft was built with."""
    return FftwKernel("mpi4py-fft", {name: f"mpi4py_fft.fftw.{name}_xfftn" for name in _PREFIXES})
