"""``onesided bench programs``: what is found, and what is refused. The contract has its results."""

from __future__ import annotations

import json

import commands
import numpy as np
import pytest

from onesided.apps.tools import program_job, programs

pytestmark = pytest.mark.one_mpi


def bench(tmp_path, text, *words):
    file = tmp_path / "program.py"
    file.write_text(text)
    path = tmp_path / "out.json"
    words = ["bench", "programs", str(file), "--iterations", "1", "--json", str(path), *words]
    finished = commands.onesided(*words)
    return finished, json.loads(path.read_text())["rows"] if path.exists() else []


def test_other_numbers_are_found(tmp_path):
    pytest.importorskip("mpi4py_fft", reason="install() needs mpi4py-fft")
    text = "import mpi4py_fft, numpy\nN = 1.0\nu = numpy.full(3, N) * ('onesided' in "
    text += "mpi4py_fft.pencil.Transfer.__module__)\n"
    finished, rows = bench(tmp_path, text, "--set", "N=7.0")
    assert finished.code == 1, finished
    assert [row["labels"]["method"] for row in rows] == list(program_job.MODES)
    assert [row.get("verified") for row in rows] == [None, False, False]
    assert rows[0]["metrics"] == {"transforms": 0.0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("raise RuntimeError('not this way')", "RuntimeError: not this way"),
        ("def", "SyntaxError: "),
    ],
)
def test_a_program_that_does_not_run_is_refused(tmp_path, text, said):
    finished, _ = bench(tmp_path, text)
    assert finished.code == 2, finished
    (sentence,) = finished.sentences
    assert f"as is: {said}" in sentence
    assert "replace(): the program does not run as it is" in sentence


def test_a_line_says_another_value():
    text = "N = 8\nM = N\nif N == 8:\n    NN = 3\n"
    assert program_job.changed(text, ["N=16", r"M=r'\1'"]) == text.replace(
        "N = 8", "N = 16").replace("M = N", r"M = r'\1'")  # fmt: skip
    with pytest.raises(ValueError, match="no lines L = "):
        program_job.changed(text, ["L=1"])
    with pytest.raises(ValueError, match="2 lines N = "):
        program_job.changed(text + "N = 9\n", ["N=1"])


def test_differences_are_relative_and_see_what_is_missing(tmp_path):
    def saved(name, **arrays):
        np.savez(tmp_path / name, **arrays)
        return tmp_path / f"{name}.npz"

    one = saved("one", u=np.array([2.0, 4.0]), noise=np.array([1e-12]))
    near = saved("near", u=np.array([2.0, 4.0 + 4e-8]), noise=np.array([-1e-12]))
    assert programs._difference(one, near) == pytest.approx(1e-8)
    assert programs._difference(one, one) == 0.0
    assert programs._difference(one, saved("few", u=np.zeros(2))) == np.inf
    other = saved("other", u=np.zeros(3), noise=np.zeros(1))
    assert programs._difference(one, other) == np.inf
    gone = saved("gone", u=np.array([np.nan, 4.0]), noise=np.zeros(1))
    assert np.isnan(programs._difference(one, gone))
