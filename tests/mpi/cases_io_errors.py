"""Files that are missing, damaged, full or of another field: one exception on every rank."""

from __future__ import annotations

import contextlib
import re
import resource
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from cases import need, parameters, ranks
from errors import agreed
from io_data import (
    Blocks,
    check_read,
    files_in,
    files_of,
    read,
    shared_folder,
    values,
    write,
)

from onesided.collectives import MismatchError, PatternError, UnsupportedError
from onesided.pencilfft import NCFile
from onesided.pencilfft.io.filebase import FileError
from onesided.pencilfft.io.hdf5 import HDF5File, consolidate
from onesided.pencilfft.io.store import Store, sources_of

SHAPE = (6, 5, 4)


@contextlib.contextmanager
def a_file(comm):
    """Two steps of u and v in a new folder: the path, the whole array, this rank's block."""
    whole = values(SHAPE, "f8")
    block = Blocks.part_of(comm, whole, axis=2)
    with shared_folder(comm) as folder:
        for step in range(2):
            file = HDF5File(folder / "u.h5", ranks_per_node=1)
            file.write(step, {"u": [block], "v": [block]})
        comm.Barrier()
        yield folder / "u.h5", whole, block


def check_file(comm, path, whole, steps=(0, 1)):
    """What was written before is still there, and nothing else is."""
    comm.Barrier()
    file = HDF5File(path)
    assert file.steps("u") == list(steps)
    for step in steps:
        check_read(comm, file, "u", step, whole)
    assert files_in(path.parent) == files_of(path)


def written(fields, **options):
    """Writes step 2 of these fields, made from the communicator and this rank's block."""
    def call(comm, path, block):
        HDF5File(path, **options).write(2, fields(comm, block))

    return call


def got(name, step, shape=SHAPE, *form):
    """Reads a step of a field into a new array."""
    return lambda comm, path, block: read(Blocks.new(comm, shape, *form), path, name, step)


def cut(*chosen):
    """Writes a global slice."""
    return lambda comm, path, block: write(block, path, "u", 2, list(chosen))


ALL = slice(None)
#: What is done with a file that has u and v, the class of the error, and words of it.
WRONG = {
    "read another shape": (got("u", 0, (6, 5, 5)), PatternError, "(6, 5, 4)", "(6, 5, 5)",
                           "u/3D/0", "u.h5"),
    "read another rank": (got("u", 0, SHAPE, float, (3,)), PatternError, "(6, 5, 4)",
                          "(3, 6, 5, 4)", "u.h5"),
    "read another kind": (got("u", 0, SHAPE, "i8"), PatternError, "float64", "int64", "u.h5"),
    "read no name": (got("w", 0), FileError, "no w/3D/0", "['u', 'v']", "u.h5"),
    "read no step": (got("u", 7), FileError, "no u/3D/7", "['0', '1']"),
    "read other dimensions": (got("u", 0, (6, 5)), FileError, "no u/2D/0", "['3D', 'domain']",
                              "u.h5"),
    "read a step in words": (got("u", "last"), PatternError, "'last'"),
    "read a negative step": (got("u", -1), PatternError, "-1"),
    "cut too few": (cut(0, 1), PatternError, "3 axes"),
    "cut outside": (cut(0, 5, ALL), PatternError, "index 5"),
    "cut backwards": (cut(0, 0, slice(None, None, -1)), PatternError, "selects nothing"),
    "cut nothing": (cut(0, slice(3, 3), ALL), PatternError, "selects nothing"),
    "cut in words": (cut(0, "all", ALL), PatternError, "'all'"),
    "cut a point": (cut(0, 0, 0), PatternError, "single point"),
    "write another shape": (written(lambda c, b: {"u": [Blocks.new(c, (6, 5, 5))]}), PatternError,
                            "(6, 5, 4) and rank 0"),
    "write another rank": (written(lambda c, b: {"u": [Blocks.new(c, SHAPE, float, (2,))]}),
                           PatternError, "rank 1"),
    "write two shapes": (written(lambda c, b: {"w": [b, Blocks.new(c, (2, 2))]}), PatternError,
                         "different shape"),
    "write a name": (written(lambda c, b: {"a/b": [b]}), PatternError, "'a/b'"),
    "write a triple": (written(lambda c, b: {"w": [(b, b, b)]}), PatternError, "3 things"),
    "write no fields": (written(lambda c, b: {}), PatternError, "{}"),
    "write a number": (written(lambda c, b: {"w": 3, "v": b}), PatternError, "'w': int is no"),
    "write two of a name": (written(lambda c, b: {"w": [b, b.copy()]}), PatternError, "'w/3D/2'"),
    "write a plain array": (written(lambda c, b: {"w": [b, np.zeros(3)]}), PatternError, "ndarray"),
    "write a short domain": (written(lambda c, b: {"w": [b]}, domain=[(0, 1)]), PatternError,
                             "1 axes"),
    "write a wrong mesh": (written(lambda c, b: {"w": [b]},
                                   domain=[np.zeros(n) for n in (6, 5, 3)]), PatternError,
                           "axis 2"),
    "write a mixed domain": (written(lambda c, b: {"w": [b]}, domain=[(0, 1), np.zeros(5), (0, 1)]),
                             PatternError, "all arrays"),
    "write to read only": (written(lambda c, b: {"w": [b]}, mode="r"), PatternError,
                           "to read only"),
    "write an attribute": (lambda c, p, b: HDF5File(p).write(2, {"u": [b]},
                                                             attributes={"k": object}),
                           PatternError, "'k'"),
    "mode": (lambda c, p, b: HDF5File(p, mode="x"), PatternError, "'x'"),
    "driver": (lambda c, p, b: HDF5File(p, driver="core"), PatternError, "'core'"),
    "nodes": (lambda c, p, b: HDF5File(p, ranks_per_node=0), PatternError, "=0"),
    "open": (lambda c, p, b: HDF5File(p, mode="r", comm=c).open("x"), PatternError, "'x'"),
    "open to change": (lambda c, p, b: HDF5File(p, mode="r", comm=c).open("a"), PatternError,
                       "mode='r'"),
    "open no file": (lambda c, p, b: HDF5File(p.parent / "w.h5", mode="r", comm=c).open(),
                     FileError, "w.h5"),
}  # fmt: skip


@parameters(mistake=list(WRONG))
def case_wrong(comm, mistake):
    call, kind, *words = WRONG[mistake]
    with a_file(comm) as (path, whole, block):
        text = agreed(comm, kind, lambda: call(comm, path, block))
        assert all(word in text for word in words), text
        check_file(comm, path, whole)


def case_what_is_open_to_change(comm):
    """All ranks change it in one way, and nobody else does meanwhile."""
    with a_file(comm) as (path, whole, block):
        file = HDF5File(path, mode="r", comm=comm)
        file.open()
        with pytest.raises((KeyError, OSError)):
            file.f.attrs["rank"] = 7
        file.close()
        file = HDF5File(path, mode="r+", comm=comm)
        file.open()
        file.f.attrs["rank"] = comm.rank  # each rank in its own way
        if comm.size > 1:
            assert "different" in agreed(comm, PatternError, file.close)
        file.open()
        file.f.attrs["rank"] = 7
        other = HDF5File(path)
        assert "somebody else" in agreed(comm, FileError, lambda: other.write(2, {"w": [block]}))
        file.close()
        other.write(2, {"w": [block]})
        file.open()
        assert file.f.attrs["rank"] == 7
        del file.f["u"]
        with pytest.raises(KeyError), file:
            del file.f["nothing"]
        comm.Barrier()  # rank 0 has given it up
        other.write(2, {"w": [block]})
        file.open()
        del file.f["w"]
        file.close()
        check_file(comm, path, whole)


def case_netcdf_without_the_library(comm):
    with a_file(comm) as (path, _, block):
        kept = sys.modules.get("netCDF4")
        sys.modules["netCDF4"] = None
        try:
            text = agreed(comm, UnsupportedError, lambda: write(block, path.parent / "u.nc"))
        finally:
            sys.modules.pop("netCDF4")
            if kept is not None:
                sys.modules["netCDF4"] = kept
        assert "need netCDF4" in text


WRONG_NETCDF = {
    "complex": (lambda b: {"w": [b.astype(complex)]}, {}, PatternError, "complex128"),
    "half": (lambda b: {"w": [b.astype("f2")]}, {}, PatternError, "float16"),
    "axis": (lambda b: {"x": [b]}, {}, PatternError, "name of an axis"),
    "part": (lambda b: {"w": [(b, [slice(1, 2), 0, 0])]}, {}, UnsupportedError, "kept whole"),
    "read only": (lambda b: {"w": [b]}, {"mode": "r"}, PatternError, "to read only"),
    "other extents": (lambda b: {"u": [b]}, {}, PatternError, "axis x"),
    "kept": (lambda b: {"w": [b]}, {"mode": "w", "clobber": False}, FileError, "u.nc"),
    "folder": (lambda b: {"w": [b]}, {}, FileError, "nowhere"),
}


@parameters(mistake=list(WRONG_NETCDF))
def case_wrong_netcdf(comm, mistake):
    need("netCDF4")
    fields, options, kind, words = WRONG_NETCDF[mistake]
    with a_file(comm) as (path, whole, block):
        target = path.parent / "u.nc"
        write(block, target, "u")
        place = path.parent / "nowhere" / "u.nc" if mistake == "folder" else target
        file = NCFile(place, **options)
        given = block if mistake != "other extents" else Blocks.new(comm, (2, 5, 4))
        text = agreed(comm, kind, lambda: file.write(1, fields(given)))
        assert words in text, text
        check_read(comm, target, "u", 0, whole)
        found = Blocks.new(comm, whole.shape)
        for name, step in (("nothing", 0), ("u", 7), ("x", 0)):
            agreed(comm, FileError, lambda n=name, s=step: read(found, target, n, s))
        agreed(comm, PatternError, lambda: read(Blocks.new(comm, (6, 5)), target, "u"))


@parameters(step=[0, 1, 2])
def case_a_netcdf_step_that_is_not_completed(comm, step):
    """The first step, the next one, or one that is replaced: none is read by halves."""
    need("netCDF4")
    collect = NCFile._collect

    def fails(file, comm, piece, *rest):
        if piece.path.startswith("v"):
            raise FileError("no room")
        collect(file, comm, piece, *rest)

    with a_file(comm) as (path, whole, block):
        file, found = NCFile(path.parent / "u.nc"), Blocks.new(comm, SHAPE)
        fields = {"u": [block], "v": [block]}
        for before in range(min(step, 1) + (step == 2)):
            file.write(before, fields)
        failed = 1 if step == 2 else step
        NCFile._collect = fails
        try:
            assert "no room" in agreed(comm, FileError, lambda: file.write(failed, fields))
        finally:
            NCFile._collect = collect
        text = agreed(comm, FileError, lambda: file.read(found, "u", failed))
        assert "not written completely" in text
        file.write(failed, fields)
        for name in fields:
            for there in range(failed + 1):
                check_read(comm, file, name, there, whole)
            agreed(comm, FileError, lambda n=name: file.read(found, n, failed + 1))


@parameters(step=[0, 1, 2])
def case_a_netcdf_field_that_is_not_replaced(comm, step, monkeypatch):
    """Of three steps: it is not read until it is replaced, whatever else is; it keeps its place."""
    need("netCDF4")

    def fails(*given):
        raise FileError("no room")

    with a_file(comm) as (path, whole, block):
        file, found = NCFile(path.parent / "u.nc"), Blocks.new(comm, SHAPE)
        fields = {"u": [block], "v": [block]}
        for before in range(3):
            file.write(before, fields)
        with monkeypatch.context() as patch:
            patch.setattr(NCFile, "_collect", fails)
            agreed(comm, FileError, lambda: file.write(step, {"v": [block]}))
        for again in ({}, {"u": [block]}):
            if again:
                file.write(step, again)
            text = agreed(comm, FileError, lambda: file.read(found, "v", step))
            assert "not written completely" in text
            check_read(comm, file, "u", step, whole)
        file.write(3, fields)
        file.write(step, {"v": [block]})
        with file:  # HDF5 counts the changes of an attribute that change its length
            file.open()
            assert file.f["time"].getncattr("onesided_incomplete") == "{}".ljust(1024)
        many = {f"{'w' * 20}{k:03}": [block] for k in range(60)}
        file.write(step, many)
        file.write(step, {"v": [block]})
        with file:
            file.open()
            assert file.f["time"].getncattr("onesided_incomplete") == "{}".ljust(2048)
        for there in range(4):
            for name in fields:
                check_read(comm, file, name, there, whole)


@parameters(place=["missing", "folder", "beside a file", "no file"])
def case_where_nothing_can_be_written_or_read(comm, place):
    with a_file(comm) as (path, whole, block):
        target = {
            "missing": path.parent / "nowhere" / "u.h5",
            "folder": path.parent,
            "beside a file": path / "u.h5",
            "no file": path.parent / "w.h5",
        }[place]
        text = agreed(comm, FileError, lambda: HDF5File(target, mode="r").read(block, "u"))
        assert str(target) in text
        if place == "missing":
            write(block, target, "u")  # folders are made
            read(block, target, "u")
        elif place == "no file":
            file = HDF5File(target, mode="r+")
            text = agreed(comm, FileError, lambda: file.write(0, {"u": [block]}))
            assert str(target) in text
            check_file(comm, path, whole)
        else:
            file = HDF5File(target)
            text = agreed(comm, FileError, lambda: file.write(0, {"u": [block]}))
            assert str(path.parent) in text
            check_file(comm, path, whole)


@parameters(damage=["cut", "cut to half", "emptied", "removed", "swapped"], rank=[0, -1])
def case_damaged_files(comm, damage, rank):
    """The other step can be read, and steps can be added; one node's file is enough to fail."""
    with a_file(comm) as (path, whole, block):
        store = Store(path)
        with store.open() as file:
            here, there = (
                sorted({Path(source.reference).name for source in sources_of(file[f"u/3D/{step}"])})
                for step in (0, 1)
            )
        victim = path.parent / "u.h5.parts" / here[rank]
        comm.Barrier()
        if comm.rank == 0:
            data = victim.read_bytes()
            if damage == "removed":
                victim.unlink()
            elif damage == "swapped":
                with h5py.File(victim, "w") as file:
                    file["u/3D/0"] = np.zeros((2, 2, 2))
            else:
                keep = {"cut": len(data) - 10, "cut to half": len(data) // 2, "emptied": 0}
                victim.write_bytes(data[: keep[damage]])
        comm.Barrier()
        found = Blocks.new(comm, SHAPE)
        text = agreed(comm, FileError, lambda: read(found, path, "u", 0))
        assert str(victim) in text, text
        check_read(comm, path, "u", 1, whole)
        write(block, path, "u", 2)
        check_read(comm, path, "u", 2, whole)
        if comm.rank == 0:
            before = files_in(path.parent)
            with pytest.raises(FileError, match=re.escape(str(victim))):
                consolidate(path)
            assert files_in(path.parent) == before
        comm.Barrier()
        assert there


@parameters(keep=["all but ten", "half", "nothing", "no HDF5"])
def case_a_main_file_cut_short(comm, keep):
    with a_file(comm) as (path, whole, block):
        comm.Barrier()
        if comm.rank == 0:
            data = path.read_bytes()
            path.write_bytes(
                {
                    "all but ten": data[:-10],
                    "half": data[: len(data) // 2],
                    "nothing": b"",
                    "no HDF5": b"not HDF5\n" * 100,
                }[keep]
            )
        comm.Barrier()
        text = agreed(comm, FileError, lambda: read(block, path, "u"))
        assert str(path) in text
        text = agreed(comm, FileError, lambda: write(block, path, "u", 2))
        assert str(path) in text
        HDF5File(path, mode="w").write(0, {"u": [block]})
        check_read(comm, path, "u", 0, whole)


@parameters(victim=["first", "last"], limit=[0, 1000, 6000])
def case_no_space_on_one_rank(comm, victim, limit):
    """A limit of the file size stands for a disk that is full."""
    with a_file(comm) as (path, whole, _):
        large = Blocks.part_of(comm, values((40, 30, 20), "f8"))
        mine = comm.rank == (0 if victim == "first" else comm.size - 1)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            if mine:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
            text = agreed(comm, FileError, lambda: write(large, path, "w", 2))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert str(path) in text
        check_file(comm, path, whole)
        write(large, path, "w", 2)
        check_read(comm, path, "w", 2, values((40, 30, 20), "f8"), axis=0)


@ranks(at_least=2)
def case_ranks_that_disagree(comm):
    with a_file(comm) as (path, whole, block):
        step = 2 + (comm.rank == 1)
        text = agreed(comm, MismatchError, lambda: write(block, path, "u", step))
        assert "u/3D/2" in text
        assert "u/3D/3" in text
        file = HDF5File(path, ranks_per_node=1 + (comm.rank == 1))
        agreed(comm, MismatchError, lambda: file.write(2, {"u": [block]}))
        step = int(comm.rank == 1)
        agreed(comm, MismatchError, lambda: read(block, path, "u", step))
        elsewhere = Blocks.new(comm.Split(comm.rank % 2), SHAPE)
        for bad in ({}, [], {"w": 3}, {"w": [block, np.zeros]}, {"w": [block, elsewhere]}):
            given = bad if comm.rank == 1 else {"w": [block]}
            for file in (HDF5File(path, comm=comm), NCFile(path.parent / "u.nc", comm=comm)):
                agreed(comm, PatternError, lambda f=file, g=given: f.write(2, g))
        elsewhere.comm.Free()
        check_file(comm, path, whole)


@ranks(at_least=2)
def case_arrays_of_two_communicators(comm):
    half = comm.Split(comm.rank % 2)
    with a_file(comm) as (path, whole, block):
        other = Blocks.new(half, SHAPE)
        fields = {"u": [block], "w": [other]}
        agreed(comm, PatternError, lambda: HDF5File(path).write(2, fields), "communicators")
        block.comm = None
        text = agreed(comm, PatternError, lambda: write(block, path, "u", 2))
        assert "comm=" in text
        check_file(comm, path, whole)
    half.Free()
