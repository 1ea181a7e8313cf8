"""Our transposes, or our classes, under mpi4py-fft's names, for programs that are left as they are.

:func:`install` gives mpi4py-fft our :class:`Transfer`: transforms, arrays and files stay its own.
:func:`replace` gives a program our classes wherever it asks for mpi4py-fft's.
``python -m onesided.pencilfft program.py`` does the second and runs the program.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from inspect import signature
from types import ModuleType
from typing import Any

from mpi4py import MPI

from onesided.collectives.errors import UnsupportedError
from onesided.collectives.registry import find
from onesided.pencilfft import distarray, pencil, plan
from onesided.pencilfft.io import hdf5, netcdf, xdmf
from onesided.pencilfft.redistribution import METHOD, Transfer

#: What was rebound: the module, the name, and what mpi4py-fft had there.
_rebound: list[tuple[ModuleType, str, Any]] = []

#: Modules of mpi4py-fft whose public names programs import.
_MODULES = ("mpi4py_fft", "mpi4py_fft.mpifft", "mpi4py_fft.pencil", "mpi4py_fft.distarray",
            "mpi4py_fft.io")  # fmt: skip


#: Arguments of a plan of which a program gives one at most.
_EXCLUSIVE = ({"effort", "planner_effort"}, {"grid", "slab"}, {"transforms", "kinds"})


class Installation:
    """Local. What :func:`install` or :func:`replace` did; ``with`` undoes it at its end."""

    def __enter__(self) -> Installation:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        uninstall()


def install(method: str = METHOD, info: Mapping[str, str] | None = None) -> Installation:
    """Local. Let :class:`Transfer` do the redistributions of mpi4py-fft and of what builds on it.

    Rebinds ``mpi4py_fft.pencil.Transfer``, and the name in every loaded module that has imported
    it from there. Plans made from now on use it; call it on every rank, before they are made. A
    second call, of this or of :func:`replace`, takes the place of the first; modules that were
    imported in between keep that.

    Parameters
    ----------
    method, info
        Those of :func:`~onesided.collectives.Alltoallw_init`.

    Returns
    -------
    Installation
        ``with`` gives mpi4py-fft its own back at the end of the block, as :func:`uninstall` does.

    Raises
    ------
    UnsupportedError
        mpi4py-fft is not installed.
    MethodError
        No method has this name.

    Examples
    --------
    >>> with install():  # doctest: +SKIP
    ...     import program_of_mpi4py_fft
    """
    find(method)
    _rebind({"Transfer": _preset(Transfer, method=method, info=dict(info or {}))})
    return Installation()


def replace(
    method: str = "auto", info: Mapping[str, str] | None = None, **settings: Any
) -> Installation:
    """Local. Put our plans, arrays, pencils and files under mpi4py-fft's names.

    Rebinds PFFT, newDistArray, DistArray, Pencil, Subcomm, Transfer, HDF5File, NCFile and
    generate_xdmf in mpi4py-fft and in every loaded module that has imported them from there: for
    programs that are imported or run afterwards. ``Transform`` stays mpi4py-fft's, whose
    constructor programs call. A second call, of this or of :func:`install`, takes the place of the
    first; modules that were imported in between keep that. It returns and raises what
    :func:`install` does.

    Parameters
    ----------
    method, info
        Those of :class:`PFFT` and :class:`Transfer`.
    settings
        Further arguments of every plan, for instance ``effort="measure"``, where the program gives
        neither them nor what excludes them, such as ``planner_effort``.

    Examples
    --------
    >>> from onesided import pencilfft
    >>> with pencilfft.replace():                                # doctest: +SKIP
    ...     from mpi4py_fft import PFFT, newDistArray            # these are ours
    """
    find(method)
    moved: dict[str, Any] = {"method": method, "info": dict(info or {})}
    transfer = _preset(Transfer, **moved)
    _rebind({
        "PFFT": _preset(plan.PFFT, **moved, **settings),
        "Transfer": transfer,
        "newDistArray": distarray.newDistArray,
        "DistArray": distarray.DistArray,
        "Pencil": pencil.Pencil,
        "Subcomm": pencil.Subcomm,
        "HDF5File": hdf5.HDF5File,
        "NCFile": netcdf.NCFile,
        "generate_xdmf": xdmf.generate_xdmf,
    })  # fmt: skip
    _set(pencil, "Transfer", transfer)  # Pencil.transfer makes them
    return Installation()


def _rebind(chosen: Mapping[str, Any]) -> None:
    """Local. Give these names of mpi4py-fft another meaning, everywhere."""
    try:
        modules = [import_module(name) for name in _MODULES]
    except ImportError as error:
        raise UnsupportedError(f"mpi4py-fft cannot be imported: {error}") from error
    uninstall()
    theirs = {}
    for module in modules:
        for name in chosen.keys() & vars(module).keys():
            theirs[id(vars(module)[name])] = (vars(module)[name], chosen[name])
    for module in list(sys.modules.values()):
        names = list(vars(module).items()) if isinstance(module, ModuleType) else []
        for name, value in names:
            if id(value) in theirs:
                _set(module, name, theirs[id(value)][1])


def _set(module: ModuleType, name: str, value: Any) -> None:
    _rebound.append((module, name, vars(module)[name]))
    setattr(module, name, value)


def _preset(kind: type, **given: Any) -> type:
    """A class of ours with arguments that a program of others cannot know; they give way to its
    own, and to those that exclude them."""
    names = list(signature(kind).parameters)

    def __init__(self: Any, *arguments: Any, **named: Any) -> None:
        theirs = dict(zip(names, arguments, strict=False)) | named
        said = {name for name, value in theirs.items() if value is not None and value is not False}
        if not isinstance(theirs.get("comm"), MPI.Comm):
            said |= {"grid"}
        taken = set(theirs).union(*(group for group in _EXCLUSIVE if group & said))
        kept = {name: value for name, value in given.items() if name not in taken}
        kind.__init__(self, *arguments, **kept, **named)  # type: ignore[misc]

    return type(kind.__name__, (kind,), {"__doc__": kind.__doc__, "__init__": __init__})


def uninstall() -> None:
    """Local. Give mpi4py-fft its own names back; without :func:`install` nothing happens.

    Plans that were made meanwhile keep working.

    Examples
    --------
    >>> uninstall()  # nothing was installed
    """
    while _rebound:
        module, name, original = _rebound.pop()
        setattr(module, name, original)
