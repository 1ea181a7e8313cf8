"""Which kernel does which task."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from onesided.collectives.errors import PatternError
from onesided.pencilfft.kernels.protocol import Run, Task
from onesided.pencilfft.kernels.registry import choose_backend, load_kernel


class Selection:
    """Local. The kernels of one plan: ``backend`` is a name or "auto", ``effort`` how to choose.

    Raises :class:`PatternError` for an unknown name, :class:`UnsupportedError` for a backend
    whose package is not installed.
    """

    def __init__(self, backend: str = "auto", effort: str = "measure", wisdom: Any = None) -> None:
        self._kernels: list[Any] = [load_kernel(choose_backend(backend)), load_kernel("scipy")]
        self._effort = effort
        self._runs: dict[Task, Run] = {}
        self.choices: dict[str, str] = {}
        self.name = self._kernels[0].name

    def run_for(self, task: Task) -> Run:
        """Local. The call for ``task``; the same one for equal tasks."""
        if task not in self._runs:
            self._runs[task] = self._choose(task)
        return self._runs[task]

    def _choose(self, task: Task) -> Run:
        if task.empty:
            return _nothing
        if task.kind == "dct1" and task.length < 2:
            raise PatternError(f"dct1 needs at least 2 points, axis {task.axis} has {task.length}")
        for kernel in self._kernels:
            run = kernel.plan(task, self._effort)
            if run is not None:
                self.choices[str(task)] = kernel.name
                return run
        raise PatternError(f"no kernel for {task.kind!r}")


def _nothing(source: NDArray[Any], target: NDArray[Any]) -> None:
    """The transform of an empty array."""
