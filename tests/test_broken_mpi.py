"""Exceptions around a round, Test that is local, late rounds in every number: both interpreters."""

from __future__ import annotations

import pytest

QUICK = {"ONESIDED_CASE_TIMEOUT": "30"}


@pytest.mark.parametrize("core", ["", "python"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_broken_rounds(run_cases, ranks, core):
    run_cases("cases_broken", ranks, env=QUICK | {"ONESIDED_CORE": core}, share=2)


def test_polling_on_emulated_nodes(run_cases):
    run_cases("cases_broken", 2, select=["case_polling_ends"], env=QUICK, share=2,
              options={"ranks_per_node": "1"})
