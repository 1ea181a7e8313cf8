"""``onesided generate``, and the picture of who sends how much to whom."""

from __future__ import annotations

from pathlib import Path

import commands
import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse
from mpi4py import MPI

from onesided.apps.tools.trace_mesh import trace_mesh

pytestmark = pytest.mark.one_mpi

MATRIX = Path(__file__).resolve().parent / "matrices" / "west0067.mtx.gz"


@pytest.mark.parametrize(
    ("kind", "size", "shape", "nonzeros"),
    [
        ("grid7", 4, 64, 7 * 64 - 6 * 16),
        ("grid27", 4, 64, 10**3),
        ("mesh", 700, 700, None),
    ],
)
def test_files_are_labelled_as_generated(kind, size, shape, nonzeros, tmp_path):
    path = tmp_path / "made.mtx"
    words = ["generate", kind, "--shape", str(size), "-o", str(path)]
    finished = commands.onesided(*words, ranks=2)
    assert finished.code == 0, finished
    assert f"{shape} x {shape}" in finished.out
    lines = path.read_text().splitlines()
    assert lines[1].startswith("% Generated")
    assert lines[2] == f"% onesided generate {kind} --shape {size} --seed 0"
    matrix = scipy.io.mmread(path, spmatrix=False).tocsr()
    assert matrix.shape == (shape, shape)
    assert nonzeros in (None, matrix.nnz)
    assert f"{matrix.nnz} nonzeros" in finished.out
    assert abs(matrix - matrix.T).sum() == 0
    one = tmp_path / "one.mtx"
    assert commands.onesided(*words[:-1], str(one)).code == 0
    assert one.read_bytes() == path.read_bytes()


def test_stores_are_labelled_as_generated(tmp_path):
    path = tmp_path / "made.h5"
    words = ["generate", "mesh", "--shape", "900", "--seed", "3", "-o", str(path)]
    finished = commands.onesided(*words, ranks=3)
    assert finished.code == 0, finished
    with h5py.File(path) as file:
        comments = list(file.attrs["comments"])
        parts = (file[name][:] for name in ("data", "indices", "indptr"))
        matrix = scipy.sparse.csr_array(tuple(parts), shape=file.attrs["shape"])
    assert comments[0].startswith("Generated")
    assert comments[1] == "onesided generate mesh --shape 900 --seed 3"
    expected = trace_mesh(MPI.COMM_SELF, 900, 3)
    assert matrix.shape == expected.shape
    assert abs(matrix - expected).sum() == 0
    words = ["spmv", str(path), "--iterations", "2", "--comm", "p2p"]
    assert commands.onesided(*words).code == 0
    finished = commands.onesided(*words, "--verify", ranks=2)
    assert finished.code == 2
    assert "Matrix Market" in finished.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["mesh", "--shape", "5", "-o", "made.txt"], "made.txt: its name must end with .mtx or"),
        (["mesh", "--shape", "0", "-o", "made.mtx"], "above zero"),
        (["mesh", "--shape", "5", "--seed", "-1", "-o", "made.mtx"], "--seed"),
        (["mesh", "--shape", "3000000000", "-o", "made.mtx"], "3000000000 triangles"),
        (["torus", "--shape", "5", "-o", "made.mtx"], "torus"),
        (["mesh", "--shape", "5", "-o", "nowhere/made.mtx"], "nowhere/made.mtx"),
        (["mesh", "--shape", "5"], "-o"),
    ],
)
def test_mistakes_are_one_sentence(words, complaint, tmp_path):
    words = [str(tmp_path / word) if "made" in word else word for word in words]
    finished = commands.onesided("generate", *words)
    assert finished.code == 2, finished
    assert complaint in finished.err
    assert len(finished.err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_the_picture_of_who_sends_how_much(tmp_path):
    image = pytest.importorskip("matplotlib.image", reason="the picture needs matplotlib")
    path = tmp_path / "traffic.png"
    words = ["spmv", str(MATRIX), "--iterations", "2", "--picture", str(path)]
    finished = commands.onesided(*words, ranks=3)
    assert finished.code == 0, finished
    assert len(np.unique(image.imread(path).reshape(-1, 4), axis=0)) > 20
    finished = commands.onesided(*words[:-1], str(tmp_path / "traffic.xyz"))
    assert finished.code == 2
    assert "traffic.xyz" in finished.err


@pytest.mark.parametrize("how", ["metis", "rcm"])
def test_products_of_reordered_matrices_are_verified_in_the_order_of_the_file(how):
    if how == "metis":
        pytest.importorskip("pymetis", reason="the METIS partition needs pymetis")
    words = ["spmv", str(MATRIX), "--partition", how, "--iterations", "2", "--verify"]
    finished = commands.onesided(*words, "--comm", "p2p", ranks=3)
    assert finished.code == 0, finished
    assert "Verified with SciPy" in finished.out
