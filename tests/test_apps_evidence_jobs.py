"""Applications end to end, and all experiments at once: what runs beside our own job."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import commands
import mpi_harness
import numpy as np
import pytest
import servers
from mpi4py import MPI

from onesided.apps.bench.foreign import ForeignError
from onesided.apps.bench.job import Ended, run_job
from onesided.apps.cli.commands import COMMANDS
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.main import build_parser
from onesided.apps.cli.options import FolderName, Options
from onesided.apps.cli.report import check_files
from onesided.apps.papers import applications, everything
from onesided.apps.papers.everything import EXPERIMENTS, REPORT, Experiment
from onesided.apps.tools.petsc import (
    Installation,
    Petsc,
    cg_question,
    installed,
    question,
    residual_question,
)
from onesided.apps.tools.rowblock import RowBlock
from onesided.apps.tools.spmv import vector
from onesided.sparse import stencil27

MATRICES = mpi_harness.TESTS / "matrices"
DONE = Ended("done", 1.0)
PIPES = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
SMALL = ["--shape", "6", "6", "6", "--maxiter", "6", "--iterations", "2"]


def apps(ranks, path, *words, env=None):
    arguments = ["bench", "apps", *SMALL, *words, "--json", str(path)]
    outcome = servers.run("-m onesided.apps", ranks, *arguments, timeout=150, env=env)
    assert outcome.kind == "pass", outcome.report()
    return outcome, json.loads(path.read_text())


def check(content, peer):
    """Every row is of one application, right, and its parts are its whole."""
    for row in content["rows"]:
        if "reason" in row or row["labels"]["method"] in (peer, "mpi4py-fft"):
            continue
        assert row["verified"] is True
        assert row["setup_s"] > 0
        parts = row["parts"]
        assert set(parts) == {"communication", "compute"}
        assert parts["communication"] > 0
        assert min(row["times_s"]) <= sum(parts.values()) * 1.5


def test_applications_without_petsc_are_right_and_taken_apart(tmp_path):
    words = ["--comm", "p2p,rma-fence,auto"]
    _, content = apps(2, tmp_path / "apps.json", *words, env={"PATH": str(tmp_path)})
    names = [(row["labels"]["application"], row["labels"]["method"]) for row in content["rows"]]
    ours = ["mpi", "p2p", "rma-fence", "auto"]
    assert names == [
        *(("FFT r2c 6x6x6", name) for name in [*ours, "mpi4py-fft"]),
        *(("CG 27-point 6^3", name) for name in [*ours, "PETSc"]),
    ]
    reasons = {row["labels"]["method"]: row["reason"] for row in content["rows"] if "reason" in row}
    assert "petsc4py with real scalars" in reasons.pop("PETSc")
    assert set(reasons) <= {"mpi4py-fft"}
    check(content, "PETSc")


def need_petsc() -> Installation:
    try:
        return installed()
    except ForeignError as error:
        pytest.skip(f"PETSc: {error}")


@pytest.mark.full
def test_petsc_takes_part(tmp_path):
    need_petsc()
    words = ["--applications", "cg", "--comm", "p2p", "--matrix"]
    matrix = str(MATRICES / "bcsstk01.mtx.gz")
    _, content = apps(2, tmp_path / "apps.json", *words, matrix)
    rows = {row["labels"]["method"]: row for row in content["rows"]}
    assert set(rows) == {"mpi", "p2p", "PETSc"}
    assert rows["PETSc"]["verified"] is True
    assert rows["p2p"]["ratios"]["PETSc"] > 0
    assert {row["labels"]["application"] for row in content["rows"]} == {"CG bcsstk01.mtx.gz"}
    check(content, "PETSc")


def test_petsc_solves_the_same_system():
    block = RowBlock.even(MPI.COMM_SELF, stencil27(6))
    x = vector(0, 216, np.dtype(float))
    job = Petsc(MPI.COMM_SELF, need_petsc(), block, x)
    try:
        for asked in (cg_question(9, 0.0), residual_question(), question(2, 0.0)):
            job.run(asked)
        (seconds,) = job.times(cg_question(9, 0.0), 1)
        (error,) = job.times(residual_question(), 1)
        assert 0 < seconds < 1
        assert 0 <= error < 1e-12
    finally:
        job.close()


def test_too_many_iterations_are_a_mistake():
    words = ["--applications", "cg", "--shape", "2", "--maxiter", "100", "--comm", "p2p"]
    chosen = build_parser().parse_args(["bench", "apps", *words])
    with pytest.raises(CommandError, match="conjugate gradients ended after"):
        applications.run(MPI.COMM_SELF, chosen)


# -- a job of its own ------------------------------------------------------------------------------


@pytest.mark.full
def test_a_job_leaves_a_whole_result_and_what_it_printed(tmp_path):
    target = tmp_path / "one.json"
    words = ["bench", "alltoallv", "--sizes", "64", "--iterations", "1", "--comm", "p2p"]
    ended = run_job(words, 2, target, 90)
    assert (ended.state, ended.reason) == ("done", "")
    assert json.loads(target.read_text())["command"] == "bench alltoallv"
    assert "2 ranks" in (tmp_path / "one.log").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.json", "one.log"]


@pytest.mark.full
def test_a_job_that_fails_leaves_no_result(tmp_path):
    target = tmp_path / "one.json"
    target.write_text("of a run before")
    ended = run_job(["fft", "--comm", "rma-magic"], 1, target, 90)
    assert ended.state == "failed"
    assert ended.reason.startswith("exit code 2: onesided: no method 'rma-magic'")
    assert [path.name for path in tmp_path.iterdir()] == ["one.log"]


def test_a_job_that_takes_too_long_is_ended(tmp_path):
    target = tmp_path / "one.json"
    words = ["fft", "--shape", "64", "64", "64", "--iterations", "1000000", "--seconds", "200"]
    ended = run_job(words, 2, target, 2)
    assert ended.state == "ended"
    assert ended.reason == "not done after 2 s"
    assert ended.seconds < 60
    assert not _running(target, "")
    assert not target.exists()


def _read(path: Path) -> str:
    try:
        return path.read_text().replace("\0", " ")
    except OSError:
        return ""


# -- all at once -----------------------------------------------------------------------------------


def options(output, **given):
    usual = {"quick": True, "ranks": 1, "only": None, "limit": None, "matrices": None}
    found = Options(output=FolderName(output), **(usual | given))
    check_files(MPI.COMM_SELF, found)
    return found


@pytest.fixture
def table(monkeypatch):
    """One that works, one that fails, one that is not there; and no report."""
    experiments = (
        Experiment("good", "fft", "nothing", quick="--shape 4 4 --comm p2p --iterations 1"),
        Experiment("bad", "fft", "nothing", quick="--comm rma-magic"),
        Experiment("absent", "bench abacus", "nothing"),
    )
    monkeypatch.setattr(everything, "EXPERIMENTS", experiments)
    monkeypatch.setattr(everything, "REPORT", Experiment("report", "abacus", "all"))


def rows_of(output):
    content = json.loads((output / "manifest.json").read_text())
    assert content["command"] == "bench all"
    assert str(output) not in json.dumps(content["settings"])
    return content, {row["labels"]["experiment"]: row for row in content["rows"]}


def test_after_a_failure_the_others_go_on(table, tmp_path, capsys):
    output = tmp_path / "new" / "results"
    chosen = options(output, only=["bad", "good", "absent"])
    assert everything.run(MPI.COMM_SELF, chosen) == 1
    content, rows = rows_of(output)
    assert list(rows) == ["bad", "good", "absent"]
    assert {name: row["labels"]["state"] for name, row in rows.items()} == {
        "bad": "failed",
        "good": "done",
        "absent": "left out",
    }
    assert "no method 'rma-magic'" in rows["bad"]["reason"]
    assert "this version has no command 'bench abacus'" in rows["absent"]["reason"]
    assert content["pattern"]["files"] == {"good": "good.json"}
    assert json.loads((output / "good.json").read_text())["command"] == "fft"
    printed = capsys.readouterr().out
    assert "[1/3] bad: failed" in printed
    assert "[3/3] absent: left out: this version" in printed


def test_what_is_not_there_is_no_failure(table, tmp_path, capsys):
    assert everything.run(MPI.COMM_SELF, options(tmp_path, only=["absent"])) == 0


def test_without_matplotlib_pictures_are_named_as_skipped(table, tmp_path, monkeypatch, capsys):
    given = []
    drawing = Experiment("draws", "fft", "nothing", draws=True)
    monkeypatch.setattr(everything, "EXPERIMENTS", (drawing,))
    monkeypatch.setattr(everything, "run_job", lambda words, *_: given.append(words) or DONE)
    for draws in (object(), None):
        monkeypatch.setattr(everything, "find_spec", lambda name, draws=draws: draws)
        assert everything.run(MPI.COMM_SELF, options(tmp_path)) == 0
    assert given == [["fft", "--picture", str(tmp_path / "draws.png")], ["fft"]]
    content, _ = rows_of(tmp_path)
    assert "matplotlib is not installed" in content["pattern"]["pictures"]
    assert "pictures are skipped" in capsys.readouterr().out


def test_when_the_time_of_a_quick_run_is_over_the_rest_is_left_out(table, tmp_path, monkeypatch):
    monkeypatch.setattr(everything, "QUICK_SECONDS", 0.0)
    assert everything.run(MPI.COMM_SELF, options(tmp_path)) == 1
    _, rows = rows_of(tmp_path)
    assert rows["good"]["reason"] == "the 0 s of --quick are over"


def test_an_interrupt_leaves_a_manifest(table, tmp_path, monkeypatch):
    def interrupted(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(everything, "run_job", interrupted)
    with pytest.raises(KeyboardInterrupt):
        everything.run(MPI.COMM_SELF, options(tmp_path))
    _, rows = rows_of(tmp_path)
    assert {row["reason"] for row in rows.values()} == {"interrupted"}


@pytest.mark.full
def test_asked_to_end_it_leaves_no_job_behind(tmp_path):
    words = ["bench", "all", "-o", str(tmp_path), "--only", "alltoallv", "apps"]
    line = [sys.executable, "-m", "onesided.apps", *words]
    with subprocess.Popen(line, env=commands.clean_environment(), text=True, **PIPES) as process:
        deadline = time.monotonic() + 60
        while not _running(tmp_path, "--json") and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(2.0)
        process.terminate()
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error == "onesided: interrupted\n"
    assert not _running(tmp_path, "")
    _, rows = rows_of(tmp_path)
    assert {row["reason"] for row in rows.values()} == {"interrupted"}
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".log"]


def _running(folder: Path, word: str) -> list[Path]:
    """Processes whose command has the folder and a word."""
    found = [(path, _read(path)) for path in Path("/proc").glob("[0-9]*/cmdline")]
    return [path for path, text in found if str(folder) in text and word in text]


@pytest.mark.parametrize(
    ("given", "fragment"),
    [
        ({"only": ["abacus"]}, "no experiment 'abacus'; they are alltoallv, "),
        ({"matrices": ["none.mtx"]}, "none.mtx: No such file"),
        ({"output": "FILE"}, "File exists"),
    ],
    ids=["only", "matrices", "output"],
)
def test_a_mistake_is_found_before_the_first_job(given, fragment, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    output = file if given.pop("output", None) else tmp_path
    with pytest.raises(CommandError, match=fragment):
        everything.run(MPI.COMM_SELF, options(output, **given))


@pytest.mark.full
def test_inside_a_job_it_refuses(tmp_path):
    finished = commands.onesided("bench", "all", "-o", str(tmp_path), ranks=2)
    assert finished.code == 2, finished
    assert "run it without mpiexec" in finished.sentences[0]


@pytest.mark.parametrize("quick", [True, False], ids=["quick", "whole"])
def test_every_command_takes_the_words_that_it_is_given(quick):
    known = {command.name for command in COMMANDS}
    places = {"{matrices}": ["one.mtx"], "{ranks}": ["2"]}
    taken = [each for each in (*EXPERIMENTS, REPORT) if each.command in known]
    assert {"bench alltoallv", "bench patterns", "bench apps", "bench broadcast"} <= {
        each.command for each in taken
    }
    for each in taken:
        words = each.arguments(quick, places)
        words += ["--picture", "file.png"] if each.draws else []
        words += [] if each is REPORT else ["--ranks", "2", "--json", "file"]
        assert build_parser().parse_args(words).command.name == each.command
    wanted = sum(each.expected(True) for each in EXPERIMENTS)
    assert wanted < everything.QUICK_SECONDS


def test_with_less_time_less_is_measured():
    one = Experiment("one", "fft", "nothing", seconds=(100.0, 10.0))
    assert one.arguments(True, {}) == ["fft", "--seconds", "10"]
    assert one.arguments(True, {}, 0.75) == ["fft", "--seconds", "6.5"]
    assert one.arguments(True, {}, 0.1) == ["fft", "--seconds", "1"]
    assert one.arguments(False, {}) == ["fft", "--seconds", "100"]
    assert one.limit(True) < one.limit(False)
    long = Experiment("long", "fft", "nothing", takes=(7200.0, 20.0))
    assert long.arguments(True, {}, 0.5) == long.arguments(False, {}) == ["fft"]
    assert long.limit(False) > 7200.0
    assert 20.0 < long.limit(True) < everything.QUICK_SECONDS
    assert Experiment("two", "fft", "nothing", least=4, most=8).ranks(2) == 4
    assert Experiment("two", "fft", "nothing", least=4, most=8).ranks(64) == 8
