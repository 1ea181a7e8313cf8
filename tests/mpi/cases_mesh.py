"""Generated matrices: the same for every number of ranks, and as they are said to be."""

import os
from functools import partial

import numpy as np
import scipy.io
from cases import parameters
from cases_sparse_reading import file_of
from errors import agreed, raises
from mpi4py import MPI
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from onesided.apps.tools import trace_mesh as mesh_module
from onesided.apps.tools.trace_mesh import trace_mesh
from onesided.collectives import MismatchError
from onesided.sparse import Partition, read
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
        raises(ValueError, lambda: trace_mesh(comm, size, seed), f"{size} triangles")  # noqa: B023
    if comm.size > 1:
        raises(MismatchError, lambda: trace_mesh(comm, 10 + comm.rank), "size=1")


def fields(rng):
    matrix = sparse.random_array((40, 23), density=0.2, rng=rng, format="csr")
    yield "real", matrix
    yield "real", matrix.astype("f4")
    yield "complex", matrix + 1j * matrix**2 / 3
    yield "integer", (matrix * 100).astype("i8")
    yield "pattern", matrix != 0
    yield "real", sparse.csr_array((7, 3))
    yield "real", sparse.csr_array((0, 0))


@parameters(number=range(7))
def case_files_of_every_field_are_read_back(comm, number, seed):
    field, whole = list(fields(np.random.default_rng(seed)))[number]
    rows = whole[slice(*Partition.even(whole.shape[0], comm.size).range(comm.rank))]
    with file_of(comm, b"old", "field.mtx") as path:
        write_matrixmarket(comm, path, rows, comments=["one", "two words"])
        head = f"%%MatrixMarket matrix coordinate {field} general\n% one\n% two words\n"
        assert path.read_bytes().startswith(head.encode())
        back = sparse.csr_array(scipy.io.mmread(path))
        assert back.shape == whole.shape
        assert back.nnz == whole.nnz
        assert abs(back.astype(whole.dtype) - whole).sum() == 0
        assert os.listdir(path.parent) == ["field.mtx"]


def case_files_do_not_depend_on_the_number_of_ranks(comm):
    expected, texts = trace_mesh(MPI.COMM_SELF, 4000, 1), []
    with file_of(comm, b"", "mesh.mtx") as path:
        for group in (comm, MPI.COMM_SELF):
            rows = trace_mesh(group, 4000, 1)
            if group is comm or comm.rank == 0:
                write_matrixmarket(group, path, rows, form=Form(symmetric=True, pattern=True))
            comm.Barrier()
            texts.append(path.read_bytes())
            comm.Barrier()
        assert texts[0] == texts[1]
        with read(comm, path, method="p2p") as matrix:
            assert same(whole_of(comm, matrix.local_rows()), expected)


def case_files_that_cannot_be_written(comm):
    rows = stencil7(2, Partition.even(8, comm.size).range(comm.rank))
    narrow, nothing = sparse.csr_array((rows.shape[0], 5)), rows if comm.rank else None
    write = partial(write_matrixmarket, comm)
    with file_of(comm, b"old", "mesh.mtx") as path:
        calls = [
            (lambda: write(path / "no/x.mtx", rows), OSError, "/no/x.mtx."),
            (lambda: write(path, nothing), TypeError, "None"),
            (lambda: write(path.parent, rows), OSError, "directory"),
            (lambda: write(path, rows, comments=["a\nb"]), ValueError, "one line"),
            (lambda: write(path, narrow, form=Form(symmetric=True)), ValueError, "(8, 5)"),
        ]
        if comm.size > 1:
            odd, mixed = (rows.astype("i8"), path.parent) if comm.rank else (rows, path)
            calls.append((lambda: write(path, odd), MismatchError, "'i'"))
            calls.append((lambda: write(mixed, rows), MismatchError, path.name))
        for call, kind, words in calls:
            agreed(comm, kind, call, words)
        assert path.read_bytes() == b"old"
        assert os.listdir(path.parent) == ["mesh.mtx"]
