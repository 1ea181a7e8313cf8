"""Mutated matrix files: every rank has the same outcome, a matrix or an error of ours; no hang."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from cases import parameters
from cases_formats import arrays_of, boeing_file, market_of, npz_of, random_matrix
from cases_random import examine
from cases_sparse_reading import file_of
from hypothesis import strategies as st

from onesided.sparse import read
from onesided.sparse.errors import MatrixFileError
from onesided.sparse.files.marketreader import read_triplets

pytestmark = pytest.mark.one_mpi

ALLOWED = (MatrixFileError, MemoryError)
BYTES = [*(word.encode() for word in "09-.E %x\n\0"), b"nan", b"\n\n", b"\xff", b""]


def files():
    """Files of all text formats, and of npz, small enough to be mutated everywhere."""
    real, numbers = random_matrix((9, 9), "real"), random_matrix((6, 8), "integer")
    mixed = random_matrix((7, 5), "complex", density=0.4)
    return {
        "coordinate": ("m.mtx", market_of(real)),
        "complex": ("m.mtx", market_of(mixed)),
        "array": ("m.mtx", market_of(numbers.toarray())),
        "symmetric": ("m.mtx", market_of(real + real.T, symmetry="symmetric")),
        "boeing": ("m.rua", boeing_file(real, "real", "u", False)),
        "boeing complex": ("m.cra", boeing_file(mixed, "complex", "r", True)),
        "boeing integer": ("m.ira", boeing_file(numbers, "integer", "r", True)),
        "npz": ("m.npz", npz_of(real.tocsr(), False)),
        "npz packed": ("m.npz", npz_of(real.tocoo())),
        "no name": ("matrix", boeing_file(real, "real", "u", False)),
    }


MUTATION = st.tuples(
    st.sampled_from(["replace", "insert", "delete", "cut", "repeat"]),
    st.floats(0, 1, exclude_max=True),
    st.integers(1, 30),
    st.sampled_from(BYTES),
)


def mutated(data, mutations):
    """The data with some bytes or lines changed."""
    for kind, where, length, word in mutations:
        at = int(where * len(data))
        before, after = data[:at], data[at:]
        data = {
            "replace": before + word + after[len(word) :],
            "insert": before + word + after,
            "delete": before + after[length:],
            "cut": before,
            "repeat": before + after[:length] * 2 + after[length:],
        }[kind]
    return data


def outcome_of(call):
    """The class of an error and its words, or what the call returned; other errors are failures."""
    try:
        return "read", call()
    except ALLOWED as error:
        return type(error).__name__, str(error)


def judge(comm, call):
    """Collective. The outcome, which must be the same on all ranks."""
    found = outcome_of(call)
    everyone = comm.allgather(found)
    assert all(other == everyone[0] for other in everyone), everyone
    return found[0]


def product_of(comm, path):
    """Collective. Shape, entries and dtype of what the file holds."""
    with read(comm, path, method="p2p") as matrix:
        return matrix.shape, matrix.nnz, matrix.dtype.name


FILES = files()
TEXTS = [name for name, (ending, _) in FILES.items() if not ending.endswith("npz")]
WAYS = [(name, "plain") for name in FILES] + [(name, "packed") for name in TEXTS]
WAYS += [(name, f"blocks of {size}") for name in ("coordinate", "array") for size in (7, 60)]
WAYS += [(name, "in gzip") for name in ("coordinate", "boeing")]


@parameters(way=[f"{name}, {how}" for name, how in WAYS])
def case_mutated_files(comm, way, options):
    """As they are, packed afterwards, read in small blocks, and with the packed bytes changed."""
    name, how = way.split(", ")
    ending, data = FILES[name]

    def body(mutations):
        if how == "in gzip":
            packed = gzip.compress(data)
            changed = packed[:2] + mutated(packed[2:], mutations)
        else:
            changed = mutated(data, mutations)
            changed = gzip.compress(changed) if how == "packed" else changed
        with file_of(comm, changed, ending) as path:
            if not how.startswith("blocks"):
                return judge(comm, lambda: product_of(comm, path))
            size = int(how.split()[-1])
            return judge(comm, lambda: read_triplets(comm, path, None, size)[0])

    assert body([]) == "read"
    strategy = st.lists(MUTATION, min_size=1, max_size=4)
    seen = examine(comm, strategy, body, int(options.get("examples", "12")))
    assert any(kind.endswith("Error") for kind in seen), seen


SMALL = st.integers(-2, 7)


@parameters(form=["csr", "csc"])
def case_any_arrays_in_npz(comm, form, options):
    """Well-formed archives of arrays that are a matrix, or that are not."""
    array = st.lists(SMALL, max_size=6)
    strategy = st.tuples(
        st.tuples(SMALL, SMALL), array, array, st.lists(st.floats(width=32), max_size=6)
    )

    def body(example):
        shape, indptr, indices, values = example
        good = len(indptr) > 1 and len(indices) >= 2
        if good and example[0][0] > 0:  # often right: else nothing is ever read
            shape, indptr = (2, 8), sorted(abs(p) for p in [0, indptr[0] % 3, 2])
            indices, values = [abs(i) for i in indices[:2]], [1.0, 2.0]
        change = {
            "format": np.array(form.encode()),
            "shape": np.array(shape if form == "csr" else shape[::-1]),
            "indptr": np.array(indptr, int),
            "indices": np.array(indices, int),
            "data": np.array(values, float),
        }
        with file_of(comm, arrays_of(**change), "m.npz") as path:
            return judge(comm, lambda: product_of(comm, path))

    seen = examine(comm, strategy, body, int(options.get("examples", "20")))
    assert "read" in seen, seen
    assert "MatrixFileError" in seen, seen
