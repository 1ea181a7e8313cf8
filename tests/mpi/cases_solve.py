"""``onesided solve`` and ``onesided pagerank`` inside a job: solvers, sides, files, mistakes."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
from cases import need, parameters, skip
from mpi4py import MPI
from scipy.sparse import csr_array

from onesided import sparse
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.main import build_parser
from onesided.apps.solvers import pagerank, solve
from onesided.apps.solvers.options import PRECONDITIONERS, SOLVERS
from onesided.sparse.solvers.space import start_block

MATRICES = Path(__file__).resolve().parents[1] / "matrices"
COMMANDS = {"solve": solve, "pagerank": pagerank}


def path_of(name):
    return str(MATRICES / f"{name}.mtx.gz")


def whole_of(name):
    return csr_array(scipy.io.mmread(path_of(name)))


class Folder:
    """A folder that all ranks see, gone at the end."""

    def __init__(self, comm):
        self._comm = comm
        self.path = Path(comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None))

    def __enter__(self):
        return self.path

    def __exit__(self, *error):
        if error[0] is None:
            self._comm.Barrier()
        if self._comm.rank == 0:
            shutil.rmtree(self.path)


def run(comm, folder, command, name, *words):
    """Exit code of the command, what it wrote as JSON, and the solution that it wrote."""
    files = ["--json", str(folder / "out.json"), "--output", str(folder / "out.h5")]
    words = [command, path_of(name), "--comm", "p2p", *files, *words]
    code = COMMANDS[command].run(comm, build_parser().parse_args(words))
    found = None
    if comm.rank == 0:
        facts = json.loads((folder / "out.json").read_text())
        with h5py.File(folder / "out.h5") as file:
            found = facts, file["x"][...], dict(file["x"].attrs)
    return code, *comm.bcast(found)


@parameters(solver=[*SOLVERS], precond=[*PRECONDITIONERS])
def case_solvers(comm, solver, precond):
    if precond != "none" and not SOLVERS[solver].preconditioned:
        skip(f"{solver} takes no preconditioner")
    words = ["--solver", solver, "--precond", precond, "--rtol", "1e-8", "--rhs", "random"]
    with Folder(comm) as folder:
        code, facts, x, attributes = run(comm, folder, "solve", "Trefethen_20b", *words)
    assert code == 0
    whole = whole_of("Trefethen_20b")
    b = start_block((0, 19), np.dtype(float))
    np.testing.assert_allclose(whole @ x, b, atol=1e-7 * np.linalg.norm(b))
    assert attributes == {
        "solver": solver,
        "precond": precond,
        "rhs": "random",
        "reason": "converged",
    }
    outcome = facts["pattern"]["outcomes"]["p2p"]
    assert outcome["converged"] is True
    assert len(outcome["residuals"]) == outcome["iterations"] + 1
    assert facts["verified"] is True


@parameters(partition=["rcm", "metis"], command=["solve", "pagerank"])
def case_permuted_rows_do_not_show(comm, partition, command):
    if partition == "metis":
        need("pymetis")
    name = "bcsstk01" if command == "solve" else "wiki-Vote"
    solving = ["--precond", "jacobi", "--rtol", "1e-12", "--rhs", "random"]
    words = solving if command == "solve" else ["--atol", "1e-12", "--verify"]
    with Folder(comm) as folder:
        results = [
            run(comm, folder, command, name, "--partition", how, *words)
            for how in ("rows", partition)
        ]
    assert results[0][0] == results[1][0] == 0
    x, y = results[0][2], results[1][2]
    assert np.linalg.norm(x - y) < 1e-6 * np.linalg.norm(x)
    if command == "pagerank":
        places = [[row["node"] for row in facts["top"]] for _, facts, _, _ in results]
        assert places[0] == places[1]
        assert len(places[0]) == 10


@parameters(kind=["npy", "mtx", "h5"])
def case_sides_from_files(comm, kind):
    b = np.cos(np.arange(48.0))
    with Folder(comm) as folder:
        path = folder / f"side.{kind}"
        if comm.rank == 0:
            if kind == "npy":
                np.save(path, b)
            elif kind == "mtx":
                scipy.io.mmwrite(path, b[:, None], precision=17)
            else:
                with h5py.File(path, "w") as file:
                    file["x"] = b
        comm.Barrier()
        words = ["--rhs", str(path), "--precond", "jacobi", "--rtol", "1e-10", "--comm", "p2p,mpi"]
        code, facts, x, _ = run(comm, folder, "solve", "bcsstk01", *words)
    assert code == 0
    assert [row["labels"]["method"] for row in facts["rows"]] == ["p2p", "mpi"]
    np.testing.assert_allclose(whole_of("bcsstk01") @ x, b, atol=1e-8)


def case_least_squares(comm):
    words = ["--solver", "lsqr", "--rhs", "random"]
    with Folder(comm) as folder:
        code, facts, x, _ = run(comm, folder, "solve", "ash219", *words)
    assert code == 0
    whole = whole_of("ash219").astype(float).toarray()
    expected = np.linalg.lstsq(whole, start_block((0, 219), np.dtype(float)), rcond=None)[0]
    np.testing.assert_allclose(x, expected, atol=1e-4)
    assert facts["pattern"]["outcomes"]["p2p"]["reason"] == "converged: least squares"


def case_a_solution_that_is_not_there(comm):
    """Nor at once where it goes on from there, on fewer ranks, which begins with its residual."""
    fewer: Any = comm.Split(0 if comm.rank < max(1, comm.size - 1) else MPI.UNDEFINED)
    with Folder(comm) as folder:
        words = ["solve", "bcsstk01", "--precond", "jacobi", "--partition", "rcm", "--maxiter"]
        code, facts, x, attributes = run(comm, folder, *words, "30")
        assert code == 1
        assert facts["verified"] is False
        assert attributes["reason"] == "iteration limit"
        comm.Barrier()
        if fewer != MPI.COMM_NULL:
            restart = ["--restart", str(folder / "out.h5")]
            code, facts, y, _ = run(fewer, folder, *words, "300", *restart)
            assert code == 0
            rest = np.linalg.norm(1 - whole_of("bcsstk01") @ x)
            np.testing.assert_allclose(facts["pattern"]["outcomes"]["p2p"]["residuals"][0], rest)
            assert np.linalg.norm(1 - whole_of("bcsstk01") @ y) < 1e-5 * rest
            fewer.Free()


class Off:
    """A solver that says it converged, with a solution that is a little off."""

    def __init__(self, solver):
        self._solver = solver

    def __call__(self, *arguments, **how):
        found = self._solver(*arguments, **how)
        found.x[:] *= 1.001
        return found


def case_wrong_solutions_are_noticed(comm):
    before = sparse.cg, pagerank.pagerank
    sparse.cg = Off(before[0])
    pagerank.pagerank = Off(before[1])
    try:
        with Folder(comm) as folder:
            words = ["--precond", "jacobi"]
            codes = [run(comm, folder, "solve", "bcsstk01", *words)[0]]
            codes.append(run(comm, folder, "pagerank", "karate", "--verify")[0])
    finally:
        sparse.cg, pagerank.pagerank = before
    assert codes == [1, 1]


def case_top(comm):
    with Folder(comm) as folder:
        code, facts, x, _ = run(comm, folder, "pagerank", "karate", "--verify", "--top", "4")
    assert code == 0
    assert abs(x.sum() - 1) < 1e-12
    order = np.argsort(-x, kind="stable")[:4]
    assert [row["node"] for row in facts["top"]] == (order + 1).tolist()
    assert [row["place"] for row in facts["top"]] == [1, 2, 3, 4]
    np.testing.assert_array_equal([row["rank"] for row in facts["top"]], x[order])


MISTAKES = {
    "no side": ("solve", "bcsstk01", ["--rhs", "none.npy"], "none.npy: No such file"),
    "short side": ("solve", "bcsstk01", ["--rhs", path_of("west0067")], "array of shape"),
    "preconditioner": ("solve", "ash219", ["--solver", "lsqr", "--precond", "ilu"], "takes no"),
    "diagonal": ("solve", "west0067", ["--precond", "jacobi"], "diagonal has 0"),
    "omega": ("solve", "bcsstk01", ["--precond", "ssor", "--omega", "2"], "omega is 2.0"),
    "rectangle": ("solve", "ash219", [], "cg needs a square matrix"),
    "method": ("solve", "bcsstk01", ["--comm", "rma-magic"], "no method 'rma-magic'"),
    "links": ("pagerank", "bcsstk01", [], "below zero"),
    "complex links": ("pagerank", "young1c", [], "complex"),
}


@parameters(mistake=list(MISTAKES))
def case_mistake(comm, mistake):
    command, name, words, fragment = MISTAKES[mistake]
    options = build_parser().parse_args([command, path_of(name), *words])
    if options.comm == "auto":
        options.comm = "p2p"
    with pytest.raises(CommandError, match=fragment):
        COMMANDS[command].run(comm, options)


def case_an_image(comm):
    need("matplotlib")
    with Folder(comm) as folder:
        path = folder / "out.png"
        run(comm, folder, "solve", "Trefethen_20b", "--picture", str(path))
        assert path.read_bytes().startswith(b"\x89PNG")
