"""What mini-applications share, on several ranks."""

from __future__ import annotations

from pathlib import Path

import commands
import pytest

ALONE = Path(__file__).resolve().parent / "programs" / "mini_alone.py"


def test_halos_and_faults(run_cases):
    run_cases("cases_mini", 3, share=2)


@pytest.mark.full
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_halos_on_other_numbers_of_ranks(run_cases, ranks):
    run_cases("cases_mini", ranks)


@pytest.mark.full
def test_halos_on_two_nodes(run_cases, two_nodes):
    run_cases(
        "cases_mini",
        two_nodes.ranks,
        select="neighbors",
        env=two_nodes.env,
        nodes=two_nodes.nodes,
    )


@pytest.mark.parametrize("words", ["hpccg --shape 4", "minife --shape 6 --levels 1"])
def test_an_error_of_one_rank_alone_ends_the_job(words):
    """In a run, where the others wait for what that rank does not send."""
    finished = commands.python(str(ALONE), *words.split(), ranks=2, timeout=60)
    assert not finished.hung, finished
    assert finished.code != 0
    assert "this rank fails" in finished.err
