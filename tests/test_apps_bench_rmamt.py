"""``bench rma-mt`` as a person starts it: jobs, faults, what is kept, images, the report."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import commands
import pytest

from onesided.apps.bench.foreign import ForeignError
from onesided.apps.papers.rmamt_compiled import build

FAULTS = Path(__file__).resolve().parent / "programs" / "rma_mt_fault"
FAST = "--repeats 1 --iterations 3 --run-seconds 0.01 --messages 4".split()


@pytest.fixture(scope="module")
def loop(tmp_path_factory):
    """The loop in C, as an option of cases; without a compiler there is none."""
    path = tmp_path_factory.mktemp("loop") / "rma_loop.so"
    code = (
        "import sys; from pathlib import Path;"
        "from onesided.apps.papers.rmamt_compiled import build;"
        "build(Path(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        env=dict(commands.clean_environment()) | {"OMPI_MCA_osc": "^ucx"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    return {"loop": str(path)} if done.returncode == 0 else {}


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.full)])
def test_cells(run_cases, ranks, loop):
    run_cases("cases_rmamt", ranks, options=loop, share=6)


@pytest.mark.full
def test_cells_between_nodes(run_cases, two_nodes, loop):
    layout = {"env": two_nodes.env, "nodes": two_nodes.nodes}
    run_cases("cases_rmamt", two_nodes.ranks, options=loop, **layout)


def test_a_level_that_is_too_low(run_cases):
    run_cases("cases_rmamt", 2, select="too_low", env={"MPI4PY_RC_THREAD_LEVEL": "single"})


def sweep(folder, *words, faults=False):
    if not faults:
        return commands.onesided("bench", "rma-mt", "-o", str(folder), *FAST, *words)
    code = (
        "import os, sys; path = [sys.argv.pop(1), os.environ.get('PYTHONPATH')];"
        "os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, path));"
        "from onesided.apps.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    arguments = ["bench", "rma-mt", "-o", str(folder), *FAST, *words]
    return commands.python("-c", code, str(FAULTS), *arguments)


def content(folder):
    return json.loads((folder / "rma-mt.json").read_text())


def test_failures_cost_a_cell_each_and_are_counted(tmp_path):
    words = "--patterns bandwidth --syncs fence --ops put --thread-levels multiple --threads 1 "
    words += "--sizes 1 2 3 4 5 6 --limit 3"
    finished = sweep(tmp_path, *words.split(), faults=True)
    assert finished.code == 1, finished
    found = content(tmp_path)
    rows = {(row["labels"]["sync"], row["labels"]["message"]): row for row in found["rows"]}
    kinds = {
        size: rows["fence", f"{size} B"].get("reason", "").split(":")[0] for size in range(1, 7)
    }
    assert kinds == {1: "", 2: "crash", 3: "error", 4: "hang", 5: "wrong data", 6: ""}, finished
    assert found["pattern"]["failures"]["by_kind"] == {
        "crash": 1, "error": 1, "hang": 1, "wrong data": 1
    }
    assert all("reason" not in rows["two-sided", f"{size} B"] for size in range(1, 7))
    assert "4 of 12 cells FAILED" in finished.out
    again = sweep(tmp_path, *words.split(), "--retry")
    assert again.code == 0, again
    assert content(tmp_path)["pattern"]["failures"]["failed"] == 0


@pytest.mark.full
def test_a_sweep_goes_on_and_is_drawn_and_reported(tmp_path):
    words = "--sizes 8 1K --threads 1 2 --syncs fence lock_all --ops put".split()
    first = sweep(tmp_path, *words, "--patterns", "latency")
    assert first.code == 0, first
    before = (tmp_path / "cells.jsonl").read_text()
    second = sweep(tmp_path, *words, "--batch", "200")
    assert second.code == 0, second
    assert (tmp_path / "cells.jsonl").read_text().startswith(before)
    found = content(tmp_path)
    assert found["verified"] is True
    assert found["machine"]["ranks"] == 2
    assert len(found["rows"]) == 4 * 2 * (2 + 2 * 3)
    for row in found["rows"]:
        assert row["median_s"] > 0
    if find_spec("matplotlib") is not None:
        drawn = {path.name for path in tmp_path.glob("figure-*.png")}
        names = "1a 1b 1c 2 3a 3b 4a 4b 5a 5b 6a 6b 7a 7b".split()
        assert drawn == {f"figure-{name}.png" for name in names}
    other = sweep(tmp_path, *words, "--repeats", "2")
    assert other.code == 2
    assert other.sentences[0].endswith("choose another folder, or --afresh")
    report = commands.onesided("report", str(tmp_path), "-o", str(tmp_path / "report.html"))
    assert report.code == 0, report
    page = (tmp_path / "report.html").read_text()
    assert page.count("Figure 3a") >= 1
    assert "No failure in 64 cells" in page


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--ranks", "1"], "--ranks 1: messages go from one rank to another, it needs 2 at least"),
        (["--threads", "100"], "100: at most 64 of a rank"),
        (["--window", "1K", "--sizes", "4K"], "lies outside of a window of 1 KiB (--window)"),
        (["--second", "nowhere"], "--second nowhere: no cells of bench rma-mt in this folder"),
    ],
)
def test_bad_input(tmp_path, words, sentence):
    finished = sweep(tmp_path, *words)
    assert finished.code == 2
    assert len(finished.sentences) == 1
    assert sentence in finished.sentences[0]


def test_it_starts_its_own_jobs(tmp_path):
    finished = commands.onesided("bench", "rma-mt", "-o", str(tmp_path), ranks=2)
    assert finished.code == 2
    assert finished.sentences == [
        "onesided: bench rma-mt starts its own jobs: run it without mpiexec, with --ranks N"
    ]


def test_without_a_compiler_it_says_so(tmp_path, monkeypatch):
    from onesided.apps.papers import rmamt_compiled

    monkeypatch.setattr(rmamt_compiled, "_compilers", lambda: iter(()))
    with pytest.raises(ForeignError, match="no mpicc on PATH"):
        build(tmp_path / "loop.so")
    (tmp_path / "broken.c").write_text("this is not C\n")
    monkeypatch.undo()
    monkeypatch.setattr(rmamt_compiled, "SOURCE", tmp_path / "broken.c")
    with pytest.raises(ForeignError):
        build(tmp_path / "loop.so")
