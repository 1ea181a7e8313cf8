"""The benchmark of the sparse matrix: its table of targets, PETSc beside it, and its report."""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from pathlib import Path

import commands
import mpi_harness
import numpy as np
import pytest
import servers
from mpi4py import MPI

from onesided.apps.bench.foreign import Foreign, ForeignError, Program, clean_environment
from onesided.apps.cli.report import compared, conclusions
from onesided.apps.cli.statistics import Target
from onesided.apps.tools import petsc
from onesided.apps.tools.petsc import Installation, Petsc, installed, question
from onesided.apps.tools.rowblock import RowBlock
from onesided.apps.tools.spmv import vector
from onesided.apps.tools.spmv_contest import PETSC, SCIPY, core_cache, product_aims
from onesided.sparse import stencil27

MATRICES = mpi_harness.TESTS / "matrices"
LARGE = 60_000  # entries; of the matrices of the tests wiki-Vote alone has more
QUICK = ["--iterations", "2", "--quick"]


def bench(path, *words, ranks=2, env=None):
    arguments = ["bench", "spmv", "--targets", *QUICK, *words, "--json", str(path)]
    outcome = servers.run("-m onesided.apps", ranks, *arguments, env=env, timeout=200)
    assert outcome.kind == "pass", outcome.report()
    return outcome, json.loads(path.read_text())


@functools.cache
def petsc_here() -> Installation | str:
    """PETSc as it is installed here, or why it cannot be had."""
    try:
        return installed()
    except ForeignError as error:
        return str(error)


def need_petsc() -> Installation:
    found = petsc_here()
    if isinstance(found, str):
        pytest.skip(f"PETSc: {found}")
    return found


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """The suite on one real matrix and small made ones."""
    path = tmp_path_factory.mktemp("suite") / "suite.json"
    return bench(path, "--matrices", str(MATRICES), "--entries", str(LARGE))


def test_the_suite_compares_every_matrix(suite):
    outcome, content = suite
    matrices = content["pattern"]["matrices"]
    made = ["27-point 8^3", "trace mesh 15625, generated"]
    assert list(matrices) == ["wiki-Vote", *made]
    assert [each["generated"] for each in matrices.values()] == [False, True, True]
    assert matrices["27-point 8^3"]["nonzeros"] == stencil27(8).nnz
    for name in matrices:
        rows = [row for row in content["rows"] if row["labels"]["case"] == name and "reason" not in row]
        pairs = {(row["labels"]["method"], row["labels"]["opponent"]) for row in rows}
        assert pairs >= {("mpi", SCIPY), ("rma-notify", SCIPY), ("rma-notify", "mpi")}
        assert ("mpi", "mpi") not in pairs
    for row in content["rows"]:
        if "reason" not in row:
            of_opponent = 0 if row["labels"]["opponent"] == "15 us" else row["iterations"]
            assert len(row["times_s"]) == row["iterations"] > 0
            assert len(row["opponents_times_s"]) == of_opponent
            assert row["reached"] > 0
            assert row["target"] is None  # they hold for the sizes of the table
    assert "no targets are set for --quick" in outcome.stdout


def test_the_suite_has_the_halo_cg_and_reading(suite):
    _, content = suite
    cases = {row["labels"]["case"]: row for row in content["rows"]}
    assert cases["halo, 64 doubles"]["opponent"] == "15 us"
    assert cases["CG, 27-point 8^3"]["opponent"] == "product + vectors"
    rows = [row for row in content["rows"] if row["labels"]["case"] == "reading 78120 entries"]
    assert [row["labels"]["method"] for row in rows if row["labels"]["opponent"] == "mmread"] == [
        "rma-notify, read",
        "read, entries alone",
    ]
    assert all(row["bytes"] > 78120 * 10 for row in rows if "reason" not in row)


def test_petsc_takes_turns_with_ours(suite):
    need_petsc()
    _, content = suite
    for facts in content["pattern"]["matrices"].values():
        assert facts["PETSc"]["ranks"] == 2
        assert facts["PETSc"]["error"] < 1e-13
        assert facts["PETSc"]["type"] == "mpiaij"
    rows = [row for row in content["rows"] if row["labels"]["opponent"] == PETSC]
    assert len(rows) == 2 * 3
    assert all(row["parts"]["opponent's"] > 0 for row in rows)


def test_without_petsc_and_a_folder_the_suite_says_so(tmp_path):
    words = ["--comm", "p2p"]
    env = {"PATH": str(tmp_path), "ONESIDED_MATRICES": ""}
    outcome, content = bench(tmp_path / "suite.json", *words, env=env)
    absent = [row for row in content["rows"] if "reason" in row]
    assert [row["labels"]["opponent"] for row in absent] == [PETSC] * 2
    assert all("petsc4py with real scalars" in row["reason"] for row in absent)
    assert "--matrices name none" in outcome.stdout
    methods = {row["labels"]["method"] for row in content["rows"] if "reason" not in row}
    assert methods == {"mpi", "p2p", "p2p, read", "read, entries alone"}


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path):
    folder = str(tmp_path / "nothing")
    finished = commands.onesided("bench", "spmv", "--targets", *QUICK, "--matrices", folder)
    assert finished.code == 2, finished
    assert len(finished.sentences) == 1
    assert folder in finished.sentences[0]


def test_what_a_product_has_to_reach():
    aims = product_aims("rma-notify", 40 << 20, 2 << 20)
    assert {name: wanted for name, (_, wanted) in aims.items()} == {
        PETSC: True,
        "mpi": True,
        SCIPY: True,
    }
    assert [aim.bound for aim, _ in aims.values()] == [0.85, 1.02, 1.7]
    other = product_aims("p2p", 1 << 20, 2 << 20)
    assert {name: wanted for name, (_, wanted) in other.items()} == {
        PETSC: True,
        "mpi": False,
        SCIPY: False,
    }


def test_what_was_missed_is_said():
    faster, slower = Target(SCIPY, 2.0), Target(PETSC, 0.8, least=False)
    labels = {"case": "wave", "method": "rma-notify"}
    rows = [
        compared(labels, [1.0, 2.0, 1.0], [3.0, 2.0, 9.0], faster, wanted=True),
        compared(labels, [1.0, 1.0], [1.0, 1.0], slower, wanted=True),
        compared(labels, [1.0], [0.5], slower, wanted=False),
    ]
    assert [row.reached.median for row in rows] == [3.0, 1.0, 2.0]
    assert conclusions(rows, "nothing") == [
        "1 of 2 targets reached",
        "missed: wave rma-notify against PETSc: 1.00, at most 0.80 is wanted",
    ]
    assert conclusions(rows[2:], "nothing") == ["nothing"]


def test_the_cache_of_a_core_is_the_largest_that_is_not_shared(tmp_path):
    cores = {"index0": ("48K", "0"), "index2": ("1024K", "0,2"), "index3": ("32M", "0-3")}
    folder = tmp_path / "cache"
    for name, (size, shared) in cores.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "size").write_text(f"{size}\n")
        (folder / name / "shared_cpu_list").write_text(f"{shared}\n")
    assert core_cache(folder) == 48 << 10
    (tmp_path / "topology").mkdir()
    (tmp_path / "topology" / "thread_siblings_list").write_text("0,2\n")
    assert core_cache(folder) == 1 << 20
    assert core_cache(tmp_path / "nothing") == 2 << 20


# -- a program of another MPI ----------------------------------------------------------------------


def launcher(folder: Path, text: str) -> Path:
    """An executable that plays mpiexec: it takes ``-n N`` away and runs the rest."""
    path = folder / "mpiexec"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exit 0\nshift 2\n{text}\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo trouble >&2; exit 3", "the program ended: trouble"),
        ("exit 0", "it said nothing"),
        ("echo '{broken'", "does not begin as it should"),
        ("echo '{\"ranks\": 3}'", "started on 1 ranks, and says"),
    ],
)
def test_a_program_that_does_not_start_is_a_reason(text, reason, tmp_path):
    program = Program(launcher(tmp_path, text), ["nothing"])
    with pytest.raises(ForeignError, match=reason):
        Foreign(MPI.COMM_SELF, lambda folder: program)


def test_a_program_is_asked_in_turns_and_ends(tmp_path):
    text = "echo noise\necho '{\"ranks\": 1}'\nwhile read line; do echo $1; done\necho > $2"
    over = tmp_path / "over"
    program = Program(launcher(tmp_path, text), ["0.25", str(over)])
    foreign = Foreign(MPI.COMM_SELF, lambda folder: program)
    foreign.run("one")
    foreign.run("other")
    foreign.run("one")
    assert foreign.times("one", 2) == [0.25, 0.25]
    assert foreign.times("other", 5) == [0.25]
    foreign.close()
    foreign.close()
    assert over.exists()
    with pytest.raises(ForeignError, match="before close"):
        foreign.run("one")


def test_a_program_that_ends_early_is_an_error(tmp_path):
    program = Program(launcher(tmp_path, "echo '{\"ranks\": 1}'; echo it broke >&2"), [])
    foreign = Foreign(MPI.COMM_SELF, lambda folder: program)
    with pytest.raises(ForeignError, match="the program ended: it broke"):
        foreign.run("one")
    foreign.close()


def test_nothing_of_our_launcher_reaches_the_other_job(monkeypatch):
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    monkeypatch.setattr(sys, "prefix", "/ours")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/ours/lib:/other/lib:")
    env = clean_environment(Path("/somewhere"))
    assert not {"PMI_RANK", "OMPI_COMM_WORLD_RANK"} & set(env)
    assert env["PATH"].startswith("/somewhere" + os.pathsep)
    assert env["LD_LIBRARY_PATH"] == "/other/lib"
    monkeypatch.setenv("LD_LIBRARY_PATH", "/ours/lib")
    assert "LD_LIBRARY_PATH" not in clean_environment(Path("/somewhere"))


# -- PETSc -----------------------------------------------------------------------------------------


def test_pythons_of_the_environment_itself_are_left_out():
    assert all(Path(sys.prefix) not in path.parents for path in petsc.pythons())


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("echo 'No module named petsc4py' >&2; exit 1", "No module named petsc4py"),
        (
            'echo \'{"scalar": "complex128", "mpicc": "", "library": ""}\'',
            "scalars are complex128",
        ),
        (
            'echo \'{"scalar": "float64", "mpicc": "", "library": "Open MPI v9"}\'',
            "no launcher of Open MPI v9",
        ),
    ],
)
def test_a_python_without_what_is_needed_is_a_reason(answer, reason, monkeypatch, tmp_path):
    (tmp_path / "python3").write_text(f"#!/bin/sh\n{answer}\n")
    (tmp_path / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ForeignError, match=f"are not there: {tmp_path}/python3: .*{reason}"):
        installed()


def block() -> RowBlock:
    return RowBlock.even(MPI.COMM_SELF, stencil27(6))


def test_petsc_sleeps_until_it_is_asked():
    x = vector(0, 216, np.dtype(float))
    job = Petsc(MPI.COMM_SELF, need_petsc(), block(), x)
    asked = question(3, 0.01)
    began = time.perf_counter()
    job.run(asked)
    assert time.perf_counter() - began > 0.01  # the lead
    (seconds,) = job.times(asked, 1)
    assert 0 < seconds < 0.01
    assert job.facts["error"] < 1e-14
    job.close()


def test_a_wrong_product_is_found(monkeypatch):
    here = need_petsc()
    monkeypatch.setattr(petsc, "_error", lambda *given: 1e-9)
    with pytest.raises(ForeignError, match=r"relative error of 1\.0e-09"):
        Petsc(MPI.COMM_SELF, here, block(), vector(0, 216, np.dtype(float)))


def test_the_checksums_tell_a_wrong_product_from_a_right_one():
    x = vector(0, 216, np.dtype(float))
    y = stencil27(6) @ x
    weights = np.cos(np.arange(216))
    right = float(np.linalg.norm(y)), float(weights @ y)
    assert petsc._error(block(), x, 0, *right) < 1e-15
    assert petsc._error(block(), x, 0, right[0], right[1] * (1 + 1e-9)) > 1e-13
    y[5] += 1e-6
    wrong = float(np.linalg.norm(y)), float(weights @ y)
    assert petsc._error(block(), x, 0, *wrong) > 1e-13


def test_other_dtypes_are_not_compared():
    whole = RowBlock.even(MPI.COMM_SELF, stencil27(3).astype(np.float32))
    with pytest.raises(ForeignError, match="float64 alone, the matrix is float32"):
        Petsc(MPI.COMM_SELF, None, whole, vector(0, 27, np.dtype(np.float32)))
