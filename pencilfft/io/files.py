"""One array into a file, or out of it; the name of the file tells its format."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from onesided.pencilfft.io.filebase import FileBase
from onesided.pencilfft.io.hdf5 import HDF5File
from onesided.pencilfft.io.netcdf import NCFile

FileName = str | os.PathLike[str] | FileBase


def write(
    array: Any,
    filename: FileName,
    name: str = "darray",
    step: int = 0,
    global_slice: Sequence[Any] | None = None,
    domain: Sequence[Any] | None = None,
    as_scalar: bool = False,
) -> None:
    """Collective. Write an array, or a global slice of it: :meth:`HDF5File.write` where the name
    ends with ".h5" or ".hdf5", else that of :class:`NCFile`, as in mpi4py-fft."""
    entry = array if global_slice is None else (array, global_slice)
    _file(filename, domain, "a").write(step, {name: [entry]}, as_scalar=as_scalar)


def read(array: Any, filename: FileName, name: str = "darray", step: int = 0) -> None:
    """Collective. Read into an array, as the file's ``read`` does."""
    _file(filename, None, "r").read(array, name, step)


def _file(filename: FileName, domain: Sequence[Any] | None, mode: str) -> Any:
    if isinstance(filename, FileBase):
        return filename
    kind = HDF5File if os.fspath(filename).endswith((".h5", ".hdf5")) else NCFile
    return kind(filename, domain, mode)
