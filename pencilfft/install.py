"""Put the transposes of an unmodified mpi4py-fft or shenfun program on persistent requests."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType, TracebackType
from typing import Any

from onesided.collectives.errors import UnsupportedError
from onesided.collectives.registry import find
from onesided.pencilfft.redistribution import METHOD, Transfer

#: Where mpi4py-fft's Transfer was, and under which name.
_rebound: list[tuple[ModuleType, str]] = []
_original: list[Any] = []


class Installation:
    """Local. What :func:`install` did; ``with`` undoes it at the end of the block."""

    def __enter__(self) -> Installation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        uninstall()


def install(method: str = METHOD, info: Mapping[str, str] | None = None) -> Installation:
    """Local. Let :class:`Transfer` do the redistributions of mpi4py-fft and of what builds on it.

    Rebinds ``mpi4py_fft.pencil.Transfer``, and the name in every loaded module that has imported
    it from there. Plans made from now on use it; call it on every rank, before they are made. A
    second call changes ``method`` and ``info``, which are those of
    :func:`~onesided.collectives.Alltoallw_init`.

    Raises UnsupportedError where mpi4py-fft is not installed, MethodError for an unknown method.
    """
    find(method)
    try:
        pencil = import_module("mpi4py_fft.pencil")
    except ImportError as error:
        raise UnsupportedError(f"mpi4py-fft cannot be imported: {error}") from error
    uninstall()
    original = vars(pencil)["Transfer"]
    replacement = _bound(method, dict(info or {}))
    _original.append(original)
    for module in list(sys.modules.values()):
        names = vars(module).items() if isinstance(module, ModuleType) else ()
        for name in [name for name, value in names if value is original]:
            _rebound.append((module, name))
            setattr(module, name, replacement)
    return Installation()


def _bound(method: str, info: Mapping[str, str]) -> type[Transfer]:
    """A Transfer that takes mpi4py-fft's arguments only."""

    class InstalledTransfer(Transfer):
        __doc__ = Transfer.__doc__

        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **{"method": method, "info": info} | named)

    return InstalledTransfer


def uninstall() -> None:
    """Local. Give mpi4py-fft its own Transfer back; without :func:`install` nothing happens.

    Plans that were made meanwhile keep working.
    """
    while _rebound:
        module, name = _rebound.pop()
        setattr(module, name, _original[0])
    _original.clear()
