"""Files of distributed arrays: on the ranks of a job, and what can be tested without one."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import mpi_harness
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

sys.path.insert(0, str(mpi_harness.TESTS / "mpi"))

from io_data import Blocks, new_folder

from onesided.collectives import PatternError
from onesided.pencilfft.io import hdf5, store
from onesided.pencilfft.io.filebase import FileError
from onesided.pencilfft.io.hdf5 import HDF5File
from onesided.pencilfft.io.selection import Selection
from onesided.pencilfft.io.store import Store
from onesided.pencilfft.io.xdmf import generate_xdmf


@st.composite
def selections(draw):
    """A shape, a global slice of it, and a block of it."""
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    chosen, block = [], []
    for n in shape:
        some, step = st.none() | st.integers(-n - 2, n + 2), st.none() | st.integers(1, 4)
        chosen.append(draw(st.integers(-n, n - 1) | st.builds(slice, some, some, step)))
        start, stop = sorted(draw(st.tuples(st.integers(0, n), st.integers(0, n))))
        block.append(slice(start, stop))
    return shape, chosen, tuple(block)


@given(selections())
def test_selections_are_numpys(drawn):
    shape, chosen, block = drawn
    whole = np.arange(np.prod(shape)).reshape(shape)
    expected = whole[tuple(chosen)]
    if not expected.size:
        with pytest.raises(PatternError, match="selects nothing"):
            Selection.of(shape, chosen)
        return
    selection = Selection.of(shape, chosen)
    assert selection.result == expected.shape
    assert selection.whole == (expected.shape == shape and np.array_equal(expected, whole))
    assert Selection.named(shape, selection.name) == selection
    marked = np.zeros(shape, bool)
    marked[block] = True
    found = selection.cut(block)
    result = np.full(expected.shape, -1)
    if found is not None:
        here, there = found
        assert result[there].size or not selection.axes
        result[there] = whole[block][here]
    assert np.array_equal(result >= 0, marked[tuple(chosen)])
    assert np.array_equal(result[result >= 0], expected[result >= 0])


SHAPE = (4, 5, 6)
UNIFORM = [(0.0, 2.0), (10.0, 5.0), (100.0, 12.0)]
MESH = [np.array([0.0, 1, 3, 7]), np.array([10.0, 11, 13, 17, 30]), np.arange(100.0, 112, 2)]


@pytest.fixture
def folder():
    path = new_folder()
    yield path
    shutil.rmtree(path)


def field(shape, components=(), dtype=float):
    """Every value tells its place: digits of the last axis first, then a thousand a component."""
    whole = sum(10**k * index for k, index in enumerate(reversed(np.indices(shape))))
    numbers = 1000 * np.arange(np.prod(components, dtype=int)).reshape(components)
    whole = numbers[(..., *[None] * len(shape))] + whole
    return Blocks.part_of(MPI.COMM_SELF, whole.astype(dtype), len(components))


def parsed(name):
    """Of the grids of an XDMF file: time, dimensions, geometry texts, and fields to their data."""
    grids = []
    for grid in ET.parse(name).iterfind("Domain/Grid/Grid"):
        fields = {
            a.get("Name"): a.find(".//DataItem[@Format='HDF']") for a in grid.iterfind("Attribute")
        }
        time = float(grid.find("Time").get("Value"))
        lengths = tuple(int(n) for n in grid.find("Topology").get("Dimensions").split())
        geometry = [item.text for item in grid.iterfind("Geometry/DataItem")]
        grids.append((time, lengths, geometry, fields))
    return grids


@pytest.fixture
def a_store(folder):
    """The path of a file with one step, and an array of its form."""
    u = Blocks.part_of(MPI.COMM_SELF, np.arange(12.0).reshape(3, 4))
    path = Path(folder) / "u.h5"
    HDF5File(path).write(0, {"u": [u]})
    return path, u


def test_a_second_writer_is_told(a_store):
    path, u = a_store
    one, other = Store(path), Store(path)
    prefix = one.begin(False)
    part = Path(one.path(prefix, 0))
    part.write_text("data")
    with pytest.raises(FileError, match="somebody else is changing it"):
        other.begin(False)
    with pytest.raises(FileError, match="somebody else is changing it"):
        HDF5File(path).write(1, {"u": [u]})
    other.abandon()
    assert part.exists()
    one.abandon()
    assert not part.exists()
    HDF5File(path).write(1, {"u": [u]})
    assert HDF5File(path).steps("u") == [0, 1]


def test_copies_of_a_main_file_share_a_folder(a_store):
    """A change removes the files of what it has replaced itself, no others."""
    path, u = a_store
    early, late = path.parent / "early.h5", path.parent / "late.h5"
    shutil.copyfile(path, early)
    HDF5File(path).write(1, {"u": [2 * u]})
    path.rename(late)
    shutil.copyfile(early, path)
    for factor in (3, 4):  # the second one replaces the first
        HDF5File(path).write(1, {"u": [factor * u]})
        HDF5File(path).write(2, {"u": [factor * u]})
    found = Blocks.new(MPI.COMM_SELF, (3, 4))
    for name, step, factor in ((early, 0, 1), (late, 0, 1), (late, 1, 2), (path, 1, 4)):
        HDF5File(name).read(found, "u", step)
        assert np.array_equal(found, factor * u)
    assert len(list(Path(f"{path}.parts").glob("*.h5"))) == 4  # of steps 0 and 1, and of 1 and 2


def test_writers_that_see_no_lock_do_not_lose_data(a_store, monkeypatch):
    """Where files cannot be locked names are different, and one of the two is told."""
    path, u = a_store

    def flock(number, how):
        raise OSError(errno.ENOSYS, "no locks")

    monkeypatch.setattr(store.fcntl, "flock", flock)
    one, other = Store(path), Store(path)
    first, second = one.begin(False), other.begin(False)
    assert first != second
    other.complete(second, lambda file: (), False)
    with pytest.raises(FileError, match="changed it meanwhile"):
        one.complete(first, lambda file: (), False)
    found = Blocks.new(MPI.COMM_SELF, (3, 4))
    HDF5File(path).read(found, "u")
    assert np.array_equal(found, u)


def test_a_main_file_that_is_renamed_before_its_journal_is_gone(a_store, monkeypatch):
    """Its writer was killed in between: another store of the old name leaves it its data."""
    path, u = a_store
    writer = Store(path)
    prefix = writer.begin(False)
    part = Path(writer.path(prefix, 0))
    part.write_text("data")

    def killed(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Store, "recover", killed)
        with pytest.raises(KeyboardInterrupt):
            writer.complete(prefix, lambda file: (), False)
    del writer
    path.rename(path.parent / "v.h5")
    HDF5File(path).write(0, {"u": [2 * u]})
    assert part.exists()
    for name, expected in (("v.h5", u), ("u.h5", 2 * u)):
        found = Blocks.new(MPI.COMM_SELF, (3, 4))
        HDF5File(path.parent / name).read(found, "u")
        assert np.array_equal(found, expected)


def test_a_step_that_is_replaced_while_it_is_read(a_store, monkeypatch):
    path, u = a_store
    load = hdf5._load

    def late(array, field, index):
        HDF5File(path).write(0, {"u": [2 * u]})
        load(array, field, index)

    monkeypatch.setattr(hdf5, "_load", late)
    with pytest.raises(FileError, match="replaced while it was read"):
        HDF5File(path).read(Blocks.new(MPI.COMM_SELF, (3, 4)), "u")


def test_xdmf_of_a_uniform_mesh(folder):
    file = HDF5File(f"{folder}/u&v.h5", domain=UNIFORM)
    u, v, z = field(SHAPE), field(SHAPE, (3,)), field(SHAPE, dtype=complex)
    for step in (0, 1, 10):
        fields = {"u": [u, (u, [slice(None), 4, slice(None)])], "v": [v], "z": [z]}
        file.write(step, fields, attributes={"time": step / 4})
    names = generate_xdmf(f"{folder}/u&v.h5")
    assert sorted(names) == [f"{folder}/u&v.xdmf", f"{folder}/u&v_slice_4_slice.xdmf"]
    grids = parsed(f"{folder}/u&v.xdmf")
    assert [time for time, *_ in grids] == [0, 0.25, 2.5]
    for step, (_, lengths, geometry, fields) in zip((0, 1, 10), grids, strict=True):
        assert lengths == SHAPE
        assert geometry == ["0.0 10.0 100.0", "0.5 1.0 2.0"]
        assert {name: item.text for name, item in fields.items()} == {
            "u": f"u&v.h5:/u/3D/{step}",
            **{f"v{k}": f"u&v.h5:/v/3D/{step}" for k in range(3)},
        }
        assert fields["u"].get("Dimensions") == "4 5 6"
        assert fields["v1"].get("Dimensions") == "3 4 5 6"
    os.makedirs(f"{folder}/links")
    os.symlink(f"{folder}/u&v.h5", f"{folder}/links/w.h5")
    generate_xdmf(f"{folder}/links/w.h5")  # beside which it lies
    assert parsed(f"{folder}/links/w.xdmf")[0][3]["u"].text == "w.h5:/u/3D/0"
    _, lengths, geometry, fields = parsed(sorted(names)[1])[0]
    assert (lengths, geometry) == ((4, 1, 6), ["0.0 14.0 100.0", "0.5 1.0 2.0"])
    assert fields["u"].text == "u&v.h5:/u/2D/slice_4_slice/0"


@pytest.mark.parametrize(
    ("periodic", "spacing"),
    [(True, "0.5 1.0 2.0"), (False, f"{2 / 3} 1.25 2.4"), ([True, False, True], "0.5 1.25 2.0")],
)
def test_xdmf_of_domains_that_end_with_a_point(folder, periodic, spacing):
    HDF5File(f"{folder}/u.h5", domain=UNIFORM).write(0, {"u": [field(SHAPE, dtype="f4")]})
    grids = parsed(generate_xdmf(f"{folder}/u.h5", periodic, order="visit")[0])
    assert grids[0][2] == ["0.0 10.0 100.0", spacing]
    assert grids[0][3]["u"].get("Precision") == "4"


def test_xdmf_of_a_mesh_and_of_a_plane(folder):
    u, w = field(SHAPE), field(SHAPE[:2], dtype="i4")
    file = HDF5File(f"{folder}/u.h5", domain=MESH)
    file.write(0, {"u": [u, (u, [slice(None), slice(1, None, 2), 2])]})
    HDF5File(f"{folder}/u.h5", domain=MESH[:2]).write(0, {"w": [w]})
    names = generate_xdmf(f"{folder}/u.h5")
    assert sorted(names) == [
        f"{folder}/u.xdmf",
        f"{folder}/u_slice_slice1to4by2_2.xdmf",
        f"{folder}/u_w.xdmf",
    ]
    ((_, lengths, geometry, _),) = parsed(f"{folder}/u.xdmf")
    assert (lengths, geometry) == (SHAPE, [f"u.h5:/u/mesh/x{i}" for i in (2, 1, 0)])
    ((_, lengths, geometry, _),) = parsed(f"{folder}/u_slice_slice1to4by2_2.xdmf")
    assert (lengths, geometry) == ((4, 2, 1), ["104.0", "11.0 17.0", "u.h5:/u/mesh/x0"])
    ((_, lengths, geometry, fields),) = parsed(f"{folder}/u_w.xdmf")
    assert (lengths, geometry) == ((1, 4, 5), ["u.h5:/w/mesh/x1", "u.h5:/w/mesh/x0", "0.0"])
    assert (fields["w"].get("NumberType"), fields["w"].get("Precision")) == ("Int", "4")


def test_xdmf_refuses(folder):
    with pytest.raises(FileError, match=r"none\.h5"):
        generate_xdmf(f"{folder}/none.h5")
    HDF5File(f"{folder}/z.h5").write(0, {"z": [field(SHAPE, dtype=complex)]})
    with pytest.raises(PatternError, match="no real field"):
        generate_xdmf(f"{folder}/z.h5")
    with pytest.raises(PatternError, match="'gnuplot'"):
        generate_xdmf(f"{folder}/z.h5", order="gnuplot")
    HDF5File(f"{folder}/u.h5").write(0, {"u": [field(SHAPE)]})
    with pytest.raises(PatternError, match="2 entries"):
        generate_xdmf(f"{folder}/u.h5", [True, False])
