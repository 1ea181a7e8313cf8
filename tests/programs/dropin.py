"""Run a program written for mpi4py-fft on Onesided: dropin.py MODE METHOD FILE [FUNCTION ...].

MODE is "as it is", "install" (mpi4py-fft with our Transfer) or "replace" (our classes under
mpi4py-fft's names). The file runs as a program; with functions named, those are called instead,
and only their outcome counts. Settings of the environment:

ONESIDED_DROPIN_PATH     a folder with packages that are not installed
ONESIDED_DROPIN_HIDE     modules that shall not be found, separated by commas
ONESIDED_DROPIN_TYPES    precisions that FFTW shall seem to have, letters of "fdg"
"""

from __future__ import annotations

import inspect
import itertools
import os
import runpy
import sys
import tempfile
from importlib import import_module


def hide(names: str) -> None:
    for name in filter(None, names.split(",")):
        sys.modules[name] = None


def restrict(types: str) -> None:
    fftw = import_module("mpi4py_fft.fftw")
    find = fftw.get_fftw_lib
    fftw.get_fftw_lib = lambda char: find(char) if char.lower() in types else None


def call(path: str, names: list[str]) -> None:
    """Call functions of a test program, with all the parameters that pytest would give them."""
    program = runpy.run_path(path, run_name="dropin")
    for name in names:
        function = program[name]
        marks = [mark for mark in getattr(function, "pytestmark", ()) if mark.name == "parametrize"]
        choices = []
        for mark in reversed(marks):
            keys = [key.strip() for key in mark.args[0].split(",")]
            choices.append([(keys, value) for value in mark.args[1]])
        count = 0
        for choice in itertools.product(*choices):
            given = {}
            for keys, value in choice:
                given |= dict(zip(keys, value if len(keys) > 1 else [value], strict=True))
            inspect.signature(function).bind(**given)
            function(**given)
            count += 1
        print(f"{name}: {count} times", flush=True)


def main() -> None:
    mode, method, path, *functions = sys.argv[1:]
    if "ONESIDED_DROPIN_PATH" in os.environ:
        sys.path.append(os.environ["ONESIDED_DROPIN_PATH"])
    restrict(os.environ.get("ONESIDED_DROPIN_TYPES", "fdg" if mode != "replace" else "fd"))
    if mode == "install":
        from onesided.pencilfft.install import install

        install(method)
    elif mode == "replace":
        from onesided.pencilfft.install import replace

        replace(method, effort="estimate", wisdom=False)
    hide(os.environ.get("ONESIDED_DROPIN_HIDE", ""))  # from the program, not from us
    path = os.path.abspath(path)
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    with tempfile.TemporaryDirectory() as own:
        os.chdir(comm.bcast(own))  # all ranks write their files in one folder
        sys.argv = [path]
        sys.path.insert(0, os.path.dirname(path))
        if functions:
            call(path, functions)
        else:
            runpy.run_path(path, run_name="__main__")
        comm.Barrier()
        os.chdir(os.path.dirname(path))


main()
