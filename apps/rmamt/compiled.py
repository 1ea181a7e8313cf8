"""The same loop in C: a small library for this process, built where a compiler is present.

The source comes as ``data/rma_loop.c``. It is built with the compiler of the MPI that this process
has loaded, and used only if it calls that very library.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.fftw_mpi import compilers
from onesided.apps.foreign import ForeignError, finished
from onesided.apps.rmamt.gang import Work
from onesided.apps.rmamt.layout import Bytes

SOURCE = Path(__file__).parents[1] / "data" / "rma_loop.c"
FLAGS = ("-O2", "-shared", "-fPIC")


class Compiled:
    """The library of a file. :class:`ForeignError` where it cannot be loaded or is of another MPI.

    Local, as its methods are.
    """

    def __init__(self, path: Path) -> None:
        try:
            library = ctypes.CDLL(str(path))
            length = int(library.rma_library_length())
            text = ctypes.create_string_buffer(length)
            library.rma_library(text)
        except (OSError, AttributeError) as error:
            raise ForeignError(f"the loop in C cannot be loaded: {error}") from error
        theirs, ours = text.value.decode(errors="replace"), MPI.Get_library_version()
        if theirs.rstrip("\0\n ") != ours.rstrip("\0\n "):
            raise ForeignError(
                f"the loop in C calls another MPI: {_first(theirs)}, this is {_first(ours)}"
            )
        self._call = library.rma_loop
        self._call.restype = ctypes.c_int
        self._call.argtypes = [
            ctypes.c_uint64,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_int,
        ]

    def loop(
        self,
        win: MPI.Win,
        memory: Bytes,
        places: NDArray[np.int64],
        ranks: NDArray[np.int32],
        size: int,
        *,
        getting: bool,
        flush: bool,
    ) -> Work:
        """Local. One call for all messages; Python's lock is left for as long as it takes."""
        call = self._call
        arguments = (
            ctypes.c_uint64(MPI._handleof(win)),
            ctypes.c_int(getting),
            ctypes.c_int(flush),
            ctypes.c_void_p(memory.ctypes.data),
            ctypes.c_void_p(places.ctypes.data),
            ctypes.c_void_p(ranks.ctypes.data),
            ctypes.c_int(size),
            ctypes.c_int(len(places)),
        )

        def transfer(kept: object = (memory, places, ranks)) -> None:
            code = call(*arguments)
            if code != MPI.SUCCESS:
                raise MPI.Exception(code)

        return transfer


def build(path: Path) -> None:
    """Local. Write the library; :class:`ForeignError` tells what every compiler lacked."""
    failures = []
    for compiler in _compilers():
        try:
            done = finished([str(compiler), *FLAGS, str(SOURCE), "-o", str(path)])
            if done.returncode == 0:
                Compiled(path)
                return
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            failures.append(f"{compiler.name}: {lines[0] if lines else 'no reason given'}")
        except ForeignError as error:
            failures.append(str(error))
    raise ForeignError("; ".join(failures) or "no mpicc on PATH, nor beside this Python")


def _compilers() -> Iterator[Path]:
    """That beside this Python first: it belongs to the MPI of a package."""
    own = Path(sys.executable).parent / "mpicc"
    if os.access(own, os.X_OK):
        yield own
    for compiler, _ in compilers():
        yield compiler


def _first(text: str) -> str:
    return " ".join(text.split("\n", 1)[0].split())
