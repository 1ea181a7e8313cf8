"""What the mini-applications are made of, on several ranks."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("ranks", [1, 2, pytest.param(4, marks=pytest.mark.full)])
@pytest.mark.parametrize("module", ["cases_mini", "cases_minimd"])
def test_ghosts_come_by_every_way(run_cases, module, ranks):
    run_cases(module, ranks)
