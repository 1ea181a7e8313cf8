"""Generated matrices: the same for every number of ranks, and as they are said to be."""

import hashlib
import os
import tempfile

import numpy as np
import scipy.io
from cases import parameters
from mpi4py import MPI
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from onesided.apps.tools import trace_mesh as mesh_module
from onesided.apps.tools.trace_mesh import trace_mesh
from onesided.collectives import MismatchError
from onesided.sparse import Partition, read, stencil27
from onesided.sparse.files.marketwriter import Form, write_matrixmarket
from onesided.sparse.grids import stencil7


def whole_of(comm, rows):
    return sparse.vstack(comm.allgather(rows)).tocsr()


def same(one, other):
    arrays = zip(
        (one.indptr, one.indices, one.data), (other.indptr, other.indices, other.data), strict=True
    )
    return one.shape == other.shape and all(np.array_equal(a, b) for a, b in arrays)


@parameters(size=[1, 2, 3, 64, 1000, 9999], curves=[0, 5])
def case_meshes_are_symmetric_with_degree_3_at_most(comm, size, curves):
    rows = trace_mesh(comm, size, curves)
    assert rows.shape == (Partition.even(size, comm.size).lengths()[comm.rank], size)
    whole = whole_of(comm, rows)
    assert same(whole, trace_mesh(MPI.COMM_SELF, size, curves))
    assert np.all(whole.data == 1.0)
    assert whole.has_canonical_format
    assert abs(whole - whole.T).nnz == 0
    assert not whole.diagonal().any()
    degrees = np.diff(whole.indptr)
    assert degrees.max(initial=0) <= 3
    assert size < 1000 or np.mean(degrees == 3) > 0.9
    assert connected_components(whole)[0] == 1


def case_pieces_of_a_mesh_fit(comm):
    """Made in many small pieces it is the same."""
    expected = trace_mesh(MPI.COMM_SELF, 5000, 2)
    before = mesh_module._AT_ONCE, mesh_module._ROOT_LEVEL
    mesh_module._AT_ONCE = 300
    try:
        assert same(whole_of(comm, trace_mesh(comm, 5000, 2)), expected)
        mesh_module._ROOT_LEVEL = 4
        assert same(whole_of(comm, trace_mesh(comm, 5000, 2)), expected)
    finally:
        mesh_module._AT_ONCE, mesh_module._ROOT_LEVEL = before


def case_seeds_make_different_meshes(comm):
    meshes = [whole_of(comm, trace_mesh(comm, 3000, seed)) for seed in range(3)]
    assert not same(meshes[0], meshes[1])
    assert not same(meshes[1], meshes[2])


def case_bad_meshes_are_refused_on_every_rank(comm):
    for size, seed in ((0, 0), (1 << 32, 0), (10, -1)):
        try:
            trace_mesh(comm, size, seed)
        except ValueError as error:
            assert f"{size} triangles" in str(error)
        else:
            raise AssertionError(f"{size}, {seed} was accepted")
    if comm.size > 1:
        try:
            trace_mesh(comm, 10 + comm.rank)
        except MismatchError as error:
            assert "size=1" in str(error)
        else:
            raise AssertionError("different sizes were accepted")


@parameters(n=[1, 2, 5])
def case_grids(comm, n):
    line = sparse.diags_array([-1.0, -1.0], offsets=[-1, 1], shape=(n, n)) if n > 1 else None
    eye = sparse.eye_array(n)
    expected = 6.0 * sparse.eye_array(n**3)
    if line is not None:
        for axis in range(3):
            parts = [line if at == axis else eye for at in range(3)]
            expected = expected + sparse.kron(sparse.kron(parts[0], parts[1]), parts[2])
    rows = stencil7(n, Partition.even(n**3, comm.size).range(comm.rank))
    whole = whole_of(comm, rows)
    assert whole.has_canonical_format
    assert abs(whole - expected).sum() == 0
    assert stencil27(n).nnz == (3 * n - 2) ** 3


def common_path(comm, name):
    folder = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None)
    return os.path.join(folder, name)


def removed(comm, path):
    comm.Barrier()
    if comm.rank == 0:
        left = os.listdir(os.path.dirname(path))
        for name in left:
            os.remove(os.path.join(os.path.dirname(path), name))
        os.rmdir(os.path.dirname(path))
        assert left in ([], [os.path.basename(path)]), left


def fields(rng):
    matrix = sparse.random_array((40, 23), density=0.2, rng=rng, format="csr")
    yield "real", matrix
    yield "real", matrix.astype("f4")
    yield "complex", matrix + 1j * matrix**2 / 3
    yield "integer", (matrix * 100).astype("i8")
    yield "pattern", matrix != 0
    yield "real", sparse.csr_array((7, 3))
    yield "real", sparse.csr_array((0, 0))


def case_files_of_every_field_are_read_back(comm, seed):
    path = common_path(comm, "field.mtx")
    for field, whole in fields(np.random.default_rng(seed)):
        rows = whole[slice(*Partition.even(whole.shape[0], comm.size).range(comm.rank))]
        write_matrixmarket(comm, path, rows, comments=["one", "two words"])
        if comm.rank == 0:
            with open(path, "rb") as file:
                text = file.read()
            head = f"%%MatrixMarket matrix coordinate {field} general\n% one\n% two words\n"
            assert text.startswith(head.encode())
            back = sparse.csr_array(scipy.io.mmread(path))
            assert back.shape == whole.shape
            assert back.nnz == whole.nnz
            assert abs(back.astype(whole.dtype) - whole).sum() == 0
        comm.Barrier()
    removed(comm, path)


def case_files_do_not_depend_on_the_number_of_ranks(comm):
    path = common_path(comm, "mesh.mtx")
    sums = []
    for group in (comm, MPI.COMM_SELF):
        rows = trace_mesh(group, 4000, 1)
        if group is comm or comm.rank == 0:
            write_matrixmarket(group, path, rows, form=Form(symmetric=True, pattern=True))
        comm.Barrier()
        with open(path, "rb") as file:
            sums.append(hashlib.sha256(file.read()).hexdigest())
        comm.Barrier()
    assert sums[0] == sums[1]
    with read(comm, path, method="p2p") as matrix:
        expected = trace_mesh(MPI.COMM_SELF, 4000, 1)
        assert (matrix.shape, matrix.nnz) == (expected.shape, expected.nnz)
        x = np.cos(np.arange(4000.0))
        y = matrix @ x[slice(*matrix.col_range)]
        assert np.allclose(y, (expected @ x)[slice(*matrix.row_range)])
    removed(comm, path)


def case_files_that_cannot_be_written(comm):
    path = common_path(comm, "mesh.mtx")
    rows = stencil7(2, Partition.even(8, comm.size).range(comm.rank))
    narrow = sparse.csr_array((rows.shape[0], 5))
    calls = [
        (lambda: write_matrixmarket(comm, f"{path}/no/x.mtx", rows), OSError, "/no/x.mtx."),
        (lambda: write_matrixmarket(comm, path, rows if comm.rank else None), TypeError, "None"),
        (lambda: write_matrixmarket(comm, os.path.dirname(path), rows), OSError, "directory"),
        (lambda: write_matrixmarket(comm, path, rows, comments=["a\nb"]), ValueError, "one line"),
        (
            lambda: write_matrixmarket(comm, path, narrow, form=Form(symmetric=True)),
            ValueError,
            "(8, 5)",
        ),
    ]
    if comm.size > 1:
        odd = rows.astype("i8") if comm.rank else rows
        calls.append((lambda: write_matrixmarket(comm, path, odd), MismatchError, "'i'"))
        mixed = os.path.dirname(path) if comm.rank else path
        calls.append((lambda: write_matrixmarket(comm, mixed, rows), MismatchError, "mesh.mtx"))
    for call, kind, words in calls:
        try:
            call()
        except kind as error:
            text = str(error)
        else:
            raise AssertionError(f"no {kind.__name__}")
        assert words in text, text
        assert len(set(comm.allgather(text))) == 1
    removed(comm, path)
