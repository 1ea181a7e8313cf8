"""HDF5 files of distributed arrays: what is written is what is read, by whomever."""

from __future__ import annotations

import shutil
import time
from unittest import mock

import h5py
import numpy as np
from cases import need, parameters, ranks, skip
from errors import agreed
from io_data import (
    Blocks,
    check_read,
    check_slice,
    files_in,
    files_of,
    read,
    shared_folder,
    values,
    write,
)
from mpi4py import MPI

from onesided.collectives import MismatchError, PatternError
from onesided.collectives.context import Context
from onesided.pencilfft import PFFT, DistArray, NCFile, newDistArray
from onesided.pencilfft.io import filebase, hdf5, nodefiles
from onesided.pencilfft.io.filebase import FileError
from onesided.pencilfft.io.hdf5 import HDF5File, consolidate
from onesided.pencilfft.io.store import Store

KINDS = ["f4", "f8", "c8", "c16", "i4", ">f8"]


@parameters(ranks_per_node=[None, 2], rows=[1, nodefiles.ROW_BYTES])
def case_one_file_for_a_node_and_step(comm, ranks_per_node, rows):
    """Ranks of a node write side by side, in one dataset where their rows are not short; a step of
    two fields is one file for each node."""
    wholes = [values((7, 5, 6), "c16"), values((2, 9, 4), "f4")]
    nodes = len(set(comm.allgather(Context.of(comm).node(ranks_per_node).ranks[0])))
    with shared_folder(comm) as folder:
        file = HDF5File(folder / "u.h5", ranks_per_node=ranks_per_node)
        blocks = Blocks.part_of(comm, wholes[0]), Blocks.part_of(comm, wholes[1], 1)
        with mock.patch.object(nodefiles, "ROW_BYTES", rows):
            for step in range(2):
                file.write(step, {"u": [blocks[0]], "v": [blocks[1]]})
                assert len(files_in(folder)) == 1 + (1 + step) * nodes
                comm.Barrier()
        with h5py.File(folder / "u.h5", "r") as main:
            parts = len(main["u/3D/1"].virtual_sources())
            assert parts == (nodes if rows == 1 else comm.size)
        for axis in range(2):
            check_read(comm, file, "u", 1, wholes[0], axis=axis)
            check_read(comm, file, "v", 0, wholes[1], 1, axis)


@ranks(at_least=2)
def case_any_communicator(comm):
    """Each half writes a file of its own, in reversed order of ranks; all read both."""
    half = comm.Split(comm.rank % 2, -comm.rank)
    wholes = [values((6, 5, 4), "f8", seed) for seed in range(2)]
    with shared_folder(comm) as folder:
        mine = comm.rank % 2
        block = Blocks.part_of(half, wholes[mine])
        HDF5File(folder / f"{mine}.h5").write(0, {"u": [block]})
        comm.Barrier()
        for number, whole in enumerate(wholes):
            check_read(comm, folder / f"{number}.h5", "u", 0, whole, axis=0)
    half.Free()


SLICES = [
    [slice(None), 4, slice(None)],
    [2, slice(None), slice(None)],
    [slice(None), 3, 6],
    [slice(1, 4), slice(None, None, 3), -1],
    [slice(None), slice(5, 6), slice(1, None, 2)],
]


@parameters(index=range(len(SLICES)), components=[(), (2,)])
def case_global_slices(comm, index, components):
    """With the whole field, or without."""
    chosen = SLICES[index]
    whole = values((*components, 5, 6, 7), "f8")
    with shared_folder(comm) as folder:
        block = Blocks.part_of(comm, whole, len(components), axis=0)
        file = HDF5File(folder / "u.h5")
        file.write(0, {"u": [block, (block, chosen)]})
        file.write(1, {"u": iter([(block, chosen)])})
        write(block, file, "u", 2)
        file.write(2, {"u": [block, (block, chosen), (block, chosen)]})  # once more is no matter
        for step in range(3):
            check_slice(folder / "u.h5", "u", step, whole, len(components), chosen)
        assert file.steps("u") == [0, 2]


@parameters(ending=["h5", "nc", "npy"])
def case_an_array_that_every_rank_has(comm, ending):
    """It is written once, by itself or beside others."""
    if ending == "nc":
        need("netCDF4")
    u, found = DistArray((5,)), DistArray((5,))
    u[:] = values((5,), "f8")
    with shared_folder(comm) as folder:
        u.write(folder / f"u.{ending}", "u")
        found.read(folder / f"u.{ending}", "u")
        assert found.tobytes() == u.tobytes()
        if ending == "npy":
            return
        kind = HDF5File if ending == "h5" else NCFile
        kind(folder / f"alone.{ending}").write(0, {"u": [u]})
        found[:] = 0
        kind(folder / f"alone.{ending}").read(found, "u")
        assert found.tobytes() == u.tobytes()
        whole = values((5, 4), "f8")
        file, block = kind(folder / f"u.{ending}"), Blocks.part_of(comm, whole, axis=1)
        file.write(1, {"w": [block], "u": [u]})
        check_read(comm, file, "w", 1, whole)
        found[:] = 0
        kind(folder / f"u.{ending}", comm=comm).read(found, "u", 1)
        assert found.tobytes() == u.tobytes()
        if ending == "h5":
            with h5py.File(folder / "u.h5") as opened:
                assert len(opened["u/1D/1"].virtual_sources()) == 1
        comm.Barrier()
        u[2] = comm.rank
        if comm.size > 1:
            agreed(comm, MismatchError, lambda: file.write(2, {"w": [block], "u": [u]}))
            alone = kind(folder / f"alone.{ending}")
            agreed(comm, MismatchError, lambda: alone.write(1, {"u": [u]}))


@parameters(plain=[False, True])
def case_open_to_change(comm, plain):
    """As spectralDNS does it: attributes and groups by all ranks, beside fields by ``write``."""
    whole = values((5, 6, 7), "f8")
    with shared_folder(comm) as folder:
        block = Blocks.part_of(comm, whole)

        def files():
            return comm.bcast(files_in(folder))

        file = HDF5File(folder / "u.h5", mode="w", comm=comm)
        file.open()
        file.f.attrs.create("tstep", 0)
        file.f.create_group("extra")["numbers"] = np.arange(3)
        file.close()
        assert not file.f
        assert files() == ["u.h5"]
        for step in range(2):
            file.write(step, {"U": [block]})
            if plain and comm.rank == 0:
                consolidate(folder / "u.h5")
            comm.Barrier()
            with file:
                file.open()
                file.f.attrs["tstep"] = step
                file.f["U/3D"].attrs["t"] = 0.5 * step
                if step and comm.rank == 0:
                    time.sleep(1.1)  # in another second than the others, which HDF5 notes
                file.f[f"U/3D/{step}"].attrs["t"] = 0.5 * step
                found = file.f[f"U/3D/{step}"][block.local_slice()]
                assert found.tobytes() == block.tobytes()
        before = files()
        file.open()  # changes nothing
        assert file.f.attrs["tstep"] == 1
        file.close()
        assert files() == before
        file.open("a")
        del file.f["U/3D/0"]
        file.read(block, "U", 1)
        assert block.is_part_of(whole)
        assert file.steps("U") == [1]
        file.open("r")
        assert list(file.f["extra/numbers"]) == [0, 1, 2]
        assert file.f["U/3D"].attrs["t"] == 0.5
        assert files() == files_of(folder / "u.h5")
        comm.Barrier()
        file.open("w")
        assert not list(file.f)
        file.close()
        assert files() == ["u.h5"]


@parameters(place=["attribute", "dataset"])
def case_edits_that_are_hard_to_see(comm, place):
    """In the middle of long arrays within arrays, beyond what is printed, and of references."""
    with shared_folder(comm) as folder:
        file = HDF5File(folder / "u.h5", mode="w", comm=comm)
        file.open()
        for name in ("x", "y"):
            file.f.create_group(name)["null"] = h5py.Empty("f4")
        file.close()
        for value in (1.0, 1.0 + 1e-12):
            file.open()
            rows = np.empty(1, object)
            rows[0] = np.ones(2000)
            rows[0][1000] = value
            if place == "attribute":
                file.f.attrs.create("rows", rows, dtype=h5py.vlen_dtype("f8"))
            else:
                file.f.require_dataset("rows", (1,), h5py.vlen_dtype("f8"))[0] = rows[0]
            file.close()
        mixed = np.dtype([("v", "f8", (2000,)), ("name", h5py.string_dtype())])
        for value in (1.0, 1.0 + 1e-12):
            file.open()
            file.f.require_dataset("mixed", (1,), mixed)[0] = (np.full(2000, value), "n")
            file.close()
        for name in ("x", "y"):
            file.open()
            file.f.attrs["at"] = file.f[name].ref
            file.close()
        file.open()
        file.f["numbers"] = np.arange(4)
        file.close()
        for stop in (2, 3):
            file.open()
            file.f.attrs["part"] = file.f["numbers"].regionref[:stop]
            file.close()
        file.open()
        assert list(file.f["numbers"][file.f.attrs["part"]]) == [0, 1, 2]
        del file.f["numbers"]  # the reference stays, and is to nothing
        file.close()
        file.open("r")
        assert "numbers" not in file.f
        found = (file.f.attrs if place == "attribute" else file.f)["rows"][0]
        assert found[1000] == file.f["mixed"][0]["v"][1000] == 1.0 + 1e-12
        assert file.f[file.f.attrs["at"]].name == "/y"
        file.close()


def case_read_waits_for_a_rank_that_changes_the_file(comm):
    """As shenfun's tests let rank 0 write XDMF meanwhile."""
    whole = values((5, 6), "f8")
    with shared_folder(comm) as folder:
        block = Blocks.part_of(comm, whole)
        HDF5File(folder / "u.h5").write(0, {"u": [block]})
        if comm.rank == 0:
            with h5py.File(folder / "u.h5", "r+"):
                comm.Barrier()
                time.sleep(0.2)
        else:
            comm.Barrier()
        check_read(comm, folder / "u.h5", "u", 0, whole)


@ranks(at_least=2)
def case_a_file_that_is_replaced_while_it_is_read(comm, monkeypatch):
    """Every rank reads the one that it has opened, and all have opened the same."""
    wholes = [values((5, 6), "f8", seed) for seed in range(2)]
    opened, find = Store.open, hdf5._find

    def late(store):
        file = opened(store)
        monkeypatch.undo()
        comm.Barrier()
        (folder / "1.h5").replace(folder / "0.h5")
        return file

    def after_the_first(*arguments):
        comm.Barrier()
        return find(*arguments)

    with shared_folder(comm) as folder:
        for number, whole in enumerate(wholes):
            write(Blocks.part_of(comm, whole), folder / f"{number}.h5", "u", 0)
        if comm.rank == 0:
            monkeypatch.setattr(Store, "open", late)
        else:
            monkeypatch.setattr(hdf5, "_find", after_the_first)
        found = Blocks.new(comm, (5, 6))
        read(found, folder / "0.h5", "u", 0)
        assert found.is_part_of(wholes[0])


def case_layout_of_mpi4py_fft(comm):
    whole = values((3, 5, 6, 7), "f8")
    x = [np.linspace(0, 1, n) ** 2 for n in (5, 6, 7)]
    with shared_folder(comm) as folder:
        block = Blocks.part_of(comm, whole, 1)
        first = block[0]
        fields = {
            "u": [first, (first, [slice(None), 4, slice(None)]), (first, [1, 2, slice(None)])]
        }
        HDF5File(folder / "a.h5", domain=x).write(7, fields)
        HDF5File(folder / "b.h5", domain=[(0, 1), (2.5, 3), (0, 4)]).write(0, {"v": [block]})
        HDF5File(folder / "b.h5").write(1, {"v": [block]})
        HDF5File(folder / "c.h5").write(0, {"v": [block]}, as_scalar=True)
        for name in "abc":
            with h5py.File(folder / f"{name}.h5") as file:
                check_layout(file, name, whole, x)


def check_layout(file, name, whole, x):
    found = []
    file.visititems(lambda path, item: found.append(path) if hasattr(item, "shape") else None)
    if name == "a":
        mesh = {f"u/mesh/x{i}" for i in range(3)}
        assert set(found) - mesh == {"u/3D/7", "u/2D/slice_4_slice/7", "u/1D/1_2_slice/7"}
        assert all(np.array_equal(file[f"u/mesh/x{i}"], x[i]) for i in range(3))
        assert tuple(file["u"].attrs["shape"]) == (5, 6, 7)
        assert file["u"].attrs["rank"] == 0
        assert file["u/3D/7"][:].tobytes() == whole[0].tobytes()
        assert file["u/2D/slice_4_slice/7"][:].tobytes() == whole[0][:, 4].tobytes()
        assert file["u/1D/1_2_slice/7"][:].tobytes() == whole[0][1, 2].tobytes()
    if name == "b":
        assert file["v"].attrs["rank"] == 1
        assert tuple(file["v"].attrs["shape"]) == (5, 6, 7)
        assert tuple(file["v/domain/x1"]) == (2.5, 3)
        assert file["v/3D/1"].shape == (3, 5, 6, 7)
    if name == "c":
        assert set(file) == {"v0", "v1", "v2"}
        assert tuple(file["v2/domain/x2"]) == (0, 2 * np.pi)
        assert file["v2/3D/0"][:].tobytes() == whole[2].tobytes()


def case_attributes_and_steps(comm):
    whole = values((4, 5), "f8")
    with shared_folder(comm) as folder:
        file = HDF5File(folder / "u.h5")
        for step in (0, 10, 9):
            block = Blocks.part_of(comm, whole + step)
            file.write(step, {"u": block}, attributes={"time": step / 4, "note": "é", "c": [1, 2]})
        assert file.steps("u") == [0, 9, 10]
        found = file.attributes("u", 10)
        assert (found["time"], found["note"], list(found["c"])) == (2.5, "é", [1, 2])
        for step in (0, 9, 10):
            check_read(comm, file, "u", step, whole + step, axis=0)


#: Which numbers become which: all but precision is kept.
FINER = {"i4": "i4 i8 f4 f8 c8", "i8": "i8 f4 f8 c8", "u8": "u8 f4 f8 c8", "?": "i4 i8 u8 f4 f8 c8",
         "f4": "f4 f8 c8", "f8": "f4 f8 c8", "c8": "c8"}  # fmt: skip


@parameters(source=list(FINER), target=FINER["?"].split(), ending=["h5", "npy", "nc"])
def case_other_types(comm, source, target, ending):
    if ending == "nc":
        need("netCDF4")
        if "?" in source or "c" in source + target:
            skip("NetCDF has no such numbers")
    whole = values((4, 5, 3), source)
    with shared_folder(comm) as folder:
        write(Blocks.part_of(comm, whole), folder / f"u.{ending}")
        found = Blocks.new(comm, (4, 5, 3), target, axis=0)
        if target not in FINER[source].split():
            text = agreed(comm, PatternError, lambda: read(found, folder / f"u.{ending}"))
            assert "cannot take" in text
            return
        read(found, folder / f"u.{ending}")
        with np.errstate(all="ignore"):
            assert np.array_equal(found, whole.astype(target)[found.local_slice()], equal_nan=True)


def case_a_file_that_is_begun_anew(comm):
    whole = values((4, 5), "f8")
    with shared_folder(comm) as folder:
        block = Blocks.part_of(comm, whole)
        write(block, folder / "u.h5", "u", 0)
        anew = HDF5File(folder / "u.h5", mode="w")
        check_read(comm, folder / "u.h5", "u", 0, whole)  # still there, until the first write
        anew.write(5, {"w": [block]})
        anew.write(6, {"w": [block]})
        assert anew.steps("w") == [5, 6]
        with h5py.File(folder / "u.h5") as opened:
            assert set(opened) == {"w"}
        assert files_in(folder) == files_of(folder / "u.h5")


@parameters(field=["u", "50%b %%u"])
def case_a_moved_folder_and_one_plain_file(comm, field):
    whole = values((3, 4, 5), "c16")
    with shared_folder(comm) as top:
        block = Blocks.part_of(comm, whole)
        name = "50%b u.h5"
        HDF5File(top / name).write(
            0, {field: [block, (block, [slice(None), 1, slice(None)])]}, attributes={"time": 3}
        )
        if comm.rank == 0:
            (top / "inside").mkdir()
            shutil.move(top / f"{name}.parts", top / "inside")
            shutil.move(top / name, top / "inside" / "other.h5")
        comm.Barrier()
        path = top / "inside" / "other.h5"
        for step in range(3):
            file = HDF5File(path)
            for there in range(step + 1):
                check_read(comm, file, field, there, whole, axis=0)
            if comm.rank == 0:
                consolidate(path)
                consolidate(path)  # a plain file stays as it is
                with h5py.File(path) as plain:
                    assert not plain[f"{field}/3D/0"].is_virtual
                    assert plain[f"{field}/3D/0"].attrs["time"] == 3
                    assert np.array_equal(plain[f"{field}/2D/slice_1_slice/0"], whole[:, 1], True)
                assert not (top / "inside" / "other.h5.parts").exists()
            comm.Barrier()
            file.write(step + 1, {field: [block]})


@parameters(field=["u", "50%b %%u"])
def case_a_plain_file_of_others_is_continued(comm, field):
    """As mpi4py-fft writes it; its data are referred to, not copied at each step."""
    whole = values((30, 40, 5), "f8")
    with shared_folder(comm) as folder:
        if comm.rank == 0:
            with h5py.File(folder / "u.h5", "w") as file:
                file[f"{field}/3D/0"] = whole
                file[field].attrs["shape"], file[field].attrs["rank"] = whole.shape, 0
                file[f"{field}/domain/x0"] = [0.0, 1.0]
                file["again"], file["all"] = file[f"{field}/3D/0"], file["/"]
        comm.Barrier()
        for step in range(1, 4):
            HDF5File(folder / "u.h5").write(step, {field: [Blocks.part_of(comm, whole * step)]})
            for there in range(step + 1):
                check_read(comm, folder / "u.h5", field, there, whole * max(1, there), axis=0)
        assert (folder / "u.h5").stat().st_size < whole.nbytes
        with h5py.File(folder / "u.h5") as file:
            assert list(file[f"{field}/domain/x0"]) == [0.0, 1.0]
            assert file["again"] == file[f"all/{field}/3D/0"]
            assert len(file["again"].virtual_sources()) == 1
        comm.Barrier()
        if comm.rank == 0:
            consolidate(folder / "u.h5")
            with h5py.File(folder / "u.h5") as file:
                assert file["again"] == file[f"all/{field}/3D/0"]
                assert np.array_equal(file["again"], whole, True)


@parameters(rank=[0, 1, 2], forward=[False, True])
def case_arrays_of_a_plan(comm, rank, forward):
    """DistArray.write and .read, whole, by component and by slice."""
    with PFFT(comm, (6, 5, 8), method="p2p") as fft, shared_folder(comm) as folder:
        u = newDistArray(fft, forward, rank=rank)
        whole = values(u.global_shape, u.dtype)
        u[...] = whole[u.local_slice()]
        domain = [(0.0, 1.0), (0.0, 2.0), (0.0, 3.0)]
        name = str(folder / "u.h5")
        u.write(name, "u", 2, domain=domain)
        u.write(name, "u", 3, [slice(None), 2, slice(None)])
        u.write(HDF5File(name), "c", 2, as_scalar=True)
        for target in (newDistArray(fft, forward, rank=rank), u.copy() * 0):
            target.read(name, "u", 2)
            assert target.tobytes() == np.ascontiguousarray(whole[u.local_slice()]).tobytes()
        index = (1,) * rank
        part = newDistArray(fft, forward, rank=rank)
        component = part[index] if rank else part
        component.read(HDF5File(name), "c" + "1" * rank, 2)
        assert component.tobytes() == np.ascontiguousarray(u.v[index]).tobytes()
        if comm.rank == 0:
            with h5py.File(name) as file:
                assert tuple(file["u/domain/x2"]) == (0.0, 3.0)
                plane = file["u/2D/slice_2_slice/3"][:]
            assert plane.tobytes() == np.ascontiguousarray(whole[..., 2, :]).tobytes()


@parameters(turn=range(3))
def case_random(comm, turn, seed):
    """Any shape, components, decomposition, slice, also of ranks with nothing; several fields in
    one write; and a step that is written again, of which nothing is left."""
    rng = np.random.default_rng([seed, turn])
    with shared_folder(comm) as folder:
        file = HDF5File(folder / "u.h5", ranks_per_node=turn or None)
        for step in range(4):
            ndim = int(rng.integers(2, 5))
            shape = tuple(int(n) for n in rng.integers(1, 8, ndim))
            rank = int(rng.integers(0, 3))
            components = tuple(int(n) for n in rng.integers(1, 4, rank))
            whole = values(components + shape, KINDS[(4 * turn + step) % len(KINDS)], step)
            chosen = [
                slice(*sorted(int(i) for i in rng.integers(0, n + 1, 2)), None)
                if rng.random() < 0.5
                else int(rng.integers(n))
                for n in shape
            ]
            chosen = [
                slice(None) if isinstance(s, slice) and s.start == s.stop else s for s in chosen
            ]
            chosen[int(rng.integers(ndim))] = slice(None, None, 2)
            axes = [int(a) for a in rng.integers(0, ndim, 3)]
            block = Blocks.part_of(comm, whole, rank, axes[0])
            fields = {f"u{step}": [block, (block, chosen)], f"v{step}": [block]}
            if step % 2:
                file.write(step, {name: [np.zeros_like(block)] for name in fields})
            file.write(step, fields)
            comm.Barrier()
            assert files_in(folder) == files_of(folder / "u.h5")
            comm.Barrier()
            for name in fields:
                check_read(comm, file, name, step, whole, rank, axes[1])
                if name[0] == "u":
                    check_slice(folder / "u.h5", name, step, whole, rank, chosen)
                check_read(MPI.COMM_SELF, folder / "u.h5", name, step, whole, rank)


# NetCDF


@parameters(dtype=["f4", ">f8", "i4"], kind=[((), (5, 6, 7)), ((2, 2), (3, 4))],
            most=[filebase.CALL_BYTES, 13])
def case_netcdf_round_trip(comm, dtype, kind, most):
    need("netCDF4")
    components, shape = kind
    wholes = [values(components + shape, dtype, seed) for seed in range(3)]
    with shared_folder(comm) as folder, mock.patch.object(filebase, "CALL_BYTES", most):
        for step, whole in zip((0, 10, 10), wholes, strict=True):  # the last one replaces
            block = Blocks.part_of(comm, whole, len(components), axis=0)
            mine = comm.isend("the caller's own", 0, 0)
            NCFile(folder / "u.nc").write(step, {"u": [block]})
            if comm.rank == 0:
                assert {comm.recv(source=p) for p in range(comm.size)} == {"the caller's own"}
            mine.wait()
        for number, whole in enumerate((wholes[0], wholes[2])):
            for axis in range(len(shape)):
                check_read(comm, folder / "u.nc", "u", number, whole, len(components), axis)


def case_netcdf_as_mpi4py_fft_lays_it_out(comm):
    need("netCDF4")
    whole = np.arange(210.0).reshape(5, 6, 7)
    domain = ((0, np.pi), (0, 2 * np.pi), (1, 2))
    with shared_folder(comm) as folder, PFFT(comm, (5, 6, 7), effort="estimate") as plan:
        u, v = newDistArray(plan, False), newDistArray(plan, False, rank=1)
        u[...] = whole[u.local_slice()]
        v[...] = u
        file = NCFile(folder / "u.nc", domain=domain, mode="w")
        cut = (u, [slice(None), 4, slice(None)]), (u, [2, 3, slice(None)])
        file.write(3, {"u": [u, *cut], "v": [v]})
        v.write(file, "w", 3, as_scalar=True)
        u.write(file, "u", 4)
        found = newDistArray(plan, False, rank=1)
        read(found, folder / "u.nc", "v", 0)
        assert np.array_equal(found, v)
        with file:
            file.open()
            names = {name: found.dimensions for name, found in file.f.variables.items()}
            assert names == {
                "time": ("time",), "i": ("i",), "x": ("x",), "y": ("y",), "z": ("z",),
                "u": ("time", "x", "y", "z"), "v": ("time", "i", "x", "y", "z"),
                "u_slice_4_slice": ("time", "x", "z"), "u_2_3_slice": ("time", "z"),
                **{f"w{k}": ("time", "x", "y", "z") for k in range(3)},
            }  # fmt: skip
            assert list(file.f["time"][:]) == [3, 4]
            assert np.array_equal(file.f["z"][:], np.linspace(1, 2, 7))
            assert np.array_equal(file.f["u"][1], whole)
            assert np.array_equal(file.f["w2"][0], whole)
            assert np.array_equal(file.f["u_slice_4_slice"][0], whole[:, 4])
            assert np.array_equal(file.f["u_2_3_slice"][0], whole[2, 3])
        NCFile(folder / "u.nc", mode="w").write(0, {"u": [u]})
        with NCFile(folder / "u.nc") as file:
            file.open()
            assert "v" not in file.f.variables


@parameters(shape=[(7, 5, 6), (1, 9), (64, 48)], dtype=["f8", "c8", "i4"], rank=[0, 1])
def case_files_of_numpy(comm, shape, dtype, rank):
    """One array, whatever the decompositions of who writes and who reads."""
    components = (2,) * rank
    whole = values((*components, *shape), dtype)
    with shared_folder(comm) as folder:
        for axis in range(len(shape)):
            block = Blocks.part_of(comm, whole, rank, axis)
            write(block, folder / "u.npy")
            assert np.load(folder / "u.npy").tobytes() == whole.tobytes()
            assert files_in(folder) == ["u.npy"]
            comm.Barrier()
            check_read(comm, folder / "u.npy", "", 0, whole, rank, axis - 1)
        comm.Barrier()
        if comm.rank == 0:
            np.save(folder / "f.npy", np.asfortranarray(whole))
        comm.Barrier()
        check_read(comm, folder / "f.npy", "", 0, whole, rank)
        other = Blocks.new(comm, (*shape, 2), dtype, components)
        assert "has shape" in agreed(comm, PatternError, lambda: read(other, folder / "u.npy"))
        short = Blocks.new(comm, shape, bool, components)
        assert "cannot" in agreed(comm, PatternError, lambda: read(short, folder / "u.npy"))
        assert "gone" in agreed(comm, FileError, lambda: read(block, folder / "gone.npy"))
        if comm.rank == 0:
            (folder / "empty.npy").touch()
        comm.Barrier()
        assert "empty" in agreed(comm, FileError, lambda: read(block, folder / "empty.npy"))
        chosen = [0] * len(shape)
        agreed(comm, PatternError, lambda: write(block, folder / "u.npy", "u", 0, chosen),
               "global slice")  # fmt: skip
        for file in (folder / "no" / "u.npy", folder / "u.npy" / "u.npy"):  # no folder, a file
            text = agreed(comm, FileError, lambda file=file: write(block, file))
            assert "u.npy" in text
        comm.Barrier()
        alone = Blocks.part_of(MPI.COMM_SELF, whole, rank)  # by every rank, at once
        write(alone, folder / "each.npy")
        comm.Barrier()
        assert np.load(folder / "each.npy").tobytes() == whole.tobytes()
        comm.Barrier()
