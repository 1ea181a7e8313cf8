"""``onesided minimd``: its options, scaling, and the command on several ranks."""

from __future__ import annotations

import json

import commands
import pytest
from mpi4py import MPI

from onesided.apps.bench.race import Contestant, Stopwatch, race, unchecked
from onesided.apps.cli.options import Options, Parser
from onesided.apps.cli.report import Row
from onesided.apps.miniapps.minimd import EFFICIENCY, add_efficiencies, of_stage
from onesided.apps.miniapps.minimd_links import ways
from onesided.apps.miniapps.minimd_problem import Problem
from onesided.apps.miniapps.options import minimd
from onesided.apps.miniapps.stages import Stage
from onesided.apps.report.result import REFERENCE
from onesided.collectives import methods

INPUT = """A problem without epsilon and sigma

lj   units
none data file
lj   force style
5 4 4
25
0.004
1.2
0.7
10
2.4 0.25
15
"""


@pytest.mark.parametrize("ranks", [2, pytest.param(1, marks=pytest.mark.full)])
def test_minimd(run_cases, ranks):
    run_cases("cases_minimd", ranks, share=2)


def test_three_ranks_of_which_one_has_no_atoms(run_cases):
    run_cases("cases_minimd", 3, select="ranks_without_atoms")


@pytest.mark.full
@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_minimd_on_more_ranks(run_cases, ranks):
    run_cases("cases_minimd", ranks)


@pytest.mark.full
def test_minimd_on_two_nodes(run_cases, two_nodes):
    run_cases(
        "cases_minimd",
        two_nodes.ranks,
        select="case_every_way",
        env=two_nodes.env,
        nodes=two_nodes.nodes,
    )


def test_the_command_draws_and_tells(tmp_path):
    pytest.importorskip("matplotlib", reason="the pictures need matplotlib")
    names = ("in.lj.miniMD", "out.json", "out.png", "out-overhead.png")
    files = [tmp_path / name for name in names]
    files[0].write_text(INPUT)
    words = f"minimd {files[0]} --verify --comm fence --scaling weak strong --kernel numpy"
    words += f" --repeats 3 --ranks 2 --json {files[1]} --picture {files[2]}"
    finished = commands.onesided(*words.split())
    assert finished.code == 0, finished
    assert "All ways came to the same state, bit by bit." in finished.out
    assert "Time over that of two-sided, strong scaling" in finished.out
    assert "efficiency" in finished.out
    found = json.loads(files[1].read_text())
    assert found["verified"] is True
    assert [(row["labels"]["scaling"], row["labels"]["ranks"], row["cells"]) for row in found["rows"][::2]] == [
        ("weak", 1, [5, 4, 4]),
        ("weak", 2, [10, 4, 4]),
        ("strong", 1, [10, 4, 4]),
        ("strong", 2, [10, 4, 4]),
    ]
    for row in found["rows"]:
        assert row["steps"] == [10, 10, 5]
        assert row["times_s"] == [
            each / steps for each, steps in zip(row["run_s"], row["steps"], strict=True)
        ]
        assert set(row["parts"]) == {"forces", "lists", "communication"}
    for path in files[2:]:
        assert path.read_bytes().startswith(b"\x89PNG")


def test_a_blow_up_is_one_sentence_and_no_success():
    words = "minimd --shape 6 --steps 40 --kernel numpy --dt 1 --comm fence --ranks 2"
    finished = commands.onesided(*words.split())
    assert finished.code == 2, finished
    (sentence,) = finished.sentences
    assert sentence.startswith("onesided: step ")
    assert "the time step 1 is too long" in sentence


def test_efficiencies():
    def row(scaling, ranks, times, name=REFERENCE, reason=""):
        labels = {"scaling": scaling, "ranks": str(ranks), "method": name}
        return Row(labels, times, reason=reason)

    weak, strong = [1.0, 3.0], [0.5, 1.5]
    rows = [
        row("weak", 4, strong), row("weak", 2, weak), row("strong", 2, weak),
        row("strong", 4, strong), row("weak", 2, weak, "fence"), row("weak", 4, [], "fence", "no"),
        Row({"method": REFERENCE}, weak),
    ]  # fmt: skip
    add_efficiencies(rows)
    assert [row.facts.get(EFFICIENCY) for row in rows] == [2.0, 1.0, 1.0, 1.0, 1.0, None, None]


def test_the_help_names_every_way():
    parser = Parser()
    minimd(parser)
    text = "".join(parser.format_help().split())
    own = [name for name in ways() if name not in methods()]
    assert len(own) == 5
    assert [name for name in own if name not in text] == []
    assert parser.parse_args([]).repeats == 5


def test_what_is_around_a_run_is_called_for_every_run():
    called = []

    def entered(name):
        steps = [lambda step=step: called.append(name + step) for step in "bcaw"]
        return Contestant(
            name, steps[1], unchecked("a test"), before=steps[0], after=steps[2],
            parts={"part": Stopwatch()}, warm_up=steps[3],
        )  # fmt: skip

    both = [entered("1"), entered("2")]
    found = race(MPI.COMM_SELF, both, iterations=2, tick=lambda: called.append("t"))
    assert called[:2] == ["1w", "2w"]
    turns = " ".join(called[2:]).split(" t")
    assert sorted(each.split()[0] for each in turns[:2]) == ["1b", "2b"]
    assert sorted(each.strip() for each in turns)[1:] == 2 * ["1b 1c 1a"] + 2 * ["2b 2c 2a"]
    assert [len(times) for times in found.times.values()] == [2, 2]
    assert list(found.parts.values()) == [{"part": [0.0, 0.0]}] * 2


def test_boxes_of_shares():
    problem = Problem(cells=(4, 5, 6))
    whole, shared = Stage(4, 4), Stage(2, 4, "strong")
    options = Options(grid=["auto"])
    assert of_stage(problem, True, options, whole).cells == (4, 5, 6)
    assert of_stage(problem, False, options, whole).cells == (8, 10, 6)
    assert of_stage(problem, True, options, shared).cells == (8, 10, 6)
    options.grid = [1, "auto", 1]
    assert of_stage(problem, True, options, shared).cells == (4, 20, 6)
    options.grid = [3]  # a grid for other numbers of ranks
    assert of_stage(problem, True, options, shared).cells == (8, 10, 6)
