"""What the mini-applications are made of, on several ranks."""

from __future__ import annotations

from pathlib import Path

import commands
import pytest

pytestmark = pytest.mark.one_mpi

ALONE = Path(__file__).resolve().parent / "programs" / "mini_alone.py"


@pytest.mark.parametrize("words", ["hpccg --shape 4", "minife --shape 6"])
def test_an_error_of_one_rank_alone_ends_the_job(words):
    """In a run, where the others wait for what that rank does not send."""
    finished = commands.python(str(ALONE), *words.split(), ranks=2, timeout=60)
    assert not finished.hung, finished
    assert finished.code != 0
    assert "this rank fails" in finished.err
