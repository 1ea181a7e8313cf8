"""The kernels by name: the only place where one is chosen."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from onesided.apps.failures import CommandError
from onesided.apps.minimd.kernels.kernel import Kernel
from onesided.apps.minimd.problem import Problem

AUTO = "auto"
#: Where the class of a kernel is, and the module that it needs; the best one comes first.
_KERNELS = {
    "numba": ("compiled:Compiled", "numba"),
    "numpy": ("vectorised:Vectorised", "numpy"),
}


def kernels() -> list[str]:
    """Local. The names, the best first."""
    return list(_KERNELS)


def usable(name: str) -> str:
    """Local. The kernel that a name, or "auto", means here; :class:`CommandError` without one."""
    known = [each for each, (_, needs) in _KERNELS.items() if find_spec(needs) is not None]
    if name == AUTO:
        return known[0]
    if name not in _KERNELS:
        raise CommandError(
            f"no kernel {name!r}; the kernels are {', '.join(_KERNELS)}, or {AUTO}"
        )
    if name not in known:
        raise CommandError(f"the kernel {name} needs {_KERNELS[name][1]} (the extra md)")
    return name


def load(name: str, problem: Problem) -> Kernel:
    """Local. A kernel by a name that is usable."""
    module, _, kind = _KERNELS[name][0].partition(":")
    made: Kernel = getattr(import_module(f"onesided.apps.minimd.kernels.{module}"), kind)(problem)
    return made
