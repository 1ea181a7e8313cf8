"""``onesided solve`` and ``onesided pagerank``: the plot, the commands on several ranks."""

from __future__ import annotations

from pathlib import Path

import commands

from onesided.apps.solvers.solve import HEIGHT, WIDTH, text_plot

MATRICES = Path(__file__).resolve().parent / "matrices"


def test_a_line_falls_from_one_corner_to_the_other():
    lines = text_plot("falling", {"p2p": [10.0**-k for k in range(14)]}).splitlines()
    assert lines[0] == "falling"
    body = [line.split("|")[1] for line in lines[1 : HEIGHT + 1]]
    assert body[0].startswith("*")
    assert body[-1] == " " * (WIDTH - 1) + "*"
    assert [line.count("*") for line in body] == [1] * HEIGHT
    assert lines[1].startswith("  1e+0 |")
    assert lines[-1].split() == ["0", "13"]


def test_every_line_has_its_mark_and_nothing_breaks_the_plot():
    shown = text_plot("two", {"a": [1.0, 0.1], "b": [5.0, 0.0, float("nan"), float("inf"), 0.2]})
    assert shown.splitlines()[-1] == "* a  o b"
    assert shown.count("*") == 3
    assert shown.count("o") == 4  # two points, the legend, the title
    for values in ([], [0.0], [float("nan")]):
        assert text_plot("none", {"a": values}) == "none: nothing to draw"
    assert "*" in text_plot("one", {"a": [1.0]})


def test_the_commands_start_themselves(tmp_path):
    path = tmp_path / "x.h5"
    words = ["solve", str(MATRICES / "Trefethen_20b.mtx.gz"), "--comm", "p2p", "--ranks", "2"]
    finished = commands.onesided(*words, "--precond", "ssor", "--output", str(path))
    assert finished.code == 0, finished
    assert "norm of the residual" in finished.out
    assert "1 node, 2 ranks" in finished.out
    assert path.exists()
    assert not list(tmp_path.glob("*.part"))
    words = ["pagerank", str(MATRICES / "karate.mtx.gz"), "--comm", "p2p", "--verify"]
    finished = commands.onesided(*words)
    assert finished.code == 0, finished
    assert "The first 10 of 34 nodes" in finished.out
