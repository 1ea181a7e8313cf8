"""NetCDF files of distributed arrays, by time step, with mpi4py-fft's interface and layout.

A variable is a field, or a global slice of one; its axes are ``time``, ``i``, ``j``, ``k`` for the
components of tensors, and ``x``, ``y``, ``z``, ``r``, ``s``, ``t``, of which there are variables
with the coordinates. All fields of a file are of the same steps and shape.

netCDF4 is seldom built with MPI. Rank 0 writes, what the others send it, one block at a time;
every rank reads its own block. The file is changed in place: an attribute of ``time`` names what is
being written or replaced, and reads refuse that; a run that is killed while it writes may leave the
whole file unreadable, which cannot happen to an :class:`~.hdf5.HDF5File`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import agree, agreed
from onesided.collectives.errors import PatternError, UnsupportedError
from onesided.pencilfft.io.filebase import (
    FileBase,
    FileError,
    at_root,
    check_array,
    gathered,
    is_everyones,
    naming,
)
from onesided.pencilfft.io.nodefiles import Piece
from onesided.pencilfft.io.selection import Selection
from onesided.pencilfft.io.snapshot import Domain, Group, Snapshot, step_number

TIME, COMPONENTS, AXES = "time", "ijk", "xyzrst"
#: The attribute of the times with what is incomplete, in JSON: names of variables by snapshot.
INCOMPLETE = "onesided_incomplete"
#: Its length is a multiple of this.
ROOM = 1024
NUMBERS = ("f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")


class NCFile(FileBase):
    """Local. A name for a NetCDF file of distributed arrays; see :class:`FileBase`.

    Arguments as in mpi4py-fft. ``domain`` gives each axis as a pair, the first and the last
    coordinate, or as an array of all coordinates; None is (0, 2 pi). With ``clobber=False`` a file
    that is there is not begun anew. Further arguments go to netCDF4.Dataset when it is written.

    Examples
    --------
    >>> NCFile("u.nc", mode="a").filename  # nothing is opened before it is written or read
    'u.nc'
    """

    def __init__(
        self,
        ncname: str | os.PathLike[str],
        domain: Sequence[Any] | None = None,
        mode: str = "a",
        clobber: bool = True,
        *,
        comm: MPI.Comm | None = None,
        **kw: Any,
    ) -> None:
        super().__init__(ncname, domain, mode, comm)
        self._clobber, self._options = clobber, kw

    @staticmethod
    def backend() -> str:
        """Local. The name of the file format."""
        return "netcdf4"

    def write(
        self,
        step: int,
        fields: Mapping[str, Any],
        *,
        as_scalar: bool = False,
        forward_output: bool | None = None,
    ) -> None:
        """Collective. Add the fields of a step, or replace what the file has of it.

        ``fields`` has names and lists of arrays, or of pairs of an array and a global slice (per
        axis an index or ``slice(None)``), which becomes the variable ``u_slice_4_slice``.
        ``as_scalar`` stores the components of tensors as fields of their own, u0, u1, ...
        ``forward_output``, which shenfun's programs give, means nothing, as in mpi4py-fft.

        Raises PatternError for arguments that do not fit the file, or numbers that NetCDF has not
        (complex ones), UnsupportedError without netCDF4, FileError where the system or the library
        fails.
        """
        comm, fields = self._writers(fields)
        with agreed(comm):
            self._require_writable()
            number = step_number(step)
            snapshot = Snapshot.of(comm, number, fields, as_scalar, self.domain)
            groups = {group.name: group for group in snapshot.groups}
            variables = [_Variable.of(piece, groups) for piece in snapshot.pieces]
        agree(comm, what=("a write", self.filename, snapshot.forms))
        file, index, names = None, 0, {variable.name for variable in variables}

        def begin() -> None:
            nonlocal file, index
            with naming(self.filename):
                file = self._changed()
                if TIME not in file.variables:
                    file.createDimension(TIME, None)
                    file.createVariable(TIME, float, (TIME,))
                for variable in variables:
                    variable.enter(file)
                index = _index(file, number)  # nothing is refused any more
                _note(file, index, incomplete_in(file, index) | names)
                file.variables[TIME][index] = number
                file.sync()

        def end(complete: bool) -> None:
            if file is not None:
                with naming(self.filename):
                    try:
                        if complete:
                            _note(file, index, incomplete_in(file, index) - names)
                    finally:
                        file.close()

        try:
            at_root(comm, begin)
            self._mode = "a" if self._mode == "w" else self._mode
            for piece, variable in zip(snapshot.pieces, variables, strict=True):
                self._collect(comm, piece, file, (variable.name, index))
        except Exception:  # agreed: all ranks are here
            at_root(comm, lambda: end(False))
            raise
        at_root(comm, lambda: end(True))

    def read(
        self, u: Any, name: str, step: int = 0, forward_output: bool | None = None
    ) -> None:
        """Collective. Read snapshot number ``step`` of a field into ``u``, however distributed.

        As in mpi4py-fft the snapshots of a file are counted from 0, whatever the steps are called
        with which they were written. Types are converted where nothing but precision is lost.
        ``forward_output`` means nothing.

        Raises PatternError for an array of another shape or kind of number, FileError for a file,
        field or snapshot that is missing.
        """
        comm = self._communicator([u])
        # until every rank is here one of them may have the file open, to change it by itself
        agree(comm, what=("a read", self.filename, name, step))
        with agreed(comm), naming(self.filename):
            is_everyones(u, comm)
            number = step_number(step)
            with self._opened() as file:
                if name not in file.variables:
                    raise FileError(
                        f"{self.filename}: no field {name!r}; there is {sorted(file.variables)}"
                    )
                field = file.variables[name]
                field.set_auto_maskandscale(False)
                if field.dimensions[:1] != (TIME,) or not number < field.shape[0]:
                    raise FileError(
                        f"{self.filename}: {name!r} of shape {field.shape} has no snapshot {step}"
                    )
                if name in incomplete_in(file, number):
                    raise FileError(
                        f"{self.filename}: snapshot {step} of {name!r} was not written completely"
                    )
                check_array(f"{self.filename}: {name!r}", field.shape[1:], field.dtype, u)
                if u.size:
                    u.view(np.ndarray)[...] = field[(number, *u.local_slice())]

    def _opened(self) -> Any:
        return _library().Dataset(self.filename, "r")

    def _changed(self) -> Any:
        """Local. The file, to be written."""
        there = os.path.exists(self.filename)
        afresh = self._mode == "w" or (self._mode == "a" and not there)
        mode = "w" if afresh else "r+"
        return _library().Dataset(self.filename, mode, clobber=self._clobber, **self._options)

    def _collect(
        self, comm: MPI.Comm, piece: Piece, file: Any, place: tuple[str, int]
    ) -> None:
        """Collective. Rank 0 writes what all ranks have of a field."""
        error, (name, index) = None, place
        for box, data in gathered(comm, piece.box, piece.data, piece.dtype):
            try:
                if error is None:
                    with naming(self.filename):
                        file.variables[name][(index, *box)] = data
            except Exception as found:  # what others send must be received all the same
                error = found
        agree(comm, error)


@dataclass(frozen=True)
class _Variable:
    """Local. A variable of the file: its name, its axes with their extents, its numbers."""

    name: str
    axes: dict[str, int]
    dtype: np.dtype[Any]
    domain: Domain | None

    @classmethod
    def of(cls, piece: Piece, groups: Mapping[str, Group]) -> _Variable:
        """Local. The one for a piece of a snapshot."""
        field, _, *part, _ = piece.path.split("/")
        group = groups[field]
        selection = Selection.named(group.shape, "".join(part))
        name = "_".join((field, *part))
        if group.rank > len(COMPONENTS) or len(group.shape) > len(AXES):
            raise PatternError(f"{name}: a tensor of rank {group.rank} of {len(group.shape)} axes")
        if selection.result != tuple(group.shape[axis] for axis in selection.axes):
            raise UnsupportedError(f"{name}: NetCDF axes are kept whole or cut at an index")
        if piece.dtype.str[1:] not in NUMBERS:
            raise PatternError(f"{name}: NetCDF has no {piece.dtype} numbers")
        letters = [*COMPONENTS[: group.rank], *(AXES[a] for a in selection.axes)]
        if field in (TIME, *letters):
            raise PatternError(f"{field!r} is the name of an axis")
        axes = dict(zip(letters, piece.shape, strict=True))
        return cls(name, axes, piece.dtype, group.domain)

    def enter(self, file: Any) -> None:
        """Local. Make what the file has not of it yet."""
        for letter, extent in self.axes.items():
            if letter not in file.dimensions:
                file.createDimension(letter, extent)
                file.createVariable(letter, float, (letter,))[:] = self._points(letter, extent)
            elif file.dimensions[letter].size != extent:
                raise PatternError(
                    f"{self.name}: axis {letter} has {extent} points, in the file "
                    f"{file.dimensions[letter].size}"
                )
        axes = (TIME, *self.axes)
        if self.name not in file.variables:
            file.createVariable(self.name, self.dtype, axes)
        found = file.variables[self.name]
        if found.dimensions != axes:
            raise PatternError(f"{self.name}: has axes {axes}, in the file {found.dimensions}")

    def _points(self, letter: str, extent: int) -> Any:
        if letter in COMPONENTS:
            return np.arange(extent)
        if self.domain is None:
            return np.linspace(0, 2 * np.pi, extent)
        given: Any = self.domain.arrays[AXES.index(letter)]
        if self.domain.word == "mesh":
            return given[:extent]
        first, last = given
        return np.linspace(first, last, extent)


def _index(file: Any, step: int) -> int:
    """Local. Where a step lies along ``time``: at the end where it is not there."""
    steps: NDArray[np.float64] = np.ma.filled(file.variables[TIME][:].astype(float), np.nan)
    places = np.flatnonzero(steps == step)
    return int(places[0]) if len(places) else len(steps)


def incomplete_in(file: Any, index: int) -> set[str]:
    """Local. The variables of which a snapshot is being written, or was left half written."""
    return set(_incomplete(file).get(str(index), ()))


def _incomplete(file: Any) -> dict[str, list[str]]:
    times = file.variables.get(TIME)
    noted = times is not None and INCOMPLETE in times.ncattrs()
    found: dict[str, list[str]] = json.loads(times.getncattr(INCOMPLETE)) if noted else {}
    return found


def _note(file: Any, index: int, names: set[str]) -> None:
    """Local. These variables are incomplete in a snapshot, and no others.

    The text keeps its length, blanks behind it: HDF5 counts the changes of others, up to 65535."""
    noted = {**_incomplete(file), str(index): sorted(names)}
    text = json.dumps({key: kept for key, kept in noted.items() if kept})
    times = file.variables[TIME]
    before = len(times.getncattr(INCOMPLETE)) if INCOMPLETE in times.ncattrs() else 0
    times.setncattr(INCOMPLETE, text.ljust(max(before, -(-len(text) // ROOM) * ROOM)))


def _library() -> Any:
    """Local. netCDF4."""
    try:
        return import_module("netCDF4")
    except ImportError as error:
        raise UnsupportedError(f"NetCDF files need netCDF4: {error}") from error
