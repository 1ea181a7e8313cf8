"""The benchmark of the FFT: what it compares with, its table of targets, and its report."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import commands
import numpy as np
import pytest
import scipy.fft
import servers
from mpi4py import MPI

from onesided.apps.bench.foreign import ForeignError
from onesided.apps.cli.report import any_missed, compared
from onesided.apps.cli.statistics import Target
from onesided.apps.tools import fftw_mpi
from onesided.apps.tools.fft_contest import CASES, FFTW_MPI, LOCAL, PEER, cases
from onesided.apps.tools.fftw_mpi import FftwMpi
from onesided.apps.tools.local_work import LocalWork
from onesided.pencilfft import PFFT

SHAPE = ["--shape", "12", "10", "9", "--iterations", "2"]


def bench(ranks, path, *words):
    arguments = ["bench", "fft", *words, "--json", str(path)]
    outcome = servers.run("-m onesided.apps", ranks, *arguments, timeout=200)
    assert outcome.kind == "pass", outcome.report()
    return outcome, json.loads(path.read_text())


def test_a_target_is_a_median_of_ratios_and_a_bound():
    faster, slower = Target(PEER, 2.0), Target(LOCAL, 0.95, least=False)
    assert faster.reached([1.0, 2.0, 1.0], [3.0, 2.0, 9.0]) == 3.0
    assert slower.reached([1.0, 2.0, 1.0], [4.0, 2.0, 2.0]) == 0.5
    assert [faster.met(2.0), faster.met(1.99)] == [True, False]
    assert [slower.met(0.95), slower.met(0.96)] == [True, False]


def test_what_is_missed_is_a_target():
    def row(theirs, wanted):
        return compared({}, [1.0], [theirs], Target(PEER, 2.0), wanted=wanted)

    assert any_missed([row(3.0, True), row(1.9, True)])
    assert not any_missed([row(3.0, True), row(1.9, False)])


def test_the_table_has_targets_for_two_and_four_ranks_only():
    assert len({case.name for case in cases(2, 1)}) == len(cases(2, 1)) == 8
    assert [case.grid for case in cases(4, 1)] == [(2, 2)]
    assert all(case.targets for case in (*cases(2, 1), *cases(4, 1)))
    other = cases(3, 1)
    assert len(other) == 8
    assert not any(case.targets or case.setups for case in other)
    assert [case.shape for case in cases(4, 8)] == [(16, 16, 16)]
    assert not cases(4, 8)[0].targets
    assert {target.opponent for case in CASES for target in case.targets} == {PEER, LOCAL, FFTW_MPI}


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.full)])
def test_the_suite_compares_every_case(ranks, tmp_path):
    words = ["--targets", "--quick", "--iterations", "1", "--comm", "rma-notify"]
    words += ["--against", "mpi4py-fft", "local-work", "--strict"]
    outcome, content = bench(ranks, tmp_path / "suite.json", *words)
    expected = {case.name for case in cases(ranks, 16)}
    assert len(expected) == {2: 8, 4: 1}[ranks]
    assert {row["labels"]["case"] for row in content["rows"]} == expected == set(content["pattern"]["plans"])
    for row in content["rows"]:
        assert len(row["times_s"]) == row["iterations"] > 0
        assert row["reached"] > 0
        assert row["target"] is None  # they hold for the shapes of the table
    local = [row for row in content["rows"] if row["labels"]["opponent"] == LOCAL]
    assert len(local) == 2 * len(expected)
    assert "no targets are set" in outcome.stdout
    assert "Verified with scipy.fft" in outcome.stdout
    plans = content["pattern"]["plans"]
    named = [plans[name]["rma-notify"]["kernel"] for name in expected if name.endswith("FFTW")]
    assert set(named) <= {"mpi4py-fft"}
    grids = [each["rma-notify"]["grid"] for each in content["pattern"]["plans"].values()]
    assert grids == [{2: [2, 1, 1], 4: [2, 2, 1]}[ranks]] * len(expected)


def test_methods_are_compared_with_each_other(tmp_path):
    outcome, content = bench(2, tmp_path / "bench.json", *SHAPE, "--comm", "rma-lock,auto")
    sentences = [line for line in content["remarks"] if "both directions" in line]
    assert any("rma-lock" in line and "the time of mpi" in line for line in sentences)
    assert any(line.startswith("auto") and "of the best" in line for line in sentences)
    plans = content["pattern"]["plans"]
    assert set(plans) == {"mpi", "rma-lock", "auto"}
    assert all(plan["grid"] == [2, 1, 1] and plan["kernel"] for plan in plans.values())
    assert "grid 2 x 1 x 1, kernel " in outcome.stdout


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        pytest.param(
            [*SHAPE, "--dtype", "complex128"],
            "three-dimensional float64",
            marks=pytest.mark.full,
        ),
        ([*SHAPE, "--grid", "1", "2"], "--grid 2"),
    ],
)
def test_what_fftw_mpi_cannot_do_is_skipped_with_a_reason(words, reason, tmp_path):
    words = [*words, "--against", "fftw-mpi", "--comm", "p2p"]
    _, content = bench(2, tmp_path / "bench.json", *words)
    assert {row["labels"]["method"] for row in content["rows"]} == {"mpi", "p2p"}
    assert any(line.startswith(FFTW_MPI) and reason in line for line in content["remarks"])


def test_no_compiler_is_a_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ForeignError, match="no mpicc on PATH"):
        FftwMpi(MPI.COMM_SELF, (4, 4, 4))


def test_a_compiler_without_the_library_is_a_reason(monkeypatch, tmp_path):
    for name in ("mpicc", "mpiexec"):
        (tmp_path / name).write_text(
            "#!/bin/sh\necho fftw3-mpi.h: no such file, error >&2\nexit 1\n"
        )
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ForeignError, match=r"is not there: mpicc: fftw3-mpi\.h: no such file"):
        FftwMpi(MPI.COMM_SELF, (4, 4, 4))


def test_compilers_of_the_environment_itself_are_left_out():
    assert all(Path(sys.prefix) not in path.parents for path, _ in fftw_mpi.compilers())


def installed() -> str:
    """Why FFTW-MPI cannot be had here; empty where it can."""
    try:
        FftwMpi(MPI.COMM_SELF, (4, 4, 4)).close()
    except ForeignError as error:
        return str(error)
    return ""


def test_fftw_mpi_takes_turns_with_ours(tmp_path):
    reason = installed()
    if reason:
        pytest.skip(f"FFTW-MPI: {reason}")
    words = [*SHAPE, "--against", "fftw-mpi", "--comm", "rma-notify"]
    outcome, content = bench(2, tmp_path / "bench.json", *words)
    rows = [row for row in content["rows"] if row["labels"]["method"] == FFTW_MPI]
    assert [row["labels"]["direction"] for row in rows] == ["forward", "backward"]
    assert all(len(row["times_s"]) == row["iterations"] and min(row["times_s"]) > 0 for row in rows)
    facts = content["pattern"]["FFTW-MPI"]
    assert facts["ranks"] == 2
    assert facts["error"] < 1e-12
    assert "times as fast as FFTW-MPI: mpi " in outcome.stdout


def test_a_program_that_ends_early_is_an_error():
    reason = installed()
    if reason:
        pytest.skip(f"FFTW-MPI: {reason}")
    fftw = FftwMpi(MPI.COMM_SELF, (4, 6, 8))
    fftw.run("forward")
    assert fftw.times("forward", 1)[0] > 0
    fftw.close()
    fftw.close()
    with pytest.raises(ForeignError, match="before close"):
        fftw.run("forward")


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_the_local_work_is_a_whole_transform(dtype):
    """On one rank nothing is moved, so kernels in a row must give the transform."""
    shape = (6, 5, 8)
    draw = np.random.default_rng(7)
    data = draw.standard_normal(shape)
    if dtype == "complex128":
        data = data + 1j * draw.standard_normal(shape)
    with PFFT(MPI.COMM_SELF, shape, dtype=dtype, effort="estimate") as plan:
        work = LocalWork(plan, "scipy")
    (memory,) = work._memory
    before, after = memory._before, memory._after
    before[...] = data
    work.forward()
    transform = scipy.fft.fftn if dtype == "complex128" else scipy.fft.rfftn
    expected = transform(data, norm="forward")
    assert np.allclose(after, expected, atol=1e-6)
    work.backward()
    assert np.allclose(before, data, atol=1e-5)


def test_an_unknown_backend_is_one_sentence():
    finished = commands.onesided("bench", "fft", *SHAPE, "--backend", "abacus")
    assert finished.code == 2, finished
    assert len(finished.sentences) == 1
    assert "abacus" in finished.sentences[0]
